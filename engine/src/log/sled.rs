//! The log on sled 0.34.7. The only file that names sled, and the only one that knows its traps.
//!
//! - `flush` does not fsync: after it this file fsyncs `<dir>/db` itself, and at open every file and directory.
//! - Items larger than a quarter of a segment go to files under `blobs/`, never fsynced by sled; a tree node counts
//!   with all values in it. No value here is that long, and `blobs/` is fsynced when it changes all the same.
//! - A value is written again with its leaf, two to four times in all: long ones lie in files of our own (see `values`).
//! - After damage sled drops everything behind it and opens happily: the anchor is compared at open (by the journal).
//! - Damage can make sled panic: every call is caught and becomes a typed error.
//! - After a failed write the handle is leaked: dropping it would write again.
//!
//! Commits of a worker do not come here one by one: see `wal`. Invariant: `sync` returns only when everything written
//! before is on the disk. Nothing here knows what a group holds.
//!
//! Long: sled is named in one file only, and so are all the traps it has.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::time::{Duration, Instant};

use super::anchor::{Anchor, AnchorFile};
use super::blob::{BlobFiles, BlobHash};
use super::epoch::{Epoch, EpochFile, EpochKeeper, Origin};
use super::files::{DataDir, Format, sync_dir, sync_tree, tree_bytes};
use super::look::{Looked, look, settle_closed};
use super::parts::{
    LONG_RECORD, LONG_SEGMENT, PARTS_OF, WHOLE, beside, end_of, further_parts, is_beside, part_key, place_in, whole,
};
use super::room::Room;
use super::sweep::Sweep;
use super::values::{Frame, ValueFiles};
use super::wal::{Ahead, Back, Pending};
use super::{FORMAT_VERSION, Log, ScanFrom, Shelf, ShelfChange, StorageError, WAL_FORMAT_VERSION, private, wal};
use crate::seeded::{self, Bug};
use crate::vocabulary::{GroupSeq, RunId};

const INSTANCE_KEY: &[u8] = b"instance";
/// The length of files beside the database.
const FILE_BYTES: u64 = 1024 * 1024;
/// Entries looked at for the first that needs a file of groups.
const LOOK: usize = 1_024;

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
    format: Mutex<Format>,
    wal_bytes: u64,
    epoch: Option<EpochKeeper>,
    failed: AtomicBool,
    _lock: File,
}

