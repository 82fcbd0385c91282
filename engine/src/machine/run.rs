//! The state of a run: what its events add up to. This file routes; the families decide.
//!
//! Invariant: `Run` is exactly the fold of the turns that were applied to it, in order. Every pending deadline of the
//! run stands in `due`, and `due` holds nothing else. States are rebuilt, never trusted from disk without their events
//! (a snapshot is a cache that can be thrown away).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde::{Deserialize, Serialize};

use super::activities::Activities;
use super::child_workflow::Child;
use super::external::External;
use super::family::FamilyEvent;
use super::signal::RequestIds;
use super::timer::Timers;
use super::update::Update;
use crate::vocabulary::*;

/// One run, as far as its events tell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    pub(super) info: RunInfo,
    pub(super) started: WorkflowExecutionStarted,
    pub(super) next_event: EventId,
    pub(super) last_at: Timestamp,
    pub(super) phase: RunPhase,
    pub(super) paused: bool,
    pub(super) cancel_requested: Option<String>,
    pub(super) activities: Activities,
    pub(super) timers: Timers,
    pub(super) children: BTreeMap<Seq, Child>,
    pub(super) externals: BTreeMap<Seq, External>,
    pub(super) updates: BTreeMap<UpdateId, Update>,
    pub(super) request_ids: RequestIds,
    pub(super) inbox: VecDeque<Input>,
    pub(super) due: Deadlines,
    /// Whose ids the code sees and derives others from: this run, unless the events are a copy of another one's.
    pub(super) visible_run_id: RunId,
    /// Children and messages that were under way when this run was forked: they are another run's to drive. Nothing is
    /// sent for them; what became of them is told.
    pub(super) of_source: BTreeSet<Seq>,
}

/// Where the run is in its life.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) enum RunPhase {
    /// Waits for the first activation of a retried run.
    Backoff,
    Open,
    Closed(CloseOutcome),
}

/// What the run waits for, by moment: each family adds and takes away its own.
pub(super) type Deadlines = BTreeSet<(Timestamp, Due)>;

/// What becomes due at a moment. The order of the variants is the order in which things due at the same moment happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) enum Due {
    ExecutionTimeout,
    RunTimeout,
    Start,
    Timer(Seq),
    ActivityRetry(Seq),
    ScheduleToStart(Seq),
    Heartbeat(Seq),
    StartToClose(Seq),
    ScheduleToClose(Seq),
}

impl Run {
    /// The run that its first event describes. The event itself still has to be applied.
    pub fn new(run_id: RunId, at: Timestamp, build: BuildId, started: &WorkflowExecutionStarted) -> Self {
        Run {
            info: RunInfo::started(run_id, at, build, started),
            started: started.clone(),
            next_event: EventId(1),
            last_at: at,
            phase: RunPhase::Open,
            paused: false,
            cancel_requested: None,
            activities: Activities::default(),
            timers: Timers::default(),
            children: BTreeMap::new(),
            externals: BTreeMap::new(),
            updates: BTreeMap::new(),
            request_ids: RequestIds::default(),
            inbox: VecDeque::new(),
            due: BTreeSet::new(),
            visible_run_id: started.original_run(run_id),
            of_source: BTreeSet::new(),
        }
    }

    /// The run itself; a continued or retried run has another.
    pub fn id(&self) -> RunId {
        self.info.run_id
    }
    /// What lists show of it.
    pub fn info(&self) -> &RunInfo {
        &self.info
    }
    /// Its first event.
    pub fn started(&self) -> &WorkflowExecutionStarted {
        &self.started
    }
    /// The id that the next event gets; a turn with another is refused (G11).
    pub fn next_event(&self) -> EventId {
        self.next_event
    }
    /// The time of the last turn. No later turn is earlier.
    pub fn last_at(&self) -> Timestamp {
        self.last_at
    }
    /// Whether it has ended, in whatever way.
    pub fn is_closed(&self) -> bool {
        matches!(self.phase, RunPhase::Closed(_))
    }
    /// How it ended; `None` while it is open.
    pub fn outcome(&self) -> Option<&CloseOutcome> {
        match &self.phase {
            RunPhase::Closed(outcome) => Some(outcome),
            RunPhase::Backoff | RunPhase::Open => None,
        }
    }
    /// Whether inputs are kept until somebody unpauses it.
    pub fn is_paused(&self) -> bool {
        self.paused
    }
    /// Whether somebody has asked it to cancel; it may go on all the same.
    pub fn cancel_requested(&self) -> bool {
        self.cancel_requested.is_some()
    }
    /// How many inputs are kept until the run is unpaused or its code fits.
    pub fn inbox_len(&self) -> usize {
        self.inbox.len()
    }
    pub(super) fn target(&self) -> (WorkflowId, RunId) {
        (self.info.workflow_id.clone(), self.info.run_id)
    }
    /// Inputs are kept in the inbox instead of being decided.
    pub(super) fn is_buffering(&self) -> bool {
        self.paused || self.phase == RunPhase::Backoff
    }

    /// When its code begins, while that has not come.
    pub fn starts_at(&self) -> Option<Timestamp> {
        self.started.start_at.filter(|_| self.phase == RunPhase::Backoff)
    }
    /// Nothing of it has run, in this run or in one before it: somebody wanted it later.
    pub(super) fn is_delayed(&self) -> bool {
        let first = self.started.attempt == Attempt(1) && self.started.continued_from.is_none();
        self.phase == RunPhase::Backoff && !self.paused && first
    }
    /// As [`Run::is_delayed`], or an attempt that waits after one that has failed, and so has undone what it undoes. One
    /// that goes on as new from another has the work of that one behind it: its code says how it ends.
    pub(super) fn has_not_begun(&self) -> bool {
        let tries_again = self.started.attempt > Attempt(1) && self.phase == RunPhase::Backoff && !self.paused;
        // One that ran out of time heard nothing, and has undone nothing.
        let before = self.started.last_failure.as_ref();
        let out_of_time = before.is_some_and(|failure| matches!(failure.kind, FailureKind::Timeout { .. }));
        (tries_again && !out_of_time) || self.is_delayed()
    }

