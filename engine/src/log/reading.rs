//! Reading: histories, run entries and lists, beside running commits.
//!
//! Invariant: what `turns` gives is exactly what was committed, complete and in order, or an error that names the run:
//! ordinals, event ids and the total are checked on every read. A damaged run harms no other. Nothing is cached here;
//! recent groups are in the medium's cache.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use super::archive::Segment;
use super::files::NOTHING_LEFT;
use super::group::Group;
use super::index::RunState;
use super::journal::{Journal, JournalOptions, RunEntry};
use super::refs::TurnRef;
use super::shelf::{damaged, id_prefix, parse_start_key, start_key, unseal};
use super::{Log, ScanFrom, Shelf, StorageError};
use crate::filter::Filter;
use crate::request::Target;
use crate::vocabulary::{EventId, GroupSeq, Namespace, Outlook, RunId, RunInfo, Timestamp, Turn, WorkflowId};

/// How many list entries are gathered under one lock.
const PAGE: usize = 64;

/// How a turn from the disk is made plain.
type Plain = fn(&JournalOptions, &dyn Log, Turn) -> Result<Turn, StorageError>;

impl RunState {
    fn entry(&self) -> RunEntry {
        RunEntry { info: self.info.clone(), next_event: self.next_event, outlook: self.outlook }
    }
}

impl Journal {
    /// The turns of a run from the event `from` on: those that hold it or a later one, and those without events that
    /// came after it was due. `EventId(1)` gives everything. An unknown run has none.
    pub fn turns(&self, run: RunId, from: EventId) -> Result<Vec<Turn>, StorageError> {
        self.turns_until(run, from, EventId(u64::MAX))
    }

    /// As [`Journal::turns`], without those that begin at the event `until` or later: a page costs what it shows.
    pub fn turns_until(&self, run: RunId, from: EventId, until: EventId) -> Result<Vec<Turn>, StorageError> {
        self.turns_as(run, (from, until), JournalOptions::plain)
    }

    /// As [`Journal::turns_until`], with a mark in the place of each payload whose blob is lost: for whoever shows a run, or
    /// ends it. Nothing may be decided on what is marked.
    pub fn turns_with_gaps(&self, run: RunId, from: EventId, until: EventId) -> Result<Vec<Turn>, StorageError> {
        self.turns_as(run, (from, until), JournalOptions::plain_with_gaps)
    }

    fn turns_as(&self, run: RunId, (from, until): (EventId, EventId), plain: Plain) -> Result<Vec<Turn>, StorageError> {
        let mut last = None;
        // A trim may move what is being read from the log to the archive; then the second look finds it there.
        for _ in 0..3 {
            let Some(state) = self.state(run)? else {
                return Ok(Vec::new());
            };
            if from > state.next_event {
                return Ok(Vec::new());
            }
            let trimmed = self.index().trimmed.through;
            let read = self.read_turns(run, &state, trimmed, (from, until), plain);
            if self.index().trimmed.through == trimmed {
                return read.map_err(|why| why.of_run(run));
            }
            last = Some(read);
        }
        last.unwrap_or(Ok(Vec::new())).map_err(|why| why.of_run(run))
    }

    fn read_turns(
        &self,
        run: RunId,
        state: &RunState,
        trimmed: GroupSeq,
        (from, until): (EventId, EventId),
        plain: Plain,
    ) -> Result<Vec<Turn>, StorageError> {
        let file = self.medium.location();
        let wanted = |first_event: u64, next_event: u64| first_event >= from.0 || next_event > from.0;
        let refs = self.refs_from(run, state, trimmed, from)?;
        let mut read: Vec<(u64, Turn)> = Vec::new();
        // Anything before the oldest reference is archived, and only needed if that one begins behind `from`.
        if refs.first().is_none_or(|oldest| oldest.ordinal > 0 && oldest.first_event >= from.0) {
            for segment in
                self.segments(run, trimmed)?.iter().filter(|s| s.next_event >= from.0 && s.first_event < until.0)
            {
                let turns = segment.turns(&file)?.into_iter().map(|(_, turn)| turn);
                read.extend((segment.first_ordinal..).zip(turns));
            }
        }
        let mut group: Option<(GroupSeq, Group)> = None;
        for place in refs.into_iter().filter(|place| place.first_event < until.0) {
            if group.as_ref().is_none_or(|(seq, _)| *seq != place.group) {
                group = Some((place.group, self.group(place.group, &file)?));
            }
            if let Some((_, group)) = &group {
                read.push((place.ordinal, group.turn_at(place.offset, &file)?.1));
            }
        }
        check_complete(run, state, (from, until), &read)
            .map_err(|detail| StorageError::corrupt("history", &file, detail))?;
        read.into_iter()
            .map(|(_, turn)| turn)
            .filter(|turn| wanted(turn.first_event.0, turn.next_event().0))
            .map(|turn| plain(&self.options, &*self.medium, turn))
            .collect()
    }

