//! An execution: a run together with its code, able to decide.
//!
//! Kinds of method: getters; `start`, `load` (construction); `decide` (what came in); `query`, `validate` (questions
//! that change nothing). Calling order: construct, then `decide` any number of times; every decision must be committed
//! before the next one's effects are released, in order.
//!
//! Invariant: one activating event is one activation, and the commands it causes follow it in the same turn before the
//! next activating event. A held execution has no driver: it remembers, keeps inputs in the inbox and decides nothing.
//! Which family an input or a command belongs to stands in `routes`.
//!
//! Long: what comes in, what is kept and what is drained are one order, and are read as one.

use std::collections::BTreeMap;

use super::decision::{Decision, Environment, FollowUp, NextRun, TurnDraft};
use super::held::{Held, HeldCode};
use super::replay::{LoadError, TurnWalk, fold_run};
use super::routes::waits;
use super::run::{Run, RunPhase};
use super::signal::RequestIds;
use crate::seeded::{self, Bug};
use crate::vocabulary::*;
use crate::workflow::WorkflowRegistry;

/// A loaded run.
pub struct Execution {
    pub(super) run: Run,
    pub(super) code: Code,
}

pub(super) enum Code {
    Live(Box<dyn Driver>),
    Held(Held),
    /// The code asked for more than one turn may hold, or has a defect, in the midst of a turn that must not be written:
    /// the run is to be read again, and held.
    Undone(Held),
    /// The run is closed and nobody asked its code anything yet.
    Unneeded,
}

impl Code {
    /// The signals that it was given and has not taken; of a run that is held nobody knows.
    pub(super) fn untaken_signals(&self) -> Vec<SignalName> {
        match self {
            Code::Live(driver) => driver.untaken_signals(),
            Code::Held(_) | Code::Undone(_) | Code::Unneeded => Vec::new(),
        }
    }
}

impl Execution {
    /// Begins a run: its first turn.
    ///
    /// Fails, changing nothing, when the registry has no code for the type.
    pub fn start(
        run_id: RunId,
        started: WorkflowExecutionStarted,
        registry: &WorkflowRegistry,
        environment: &mut Environment<'_>,
    ) -> Result<(Execution, Decision), Rejection> {
        let driver = registry.create(&started, run_id)?;
        let first = NextRun { run_id, started, inbox: Vec::new() };
        Ok(Self::first_turn(first, Code::Live(driver), environment))
    }

    /// As [`Execution::start`], for the next run of a chain, which must begin: without code for its type it waits, held,
    /// as if for the end of a backoff. What is in its inbox is decided next, with [`Execution::decide_inbox`].
    pub fn start_or_hold(
        next: NextRun,
        registry: &WorkflowRegistry,
        environment: &mut Environment<'_>,
    ) -> (Execution, Decision) {
        let code = match registry.create(&next.started, next.run_id) {
            Ok(driver) => Code::Live(driver),
            Err(why) => {
                return Self::start_held_with(next, Held::Load(LoadError::UnknownWorkflowType(why)), environment);
            }
        };
        Self::first_turn(next, code, environment)
    }

    /// As [`Execution::start`], without running the code: the run waits, held, as if for the end of a backoff.
    pub fn start_held(
        run_id: RunId,
        started: WorkflowExecutionStarted,
        held: Held,
        environment: &mut Environment<'_>,
    ) -> (Execution, Decision) {
        Self::start_held_with(NextRun { run_id, started, inbox: Vec::new() }, held, environment)
    }

    /// As [`Execution::start_held`], for the next run of a chain, with what it has to decide.
    pub fn start_held_with(mut next: NextRun, held: Held, environment: &mut Environment<'_>) -> (Execution, Decision) {
        next.started.start_at = next.started.start_at.or(Some(environment.now));
        Self::first_turn(next, Code::Held(held), environment)
    }

    /// As [`Execution::start`], for a run that is forked at its beginning: these side effects have their values already.
    /// `tell` adds what it is told in the same turn.
    pub(super) fn begin_with(
        first: NextRun,
        code: Box<dyn Driver>,
        side_effects: BTreeMap<Seq, Payload>,
        environment: &mut Environment<'_>,
        tell: impl FnOnce(&mut Execution, &mut TurnDraft<'_, '_>),
    ) -> (Execution, Decision) {
        Self::first_turn_with(first, Code::Live(code), side_effects, environment, tell)
    }

    fn first_turn(next: NextRun, code: Code, environment: &mut Environment<'_>) -> (Execution, Decision) {
        Self::first_turn_with(next, code, BTreeMap::new(), environment, |_, _| {})
    }