    /// When the run must be woken at the latest. A paused run only hears its own timeouts.
    pub fn next_deadline(&self) -> Option<Timestamp> {
        self.next_deadline_if(self.paused)
    }
    pub(super) fn next_deadline_if(&self, frozen: bool) -> Option<Timestamp> {
        if self.is_closed() {
            return None;
        }
        self.due.iter().find(|(_, due)| !frozen || due.ignores_pause()).map(|(at, _)| *at)
    }

    /// What indexes may know of the run.
    pub fn outlook(&self) -> Outlook {
        let messages = !self.children.is_empty() || !self.externals.is_empty();
        let work = !self.activities.is_empty() || (!self.inbox.is_empty() && !self.paused);
        let attention = messages || (work && !self.is_closed());
        Outlook { next_deadline: self.next_deadline(), attention }
    }

    /// Folds one event. The only way in which a run changes, apart from its inbox and heartbeats.
    pub fn apply(&mut self, at: Timestamp, event: &EventKind) {
        self.next_event = self.next_event.next();
        self.info.apply(at, event);
        self.info.history.events += 1;
        self.info.history.bytes += event.size();
        self.route(at, event);
        self.last_at = self.last_at.max(at);
        if event.closes().is_some() {
            self.due.clear();
            self.activities.clear();
            self.timers.clear();
            self.keep_what_outlives(event.handed_over());
        }
        if cfg!(debug_assertions)
            && let Err(violation) = self.check()
        {
            panic!("run {} after {}: {violation}", self.id(), event.name());
        }
    }

    /// Gives the event to the family it belongs to. No arm does more.
    pub(super) fn route(&mut self, at: Timestamp, event: &EventKind) {
        match FamilyEvent::of(event) {
            FamilyEvent::Lifecycle(event) => self.apply_lifecycle(at, event),
            FamilyEvent::Signal(signal) => self.apply_signal(signal),
            FamilyEvent::Update(event) => self.apply_update(event),
            FamilyEvent::Activity(seq, event) => self.activities.apply(at, seq, event, &mut self.due),
            FamilyEvent::Timer(seq, event) => self.timers.apply(seq, event, &mut self.due),
            FamilyEvent::Child(seq, event) => self.apply_child(seq, event),
            FamilyEvent::External(seq, event) => self.apply_external(seq, event),
            FamilyEvent::Closed(outcome) => self.phase = RunPhase::Closed(outcome),
        }
    }

    /// Folds what a turn carries beside its events.
    pub fn apply_rest(&mut self, turn: &Turn) {
        self.info.build = turn.build;
        for beat in &turn.heartbeats {
            self.activities.beat(turn.at, beat, &mut self.due);
        }
        for seq in &turn.delivered {
            self.forget_message(*seq);
        }
        for _ in 0..turn.inbox_taken {
            let taken = self.inbox.pop_front();
            if turn.events.iter().any(|event| matches!(event, EventKind::WorkflowExecutionForked { .. })) {
                self.taken_by_fork(turn, taken);
            }
        }
        for input in &turn.inbox_added {
            self.note_request(input);
            self.inbox.push_back(input.clone());
        }
    }

    /// A fork of older programs took the end of an attempt without a word, and makes the attempt again.
    fn taken_by_fork(&mut self, turn: &Turn, taken: Option<Input>) {
        let Some(Input::ActivityOutcome { seq, attempt, .. }) = taken else { return };
        let begins = |event: &EventKind| matches!(event, EventKind::ActivityTaskStarted { seq: of, .. } if *of == seq);
        if !turn.events.iter().any(begins) {
            self.activities.made_again(turn.at, seq, attempt, &mut self.due);
        }
    }

    /// What must always be true of a run. Called in debug builds after every event, by the simulator and the debugger.
    pub fn check(&self) -> Result<(), String> {
        for (at, due) in &self.due {
            let known = match due {
                Due::ExecutionTimeout | Due::RunTimeout => true,
                Due::Start => self.phase == RunPhase::Backoff,
                Due::Timer(seq) => self.timers.fires_at(*seq) == Some(*at),
                Due::ActivityRetry(seq)
                | Due::ScheduleToStart(seq)
                | Due::Heartbeat(seq)
                | Due::StartToClose(seq)
                | Due::ScheduleToClose(seq) => self.activities.get(*seq).is_some(),
            };
            if !known {
                return Err(format!("{due:?} is due at {at} but nothing waits for it"));
            }
        }
        if self.is_closed() && !(self.due.is_empty() && self.activities.is_empty() && self.timers.is_empty()) {
            return Err("a closed run has something pending".into());
        }
        Ok(())
    }
}

impl Due {
    pub(super) fn ignores_pause(self) -> bool {
        matches!(self, Due::ExecutionTimeout | Due::RunTimeout)
    }
    pub(super) fn is_of_an_activity(self) -> bool {
        match self {
            Due::ExecutionTimeout | Due::RunTimeout | Due::Start | Due::Timer(_) => false,
            Due::ActivityRetry(_)
            | Due::ScheduleToStart(_)
            | Due::Heartbeat(_)
            | Due::StartToClose(_)
            | Due::ScheduleToClose(_) => true,
        }
    }
}
