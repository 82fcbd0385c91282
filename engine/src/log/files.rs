//! The data directory: which files belong to it, who it is, and who may use it.
//!
//! ```text
//! bosun.format   instance id and format version; first to be written, last to be finished
//! bosun.lock     held by the process that uses the directory
//! log/           sled
//! anchor         the tail anchor
//! payloads/      blobs
//! groups/        groups that are too long for sled
//! values/        and other values that are
//! held           runs that a salvage could not save whole, or not at all
//! wal/           groups that sled does not have yet; only while a process works, or died; see `wal`
//! reserve        room for what must still be written when the disk is full; see `room`
//! swapping       a new copy takes the place of all this; see `swap`
//! ```
//!
//! `groups` and `values` came with format 2. A directory of format 1 becomes one of format 2 when something is first
//! written to them; until then older programs can still use it. As long as there are groups in `wal/` that count the
//! format is 3, so that older programs refuse the directory; a close makes it again what it was.
//!
//! Invariant: a directory of a newer format, of another instance, or with a part missing is refused before anything in
//! it is changed. A directory whose creation was cut short is finished, since nothing in it was ever acknowledged.
//! Other files (`worker.json`, tokens) are not ours.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use super::epoch::StoreOrigin;
use super::error::StorageError;
pub(crate) use super::format::StoreFormat;
use super::format::{parse, print};
use super::mounts::network_filesystem;
use super::sled_format::source::read_whole;
use super::{FORMAT_VERSION, is_entry_of_store, private, swap};
use crate::seeded::{self, Bug};
use crate::vocabulary::RunId;

/// How long to wait for a lock that a process that just ended may still hold.
const LOCK_PATIENCE: Duration = Duration::from_millis(700);

/// In the list of held runs: of this one there is only its id, which nothing else in the directory knows.
pub(crate) const NOTHING_LEFT: &str = "nothing is left of it but its id";

/// The list of held runs, read once: it was written before the directory was opened, and stays as it is.
#[derive(Debug, Default)]
pub(crate) struct HeldRuns(OnceLock<Vec<(RunId, String)>>);

impl HeldRuns {
    pub(crate) fn of(&self, dir: &DataDir) -> Result<Vec<(RunId, String)>, StorageError> {
        if self.0.get().is_none() {
            let _ = self.0.set(dir.read_held()?);
        }
        Ok(self.0.get().cloned().unwrap_or_default())
    }
}

/// The paths of a data directory.
#[derive(Debug, Clone)]
pub(crate) struct DataDir {
    pub(crate) root: PathBuf,
}

impl DataDir {
    pub(crate) fn new(root: &Path) -> Self {
        DataDir { root: root.to_owned() }
    }
    pub(crate) fn format(&self) -> PathBuf {
        self.root.join("bosun.format")
    }
    pub(crate) fn sled(&self) -> PathBuf {
        self.root.join("log")
    }
    pub(crate) fn anchor(&self) -> PathBuf {
        self.root.join("anchor")
    }
    pub(crate) fn payloads(&self) -> PathBuf {
        self.root.join("payloads")
    }

    /// Runs that are held, with the reason; see `salvage`.
    pub(crate) fn held_list(&self) -> PathBuf {
        self.root.join("held")
    }
    pub(crate) fn wal(&self) -> PathBuf {
        self.root.join("wal")
    }
    pub(crate) fn groups(&self) -> PathBuf {
        self.root.join("groups")
    }
    pub(crate) fn values(&self) -> PathBuf {
        self.root.join("values")
    }

    /// Takes the directory for this process: its lock, and who it is. A fresh one becomes a new instance, not ready yet.
    pub(crate) fn claim(&self, new_instance: impl FnOnce() -> [u8; 16]) -> Result<(File, StoreFormat), StorageError> {
        // A newer format is refused before even the lock file is touched.
        if self.root.exists() && !swap::is_under_way(self) {
            self.identify()?;
        }
        let lock = self.lock()?;
        swap::finish(self)?;
        let Some(format) = self.identify()? else {
            let instance = new_instance();
            let format =
                StoreFormat { instance, version: FORMAT_VERSION, wal: None, ready: false, held: false, origin: None };
            self.write_format(format)?;
            return Ok((lock, format));
        };
        if !format.ready && !self.anchor().exists() && self.sled().exists() {
            // Creation was cut short before anything could be acknowledged; the database may be half there.
            fs::remove_dir_all(self.sled()).map_err(|why| StorageError::io("remove", &self.sled(), &why))?;
        }
        Ok((lock, format))
    }

