//! A shard: the runs of a part of the workflow ids, those that are loaded, and their deadlines.
//!
//! Invariant: only the shard's thread touches this. A run is put out of memory only when everything it decided is
//! durable, so that loading it again finds all of it. A parked run costs an entry in two ordered maps, no task.
//!
//! Here it decides and submits; `begin` begins runs, `names` knows which runs there are, `memory` which of them are loaded.

mod begin;
mod memory;
mod names;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::committer::{Answer, CommitItem, RunName};
use super::current_turn::CurrentTurn;
use super::quarantine::Suspect;
use super::shared::WorkerShared;
use crate::machine::{Decision, Environment, Execution};
use crate::vocabulary::*;

/// How many runs of a chain begin in one commit. Code that continues as new before it has waited for anything would never come
/// to an end; the run after these waits first, as Temporal lets one wait that follows too soon.
const CHAINED_AT_ONCE: usize = 16;
const CHAIN_PAUSE: Duration = Duration::from_secs(1);

/// A state-machine run is snapshotted again when it has this many events more than its last snapshot.
const SNAPSHOT_EVENTS: u64 = 512;
/// How many runs are looked at, at most, at a time for some that can be put out of memory.
const LOOKS: usize = 256;

pub(super) use begin::newer_than;

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
    used_at: Instant,
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
        let Some(held) = self.loaded(name.run_id).and_then(|execution| execution.undone().cloned()) else {
            return decided;
        };
        if let Input::Update { update_id, .. } = again {
            // The caller hears of it, and the run is as it was before: what cannot be carried out is not accepted.
            self.read_again(name.run_id);
            return Err(Rejection::UpdateRefused { update_id, failure: held.as_failure() });
        }
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
        let mut chained = 0;
        while !decisions.is_empty() {
            let mut following = Vec::new();
            for (name, mut decision) in decisions {
                if let Some(mut next) = decision.take_next_run() {
                    chained += 1;
                    if chained > CHAINED_AT_ONCE && next.started.start_at.is_none() {
                        next.started.start_at = Some(self.shared.clock.now().plus(CHAIN_PAUSE));
                    }
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
        self.shared.give_back_slots(self.current_turn.give_back(wanted));
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
    let mut take_slot = |activity_type: &ActivityType, queue: &TaskQueue| {
        let slot = shared.slot_use(activity_type, queue);
        let took = shared.take_slot(&slot);
        if took {
            taken += 1;
            current_turn.took_slot(slot);
        }
        took
    };
    let mut environment =
        Environment { now, build: shared.build, limits: &shared.options.limits, take_slot: &mut take_slot };
    let decided = decide(&mut environment);
    if decided.is_err() {
        shared.give_back_slots(current_turn.give_back(taken));
    }
    decided
}