#[derive(Debug)]
struct Handles {
    db: ::sled::Db,
    groups: ::sled::Tree,
    shelves: ::sled::Tree,
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
        let pending = |Ahead { seq, value, .. }| (seq, Arc::new(Pending::of_unknown(value)));
        log.feed(&ahead.into_iter().map(pending).collect::<Vec<_>>(), &AtomicBool::new(false))?;
        log.flush()?;
        log.mark(None)?;
        wal::remove(&log.wal_dir())?;
        Ok(log)
    }

    /// The same, but for what is written ahead and has to be taken.
    pub(crate) fn open_ahead(dir: &Path, options: SledOptions) -> Result<(SledLog, Option<Vec<Ahead>>), StorageError> {
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
        look: fn(&DataDir, Format) -> Result<Looked, StorageError>,
    ) -> Result<(SledLog, Option<Vec<Ahead>>), StorageError> {
        let dir = DataDir::new(dir);
        if let Some(epoch) = &options.epoch {
            epoch.check_outside(&dir.root)?;
            if !dir.is_begun()? {
                epoch.check_no_store(&dir.root)?;
            }
        }
        let (lock, format) = dir.claim(|| options.instance.unwrap_or_else(|| *uuid::Uuid::now_v7().as_bytes()))?;
        let path = dir.sled().join("db");
        let room = Arc::new(Room::new(&dir.root, &path));
        let mut ahead = None;
        if format.ready {
            let looked = look(&dir, format)?;
            if let Some(epoch) = &options.epoch {
                looked.fits(epoch, &format)?;
            }
            room.begin();
            // From here on sled has nothing to find out by itself, and so nothing to overwrite.
            looked.settle()?;
            ahead = looked.ahead;
        }
        let db = open_sled(&dir, &options)?;
        let groups = guard(&dir, "open", || db.open_tree("groups"))?;
        let shelves = guard(&dir, "open", || db.open_tree("shelves"))?;
        check_instance(&dir, &db, format, &groups)?;
        let format = if format.ready { format } else { finish_creation(&dir, format, &db)? };
        sync_tree(&dir.sled())?;
        sync_dir(&dir.root)?;
        private::tighten(&dir.root, &dir.sled());
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
            synced_blobs: Mutex::default(),
            handles: Some(Handles { db, groups, shelves }),
            file,
            room,
            failed: AtomicBool::new(false),
            dir,
            _lock: lock,
        };
        Ok((log, ahead))
    }

    fn read<T>(&self, read: impl FnOnce() -> ::sled::Result<T>) -> Result<T, StorageError> {
        guard(&self.dir, "read", read)
    }
    fn write<T>(&self, op: &'static str, write: impl FnOnce() -> ::sled::Result<T>) -> Result<T, StorageError> {
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
            private::make_dir(&part).map_err(|why| StorageError::io("create", &part, &why))?;
        }
        sync_dir(&self.dir.root)?;
        self.write_format(&mut format, |format| format.version = FORMAT_VERSION)
    }

    fn write_format(&self, known: &mut Format, change: impl FnOnce(&mut Format)) -> Result<(), StorageError> {
        // A list of held runs may have been made since.
        let mut format = Format { held: self.dir.held_list().exists(), ..*known };
        change(&mut format);
        self.dir.write_format(format)?;
        *known = format;
        Ok(())
    }

    /// The value of an entry; nothing if it was removed meanwhile.
    fn value_of(
        &self,
        files: &ValueFiles,
        tree: &::sled::Tree,
        key: &[u8],
        entry: ::sled::IVec,
    ) -> Result<Option<Vec<u8>>, StorageError> {
        let mut entry = entry;
        while is_beside(&entry) {
            let corrupt = |detail: &str| StorageError::corrupt("database entry", self.dir.sled(), detail);
            let place = place_in(&entry).ok_or_else(|| corrupt("it names no place"))?;
            if let Some(value) = files.read(key, place)? {
                return Ok(Some(value));
            }
            // Its file is gone: so must be the entry, or the value lies elsewhere now.
            match self.read(|| tree.get(key))? {
                Some(now) if now == entry => {
                    return Err(StorageError::corrupt("values", files.path(place.file), "it is missing"));
                }
                Some(now) => entry = now,
                None => return Ok(None),
            }
        }
        self.parts_of(tree, key, &entry).map(Some)
    }

    fn group_of(&self, seq: GroupSeq, entry: ::sled::IVec) -> Result<Option<Vec<u8>>, StorageError> {
        let value = self.value_of(&self.groups, &self.handles().groups, &seq.0.to_be_bytes(), entry);
        value.map_err(|why| why.at_group(seq))
    }

    /// Files of groups below this number hold no group of which the database has an entry. Not beside an append.
    fn needed_groups(&self) -> Result<u64, StorageError> {
        let mut entries = self.handles().groups.range(..[PARTS_OF].as_slice());
        for _ in 0..LOOK {
            match self.read(|| entries.next().transpose())? {
                Some((_, entry)) if is_beside(&entry) => return Ok(place_in(&entry).map_or(0, |place| place.file)),
                Some(_) => {}
                None => return Ok(self.groups.seal()),
            }
        }
        Ok(0)
    }

    /// Removes files of values in which nothing counts, and empties those in which little does. A bounded piece of work;
    /// nobody else changes shelves meanwhile. What cannot be read is left for `verify` to name, and harms nothing here.
    fn sweep_values(&self, sweep: &mut Sweep) -> Result<(), StorageError> {
        let durable = self.synced_changes.load(Ordering::Acquire);
        let finished = self.values.finished();
        for file in sweep.ready(durable, &finished) {
            let found = self.counting(file).and_then(|(counting, all)| {
                let is_named = counting.is_empty() && !all && self.is_named(file)?;
                Ok((counting, self.values.length_of(file)?, is_named))
            });
            let (counting, length, is_named) = match found {
                Ok(found) => found,
                Err(why) => {
                    tracing::warn!(%why, "a file of values cannot be looked at");
                    sweep.forget(file);
                    continue;
                }
            };
            let bytes: u64 = counting.iter().map(Frame::length).sum();
            if counting.is_empty() && is_named {
                // What counts in it cannot be found: it stays as it is.
                sweep.forget(file);
            } else if counting.is_empty() {
                self.values.remove(file)?;
                sweep.forget(file);
            } else if bytes * 2 < length {
                let all_moved = self.move_values(counting)?;
                let now = self.changes.fetch_add(1, Ordering::AcqRel) + 1;
                if all_moved { sweep.emptied(file, length, now) } else { sweep.forget(file) }
            } else {
                sweep.looked_at(file, length, length.saturating_sub(bytes));
            }
        }
        Ok(())
    }

    /// The frames of a file that an entry names, and whether all its frames could be read.
    fn counting(&self, file: u64) -> Result<(Vec<Frame>, bool), StorageError> {
        let (mut frames, all) = self.values.frames(file)?;
        let mut failed = None;
        frames.retain(|frame| match self.read(|| self.handles().shelves.get(&frame.key)) {
            Ok(entry) => entry.is_some_and(|entry| place_in(&entry) == Some(frame.place)),
            Err(why) => {
                failed.get_or_insert(why);
                true
            }
        });
        failed.map_or(Ok((frames, all)), Err)
    }

    /// Whether any entry names a file whose frames cannot all be found.
    fn is_named(&self, file: u64) -> Result<bool, StorageError> {
        let mut entries = self.handles().shelves.iter();
        while let Some((_, entry)) = self.read(|| entries.next().transpose())? {
            if place_in(&entry).is_some_and(|place| place.file == file) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Writes values again, to the newest file. One that cannot be read stays where it is. Whether there is none.
    fn move_values(&self, frames: Vec<Frame>) -> Result<bool, StorageError> {
        let (mut batch, mut all) = (::sled::Batch::default(), true);
        for frame in frames {
            match self.values.read(&frame.key, frame.place) {
                Ok(Some(value)) => {
                    let place = self.values.write(None, &frame.key, &value)?;
                    batch.insert(frame.key, beside(place));
                }
                Ok(None) => {}
                Err(why) => {
                    all = false;
                    tracing::warn!(%why, "a value cannot be moved");
                }
            }
        }
        self.values.sync()?;
        self.write("write", || self.handles().shelves.apply_batch(batch))?;
        Ok(all)
    }

    /// The value of an entry of a shelf. What is derived is the index, whatever is wrong with it: it can be rebuilt.
    fn shelf_value(&self, shelf: Shelf, key: &[u8], entry: ::sled::IVec) -> Result<Option<Vec<u8>>, StorageError> {
        let value = self.value_of(&self.values, &self.handles().shelves, key, entry);
        value.map_err(|why| match why {
            StorageError::Corrupt { file, detail, .. } if shelf != Shelf::Archive => {
                StorageError::corrupt("index", file, detail)
            }
            why => match key.get(1..17).and_then(|run| run.try_into().ok()) {
                Some(run) if shelf == Shelf::Archive => why.of_run(RunId(run)),
                _ => why,
            },
        })
    }

    /// The entries of a shelf as they are in the database.
    fn entries(
        &self,
        shelf: Shelf,
        prefix: &[u8],
        from: ScanFrom<'_>,
        limit: usize,
    ) -> Result<Vec<(::sled::IVec, ::sled::IVec)>, StorageError> {
        use std::ops::Bound::{Excluded, Included, Unbounded};
        let start = shelf_key(shelf, prefix);
        let end = end_of(&start).map_or(Unbounded, Excluded);
        let (low, high, upwards) = match from {
            ScanFrom::First => (Included(start), end, true),
            ScanFrom::Last => (Included(start), end, false),
            ScanFrom::After(key) => (Excluded(shelf_key(shelf, key).max(start)), end, true),
            ScanFrom::Before(key) => (Included(start.clone()), Excluded(shelf_key(shelf, key).max(start)), false),
        };
        let mut range = self.handles().shelves.range::<Vec<u8>, _>((low, high));
        let mut found = Vec::new();
        while found.len() < limit {
            let next = self.read(|| if upwards { range.next() } else { range.next_back() }.transpose())?;
            let Some(entry) = next else { break };
            found.push(entry);
        }
        Ok(found)
    }

    /// How many files of values there are.
    pub(crate) fn value_files(&self) -> usize {
        self.values.names().len()
    }

    /// As [`Log::append`]; but a crash before the next sync may leave the entry of a group without its body, which is
    /// nothing that an open forgives. For copies that count only once they are whole.
    pub(crate) fn append_copy(&self, seq: GroupSeq, value: &[u8]) -> Result<(), StorageError> {
        self.insert(seq, value, true, || Ok(()))
    }

    fn insert(
        &self,
        seq: GroupSeq,
        value: &[u8],
        long: bool,
        settle: impl FnOnce() -> Result<(), StorageError>,
    ) -> Result<(), StorageError> {
        self.room.claim_ahead(&self.file)?;
        let entry = match long {
            true => beside(self.file_work(|| {
                self.upgrade()?;
                let place = self.groups.write(Some(seq.0), &seq.0.to_be_bytes(), value)?;
                settle().map(|()| place)
            })?),
            false => whole(value),
        };
        self.write("append", || self.handles().groups.insert(seq.0.to_be_bytes(), entry).map(drop))
    }

    /// A group as format 1 kept long ones: split over several entries.
    #[cfg(test)]
    pub(crate) fn append_split(&self, seq: GroupSeq, value: &[u8], length: usize) -> Result<(), StorageError> {
        let parts: Vec<&[u8]> = value.chunks(length).collect();
        let count = u16::try_from(parts.len() - 1).unwrap_or(0);
        let mut batch = ::sled::Batch::default();
        batch.insert(seq.0.to_be_bytes().as_slice(), [count.to_be_bytes().as_slice(), parts[0]].concat());
        for (part, bytes) in (1..).zip(&parts[1..]) {
            batch.insert(part_key(&seq.0.to_be_bytes(), part), *bytes);
        }
        self.write("append", || self.handles().groups.apply_batch(batch))
    }

    fn seq_of(&self, key: &[u8]) -> Result<GroupSeq, StorageError> {
        let wrong = |_| StorageError::corrupt("database", self.location(), "the key of a group has another length");
        key.try_into().map(u64::from_be_bytes).map(GroupSeq).map_err(wrong)
    }

    fn parts_of(&self, tree: &::sled::Tree, key: &[u8], first: &[u8]) -> Result<Vec<u8>, StorageError> {
        let cut = |detail: &str| StorageError::corrupt("database entry", self.dir.sled(), detail);
        let mut value = first.get(2..).ok_or_else(|| cut("a value has no part count"))?.to_vec();
        for part in 1..=further_parts(first) {
            let bytes = self.read(|| tree.get(part_key(key, part)))?;
            value.extend_from_slice(&bytes.ok_or_else(|| cut("a part of a large value is missing"))?);
        }
        Ok(value)
    }
}

fn shelf_key(shelf: Shelf, key: &[u8]) -> Vec<u8> {
    [&[shelf as u8], key].concat()
}

fn open_sled(dir: &DataDir, options: &SledOptions) -> Result<::sled::Db, StorageError> {
    let config = ::sled::Config::new()
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
            opened => return opened,
        }
    }
}

