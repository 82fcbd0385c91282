//! The history builder: histories written by hand, for tests and fixtures. Its methods are named as events are.
//!
//! Invariant: ids, seqs and times are right by construction: an activating or bookkeeping event opens a turn of its own,
//! commands join the turn before them, seqs count up as a driver would count them, and each turn's [`Outlook`] says what
//! is still pending. The builder does not check that the story makes sense: a test may want one that does not, and
//! whoever reads histories validates them anyway.
//!
//! Long: one method an event, named as the event is.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::*;

/// Builds the turns of one run.
#[derive(Debug, Clone)]
pub struct HistoryBuilder {
    run: RunId,
    now: Timestamp,
    build: BuildId,
    last_seq: Seq,
    /// Activities, and side effects among them, if they are counted by themselves.
    activities: Option<u64>,
    turns: Vec<Turn>,
    timers: BTreeMap<Seq, Timestamp>,
    /// Activities, children and messages that are under way.
    under_way: BTreeSet<Seq>,
    join: bool,
}

impl HistoryBuilder {
    /// When the runs of the builder start: 2026-01-01 00:00 UTC.
    pub const EPOCH: Timestamp = Timestamp(1_767_225_600_000_000);
    /// How much later each turn is than the one before, unless [`Self::after`] says otherwise.
    pub const STEP: Duration = Duration::from_millis(1);

    /// A run that has just started. Its run id is derived from its workflow id.
    pub fn started(workflow_type: &str, workflow_id: &str, input: Payload) -> Self {
        let run = Self::run_id(workflow_id);
        let start = StartWorkflow::new(WorkflowType::of(workflow_type), WorkflowId::of(workflow_id)).input(input);
        Self::started_with(run, started_event(run, start))
    }
    /// As [`Self::started`], with every attribute given.
    pub fn started_with(run: RunId, started: WorkflowExecutionStarted) -> Self {
        let mut builder = HistoryBuilder {
            run,
            now: Self::EPOCH,
            build: BuildId(1),
            last_seq: Seq(0),
            activities: started.numbering.map(|IdNumbering::ByKind| 0),
            turns: Vec::new(),
            timers: BTreeMap::new(),
            under_way: BTreeSet::new(),
            join: false,
        };
        builder.turn(EventKind::WorkflowExecutionStarted(Box::new(started)));
        builder
    }
    /// The run id the builder gives to a workflow id.
    pub fn run_id(workflow_id: &str) -> RunId {
        RunId([0; 16]).derive(workflow_id, 0)
    }

