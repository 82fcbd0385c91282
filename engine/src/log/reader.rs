//! A data directory that nobody holds, as a log that is only read.
//!
//! Recovery changes what it recovers: it clears an index that does not fit and removes what a crash left half done. Here
//! these changes stay in memory, so everything that reads a journal reads this one too. So does what a worker decides
//! that is started only to be asked: [`StoreReader::forgetting`] takes it and forgets it.
//!
//! Invariant: no file is opened for writing, made, synced or removed. What would add to the log is refused, or forgotten
//! at the end; nothing durable is ever promised with it.

use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Bound::{Excluded, Included, Unbounded};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::anchor::{Anchor, AnchorFile};
use super::blob::{BlobFiles, BlobHash};
use super::check::entry_value;
use super::files::{DataDir, HeldRuns, StoreFormat, tree_bytes};
use super::look::look;
use super::parts::{PARTS_OF, end_of};
use super::sled_format::pages::Pages;
use super::sled_format::tree::Tree;
use super::values::ValueFiles;
use super::{DamagedPart, Log, ScanFrom, Shelf, ShelfChange, StorageError, StoreOrigin, WAL_FORMAT_VERSION, spare};
use crate::vocabulary::{GroupSeq, RunId};

/// See the module.
#[derive(Debug)]
pub struct StoreReader {
    dir: DataDir,
    format: StoreFormat,
    anchor: Anchor,
    pages: Arc<Pages>,
    groups: Tree,
    shelves: Tree,
    group_files: ValueFiles,
    values: ValueFiles,
    blobs: BlobFiles,
    held: HeldRuns,
    forgets: bool,
    changed: Mutex<Changed>,
    _lock: Option<File>,
}

/// What was changed in memory.
#[derive(Debug, Default)]
struct Changed {
    removed: Vec<std::ops::RangeInclusive<u64>>,
    groups: BTreeMap<u64, Vec<u8>>,
    blobs: BTreeMap<BlobHash, Vec<u8>>,
    shelves: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
}

impl StoreReader {
    /// Reads everything that counts and checks it; see `log/look.rs`.
    pub fn open(dir: &Path) -> Result<StoreReader, StorageError> {
        let dir = DataDir::new(dir);
        let (lock, format) = dir.visit()?;
        let anchor = AnchorFile::read(&dir.anchor(), format.instance)?;
        let looked = look(&dir, format)?;
        // What is written ahead is read as if it had been added.
        let ahead = looked.ahead.into_iter().flatten().map(|group| (group.seq.0, group.value)).collect();
        Ok(StoreReader {
            shelves: Tree::open(looked.pages.clone(), b"shelves")?,
            pages: looked.pages,
            groups: looked.groups,
            group_files: ValueFiles::look(dir.groups(), format.instance)?,
            values: ValueFiles::look(dir.values(), format.instance)?,
            blobs: BlobFiles::open(dir.payloads()),
            held: HeldRuns::default(),
            forgets: false,
            changed: Mutex::new(Changed { groups: ahead, ..Changed::default() }),
            dir,
            format,
            anchor,
            _lock: lock,
        })
    }

    /// Takes groups as if it kept them, for a worker that answers questions and is then dropped.
    #[must_use]
    pub fn forgetting(mut self) -> StoreReader {
        self.forgets = true;
        self
    }

