//! The journal: the engine's view of the log, the same over every medium.
//!
//! `commit` is the only way in: all turns of a call become one group, durable on return, and nothing of a group is
//! visible before. Locks are taken in the order maintenance, writer, index; no user code runs under any of them.
//!
//! Invariant: after the first failed write the journal is poisoned: whether that write reached the disk is unknown, so
//! nothing more is accepted and no fsync is retried; reads go on. Other parts: `reading`, `checkpoint`,
//! `housekeeping`, `recovery`, `verify`, `backup`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::chain::ChainHash;
use super::codec::CodecChain;
use super::group::{GroupWriter, RecordPlace};
use super::housekeeping::Maintenance;
use super::index::{Index, Removed};
use super::stored::{NewBlob, may_imitate};
use super::{Anchor, Log, StorageError, recovery};
use crate::seeded::{self, Bug};
use crate::vocabulary::{BuildId, EventId, EventKind, GroupSeq, Outlook, RunId, RunInfo, Turn};

/// How a journal keeps payloads and when it moves old groups; the default suits a worker on a local disk.
#[derive(Debug, Clone)]
pub struct JournalOptions {
    /// What happens to payloads on their way to the disk.
    pub codec: CodecChain,
    /// Payloads longer than this (after the codecs) become blobs: files of their own, each synced. Below it they lie in their
    /// group, and one sync does for all of it; but who reads one turn reads its group. Default 64 KiB.
    pub blob_above: usize,
    /// `housekeep` moves groups to the archive when the log holds more bytes than this.
    pub log_keep_bytes: u64,
    /// How many bytes of groups one `housekeep` moves at most.
    pub trim_bytes: u64,
}

impl Default for JournalOptions {
    fn default() -> Self {
        JournalOptions {
            codec: CodecChain::default(),
            blob_above: 64 * 1024,
            log_keep_bytes: 16 * 1024 * 1024,
            trim_bytes: 4 * 1024 * 1024,
        }
    }
}

/// A group that is durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Committed {
    /// The group's place in the log.
    pub group: GroupSeq,
    /// Its length on the disk.
    pub bytes: u64,
}

/// What the index knows of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct RunEntry {
    /// What lists show of the run.
    pub info: RunInfo,
    /// The id that its next event must have.
    pub next_event: EventId,
    /// When it must be woken, and whether a restart must look at it.
    pub outlook: Outlook,
}

/// The state of a state-machine workflow (E37), true when all events before `event` are applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineSnapshot {
    /// The first event that is not applied.
    pub event: EventId,
    /// The code that made it; only the same code takes it back.
    pub build: BuildId,
    /// The bytes of [`Driver::snapshot`](crate::vocabulary::Driver::snapshot).
    pub state: Vec<u8>,
}

/// What a data directory holds, in numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreInfo {
    /// The id of the directory, chosen when it was made; a backup has the same.
    pub instance: [u8; 16],
    /// The version of the format on the disk.
    pub format: u32,
    /// The oldest group that is not in the archive.
    pub first_group: GroupSeq,
    /// The newest group.
    pub last_group: GroupSeq,
    /// How many groups the log holds, without the archive.
    pub groups: u64,
    /// Bytes of the groups in the log, without the archive.
    pub log_bytes: u64,
    /// Bytes of all files of the directory.
    pub bytes_on_disk: u64,
    /// Runs that have not ended.
    pub runs_open: u64,
    /// Runs that have ended and are kept.
    pub runs_closed: u64,
    /// Runs that damage took before a salvage, or an isolation, made this store: nothing but their ids is left.
    pub runs_lost: Vec<RunId>,
}

/// See the module.
#[derive(Debug)]
pub struct Journal {
    pub(crate) medium: Arc<dyn Log>,
    pub(crate) options: JournalOptions,
    pub(crate) maintenance: Mutex<Maintenance>,
    writer: Mutex<Writer>,
    index: RwLock<Index>,
    /// What was wrong with the index when it was opened, if it was rebuilt for that.
    pub(crate) index_damage: Option<String>,
}

/// The tail of the log.
#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) last: GroupSeq,
    pub(crate) chain: ChainHash,
    pub(crate) log_bytes: u64,
    poisoned: Option<String>,
}

impl Writer {
    pub(crate) fn new(last: GroupSeq, chain: ChainHash, log_bytes: u64) -> Self {
        Writer { last, chain, log_bytes, poisoned: None }
    }
    pub(crate) fn check(&self) -> Result<(), StorageError> {
        match &self.poisoned {
            Some(first) => Err(StorageError::Poisoned { first: first.clone() }),
            None => Ok(()),
        }
    }
    /// Notes the failure of a write.
    pub(crate) fn poison(&mut self, why: StorageError) -> StorageError {
        self.poisoned.get_or_insert_with(|| why.to_string());
        why
    }
    /// The same, but for want of room: then nothing was written.
    pub(crate) fn poison_unless_no_room(&mut self, why: StorageError) -> StorageError {
        if why.is_no_room() { why } else { self.poison(why) }
    }
    pub(crate) fn tail(&self) -> Anchor {
        Anchor { last: self.last, chain: self.chain }
    }
}

