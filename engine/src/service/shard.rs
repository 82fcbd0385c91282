//! A shard: the runs of a part of the workflow ids, those that are loaded, and their deadlines.
//!
//! Invariant: only the shard's thread touches this. A run is put out of memory only when everything it decided is
//! durable, so that loading it again finds all of it. A parked run costs an entry in two ordered maps, no task.
//!
//! Here it decides and submits; `names` knows which runs there are, `memory` which of them are loaded.

mod memory;
mod names;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::committer::{Answer, CommitItem, RunName};
use super::current_turn::CurrentTurn;
use super::quarantine::Suspect;
use super::shared::WorkerShared;
use super::starters::{StarterNews, tell_starters};
use crate::machine::{Decision, Environment, Execution, Held, NextRun};
use crate::vocabulary::*;

/// A state-machine run is snapshotted again when it has this many events more than its last snapshot.
const SNAPSHOT_EVENTS: u64 = 512;
/// How many runs are looked at, at most, for some that can be put out of memory.
const LOOKS: usize = 256;

pub(crate) struct Shard {
    pub(super) shared: Arc<WorkerShared>,
    pub(super) number: usize,
    pub(super) generation: u64,
    loaded: BTreeMap<RunId, LoadedRun>,
    /// Order of use, oldest first, for eviction.
    uses: BTreeMap<u64, RunId>,
    clock_of_use: u64,
    /// What the loaded runs take together, by estimate.
    bytes: usize,
    /// The newest run of each workflow id that is open, or whose end is not durable yet.
    current: BTreeMap<(Namespace, WorkflowId), RunId>,
    deadlines: BTreeSet<(Timestamp, RunId)>,
    deadline_of: BTreeMap<RunId, (Timestamp, Namespace, WorkflowId)>,
    submitted: u64,
    /// Runs that were put out of memory before all of theirs was durable, with the item that is to be waited for.
    unread: BTreeMap<RunId, u64>,
    pub(super) current_turn: Arc<CurrentTurn>,
}

struct LoadedRun {
    execution: Execution,
    last_use: u64,
    /// The number of the last item of this run; it must be released before the run may be put out of memory.
    last_item: u64,
    snapshot_at: u64,
    /// What it takes, by estimate.
    bytes: usize,
}

impl Shard {
    pub(crate) fn new(
        shared: Arc<WorkerShared>,
        number: usize,
        generation: u64,
        current_turn: Arc<CurrentTurn>,
    ) -> Self {
        Shard {
            submitted: shared.committer.released(number),
            shared,
            number,
            generation,
            loaded: BTreeMap::new(),
            uses: BTreeMap::new(),
            clock_of_use: 0,
            bytes: 0,
            current: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            deadline_of: BTreeMap::new(),
            unread: BTreeMap::new(),
            current_turn,
        }
    }

