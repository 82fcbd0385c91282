//! A log in memory: for tests, the simulator and `dev` without `--persist`.
//!
//! It keeps what was synced apart from what was only written, so that a crash can be taken at any moment: what was
//! synced stays, of the rest an arbitrary part picked by a seed, the last group perhaps torn. Any call can be made to
//! fail. Invariant: it promises exactly what [`Log`] promises and nothing more. It survives no end of the process.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use super::{Anchor, BlobHash, Log, ScanFrom, Shelf, ShelfChange, StorageError};
use crate::vocabulary::{GroupSeq, RunId};

/// How an injected failure looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InjectedFault {
    /// An input/output error before anything was written.
    Eio,
    /// The disk is full.
    Enospc,
    /// The write or sync took place, and then the call reported an error.
    EioAfter,
}

/// What is stored never changes, so that images share it: a test takes thousands of them.
#[derive(Debug, Clone, Default)]
struct Image {
    groups: BTreeMap<u64, Bytes>,
    shelves: BTreeMap<(Shelf, Vec<u8>), Bytes>,
    blobs: BTreeMap<BlobHash, Bytes>,
    anchor: Option<Anchor>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum UnsyncedChange {
    Append(u64, Bytes),
    Remove(std::ops::RangeInclusive<u64>),
    Shelves(Vec<ShelfChange>),
    RemoveBlob(BlobHash),
}

impl Image {
    fn apply(&mut self, change: &UnsyncedChange) {
        match change {
            UnsyncedChange::Append(seq, value) => {
                self.groups.insert(*seq, value.clone());
            }
            UnsyncedChange::Remove(range) => {
                let inside: Vec<u64> = self.groups.range(range.clone()).map(|(seq, _)| *seq).collect();
                inside.iter().for_each(|seq| drop(self.groups.remove(seq)));
            }
            UnsyncedChange::Shelves(changes) => changes.iter().for_each(|change| {
                let key = (change.shelf, change.key.clone());
                match &change.value {
                    Some(value) => drop(self.shelves.insert(key, value.clone().into())),
                    None => drop(self.shelves.remove(&key)),
                }
            }),
            UnsyncedChange::RemoveBlob(hash) => drop(self.blobs.remove(hash)),
        }
    }
}

#[derive(Debug, Default)]
struct MemoryState {
    durable: Image,
    live: Image,
    pending: Vec<UnsyncedChange>,
    writes: u64,
    calls: u64,
    fail_at: Option<(u64, InjectedFault)>,
    failed: Option<StorageError>,
    full: bool,
    held: Vec<(RunId, String)>,
}

/// See the module.
#[derive(Debug)]
pub struct MemoryLog {
    instance: [u8; 16],
    state: Mutex<MemoryState>,
}

impl MemoryLog {
    /// An empty log; the instance id is the caller's to choose.
    pub fn new(instance: [u8; 16]) -> Self {
        MemoryLog { instance, state: Mutex::default() }
    }
    /// What a power cut at this moment leaves: everything synced, and of the rest what the seed picks.
    pub fn crash(&self, seed: u64) -> MemoryLog {
        let state = self.lock();
        let mut dice = CrashRng(seed);
        let mut image = state.durable.clone();
        for change in &state.pending {
            match (dice.roll(4), change) {
                (0, _) => {}
                (1, UnsyncedChange::Append(seq, value)) => {
                    let cut = dice.roll(value.len() as u64 + 1) as usize;
                    image.apply(&UnsyncedChange::Append(*seq, value.slice(..cut)));
                }
                (_, change) => image.apply(change),
            }
        }
        let state = MemoryState { live: image.clone(), durable: image, ..MemoryState::default() };
        MemoryLog { instance: self.instance, state: Mutex::new(state) }
    }
    /// What kill -9 at this moment leaves: everything written. What was not synced is not durable by that.
    pub fn kill(&self) -> MemoryLog {
        let MemoryState { durable, live, pending, .. } = &*self.lock();
        let state = MemoryState {
            durable: durable.clone(),
            live: live.clone(),
            pending: pending.clone(),
            ..MemoryState::default()
        };
        MemoryLog { instance: self.instance, state: Mutex::new(state) }
    }
    /// Makes the n-th call from now that changes or syncs anything fail (the first is 1), and all after it.
    pub fn fail_at(&self, n: u64, fault: InjectedFault) {
        let mut state = self.lock();
        state.fail_at = Some((state.writes + n, fault));
    }
    /// From now on there is no room for anything, or there is again. A change without room changes nothing.
    pub fn fill(&self, full: bool) {
        self.lock().full = full;
    }
    /// How many calls there were that change or sync anything.
    pub fn write_calls(&self) -> u64 {
        self.lock().writes
    }
    /// How many calls there were of any kind.
    pub fn calls(&self) -> u64 {
        self.lock().calls
    }
    /// Holds a run, as a salvage does that could not save it whole.
    pub fn hold(&self, run: RunId, why: &str) {
        self.lock().held.push((run, why.to_owned()));
    }
    /// Damages a stored group in place, for tests of what is noticed. Returns false if there is no such group.
    pub fn damage_group(&self, seq: GroupSeq, change: impl Fn(&mut Vec<u8>)) -> bool {
        let mut state = self.lock();
        let MemoryState { live, durable, .. } = &mut *state;
        let groups = [live, durable].into_iter().filter_map(|image| image.groups.get_mut(&seq.0));
        groups.map(|stored| *stored = changed(stored, &change).0).count() > 0
    }
    /// Damages or removes shelf entries in place, for tests of what is noticed.
    pub fn damage_shelf(&self, shelf: Shelf, change: impl Fn(&[u8], &mut Vec<u8>) -> bool) {
        let mut state = self.lock();
        let MemoryState { live, durable, .. } = &mut *state;
        for image in [live, durable] {
            image.shelves.retain(|(s, key), value| {
                let mut stays = true;
                if *s == shelf {
                    (*value, stays) = changed(value, |bytes| change(key, bytes));
                }
                stays
            });
        }
    }

