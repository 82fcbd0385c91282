//! The log on sled 0.34.7. This file alone names the crate; it and those below know its traps.
//!
//! - `flush` does not fsync: after it this file fsyncs `<dir>/db` itself, and at open every file and directory.
//! - Items larger than a quarter of a segment go to files under `blobs/`, never fsynced by sled; a tree node counts
//!   with all values in it. No value here is that long, and `blobs/` is fsynced when it changes all the same.
//! - A value is written again with its leaf, two to four times in all: long ones lie in files of our own (see `values`).
//! - After damage sled drops everything behind it and opens happily: the anchor is compared at open (by the journal).
//! - Damage can make sled panic: every call is caught and becomes a typed error.
//! - A flush can wait for ever for a write that has failed: `guard` wakes it.
//! - After a failed write the handle is leaked: dropping it would write again.
//!
//! Commits of a worker do not come here one by one: see `wal`. Invariant: `sync` returns only when everything written
//! before is on the disk. Nothing here knows what a group holds.
//!
//! Here it is opened, made and closed. `keeping` is sled as the log, `back` what stands behind the write-ahead files, `entries` and
//! `sweeping` are the values in its trees and beside them, `guard` is every call into it.

mod back;
mod entries;
mod guard;
mod keeping;
mod sweeping;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

// What the files below name too; the crate itself is named here only.
use ::sled::{Batch, Config, Db, Error, IVec, Tree};

use self::guard::{flush, guard};
use super::anchor::AnchorFile;
use super::blob::BlobFiles;
use super::epoch::{EpochFile, EpochKeeper};
use super::files::{DataDir, HeldRuns, StoreFormat, sync_dir, sync_tree};
use super::look::{Looked, look, settle_closed};
use super::room::Room;
use super::sweep::Sweep;
use super::values::ValueFiles;
use super::wal::{AheadGroup, Back, PendingGroup};
use super::{FORMAT_VERSION, StorageError, private, wal};

const INSTANCE_KEY: &[u8] = b"instance";
/// The length of files beside the database.
const FILE_BYTES: u64 = 1024 * 1024;

/// How a data directory is opened.
#[derive(Debug, Clone)]
pub struct SledOptions {
    /// Memory for sled's page cache.
    pub cache_bytes: u64,
    /// The instance id of a new data directory; a random one if not given.
    pub instance: Option<[u8; 16]>,
    /// How long each of the two write-ahead files is; on a small disk they are shorter.
    pub wal_bytes: u64,
    /// Where it is noted, outside of the directory, how far the log reached.
    pub epoch: Option<EpochFile>,
}

impl Default for SledOptions {
    fn default() -> Self {
        SledOptions { cache_bytes: 32 * 1024 * 1024, instance: None, wal_bytes: 4 * 1024 * 1024, epoch: None }
    }
}

/// See the module.
#[derive(Debug)]
pub struct SledLog {
    dir: DataDir,
    instance: [u8; 16],
    /// Taken by `drop` only.
    handles: Option<Handles>,
    /// A second handle on sled's file, for the fsync that sled omits.
    file: File,
    /// Files under sled's `blobs/` that are durable. Their names are never used again.
    synced_blobs: Mutex<BTreeSet<OsString>>,
    /// What is kept for a full disk.
    room: Arc<Room>,
    anchor: AnchorFile,
    blobs: BlobFiles,
    /// Groups that are too long for the database, and entries of shelves that are.
    groups: ValueFiles,
    values: ValueFiles,
    sweep: Mutex<Sweep>,
    /// How many changes of shelves there were, and how many of them are durable.
    changes: AtomicU64,
    synced_changes: AtomicU64,
    /// Groups were removed since the last sync.
    removed_groups: AtomicBool,
    /// What `bosun.format` says.
    format: Mutex<StoreFormat>,
    wal_bytes: u64,
    epoch: Option<EpochKeeper>,
    held: HeldRuns,
    failed: AtomicBool,
    _lock: File,
}

