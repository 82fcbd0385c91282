//! The tail anchor: outside the database, how far the log reached when it was last known to be durable.
//!
//! sled drops everything behind a damaged place and opens happily; the anchor is how that is noticed. Two slots, written
//! in turn, far enough apart to lie in different sectors, each with its own CRC.
//!
//! Invariant: the anchor never claims more than what is durable, so it raises no false alarm. It is written (not
//! fsynced) right after the sync of a group and before anybody hears of that group, so it survives kill -9 exactly; a
//! thread of its own fsyncs it within [`SETTLE_AFTER`], so that after a power cut it may lag by that much. A commit
//! therefore costs one fsync, not two. What the anchor does not do: it says nothing about damage before the tail.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::chain::ChainHash;
use super::error::StorageError;
use super::private;
use super::sled_format::source::ReadOnlyFile;
use crate::vocabulary::GroupSeq;

/// A place in the log: the last group and the chain up to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Anchor {
    /// The last group.
    pub last: GroupSeq,
    /// The hash over all groups up to it.
    pub chain: ChainHash,
}

pub(crate) const SLOT: usize = 64;
const SECOND_SLOT_AT: u64 = 4_096;
const MAGIC: [u8; 4] = *b"Bos1";
/// How long the anchor on the disk may lag behind the one in the page cache.
pub(crate) const SETTLE_AFTER: Duration = Duration::from_millis(50);

/// `magic[4] instance[16] last u64 chain[32] crc32`: 64 bytes.
pub(crate) fn encode_slot(instance: &[u8; 16], anchor: &Anchor) -> [u8; SLOT] {
    let mut slot = [0u8; SLOT];
    slot[..4].copy_from_slice(&MAGIC);
    slot[4..20].copy_from_slice(instance);
    slot[20..28].copy_from_slice(&anchor.last.0.to_be_bytes());
    slot[28..60].copy_from_slice(&anchor.chain.0);
    let crc = crc32fast::hash(&slot[..60]);
    slot[60..].copy_from_slice(&crc.to_be_bytes());
    slot
}

/// The instance and anchor of a slot, if it is whole.
pub(crate) fn decode_slot(slot: &[u8]) -> Option<([u8; 16], Anchor)> {
    let slot: &[u8; SLOT] = slot.try_into().ok()?;
    if slot[..4] != MAGIC || crc32fast::hash(&slot[..60]).to_be_bytes() != slot[60..] {
        return None;
    }
    let instance = slot[4..20].try_into().ok()?;
    let last = GroupSeq(u64::from_be_bytes(slot[20..28].try_into().ok()?));
    let chain = ChainHash(slot[28..60].try_into().ok()?);
    Some((instance, Anchor { last, chain }))
}

/// The anchor as a file.
#[derive(Debug)]
pub(crate) struct AnchorFile {
    shared: Arc<AnchorShared>,
    settler: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct AnchorShared {
    file: File,
    path: PathBuf,
    instance: [u8; 16],
    state: Mutex<AnchorState>,
    wake: Condvar,
}

#[derive(Debug, Default)]
struct AnchorState {
    newest: Option<Anchor>,
    writes: u64,
    dirty: bool,
    closing: bool,
    failed: Option<StorageError>,
}

impl AnchorFile {
    /// Writes an empty anchor (`last` 0) of a new data directory, durably but for the directory entry.
    pub(crate) fn create(path: &Path, instance: [u8; 16]) -> Result<(), StorageError> {
        let io = |why: std::io::Error| StorageError::io("create", path, &why);
        let file = private::create(path).map_err(io)?;
        let slot = encode_slot(&instance, &Anchor { last: GroupSeq(0), chain: ChainHash::origin(&instance) });
        file.write_all_at(&slot, SECOND_SLOT_AT).map_err(io)?;
        file.write_all_at(&slot, 0).map_err(io)?;
        file.sync_all().map_err(io)
    }

