//! The `file` activity: reads, lists and writes files of one directory, and reaches nothing else.
//!
//! Invariant: a path is walked name by name from an open directory, no link is followed, and what was checked is what is
//! used (the descriptor, not the name), so that neither `..`, an absolute path, a link nor a change in between leads out
//! of the root. What is read and written is bounded. A written file is whole or as it was. Hard links are files of the
//! directory like any other. It knows no agent and asks nobody.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

use bosun_engine::{ActivityContext, ActivityError, Failure};
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, RawMode};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::durable::{sync, write_whole};

/// The activity type.
pub const FILE: &str = "file";

/// Failure types of this activity. None of them passes by trying again.
pub const FILE_REFUSED: &str = "FileRefused";
/// There is no such file or directory.
pub const FILE_NOT_FOUND: &str = "FileNotFound";
/// What is to be written is longer than allowed.
pub const FILE_TOO_LARGE: &str = "FileTooLarge";
/// The operating system refused it.
pub const FILE_FAILED: &str = "FileFailed";

/// The most bytes that are read or written when the input says nothing.
pub const FILE_BYTES_DEFAULT: u64 = 1024 * 1024;
/// The most entries of a listing.
const ENTRIES_MAX: usize = 1_000;
const NAMES_MAX: usize = 64;

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileInput {
    /// The directory that nothing leaves. Given by whoever grants, never by whoever asks.
    pub root: PathBuf,
    /// What to do.
    pub op: FileOp,
    /// Relative to the root; `.` is the root.
    pub path: String,
    /// What to write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// The most bytes to read or write.
    #[serde(default = "file_bytes_default")]
    pub max_bytes: u64,
}

fn file_bytes_default() -> u64 {
    FILE_BYTES_DEFAULT
}

/// What to do with a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileOp {
    /// Read a file.
    Read,
    /// List a directory.
    List,
    /// Makes the directories on the way, and replaces what is there.
    Write,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum FileOutput {
    /// Of a read.
    Content {
        /// Bytes that are no UTF-8 have replacement characters.
        content: String,
        /// The length of the file in bytes.
        size: u64,
        /// Whether the content is only its beginning.
        truncated: bool,
    },
    /// Of a listing.
    Entries {
        /// Sorted by name.
        entries: Vec<FileEntry>,
        /// Whether there are more.
        truncated: bool,
    },
    /// Of a write.
    Written {
        /// The length of the file in bytes.
        written: u64,
    },
}

/// An entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FileEntry {
    /// Its name in the directory.
    pub name: String,
    /// `file`, `directory`, `link` or `other`.
    pub kind: String,
    /// Its length in bytes.
    pub size: u64,
}

/// What the worker's owner allows.
#[derive(Debug, Clone, Default)]
pub struct FileConfig {
    /// The directories that a root may be, or be in, links resolved. `None`: any. A program of its own sets it in the
    /// configuration that it registers the capabilities with. Whatever reads or writes files for a workflow asks here:
    /// `file`, `compose`, and the directories and reported files of `process`.
    pub roots: Option<Vec<PathBuf>>,
    /// The worker's data directory: its log, its token and the names of others'. Nobody's files lie there, whatever `roots` say.
    pub own: Option<PathBuf>,
}

impl FileConfig {
    /// Whether the owner lets workflows into this place, with links resolved on both sides: what counts is where it lies.
    pub(super) fn allows(&self, place: &Path) -> bool {
        let Some(roots) = &self.roots else { return true };
        let real = |path: &Path| std::fs::canonicalize(path).ok();
        let inside = |place: PathBuf| roots.iter().filter_map(|root| real(root)).any(|root| place.starts_with(root));
        real(place).is_some_and(inside)
    }

    /// Whether a place lies in the worker's data directory, where no workflow reads or writes.
    pub(super) fn is_own(&self, place: &Path) -> bool {
        lies_in(place, self.own.as_deref())
    }