    /// A directory that holds a store, to be looked at only: nothing is made or changed, not even the lock file. If
    /// there is one it is held meanwhile, so that no worker writes.
    pub(crate) fn visit(&self) -> Result<(Option<File>, StoreFormat), StorageError> {
        let lock = self.hold_settled()?;
        let not = |detail: &str| StorageError::NotADatabase { dir: self.root.clone(), detail: detail.into() };
        match self.identify()? {
            Some(format) if format.ready => Ok((lock, format)),
            Some(_) => Err(not("its creation was cut short; a worker that starts there completes it")),
            None => Err(not("it holds none of its files")),
        }
    }

    /// As `hold_to_look`. Half of what is being swapped lies elsewhere: then it is refused.
    pub(crate) fn hold_settled(&self) -> Result<Option<File>, StorageError> {
        let lock = self.hold_to_look()?;
        if swap::check_under_way(self)? {
            return Err(StorageError::SwapUnfinished { dir: self.root.clone() });
        }
        Ok(lock)
    }

    /// Makes the directory if needed, durably, and takes the lock.
    pub(crate) fn lock(&self) -> Result<File, StorageError> {
        let root = &self.root;
        if let Some(filesystem) = network_filesystem(root) {
            return Err(StorageError::NetworkFilesystem { dir: root.clone(), filesystem });
        }
        let refused = |path: &Path, why: std::io::Error| match why.kind() {
            std::io::ErrorKind::PermissionDenied => StorageError::ReadOnly { dir: root.clone() },
            std::io::ErrorKind::NotADirectory | std::io::ErrorKind::AlreadyExists => {
                StorageError::NotADatabase { dir: root.clone(), detail: "it is not a directory".into() }
            }
            _ => StorageError::io("open", path, &why),
        };
        let missing: Vec<&Path> = root.ancestors().take_while(|dir| !dir.exists()).collect();
        private::make_dir(root).map_err(|why| refused(root, why))?;
        for made in missing {
            let parent = made.parent().filter(|parent| !parent.as_os_str().is_empty());
            sync_dir(parent.unwrap_or(Path::new(".")))?;
        }
        let path = root.join("bosun.lock");
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = private::open(&path, &options).map_err(|why| refused(&path, why))?;
        self.held(file, &path)
    }