    /// What it says, without opening it for writing.
    pub(crate) fn read(path: &Path, instance: [u8; 16]) -> Result<Anchor, StorageError> {
        let corrupt = |detail: &str| StorageError::corrupt("tail anchor", path, detail);
        let file = ReadOnlyFile::open(path)?;
        let (mut newest, mut foreign, mut slot) = (None::<Anchor>, false, Vec::new());
        for at in [0, SECOND_SLOT_AT] {
            // What cannot be read may be the newer one.
            file.read(&mut slot, at, SLOT)?;
            match decode_slot(&slot) {
                Some((owner, anchor)) if owner == instance => newest = newest.max_by_last(anchor),
                Some(_) => foreign = true,
                None => {}
            }
        }
        if foreign {
            return Err(corrupt("it belongs to another data directory"));
        }
        newest.ok_or_else(|| corrupt("neither of its two slots is readable"))
    }

    /// The slots that are not what was written: the other one counts. A write beside this is waited for.
    pub(crate) fn damaged_slots(path: &Path, instance: [u8; 16]) -> Result<Vec<u64>, StorageError> {
        let (file, mut slot, mut damaged) = (ReadOnlyFile::open(path)?, Vec::new(), Vec::new());
        for at in [0, SECOND_SLOT_AT] {
            let mut is_whole = || {
                file.read(&mut slot, at, SLOT)?;
                Ok::<bool, StorageError>(decode_slot(&slot).is_some_and(|(owner, _)| owner == instance))
            };
            if !is_whole()? {
                std::thread::sleep(SETTLE_AFTER / 10);
                damaged.extend((!is_whole()?).then_some(at));
            }
        }
        Ok(damaged)
    }

    /// What it says and whose it is, where nothing else tells.
    pub(crate) fn read_any(path: &Path) -> Result<([u8; 16], Anchor), StorageError> {
        let (file, mut slot, mut newest) = (ReadOnlyFile::open(path)?, Vec::new(), None::<([u8; 16], Anchor)>);
        for at in [0, SECOND_SLOT_AT] {
            file.read(&mut slot, at, SLOT)?;
            if let Some(found) = decode_slot(&slot)
                && newest.is_none_or(|(_, known)| known.last < found.1.last)
            {
                newest = Some(found);
            }
        }
        newest.ok_or_else(|| StorageError::corrupt("tail anchor", path, "neither of its two slots is readable"))
    }

    pub(crate) fn open(path: &Path, instance: [u8; 16]) -> Result<Self, StorageError> {
        let io = |why: std::io::Error| StorageError::io("open", path, &why);
        let newest = Self::read(path, instance)?;
        let file = OpenOptions::new().read(true).write(true).open(path).map_err(io)?;
        for at in Self::damaged_slots(path, instance)? {
            tracing::warn!(file = %path.display(), at, "a slot of the tail anchor was damaged: it says what the other one says now");
            file.write_all_at(&encode_slot(&instance, &newest), at)
                .map_err(|why| StorageError::io("write", path, &why))?;
        }
        // Whatever is in the page cache from a killed process becomes durable before anything relies on it.
        file.sync_all().map_err(|why| StorageError::io("fsync", path, &why))?;
        let state = Mutex::new(AnchorState { newest: Some(newest), writes: newest.last.0, ..AnchorState::default() });
        let shared = Arc::new(AnchorShared { file, path: path.to_owned(), instance, state, wake: Condvar::new() });
        let settler = std::thread::Builder::new().name("bosun-anchor".into()).spawn({
            let shared = shared.clone();
            move || shared.settle_in_time()
        });
        let settler = settler.map_err(|why| StorageError::io("start the anchor thread for", path, &why))?;
        Ok(AnchorFile { shared, settler: Some(settler) })
    }

    pub(crate) fn newest(&self) -> Option<Anchor> {
        self.shared.lock().newest
    }

    /// Notes a tail that is durable.
    pub(crate) fn note(&self, anchor: Anchor) -> Result<(), StorageError> {
        let mut state = self.shared.lock();
        if let Some(failed) = &state.failed {
            return Err(failed.clone());
        }
        let at = if state.writes.is_multiple_of(2) { 0 } else { SECOND_SLOT_AT };
        let slot = encode_slot(&self.shared.instance, &anchor);
        self.shared.file.write_all_at(&slot, at).map_err(|why| StorageError::io("write", &self.shared.path, &why))?;
        state.writes += 1;
        state.newest = Some(anchor);
        if !std::mem::replace(&mut state.dirty, true) {
            self.shared.wake.notify_one();
        }
        Ok(())
    }