#[derive(Debug)]
struct Handles {
    db: Db,
    groups: Tree,
    shelves: Tree,
}

impl SledLog {
    fn handles(&self) -> &Handles {
        match &self.handles {
            Some(handles) => handles,
            None => unreachable!("only drop takes the handles"),
        }
    }

    /// Opens a data directory, or makes one where there is none of its files. Takes what is written ahead, and never
    /// writes ahead itself: for copies and what is done offline.
    pub(crate) fn open(dir: &Path, options: SledOptions) -> Result<SledLog, StorageError> {
        let (log, ahead) = Self::open_checked(dir, options, look)?;
        let Some(ahead) = ahead else { return Ok(log) };
        let pending = |AheadGroup { seq, value, .. }| (seq, Arc::new(PendingGroup::of_unknown(value)));
        log.feed(&ahead.into_iter().map(pending).collect::<Vec<_>>(), &AtomicBool::new(false))?;
        log.flush()?;
        log.mark(None)?;
        wal::remove(&log.wal_dir())?;
        Ok(log)
    }

    /// The same, but for what is written ahead and has to be taken.
    pub(crate) fn open_ahead(
        dir: &Path,
        options: SledOptions,
    ) -> Result<(SledLog, Option<Vec<AheadGroup>>), StorageError> {
        Self::open_checked(dir, options, look)
    }

    /// Opens a directory whose groups may be anything: for tests of the medium alone.
    #[cfg(test)]
    pub(crate) fn open_opaque(dir: &Path, options: SledOptions) -> Result<SledLog, StorageError> {
        Self::open_checked(dir, options, super::look::look_at_pages).map(|(log, _)| log)
    }

    fn open_checked(
        dir: &Path,
        options: SledOptions,
        look: fn(&DataDir, StoreFormat) -> Result<Looked, StorageError>,
    ) -> Result<(SledLog, Option<Vec<AheadGroup>>), StorageError> {
        let dir = DataDir::new(dir);
        options.epoch.as_ref().map_or(Ok(()), |epoch| epoch.check_before(&dir))?;
        let (lock, format) = dir.claim(|| options.instance.unwrap_or_else(|| *uuid::Uuid::now_v7().as_bytes()))?;
        let path = dir.sled().join("db");
        let room = Arc::new(Room::new(&dir.root, &path));
        let mut ahead = None;
        if format.ready {
            let looked = look(&dir, format)?;
            options.epoch.as_ref().map_or(Ok(()), |epoch| looked.fits(epoch, &format))?;
            room.begin();
            // From here on sled has nothing to find out by itself, and so nothing to overwrite.
            looked.settle()?;
            ahead = looked.ahead;
        }
        let handles = open_sled(&dir, &options)?;
        check_instance(&dir, &handles, format)?;
        let format = if format.ready { format } else { finish_creation(&dir, format, &handles.db)? };
        settle_files(&dir)?;
        let file = OpenOptions::new().read(true).write(true).open(&path);
        let file = file.map_err(|why| StorageError::io("open", &path, &why))?;
        let values = ValueFiles::open(dir.values(), format.instance, FILE_BYTES)?.with_room(room.clone());
        let log = SledLog {
            instance: format.instance,
            anchor: AnchorFile::open(&dir.anchor(), format.instance)?,
            blobs: BlobFiles::open(dir.payloads()).with_room(room.clone()),
            groups: ValueFiles::open(dir.groups(), format.instance, FILE_BYTES)?.with_room(room.clone()),
            sweep: Mutex::new(Sweep::of(&values.names())),
            values,
            changes: AtomicU64::new(0),
            synced_changes: AtomicU64::new(0),
            removed_groups: AtomicBool::new(false),
            format: Mutex::new(format),
            wal_bytes: options.wal_bytes,
            epoch: options.epoch.map(EpochKeeper::new),
            held: HeldRuns::default(),
            synced_blobs: Mutex::default(),
            handles: Some(handles),
            file,
            room,
            failed: AtomicBool::new(false),
            dir,
            _lock: lock,
        };
        Ok((log, ahead))
    }

