//! The log that users open: one write and one sync a commit, with the database behind it.
//!
//! A commit writes its group to the write-ahead files, syncs them, and notes it in the anchor. Until the database has it
//! the group is kept in memory, too, and read from there. The feeder, a thread of its own, brings groups to the database
//! when a segment is full; they are synced there before the segment is used again. Whoever asks for [`Log::sync`] or
//! removes groups has everything fed first, so the database is always a prefix of the log.
//!
//! Invariant: see `wal`. The database never has a group that the write-ahead files have not made durable before it,
//! but for very long ones, which go to it at once. A full disk refuses the next commit, and changes nothing; any other
//! failure ends all writing. Nothing here knows what a group holds.

mod feeder;

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use super::behind::behind;
use super::segments::{Segments, path_of};
use crate::log::blob::BlobHash;
use crate::log::sled::{SledLog, SledOptions};
use crate::log::{Anchor, DamagedPart, Log, ScanFrom, Shelf, ShelfChange, StorageError, StoreOrigin};
use crate::vocabulary::{GroupSeq, RunId};

/// What the log behind must be able to do.
pub(crate) trait Back: Log {
    /// Where the write-ahead files lie.
    fn wal_dir(&self) -> PathBuf;
    /// How long a segment is to be; nothing: there is no space for any now.
    fn segment_bytes(&self) -> Option<u64>;
    /// Room for one more group.
    fn claim(&self) -> Result<(), StorageError>;
    /// Says durably that groups are in write-ahead files of this id, or that they are no longer.
    fn mark(&self, id: Option<[u8; 16]>) -> Result<(), StorageError>;
    /// Notes a tail that is durable.
    fn note(&self, tail: Anchor) -> Result<(), StorageError>;
    /// Takes groups that are durable elsewhere. In order, beside no append. Somebody waits for it once `urgent` says
    /// so: then time counts more than space.
    fn feed(&self, groups: &[(GroupSeq, Arc<PendingGroup>)], urgent: &AtomicBool) -> Result<(), StorageError>;
    /// Makes everything durable that was written. Beside no append.
    fn flush(&self) -> Result<(), StorageError>;
    /// Writes nothing more, also not at its end.
    fn fail(&self);
}

/// A group that is not known to be in the database.
#[derive(Debug)]
pub(crate) struct PendingGroup {
    pub(crate) value: Vec<u8>,
    pub(crate) longest: usize,
}

/// See the module.
#[derive(Debug)]
pub struct DiskLog {
    shared: Arc<FrontShared>,
    feeder: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct FrontShared {
    back: Arc<dyn Back>,
    /// Held by whoever writes groups to the database or syncs it.
    feeding: Mutex<()>,
    /// Held by whoever writes ahead. Taken before `feeding`.
    segments: Mutex<WriteAhead>,
    state: Mutex<FrontState>,
    wake: Condvar,
    /// Time counts more than space: a commit waits for the feeder, or segments fill fast.
    urgent: AtomicBool,
    /// The database had no room when it was fed last: until it has, space counts more.
    no_room: AtomicBool,
    /// Files may change.
    begun: AtomicBool,
}

/// What is written ahead.
#[derive(Debug)]
enum WriteAhead {
    None,
    /// Files of a former process, of which the database does not have everything yet.
    Former,
    To(Segments),
}

#[derive(Debug, Default)]
struct FrontState {
    pending: BTreeMap<u64, Arc<PendingGroup>>,
    /// The database has everything up to here, durably.
    fed: u64,
    /// And is to have everything up to here.
    wanted: u64,
    closing: bool,
    failed: Option<StorageError>,
}

fn held<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

impl DiskLog {
    /// Opens a data directory, or makes one where there is none of its files.
    pub fn open(dir: &Path, options: SledOptions) -> Result<DiskLog, StorageError> {
        let (back, ahead) = SledLog::open_ahead(dir, options)?;
        DiskLog::over(Arc::new(back), ahead)
    }

    /// The same, for tests of the medium alone.
    #[cfg(test)]
    pub(crate) fn open_opaque(dir: &Path, options: SledOptions) -> Result<DiskLog, StorageError> {
        DiskLog::over(Arc::new(SledLog::open_opaque(dir, options)?), None)
    }