    /// The same of a directory that is open, under whatever name.
    fn is_own_open(&self, directory: &OwnedFd) -> bool {
        let Some(own) = self.own.as_deref().and_then(|own| rustix::fs::stat(own).ok()) else { return false };
        rustix::fs::fstat(directory).is_ok_and(|stat| (stat.st_dev, stat.st_ino) == (own.st_dev, own.st_ino))
    }
}

/// Whether a place lies in a directory, with links resolved on both sides.
pub(super) fn lies_in(place: &Path, directory: Option<&Path>) -> bool {
    let real = |path: &Path| std::fs::canonicalize(path).ok();
    directory.and_then(real).zip(real(place)).is_some_and(|(directory, place)| place.starts_with(directory))
}

/// The activity function.
#[doc(hidden)]
pub async fn run(config: FileConfig, context: ActivityContext, input: FileInput) -> Result<FileOutput, ActivityError> {
    let key = blake3::hash(context.idempotency_key().as_bytes()).to_hex();
    // Files block.
    let done = tokio::task::spawn_blocking(move || act(&config, &input, &key[..16]));
    match done.await {
        Ok(result) => Ok(result?),
        Err(why) => Err(failure(FILE_FAILED, format!("the file task ended: {why}")).into()),
    }
}

fn failure(failure_type: &str, message: impl Into<String>) -> Failure {
    Failure::application(failure_type, message).non_retryable()
}

fn failed(path: &str) -> impl Fn(Errno) -> Failure {
    move |why| match why {
        Errno::NOENT => failure(FILE_NOT_FOUND, format!("there is no `{path}`")),
        // What `O_NOFOLLOW` says of a link.
        Errno::LOOP | Errno::NOTDIR => failure(FILE_REFUSED, format!("`{path}` leads over a link or a file")),
        other => failure(FILE_FAILED, format!("`{path}`: {other}")),
    }
}

fn act(config: &FileConfig, input: &FileInput, key: &str) -> Result<FileOutput, Failure> {
    let root = open_root(config, &input.root)?;
    let names = names(&input.path)?;
    match (input.op, names.split_last()) {
        (FileOp::List, _) => list(walk(config, root, &names, false, &input.path)?, &input.path),
        (FileOp::Read | FileOp::Write, None) => Err(failure(FILE_REFUSED, "the path names a directory")),
        (FileOp::Read, Some((name, way))) => read(walk(config, root, way, false, &input.path)?, name, input),
        (FileOp::Write, Some((name, way))) => {
            let content = input.content.as_deref().unwrap_or_default();
            if content.len() as u64 > input.max_bytes {
                let why = format!("{} bytes; at most {} may be written", content.len(), input.max_bytes);
                return Err(failure(FILE_TOO_LARGE, why));
            }
            write(&walk(config, root, way, true, &input.path)?, name, content, input, key)
        }
    }
}

fn open_root(config: &FileConfig, root: &Path) -> Result<OwnedFd, Failure> {
    let shown = root.display().to_string();
    if !root.is_absolute() {
        return Err(failure(FILE_REFUSED, format!("the root `{shown}` is not absolute")));
    }
    if !config.allows(root) {
        return Err(failure(FILE_REFUSED, format!("the worker's owner does not allow the root `{shown}`")));
    }
    if config.is_own(root) {
        return Err(failure(FILE_REFUSED, format!("the root `{shown}` lies in the worker's data directory")));
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat(CWD, root, flags, Mode::empty()).map_err(failed(&shown))
}

/// The names of a path, if all of them are plain names.
fn names(path: &str) -> Result<Vec<&str>, Failure> {
    let refused = |why: &str| failure(FILE_REFUSED, format!("the path `{path}` {why}"));
    if path.contains('\0') {
        return Err(refused("holds a NUL"));
    }
    let mut names = Vec::new();
    for component in Path::new(path).components() {
        match component {
            Component::Normal(name) => names.extend(name.to_str()),
            Component::CurDir => {}
            Component::ParentDir => return Err(refused("leads up")),
            Component::RootDir | Component::Prefix(_) => return Err(refused("is absolute")),
        }
    }
    if names.len() > NAMES_MAX {
        return Err(refused("is too deep"));
    }
    Ok(names)
}

/// The directory at the end of the way, opened name by name.
fn walk(config: &FileConfig, root: OwnedFd, way: &[&str], create: bool, path: &str) -> Result<OwnedFd, Failure> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut at = root;
    for name in way {
        if create {
            match rustix::fs::mkdirat(&at, *name, Mode::from_raw_mode(0o755)) {
                // A file in it is there after a power cut only if the directory itself is.
                Ok(()) => sync(&at, "directory").map_err(|why| failure(FILE_FAILED, format!("`{path}`: {why}")))?,
                Err(Errno::EXIST) => {}
                Err(why) => return Err(failed(path)(why)),
            }
        }
        at = rustix::fs::openat(&at, *name, flags, Mode::empty()).map_err(failed(path))?;
        if config.is_own_open(&at) {
            return Err(failure(FILE_REFUSED, format!("`{path}` lies in the worker's data directory")));
        }
    }
    Ok(at)
}

