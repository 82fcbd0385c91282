//! Opening: from what a crash left to the exact state at the last durable group.
//!
//! The checkpoint gives the index as of some group; the groups behind it are folded in order. If the checkpoint is
//! missing, damaged or of another chain, everything is rebuilt from archive and log.
//!
//! Invariant: the log that is opened reaches at least to the anchor, and its chain is the anchor's chain; if not, that
//! is an error and nothing was changed. A group behind the anchor was never acknowledged: whole, it counts; torn, it is
//! removed. Recovery is repeatable: a crash during it changes nothing for the next.

use std::collections::{BTreeMap, BTreeSet};

use super::archive::Segment;
use super::blob::BlobHash;
use super::chain::{ChainHash, SetHash};
use super::checkpoint::{load, load_meta};
use super::group::{Deleted, Group, Record, RecordPlace, Trimmed};
use super::index::{Index, Meta, Removed, RunState, first_state};
use super::journal::{JournalOptions, Writer};
use super::shelf::unseal;
use super::stored::blobs_of;
use super::{Anchor, Log, ScanFrom, Shelf, ShelfChange, StorageError};
use crate::vocabulary::{EventKind, GroupSeq, RunId, Turn};

pub(crate) struct Recovered {
    pub(crate) writer: Writer,
    pub(crate) index: Index,
    /// The shelves are empty: a checkpoint should follow.
    pub(crate) rebuilt: bool,
    /// What was wrong with the index, if it was rebuilt for that.
    pub(crate) index_damage: Option<String>,
}

pub(crate) fn recover(medium: &dyn Log, options: &JournalOptions) -> Result<Recovered, StorageError> {
    let origin = ChainHash::origin(&medium.instance());
    let tail = checked_tail(medium, origin)?;
    let recovery = Recovery { medium, options, tail, origin };
    let mut index_damage = None;
    let (index, log_bytes, rebuilt) = match recovery.with_checkpoint() {
        Ok(Some((index, log_bytes))) => (index, log_bytes, false),
        Ok(None) if tail.last.0 == 0 => (Index::new(Meta::origin(origin)), 0, false),
        Ok(None) => recovery.rebuild()?,
        Err(StorageError::Corrupt { what: "index", detail, .. }) => {
            tracing::warn!(%detail, "the index does not fit the log; rebuilding it");
            index_damage = Some(detail);
            recovery.rebuild()?
        }
        Err(why) => return Err(why),
    };
    recovery.remove_leftovers(&index)?;
    Ok(Recovered { writer: Writer::new(tail.last, tail.chain, log_bytes), index, rebuilt, index_damage })
}

/// The tail of the log, checked against the anchor; a torn group behind the anchor is removed.
fn checked_tail(medium: &dyn Log, origin: ChainHash) -> Result<Anchor, StorageError> {
    let file = medium.location();
    let corrupt = |detail: String| StorageError::corrupt("log tail", &file, detail);
    let anchor = medium.anchor()?.unwrap_or(Anchor { last: GroupSeq(0), chain: origin });
    let Some((first, mut last)) = medium.bounds()? else {
        if anchor.last.0 > 0 {
            let detail = format!("the log is empty, but group {} was durable", anchor.last);
            return Err(corrupt(detail).at_group(anchor.last));
        }
        return Ok(anchor);
    };
    if last < anchor.last {
        let detail = format!("it ends at group {last}, but group {} was durable", anchor.last);
        return Err(corrupt(detail).at_group(anchor.last));
    }
    let group = |seq: GroupSeq| match medium.group(seq)? {
        Some(value) => Group::stored(medium, seq, value),
        None => Err(StorageError::corrupt("commit group", &file, "it is missing").at_group(seq)),
    };
    let tail = match group(last) {
        Ok(tail) => Some(tail),
        Err(StorageError::Corrupt { .. }) if last.0 == anchor.last.0 + 1 => {
            tracing::warn!(group = %last, "removing a torn group that was never acknowledged");
            medium.remove_groups(last.0..=last.0)?;
            // Another group takes its number, and must not meet it again after the next crash.
            medium.sync(anchor)?;
            last = anchor.last;
            if first > last { None } else { Some(group(last)?) }
        }
        Err(why) => return Err(why),
    };
    let chain = tail.map_or(anchor.chain, |tail| tail.chain());
    let at_anchor = match anchor.last {
        seq if seq == last => chain,
        seq if seq >= first => group(seq)?.chain(),
        seq if seq.next() == first => group(first)?.previous(),
        seq => return Err(corrupt(format!("the anchor names group {seq}, the log begins at {first}")).at_group(seq)),
    };
    if at_anchor != anchor.chain {
        let detail = "its chain is not the anchor's: the log or the anchor comes from elsewhere or is older";
        return Err(corrupt(detail.into()).at_group(anchor.last));
    }
    Ok(Anchor { last, chain })
}