    fn first_turn_with(
        next: NextRun,
        code: Code,
        side_effects: BTreeMap<Seq, Payload>,
        environment: &mut Environment<'_>,
        tell: impl FnOnce(&mut Execution, &mut TurnDraft<'_, '_>),
    ) -> (Execution, Decision) {
        let NextRun { run_id, started, inbox } = next;
        let run = Run::new(run_id, environment.now, environment.build, &started);
        let mut execution = Execution { run, code };
        let mut draft = TurnDraft::new(&execution.run, environment);
        draft.side_effects = side_effects;
        for input in inbox {
            execution.run.note_request(&input);
            execution.run.inbox.push_back(input.clone());
            draft.inbox_added.push(input);
        }
        draft.push(&mut execution.run, EventKind::WorkflowExecutionStarted(Box::new(started)));
        execution.settle(&mut draft);
        tell(&mut execution, &mut draft);
        let decision = draft.finish(&mut execution.run);
        (execution, decision)
    }

    /// Rebuilds a run from all of its turns. A run whose code no longer fits comes back held.
    ///
    /// Fails only when the turns are not a history at all.
    pub fn load(turns: &[Turn], registry: &WorkflowRegistry, build: BuildId) -> Result<Execution, LoadError> {
        match Self::walk(TurnWalk::begin(turns, registry), turns, build) {
            Ok(walk) => Ok(Execution { run: walk.run, code: Code::Live(walk.driver) }),
            Err(error @ LoadError::NotAHistory { .. }) => Err(error),
            Err(error) => Ok(Execution { run: fold_run(turns)?, code: Code::Held(Held::Load(error)) }),
        }
    }

    /// As [`Execution::load`], from a snapshot and the turns after it.
    pub fn resume(run: Run, driver: Box<dyn Driver>, turns: &[Turn], build: BuildId) -> Result<Execution, LoadError> {
        let walk = Self::walk(Ok(TurnWalk { run, driver }), turns, build)?;
        Ok(Execution { run: walk.run, code: Code::Live(walk.driver) })
    }

    /// Only the facts of a run, for reading: no code is run.
    pub fn facts(turns: &[Turn]) -> Result<Execution, LoadError> {
        Ok(Execution { run: fold_run(turns)?, code: Code::Unneeded })
    }

    fn walk(begun: Result<TurnWalk, LoadError>, turns: &[Turn], build: BuildId) -> Result<TurnWalk, LoadError> {
        let mut walk = begun?;
        for turn in turns {
            walk.turn(turn, build)?;
        }
        if seeded::on(Bug::DedupeNotPersisted) {
            walk.run.request_ids = RequestIds::default();
        }
        walk.run.activities.forget_attempts();
        Ok(walk)
    }

    /// The facts of the run, without its code.
    pub fn run(&self) -> &Run {
        &self.run
    }
    /// Why the code cannot go on, if it cannot.
    pub fn held(&self) -> Option<&Held> {
        match &self.code {
            Code::Held(held) | Code::Undone(held) => Some(held),
            Code::Live(_) | Code::Unneeded => None,
        }
    }
    /// The code asked for more than a turn may hold, or has a defect: what was decided last must not be written, and this
    /// is to be dropped.
    pub fn undone(&self) -> Option<&Held> {
        match &self.code {
            Code::Undone(held) => Some(held),
            Code::Live(_) | Code::Held(_) | Code::Unneeded => None,
        }
    }
    /// When the run must be woken at the latest. A held run only hears its own timeouts.
    pub fn next_deadline(&self) -> Option<Timestamp> {
        self.run.next_deadline_if(self.run.paused || self.held().is_some())
    }
    /// Takes the code away from a run, for example because it did not come back.
    pub fn hold(&mut self, held: Held) {
        self.code = Code::Held(held);
    }
    /// The code has heard all that was copied, and is this run from here on.
    pub(super) fn forked(&mut self, run_id: RunId) {
        if let Code::Live(driver) = &mut self.code {
            driver.forked(run_id);
        }
    }
    /// What the code waits for now; nothing where no code is loaded.
    pub fn awaiting(&self) -> Vec<Awaited> {
        match &self.code {
            Code::Live(driver) => driver.awaiting().into_iter().map(|one| self.run.with_time_left(one)).collect(),
            Code::Held(_) | Code::Undone(_) | Code::Unneeded => Vec::new(),
        }
    }
    /// The state of a state-machine workflow for people; `None` for an async one, and where no code is loaded.
    pub fn state_json(&self) -> Option<serde_json::Value> {
        match &self.code {
            Code::Live(driver) => driver.state_json(),
            Code::Held(_) | Code::Undone(_) | Code::Unneeded => None,
        }
    }
    /// The code's state as bytes, where its form allows it. Only sensible when nothing waits in the inbox.
    pub fn snapshot(&self) -> Option<Vec<u8>> {
        match &self.code {
            Code::Live(driver) if self.run.inbox.is_empty() && !self.run.is_closed() => driver.snapshot(),
            Code::Live(_) | Code::Held(_) | Code::Undone(_) | Code::Unneeded => None,
        }
    }