/// A group that is written but not yet applied.
type RecordPlaces = Vec<RecordPlace>;

impl Journal {
    /// Recovers from what is on the medium: checkpoint and tail, or everything if the checkpoint does not fit.
    pub fn open(medium: Arc<dyn Log>, options: JournalOptions) -> Result<Journal, StorageError> {
        let recovered = recovery::recover(&*medium, &options)?;
        let tail = recovered.writer.tail();
        medium.begin()?;
        if tail.last > medium.anchor()?.map_or(GroupSeq(0), |anchor| anchor.last) {
            // A group that was written and never acknowledged counts from now on: it must be durable before anybody acts
            // on it, and a torn group after the next crash must follow the anchor.
            medium.sync(tail)?;
            medium.settle_anchor()?;
        }
        let journal = Journal {
            medium,
            options,
            maintenance: Mutex::default(),
            writer: Mutex::new(recovered.writer),
            index: RwLock::new(recovered.index),
            index_damage: recovered.index_damage,
        };
        if recovered.rebuilt {
            journal.checkpoint()?;
        }
        journal.medium.note_epoch(tail)?;
        Ok(journal)
    }

    /// Whether nothing has failed so far.
    pub fn is_writable(&self) -> bool {
        self.writer().check().is_ok()
    }

    /// Why nothing new should be begun for want of space, if so.
    pub fn low_on_space(&self) -> Option<String> {
        self.medium.low_on_space()
    }

    /// The id of the data directory; a copy has the same.
    pub fn instance(&self) -> [u8; 16] {
        self.medium.instance()
    }

    /// Appends all turns as one group and returns when it survives a power cut.
    ///
    /// Each turn must begin at its run's next event, counting the turns before it in the call; otherwise nothing is
    /// written and the answer is [`StorageError::Conflict`]. Called by one committer thread.
    pub fn commit(&self, turns: &[Turn]) -> Result<Committed, StorageError> {
        let mut writer = self.writer();
        writer.check()?;
        if turns.is_empty() {
            return Ok(Committed { group: writer.last, bytes: 0 });
        }
        self.check_fit(turns)?;
        let mut group = GroupWriter::with_room(writer.last.next(), writer.chain, 512 * turns.len());
        let mut blobs = Vec::new();
        let mut places = Vec::with_capacity(turns.len());
        for turn in turns {
            places.push(self.encode(&mut group, turn, &mut blobs)?);
        }
        for (_, (hash, bytes)) in &blobs {
            self.medium.put_blob(hash, bytes).map_err(|why| writer.poison_unless_no_room(why))?;
        }
        let committed = self.append(&mut writer, group)?;
        self.apply(&mut writer, committed.group, turns, &places, blobs)?;
        Ok(committed)
    }

    /// Persists the index, makes the anchor durable. The journal can be dropped afterwards.
    pub fn close(&self) -> Result<(), StorageError> {
        match self.checkpoint() {
            // The next open takes up what it lacks; every group is there.
            Err(why) if why.is_no_room() => tracing::warn!(%why, "the disk is full: there is no last checkpoint"),
            done => done?,
        }
        let mut writer = self.writer();
        writer.check()?;
        let tail = writer.tail();
        match self.medium.sync(tail) {
            // What was committed is durable where it is.
            Err(why) if why.is_no_room() => tracing::warn!(%why, "the disk is full: the database lacks what is ahead"),
            done => done.map_err(|why| writer.poison(why))?,
        }
        self.medium.settle_anchor().map_err(|why| writer.poison(why))?;
        self.note_epoch(tail);
        Ok(())
    }

    /// What is told of a store that is put back is less without it, but nothing of the store is.
    pub(crate) fn note_epoch(&self, durable: Anchor) {
        if let Err(why) = self.medium.note_epoch(durable) {
            tracing::error!(%why, "the epoch is not written: a copy that is put back from now on may not be told as one");
        }
    }

    /// What the data directory holds, in numbers; costs a look at its files.
    pub fn info(&self) -> StoreInfo {
        let (last_group, log_bytes) = {
            let writer = self.writer();
            (writer.last, writer.log_bytes)
        };
        let index = self.index();
        // In memory are closed runs too: those that the shelf does not know yet, or that wait for their last messages.
        let runs_open = index.runs().filter(|(_, state)| state.info.status.is_open()).count() as u64;
        let closed_in_memory = index.runs().count() as u64 - runs_open;
        let first_group = index.trimmed.through.next();
        let removed_on_shelf = index.removed.values().filter(|removed| removed.was_closed_on_shelf).count() as u64;
        StoreInfo {
            instance: self.instance(),
            format: self.medium.format(),
            first_group,
            last_group,
            groups: (last_group.0 + 1).saturating_sub(first_group.0),
            log_bytes,
            // A size that cannot be read is no reason to refuse the rest.
            bytes_on_disk: self.medium.bytes_on_disk().unwrap_or(0),
            runs_open,
            runs_closed: (index.meta.closed + closed_in_memory).saturating_sub(removed_on_shelf),
            // Written once, when the store was made; the open would have refused a list that cannot be read.
            runs_lost: self.lost_runs().unwrap_or_default(),
        }
    }