    /// `ahead`: if there are write-ahead files, the groups in them that the database does not have.
    pub(crate) fn over(back: Arc<dyn Back>, ahead: Option<Vec<super::AheadGroup>>) -> Result<DiskLog, StorageError> {
        let segments = if ahead.is_some() { WriteAhead::Former } else { WriteAhead::None };
        let pending = ahead.into_iter().flatten();
        let pending = pending.map(|group| (group.seq.0, Arc::new(PendingGroup::of_unknown(group.value))));
        let pending: BTreeMap<u64, Arc<PendingGroup>> = pending.collect();
        let state = FrontState { pending, ..FrontState::default() };
        let (feeding, segments) = (Mutex::default(), Mutex::new(segments));
        let shared = Arc::new(FrontShared {
            back,
            feeding,
            segments,
            state: Mutex::new(state),
            wake: Condvar::new(),
            urgent: AtomicBool::new(false),
            no_room: AtomicBool::new(false),
            begun: AtomicBool::new(false),
        });
        let feeder = std::thread::Builder::new().name("bosun-feeder".into()).spawn({
            let shared = shared.clone();
            move || shared.feed_when_asked()
        });
        let location = shared.back.location();
        let feeder = feeder.map_err(|why| StorageError::io("start the feeder of", &location, &why))?;
        Ok(DiskLog { shared, feeder: Some(feeder) })
    }
}

impl PendingGroup {
    /// A group of which nothing is known but its bytes.
    pub(crate) fn of_unknown(value: Vec<u8>) -> PendingGroup {
        PendingGroup { longest: value.len(), value }
    }
}

impl FrontShared {
    fn check(&self) -> Result<(), StorageError> {
        match &held(&self.state).failed {
            Some(first) => Err(StorageError::Poisoned { first: first.to_string() }),
            None => Ok(()),
        }
    }

    /// From here on files change: what a former process left ahead is fed, and what it left of no use is removed.
    fn begin(&self) -> Result<(), StorageError> {
        if self.begun.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        if matches!(*held(&self.segments), WriteAhead::None) {
            // They were never begun, or are done with, and a process died before it could remove them.
            super::remove(&self.back.wal_dir())?;
        }
        let mut state = held(&self.state);
        // Nobody waits for the feeder but the first commit.
        state.wanted = state.pending.last_key_value().map_or(0, |(seq, _)| *seq);
        self.wake.notify_one();
        Ok(())
    }

    /// Notes a failure, unless nothing was changed.
    fn failed(&self, why: StorageError) -> StorageError {
        if !why.is_no_room() {
            held(&self.state).failed.get_or_insert_with(|| why.clone());
            self.back.fail();
        }
        why
    }

    /// Removes the write-ahead files, if the database has all that is in them.
    fn retire(&self, ahead: &mut WriteAhead) -> Result<(), StorageError> {
        if matches!(ahead, WriteAhead::None) || !held(&self.state).pending.is_empty() {
            return Ok(());
        }
        self.back.mark(None).and_then(|()| super::remove(&self.back.wal_dir())).map_err(|why| self.failed(why))?;
        *ahead = WriteAhead::None;
        Ok(())
    }

    /// Segments with room for a group of this length; nothing if it must go to the database itself.
    fn segments<'a>(&self, ahead: &'a mut WriteAhead, length: usize) -> Result<Option<&'a mut Segments>, StorageError> {
        if matches!(ahead, WriteAhead::Former) {
            self.feed()?;
            match self.retire(ahead) {
                // Nothing is lost with them: the database has all that they hold.
                Err(why) if why.is_no_room() => return Ok(None),
                retired => retired?,
            }
        }
        if matches!(ahead, WriteAhead::None) {
            let Some(bytes) = self.back.segment_bytes() else { return Ok(None) };
            let id = *uuid::Uuid::now_v7().as_bytes();
            let made = match Segments::create(&self.back.wal_dir(), id, bytes) {
                Ok(made) => match self.back.mark(Some(id)) {
                    Err(why) if why.is_no_room() => None,
                    marked => marked.map(|()| Some(made)).map_err(|why| self.failed(why))?,
                },
                Err(why) if why.is_full() => None,
                Err(why) => return Err(self.failed(why)),
            };
            let Some(made) = made else {
                // Nothing relies on them yet.
                super::remove(&self.back.wal_dir()).map_err(|why| self.failed(why))?;
                return Ok(None);
            };
            *ahead = WriteAhead::To(made);
        }
        let WriteAhead::To(segments) = ahead else { return Ok(None) };
        if !segments.holds(length) {
            return Ok(None);
        }
        if held(&self.state).fed < segments.needs_fed(length) {
            self.hurry(true);
            self.feed()?;
        }
        Ok(Some(segments))
    }

    /// A group that goes to the database at once, behind all others.
    fn commit_behind(&self, seq: GroupSeq, value: &[u8], longest: usize, tail: Anchor) -> Result<(), StorageError> {
        let _feeding = held(&self.feeding);
        self.feed_beside_nobody()?;
        self.back.append(seq, value, longest).map_err(|why| self.failed(why))?;
        self.back.sync(tail).map_err(|why| self.failed(why))?;
        held(&self.state).fed = seq.0;
        Ok(())
    }

    fn commit(&self, seq: GroupSeq, value: &[u8], longest: usize, tail: Anchor) -> Result<(), StorageError> {
        self.check()?;
        self.begin()?;
        self.back.claim()?;
        let mut ahead = held(&self.segments);
        let Some(segments) = self.segments(&mut ahead, value.len())? else {
            return self.commit_behind(seq, value, longest, tail);
        };
        let turns_over = segments.is_full(value.len());
        segments.write(seq, value).map_err(|why| self.failed(why))?;
        self.back.note(tail).map_err(|why| self.failed(why))?;
        let mut state = held(&self.state);
        state.pending.insert(seq.0, Arc::new(PendingGroup { value: value.to_vec(), longest }));
        if turns_over {
            self.hurry(segments.fill_fast());
            state.wanted = seq.0;
            self.wake.notify_one();
        }
        Ok(())
    }

    fn pending(&self, seq: GroupSeq) -> Option<Vec<u8>> {
        held(&self.state).pending.get(&seq.0).map(|group| group.value.clone())
    }
}