    fn read<T>(&self, read: impl FnOnce() -> Result<T, Error>) -> Result<T, StorageError> {
        guard(&self.dir, "read", read)
    }
    fn write<T>(&self, op: &'static str, write: impl FnOnce() -> Result<T, Error>) -> Result<T, StorageError> {
        if self.failed.load(Ordering::Acquire) {
            return Err(StorageError::Poisoned { first: "an earlier write to the database failed".into() });
        }
        guard(&self.dir, op, write).inspect_err(|_| self.failed.store(true, Ordering::Release))
    }
    fn file_failed(&self, op: &'static str, path: &Path, why: &std::io::Error) -> StorageError {
        self.failed.store(true, Ordering::Release);
        StorageError::io(op, path, why)
    }

    /// Files of the database's own that are not known to be durable. For tests of [`SledLog::sync_sled_blobs`].
    #[cfg(test)]
    pub(crate) fn unsynced_files(&self) -> Vec<OsString> {
        let known = self.synced_blobs.lock().unwrap_or_else(PoisonError::into_inner);
        let files = std::fs::read_dir(self.dir.sled().join("blobs")).into_iter().flatten().flatten();
        files.map(|file| file.file_name()).filter(|name| !known.contains(name)).collect()
    }

    /// Fsyncs what sled wrote beside its file. Normally that is nothing; see [`WHOLE`].
    fn sync_sled_blobs(&self) -> Result<(), StorageError> {
        let dir = self.dir.sled().join("blobs");
        let failed = |why: &std::io::Error| self.file_failed("fsync", &dir, why);
        let mut known = self.synced_blobs.lock().unwrap_or_else(PoisonError::into_inner);
        let mut found = BTreeSet::new();
        let mut new = false;
        for entry in std::fs::read_dir(&dir).map_err(|why| failed(&why))? {
            let name = entry.map_err(|why| failed(&why))?.file_name();
            if !known.contains(&name) {
                File::open(dir.join(&name)).and_then(|file| file.sync_all()).map_err(|why| failed(&why))?;
                new = true;
            }
            found.insert(name);
        }
        if new {
            sync_dir(&dir).inspect_err(|_| self.failed.store(true, Ordering::Release))?;
        }
        *known = found;
        Ok(())
    }

    /// Work on a file of our own; its failure is the failure of the log.
    fn file_work<T>(&self, work: impl FnOnce() -> Result<T, StorageError>) -> Result<T, StorageError> {
        work().inspect_err(|why| {
            if !why.is_no_room() {
                self.failed.store(true, Ordering::Release);
            }
        })
    }

    /// Whatever is beside the database makes a directory of format 1 one of the newest.
    fn upgrade(&self) -> Result<(), StorageError> {
        let mut format = self.format.lock().unwrap_or_else(PoisonError::into_inner);
        if format.version == FORMAT_VERSION {
            return Ok(());
        }
        for part in [self.dir.groups(), self.dir.values()] {
            let make = || private::make_dir(&part);
            self.room.make(|| make().map_err(|why| StorageError::io("create", &part, &why).before_a_change()))?;
        }
        sync_dir(&self.dir.root)?;
        self.write_format(&mut format, |format| format.version = FORMAT_VERSION)
    }

    fn write_format(&self, known: &mut StoreFormat, change: impl FnOnce(&mut StoreFormat)) -> Result<(), StorageError> {
        // A list of held runs may have been made since; one that cannot be looked at stays.
        let mut format = StoreFormat { held: self.dir.held_list().try_exists().unwrap_or(known.held), ..*known };
        change(&mut format);
        self.room.make(|| self.dir.write_format(format))?;
        *known = format;
        Ok(())
    }
}