    fn changed(&self) -> MutexGuard<'_, Changed> {
        self.changed.lock().unwrap_or_else(PoisonError::into_inner)
    }
    fn is_removed(&self, seq: u64) -> bool {
        self.changed().removed.iter().any(|range| range.contains(&seq))
    }
    fn group_of(&self, seq: u64, entry: &[u8]) -> Result<Vec<u8>, StorageError> {
        let value = entry_value(&self.groups, &self.group_files, &self.location(), &seq.to_be_bytes(), entry);
        value.map(|(value, _)| value).map_err(|why| why.at_group(GroupSeq(seq)))
    }
    fn check_forgets(&self) -> Result<(), StorageError> {
        if self.forgets { Ok(()) } else { Err(StorageError::ReadOnly { dir: self.dir.root.clone() }) }
    }

    /// The value of an entry of a shelf. What is derived is the index, whatever is wrong with it.
    fn shelf_value(&self, shelf: Shelf, key: &[u8], entry: &[u8]) -> Result<Vec<u8>, StorageError> {
        let value = entry_value(&self.shelves, &self.values, &self.location(), key, entry);
        value.map(|(value, _)| value).map_err(|why| match why {
            StorageError::Corrupt { file, detail, .. } if shelf != Shelf::Archive => {
                StorageError::corrupt("index", file, detail)
            }
            why => match key.get(1..17).and_then(|run| run.try_into().ok()) {
                Some(run) if shelf == Shelf::Archive => why.of_run(RunId(run)),
                _ => why,
            },
        })
    }

    /// Keys of a shelf with their entries, or with the values that they were given in memory.
    fn entries(
        &self,
        shelf: Shelf,
        prefix: &[u8],
        from: ScanFrom<'_>,
        limit: usize,
    ) -> Result<Vec<(Vec<u8>, ShelfEntry)>, StorageError> {
        let start = shelf_key(shelf, prefix);
        let end = end_of(&start);
        let (low, high, upwards) = match from {
            ScanFrom::First => (start, end, true),
            ScanFrom::Last => (start, end, false),
            ScanFrom::After(key) => ([shelf_key(shelf, key).as_slice(), &[0]].concat().max(start), end, true),
            ScanFrom::Before(key) => (start.clone(), Some(shelf_key(shelf, key).max(start)), false),
        };
        let changed = self.changed();
        let mut found: BTreeMap<Vec<u8>, ShelfEntry> = BTreeMap::new();
        let above = high.clone().map_or(Unbounded, Excluded);
        let here = changed.shelves.range::<Vec<u8>, _>((Included(low.clone()), above));
        let mut here = here.filter_map(|(key, value)| Some((key, value.as_ref()?)));
        let next = || if upwards { here.next() } else { here.next_back() };
        let first = std::iter::from_fn(next).take(limit);
        found.extend(first.map(|(key, value)| (key.clone(), ShelfEntry::Changed(value.clone()))));
        let mut taken = 0;
        let mut visit = |key: &[u8], entry: &[u8]| {
            if key < low.as_slice() || high.as_ref().is_some_and(|high| key >= high.as_slice()) {
                return Ok(false);
            }
            if !changed.shelves.contains_key(key) {
                found.insert(key.to_vec(), ShelfEntry::Stored(entry.to_vec()));
                taken += 1;
            }
            Ok(taken < limit)
        };
        if upwards {
            self.shelves.upwards(&low, &mut visit)?;
            Ok(found.into_iter().take(limit).collect())
        } else {
            self.shelves.downwards(high.as_deref(), &mut visit)?;
            Ok(found.into_iter().rev().take(limit).collect())
        }
    }
}

enum ShelfEntry {
    Stored(Vec<u8>),
    Changed(Vec<u8>),
}

fn shelf_key(shelf: Shelf, key: &[u8]) -> Vec<u8> {
    [&[shelf as u8], key].concat()
}

impl Log for StoreReader {
    fn instance(&self) -> [u8; 16] {
        self.format.instance
    }
    fn location(&self) -> PathBuf {
        self.dir.sled().join("db")
    }
    fn anchor(&self) -> Result<Option<Anchor>, StorageError> {
        Ok(Some(self.anchor).filter(|anchor| anchor.last.0 > 0))
    }
    fn append(&self, seq: GroupSeq, value: &[u8], _longest: usize) -> Result<(), StorageError> {
        self.check_forgets()?;
        self.changed().groups.insert(seq.0, value.to_vec());
        Ok(())
    }
    fn sync(&self, _tail: Anchor) -> Result<(), StorageError> {
        Ok(())
    }
    fn settle_anchor(&self) -> Result<(), StorageError> {
        Ok(())
    }
    fn group(&self, seq: GroupSeq) -> Result<Option<Vec<u8>>, StorageError> {
        if let Some(value) = self.changed().groups.get(&seq.0) {
            return Ok(Some(value.clone()));
        }
        if self.is_removed(seq.0) {
            return Ok(None);
        }
        let entry = self.groups.get(&seq.0.to_be_bytes())?;
        entry.map(|entry| self.group_of(seq.0, &entry)).transpose()
    }
    fn bounds(&self) -> Result<Option<(GroupSeq, GroupSeq)>, StorageError> {
        let (mut first, mut last) = (None, None);
        let seq_of = |key: &[u8]| key.try_into().ok().map(u64::from_be_bytes).filter(|seq| !self.is_removed(*seq));
        self.groups.upwards(&[], &mut |key, _| {
            first = seq_of(key);
            Ok(first.is_none())
        })?;
        self.groups.downwards(Some(&[PARTS_OF]), &mut |key, _| {
            last = seq_of(key);
            Ok(last.is_none())
        })?;
        let changed = self.changed();
        let newest = changed.groups.last_key_value().map(|(seq, _)| *seq);
        // Before the first sweep all groups are in the write-ahead files.
        let oldest = changed.groups.first_key_value().map(|(seq, _)| *seq);
        let (first, last) = (first.or(oldest), newest.or(last));
        Ok(first.zip(last).map(|(first, last)| (GroupSeq(first), GroupSeq(last))))
    }
    fn groups_from(
        &self,
        from: GroupSeq,
        visit: &mut dyn FnMut(GroupSeq, Vec<u8>) -> Result<bool, StorageError>,
    ) -> Result<(), StorageError> {
        let mut going = true;
        self.groups.upwards(&from.0.to_be_bytes(), &mut |key, entry| {
            let Ok(seq) = key.try_into().map(u64::from_be_bytes) else { return Ok(false) };
            if self.is_removed(seq) {
                return Ok(true);
            }
            going = visit(GroupSeq(seq), self.group_of(seq, entry)?)?;
            Ok(going)
        })?;
        let newer: Vec<(u64, Vec<u8>)> =
            self.changed().groups.range(from.0..).map(|(seq, value)| (*seq, value.clone())).collect();
        for (seq, value) in newer {
            if !going {
                break;
            }
            going = visit(GroupSeq(seq), value)?;
        }
        Ok(())
    }
    fn remove_groups(&self, range: std::ops::RangeInclusive<u64>) -> Result<(), StorageError> {
        self.changed().removed.push(range);
        Ok(())
    }