/// The database must be the one that belongs to `bosun.format`.
fn check_instance(dir: &DataDir, db: &::sled::Db, format: Format, groups: &::sled::Tree) -> Result<(), StorageError> {
    match guard(dir, "read", || db.get(INSTANCE_KEY))? {
        Some(found) if *found == format.instance => Ok(()),
        Some(_) => Err(StorageError::corrupt("data directory", dir.sled(), "it belongs to another data directory")),
        None if !format.ready && groups.is_empty() => Ok(()),
        None => {
            Err(StorageError::corrupt("database", dir.sled(), "it does not say which data directory it belongs to"))
        }
    }
}

/// Completes a new directory; everything is durable before `bosun.format` says that it is ready.
fn finish_creation(dir: &DataDir, format: Format, db: &::sled::Db) -> Result<Format, StorageError> {
    guard(dir, "write", || db.insert(INSTANCE_KEY, &format.instance))?;
    guard(dir, "write", || db.flush())?;
    sync_tree(&dir.sled())?;
    for part in [dir.payloads(), dir.groups(), dir.values()] {
        private::make_dir(&part).map_err(|why| StorageError::io("create", &part, &why))?;
    }
    if !dir.anchor().exists() {
        AnchorFile::create(&dir.anchor(), format.instance)?;
    }
    sync_dir(&dir.root)?;
    let format = Format { ready: true, version: FORMAT_VERSION, ..format };
    dir.write_format(format)?;
    Ok(format)
}