fn open_sled(dir: &DataDir, options: &SledOptions) -> Result<Handles, StorageError> {
    let config = Config::new()
        .path(dir.sled())
        .cache_capacity(options.cache_bytes)
        // The journal flushes and fsyncs with each group.
        .flush_every_ms(None);
    let started = Instant::now();
    loop {
        // A handle that was just dropped in this process may hold sled's own lock a moment longer.
        match guard(dir, "open", || config.open()) {
            Err(StorageError::Locked { .. }) if started.elapsed() < Duration::from_millis(700) => {
                std::thread::sleep(Duration::from_millis(10));
            }
            opened => {
                let db = opened?;
                let groups = guard(dir, "open", || db.open_tree("groups"))?;
                let shelves = guard(dir, "open", || db.open_tree("shelves"))?;
                return Ok(Handles { db, groups, shelves });
            }
        }
    }
}

/// What a process that died left to the page cache, and what others may read.
fn settle_files(dir: &DataDir) -> Result<(), StorageError> {
    sync_tree(&dir.sled())?;
    sync_dir(&dir.root)?;
    private::tighten(&dir.root, &dir.sled());
    Ok(())
}

/// The database must be the one that belongs to `bosun.format`.
fn check_instance(dir: &DataDir, handles: &Handles, format: StoreFormat) -> Result<(), StorageError> {
    match guard(dir, "read", || handles.db.get(INSTANCE_KEY))? {
        Some(found) if *found == format.instance => Ok(()),
        Some(_) => Err(StorageError::corrupt("data directory", dir.sled(), "it belongs to another data directory")),
        None if !format.ready && handles.groups.is_empty() => Ok(()),
        None => {
            Err(StorageError::corrupt("database", dir.sled(), "it does not say which data directory it belongs to"))
        }
    }
}

/// Completes a new directory; everything is durable before `bosun.format` says that it is ready.
fn finish_creation(dir: &DataDir, format: StoreFormat, db: &Db) -> Result<StoreFormat, StorageError> {
    guard(dir, "write", || db.insert(INSTANCE_KEY, &format.instance))?;
    guard(dir, "write", || flush(db))?;
    sync_tree(&dir.sled())?;
    for part in [dir.payloads(), dir.groups(), dir.values()] {
        private::make_dir(&part).map_err(|why| StorageError::io("create", &part, &why))?;
    }
    if !dir.anchor().exists() {
        AnchorFile::create(&dir.anchor(), format.instance)?;
    }
    sync_dir(&dir.root)?;
    let format = StoreFormat { ready: true, version: FORMAT_VERSION, ..format };
    dir.write_format(format)?;
    Ok(format)
}

impl SledLog {
    /// Closes it, and says what did not go well: who made a copy and removes the original relies on that the disk has taken it.
    pub(crate) fn close(mut self) -> Result<(), StorageError> {
        self.close_now()
    }

    fn close_now(&mut self) -> Result<(), StorageError> {
        let Some(handles) = self.handles.take() else { return Ok(()) };
        if self.failed.load(Ordering::Acquire) {
            // Dropping would write once more.
            std::mem::forget(handles);
            return Err(StorageError::Poisoned { first: "an earlier write to the database failed".into() });
        }
        // Dropping writes sled's snapshot and frees its lock; a panic there must not take the process.
        let close = || {
            drop(handles);
            Ok(())
        };
        guard(&self.dir, "close", close)?;
        let settled = settle_closed(&self.dir);
        private::tighten(&self.dir.root, &self.dir.sled());
        settled
    }
}

impl Drop for SledLog {
    fn drop(&mut self) {
        if self.failed.load(Ordering::Acquire) {
            return std::mem::forget(self.handles.take());
        }
        if let Err(why) = self.close_now() {
            tracing::warn!(%why, "closing the database: the next start reads more");
        }
    }
}