    fn change_shelves(&self, changes: &[ShelfChange]) -> Result<(), StorageError> {
        let mut changed = self.changed();
        for change in changes {
            changed.shelves.insert(shelf_key(change.shelf, &change.key), change.value.clone());
        }
        Ok(())
    }
    fn shelf_get(&self, shelf: Shelf, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        let key = shelf_key(shelf, key);
        if let Some(changed) = self.changed().shelves.get(&key) {
            return Ok(changed.clone());
        }
        let entry = self.shelves.get(&key)?;
        entry.map(|entry| self.shelf_value(shelf, &key, &entry)).transpose()
    }
    fn shelf_has(&self, shelf: Shelf, key: &[u8]) -> Result<bool, StorageError> {
        let key = shelf_key(shelf, key);
        if let Some(changed) = self.changed().shelves.get(&key) {
            return Ok(changed.is_some());
        }
        Ok(self.shelves.get(&key)?.is_some())
    }
    fn shelf_keys(
        &self,
        shelf: Shelf,
        prefix: &[u8],
        from: ScanFrom<'_>,
        limit: usize,
    ) -> Result<Vec<Vec<u8>>, StorageError> {
        Ok(self.entries(shelf, prefix, from, limit)?.into_iter().map(|(key, _)| key[1..].to_vec()).collect())
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
            let value = match entry {
                ShelfEntry::Changed(value) => value,
                ShelfEntry::Stored(entry) => self.shelf_value(shelf, &key, &entry)?,
            };
            found.push((key[1..].to_vec(), value));
        }
        Ok(found)
    }

    fn put_blob(&self, hash: &BlobHash, bytes: &[u8]) -> Result<(), StorageError> {
        self.check_forgets()?;
        self.changed().blobs.insert(*hash, bytes.to_vec());
        Ok(())
    }
    fn blob(&self, hash: &BlobHash) -> Result<Option<Vec<u8>>, StorageError> {
        if let Some(bytes) = self.changed().blobs.get(hash) {
            return Ok(Some(bytes.clone()));
        }
        self.blobs.get(hash)
    }
    fn blobs(&self, first_byte: u8) -> Result<Vec<BlobHash>, StorageError> {
        self.blobs.list(first_byte)
    }
    fn remove_blob(&self, _hash: &BlobHash) -> Result<(), StorageError> {
        self.check_forgets()
    }
    fn bytes_on_disk(&self) -> Result<u64, StorageError> {
        Ok(tree_bytes(&self.dir.root))
    }
    fn file_of_blob(&self, hash: &BlobHash) -> PathBuf {
        self.blobs.path(hash)
    }
    fn file_of(&self, seq: GroupSeq) -> PathBuf {
        let entry = self.groups.get(&seq.0.to_be_bytes()).ok().flatten();
        let place = entry.and_then(|entry| super::parts::place_in(&entry));
        place.map_or_else(|| self.location(), |place| self.group_files.path(place.file))
    }
    fn held(&self) -> Result<Vec<(RunId, String)>, StorageError> {
        self.held.of(&self.dir)
    }
    fn check_files(&self) -> Vec<DamagedPart> {
        let mut found = spare::check(&self.dir, self.format.instance, [&self.group_files, &self.values]);
        found.extend(spare::check_segments(&self.pages));
        found
    }
    fn is_read_only(&self) -> bool {
        true
    }
    fn origin(&self) -> Option<StoreOrigin> {
        self.format.origin
    }
    fn format(&self) -> u32 {
        if self.format.wal.is_some() { WAL_FORMAT_VERSION } else { self.format.version }
    }
}