    fn held(&self, file: File, path: &Path) -> Result<File, StorageError> {
        let root = &self.root;
        let started = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::WouldBlock) if started.elapsed() < LOCK_PATIENCE => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                Err(TryLockError::WouldBlock) => return Err(StorageError::Locked { dir: root.clone() }),
                Err(TryLockError::Error(why)) => return Err(StorageError::io("lock", path, &why)),
            }
        }
    }

    /// A pipe or a device in the place of a file would be waited for without end: it is found before anything is opened.
    fn check_kinds(&self) -> Result<(), StorageError> {
        for dir in [self.root.clone(), self.sled(), self.wal()] {
            for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
                let path = entry.path();
                let is_ours = dir != self.root || entry.file_name().to_str().is_some_and(is_entry_of_store);
                let is_other = fs::metadata(&path).is_ok_and(|about| !about.is_file() && !about.is_dir());
                if is_ours && is_other {
                    let detail = "it is a pipe, a socket or a device, and no file";
                    return Err(StorageError::corrupt("data directory", path, detail));
                }
            }
        }
        Ok(())
    }

    /// Who the directory is; `None` if it is fresh. A part that is missing is an error that names it.
    pub(crate) fn identify(&self) -> Result<Option<StoreFormat>, StorageError> {
        self.check_kinds()?;
        let parts = [self.sled(), self.anchor(), self.payloads(), self.groups(), self.values()];
        let path = self.format();
        match read_whole(&path) {
            Ok(bytes) => {
                let format = parse(&path, &bytes)?;
                let needed = &parts[..if format.version == 1 { 3 } else { 5 }];
                match needed.iter().find(|part| format.ready && !part.exists()) {
                    Some(missing) => Err(StorageError::corrupt("data directory", missing, "it is missing")),
                    None if format.wal.is_some() && !self.wal().exists() => {
                        Err(StorageError::corrupt("data directory", self.wal(), "it is missing"))
                    }
                    None if format.held && !self.held_list().exists() => {
                        Err(StorageError::corrupt("data directory", self.held_list(), "it is missing"))
                    }
                    None => Ok(Some(format)),
                }
            }
            Err(why) if why.kind() == std::io::ErrorKind::NotFound => match parts.iter().find(|part| part.exists()) {
                Some(part) => {
                    let detail = format!("it is missing, but {} is there", part.display());
                    Err(StorageError::corrupt("data directory", path, detail))
                }
                None => Ok(None),
            },
            Err(why) if why.kind() == std::io::ErrorKind::NotADirectory => {
                Err(StorageError::NotADatabase { dir: self.root.clone(), detail: "it is not a directory".into() })
            }
            Err(why) => Err(StorageError::io("read", &path, &why)),
        }
    }

    /// Whether it is a store, or becomes one again when somebody takes it.
    pub(crate) fn is_begun(&self) -> Result<bool, StorageError> {
        Ok(swap::is_under_way(self) || self.root.exists() && self.identify()?.is_some_and(|format| format.ready))
    }

    /// Whose directory it is, whatever else is wrong with it.
    pub(crate) fn instance(&self) -> Result<[u8; 16], StorageError> {
        let path = self.format();
        let bytes = read_whole(&path).map_err(|why| StorageError::io("read", &path, &why))?;
        parse(&path, &bytes).map(|format| format.instance)
    }

    /// What it was salvaged from, whatever else is wrong with it.
    pub(crate) fn origin(&self) -> Option<StoreOrigin> {
        let path = self.format();
        parse(&path, &read_whole(&path).ok()?).ok()?.origin
    }

    /// Keeps workers away, if there is a lock file to do it with. Changes nothing.
    pub(crate) fn hold_to_look(&self) -> Result<Option<File>, StorageError> {
        self.check_kinds()?;
        let path = self.root.join("bosun.lock");
        match File::open(&path) {
            Ok(file) => self.held(file, &path).map(Some),
            Err(why) if why.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(why) => Err(StorageError::io("open", &path, &why)),
        }
    }

    /// Notes runs that are held for as long as they are open. Durable on return.
    pub(crate) fn write_held(&self, held: &[(RunId, String)]) -> Result<(), StorageError> {
        let Some(format) = self.identify()?.filter(|_| !held.is_empty()) else { return Ok(()) };
        let path = self.held_list();
        let lines: String = held.iter().map(|(run, why)| format!("{run} {}\n", why.replace('\n', " "))).collect();
        let text = format!("{lines}crc {:08x}\n", crc32fast::hash(lines.as_bytes()));
        let io = |why: std::io::Error| StorageError::io("write", &path, &why);
        let mut file = private::create(&path).map_err(io)?;
        file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(io)?;
        sync_dir(&self.root)?;
        self.write_format(StoreFormat { held: true, ..format })
    }

    /// Notes what a salvage made the directory from. Durable on return.
    pub(crate) fn write_origin(&self, origin: Option<StoreOrigin>) -> Result<(), StorageError> {
        match self.identify()?.filter(|format| format.origin != origin) {
            Some(format) => self.write_format(StoreFormat { origin, ..format }),
            None => Ok(()),
        }
    }

    /// Whether `bosun.format` says that there is a list of held runs, whatever else is missing.
    /// One that is damaged, or not there, names nothing.
    pub(crate) fn names_held(&self) -> Result<bool, StorageError> {
        let path = self.format();
        match read_whole(&path) {
            Ok(bytes) => Ok(parse(&path, &bytes).is_ok_and(|format| format.held)),
            Err(why) if why.kind() == std::io::ErrorKind::NotFound => Ok(false),
            Err(why) => Err(StorageError::io("read", &path, &why)),
        }
    }

    pub(crate) fn read_held(&self) -> Result<Vec<(RunId, String)>, StorageError> {
        let path = self.held_list();
        let bytes = match read_whole(&path) {
            Ok(bytes) => bytes,
            Err(why) if why.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(why) => return Err(StorageError::io("read", &path, &why)),
        };
        let corrupt = || StorageError::corrupt("list of held runs", &path, "at byte 0: its CRC is wrong");
        let text = std::str::from_utf8(&bytes).map_err(|_| corrupt())?;
        let (lines, crc) = text.rsplit_once("crc ").ok_or_else(corrupt)?;
        if format!("{:08x}\n", crc32fast::hash(lines.as_bytes())) != crc {
            return Err(corrupt());
        }
        let entry = |line: &str| {
            let (run, why) = line.split_once(' ')?;
            Some((run.parse().ok()?, why.to_owned()))
        };
        lines.lines().map(|line| entry(line).ok_or_else(corrupt)).collect()
    }

    /// Removes files that were being made when a process died. The directory is held. Answers how many there were.
    pub(crate) fn remove_leftovers(&self) -> Result<u64, StorageError> {
        let mut dirs = vec![self.root.clone(), self.sled()];
        let payloads = fs::read_dir(self.payloads()).into_iter().flatten().flatten();
        dirs.extend(payloads.map(|entry| entry.path()));
        let mut removed = 0;
        for path in dirs.iter().filter_map(|dir| fs::read_dir(dir).ok()).flatten().flatten().map(|entry| entry.path()) {
            let half_made = path.extension().is_some_and(|extension| extension == "new" || extension == "generating");
            if half_made && path.is_file() {
                fs::remove_file(&path).map_err(|why| StorageError::io("remove", &path, &why))?;
                removed += 1;
            }
        }
        Ok(removed)
    }

    /// Writes `bosun.format`, durably and at once. What finds no room has changed nothing.
    pub(crate) fn write_format(&self, format: StoreFormat) -> Result<(), StorageError> {
        let (path, temporary) = (self.format(), self.root.join("bosun.format.new"));
        let io = |op| move |why: std::io::Error| StorageError::io(op, &self.format(), &why).before_a_change();
        let write = || {
            let mut file = private::create(&temporary).map_err(io("create"))?;
            file.write_all(print(format).as_bytes()).map_err(io("write"))?;
            file.sync_all().map_err(io("fsync"))?;
            fs::rename(&temporary, &path).map_err(io("rename"))
        };
        // Best effort: what is half written is of no use, and is overwritten by the next.
        write().inspect_err(|_| _ = fs::remove_file(&temporary))?;
        sync_dir(&self.root)
    }
}

/// Makes the entries of a directory durable.
pub(crate) fn sync_dir(dir: &Path) -> Result<(), StorageError> {
    if seeded::on(Bug::SkipDirFsync) {
        return Ok(());
    }
    let synced = private::patiently(|| File::open(dir)?.sync_all());
    synced.map_err(|why| StorageError::io("fsync", dir, &why))
}

/// Fsyncs every file and directory below `dir`, and `dir`.
pub(crate) fn sync_tree(dir: &Path) -> Result<(), StorageError> {
    let io = |why: std::io::Error| StorageError::io("list", dir, &why);
    for entry in fs::read_dir(dir).map_err(io)? {
        let path = entry.map_err(io)?.path();
        if path.is_dir() {
            sync_tree(&path)?;
        } else {
            File::open(&path).and_then(|f| f.sync_all()).map_err(|why| StorageError::io("fsync", &path, &why))?;
        }
    }
    sync_dir(dir)
}

/// The bytes of all files below `dir`, as the disk counts them.
pub(crate) fn tree_bytes(dir: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.metadata() {
            Ok(found) if found.is_dir() => tree_bytes(&entry.path()),
            Ok(found) => found.blocks() * 512,
            // It was removed meanwhile.
            Err(_) => 0,
        })
        .sum()
}
