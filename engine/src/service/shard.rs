//! A shard: the runs of a part of the workflow ids, those that are loaded, and their deadlines.
//!
//! Invariant: only the shard's thread touches this. A run is put out of memory only when everything it decided is
//! durable, so that loading it again finds all of it. A parked run costs an entry in two ordered maps, no task.
//!
//! Long: loading, deciding, submitting and eviction share the one state that only this thread may touch.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::budget::bytes_of_run;
use super::committer::{Answer, Item, RunName};
use super::in_hand::InHand;
use super::mailbox::RunRef;
use super::quarantine::Suspect;
use super::shared::Shared;
use crate::log::{Snapshot, StorageError};
use crate::machine::{Decision, Environment, Execution, Held, LoadError, NextRun, Run};
use crate::request::Target;
use crate::vocabulary::*;

/// A state-machine run is snapshotted again when it has this many events more than its last snapshot.
const SNAPSHOT_EVENTS: u64 = 512;
/// How many runs are looked at, at most, for some that can be put out of memory.
const LOOKS: usize = 256;

pub(crate) struct Shard {
    pub(super) shared: Arc<Shared>,
    pub(super) number: usize,
    pub(super) generation: u64,
    loaded: BTreeMap<RunId, Loaded>,
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
    pub(super) in_hand: Arc<InHand>,
}

struct Loaded {
    execution: Execution,
    last_use: u64,
    /// The number of the last item of this run; it must be released before the run may be put out of memory.
    last_item: u64,
    snapshot_at: u64,
    /// What it takes, by estimate.
    bytes: usize,
}