struct Recovery<'a> {
    medium: &'a dyn Log,
    options: &'a JournalOptions,
    tail: Anchor,
    origin: ChainHash,
}

/// What the log says about the past as a whole, gathered before its turns are folded.
struct Survey {
    trimmed: Trimmed,
    archives: SetHash,
    deleted: BTreeMap<RunId, GroupSeq>,
}

impl Recovery<'_> {
    fn index_error(&self, detail: String) -> StorageError {
        StorageError::corrupt("index", self.medium.location(), detail)
    }

    /// The index from the checkpoint and the groups behind it, with the size of the log.
    fn with_checkpoint(&self) -> Result<Option<(Index, u64)>, StorageError> {
        let Some(meta) = load_meta(self.medium)? else {
            return Ok(None);
        };
        if !meta.complete {
            // A worker that was killed while it wrote the index has damaged nothing.
            tracing::info!("the index was not completed; rebuilding it");
            return Ok(None);
        }
        if meta.at > self.tail.last {
            let detail = format!("it ends at group {}, but the index has seen group {}", self.tail.last, meta.at);
            return Err(StorageError::corrupt("log tail", self.medium.location(), detail).at_group(meta.at));
        }
        let file = self.medium.location();
        let chain = match meta.at {
            GroupSeq(0) => self.origin,
            at if at == self.tail.last => self.tail.chain,
            // The group behind is read anyway.
            at => match self.medium.group(at.next())? {
                Some(value) => Group::stored(self.medium, at.next(), value)?.previous(),
                None => return Err(StorageError::corrupt("commit group", file, "it is missing").at_group(at.next())),
            },
        };
        if chain != meta.chain {
            return Err(self.index_error(format!("the checkpoint at group {} is of another chain", meta.at)));
        }
        let mut replay = Replay::new(self, load(self.medium, self.options, meta)?);
        let mut log_bytes = meta.log_bytes + self.replay(&mut replay, meta.at, meta.chain)?;
        let through = replay.index.trimmed.through;
        if through != meta.trimmed.through {
            // Trimmed since: what the checkpoint counted is not all there any more.
            log_bytes = 0;
            self.medium.groups_from(through.next(), &mut |_, value| {
                log_bytes += value.len() as u64;
                Ok(true)
            })?;
        }
        if let Some((run, group)) = replay.unknown.pop_first() {
            return Err(self.index_error(format!("run {run}, which goes on in group {group}, is not in it")));
        }
        Ok(Some((replay.index, log_bytes)))
    }

    /// Folds the groups behind `at`, which must continue its chain. Answers their size.
    fn replay(&self, replay: &mut Replay<'_>, at: GroupSeq, chain: ChainHash) -> Result<u64, StorageError> {
        let file = self.medium.location();
        let (mut expected, mut chain, mut bytes) = (at.next(), chain, 0);
        self.medium.groups_from(at.next(), &mut |seq, value| {
            if seq != expected {
                return Err(StorageError::corrupt("commit group", &file, "it is missing").at_group(expected));
            }
            let group = Group::stored(self.medium, seq, value)?;
            if group.previous() != chain {
                let detail = "it does not continue the chain of the group before";
                return Err(StorageError::corrupt("commit group", &file, detail).at_group(seq));
            }
            chain = group.chain();
            bytes += group.len() as u64;
            for (place, record) in group.records(&file)? {
                replay.record(seq, place, record).map_err(|why| why.at_group(seq))?;
            }
            expected = seq.next();
            Ok(seq < self.tail.last)
        })?;
        if expected <= self.tail.last {
            return Err(StorageError::corrupt("commit group", &file, "it is missing").at_group(expected));
        }
        Ok(bytes)
    }

    /// Everything from archive and log, with the shelves cleared.
    fn rebuild(&self) -> Result<(Index, u64, bool), StorageError> {
        let survey = self.survey()?;
        let mut index = Index::new(Meta { trimmed: survey.trimmed, complete: false, ..Meta::origin(self.origin) });
        index.meta.trimmed.archives = survey.archives;
        index.trimmed = index.meta.trimmed;
        self.fold_archive(&survey, &mut index)?;
        self.clear_shelves()?;
        for (run, at) in &survey.deleted {
            index.removed.insert(*run, Removed { at: *at, was_closed_on_shelf: false });
        }
        let Trimmed { through, chain, .. } = survey.trimmed;
        let mut replay = Replay::new(self, index);
        let log_bytes = self.replay(&mut replay, through, chain)?;
        if let Some((run, group)) = replay.unknown.pop_first() {
            let detail = "the turns before its first one in the log are in no archive";
            let lost = StorageError::corrupt("history", self.medium.location(), detail);
            return Err(lost.of_run(run).at_group(group));
        }
        Ok((replay.index, log_bytes, true))
    }

    fn survey(&self) -> Result<Survey, StorageError> {
        let file = self.medium.location();
        let trimmed = Meta::origin(self.origin).trimmed;
        let mut survey = Survey { trimmed, archives: SetHash::default(), deleted: BTreeMap::new() };
        self.medium.groups_from(GroupSeq(0), &mut |seq, value| {
            for (_, record) in Group::stored(self.medium, seq, value)?.records(&file)? {
                match record {
                    Record::Turn(_) => {}
                    Record::Trimmed(trimmed) => (survey.trimmed, survey.archives) = (trimmed, trimmed.archives),
                    Record::Deleted(Deleted { runs, archives }) => {
                        survey.archives = archives;
                        survey.deleted.extend(runs.into_iter().map(|run| (run, seq)));
                    }
                }
            }
            Ok(seq < self.tail.last)
        })?;
        Ok(survey)
    }

    /// Folds the archived turns of every run that is not deleted, and checks that no segment is missing.
    fn fold_archive(&self, survey: &Survey, index: &mut Index) -> Result<(), StorageError> {
        let (medium, file) = (self.medium, self.medium.location());
        let mut sum = SetHash::default();
        let mut after: Option<Vec<u8>> = None;
        loop {
            let from = after.as_deref().map_or(ScanFrom::First, ScanFrom::After);
            let page = medium.shelf_scan(Shelf::Archive, &[], from, 64)?;
            for (key, value) in &page {
                // Damage to the archive is damage to history: not a reason to rebuild, which would not help.
                let content = unseal(medium, Shelf::Archive, key, value);
                let content =
                    content.map_err(|_| StorageError::corrupt("archive segment", &file, "its CRC is wrong"))?;
                let segment = Segment::parse(key, content, &file)?;
                if segment.through > survey.trimmed.through || survey.deleted.contains_key(&segment.run) {
                    continue;
                }
                sum = sum.plus(SetHash::of(key, value));
                self.fold_segment(&segment, index).map_err(|why| why.of_run(segment.run))?;
            }
            match page.into_iter().next_back() {
                Some((key, _)) => after = Some(key),
                None => break,
            }
        }
        if sum != survey.archives {
            let detail = "its segments do not add up to what the log recorded: some are missing, stale or foreign";
            return Err(StorageError::corrupt("archive", file, detail));
        }
        Ok(())
    }

    fn fold_segment(&self, segment: &Segment, index: &mut Index) -> Result<(), StorageError> {
        let (run, file) = (segment.run, self.medium.location());
        let corrupt = |detail: String| StorageError::corrupt("archive segment", &file, detail);
        let mut state = index.remove(run);
        for (length, mut turn) in segment.turns(&file)? {
            index.blob_refs.extend(blobs_of(&mut turn).into_iter().map(|hash| (hash, run)));
            self.options.plain_memo(self.medium, &mut turn)?;
            let mut known = match state.take() {
                Some(state) => state,
                None => first_state(&turn).map_err(corrupt)?,
            };
            if known.next_event != turn.first_event {
                return Err(corrupt(format!("event {} follows event {}", turn.first_event, known.next_event)));
            }
            known.fold(segment.through, length as u64, &turn);
            state = Some(known);
        }
        if let Some(state) = state {
            index.insert(run, state);
            index.dirty.insert(run);
        }
        Ok(())
    }

    fn clear_shelves(&self) -> Result<(), StorageError> {
        // The meta goes first: without it the rest counts for nothing.
        for shelf in Shelf::ALL.into_iter().filter(|shelf| *shelf != Shelf::Archive) {
            loop {
                let page = self.medium.shelf_keys(shelf, &[], ScanFrom::First, 512)?;
                if page.is_empty() {
                    break;
                }
                let gone = page.into_iter().map(|key| ShelfChange { shelf, key, value: None });
                self.medium.change_shelves(&gone.collect::<Vec<_>>())?;
            }
        }
        Ok(())
    }

    /// Groups that a trim before the crash had moved to the archive and not yet removed.
    fn remove_leftovers(&self, index: &Index) -> Result<(), StorageError> {
        let through = index.trimmed.through.0;
        match self.medium.bounds()? {
            Some((first, _)) if first.0 <= through => self.medium.remove_groups(first.0..=through),
            _ => Ok(()),
        }
    }
}