    /// The references behind the trimmed part that are needed from `from` on, oldest first.
    fn refs_from(
        &self,
        run: RunId,
        state: &RunState,
        trimmed: GroupSeq,
        from: EventId,
    ) -> Result<Vec<TurnRef>, StorageError> {
        let broken = || damaged(&*self.medium, Shelf::Refs, "a chunk of references is missing or senseless".into());
        let (in_memory, on_shelf) = state.refs.chunks();
        let mut newest_first = Vec::new();
        let mut chunks = in_memory.into_iter().map(Arc::new);
        let mut numbers = on_shelf.rev();
        loop {
            let chunk = match chunks.next() {
                Some(chunk) => chunk,
                None => match numbers.next() {
                    Some(number) => Arc::new(self.chunk(run, number)?.ok_or_else(broken)?),
                    None => break,
                },
            };
            let turns = chunk.turns().ok_or_else(broken)?;
            let trimmed_here = turns.first().is_some_and(|place| place.group <= trimmed);
            newest_first.extend(turns.into_iter().rev().filter(|place| place.group > trimmed));
            let reached = !newest_first.is_empty() && chunk.first_event() < from.0;
            if trimmed_here || reached {
                break;
            }
        }
        newest_first.reverse();
        // Turns wholly before `from` are not needed, but for one that proves that nothing is missing.
        let needed = newest_first.iter().position(|p| p.first_event >= from.0 || p.first_event + p.events > from.0);
        let first = needed.unwrap_or(newest_first.len()).saturating_sub(1);
        Ok(newest_first.split_off(first))
    }

    /// The valid archive segments of a run, in order.
    pub(crate) fn segments(&self, run: RunId, trimmed: GroupSeq) -> Result<Vec<Segment>, StorageError> {
        let (medium, file) = (&*self.medium, self.medium.location());
        let mut segments = Vec::new();
        for (key, value) in medium.shelf_scan(Shelf::Archive, &run.0, ScanFrom::First, usize::MAX)? {
            let content = unseal(medium, Shelf::Archive, &key, &value)?;
            let segment = Segment::parse(&key, content, &file)?;
            if segment.through <= trimmed {
                segments.push(segment);
            }
        }
        Ok(segments)
    }

    /// Reads a group that must be there.
    pub(crate) fn group(&self, seq: GroupSeq, file: &Path) -> Result<Group, StorageError> {
        match self.medium.group(seq).map_err(|why| why.at_group(seq))? {
            Some(value) => Group::stored(&*self.medium, seq, value),
            None => Err(StorageError::corrupt("commit group", file, "it is missing").at_group(seq)),
        }
    }

    /// A run, open or closed; deleted ones are none.
    pub(crate) fn state(&self, run: RunId) -> Result<Option<RunState>, StorageError> {
        {
            let index = self.index();
            if index.removed.contains_key(&run) {
                return Ok(None);
            }
            if let Some(state) = index.get(run) {
                return Ok(Some(state.clone()));
            }
        }
        self.closed(run)
    }

    /// What is known of a run. An unreadable entry of a closed run counts as none and is reported in the log; use
    /// [`Journal::try_run`] to see the error.
    pub fn run(&self, run: RunId) -> Option<RunEntry> {
        self.try_run(run).unwrap_or_else(|why| {
            tracing::error!(%run, %why, "a run entry cannot be read");
            None
        })
    }

    /// As [`Journal::run`], with the error of an entry that cannot be read.
    pub fn try_run(&self, run: RunId) -> Result<Option<RunEntry>, StorageError> {
        {
            let index = self.index();
            if index.removed.contains_key(&run) {
                return Ok(None);
            }
            if let Some(state) = index.get(run) {
                return Ok(Some(state.entry()));
            }
        }
        Ok(self.closed(run)?.map(|state| state.entry()))
    }

