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
use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use super::error::StorageError;
use super::files::{DataDir, sync_dir};
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

/// Whether something is there; what cannot be looked at is no part that is missing.
fn is_there(path: &Path) -> Result<bool, StorageError> {
    path.try_exists().map_err(|why| StorageError::io("look at", path, &why))
}

/// Removes a copy that was never decided on. The directory is held.
pub(crate) fn clear(dir: &DataDir) -> Result<(), StorageError> {
    remove_tree(&incoming(dir))
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
    let counts = |name: &OsString| name != "bosun.lock" && name != "incoming" && name != "keys.json";
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

/// What was put aside under this name.
pub(crate) fn aside(dir: &DataDir, name: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(&dir.root).into_iter().flatten().flatten();
    let is_one = |entry: &fs::DirEntry| {
        let number = entry.file_name().to_string_lossy().strip_prefix(name).map(str::to_owned);
        number.is_some_and(|number| number.starts_with('-'))
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
    let Some((aside, old, new)) = parse(&bytes) else {
        return Err(StorageError::corrupt("note of a swap", path, "at byte 0: its CRC is wrong"));
    };
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