thread_local! {
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Runs a call into sled: its errors and its panics become typed errors. The panic message is not printed.
fn guard<T>(dir: &DataDir, op: &'static str, call: impl FnOnce() -> ::sled::Result<T>) -> Result<T, StorageError> {
    static QUIET: Once = Once::new();
    QUIET.call_once(|| {
        let loud = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if !GUARDED.with(Cell::get) {
                loud(panic);
            }
        }));
    });
    let outer = GUARDED.with(|guarded| guarded.replace(true));
    let result = catch_unwind(AssertUnwindSafe(call));
    GUARDED.with(|guarded| guarded.set(outer));
    match result {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(why)) => Err(translate(dir, op, why)),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("panic");
            let detail = format!("{op} made the database panic: {text}");
            Err(StorageError::corrupt("database", dir.sled(), detail))
        }
    }
}

fn translate(dir: &DataDir, op: &'static str, why: ::sled::Error) -> StorageError {
    let path = dir.sled();
    match why {
        ::sled::Error::Io(io) if io.kind() == std::io::ErrorKind::WouldBlock => {
            StorageError::Locked { dir: dir.root.clone() }
        }
        // sled wraps the failure to lock in an error of its own kind.
        ::sled::Error::Io(io) if io.to_string().contains("could not acquire lock") => {
            StorageError::Locked { dir: dir.root.clone() }
        }
        ::sled::Error::Io(io) => match io.kind() {
            std::io::ErrorKind::UnexpectedEof | std::io::ErrorKind::InvalidData | std::io::ErrorKind::Other => {
                match io.raw_os_error() {
                    Some(_) => StorageError::io(op, &path, &io),
                    None => StorageError::corrupt("database", path, format!("{op}: {io}")),
                }
            }
            _ => StorageError::io(op, &path, &io),
        },
        ::sled::Error::Corruption { at, .. } => {
            StorageError::corrupt("database", path.join("db"), format!("{op}: damaged at {at:?}"))
        }
        other => StorageError::corrupt("database", path, format!("{op}: {other}")),
    }
}

