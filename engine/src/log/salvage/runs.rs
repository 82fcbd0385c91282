//! The turns of each run, as far as they follow each other, and what is known to be missing.
//!
//! A lost group costs the runs that have a turn in it. Who these are is told by the turns behind it, which do not follow;
//! by the index, which knows how many turns a run has; and by what is left of the group itself. Where none of them tells,
//! every run that may be concerned is held.
//!
//! Of a run that has lost its start the index may know the rest: ids, type, times. It begins with that, and is held for as
//! long as it is there: its workflow id stays taken, and its input reads as lost.
//!
//! Of a run that was over the turn that ended it is kept where it is whole, behind the gap: what is over does not come back as
//! open, and its workflow id stays free.
//!
//! A payload that is lost is marked so, in the turns of its run, which is held.
//!
//! Invariant: a run that is not held is whole.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::archive::Archive;
use super::chain::ChosenGroups;
use super::find::Salvageable;
use super::index::{SalvagedIndex, known_info, removed};
use super::write::read_whole;
use crate::log::archive::Segment;
use crate::log::blob::{BlobFiles, BlobHash};
use crate::log::error::StorageError;
use crate::log::files::{DataDir, NOTHING_LEFT};
use crate::log::group::Record;
use crate::log::stored::{blobs_of, mark_lost};
use crate::vocabulary::{
    EventId, EventKind, GroupSeq, Outlook, Payload, RunId, RunInfo, Turn, WorkflowExecutionStarted,
};

#[derive(Default)]
pub(super) struct SavedRuns {
    pub(super) runs: BTreeMap<RunId, SavedRun>,
    /// Known by name only.
    pub(super) nothing_left: BTreeSet<RunId>,
    /// No segment is missing, and none too many.
    pub(super) archive_adds_up: bool,
    /// Payloads that runs refer to and that are not there whole: the new directory says so in their place.
    pub(super) lost_blobs: BTreeSet<BlobHash>,
    /// Why each of these is lost.
    pub(super) blob_damage: Vec<String>,
    /// How many runs are hit by what groups and segments have lost, payloads not counted.
    pub(super) hit_by_gaps: usize,
    /// A payload that another user owns: nothing is said of it.
    pub(super) not_permitted: Option<StorageError>,
    /// How many runs there were more, of which nothing is left: at least so many.
    pub(super) unnamed: u64,
}

#[derive(Default)]
pub(super) struct SavedRun {
    pub(super) archived: Vec<Segment>,
    /// How many turns it has in the log, from the first behind the archive on.
    pub(super) in_log: usize,
    turns: u64,
    next_event: u64,
    /// Where it begins in the log; 0 where that is lost.
    first_group: GroupSeq,
    last_group: GroupSeq,
    is_over: bool,
    blobs: BTreeSet<BlobHash>,
    pub(super) held: Option<String>,
    /// What the index knows of its start, where that is lost.
    pub(super) start: Option<Turn>,
    /// How it ended, where turns before that are lost.
    pub(super) end: Option<Turn>,
}

pub(super) fn put_together(found: &Salvageable, chosen: &ChosenGroups, dir: &DataDir) -> SavedRuns {
    let mut saved = SavedRuns::default();
    let mut deleted: BTreeSet<RunId> = chosen.deleted.iter().copied().chain(removed(found)).collect();
    let archive = Archive::of(found, chosen, &mut deleted);
    saved.archive(&archive);
    for (seq, group) in chosen.groups.range(chosen.through.0 + 1..) {
        for (_, record) in group.records(Path::new("")).unwrap_or_default() {
            if let Record::Turn(turn) = record
                && !deleted.contains(&turn.run)
            {
                saved.turn(GroupSeq(*seq), turn);
            }
        }
    }
    let index = SalvagedIndex::of(found, chosen);
    // Where the archive and the log are known to be all there is, the index has nothing to add.
    let is_proven = archive.adds_up && chosen.lost.is_empty();
    saved.compare(&index, found.all_pages || is_proven);
    saved.archive_adds_up = archive.adds_up;
    // An index that is true of the last group knows every run.
    let is_known = archive.adds_up || index.is_whole && index.at >= chosen.last;
    if !is_known {
        saved.hold_archived();
    }
    saved.hold_for_lost_groups(found, chosen, &index);
    saved.begin_again(found, &deleted);
    saved.unnamed = saved.count_unnamed(&index, &deleted);
    saved.hit_by_gaps = saved.nothing_left.len() + saved.runs.values().filter(|run| run.held.is_some()).count();
    saved.check_blobs(dir);
    saved
}

impl SavedRuns {
    /// What was held by an earlier salvage stays held: its history is no fuller than it was.
    pub(super) fn hold_before(&mut self, held: &[(RunId, String)]) {
        for (run, why) in held {
            match self.runs.get_mut(run) {
                Some(state) => state.hold(why.clone()),
                None if why == NOTHING_LEFT => _ = self.nothing_left.insert(*run),
                None => {}
            }
        }
    }

