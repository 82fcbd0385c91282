//! A whole new copy takes the place of what a directory holds, in steps that may be cut short anywhere.
//!
//! ```text
//! incoming/      the new copy, a data directory of its own, whole and durable before the next line exists
//! swapping       what goes, where to, and what comes: from here on the swap is decided
//! damaged-1/     what was there before (`compacted-1/` and so on)
//! ```
//!
//! `bosun.format` goes first and comes last: in between, every program sees a directory with parts and without a name,
//! and refuses it. Invariant: whoever takes the directory finishes what `swapping` says before anything else; every step
//! may be done again. Nothing is overwritten and nothing removed but an `incoming/` that was never decided on.

use std::ffi::OsString;
use std::fs::{self, File, TryLockError};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::error::StorageError;
use super::files::{DataDir, sync_dir};
use super::mounts::is_mount_point;
use super::private;
use super::sled_format::source::read_whole;

/// What makes a store, in the order of going; in that of coming, turned round.
const PARTS: [&str; 8] = ["bosun.format", "log", "anchor", "payloads", "groups", "values", "held", "wal"];

/// Where the new copy is made.
pub(crate) fn incoming(dir: &DataDir) -> PathBuf {
    dir.root.join("incoming")
}

fn note(dir: &DataDir) -> PathBuf {
    dir.root.join("swapping")
}

/// Whether a swap was decided and is not done.
pub(crate) fn is_under_way(dir: &DataDir) -> bool {
    // What cannot be looked at may be there: whoever goes on reads it, and is told.
    note(dir).try_exists().unwrap_or(true)
}

/// Refuses parts that a rename does not move: of another file system, or links to elsewhere.
pub(crate) fn is_movable(dir: &DataDir) -> Result<(), StorageError> {
    let look = |path: &Path| fs::symlink_metadata(path).map_err(|why| StorageError::io("look at", path, &why));
    let root = fs::metadata(&dir.root).map_err(|why| StorageError::io("look at", &dir.root, &why))?;
    for path in PARTS.iter().map(|part| dir.root.join(part)) {
        match look(&path) {
            Ok(about) if is_elsewhere(&about, &root) || is_mount_point(&path) => {
                let detail = "it is a link or another file system, and cannot be put aside by a rename; make the copy in a \
                    new directory (`--to`)";
                return Err(taken(&path, detail));
            }
            Ok(_) => {}
            Err(StorageError::Io { kind: ErrorKind::NotFound, .. }) => {}
            Err(why) => return Err(why),
        }
    }
    Ok(())
}

/// Whether a part lies elsewhere than the directory. Files of an overlay have the device of their layer, and move all the same.
fn is_elsewhere(part: &fs::Metadata, root: &fs::Metadata) -> bool {
    part.is_symlink() || (part.is_dir() && part.dev() != root.dev())
}

/// Keeps workers away whose lock file is gone: they hold the database itself.
pub(crate) fn hold_database(dir: &DataDir) -> Result<Option<File>, StorageError> {
    let path = dir.sled().join("db");
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(why) if why.kind() == ErrorKind::NotFound => return Ok(None),
        Err(why) => return Err(StorageError::io("open", &path, &why)),
    };
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Err(StorageError::Locked { dir: dir.root.clone() }),
        Err(TryLockError::Error(why)) => Err(StorageError::io("lock", &path, &why)),
    }
}

/// Whether something is there; what cannot be looked at is no part that is missing.
fn is_there(path: &Path) -> Result<bool, StorageError> {
    path.try_exists().map_err(|why| StorageError::io("look at", path, &why))
}

/// Removes a copy that was never decided on. The directory is held. What is no copy is somebody's own, and stays.
pub(crate) fn clear(dir: &DataDir) -> Result<(), StorageError> {
    let path = incoming(dir);
    match is_copy(&path)? {
        true => remove_tree(&path),
        false => Err(taken(&dir.root, "its `incoming` is no copy of a store that Bosun began; move it away")),
    }
}