impl Log for SledLog {
    fn instance(&self) -> [u8; 16] {
        self.instance
    }
    fn location(&self) -> PathBuf {
        self.dir.sled().join("db")
    }
    fn anchor(&self) -> Result<Option<Anchor>, StorageError> {
        Ok(self.anchor.newest().filter(|anchor| anchor.last.0 > 0))
    }

    fn append(&self, seq: GroupSeq, value: &[u8], longest: usize) -> Result<(), StorageError> {
        // The body is durable before the entry is written: an entry without one would be damage.
        let long = longest > LONG_RECORD || value.len() > WHOLE;
        self.insert(seq, value, long, || self.groups.sync())
    }

    fn sync(&self, tail: Anchor) -> Result<(), StorageError> {
        self.flush()?;
        self.note(tail)
    }

    fn settle_anchor(&self) -> Result<(), StorageError> {
        self.file_work(|| self.anchor.settle())
    }

    fn group(&self, seq: GroupSeq) -> Result<Option<Vec<u8>>, StorageError> {
        let key = seq.0.to_be_bytes();
        match self.read(|| self.handles().groups.get(key))? {
            Some(entry) => self.group_of(seq, entry),
            None => Ok(None),
        }
    }

    fn bounds(&self) -> Result<Option<(GroupSeq, GroupSeq)>, StorageError> {
        // Parts of large groups sort behind every group: no log reaches sequence 0xff00….
        let first = self.read(|| self.handles().groups.first())?;
        let last = self.read(|| self.handles().groups.range(..[PARTS_OF].as_slice()).next_back().transpose())?;
        match (first, last) {
            (Some(first), Some(last)) => Ok(Some((self.seq_of(&first.0)?, self.seq_of(&last.0)?))),
            _ => Ok(None),
        }
    }