    /// Answers a question from the current state (E13). Never an event.
    pub fn query(&mut self, name: &QueryName, input: &Payload) -> Result<Payload, Rejection> {
        match &mut self.code {
            Code::Live(driver) => Ok(driver.query(name, input)?),
            Code::Held(Held::Damaged { why }) if self.run.is_closed() => Err(Rejection::Damaged { why: why.clone() }),
            Code::Held(held) | Code::Undone(held) => Err(Rejection::Held { why: held.to_string() }),
            Code::Unneeded => Err(Rejection::Held { why: "the code of this run is not loaded".into() }),
        }
    }

    /// Decides one input: the whole turn, with everything it causes.
    ///
    /// Fails when the input is refused, or when nothing of the turn may be written: [`Execution::undone`].
    pub fn decide(&mut self, input: Input, environment: &mut Environment<'_>) -> Result<Decision, Rejection> {
        let decision = self.decide_input(input, environment)?;
        self.written_if_done(decision)
    }

    fn written_if_done(&self, decision: Decision) -> Result<Decision, Rejection> {
        match self.undone() {
            Some(held) => Err(Rejection::Held { why: held.to_string() }),
            None => Ok(decision),
        }
    }

    fn decide_input(&mut self, input: Input, environment: &mut Environment<'_>) -> Result<Decision, Rejection> {
        let mut draft = TurnDraft::new(&self.run, environment);
        if self.run.is_repeated(&input) {
            return Ok(draft.finish(&mut self.run));
        }
        if self.run.is_closed() && self.run.hears_after_its_end(&mut draft, &input) {
            return Ok(draft.finish(&mut self.run));
        }
        self.refuse_if_closed(&input)?;
        let held = matches!(self.code, Code::Held(_));
        if held && matches!(input, Input::StartActivity { .. }) {
            // Nothing is appended to a held run; recovery queues the attempt again.
            return Ok(draft.finish(&mut self.run));
        }
        if !held && self.run.has_not_begun() && matches!(input, Input::RequestCancel { .. }) {
            self.run.cancel_before_it_begins(&mut draft, input);
            return Ok(draft.finish(&mut self.run));
        }
        if (held || self.run.is_buffering()) && waits(&input) {
            self.keep(&mut draft, input)?;
            return Ok(draft.finish(&mut self.run));
        }
        let unpauses = matches!(input, Input::Unpause { .. });
        let drains = unpauses || matches!(input, Input::Deadline | Input::WorkerRestarted);
        // A restart that was kept and one that is told now are the same to the run.
        if input != Input::WorkerRestarted || !self.run.inbox.contains(&input) {
            self.accept(&mut draft, input)?;
            self.settle(&mut draft);
        }
        if drains {
            self.drain_inbox(&mut draft, usize::MAX);
        }
        if unpauses && !self.run.is_closed() && !held {
            self.run.queue_waiting(&mut draft);
            draft.follow_up(Input::Deadline);
            self.settle(&mut draft);
        }
        Ok(draft.finish(&mut self.run))
    }

    /// Decides what waits in the inbox of a run that is neither paused nor held any more.
    /// Fails when nothing of the turn may be written: [`Execution::undone`].
    pub fn decide_inbox(&mut self, environment: &mut Environment<'_>) -> Result<Decision, Rejection> {
        let mut draft = TurnDraft::new(&self.run, environment);
        self.drain_inbox(&mut draft, usize::MAX);
        let decision = draft.finish(&mut self.run);
        self.written_if_done(decision)
    }

    /// Decides what was kept, in order, when nothing keeps it waiting any more; at most so many inputs, and says how many
    /// it were. A restart that was kept comes first: what is decided after it may start attempts, and those are not lost.
    pub(super) fn drain_inbox(&mut self, draft: &mut TurnDraft<'_, '_>, most: usize) -> usize {
        let decides =
            |this: &Self| !this.run.is_buffering() && matches!(this.code, Code::Live(_)) && !this.run.is_closed();
        if most > 0 && decides(self) && self.run.inbox.contains(&Input::WorkerRestarted) {
            self.run.recover(draft);
            self.settle(draft);
        }
        let asks_to_cancel = |input: &&Input| matches!(input, Input::RequestCancel { .. });
        let is_live = matches!(self.code, Code::Live(_));
        if most > 0
            && is_live
            && self.run.has_not_begun()
            && let Some(cancel) = self.run.inbox.iter().find(asks_to_cancel).cloned()
        {
            self.run.cancel_before_it_begins(draft, cancel);
        }
        let mut taken = 0;
        while taken < most && decides(self) {
            let Some(input) = self.run.inbox.pop_front() else { break };
            taken += 1;
            draft.inbox_taken += 1;
            let decided = input != Input::WorkerRestarted && self.accept(draft, input).is_ok();
            // What no longer applies (a stale attempt) is taken from the inbox and has no further effect.
            if decided {
                self.settle(draft);
            }
        }
        taken
    }