    /// Whether the run was deleted, as far back as the log reaches.
    pub(crate) fn is_deleted(&self, run: RunId) -> Result<bool, StorageError> {
        Ok(self.removed(run).is_some() || self.medium.shelf_get(Shelf::Deleted, &run.0)?.is_some())
    }

    /// The newest run of a workflow id, open or closed.
    pub fn latest_run(&self, namespace: &Namespace, id: &WorkflowId) -> Option<RunId> {
        self.try_latest_run(namespace, id).unwrap_or_else(|why| {
            tracing::error!(%namespace, workflow_id = %id, %why, "the runs of a workflow id cannot be read");
            None
        })
    }

    /// As [`Journal::latest_run`], with the error of an entry that cannot be read.
    pub fn try_latest_run(&self, namespace: &Namespace, id: &WorkflowId) -> Result<Option<RunId>, StorageError> {
        let index = self.index();
        let mut newest = index.latest(namespace, id);
        let prefix = id_prefix(namespace.as_str(), id.as_str());
        let mut before: Option<Vec<u8>> = None;
        loop {
            // Deleted runs wait on the shelf for the next checkpoint: look behind them.
            let from = before.as_deref().map_or(ScanFrom::Last, ScanFrom::Before);
            let Some((key, _)) = self.medium.shelf_scan(Shelf::ById, &prefix, from, 1)?.pop() else { break };
            match parse_start_key(&key) {
                Some((_, run)) if index.removed.contains_key(&run) => before = Some(key),
                found => {
                    newest = newest.max(found);
                    break;
                }
            }
        }
        Ok(newest.map(|(_, run)| run))
    }

    /// Open runs that a salvage could not save whole, and why.
    pub fn held_runs(&self) -> Result<Vec<(RunId, String)>, StorageError> {
        let mut held = self.medium.held()?;
        let index = self.index();
        held.retain(|(run, _)| index.get(*run).is_some_and(|state| state.info.status.is_open()));
        Ok(held)
    }

    /// Runs that damage took before a salvage: nothing but their ids is left, and nobody finds them in a list.
    pub fn lost_runs(&self) -> Result<Vec<RunId>, StorageError> {
        let held = self.medium.held()?.into_iter();
        Ok(held.filter(|(_, why)| why == NOTHING_LEFT).map(|(run, _)| run).collect())
    }

    /// All open runs, without touching histories.
    pub fn open_runs(&self) -> Vec<(RunId, Namespace, WorkflowId, Outlook)> {
        let index = self.index();
        let open = index.runs().filter(|(_, state)| state.info.status.is_open());
        open.map(|(run, state)| (*run, state.info.namespace.clone(), state.info.workflow_id.clone(), state.outlook))
            .collect()
    }

    /// Closed runs of which messages to other runs have not arrived.
    pub fn closed_with_messages(&self) -> Vec<(RunId, Namespace, WorkflowId)> {
        let index = self.index();
        let waiting = index.runs().filter(|(_, state)| !state.info.status.is_open() && state.is_live());
        waiting.map(|(run, state)| (*run, state.info.namespace.clone(), state.info.workflow_id.clone())).collect()
    }

    /// All runs, open and closed, newest start first, until `visit` says false. No lock is held during a visit. A
    /// closed run whose entry cannot be read is skipped and reported in the log.
    pub fn scan_runs(&self, visit: &mut dyn FnMut(&RunInfo) -> bool) {
        let mut before = (Timestamp::MAX, RunId([0xff; 16]));
        loop {
            let (page, more) = match self.page_before(before) {
                Ok(page) => page,
                Err(why) => return tracing::error!(%why, "the list of runs cannot be read"),
            };
            for (place, run) in page {
                before = (place, run);
                let Some(entry) = self.run(run) else { continue };
                if !visit(&entry.info) {
                    return;
                }
            }
            if !more {
                return;
            }
        }
    }

    /// The run that a target names: the newest of its workflow id unless it names one, which must be of that id and in that
    /// namespace. An entry that cannot be read is an error, not a run that is not there.
    pub fn find(&self, target: &Target) -> Result<Option<RunInfo>, StorageError> {
        let run = match target.run_id {
            Some(run) => Some(run),
            None => self.try_latest_run(&target.namespace, &target.workflow_id)?,
        };
        let entry = run.map_or(Ok(None), |run| self.try_run(run))?;
        let is_meant = |info: &RunInfo| info.workflow_id == target.workflow_id && info.namespace == target.namespace;
        Ok(entry.map(|entry| entry.info).filter(is_meant))
    }