    fn groups_from(
        &self,
        from: GroupSeq,
        visit: &mut dyn FnMut(GroupSeq, Vec<u8>) -> Result<bool, StorageError>,
    ) -> Result<(), StorageError> {
        let end = [PARTS_OF];
        let mut range = self.handles().groups.range(from.0.to_be_bytes().as_slice()..end.as_slice());
        while let Some((key, entry)) = self.read(|| range.next().transpose())? {
            let seq = self.seq_of(&key)?;
            if let Some(value) = self.group_of(seq, entry)?
                && !visit(seq, value)?
            {
                break;
            }
        }
        Ok(())
    }

    fn remove_groups(&self, range: std::ops::RangeInclusive<u64>) -> Result<(), StorageError> {
        let (from, to) = (range.start().to_be_bytes(), range.end().to_be_bytes());
        loop {
            let mut batch = ::sled::Batch::default();
            let mut found = 0;
            let mut keys = self.handles().groups.range(from.as_slice()..=to.as_slice());
            while found < 256 {
                let Some((key, first)) = self.read(|| keys.next().transpose())? else { break };
                let count = further_parts(&first);
                (1..=count).for_each(|part| batch.remove(part_key(&key, part)));
                batch.remove(key);
                found += 1;
            }
            if found == 0 {
                break;
            }
            self.write("remove", || self.handles().groups.apply_batch(batch))?;
        }
        // An append may be under way: which files are needed is looked at where none is.
        self.removed_groups.store(true, Ordering::Release);
        Ok(())
    }