    /// Every run that may go on.
    pub(super) fn hold_open(&mut self, why: &str) {
        self.runs.values_mut().filter(|state| !state.is_over).for_each(|state| state.hold(why.into()));
    }

    fn archive(&mut self, archive: &Archive<'_>) {
        for segment in &archive.segments {
            let run = self.runs.entry(segment.run).or_default();
            if segment.first_ordinal + segment.turns <= run.turns {
                continue;
            }
            if segment.first_ordinal != run.turns || run.held.is_some() {
                run.hold(format!("its turns {} to {} are lost", run.turns, segment.first_ordinal));
                segment.turns(Path::new("")).unwrap_or_default().iter().for_each(|(_, turn)| run.ends_with(turn));
                continue;
            }
            for (_, mut turn) in segment.turns(Path::new("")).unwrap_or_default() {
                run.push(segment.through, &mut turn);
            }
            run.archived.push((*segment).clone());
        }
    }

    fn turn(&mut self, seq: GroupSeq, mut turn: Turn) {
        let run = self.runs.entry(turn.run).or_default();
        let expected = run.next_event.max(1);
        if run.held.is_none() && turn.first_event.0 != expected {
            run.hold(format!("its events {expected} to {} are lost", turn.first_event.0.saturating_sub(1)));
        }
        if run.held.is_some() {
            return run.ends_with(&turn);
        }
        run.in_log += 1;
        run.push(seq, &mut turn);
    }

    /// A run that the index knows further than it is here has lost its end; one that a whole index does not know was
    /// deleted.
    fn compare(&mut self, index: &SalvagedIndex, all_pages: bool) {
        for (run, (next_event, turns, _)) in &index.runs {
            let state = self.runs.entry(*run).or_default();
            if state.turns < *turns || state.next_event.max(1) < next_event.0 {
                let (from, to) = (state.next_event.max(1), next_event.0.saturating_sub(1));
                state.hold(match from > to {
                    true => format!("{} turns of it are lost", turns.saturating_sub(state.turns)),
                    false => format!("its events {from} to {to} are lost"),
                });
            }
        }
        let unknown = |run: &RunId, state: &SavedRun| state.last_group <= index.at && !index.runs.contains_key(run);
        if index.is_whole {
            self.runs.retain(|run, state| !unknown(run, state));
        }
        // Nothing but an old copy may be left of a run that was deleted.
        let doubtful = |run: &RunId, state: &SavedRun| {
            unknown(run, state) || !index.is_whole && state.in_log == 0 && !index.runs.contains_key(run)
        };
        for (run, state) in self.runs.iter_mut().filter(|(run, state)| !all_pages && doubtful(run, state)) {
            let why = format!("what is left of the index does not know run {run}: it may have been deleted");
            state.hold(why);
        }
    }

    /// Of how many runs that the index counted nothing is left: neither their entry nor anything that names them.
    fn count_unnamed(&self, index: &SalvagedIndex, deleted: &BTreeSet<RunId>) -> u64 {
        let lost = index.counted.saturating_sub(index.entries.len() as u64);
        let was_there = |state: &SavedRun| state.first_group <= index.at || !state.archived.is_empty();
        let known = self.runs.iter().filter(|(_, state)| was_there(state)).map(|(run, _)| run);
        let known: BTreeSet<&RunId> = known.chain(&self.nothing_left).chain(deleted).collect();
        lost.saturating_sub(known.into_iter().filter(|run| !index.entries.contains(run)).count() as u64)
    }

    /// Runs of which all lies in an archive that does not add up.
    fn hold_archived(&mut self) {
        for state in self.runs.values_mut().filter(|state| state.in_log == 0) {
            state.hold("the archive is not what the log recorded: this run may have been deleted, or may go on".into());
        }
    }

    /// A run of which no turn is left begins with what the index knows of its start; without that its id is all there is.
    fn begin_again(&mut self, found: &Salvageable, deleted: &BTreeSet<RunId>) {
        for run in std::mem::take(&mut self.nothing_left) {
            let state = self.runs.entry(run).or_default();
            state.hold("the group of its start is lost".into());
        }
        self.runs.retain(|run, state| state.turns > 0 || !deleted.contains(run));
        for (run, state) in self.runs.iter_mut().filter(|(_, state)| state.turns == 0) {
            match known_info(found, *run) {
                // One that was over, and whose end is lost too, does not come back as open.
                Some(info) if info.status.is_open() || state.end.is_some() => state.begins_as(info),
                _ => _ = self.nothing_left.insert(*run),
            }
        }
        self.runs.retain(|_, state| state.turns > 0);
    }