/// The fold of groups into the index.
struct Replay<'a> {
    recovery: &'a Recovery<'a>,
    index: Index,
    /// Runs with turns here whose beginning is nowhere: only right if a deletion follows.
    unknown: BTreeMap<RunId, GroupSeq>,
    on_shelf: BTreeSet<RunId>,
}

impl<'a> Replay<'a> {
    fn new(recovery: &'a Recovery<'a>, index: Index) -> Self {
        Replay { recovery, index, unknown: BTreeMap::new(), on_shelf: BTreeSet::new() }
    }

    fn record(&mut self, seq: GroupSeq, place: RecordPlace, record: Record) -> Result<(), StorageError> {
        match record {
            Record::Turn(turn) => self.turn(seq, place, turn),
            Record::Trimmed(trimmed) => {
                self.index.trimmed = trimmed;
                Ok(())
            }
            Record::Deleted(Deleted { runs, archives }) => {
                self.index.trimmed.archives = archives;
                for run in runs {
                    self.unknown.remove(&run);
                    self.index.remove(run);
                    self.index.snapshots.remove(&run);
                    let was_closed_on_shelf = self.recovery.medium.shelf_has(Shelf::Closed, &run.0)?;
                    self.index.removed.insert(run, Removed { at: seq, was_closed_on_shelf });
                }
                Ok(())
            }
        }
    }