    fn lock(&self) -> MutexGuard<'_, MemoryState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
    fn read<T>(&self, read: impl FnOnce(&Image) -> T) -> Result<T, StorageError> {
        let mut state = self.lock();
        state.calls += 1;
        Ok(read(&state.live))
    }
    fn write(&self, op: &'static str, write: impl FnOnce(&mut MemoryState)) -> Result<(), StorageError> {
        let mut state = self.lock();
        state.calls += 1;
        state.writes += 1;
        if let Some(failed) = &state.failed {
            return Err(failed.clone());
        }
        if state.full {
            return Err(StorageError::NoRoom { path: "memory".into(), bytes: 0 });
        }
        let Some((_, fault)) = state.fail_at.filter(|(n, _)| *n == state.writes) else {
            write(&mut state);
            return Ok(());
        };
        let kind = match fault {
            InjectedFault::Eio | InjectedFault::EioAfter => std::io::Error::from_raw_os_error(5),
            InjectedFault::Enospc => std::io::Error::from_raw_os_error(28),
        };
        if fault == InjectedFault::EioAfter {
            write(&mut state);
        }
        let failed = StorageError::io(op, Path::new("memory"), &kind);
        state.failed = Some(failed.clone());
        Err(failed)
    }
    fn change(&self, op: &'static str, change: UnsyncedChange) -> Result<(), StorageError> {
        self.write(op, |state| {
            state.live.apply(&change);
            state.pending.push(change);
        })
    }
}

/// Other bytes in the place of those that are shared, and what was said of them.
fn changed<T>(stored: &Bytes, change: impl FnOnce(&mut Vec<u8>) -> T) -> (Bytes, T) {
    let mut bytes = stored.to_vec();
    let said = change(&mut bytes);
    (bytes.into(), said)
}

/// A small generator (splitmix64): the crash of a seed is the same for ever.
#[derive(Debug)]
struct CrashRng(u64);

impl CrashRng {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % sides.max(1)
    }
}

/// The first place behind all keys of the shelf that begin with `prefix`.
fn end_of(shelf: Shelf, prefix: &[u8]) -> (Shelf, Vec<u8>) {
    if let Some(end) = super::parts::end_of(prefix) {
        return (shelf, end);
    }
    let next = Shelf::ALL.into_iter().find(|other| *other > shelf);
    // Behind the last shelf there is nothing; no key is longer than this.
    next.map_or((shelf, vec![0xff; 1_024]), |next| (next, Vec::new()))
}