    /// Compare-and-set (G11): every turn must begin at its run's next event.
    fn check_fit(&self, turns: &[Turn]) -> Result<(), StorageError> {
        let mut ahead: BTreeMap<RunId, (EventId, bool)> = BTreeMap::new();
        for turn in turns {
            let run = turn.run;
            let (expected, known) = match ahead.get(&run) {
                Some(next) => *next,
                None => self.expected(run)?,
            };
            if expected != turn.first_event && !seeded::on(Bug::NoCas) {
                return Err(StorageError::Conflict { run, expected, found: turn.first_event });
            }
            let starts = matches!(turn.events.first(), Some(EventKind::WorkflowExecutionStarted(_)));
            if !known && !starts {
                let detail = "the run is unknown and the turn does not begin with WorkflowExecutionStarted".into();
                return Err(StorageError::Invalid { run, detail });
            }
            ahead.insert(run, (turn.next_event(), true));
        }
        Ok(())
    }

    /// The next event of a run, and whether there is such a run.
    fn expected(&self, run: RunId) -> Result<(EventId, bool), StorageError> {
        if let Some(state) = self.index().get(run)
            && state.is_live()
        {
            return Ok((state.next_event, true));
        }
        if let Some(entry) = self.try_run(run)? {
            return Err(StorageError::RunClosed { run, status: entry.info.status });
        }
        if self.is_deleted(run)? {
            return Err(StorageError::Invalid { run, detail: "the run was deleted".into() });
        }
        Ok((EventId(1), false))
    }

    /// Adds a turn to the group, transformed where it must be.
    fn encode(
        &self,
        group: &mut GroupWriter,
        turn: &Turn,
        blobs: &mut Vec<(RunId, NewBlob)>,
    ) -> Result<RecordPlace, StorageError> {
        let invalid = |detail: String| StorageError::Invalid { run: turn.run, detail };
        let place = group.turn(turn).map_err(invalid)?;
        if !self.options.transforms(place.length as usize) && !may_imitate(group.bytes(place)) {
            return Ok(place);
        }
        group.undo(place);
        let (stored, new) = self.options.stored(turn)?;
        blobs.extend(new.into_iter().map(|blob| (turn.run, blob)));
        group.turn(&stored).map_err(invalid)
    }

    /// Writes a finished group and makes it durable. On return nobody has been told of it yet.
    pub(crate) fn append(&self, writer: &mut Writer, group: GroupWriter) -> Result<Committed, StorageError> {
        let seq = writer.last.next();
        let longest = group.longest();
        let (value, chain) = group.finish();
        let tail = Anchor { last: seq, chain };
        let written = match seeded::on(Bug::AckBeforeFsync) {
            true => self.medium.append(seq, &value, longest),
            false => self.medium.commit(seq, &value, longest, tail),
        };
        written.map_err(|why| writer.poison_unless_no_room(why))?;
        writer.last = seq;
        writer.chain = chain;
        writer.log_bytes += value.len() as u64;
        Ok(Committed { group: seq, bytes: value.len() as u64 })
    }

    fn apply(
        &self,
        writer: &mut Writer,
        group: GroupSeq,
        turns: &[Turn],
        places: &RecordPlaces,
        blobs: Vec<(RunId, NewBlob)>,
    ) -> Result<(), StorageError> {
        let mut index = self.index_mut();
        for (turn, place) in turns.iter().zip(places) {
            index.apply(group, *place, turn).map_err(|detail| {
                // Checked before: the group is durable, so the index would be behind it from here on.
                writer.poison(StorageError::Invalid { run: turn.run, detail })
            })?;
        }
        index.blob_refs.extend(blobs.into_iter().map(|(run, (hash, _))| (hash, run)));
        Ok(())
    }

    pub(crate) fn writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
    pub(crate) fn index(&self) -> RwLockReadGuard<'_, Index> {
        self.index.read().unwrap_or_else(PoisonError::into_inner)
    }
    pub(crate) fn index_mut(&self) -> RwLockWriteGuard<'_, Index> {
        self.index.write().unwrap_or_else(PoisonError::into_inner)
    }
    pub(crate) fn maintenance(&self) -> MutexGuard<'_, Maintenance> {
        self.maintenance.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Notes the failure of a write outside `commit`; for want of room nothing was written, and none has failed.
    pub(crate) fn poison(&self, why: StorageError) -> StorageError {
        self.writer().poison_unless_no_room(why)
    }
    pub(crate) fn removed(&self, run: RunId) -> Option<Removed> {
        self.index().removed.get(&run).cloned()
    }
}