fn read(directory: OwnedFd, name: &str, input: &FileInput) -> Result<FileOutput, Failure> {
    // Without NONBLOCK a pipe without a writer would be waited for.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(&directory, name, flags, Mode::empty()).map_err(failed(&input.path))?;
    let stat = rustix::fs::fstat(&fd).map_err(failed(&input.path))?;
    if !is_file(stat.st_mode) {
        return Err(failure(FILE_REFUSED, format!("`{}` is no file", input.path)));
    }
    let mut bytes = Vec::new();
    let most = input.max_bytes.saturating_add(1);
    let io = |why: std::io::Error| failure(FILE_FAILED, format!("`{}`: {why}", input.path));
    File::from(fd).take(most).read_to_end(&mut bytes).map_err(io)?;
    let truncated = bytes.len() as u64 > input.max_bytes;
    bytes.truncate(usize::try_from(input.max_bytes).unwrap_or(usize::MAX));
    if truncated
        && let Err(why) = std::str::from_utf8(&bytes)
        && why.error_len().is_none()
    {
        // The cut went through a character.
        bytes.truncate(why.valid_up_to());
    }
    let size = u64::try_from(stat.st_size).unwrap_or_default();
    Ok(FileOutput::Content { content: String::from_utf8_lossy(&bytes).into_owned(), size, truncated })
}

fn is_file(mode: RawMode) -> bool {
    FileType::from_raw_mode(mode) == FileType::RegularFile
}

fn list(directory: OwnedFd, path: &str) -> Result<FileOutput, Failure> {
    let mut entries = Vec::new();
    let mut truncated = false;
    for entry in Dir::read_from(&directory).map_err(failed(path))? {
        let entry = entry.map_err(failed(path))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name == "." || name == ".." {
            continue;
        }
        if entries.len() >= ENTRIES_MAX {
            truncated = true;
            break;
        }
        // One that went away meanwhile is not listed.
        let Ok(stat) = rustix::fs::statat(&directory, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW) else { continue };
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => "file",
            FileType::Directory => "directory",
            FileType::Symlink => "link",
            _ => "other",
        };
        entries.push(FileEntry { name, kind: kind.to_owned(), size: u64::try_from(stat.st_size).unwrap_or_default() });
    }
    entries.sort();
    Ok(FileOutput::Entries { entries, truncated })
}