    /// Begins a run and submits its first turn. With `ends`, that run is terminated in the same commit.
    pub(super) fn begin(
        &mut self,
        run_id: RunId,
        (started, at, what): (WorkflowExecutionStarted, Timestamp, Option<RunId>),
        ends: Option<(RunName, Option<Identity>)>,
        more: impl FnOnce(&mut Execution, &mut Environment<'_>) -> Result<Option<Decision>, Rejection>,
        answers: Vec<Answer>,
    ) -> Result<(), (Rejection, Vec<Answer>)> {
        let name = RunName { namespace: started.namespace.clone(), workflow_id: started.workflow_id.clone(), run_id };
        let info = self.shared.is_intercepted().then(|| RunInfo::started(run_id, at, self.shared.build, &started));
        let shared = self.shared.clone();
        info.iter().for_each(|info| shared.turn_begins(info));
        let begun = self.first_decisions(run_id, (started, at, what), more);
        match &begun {
            Ok((execution, begun)) => {
                shared.turn_ends(execution.run().info(), begun.iter().map(|one| one.turn().events.len()).sum());
            }
            Err(_) => info.iter().for_each(|info| shared.turn_ends(info, 0)),
        }
        let mut decisions = Vec::new();
        let ended = begun.and_then(|begun| match &ends {
            Some((old, identity)) => {
                let reason = "terminated by a start of the same workflow id".to_owned();
                let decision = self.decide_only(old, Input::Terminate { reason, identity: identity.clone() });
                decision.map(|decision| decisions.push((old.clone(), decision))).map(|()| begun)
            }
            None => Ok(begun),
        });
        match ended {
            Ok((execution, begun)) => {
                self.current.insert((name.namespace.clone(), name.workflow_id.clone()), run_id);
                if let Some(held) = execution.held() {
                    shared.note_held(run_id, Some(held.to_string()));
                }
                self.keep(run_id, execution, EventId(1));
                decisions.extend(begun.into_iter().map(|decision| (name.clone(), decision)));
                self.submit(decisions, answers);
                Ok(())
            }
            Err(why) => {
                self.give_back_slots(usize::MAX);
                Err((why, answers))
            }
        }
    }

    /// The first turn of a run, and what comes with its start.
    fn first_decisions(
        &mut self,
        run_id: RunId,
        (started, at, what): (WorkflowExecutionStarted, Timestamp, Option<RunId>),
        more: impl FnOnce(&mut Execution, &mut Environment<'_>) -> Result<Option<Decision>, Rejection>,
    ) -> Result<(Execution, Vec<Decision>), Rejection> {
        let (shared, current_turn) = (self.shared.clone(), self.current_turn.clone());
        let refused = self.start_refused(run_id, &started, what);
        let begun = first_turn(&shared, &current_turn, at, started, refused, |started, refused, environment| {
            let registry = &shared.options.workflows;
            match refused {
                None => Execution::start(run_id, started, registry, environment),
                Some(held) => Ok(Execution::start_held(run_id, started, held, environment)),
            }
        });
        let begun = begun.and_then(|(mut execution, first)| {
            let second = decide_with(&shared, &current_turn, at, |environment| more(&mut execution, environment))?;
            Ok((execution, std::iter::once(first).chain(second).collect::<Vec<Decision>>()))
        });
        self.ended(what.map(Suspect::Start), true);
        begun
    }

    /// Lets a run decide an input and submits the turn. `Err` gives the answers back with the reason.
    pub(super) fn decide(
        &mut self,
        name: &RunName,
        input: Input,
        answers: Vec<Answer>,
    ) -> Result<(), (Rejection, Vec<Answer>)> {
        match self.decide_only(name, input) {
            Ok(decision) => {
                self.submit(vec![(name.clone(), decision)], answers);
                Ok(())
            }
            Err(why) => Err((why, answers)),
        }
    }

    fn decide_only(&mut self, name: &RunName, input: Input) -> Result<Decision, Rejection> {
        let again = input.clone();
        let decided = self.decide_once(name, input);
        let Some(held) = self.loaded(name.run_id).and_then(|execution| execution.overran().cloned()) else {
            return decided;
        };
        // Nothing of that turn may be written: the run is held as it was before, and keeps the input.
        self.shared.note_held(name.run_id, Some(held.to_string()));
        self.read_again(name.run_id);
        self.decide_once(name, again)
    }

    fn decide_once(&mut self, name: &RunName, input: Input) -> Result<Decision, Rejection> {
        let (shared, current_turn) = (self.shared.clone(), self.current_turn.clone());
        let execution = self.load(name)?;
        shared.turn_begins(execution.run().info());
        let decided =
            decide_with(&shared, &current_turn, shared.clock.now(), |environment| execution.decide(input, environment));
        let events = decided.as_ref().map_or(&[][..], |decision| &decision.turn().events);
        shared.turn_ends(execution.run().info(), events.len());
        let got_on = events.iter().any(|event| event.origin() == Origin::Activating);
        self.ended(Some(Suspect::Turn(name.run_id)), got_on);
        decided
    }

    fn ended(&self, who: Option<Suspect>, got_on: bool) {
        if let (Some(who), Some(quarantine)) = (who, &self.shared.quarantine) {
            quarantine.ended(who, got_on);
        }
    }

    /// Why a run is begun without its code, if starts of the kind have ended workers.
    fn start_refused(&self, run: RunId, started: &WorkflowExecutionStarted, what: Option<RunId>) -> Option<Held> {
        let (quarantine, what) = (self.shared.quarantine.as_ref()?, what?);
        let (found_at, why) = quarantine.start_refused(what)?;
        quarantine.hold(run, what);
        let (namespace, workflow_id) = (started.namespace.clone(), started.workflow_id.clone());
        let news = StarterNews { namespace, workflow_id, run, found_at, why: why.clone() };
        tell_starters(&self.shared, started.parent.clone(), &news);
        Some(Held::Defect { why })
    }

    /// Submits something to be answered in order, without a turn.
    pub(super) fn answer_in_order(&mut self, answer: Answer) {
        self.submit_item(Vec::new(), Vec::new(), vec![answer]);
    }

    fn submit(&mut self, decisions: Vec<(RunName, Decision)>, answers: Vec<Answer>) {
        self.submit_after(Vec::new(), decisions, answers);
    }

    /// As [`Shard::submit`], with turns that were decided before, in the same commit.
    pub(super) fn submit_after(
        &mut self,
        mut turns: Vec<Turn>,
        mut decisions: Vec<(RunName, Decision)>,
        answers: Vec<Answer>,
    ) {
        let mut effects = Vec::new();
        let mut names = Vec::new();
        while !decisions.is_empty() {
            let mut following = Vec::new();
            for (name, mut decision) in decisions {
                if let Some(next) = decision.take_next_run() {
                    following.extend(self.begin_next(&name, next));
                }
                let empty = decision.is_empty();
                let (turn, sealed) = decision.seal();
                if !empty {
                    turns.push(turn);
                }
                names.push(name.clone());
                effects.push((name, sealed));
            }
            decisions = following;
        }
        self.submit_item(turns, effects, answers);
        for name in names {
            self.settle_run(&name);
        }
        self.evict();
    }

    /// Begins the next run of a chain, in the same commit as the end of the one before.
    fn begin_next(&mut self, before: &RunName, next: NextRun) -> Vec<(RunName, Decision)> {
        let (shared, current_turn) = (self.shared.clone(), self.current_turn.clone());
        let name = RunName { run_id: next.run_id, ..before.clone() };
        let at = newer_than(self.info(before.run_id).map(|info| info.started_at), shared.clock.now());
        if shared.is_intercepted() {
            shared.turn_begins(&RunInfo::started(next.run_id, at, shared.build, &next.started));
        }
        let decided = first_turn(&shared, &current_turn, at, next, None, |next, overran, environment| match overran {
            None => Ok(Execution::start_or_hold(next, &shared.options.workflows, environment)),
            Some(held) => {
                let NextRun { run_id, started, inbox } = next;
                Ok(Execution::start_held_with(NextRun { run_id, started, inbox }, held, environment))
            }
        });
        let decided = decided.map(|(mut execution, first)| {
            let second = (execution.run().inbox_len() > 0 && execution.held().is_none()).then(|| {
                decide_with(&shared, &current_turn, at, |environment| {
                    Ok::<_, Rejection>(execution.decide_inbox(environment))
                })
            });
            (execution, std::iter::once(first).chain(second.and_then(Result::ok)).collect::<Vec<Decision>>())
        });
        // It cannot fail: what could is held instead.
        let Ok((execution, decisions)) = decided else { return Vec::new() };
        shared.turn_ends(execution.run().info(), decisions.iter().map(|one| one.turn().events.len()).sum());
        if let Some(held) = execution.held() {
            shared.note_held(name.run_id, Some(held.to_string()));
        }
        self.current.insert((name.namespace.clone(), name.workflow_id.clone()), name.run_id);
        self.keep(name.run_id, execution, EventId(1));
        decisions.into_iter().map(|decision| (name.clone(), decision)).collect()
    }

    fn submit_item(
        &mut self,
        turns: Vec<Turn>,
        effects: Vec<(RunName, crate::machine::SealedEffects)>,
        answers: Vec<Answer>,
    ) {
        if !self.current_turn.decided() {
            // The shard was given to another thread meanwhile, and the input with it.
            self.give_back_slots(usize::MAX);
            return;
        }
        self.submitted += 1;
        for (name, _) in &effects {
            if let Some(loaded) = self.loaded.get_mut(&name.run_id) {
                loaded.last_item = self.submitted;
            }
        }
        self.shared.time.begin();
        let item = CommitItem { shard: self.number, generation: self.generation, turns, effects, answers };
        if !self.shared.committer.submit(item) {
            self.shared.time.end();
        }
    }

    fn give_back_slots(&self, wanted: usize) {
        for _ in 0..self.current_turn.give_back(wanted) {
            self.shared.release_slot();
        }
    }

    /// Brings deadlines up to date after a decision.
    fn settle_run(&mut self, name: &RunName) {
        self.weigh(name.run_id);
        let deadline = self.loaded.get(&name.run_id).and_then(|loaded| loaded.execution.next_deadline());
        self.set_deadline(name, deadline);
    }
}

/// Decides with the worker's time, build and slots. Slots taken for a decision that fails are given back.
pub(super) fn decide_with<T>(
    shared: &WorkerShared,
    current_turn: &CurrentTurn,
    now: Timestamp,
    decide: impl FnOnce(&mut Environment<'_>) -> Result<T, Rejection>,
) -> Result<T, Rejection> {
    let mut taken = 0;
    let mut take_slot = |queue: &TaskQueue| {
        let took = shared.take_slot(queue);
        if took {
            taken += 1;
            current_turn.took_slot();
        }
        took
    };
    let mut environment =
        Environment { now, build: shared.build, limits: &shared.options.limits, take_slot: &mut take_slot };
    let decided = decide(&mut environment);
    if decided.is_err() {
        for _ in 0..current_turn.give_back(taken) {
            shared.release_slot();
        }
    }
    decided
}

/// Takes the first turn of a run. If its code asks for more than a turn may hold, the run begins without it, held.
fn first_turn<S: Clone>(
    shared: &WorkerShared,
    current_turn: &CurrentTurn,
    at: Timestamp,
    start: S,
    held: Option<Held>,
    begin: impl Fn(S, Option<Held>, &mut Environment<'_>) -> Result<(Execution, Decision), Rejection>,
) -> Result<(Execution, Decision), Rejection> {
    let mut overran = None;
    let begun = decide_with(shared, current_turn, at, |environment| {
        let (execution, first) = begin(start.clone(), held, environment)?;
        overran = execution.overran().cloned();
        match &overran {
            None => Ok((execution, first)),
            Some(held) => Err(Rejection::Held { why: held.to_string() }),
        }
    });
    match overran {
        None => begun,
        Some(held) => decide_with(shared, current_turn, at, |environment| begin(start, Some(held), environment)),
    }
}

/// When a run starts that follows another one of its workflow id: never at the same moment, so that the start times tell
/// which run is the newest.
pub(super) fn newer_than(before: Option<Timestamp>, now: Timestamp) -> Timestamp {
    before.map_or(now, |before| now.max(before.plus(std::time::Duration::from_micros(1))))
}