/// Whether there is nothing in it but what makes a store, whole or not.
fn is_copy(path: &Path) -> Result<bool, StorageError> {
    let is_ours = |name: &OsString| {
        let name = name.to_string_lossy();
        let name = name.strip_suffix(".new").unwrap_or(&name);
        PARTS.contains(&name) || name == "bosun.lock"
    };
    Ok(names_in(path)?.iter().all(is_ours))
}

pub(crate) fn remove_tree(path: &Path) -> Result<(), StorageError> {
    match fs::remove_dir_all(path) {
        Err(why) if why.kind() != ErrorKind::NotFound => Err(StorageError::io("remove", path, &why)),
        _ => Ok(()),
    }
}

/// Makes a store in a directory that holds nothing. One that a crash cuts short is no store, and may be begun again.
pub(crate) fn arrive<T>(dir: &DataDir, make: impl FnOnce(&Path) -> Result<T, StorageError>) -> Result<T, StorageError> {
    is_free(&dir.root)?;
    let was_there = dir.root.exists();
    let lock = dir.lock()?;
    // Another one may have arrived while this one waited for the directory.
    is_free(&dir.root)?;
    // It may have been there, empty and open to others: from here on it is a store's.
    private::tighten(&dir.root, &dir.sled());
    clear(dir)?;
    let made = make(&incoming(dir)).and_then(|made| swap(dir, "nothing").map(|nothing| (made, nothing)));
    match made {
        Ok((made, nothing)) => {
            fs::remove_dir(&nothing).map_err(|why| StorageError::io("remove", &nothing, &why))?;
            Ok(made)
        }
        Err(why) => {
            // Half a copy is of no use, and takes room; a swap that was decided is finished by the next who comes.
            if !is_under_way(dir) {
                let _ = clear(dir);
                drop(lock);
                let _ = if was_there { Ok(()) } else { remove_tree(&dir.root) };
            }
            Err(why)
        }
    }
}

/// Refuses what is no directory, and one that holds anything but what an earlier try left that was cut short.
pub(crate) fn is_free(root: &Path) -> Result<(), StorageError> {
    // The names of the keys of a store are there before it.
    let left = ["bosun.lock", "incoming", "swapping.new", "keys.json"];
    let counts = |name: &OsString| !left.iter().any(|known| name == known);
    match names_in(root)?.iter().any(counts) {
        true => Err(taken(root, "it is not empty; choose a new directory")),
        false => Ok(()),
    }
}

/// Refuses a target that is its own source, or lies inside it: each copy would hold the one before, and whoever moves the
/// store moves its copies.
pub(crate) fn is_outside(source: &Path, target: &Path) -> Result<(), StorageError> {
    let Ok(source) = source.canonicalize() else { return Ok(()) };
    let Ok(target) = std::path::absolute(target) else { return Ok(()) };
    // What is not there yet lies where what is there of its path leads.
    let there = target.ancestors().find_map(|above| Some((above.canonicalize().ok()?, above)));
    let Some((real, above)) = there else { return Ok(()) };
    let whole = target.strip_prefix(above).map_or_else(|_| real.clone(), |rest| real.join(rest));
    match whole.starts_with(&source) {
        true if whole == source => Err(taken(&target, "it is the store itself; choose a new directory")),
        true => {
            Err(taken(&target, &format!("it lies inside of {}; choose a directory outside of it", source.display())))
        }
        false => Ok(()),
    }
}

/// The names in a directory that is to be written to; what is not there is empty, and what cannot be read may hold anything.
pub(crate) fn names_in(root: &Path) -> Result<Vec<OsString>, StorageError> {
    let unread = |why: std::io::Error| StorageError::io("read", root, &why);
    match fs::read_dir(root) {
        Ok(entries) => entries.map(|entry| entry.map(|entry| entry.file_name()).map_err(unread)).collect(),
        Err(why) if why.kind() == ErrorKind::NotADirectory => Err(taken(root, "it is no directory; choose a new one")),
        Err(why) if why.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(why) => Err(unread(why)),
    }
}

fn taken(root: &Path, detail: &str) -> StorageError {
    StorageError::Taken { dir: root.to_owned(), detail: detail.into() }
}