impl Log for DiskLog {
    fn begin(&self) -> Result<(), StorageError> {
        self.shared.begin()
    }
    fn append(&self, seq: GroupSeq, value: &[u8], longest: usize) -> Result<(), StorageError> {
        self.shared.begin()?;
        let _feeding = held(&self.shared.feeding);
        self.shared.feed_beside_nobody()?;
        self.shared.back.append(seq, value, longest)
    }
    fn sync(&self, tail: Anchor) -> Result<(), StorageError> {
        self.shared.begin()?;
        let _feeding = held(&self.shared.feeding);
        self.shared.feed_beside_nobody()?;
        self.shared.back.sync(tail).map_err(|why| self.shared.failed(why))
    }
    fn commit(&self, seq: GroupSeq, value: &[u8], longest: usize, tail: Anchor) -> Result<(), StorageError> {
        self.shared.commit(seq, value, longest, tail)
    }
    fn group(&self, seq: GroupSeq) -> Result<Option<Vec<u8>>, StorageError> {
        match self.shared.pending(seq) {
            Some(value) => Ok(Some(value)),
            None => self.shared.back.group(seq),
        }
    }
    fn bounds(&self) -> Result<Option<(GroupSeq, GroupSeq)>, StorageError> {
        let ends = {
            let state = held(&self.shared.state);
            state.pending.keys().next().copied().zip(state.pending.keys().next_back().copied())
        };
        let ends = ends.map(|(first, last)| (GroupSeq(first), GroupSeq(last)));
        match (self.shared.back.bounds()?, ends) {
            (Some((first, last)), Some((next, newest))) => Ok(Some((first.min(next), last.max(newest)))),
            (behind, ahead) => Ok(behind.or(ahead)),
        }
    }
    fn groups_from(
        &self,
        from: GroupSeq,
        visit: &mut dyn FnMut(GroupSeq, Vec<u8>) -> Result<bool, StorageError>,
    ) -> Result<(), StorageError> {
        // What is fed meanwhile is in both.
        let ahead: Vec<(u64, Arc<PendingGroup>)> =
            held(&self.shared.state).pending.range(from.0..).map(|(seq, group)| (*seq, group.clone())).collect();
        let (mut next, mut going) = (from.0, true);
        self.shared.back.groups_from(from, &mut |seq, value| {
            next = seq.0 + 1;
            going = visit(seq, value)?;
            Ok(going)
        })?;
        for (seq, group) in ahead.into_iter().filter(|(seq, _)| *seq >= next) {
            if !going {
                break;
            }
            going = visit(GroupSeq(seq), group.value.clone())?;
        }
        Ok(())
    }
    fn remove_groups(&self, range: RangeInclusive<u64>) -> Result<(), StorageError> {
        self.shared.begin()?;
        // What names them as gone must be in the database before they are.
        self.shared.feed()?;
        self.shared.back.remove_groups(range)
    }
    fn file_of(&self, seq: GroupSeq) -> PathBuf {
        match self.shared.pending(seq) {
            Some(_) => path_of(&self.shared.back.wal_dir(), 0),
            None => self.shared.back.file_of(seq),
        }
    }

    behind!(self, self.shared.back);
}

impl Drop for DiskLog {
    fn drop(&mut self) {
        held(&self.shared.state).closing = true;
        self.shared.wake.notify_one();
        if let Some(feeder) = self.feeder.take() {
            // A panic of the feeder has nothing left to spoil here.
            let _ = feeder.join();
        }
        if !self.shared.begun.load(Ordering::Acquire) {
            // What is there was not found whole, or nobody asked for more than a look.
            return;
        }
        // After a failure everything stays as it is; the next start reads it.
        let closed = self.shared.feed().and_then(|()| self.shared.retire(&mut held(&self.shared.segments)));
        if let Err(why) = closed {
            tracing::warn!(%why, "what was written ahead stays so; the next start feeds it to the database");
        }
    }
}