    fn change_shelves(&self, changes: &[ShelfChange]) -> Result<(), StorageError> {
        self.room.claim_ahead(&self.file)?;
        let mut sweep = self.sweep.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut batch, mut replaced) = (::sled::Batch::default(), Vec::new());
        for change in changes {
            let key = shelf_key(change.shelf, &change.key);
            // Only these hold values that are long enough.
            if matches!(change.shelf, Shelf::Archive | Shelf::Snapshots | Shelf::Open | Shelf::Closed | Shelf::Refs)
                && let Some(before) = self.read(|| self.handles().shelves.get(&key))?
            {
                (1..=further_parts(&before)).for_each(|part| batch.remove(part_key(&key, part)));
                replaced.extend(place_in(&before));
            }
            let long = if change.shelf == Shelf::Archive { LONG_SEGMENT } else { WHOLE / 2 };
            match &change.value {
                Some(value) if value.len() > long => {
                    let place =
                        self.file_work(|| self.upgrade().and_then(|()| self.values.write(None, &key, value)))?;
                    batch.insert(key, beside(place));
                }
                Some(value) => batch.insert(key, whole(value)),
                None => batch.remove(key),
            }
        }
        // Clean, if nothing was written to it.
        self.file_work(|| self.values.sync())?;
        self.write("write", || self.handles().shelves.apply_batch(batch))?;
        let now = self.changes.fetch_add(1, Ordering::AcqRel) + 1;
        for place in replaced {
            let length = self.values.length_of(place.file).unwrap_or(0);
            sweep.replaced(place, length, now);
        }
        match self.file_work(|| self.sweep_values(&mut sweep)) {
            // The changes stand; the sweep comes another time.
            Err(why) if why.is_no_room() => {
                tracing::warn!(%why, "files of values are not swept");
                Ok(())
            }
            done => done,
        }
    }

    fn shelf_get(&self, shelf: Shelf, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        let key = shelf_key(shelf, key);
        match self.read(|| self.handles().shelves.get(&key))? {
            Some(entry) => self.shelf_value(shelf, &key, entry),
            None => Ok(None),
        }
    }

    fn shelf_scan(
        &self,
        shelf: Shelf,
        prefix: &[u8],
        from: ScanFrom<'_>,
        limit: usize,
    ) -> Result<Vec<(Vec<u8>, Vec<u8>)>, StorageError> {
        let mut found = Vec::new();
        for (key, entry) in self.entries(shelf, prefix, from, limit)? {
            let value = self.shelf_value(shelf, &key, entry)?;
            found.extend(value.map(|value| (key[1..].to_vec(), value)));
        }
        Ok(found)
    }

    fn shelf_keys(
        &self,
        shelf: Shelf,
        prefix: &[u8],
        from: ScanFrom<'_>,
        limit: usize,
    ) -> Result<Vec<Vec<u8>>, StorageError> {
        let entries = self.entries(shelf, prefix, from, limit)?;
        Ok(entries.into_iter().map(|(key, _)| key[1..].to_vec()).collect())
    }

    fn shelf_has(&self, shelf: Shelf, key: &[u8]) -> Result<bool, StorageError> {
        self.read(|| self.handles().shelves.contains_key(shelf_key(shelf, key)))
    }

    fn put_blob(&self, hash: &BlobHash, bytes: &[u8]) -> Result<(), StorageError> {
        self.blobs.put(hash, bytes)
    }
    fn blob(&self, hash: &BlobHash) -> Result<Option<Vec<u8>>, StorageError> {
        self.blobs.get(hash)
    }
    fn blobs(&self, first_byte: u8) -> Result<Vec<BlobHash>, StorageError> {
        self.blobs.list(first_byte)
    }
    fn remove_blob(&self, hash: &BlobHash) -> Result<(), StorageError> {
        self.blobs.remove(hash)
    }

    fn bytes_on_disk(&self) -> Result<u64, StorageError> {
        let aside = self.room.set_aside() + tree_bytes(&self.dir.wal());
        Ok(tree_bytes(&self.dir.root).saturating_sub(aside))
    }
    fn file_of_blob(&self, hash: &BlobHash) -> PathBuf {
        self.blobs.path(hash)
    }
    fn low_on_space(&self) -> Option<String> {
        self.room.low()
    }
    fn file_of(&self, seq: GroupSeq) -> PathBuf {
        let entry = self.read(|| self.handles().groups.get(seq.0.to_be_bytes())).ok().flatten();
        entry.and_then(|entry| place_in(&entry)).map_or_else(|| self.location(), |place| self.groups.path(place.file))
    }

    fn held(&self) -> Result<Vec<(RunId, String)>, StorageError> {
        self.dir.read_held()
    }
    fn origin(&self) -> Option<Origin> {
        self.format.lock().unwrap_or_else(PoisonError::into_inner).origin
    }
    fn note_epoch(&self, tail: Anchor) -> Result<(), StorageError> {
        let epoch = Epoch { instance: self.instance, tail };
        self.epoch.as_ref().map_or(Ok(()), |keeper| keeper.note(epoch))
    }
    fn format(&self) -> u32 {
        let format = self.format.lock().unwrap_or_else(PoisonError::into_inner);
        if format.wal.is_some() { WAL_FORMAT_VERSION } else { format.version }
    }
}