    /// The open runs, in no order that means anything.
    pub(crate) fn scan_open_runs(&self, visit: &mut dyn FnMut(&RunInfo)) {
        let index = self.index();
        index.runs().filter(|(_, state)| state.info.status.is_open()).for_each(|(_, state)| visit(&state.info));
    }

    /// As [`Journal::scan_runs`]; these of the open ones are said to be held, which the log does not know.
    pub(crate) fn scan_runs_with(&self, held: &BTreeSet<RunId>, visit: &mut dyn FnMut(&RunInfo) -> bool) {
        self.scan_runs(&mut |info| match info.status.is_open() && held.contains(&info.run_id) {
            true => visit(&RunInfo { held: true, ..info.clone() }),
            false => visit(info),
        });
    }

    /// At most so many of the runs that fit a filter, in its order.
    pub fn list(&self, filter: &Filter, limit: usize) -> Vec<RunInfo> {
        self.list_with(&BTreeSet::new(), filter, limit)
    }

    pub(crate) fn list_with(&self, held: &BTreeSet<RunId>, filter: &Filter, limit: usize) -> Vec<RunInfo> {
        let mut found: Vec<RunInfo> = Vec::new();
        let by_start = filter.is_default_order();
        self.scan_runs_with(held, &mut |info| {
            if filter.matches(info) {
                found.push(info.clone());
            }
            !by_start || found.len() < limit
        });
        if !by_start {
            found.sort_by(|a, b| filter.compare(a, b));
        }
        found.truncate(limit);
        found
    }

    /// The runs that started before a place, newest first, and whether there may be more behind them.
    fn page_before(&self, before: (Timestamp, RunId)) -> Result<(Vec<(Timestamp, RunId)>, bool), StorageError> {
        // Under one lock, so that a run that a checkpoint moves to the shelf is seen on one of the two sides.
        let index = self.index();
        let open = index.started_before(before, PAGE);
        let key = start_key(before.0, before.1);
        let shelf = self.medium.shelf_scan(Shelf::ByStart, &[], ScanFrom::Before(&key), PAGE)?;
        let closed: Vec<(Timestamp, RunId)> = shelf.iter().filter_map(|(key, _)| parse_start_key(key)).collect();
        // Behind the end of a full page the other side may not be complete.
        let complete_down_to = [&open, &closed]
            .into_iter()
            .filter(|side| side.len() == PAGE)
            .filter_map(|side| side.last().copied())
            .max();
        let mut page: Vec<(Timestamp, RunId)> = open.into_iter().chain(closed).collect();
        page.sort_unstable_by(|a, b| b.cmp(a));
        page.dedup();
        page.retain(|place| complete_down_to.is_none_or(|end| *place >= end));
        Ok((page, complete_down_to.is_some()))
    }
}

/// Whether the turns read are all there are, from `from` on and up to `until`.
fn check_complete(
    run: RunId,
    state: &RunState,
    (from, until): (EventId, EventId),
    read: &[(u64, Turn)],
) -> Result<(), String> {
    let Some((first, oldest)) = read.first() else {
        return if state.turns == 0 { Ok(()) } else { Err(format!("{} turns are missing", state.turns)) };
    };
    if *first > 0 && oldest.first_event >= from {
        return Err(format!("turns before the {first}th (event {}) are missing", oldest.first_event));
    }
    let (mut ordinal, mut event) = (*first, if *first == 0 { EventId(1) } else { oldest.first_event });
    for (found, turn) in read {
        if *found != ordinal || turn.first_event != event {
            return Err(format!(
                "turn {found} begins at event {}, expected turn {ordinal} at event {event}",
                turn.first_event
            ));
        }
        if turn.run != run {
            return Err(format!("turn {found} belongs to run {}", turn.run));
        }
        ordinal += 1;
        event = turn.next_event();
    }
    // What begins later was not read.
    if event < until && (ordinal, event) != (state.turns, state.next_event) {
        return Err(format!(
            "it ends with turn {ordinal} at event {event} instead of turn {} at event {}",
            state.turns, state.next_event
        ));
    }
    Ok(())
}
