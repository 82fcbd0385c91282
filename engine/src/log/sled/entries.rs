//! Entries of the database: a value as it is, in parts as format 1 kept long ones, or the place of one in a file of ours.
//!
//! Invariant: what an entry leads to is what was written under its key, or an error that says where it is not; a body is
//! durable before the entry that names it, but for copies, which count only when they are whole. No file is removed here.

use super::{IVec, SledLog, Tree};
use crate::log::parts::{PACKED_AT_ONCE, beside, end_of, further_parts, is_beside, part_key, place_in, whole};
use crate::log::values::ValueFiles;
use crate::log::{Log, ScanFrom, Shelf, StorageError};
use crate::vocabulary::{GroupSeq, RunId};

impl SledLog {
    /// The value of an entry; nothing if it was removed meanwhile.
    pub(super) fn value_of(
        &self,
        files: &ValueFiles,
        tree: &Tree,
        key: &[u8],
        entry: IVec,
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

    pub(super) fn group_of(&self, seq: GroupSeq, entry: IVec) -> Result<Option<Vec<u8>>, StorageError> {
        let value = self.value_of(&self.groups, &self.handles().groups, &seq.0.to_be_bytes(), entry);
        value.map_err(|why| why.at_group(seq))
    }

    /// The value of an entry of a shelf. What is derived is the index, whatever is wrong with it: it can be rebuilt.
    pub(super) fn shelf_value(&self, shelf: Shelf, key: &[u8], entry: IVec) -> Result<Option<Vec<u8>>, StorageError> {
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
    pub(super) fn entries(
        &self,
        shelf: Shelf,
        prefix: &[u8],
        from: ScanFrom<'_>,
        limit: usize,
    ) -> Result<Vec<(IVec, IVec)>, StorageError> {
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

    /// As [`Log::append`]; but a crash before the next sync may leave the entry of a group without its body, which is
    /// nothing that an open forgives. For copies that count only once they are whole.
    pub(crate) fn append_copy(&self, seq: GroupSeq, value: &[u8]) -> Result<(), StorageError> {
        self.insert(seq, value, true, || Ok(()))
    }

    pub(super) fn insert(
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
                let pack = value.len() <= PACKED_AT_ONCE;
                let place = self.groups.write_as(pack, Some(seq.0), &seq.0.to_be_bytes(), value)?;
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
        let mut batch = super::Batch::default();
        batch.insert(seq.0.to_be_bytes().as_slice(), [count.to_be_bytes().as_slice(), parts[0]].concat());
        for (part, bytes) in (1..).zip(&parts[1..]) {
            batch.insert(part_key(&seq.0.to_be_bytes(), part), *bytes);
        }
        self.write("append", || self.handles().groups.apply_batch(batch))
    }

    pub(super) fn seq_of(&self, key: &[u8]) -> Result<GroupSeq, StorageError> {
        let wrong = |_| StorageError::corrupt("database", self.location(), "the key of a group has another length");
        key.try_into().map(u64::from_be_bytes).map(GroupSeq).map_err(wrong)
    }

    pub(super) fn parts_of(&self, tree: &Tree, key: &[u8], first: &[u8]) -> Result<Vec<u8>, StorageError> {
        let cut = |detail: &str| StorageError::corrupt("database entry", self.dir.sled(), detail);
        let mut value = first.get(2..).ok_or_else(|| cut("a value has no part count"))?.to_vec();
        for part in 1..=further_parts(first) {
            let bytes = self.read(|| tree.get(part_key(key, part)))?;
            value.extend_from_slice(&bytes.ok_or_else(|| cut("a part of a large value is missing"))?);
        }
        Ok(value)
    }
}

pub(super) fn shelf_key(shelf: Shelf, key: &[u8]) -> Vec<u8> {
    [&[shelf as u8], key].concat()
}
