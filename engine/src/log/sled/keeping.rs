//! sled as a [`Log`]: what each call means in trees, batches and files.
//!
//! Invariant: that of the trait, and: every key of the database is made here or in `entries`. Nothing here knows what a
//! value holds, or opens anything.

use std::path::PathBuf;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use super::entries::shelf_key;
use super::{Batch, SledLog};
use crate::log::anchor::Anchor;
use crate::log::blob::BlobHash;
use crate::log::epoch::{Epoch, StoreOrigin};
use crate::log::files::tree_bytes;
use crate::log::parts::{LONG_RECORD, LONG_SEGMENT, PARTS_OF, WHOLE, beside, further_parts, part_key, place_in, whole};
use crate::log::wal::Back;
use crate::log::{DamagedPart, Log, ScanFrom, Shelf, ShelfChange, StorageError, WAL_FORMAT_VERSION, spare};
use crate::vocabulary::{GroupSeq, RunId};

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
            let mut batch = Batch::default();
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
        let (mut batch, mut replaced) = (Batch::default(), Vec::new());
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
        self.held.of(&self.dir)
    }
    fn check_files(&self) -> Vec<DamagedPart> {
        spare::check(&self.dir, self.instance, [&self.groups, &self.values])
    }
    fn origin(&self) -> Option<StoreOrigin> {
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