    /// What no index covers: the runs that a lost group still names, or every run that may go on in it.
    ///
    /// What it names is believed where each name is that of a run that is known, or of one that begins there. Another name is
    /// one that damage has made, and whose it was nobody knows: then its neighbours are held, too.
    fn hold_for_lost_groups(&mut self, found: &Salvageable, chosen: &ChosenGroups, index: &SalvagedIndex) {
        let uncovered = chosen.lost.iter().filter(|seq| !(index.is_whole && **seq <= index.at));
        for seq in uncovered {
            let is_told = |(run, is_first): &(RunId, bool)| *is_first || self.runs.contains_key(run);
            let named = found.torn.get(&seq.0).filter(|runs| runs.iter().all(is_told));
            let why = || format!("its last turn lay in group {seq}, or may have: that group is lost");
            for (run, state) in &mut self.runs {
                let ends_before = state.last_group < *seq && !state.is_over;
                let concerned = named.is_none_or(|runs| runs.iter().any(|(named, _)| named == run));
                if ends_before && concerned && state.held.is_none() {
                    state.hold(why());
                }
            }
            if let Some(runs) = found.torn.get(&seq.0) {
                let runs = runs.iter().map(|(run, _)| run);
                self.nothing_left.extend(runs.filter(|run| !self.runs.contains_key(run)));
            }
        }
    }

    fn check_blobs(&mut self, dir: &DataDir) {
        let files = BlobFiles::open(dir.payloads());
        let mut known: BTreeMap<BlobHash, bool> = BTreeMap::new();
        for state in self.runs.values_mut() {
            let of_end = state.end.as_mut().map(blobs_of).unwrap_or_default();
            let mut lost: BTreeSet<BlobHash> = BTreeSet::new();
            for hash in state.blobs.iter().copied().chain(of_end) {
                let is_whole = known
                    .entry(hash)
                    .or_insert_with(|| read_whole(&files, &hash).map_err(|why| self.blob_damage.push(why)).is_ok());
                if !*is_whole {
                    lost.insert(hash);
                    let why = files.get(&hash).err().filter(StorageError::is_not_permitted);
                    self.not_permitted = self.not_permitted.take().or(why);
                }
            }
            if let Some(first) = lost.first() {
                let more = if lost.len() == 1 { String::new() } else { format!(", and {} more", lost.len() - 1) };
                let closed = if state.is_over { "; the run is closed and stays so" } else { "" };
                state.hold(format!("payload {first} is lost{more}{closed}"));
                state.mark(&lost);
            }
            if let (Some(end), Some(why)) = (&mut state.end, &mut state.held) {
                end.first_event = EventId(state.next_event.max(1));
                why.push_str("; how it ended is kept, behind the gap");
            }
            self.lost_blobs.extend(lost);
        }
    }
}

impl SavedRun {
    /// Only for a run that is held: nothing is ever decided on a start without input.
    fn begins_as(&mut self, info: RunInfo) {
        let why = self.held.get_or_insert_default();
        why.push_str("; the index tells what it was, its input is lost");
        let (run, at, build) = (info.run_id, info.started_at, info.build);
        let started = EventKind::WorkflowExecutionStarted(Box::new(start_of(info)));
        self.start = Some(Turn::of(run, EventId(1), at, build, vec![started]));
        (self.turns, self.next_event) = (1, 2);
    }

    fn hold(&mut self, why: String) {
        self.held.get_or_insert(why);
    }

    /// Marks what is lost where it is not marked while the groups are written.
    fn mark(&mut self, lost: &BTreeSet<BlobHash>) {
        for segment in &mut self.archived {
            // One that was read before can be read again.
            *segment = segment.marked(lost).unwrap_or_else(|_| segment.clone());
        }
        if let Some(end) = &mut self.end {
            mark_lost(end, lost);
        }
    }

    /// Keeps the end of a run whose history is not whole: the closing event, and nothing of what it was decided from.
    fn ends_with(&mut self, turn: &Turn) {
        let Some(at) = turn.events.iter().position(|event| event.closes().is_some()) else { return };
        self.end.get_or_insert_with(|| Turn {
            events: turn.events[at..].to_vec(),
            inbox_added: Vec::new(),
            inbox_taken: 0,
            heartbeats: Vec::new(),
            outlook: Outlook::default(),
            delivered: Vec::new(),
            ..turn.clone()
        });
    }

    fn push(&mut self, seq: GroupSeq, turn: &mut Turn) {
        if self.turns == 0 {
            self.first_group = seq;
        }
        self.turns += 1;
        self.next_event = turn.next_event().0;
        self.last_group = seq;
        self.is_over |= turn.events.iter().any(|event| event.closes().is_some());
        self.blobs.extend(blobs_of(turn));
    }
}

/// The start event of a run as far as the index knows it.
fn start_of(info: RunInfo) -> WorkflowExecutionStarted {
    WorkflowExecutionStarted {
        namespace: info.namespace,
        workflow_id: info.workflow_id,
        workflow_type: info.workflow_type,
        task_queue: info.task_queue,
        input: Payload::lost(),
        execution_deadline: None,
        run_timeout: None,
        retry_policy: None,
        attempt: info.attempt,
        first_run: info.first_run,
        continued_from: info.continued_from,
        last_failure: None,
        start_at: None,
        parent: info.parent,
        memo: info.memo,
        search_attributes: info.search_attributes,
        request_id: info.start_request_id,
        identity: None,
        summary: info.summary,
        details: info.details,
        carried_signals: Vec::new(),
        carried_request_ids: Vec::new(),
        forked_from: None,
        priority: None,
        numbering: None,
        signals_at_start: None,
    }
}