impl Shard {
    pub(crate) fn new(shared: Arc<Shared>, number: usize, generation: u64, in_hand: Arc<InHand>) -> Self {
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
            in_hand,
        }
    }

    /// Learns of an open run at start, without loading it.
    pub(crate) fn know(&mut self, namespace: Namespace, workflow_id: WorkflowId, run: RunId, outlook: Outlook) {
        if let Some(at) = outlook.next_deadline {
            self.deadlines.insert((at, run));
            self.deadline_of.insert(run, (at, namespace.clone(), workflow_id.clone()));
        }
        self.current.insert((namespace, workflow_id), run);
    }

    pub(super) fn next_deadline(&self) -> Option<Timestamp> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    /// Takes the next run whose deadline has come.
    pub(super) fn pop_due(&mut self, now: Timestamp) -> Option<RunName> {
        let (at, run) = *self.deadlines.first()?;
        if at > now {
            return None;
        }
        self.deadlines.remove(&(at, run));
        let (_, namespace, workflow_id) = self.deadline_of.remove(&run)?;
        Some(RunName { namespace, workflow_id, run_id: run })
    }

    fn set_deadline(&mut self, name: &RunName, at: Option<Timestamp>) {
        if let Some((old, ..)) = self.deadline_of.get(&name.run_id) {
            if Some(*old) == at {
                return;
            }
            self.deadlines.remove(&(*old, name.run_id));
            self.deadline_of.remove(&name.run_id);
        }
        if let Some(at) = at {
            self.deadlines.insert((at, name.run_id));
            self.deadline_of.insert(name.run_id, (at, name.namespace.clone(), name.workflow_id.clone()));
        }
    }

    /// The newest run of a workflow id.
    pub(super) fn newest(&mut self, namespace: &Namespace, workflow_id: &WorkflowId) -> Option<RunId> {
        // The key is cloned; ids are reference-counted.
        let key = (namespace.clone(), workflow_id.clone());
        if let Some(current) = self.current.get(&key).copied() {
            self.forget_if_deleted(current);
        }
        self.current.get(&key).copied().or_else(|| self.shared.journal.latest_run(namespace, workflow_id))
    }

    /// The facts of a run: from memory if loaded, else from the index.
    pub(super) fn info(&self, run: RunId) -> Option<RunInfo> {
        match self.loaded.get(&run) {
            Some(loaded) => Some(loaded.execution.run().info().clone()),
            None => self.shared.journal.run(run).map(|entry| entry.info),
        }
    }

    /// The workflow id of a run, as [`Shard::info`] knows it, without copying the rest.
    fn is_of(&self, run: RunId, workflow_id: &WorkflowId) -> bool {
        match self.loaded.get(&run) {
            Some(loaded) => loaded.execution.run().info().workflow_id == *workflow_id,
            None => self.shared.journal.run(run).is_some_and(|entry| entry.info.workflow_id == *workflow_id),
        }
    }

    /// Finds the run that is meant.
    pub(super) fn find(&mut self, run: &RunRef) -> Result<RunName, Rejection> {
        if let RunRef::Target(Target { run_id: Some(run_id), .. }) = run {
            self.forget_if_deleted(*run_id);
        }
        let (namespace, workflow_id) = run.key();
        let not_found = |run_id| Rejection::NotFound { workflow_id: workflow_id.clone(), run_id };
        let run_id = match run {
            RunRef::Target(Target { run_id: Some(run_id), .. }) => {
                self.is_of(*run_id, workflow_id).then_some(*run_id).ok_or_else(|| not_found(Some(*run_id)))?
            }
            RunRef::Target(Target { run_id: None, .. }) => {
                self.newest(namespace, workflow_id).ok_or_else(|| not_found(None))?
            }
            RunRef::Chain { first_run, .. } => {
                self.last_of_chain(*first_run).ok_or_else(|| not_found(Some(*first_run)))?
            }
        };
        Ok(RunName { namespace: namespace.clone(), workflow_id: workflow_id.clone(), run_id })
    }

    pub(super) fn last_of_chain(&self, first_run: RunId) -> Option<RunId> {
        let mut info = self.info(first_run)?;
        while let Some(next) = info.next_run {
            info = self.info(next)?;
        }
        Some(info.run_id)
    }

    /// The loaded run, loading it if need be.
    pub(super) fn load(&mut self, name: &RunName) -> Result<&mut Execution, Rejection> {
        if !self.loaded.contains_key(&name.run_id) {
            self.wait_until_durable(name.run_id)?;
            // A run that is looked at, and not changed, must not push the memory up either.
            self.evict();
            let (execution, snapshot_at) = self.read(name.run_id, &name.workflow_id)?;
            self.keep(name.run_id, execution, snapshot_at);
        }
        self.touch(name.run_id);
        // Here, because what the run decided before is durable more often than not when it is looked at again.
        self.snapshot(name.run_id, SNAPSHOT_EVENTS);
        match self.loaded.get_mut(&name.run_id) {
            Some(loaded) => Ok(&mut loaded.execution),
            None => Err(Rejection::NotFound { workflow_id: name.workflow_id.clone(), run_id: Some(name.run_id) }),
        }
    }

    pub(super) fn loaded(&mut self, run: RunId) -> Option<&mut Execution> {
        self.loaded.get_mut(&run).map(|loaded| &mut loaded.execution)
    }

    /// Whether something the run decided is not durable yet.
    pub(super) fn has_turn_in_flight(&self, run: RunId) -> bool {
        let released = self.shared.committer.released(self.number);
        self.loaded.get(&run).is_some_and(|loaded| loaded.last_item > released)
    }

    /// What was decided of a run that is read again, and is not durable yet, must be before.
    fn wait_until_durable(&mut self, run: RunId) -> Result<(), Rejection> {
        let Some(item) = self.unread.remove(&run) else { return Ok(()) };
        let began = std::time::Instant::now();
        while self.shared.committer.released(self.number) < item {
            self.shared.committer.kick(&self.shared, true);
            std::thread::sleep(std::time::Duration::from_micros(100));
            if began.elapsed() > std::time::Duration::from_secs(10) || self.shared.health.storage_failure().is_some() {
                self.unread.insert(run, item);
                return Err(Rejection::Held { why: "what the run decided last is not durable yet; ask again".into() });
            }
        }
        Ok(())
    }

    /// Brings a run back to life; also gives the event its newest usable snapshot is behind.
    fn read(&self, run: RunId, workflow_id: &WorkflowId) -> Result<(Execution, EventId), Rejection> {
        let failed = |error: StorageError| Rejection::Held { why: error.to_string() };
        let held = self.shared.held_why(run);
        if held.is_none()
            && let Some(resumed) = self.resume(run).map_err(failed)?
        {
            return Ok(resumed);
        }
        let turns = self.shared.journal.turns(run, EventId(1)).map_err(|error| {
            self.shared.note_held(run, Some(error.to_string()));
            failed(error)
        })?;
        if turns.is_empty() {
            return Err(Rejection::NotFound { workflow_id: workflow_id.clone(), run_id: Some(run) });
        }
        let not_a_history = |error: LoadError| Rejection::Held { why: error.to_string() };
        if let Some(why) = held {
            // The code of a held run is not given another chance to keep this thread.
            let mut execution = Execution::facts(&turns).map_err(not_a_history)?;
            execution.hold(Held::Defect { why });
            return Ok((execution, EventId(1)));
        }
        let registry = &self.shared.options.workflows;
        let execution = Execution::load(&turns, registry, self.shared.build).map_err(not_a_history)?;
        if let Some(held) = execution.held().filter(|_| !execution.run().is_closed()) {
            // A run that is over needs no code, also where its messages have not arrived yet.
            self.shared.note_held(run, Some(held.to_string()));
        }
        Ok((execution, EventId(1)))
    }

    /// Resumes a state-machine run from its snapshot, if there is one of this build that can be read.
    fn resume(&self, run: RunId) -> Result<Option<(Execution, EventId)>, StorageError> {
        let Some(snapshot) = self.shared.journal.snapshot(run).filter(|found| found.build == self.shared.build) else {
            return Ok(None);
        };
        let Ok((facts, code)) = rmp_serde::from_slice::<(Run, Vec<u8>)>(&snapshot.state) else { return Ok(None) };
        let workflow_type = facts.info().workflow_type.clone();
        let Ok(driver) = self.shared.options.workflows.restore(&workflow_type, run, &code) else { return Ok(None) };
        let at = facts.next_event();
        let turns = self.shared.journal.turns(run, at)?;
        Ok(Execution::resume(facts, driver, &turns, self.shared.build).ok().map(|execution| (execution, at)))
    }

    /// The run is the newest of its workflow id.
    pub(super) fn know_as_current(&mut self, name: &RunName) {
        self.current.insert((name.namespace.clone(), name.workflow_id.clone()), name.run_id);
    }

    pub(super) fn keep(&mut self, run: RunId, execution: Execution, snapshot_at: EventId) {
        let snapshot_at = snapshot_at.0;
        let loaded = Loaded { execution, last_use: 0, last_item: self.submitted, snapshot_at, bytes: 0 };
        if let Some(before) = self.loaded.insert(run, loaded) {
            self.bytes -= before.bytes;
            self.uses.remove(&before.last_use);
        }
        self.weigh(run);
        self.touch(run);
    }

    /// Brings up to date what the run takes.
    fn weigh(&mut self, run: RunId) {
        if let Some(loaded) = self.loaded.get_mut(&run) {
            let bytes = bytes_of_run(loaded.execution.run().info().history.bytes);
            self.bytes = self.bytes - loaded.bytes + bytes;
            loaded.bytes = bytes;
        }
    }

    fn touch(&mut self, run: RunId) {
        self.clock_of_use += 1;
        if let Some(loaded) = self.loaded.get_mut(&run) {
            self.uses.remove(&loaded.last_use);
            loaded.last_use = self.clock_of_use;
            self.uses.insert(self.clock_of_use, run);
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
        let (shared, in_hand) = (self.shared.clone(), self.in_hand.clone());
        let refused = self.start_refused(run_id, what);
        let begun = first_turn(&shared, &in_hand, at, started, refused, |started, refused, environment| {
            let registry = &shared.options.workflows;
            match refused {
                None => Execution::start(run_id, started, registry, environment),
                Some(held) => Ok(Execution::start_held(run_id, started, held, environment)),
            }
        });
        let begun = begun.and_then(|(mut execution, first)| {
            let second = decide_with(&shared, &in_hand, at, |environment| more(&mut execution, environment))?;
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
        let (shared, in_hand) = (self.shared.clone(), self.in_hand.clone());
        let execution = self.load(name)?;
        shared.turn_begins(execution.run().info());
        let decided =
            decide_with(&shared, &in_hand, shared.clock.now(), |environment| execution.decide(input, environment));
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
    fn start_refused(&self, run: RunId, what: Option<RunId>) -> Option<Held> {
        let (quarantine, what) = (self.shared.quarantine.as_ref()?, what?);
        let why = quarantine.start_refused(what)?;
        quarantine.hold(run, what);
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
        let (shared, in_hand) = (self.shared.clone(), self.in_hand.clone());
        let name = RunName { run_id: next.run_id, ..before.clone() };
        let at = newer_than(self.info(before.run_id).map(|info| info.started_at), shared.clock.now());
        if shared.is_intercepted() {
            shared.turn_begins(&RunInfo::started(next.run_id, at, shared.build, &next.started));
        }
        let decided = first_turn(&shared, &in_hand, at, next, None, |next, overran, environment| match overran {
            None => Ok(Execution::start_or_hold(next, &shared.options.workflows, environment)),
            Some(held) => {
                let NextRun { run_id, started, inbox } = next;
                Ok(Execution::start_held_with(NextRun { run_id, started, inbox }, held, environment))
            }
        });
        let decided = decided.map(|(mut execution, first)| {
            let second = (execution.run().inbox_len() > 0 && execution.held().is_none()).then(|| {
                decide_with(&shared, &in_hand, at, |environment| {
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
        if !self.in_hand.decided() {
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
        self.shared.idle.begin();
        let item = Item { shard: self.number, generation: self.generation, turns, effects, answers };
        if !self.shared.committer.submit(item) {
            self.shared.idle.end();
        }
    }

    fn give_back_slots(&self, wanted: usize) {
        for _ in 0..self.in_hand.give_back(wanted) {
            self.shared.release_slot();
        }
    }

    /// Brings deadlines up to date after a decision.
    fn settle_run(&mut self, name: &RunName) {
        self.weigh(name.run_id);
        let deadline = self.loaded.get(&name.run_id).and_then(|loaded| loaded.execution.next_deadline());
        self.set_deadline(name, deadline);
    }

    /// Puts the runs that were not used for longest out of memory, if everything of them is durable.
    fn evict(&mut self) {
        let released = self.shared.committer.released(self.number);
        let mut surplus = self.loaded.len().saturating_sub(self.shared.options.loaded_max.max(1));
        let mut heavy = self.bytes.saturating_sub(self.shared.budget.runs);
        // The one that was used last is about to be used again.
        let mut candidates = self.uses.iter().take(self.uses.len().saturating_sub(1).min(surplus + LOOKS));
        let mut gone = Vec::new();
        while (surplus > 0 || heavy > 0)
            && let Some((_, run)) = candidates.next()
        {
            if let Some(loaded) = self.loaded.get(run).filter(|loaded| loaded.last_item <= released) {
                heavy = heavy.saturating_sub(loaded.bytes);
                gone.push(*run);
            }
            surplus = surplus.saturating_sub(1);
        }
        for run in gone {
            self.forget(run);
        }
    }

    /// A closed run that was deleted, by a client or because its retention is over, is not there any more.
    fn forget_if_deleted(&mut self, run: RunId) {
        let released = self.shared.committer.released(self.number);
        let ended = |loaded: &Loaded| loaded.execution.run().is_closed() && loaded.last_item <= released;
        if self.loaded.get(&run).is_some_and(ended) && self.shared.journal.run(run).is_none() {
            let in_hand = self.in_hand.clone();
            in_hand.marked(run, || self.unload(run));
            self.shared.note_held(run, None);
        }
    }

    /// Puts one run out of memory.
    pub(super) fn forget(&mut self, run: RunId) {
        // Both run code of the run, and deep state may be too deep for either.
        let in_hand = self.in_hand.clone();
        in_hand.marked(run, || {
            self.snapshot(run, 1);
            self.unload(run);
        });
    }

    /// Puts a run out of memory that is to be read from the log again, whatever is under way.
    pub(super) fn read_again(&mut self, run: RunId) {
        if let Some(loaded) = self.loaded.get(&run) {
            self.unread.insert(run, loaded.last_item);
            self.unload(run);
        }
    }

    fn unload(&mut self, run: RunId) {
        let Some(loaded) = self.loaded.remove(&run) else { return };
        self.uses.remove(&loaded.last_use);
        self.bytes -= loaded.bytes;
        let info = loaded.execution.run().info();
        let key = (info.namespace.clone(), info.workflow_id.clone());
        if loaded.execution.run().is_closed() && self.current.get(&key) == Some(&run) {
            self.current.remove(&key);
        }
    }

    /// Snapshots a run that has grown by this many events (engine.md E37). Lost snapshots cost only time.
    fn snapshot(&mut self, run: RunId, grown: u64) {
        let Some(loaded) = self.loaded.get_mut(&run) else { return };
        let facts = loaded.execution.run();
        let next = facts.next_event().0;
        if next < loaded.snapshot_at + grown || loaded.last_item > self.shared.committer.released(self.number) {
            return;
        }
        let Some(code) = loaded.execution.snapshot() else { return };
        if let Ok(state) = rmp_serde::to_vec(&(loaded.execution.run(), code)) {
            let snapshot = Snapshot { event: EventId(next - 1), build: self.shared.build, state };
            match self.shared.journal.put_snapshot(run, snapshot) {
                Ok(()) => loaded.snapshot_at = next,
                Err(error) => tracing::warn!(%run, %error, "a snapshot could not be kept; the run is replayed instead"),
            }
        }
    }

    /// Puts everything out of memory, with snapshots where they can be, because the worker is leaving.
    pub(super) fn forget_all(&mut self) {
        for run in self.loaded.keys().copied().collect::<Vec<_>>() {
            self.forget(run);
        }
    }
}

/// Decides with the worker's time, build and slots. Slots taken for a decision that fails are given back.
pub(super) fn decide_with<T>(
    shared: &Shared,
    in_hand: &InHand,
    now: Timestamp,
    decide: impl FnOnce(&mut Environment<'_>) -> Result<T, Rejection>,
) -> Result<T, Rejection> {
    let mut taken = 0;
    let mut take_slot = |queue: &TaskQueue| {
        let took = shared.take_slot(queue);
        if took {
            taken += 1;
            in_hand.took_slot();
        }
        took
    };
    let mut environment =
        Environment { now, build: shared.build, limits: &shared.options.limits, take_slot: &mut take_slot };
    let decided = decide(&mut environment);
    if decided.is_err() {
        for _ in 0..in_hand.give_back(taken) {
            shared.release_slot();
        }
    }
    decided
}

/// Takes the first turn of a run. If its code asks for more than a turn may hold, the run begins without it, held.
fn first_turn<S: Clone>(
    shared: &Shared,
    in_hand: &InHand,
    at: Timestamp,
    start: S,
    held: Option<Held>,
    begin: impl Fn(S, Option<Held>, &mut Environment<'_>) -> Result<(Execution, Decision), Rejection>,
) -> Result<(Execution, Decision), Rejection> {
    let mut overran = None;
    let begun = decide_with(shared, in_hand, at, |environment| {
        let (execution, first) = begin(start.clone(), held, environment)?;
        overran = execution.overran().cloned();
        match &overran {
            None => Ok((execution, first)),
            Some(held) => Err(Rejection::Held { why: held.to_string() }),
        }
    });
    match overran {
        None => begun,
        Some(held) => decide_with(shared, in_hand, at, |environment| begin(start, Some(held), environment)),
    }
}

/// When a run starts that follows another one of its workflow id: never at the same moment, so that the start times tell
/// which run is the newest.
pub(super) fn newer_than(before: Option<Timestamp>, now: Timestamp) -> Timestamp {
    before.map_or(now, |before| now.max(before.plus(std::time::Duration::from_micros(1))))
}