/// What was put aside under this name: directories with the parts of a store, and nothing of anybody else's.
pub(crate) fn aside(dir: &DataDir, name: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(&dir.root).into_iter().flatten().flatten();
    let is_one = |entry: &fs::DirEntry| {
        let number = entry.file_name().to_string_lossy().strip_prefix(name).map(str::to_owned);
        let is_number = |number: &str| !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit());
        number.is_some_and(|number| number.strip_prefix('-').is_some_and(is_number))
            && is_copy(&entry.path()).unwrap_or(false)
    };
    entries.filter(is_one).map(|entry| entry.path()).collect()
}

/// Removes what was there before a store was made compact, which a crash may have left. The directory is held.
pub(crate) fn clear_compacted(dir: &DataDir) -> Result<u64, StorageError> {
    let mut removed = 0;
    for path in aside(dir, "compacted") {
        remove_tree(&path)?;
        removed += 1;
    }
    Ok(removed)
}

/// The names of the parts that are there.
fn parts_in(root: &Path) -> Result<String, StorageError> {
    let mut parts = Vec::new();
    for part in PARTS {
        if is_there(&root.join(part))? {
            parts.push(part);
        }
    }
    Ok(parts.join(" "))
}

/// Puts what is in `incoming/` in the place of what is here, which goes to a directory beside it whose name begins with
/// `aside`. The directory is held, and the copy is whole and durable. Answers where the old one is.
pub(crate) fn swap(dir: &DataDir, aside: &str) -> Result<PathBuf, StorageError> {
    let mut number = 1;
    while is_there(&dir.root.join(format!("{aside}-{number}")))? {
        number += 1;
    }
    let name = format!("{aside}-{number}");
    let lines = format!("aside {name}\nold {}\nnew {}\n", parts_in(&dir.root)?, parts_in(&incoming(dir))?);
    let text = format!("{lines}crc {:08x}\n", crc32fast::hash(lines.as_bytes()));
    let (path, temporary) = (note(dir), dir.root.join("swapping.new"));
    let io = |op| move |why: std::io::Error| StorageError::io(op, &note(dir), &why);
    let mut file = private::create(&temporary).map_err(io("create"))?;
    file.write_all(text.as_bytes()).map_err(io("write"))?;
    file.sync_all().map_err(io("fsync"))?;
    fs::rename(&temporary, &path).map_err(io("rename"))?;
    sync_dir(&dir.root)?;
    finish(dir)?;
    Ok(dir.root.join(name))
}

/// Does what `swapping` says, if there is one. The directory is held.
pub(crate) fn finish(dir: &DataDir) -> Result<(), StorageError> {
    let path = note(dir);
    let bytes = match read_whole(&path) {
        Ok(bytes) => bytes,
        Err(why) if why.kind() == ErrorKind::NotFound => return Ok(()),
        Err(why) => return Err(StorageError::io("read", &path, &why)),
    };
    let (aside, old, new) = parse(&bytes).ok_or_else(|| damaged_note(dir))?;
    let (aside, incoming) = (dir.root.join(aside), incoming(dir));
    private::make_dir(&aside).map_err(|why| StorageError::io("create", &aside, &why))?;
    for part in PARTS.iter().filter(|part| old.iter().any(|name| name == *part)) {
        // What came is only put here when all of this has gone.
        if !is_there(&aside.join(part))? {
            moved(&dir.root.join(part), &aside.join(part))?;
        }
    }
    sync_dir(&aside)?;
    sync_dir(&dir.root)?;
    for part in PARTS.iter().rev().filter(|part| new.iter().any(|name| name == *part)) {
        moved(&incoming.join(part), &dir.root.join(part))?;
    }
    sync_dir(&dir.root)?;
    remove_tree(&incoming)?;
    fs::remove_file(&path).map_err(|why| StorageError::io("remove", &path, &why))?;
    sync_dir(&dir.root)
}