/// Written beside it and put in its place: `rename` replaces a link and does not follow it.
fn write(directory: &OwnedFd, name: &str, content: &str, input: &FileInput, key: &str) -> Result<FileOutput, Failure> {
    let failed = failed(&input.path);
    match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) if !is_file(stat.st_mode) => {
            return Err(failure(FILE_REFUSED, format!("`{}` is there and is no file", input.path)));
        }
        Ok(_) | Err(Errno::NOENT) => {}
        Err(why) => return Err(failed(why)),
    }
    // The name is this activity's alone.
    let placed = write_whole(directory, name, format!(".{key}.new").as_str(), content.as_bytes());
    placed.map_err(|why| failure(FILE_FAILED, format!("`{}`: {why}", input.path)))?;
    Ok(FileOutput::Written { written: content.len() as u64 })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::super::durable::tests::SYNCED;
    use super::*;

    fn input(root: &Path, op: FileOp, path: &str, content: Option<&str>) -> FileInput {
        FileInput { root: root.into(), op, path: path.into(), content: content.map(Into::into), max_bytes: 64 }
    }
    fn act_in(root: &Path, op: FileOp, path: &str, content: Option<&str>) -> Result<FileOutput, String> {
        act(&FileConfig::default(), &input(root, op, path, content), "key").map_err(|why| why.type_name().to_owned())
    }
    fn content(text: &str) -> Result<FileOutput, String> {
        Ok(FileOutput::Content { content: text.into(), size: text.len() as u64, truncated: false })
    }

    #[test]
    fn what_is_written_is_read_and_listed() {
        let root = tempfile::tempdir().unwrap();
        let done = act_in(root.path(), FileOp::Write, "a/b/c.txt", Some("hello"));
        assert_eq!(done, Ok(FileOutput::Written { written: 5 }));
        assert_eq!(act_in(root.path(), FileOp::Read, "./a/b/c.txt", None), content("hello"));
        let entry = |name: &str, kind: &str, size| FileEntry { name: name.into(), kind: kind.into(), size };
        let listed = act_in(root.path(), FileOp::List, "a/b", None);
        assert_eq!(listed, Ok(FileOutput::Entries { entries: vec![entry("c.txt", "file", 5)], truncated: false }));
        assert!(matches!(act_in(root.path(), FileOp::List, ".", None), Ok(FileOutput::Entries { entries, .. })
            if entries.len() == 1 && entries[0].kind == "directory"));
    }

    /// The log, the token and the names of others' tokens: whoever writes there is the owner.
    #[test]
    fn nothing_leads_into_the_workers_own_directory() {
        let root = tempfile::tempdir().unwrap();
        let own = root.path().join("data");
        std::fs::create_dir_all(own.join("log")).unwrap();
        std::fs::write(own.join("token"), "secret").unwrap();
        symlink(&own, root.path().join("way")).unwrap();
        for roots in [None, Some(vec![root.path().to_owned()])] {
            let config = FileConfig { roots, own: Some(root.path().join("way")) };
            let does = |root: &Path, op, path: &str| act(&config, &input(root, op, path, Some("x")), "key");
            for (from, path) in [
                (root.path().to_owned(), "data/token"),
                (root.path().to_owned(), "data/log/db"),
                (own.clone(), "token"),
                (own.join("log"), "db"),
                (root.path().join("way"), "token"),
            ] {
                for op in [FileOp::Read, FileOp::Write] {
                    let refused = does(&from, op, path).unwrap_err();
                    assert_eq!(refused.type_name(), FILE_REFUSED, "{}: {op:?} {path}", from.display());
                    assert!(refused.message.contains("the worker's data directory"), "{}", refused.message);
                }
            }
            assert!(does(root.path(), FileOp::List, "data").is_err());
            assert!(does(root.path(), FileOp::Write, "else/file").is_ok(), "beside it they may");
        }
        assert_eq!(std::fs::read_to_string(own.join("token")).unwrap(), "secret");
    }

    #[test]
    fn a_written_file_keeps_its_mode_and_is_synced_with_the_directories_on_its_way() {
        let root = tempfile::tempdir().unwrap();
        SYNCED.take();
        act_in(root.path(), FileOp::Write, "bin/run.sh", Some("echo 1")).unwrap();
        assert_eq!(SYNCED.take(), ["directory", "file", "directory"]);
        let path = root.path().join("bin/run.sh");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o750)).unwrap();
        act_in(root.path(), FileOp::Write, "bin/run.sh", Some("echo 2")).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o750);
        assert_eq!(SYNCED.take(), ["file", "directory"]);
    }

    /// G35, G41: nothing outside the root is opened, whatever the path says.
    #[test]
    fn no_path_leads_out_of_the_root() {
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("secret"), "secret").unwrap();
        let root = tempfile::tempdir().unwrap();
        symlink(outside.path(), root.path().join("way")).unwrap();
        symlink(outside.path().join("secret"), root.path().join("file")).unwrap();
        symlink("../../../../../etc", root.path().join("up")).unwrap();
        std::fs::create_dir(root.path().join("in")).unwrap();
        let absolute = outside.path().join("secret").display().to_string();
        let paths = [
            "../secret",
            "in/../../secret",
            "/etc/passwd",
            absolute.as_str(),
            "way/secret",
            "file",
            "up/passwd",
            "way/../secret",
            "in/../in",
            "..",
            "//etc/passwd",
            "in/../file",
            "a\0b",
            "./../x",
            "file/x",
        ];
        for path in paths {
            for op in [FileOp::Read, FileOp::List, FileOp::Write] {
                let done = act_in(root.path(), op, path, Some("mine"));
                assert_eq!(done, Err(FILE_REFUSED.to_owned()), "{op:?} {path:?}");
            }
        }
        assert_eq!(std::fs::read_to_string(outside.path().join("secret")).unwrap(), "secret");
        assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_directory_that_becomes_a_link_meanwhile_leads_nowhere() {
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("x"), "secret").unwrap();
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("d")).unwrap();
        std::fs::write(root.path().join("d/x"), "mine").unwrap();
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    let _ = std::fs::rename(root.path().join("d"), root.path().join("e"));
                    let _ = symlink(outside.path(), root.path().join("d"));
                    let _ = std::fs::remove_file(root.path().join("d"));
                    let _ = std::fs::rename(root.path().join("e"), root.path().join("d"));
                }
            });
            for _ in 0..2_000 {
                let done = act_in(root.path(), FileOp::Read, "d/x", None);
                assert!(done != content("secret"), "the link was followed");
            }
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
        });
    }

    #[test]
    fn sizes_are_bounded_and_cut_between_characters() {
        let root = tempfile::tempdir().unwrap();
        std::fs::write(root.path().join("big"), "ä".repeat(40)).unwrap();
        let FileOutput::Content { content, size, truncated } = act_in(root.path(), FileOp::Read, "big", None).unwrap()
        else {
            panic!("it is content")
        };
        assert_eq!((content.len(), size, truncated), (64, 80, true));
        let long = "x".repeat(65);
        assert_eq!(act_in(root.path(), FileOp::Write, "big", Some(&long)), Err(FILE_TOO_LARGE.to_owned()));
        assert_eq!(act_in(root.path(), FileOp::Read, "none", None), Err(FILE_NOT_FOUND.to_owned()));
        assert_eq!(std::fs::read_dir(root.path()).unwrap().count(), 1, "nothing is left beside");
    }

    #[test]
    fn what_is_no_file_is_neither_read_nor_replaced() {
        let root = tempfile::tempdir().unwrap();
        let pipe = root.path().join("pipe");
        rustix::fs::mkfifoat(CWD, &pipe, Mode::from_raw_mode(0o600)).unwrap();
        std::fs::create_dir(root.path().join("d")).unwrap();
        for path in ["pipe", "d"] {
            assert_eq!(act_in(root.path(), FileOp::Read, path, None), Err(FILE_REFUSED.to_owned()), "{path}");
            assert_eq!(act_in(root.path(), FileOp::Write, path, None), Err(FILE_REFUSED.to_owned()), "{path}");
        }
    }

    #[test]
    fn the_owner_bounds_the_roots() {
        let root = tempfile::tempdir().unwrap();
        let config = FileConfig { roots: Some(vec![root.path().join("allowed")]), ..FileConfig::default() };
        std::fs::create_dir(root.path().join("allowed")).unwrap();
        let list = |at: &Path| act(&config, &input(at, FileOp::List, ".", None), "key").is_ok();
        assert!(list(&root.path().join("allowed")));
        assert!(!list(root.path()));
        assert!(!list(Path::new("relative")));
    }
}