impl Log for MemoryLog {
    fn instance(&self) -> [u8; 16] {
        self.instance
    }
    fn location(&self) -> PathBuf {
        PathBuf::from("memory")
    }
    fn held(&self) -> Result<Vec<(RunId, String)>, StorageError> {
        Ok(self.lock().held.clone())
    }
    fn anchor(&self) -> Result<Option<Anchor>, StorageError> {
        self.read(|image| image.anchor)
    }
    fn append(&self, seq: GroupSeq, value: &[u8], _longest: usize) -> Result<(), StorageError> {
        self.change("append", UnsyncedChange::Append(seq.0, Bytes::copy_from_slice(value)))
    }
    fn sync(&self, tail: Anchor) -> Result<(), StorageError> {
        self.write("sync", |state| {
            for change in std::mem::take(&mut state.pending) {
                state.durable.apply(&change);
            }
            state.durable.anchor = Some(tail);
            state.live.anchor = Some(tail);
        })
    }
    /// As the write-ahead files do it: nothing else becomes durable by it.
    fn commit(&self, seq: GroupSeq, value: &[u8], longest: usize, tail: Anchor) -> Result<(), StorageError> {
        self.append(seq, value, longest)?;
        self.write("sync", |state| {
            let stored = state.live.groups.get(&seq.0).cloned();
            let group = UnsyncedChange::Append(seq.0, stored.unwrap_or_else(|| Bytes::copy_from_slice(value)));
            state.pending.retain(|change| *change != group);
            state.durable.apply(&group);
            state.durable.anchor = Some(tail);
            state.live.anchor = Some(tail);
        })
    }
    fn settle_anchor(&self) -> Result<(), StorageError> {
        self.write("sync", |_| {})
    }
    fn group(&self, seq: GroupSeq) -> Result<Option<Vec<u8>>, StorageError> {
        self.read(|image| image.groups.get(&seq.0).map(|value| value.to_vec()))
    }
    fn bounds(&self) -> Result<Option<(GroupSeq, GroupSeq)>, StorageError> {
        self.read(|image| {
            let ends = image.groups.first_key_value().zip(image.groups.last_key_value());
            ends.map(|((first, _), (last, _))| (GroupSeq(*first), GroupSeq(*last)))
        })
    }
    fn groups_from(
        &self,
        from: GroupSeq,
        visit: &mut dyn FnMut(GroupSeq, Vec<u8>) -> Result<bool, StorageError>,
    ) -> Result<(), StorageError> {
        let mut next = from.0;
        loop {
            let found =
                self.read(|image| image.groups.range(next..).next().map(|(seq, value)| (*seq, value.to_vec())))?;
            let Some((seq, value)) = found else { return Ok(()) };
            if !visit(GroupSeq(seq), value)? {
                return Ok(());
            }
            next = seq + 1;
        }
    }
    fn remove_groups(&self, range: std::ops::RangeInclusive<u64>) -> Result<(), StorageError> {
        self.change("remove", UnsyncedChange::Remove(range))
    }
    fn change_shelves(&self, changes: &[ShelfChange]) -> Result<(), StorageError> {
        self.change("write", UnsyncedChange::Shelves(changes.to_vec()))
    }
    fn shelf_get(&self, shelf: Shelf, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        self.read(|image| image.shelves.get(&(shelf, key.to_vec())).map(|value| value.to_vec()))
    }
    fn shelf_scan(
        &self,
        shelf: Shelf,
        prefix: &[u8],
        from: ScanFrom<'_>,
        limit: usize,
    ) -> Result<Vec<(Vec<u8>, Vec<u8>)>, StorageError> {
        use std::ops::Bound::{Excluded, Included};
        let start = (shelf, prefix.to_vec());
        self.read(|image| {
            let in_prefix = |((s, key), value): (&(Shelf, Vec<u8>), &Bytes)| {
                (*s == shelf && key.starts_with(prefix)).then(|| (key.clone(), value.to_vec()))
            };
            match from {
                ScanFrom::First => image.shelves.range(start..).map_while(in_prefix).take(limit).collect(),
                ScanFrom::After(key) => {
                    let begin = (shelf, key.to_vec()).max(start);
                    let skip = begin.1 == key;
                    let range = image
                        .shelves
                        .range((if skip { Excluded(begin) } else { Included(begin) }, std::ops::Bound::Unbounded));
                    range.map_while(in_prefix).take(limit).collect()
                }
                ScanFrom::Last => {
                    image.shelves.range(start..end_of(shelf, prefix)).rev().map_while(in_prefix).take(limit).collect()
                }
                ScanFrom::Before(key) => {
                    let end = (shelf, key.to_vec()).min(end_of(shelf, prefix)).max(start.clone());
                    image.shelves.range(start..end).rev().map_while(in_prefix).take(limit).collect()
                }
            }
        })
    }
    fn put_blob(&self, hash: &BlobHash, bytes: &[u8]) -> Result<(), StorageError> {
        self.write("write", |state| {
            state.pending.retain(|change| !matches!(change, UnsyncedChange::RemoveBlob(gone) if gone == hash));
            let bytes = Bytes::copy_from_slice(bytes);
            state.live.blobs.insert(*hash, bytes.clone());
            state.durable.blobs.insert(*hash, bytes);
        })
    }
    fn blob(&self, hash: &BlobHash) -> Result<Option<Vec<u8>>, StorageError> {
        self.read(|image| image.blobs.get(hash).map(|bytes| bytes.to_vec()))
    }
    fn blobs(&self, first_byte: u8) -> Result<Vec<BlobHash>, StorageError> {
        self.read(|image| image.blobs.keys().filter(|hash| hash.0[0] == first_byte).copied().collect())
    }
    fn remove_blob(&self, hash: &BlobHash) -> Result<(), StorageError> {
        self.change("remove", UnsyncedChange::RemoveBlob(*hash))
    }
    fn bytes_on_disk(&self) -> Result<u64, StorageError> {
        self.read(|image| {
            let groups: usize = image.groups.values().map(Bytes::len).sum();
            let shelves: usize = image.shelves.iter().map(|((_, key), value)| key.len() + value.len()).sum();
            let blobs: usize = image.blobs.values().map(Bytes::len).sum();
            (groups + shelves + blobs) as u64
        })
    }
}