/// A note that does not say what was decided. Which of the two copies is whole can be seen: nothing of either is gone.
fn damaged_note(dir: &DataDir) -> StorageError {
    let copies: Vec<PathBuf> = ["damaged", "compacted", "nothing"].iter().flat_map(|name| aside(dir, name)).collect();
    let all: Vec<String> =
        [vec![incoming(dir)], copies].concat().iter().map(|path| path.display().to_string()).collect();
    let detail =
        format!("at byte 0: its CRC is wrong. The new copy and the old one are there: save from {}", all.join(" or "));
    StorageError::corrupt("note of a swap", note(dir), detail)
}

/// Whether a swap was decided and not done, and its note can be followed; who looks is told if it cannot.
pub(crate) fn check_under_way(dir: &DataDir) -> Result<bool, StorageError> {
    if !is_under_way(dir) {
        return Ok(false);
    }
    match read_whole(&note(dir)) {
        Ok(bytes) if parse(&bytes).is_none() => Err(damaged_note(dir)),
        _ => Ok(true),
    }
}

/// Done before, when there is nothing to move.
fn moved(from: &Path, to: &Path) -> Result<(), StorageError> {
    match fs::rename(from, to) {
        Err(why) if why.kind() != ErrorKind::NotFound => Err(StorageError::io("rename", from, &why)),
        _ => Ok(()),
    }
}