    /// The finished history.
    pub fn turns(self) -> Vec<Turn> {
        self.turns
    }
    /// The run whose history is built.
    pub fn run(&self) -> RunId {
        self.run
    }
    /// The time of the last turn.
    pub fn now(&self) -> Timestamp {
        self.now
    }
    /// The next turn is that much later than the one before it (instead of [`Self::STEP`]).
    pub fn after(&mut self, delay: Duration) -> &mut Self {
        let back = i64::try_from(Self::STEP.as_micros()).unwrap_or(0);
        self.now = Timestamp(self.now.plus(delay).0.saturating_sub(back));
        self
    }
    /// The next event joins the current turn: inputs that arrived together.
    pub fn together(&mut self) -> &mut Self {
        self.join = true;
        self
    }
    /// Turns from here on are decided by another build of the code.
    pub fn deployed(&mut self, build: BuildId) -> &mut Self {
        self.build = build;
        self
    }
    /// Any event that is not a command.
    pub fn turn(&mut self, event: EventKind) -> &mut Self {
        let joins = std::mem::take(&mut self.join) && !self.turns.is_empty();
        if !joins {
            let first_event = self.turns.last().map_or(EventId(1), Turn::next_event);
            if first_event != EventId(1) {
                self.now = self.now.plus(Self::STEP);
            }
            self.turns.push(Turn::of(self.run, first_event, self.now, self.build, Vec::new()));
        }
        self.command(event)
    }
    /// Any event that joins the current turn, as commands do.
    pub fn command(&mut self, event: EventKind) -> &mut Self {
        self.track(&event);
        let outlook =
            Outlook { next_deadline: self.timers.values().min().copied(), attention: !self.under_way.is_empty() };
        if let Some(turn) = self.turns.last_mut() {
            turn.events.push(event);
            turn.outlook = outlook;
        }
        self
    }
    fn numbered_command(&mut self, event: impl FnOnce(Seq) -> EventKind) -> Seq {
        self.last_seq = self.last_seq.next();
        let seq = self.last_seq;
        self.command(event(seq));
        seq
    }
    fn track(&mut self, event: &EventKind) {
        use EventKind::*;
        match event {
            TimerStarted { seq, fire_at, .. } => {
                self.timers.insert(*seq, *fire_at);
            }
            TimerFired { seq } | TimerCanceled { seq } => {
                self.timers.remove(seq);
            }
            ActivityTaskScheduled(scheduled) => {
                self.under_way.insert(scheduled.seq);
            }
            StartChildWorkflowExecutionInitiated(initiated) => {
                self.under_way.insert(initiated.seq);
            }
            SignalExternalWorkflowExecutionInitiated(initiated) => {
                self.under_way.insert(initiated.seq);
            }
            RequestCancelExternalWorkflowExecutionInitiated { seq, .. } => {
                self.under_way.insert(*seq);
            }
            ActivityTaskCompleted { seq, .. }
            | ActivityTaskFailed { seq, .. }
            | ActivityTaskTimedOut { seq, .. }
            | ActivityTaskCanceled { seq, .. }
            | StartChildWorkflowExecutionFailed { seq, .. }
            | ChildWorkflowExecutionCompleted { seq, .. }
            | ChildWorkflowExecutionFailed { seq, .. }
            | ChildWorkflowExecutionCanceled { seq, .. }
            | ChildWorkflowExecutionTimedOut { seq }
            | ChildWorkflowExecutionTerminated { seq, .. }
            | ExternalWorkflowExecutionSignaled { seq }
            | SignalExternalWorkflowExecutionFailed { seq, .. }
            | ExternalWorkflowExecutionCancelRequested { seq }
            | RequestCancelExternalWorkflowExecutionFailed { seq, .. } => {
                self.under_way.remove(seq);
            }
            closing if closing.closes().is_some() => {
                self.timers.clear();
                self.under_way.clear();
            }
            _ => {}
        }
    }
}