    fn refer(&mut self, run: RunId, blobs: Vec<BlobHash>) {
        self.index.blob_refs.extend(blobs.into_iter().map(|hash| (hash, run)));
    }

    fn turn(&mut self, seq: GroupSeq, place: RecordPlace, mut turn: Turn) -> Result<(), StorageError> {
        let (medium, run) = (self.recovery.medium, turn.run);
        if self.index.removed.contains_key(&run) || self.unknown.contains_key(&run) {
            return Ok(());
        }
        // Also of turns that an entry has already: a checkpoint that was cut short wrote entries before these.
        let blobs = blobs_of(&mut turn);
        match self.index.get(run) {
            // An entry can be newer than the checkpoint's place in the log.
            Some(state) if seq < state.through || seq == state.through && already_folded(state, seq, place) => {
                self.refer(run, blobs);
                return Ok(());
            }
            Some(_) => {}
            None => {
                // It may have closed after the checkpoint began, and be on the shelf already.
                if self.on_shelf.contains(&run) || medium.shelf_has(Shelf::Closed, &run.0)? {
                    self.on_shelf.insert(run);
                    self.refer(run, blobs);
                    return Ok(());
                }
                if !matches!(turn.events.first(), Some(EventKind::WorkflowExecutionStarted(_))) {
                    self.unknown.insert(run, seq);
                    return Ok(());
                }
            }
        }
        self.refer(run, blobs);
        self.recovery.options.plain_memo(medium, &mut turn)?;
        let wrong = |detail| StorageError::corrupt("history", medium.location(), detail).of_run(run);
        self.index.apply(seq, place, &turn).map_err(wrong)
    }
}

/// Whether the newest reference of the run is this turn or a later one of the same group. Entries loaded from a shelf
/// hold whole groups; entries of this replay may be in the middle of one.
fn already_folded(state: &RunState, seq: GroupSeq, place: RecordPlace) -> bool {
    state.refs.newest().is_none_or(|newest| newest.group != seq || newest.offset >= place.offset)
}