fn parse(bytes: &[u8]) -> Option<(String, Vec<String>, Vec<String>)> {
    let (lines, crc) = std::str::from_utf8(bytes).ok()?.rsplit_once("crc ")?;
    if format!("{:08x}\n", crc32fast::hash(lines.as_bytes())) != crc {
        return None;
    }
    let mut lines = lines.lines();
    let aside = lines.next()?.strip_prefix("aside ")?.to_owned();
    let mut names = |prefix: &str| {
        let names = lines.next()?.strip_prefix(prefix)?.split(' ').filter(|name| !name.is_empty());
        Some(names.map(str::to_owned).collect::<Vec<_>>())
    };
    Some((aside, names("old ")?, names("new ")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A store is not copied into itself, by whatever name its directory is called.
    #[test]
    fn a_copy_lies_outside_of_its_source() {
        let home = tempfile::tempdir().unwrap();
        let store = home.path().join("store");
        fs::create_dir_all(store.join("log")).unwrap();
        std::os::unix::fs::symlink(&store, home.path().join("link")).unwrap();
        for inside in ["store", "store/", "store/new", "store/log/../new/deep", "link/new", "link"] {
            let refused = is_outside(&store, &home.path().join(inside));
            assert!(matches!(refused, Err(StorageError::Taken { .. })), "{inside}: {refused:?}");
        }
        for outside in ["store-2", "other/store", "new"] {
            is_outside(&store, &home.path().join(outside)).unwrap();
            is_outside(&home.path().join("link"), &home.path().join(outside)).unwrap();
        }
    }

    /// What cannot be read is not taken for empty: here a link to itself.
    #[test]
    fn what_cannot_be_read_is_not_free() {
        let home = tempfile::tempdir().unwrap();
        assert!(is_free(&home.path().join("new")).is_ok());
        let looped = home.path().join("looped");
        std::os::unix::fs::symlink(&looped, &looped).unwrap();
        assert!(matches!(is_free(&looped), Err(StorageError::Io { op: "read", .. })));
        assert!(matches!(is_free(home.path()), Err(StorageError::Taken { .. })));
    }

    fn store(root: &Path, parts: &[&str], text: &str) {
        for part in parts {
            let path = root.join(part);
            if part.contains('.') || *part == "anchor" || *part == "held" {
                fs::create_dir_all(root).unwrap();
                fs::write(path, text).unwrap();
            } else {
                fs::create_dir_all(&path).unwrap();
                fs::write(path.join("file"), text).unwrap();
            }
        }
    }

    fn texts(root: &Path) -> Vec<(String, String)> {
        let read = |part: &&str| {
            let path = root.join(part);
            let text = fs::read_to_string(&path).or_else(|_| fs::read_to_string(path.join("file"))).ok()?;
            Some(((*part).to_owned(), text))
        };
        PARTS.iter().filter_map(read).collect()
    }

    /// The swap is cut short behind each rename: each time, the next one who takes the directory finishes it.
    #[test]
    fn a_swap_that_was_cut_short_is_finished() {
        let (old, new) = (["bosun.format", "log", "anchor", "payloads", "held"], &PARTS[..6]);
        for cut in 0..=old.len() + new.len() {
            let home = tempfile::tempdir().unwrap();
            let dir = DataDir::new(home.path());
            store(&dir.root, &old, "old");
            store(&incoming(&dir), new, "new");
            let lines = format!("aside damaged-1\nold {}\nnew {}\n", old.join(" "), new.join(" "));
            fs::write(note(&dir), format!("{lines}crc {:08x}\n", crc32fast::hash(lines.as_bytes()))).unwrap();
            let aside = dir.root.join("damaged-1");
            fs::create_dir(&aside).unwrap();
            let goes = old.iter().map(|part| (dir.root.join(part), aside.join(part)));
            let comes = new.iter().rev().map(|part| (incoming(&dir).join(part), dir.root.join(part)));
            for (from, to) in goes.chain(comes).take(cut) {
                fs::rename(from, to).unwrap();
            }
            assert!(is_under_way(&dir));
            // Nothing is damaged: who looks is told who completes it.
            let why = dir.hold_settled().unwrap_err();
            assert!(matches!(&why, StorageError::SwapUnfinished { .. }), "{why}");
            assert!(why.to_string().contains("a worker that starts there completes it"), "{why}");
            finish(&dir).unwrap();
            assert!(!is_under_way(&dir) && !incoming(&dir).exists());
            assert!(texts(&dir.root).iter().all(|(_, text)| text == "new") && texts(&dir.root).len() == new.len());
            assert!(texts(&aside).iter().all(|(_, text)| text == "old") && texts(&aside).len() == old.len());
        }
    }

    /// Nothing of anybody else's is removed for having a name that Bosun uses.
    #[test]
    fn what_is_no_copy_stays() {
        let home = tempfile::tempdir().unwrap();
        let dir = DataDir::new(home.path());
        for name in ["incoming", "compacted-2025", "compacted-old"] {
            fs::create_dir(dir.root.join(name)).unwrap();
            fs::write(dir.root.join(name).join("letter.txt"), "precious").unwrap();
        }
        store(&dir.root.join("compacted-1"), &PARTS[..4], "old");
        let refused = arrive(&dir, |_| Ok(()));
        assert!(matches!(refused, Err(StorageError::Taken { .. })), "{refused:?}");
        assert!(matches!(clear(&dir), Err(StorageError::Taken { .. })));
        assert_eq!(clear_compacted(&dir).unwrap(), 1);
        for name in ["incoming", "compacted-2025"] {
            assert_eq!(fs::read(dir.root.join(name).join("letter.txt")).unwrap(), b"precious");
        }
    }

    /// Two that make a store in one directory: the second finds the first one's there, and leaves it.
    #[test]
    fn a_store_that_arrived_meanwhile_stays() {
        let home = tempfile::tempdir().unwrap();
        let dir = DataDir::new(home.path());
        arrive(&dir, |incoming| {
            store(incoming, &["log", "bosun.format"], "first");
            Ok(())
        })
        .unwrap();
        let refused = arrive(&dir, |incoming| {
            store(incoming, &["log"], "second");
            Ok(())
        });
        assert!(matches!(refused, Err(StorageError::Taken { .. })), "{refused:?}");
        assert!(texts(&dir.root).iter().all(|(_, text)| text == "first"));
    }

    #[test]
    fn a_damaged_note_moves_nothing() {
        let home = tempfile::tempdir().unwrap();
        let dir = DataDir::new(home.path());
        store(&dir.root, &["log"], "old");
        fs::write(note(&dir), "aside x\nold log\nnew \ncrc 00000000\n").unwrap();
        assert!(matches!(finish(&dir), Err(StorageError::Corrupt { .. })));
        assert_eq!(texts(&dir.root).len(), 1);
    }
}