/// What reached the run: each opens a turn.
impl HistoryBuilder {
    /// The backoff of a retried run is over.
    pub fn first_workflow_task_scheduled(&mut self) -> &mut Self {
        self.turn(EventKind::FirstWorkflowTaskScheduled)
    }
    /// A signal without a sender.
    pub fn signaled(&mut self, name: &str, input: Payload) -> &mut Self {
        self.turn(EventKind::WorkflowExecutionSignaled(WorkflowExecutionSignaled {
            name: SignalName::of(name),
            input,
            identity: None,
            request_id: None,
        }))
    }
    /// Somebody asks the run to cancel.
    pub fn cancel_requested(&mut self, reason: &str) -> &mut Self {
        self.turn(EventKind::WorkflowExecutionCancelRequested {
            reason: reason.to_owned(),
            identity: None,
            request_id: None,
        })
    }
    /// An update that the validator let through.
    pub fn update_accepted(&mut self, update_id: &str, name: &str, input: Payload) -> &mut Self {
        self.turn(EventKind::WorkflowExecutionUpdateAccepted {
            update_id: UpdateId::of(update_id),
            name: UpdateName::of(name),
            input,
            identity: None,
        })
    }
    /// Somebody pauses the run.
    pub fn paused(&mut self, reason: &str) -> &mut Self {
        self.turn(EventKind::WorkflowExecutionPaused { reason: reason.to_owned(), identity: None })
    }
    /// Somebody unpauses the run.
    pub fn unpaused(&mut self, reason: &str) -> &mut Self {
        self.turn(EventKind::WorkflowExecutionUnpaused { reason: reason.to_owned(), identity: None })
    }
    /// An attempt begins; bookkeeping, so no command may follow.
    pub fn activity_started(&mut self, seq: Seq, attempt: u32) -> &mut Self {
        self.turn(EventKind::ActivityTaskStarted { seq, attempt: Attempt(attempt) })
    }
    /// The attempt failed and the next follows after `delay`.
    pub fn activity_attempt_failed(&mut self, seq: Seq, attempt: u32, failure: Failure, delay: Duration) -> &mut Self {
        let next_attempt_at = self.now.plus(Self::STEP).plus(delay);
        self.turn(EventKind::ActivityTaskAttemptFailed { seq, attempt: Attempt(attempt), failure, next_attempt_at })
    }
    /// The activity has a result.
    pub fn activity_completed(&mut self, seq: Seq, result: Payload) -> &mut Self {
        self.turn(EventKind::ActivityTaskCompleted { seq, result, identity: None })
    }
    /// The last attempt failed.
    pub fn activity_failed(&mut self, seq: Seq, failure: Failure, retry_state: RetryState) -> &mut Self {
        self.turn(EventKind::ActivityTaskFailed { seq, failure, retry_state })
    }
    /// A limit ran out, without a heartbeat before.
    pub fn activity_timed_out(&mut self, seq: Seq, timeout: TimeoutType, retry_state: RetryState) -> &mut Self {
        let failure = Failure::timeout(timeout, None);
        self.turn(EventKind::ActivityTaskTimedOut { seq, failure, retry_state })
    }
    /// The activity stopped because it was asked to.
    pub fn activity_canceled(&mut self, seq: Seq, details: Option<Payload>) -> &mut Self {
        self.turn(EventKind::ActivityTaskCanceled { seq, details })
    }
    /// The timer fires in a turn at its time, or now if that is past.
    pub fn timer_fired(&mut self, seq: Seq) -> &mut Self {
        if let Some(fire_at) = self.timers.get(&seq).copied() {
            let wait = fire_at.since(self.now);
            self.after(wait.max(Self::STEP));
        }
        self.turn(EventKind::TimerFired { seq })
    }
    /// The child could not be started.
    pub fn child_start_failed(&mut self, seq: Seq, failure: Failure) -> &mut Self {
        self.turn(EventKind::StartChildWorkflowExecutionFailed { seq, failure })
    }
    /// The child begins; its run id is derived from this run and `seq`.
    pub fn child_started(&mut self, seq: Seq) -> &mut Self {
        let run_id = self.run.derive("child", seq.0);
        self.turn(EventKind::ChildWorkflowExecutionStarted { seq, run_id })
    }
    /// The child has a result.
    pub fn child_completed(&mut self, seq: Seq, result: Payload) -> &mut Self {
        self.turn(EventKind::ChildWorkflowExecutionCompleted { seq, result })
    }
    /// The child failed for good.
    pub fn child_failed(&mut self, seq: Seq, failure: Failure) -> &mut Self {
        self.turn(EventKind::ChildWorkflowExecutionFailed { seq, failure })
    }
    /// The child ended because it was asked to, and left nothing to say.
    pub fn child_canceled(&mut self, seq: Seq) -> &mut Self {
        self.turn(EventKind::ChildWorkflowExecutionCanceled { seq, details: None })
    }
    /// The signal is in the other history.
    pub fn external_signaled(&mut self, seq: Seq) -> &mut Self {
        self.turn(EventKind::ExternalWorkflowExecutionSignaled { seq })
    }
    /// The signal cannot be delivered.
    pub fn external_signal_failed(&mut self, seq: Seq, failure: Failure) -> &mut Self {
        self.turn(EventKind::SignalExternalWorkflowExecutionFailed { seq, failure })
    }
    /// The cancel request is in the other history.
    pub fn external_cancel_requested(&mut self, seq: Seq) -> &mut Self {
        self.turn(EventKind::ExternalWorkflowExecutionCancelRequested { seq })
    }
    /// A limit of the workflow ran out; no run follows.
    pub fn timed_out(&mut self, timeout: WorkflowTimeout) -> &mut Self {
        self.turn(EventKind::WorkflowExecutionTimedOut { timeout, new_run: None, unhandled_signals: Vec::new() })
    }
    /// The run is ended from outside.
    pub fn terminated(&mut self, reason: &str) -> &mut Self {
        self.turn(EventKind::WorkflowExecutionTerminated {
            reason: reason.to_owned(),
            identity: None,
            reset: None,
            unhandled_signals: Vec::new(),
        })
    }
}