impl Back for SledLog {
    fn wal_dir(&self) -> PathBuf {
        self.dir.wal()
    }

    fn segment_bytes(&self) -> Option<u64> {
        self.room.for_segments(self.wal_bytes)
    }

    fn claim(&self) -> Result<(), StorageError> {
        self.room.claim_ahead(&self.file)
    }

    fn mark(&self, id: Option<[u8; 16]>) -> Result<(), StorageError> {
        if self.failed.load(Ordering::Acquire) {
            return Err(StorageError::Poisoned { first: "an earlier write to the database failed".into() });
        }
        let mut format = self.format.lock().unwrap_or_else(PoisonError::into_inner);
        self.write_format(&mut format, |format| format.wal = id)
    }

    fn note(&self, tail: Anchor) -> Result<(), StorageError> {
        self.file_work(|| self.anchor.note(tail))
    }

    fn feed(&self, groups: &[(GroupSeq, Arc<Pending>)], hurry: &AtomicBool) -> Result<(), StorageError> {
        let long = |group: &Pending| group.longest > LONG_RECORD || group.value.len() > WHOLE;
        let mut places = Vec::with_capacity(groups.len());
        for (seq, group) in groups {
            places.push(match long(group) {
                true => Some(self.file_work(|| {
                    self.upgrade()?;
                    let pack = !hurry.load(Ordering::Relaxed);
                    self.groups.write_as(pack, Some(seq.0), &seq.0.to_be_bytes(), &group.value)
                })?),
                false => None,
            });
        }
        // The bodies are durable before the entries are written, as in `append`; one sync does for all.
        self.file_work(|| self.groups.sync())?;
        for ((seq, group), place) in groups.iter().zip(places) {
            self.room.claim_ahead(&self.file)?;
            let entry = place.map_or_else(|| whole(&group.value), beside);
            self.write("append", || self.handles().groups.insert(seq.0.to_be_bytes(), entry).map(drop))?;
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), StorageError> {
        let changes = self.changes.load(Ordering::Acquire);
        // Removals that were seen here are flushed with the rest.
        let needed = match self.removed_groups.swap(false, Ordering::AcqRel) {
            true => self.needed_groups().unwrap_or_else(|why| {
                tracing::warn!(%why, "files of groups are kept");
                0
            }),
            false => 0,
        };
        self.file_work(|| self.values.sync().and_then(|()| self.groups.sync()))?;
        self.write("flush", || self.handles().db.flush())?;
        self.sync_sled_blobs()?;
        let file = if seeded::on(Bug::FsyncWrongFile) { &self._lock } else { &self.file };
        file.sync_data().map_err(|why| self.file_failed("fsync", &self.location(), &why))?;
        self.synced_changes.fetch_max(changes, Ordering::AcqRel);
        let mut below = self.groups.finished().into_iter().take_while(|file| *file < needed);
        if let Err(why) = below.try_for_each(|file| self.groups.remove(file)) {
            // Only space is lost, and that not for ever.
            tracing::warn!(%why, "a file of groups cannot be removed");
            self.removed_groups.store(true, Ordering::Release);
        }
        Ok(())
    }

    fn fail(&self) {
        self.failed.store(true, Ordering::Release);
    }
}

impl Drop for SledLog {
    fn drop(&mut self) {
        let handles = self.handles.take();
        if self.failed.load(Ordering::Acquire) {
            // Dropping would write once more.
            return std::mem::forget(handles);
        }
        // Dropping writes sled's snapshot and frees its lock; a panic there must not take the process.
        let close = || {
            drop(handles);
            Ok(())
        };
        if let Err(why) = guard(&self.dir, "close", close) {
            return tracing::warn!(%why, "closing the database");
        }
        if let Err(why) = settle_closed(&self.dir) {
            tracing::warn!(%why, "the closed database has no snapshot; the next start reads more");
        }
        private::tighten(&self.dir.root, &self.dir.sled());
    }
}