    /// Returns when the newest note survives a power cut.
    pub(crate) fn settle(&self) -> Result<(), StorageError> {
        if let Some(failed) = &self.shared.lock().failed {
            return Err(failed.clone());
        }
        self.shared.fsync()
    }
}

trait MaxByLast {
    fn max_by_last(self, other: Anchor) -> Option<Anchor>;
}

impl MaxByLast for Option<Anchor> {
    fn max_by_last(self, other: Anchor) -> Option<Anchor> {
        Some(self.filter(|mine| mine.last >= other.last).unwrap_or(other))
    }
}

impl AnchorShared {
    fn lock(&self) -> MutexGuard<'_, AnchorState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
    fn fsync(&self) -> Result<(), StorageError> {
        let result = self.file.sync_data().map_err(|why| StorageError::io("fsync", &self.path, &why));
        if let Err(failed) = &result {
            self.lock().failed.get_or_insert_with(|| failed.clone());
        }
        result
    }
    /// The settling thread: sleeps until there is a note, gives it a moment to be overtaken, makes it durable.
    fn settle_in_time(&self) {
        loop {
            let mut state = self.lock();
            while !state.dirty && !state.closing {
                state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            if !state.closing {
                let waited = self.wake.wait_timeout_while(state, SETTLE_AFTER / 2, |state| !state.closing);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
            let closing = state.closing;
            let dirty = std::mem::take(&mut state.dirty) && state.failed.is_none();
            drop(state);
            if dirty && self.fsync().is_err() {
                return;
            }
            if closing {
                return;
            }
        }
    }
}

impl Drop for AnchorFile {
    fn drop(&mut self) {
        self.shared.lock().closing = true;
        self.shared.wake.notify_one();
        if let Some(settler) = self.settler.take() {
            // A panic of the settler has nothing left to spoil here.
            let _ = settler.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(last: u64) -> Anchor {
        Anchor { last: GroupSeq(last), chain: ChainHash([last as u8; 32]) }
    }

    #[test]
    fn the_newest_whole_slot_counts() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("anchor");
        AnchorFile::create(&path, [1; 16]).unwrap();
        {
            let anchor = AnchorFile::open(&path, [1; 16]).unwrap();
            (1..=5).for_each(|n| anchor.note(at(n)).unwrap());
        }
        assert_eq!(AnchorFile::open(&path, [1; 16]).unwrap().newest(), Some(at(5)));
        // Damage to either slot leaves the other.
        let whole = std::fs::read(&path).unwrap();
        for (offset, expected) in [(0usize, 4u64), (SECOND_SLOT_AT as usize, 5)] {
            let mut damaged = whole.clone();
            damaged[offset + 30] ^= 1;
            std::fs::write(&path, &damaged).unwrap();
            let newest = AnchorFile::open(&path, [1; 16]).unwrap().newest().unwrap();
            assert_eq!(newest.last.0, expected);
            // Whoever writes makes it whole again.
            assert_eq!(AnchorFile::damaged_slots(&path, [1; 16]), Ok(Vec::new()));
        }
    }

    /// Every bit of both slots counts, and nothing between them does.
    #[test]
    fn every_flipped_bit_of_a_slot_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("anchor");
        AnchorFile::create(&path, [1; 16]).unwrap();
        let whole = std::fs::read(&path).unwrap();
        for at in [0, SECOND_SLOT_AT] {
            for bit in 0..SLOT * 8 {
                let mut damaged = whole.clone();
                damaged[at as usize + bit / 8] ^= 1 << (bit % 8);
                std::fs::write(&path, damaged).unwrap();
                // Without the patience for who writes beside this: it reads the slots as they are.
                assert_eq!(AnchorFile::damaged_slots(&path, [1; 16]), Ok(vec![at]), "bit {bit}");
            }
        }
    }

    #[test]
    fn a_foreign_or_unreadable_anchor_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("anchor");
        AnchorFile::create(&path, [1; 16]).unwrap();
        let why = AnchorFile::open(&path, [2; 16]).unwrap_err().to_string();
        assert!(why.contains("another data directory"), "{why}");
        std::fs::write(&path, b"short").unwrap();
        let why = AnchorFile::open(&path, [1; 16]).unwrap_err().to_string();
        assert!(why.contains("neither of its two slots"), "{why}");
    }
}