/// What the code asked for: each joins the current turn.
impl HistoryBuilder {
    fn count_activity(&mut self) -> Option<u64> {
        let count = self.activities.as_mut()?;
        *count += 1;
        Some(*count)
    }
    /// An activity named by its number among activities (in a run of before [`IdNumbering`]: by its seq), with a start-to-close timeout of ten seconds.
    pub fn activity_scheduled(&mut self, activity_type: &str, input: Payload) -> Seq {
        let options = ActivityOptions { start_to_close: Some(Duration::from_secs(10)), ..Default::default() };
        self.activity_scheduled_with(activity_type, input, options)
    }
    /// As [`Self::activity_scheduled`], with options of your own.
    pub fn activity_scheduled_with(&mut self, activity_type: &str, input: Payload, options: ActivityOptions) -> Seq {
        let count = self.count_activity();
        self.numbered_command(|seq| {
            let activity_id = ActivityId::of(count.unwrap_or(seq.0).to_string());
            EventKind::ActivityTaskScheduled(Box::new(ActivityTaskScheduled {
                seq,
                activity_id,
                activity_type: ActivityType::of(activity_type),
                input,
                options,
            }))
        })
    }
    /// The code asks the activity to stop.
    pub fn activity_cancel_requested(&mut self, seq: Seq) -> &mut Self {
        self.command(EventKind::ActivityTaskCancelRequested { seq })
    }
    /// A timer that is due `delay` after the current turn.
    pub fn timer_started(&mut self, delay: Duration) -> Seq {
        let fire_at = self.now.plus(delay);
        self.numbered_command(|seq| EventKind::TimerStarted { seq, fire_at, summary: None })
    }
    /// The code no longer waits for the timer.
    pub fn timer_canceled(&mut self, seq: Seq) -> &mut Self {
        self.command(EventKind::TimerCanceled { seq })
    }
    /// A child workflow with the default options.
    pub fn child_initiated(&mut self, workflow_type: &str, workflow_id: &str, input: Payload) -> Seq {
        self.numbered_command(|seq| {
            EventKind::StartChildWorkflowExecutionInitiated(Box::new(ChildWorkflowInitiated {
                seq,
                workflow_id: WorkflowId::of(workflow_id),
                workflow_type: WorkflowType::of(workflow_type),
                input,
                options: ChildWorkflowOptions::default(),
            }))
        })
    }
    /// The code asks the child to cancel.
    pub fn child_cancel_requested(&mut self, seq: Seq, reason: &str) -> &mut Self {
        self.command(EventKind::ChildWorkflowExecutionCancelRequested { seq, reason: reason.to_owned() })
    }
    /// A signal to the open run of `workflow_id`.
    pub fn external_signal_initiated(&mut self, workflow_id: &str, name: &str, input: Payload) -> Seq {
        let target = ExternalTarget { workflow_id: WorkflowId::of(workflow_id), run_id: None };
        self.numbered_command(|seq| {
            EventKind::SignalExternalWorkflowExecutionInitiated(Box::new(SignalExternalInitiated {
                seq,
                target,
                name: SignalName::of(name),
                input,
            }))
        })
    }
    /// A cancel request to the open run of `workflow_id`.
    pub fn external_cancel_initiated(&mut self, workflow_id: &str, reason: &str) -> Seq {
        let target = ExternalTarget { workflow_id: WorkflowId::of(workflow_id), run_id: None };
        let reason = reason.to_owned();
        self.numbered_command(|seq| EventKind::RequestCancelExternalWorkflowExecutionInitiated { seq, target, reason })
    }
    /// A side effect that gave `value`.
    pub fn side_effect_recorded(&mut self, value: Payload) -> Seq {
        self.count_activity();
        self.numbered_command(|seq| EventKind::MarkerRecorded(Marker::SideEffect { seq, value }))
    }
    /// The code took the new branch of a change.
    pub fn patch_recorded(&mut self, id: &str, deprecated: bool) -> &mut Self {
        self.command(EventKind::MarkerRecorded(Marker::Patch { id: PatchId::of(id), deprecated }))
    }
    /// The code changes what lists can look for.
    pub fn search_attributes_upserted(&mut self, attributes: SearchAttributes) -> &mut Self {
        self.command(EventKind::UpsertWorkflowSearchAttributes { attributes })
    }
    /// The code changes its notes for people.
    pub fn memo_modified(&mut self, memo: Memo) -> &mut Self {
        self.command(EventKind::WorkflowPropertiesModified { memo })
    }
    /// The handler of an accepted update answers.
    pub fn update_completed(&mut self, update_id: &str, result: Result<Payload, Failure>) -> &mut Self {
        self.command(EventKind::WorkflowExecutionUpdateCompleted { update_id: UpdateId::of(update_id), result })
    }
    /// The run ends with a result.
    pub fn completed(&mut self, result: Payload) -> &mut Self {
        self.command(EventKind::WorkflowExecutionCompleted { result, unhandled_signals: Vec::new() })
    }
    /// The run ends in a failure; no run follows.
    pub fn failed(&mut self, failure: Failure) -> &mut Self {
        self.command(EventKind::WorkflowExecutionFailed {
            failure,
            new_run: None,
            retry_state: RetryState::RetryPolicyNotSet,
            unhandled_signals: Vec::new(),
        })
    }
    /// The run ends because it was asked to.
    pub fn canceled(&mut self, details: Option<Payload>) -> &mut Self {
        self.command(EventKind::WorkflowExecutionCanceled { details, unhandled_signals: Vec::new() })
    }
    /// Another run takes over; its id is derived from this one.
    pub fn continued_as_new(&mut self, workflow_type: &str, input: Payload) -> &mut Self {
        let new_run = self.run.derive("continue-as-new", 1);
        self.command(EventKind::WorkflowExecutionContinuedAsNew(Box::new(ContinuedAsNew {
            new_run,
            workflow_type: WorkflowType::of(workflow_type),
            input,
            options: ContinueAsNewOptions::default(),
            unconsumed_signals: Vec::new(),
        })))
    }
}

/// The started event of a first run that was asked for by `start`.
pub fn started_event(run: RunId, start: StartWorkflow) -> WorkflowExecutionStarted {
    start.first_event(run, HistoryBuilder::EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_seqs_times_and_outlooks_follow_the_story() {
        let mut h = HistoryBuilder::started("order", "order-1", Payload::null());
        let charge = h.activity_scheduled("charge", Payload::null());
        let limit = h.timer_started(Duration::from_secs(60));
        h.activity_started(charge, 1).timer_fired(limit);
        h.together().signaled("stop", Payload::null());
        h.activity_cancel_requested(charge).completed(Payload::null());
        let turns = h.turns();

        assert_eq!((charge, limit), (Seq(1), Seq(2)));
        assert_eq!(turns.iter().map(|t| t.first_event.0).collect::<Vec<_>>(), [1, 4, 5]);
        assert_eq!(turns[2].events.len(), 4, "the signal joined the turn of the timer");
        assert_eq!(turns[2].at, turns[0].at.plus(Duration::from_secs(60)));
        assert_eq!(turns[0].outlook, Outlook { next_deadline: Some(turns[2].at), attention: true });
        assert_eq!(turns[2].outlook, Outlook::default());
    }
}