    fn refuse_if_closed(&self, input: &Input) -> Result<(), Rejection> {
        let RunPhase::Closed(outcome) = &self.run.phase else { return Ok(()) };
        if let Input::ActivityOutcome { seq, attempt, .. } | Input::Heartbeat { seq, attempt, .. } = input {
            return Err(Rejection::StaleAttempt { seq: *seq, attempt: *attempt, current: *attempt });
        }
        let (workflow_id, run_id) = self.run.target();
        Err(Rejection::Closed { workflow_id, run_id, status: outcome.status() })
    }

    /// Puts an input into the inbox, durably.
    fn keep(&mut self, draft: &mut TurnDraft<'_, '_>, input: Input) -> Result<(), Rejection> {
        match &input {
            Input::ActivityOutcome { seq, attempt, .. } => {
                self.run.check_attempt(*seq, *attempt)?;
                if self.run.has_outcome(*seq, *attempt) {
                    return Err(Rejection::StaleAttempt { seq: *seq, attempt: *attempt, current: *attempt });
                }
            }
            Input::Update { .. } => {
                let why = match self.held() {
                    Some(held) => held.to_string(),
                    None if self.run.paused => RUN_IS_PAUSED.into(),
                    None if self.run.is_delayed() => START_IS_DELAYED.into(),
                    None => FIRST_TURN_BACKS_OFF.into(),
                };
                return Err(Rejection::Held { why });
            }
            // After a restart it is told once more of what it has caused.
            Input::WorkerRestarted
            | Input::ChildStarted { .. }
            | Input::ChildClosed { .. }
            | Input::SignalDelivered { .. }
            | Input::CancelDelivered { .. }
                if self.run.inbox.contains(&input) =>
            {
                return Ok(());
            }
            _ => {}
        }
        // What the run itself has caused is bounded by what it asked for, and is never refused.
        let asked = matches!(input, Input::Signal(_) | Input::RequestCancel { .. });
        let limit = draft.limits().inbox_max;
        if asked && self.run.inbox.len() >= limit {
            return Err(Rejection::InboxFull { limit });
        }
        self.run.note_request(&input);
        self.run.inbox.push_back(input.clone());
        draft.inbox_added.push(input);
        Ok(())
    }

    /// Lets the code hear what was pushed, and does what follows from that, until nothing is left.
    pub(super) fn settle(&mut self, draft: &mut TurnDraft<'_, '_>) {
        loop {
            self.activate_pending(draft);
            let Some(follow_up) = draft.follow_ups.pop_front() else { break };
            if self.run.is_closed() || !self.run.still_fits(&follow_up) {
                continue;
            }
            match follow_up {
                FollowUp::Event(event) => draft.push(&mut self.run, event),
                FollowUp::RecoverActivity(seq) => self.run.recover_activity(draft, seq),
                // An input the run made for itself cannot be refused for a reason that anyone could act on.
                FollowUp::Input(input) => drop(self.accept(draft, input)),
            }
        }
    }

    pub(super) fn activate_pending(&mut self, draft: &mut TurnDraft<'_, '_>) {
        while let Some(job) = draft.jobs.pop_front() {
            if self.run.is_closed() {
                continue;
            }
            let Code::Live(driver) = &mut self.code else { continue };
            driver.takes_payloads_of(draft.limits().payload_max);
            let commands = driver.activate(Activation {
                at: draft.at(),
                run_id: self.run.visible_run_id,
                history: self.run.info.history,
                job,
                markers: draft.take_markers(),
            });
            if let Some(what) = driver.overrun() {
                self.code = Code::Undone(Held::Overrun { what });
                return;
            }
            if let Some(defect) = driver.defect() {
                let hears = draft.heard(&self.run);
                self.code = Code::Undone(Held::Code(Box::new(HeldCode::live(defect, &self.run, draft.build(), hears))));
                return;
            }
            for command in commands {
                if self.run.is_closed() {
                    break;
                }
                self.command(draft, command);
            }
        }
    }
}
