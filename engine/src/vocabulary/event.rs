//! Events: the stored facts of a run, in the past tense, with Temporal's names. **This file is the disk contract**, with
//! `options`, which events carry.
//!
//! Invariant: changes are additive only. Structs are stored as arrays, so a new field goes last, with
//! `#[serde(default)]`; a variant is never renamed or removed. Folding the events of a run in order rebuilds it exactly.
//! Every event has an [`Origin`], which says who causes it.
//!
//! Long: one contract, and a line for each field of it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::*;

/// An event with its place and time, as readers see it. On disk these parts are shared by the whole [`Turn`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Its place in the history.
    pub id: EventId,
    /// The time of the turn; workflow `now()` is this and nothing else (G15).
    pub at: Timestamp,
    /// The build of the workflow code that decided the turn (E22).
    pub build: BuildId,
    /// What happened.
    pub kind: EventKind,
}

/// The facts. Names are Temporal's; where Temporal refers to an event id, `seq` (the number of the command) stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum EventKind {
    /// The run begins; always the first event.
    WorkflowExecutionStarted(Box<WorkflowExecutionStarted>),
    /// The backoff before the first activation of a retried run is over.
    FirstWorkflowTaskScheduled,
    /// A signal has arrived (E11).
    WorkflowExecutionSignaled(WorkflowExecutionSignaled),
    /// Somebody asks the run to cancel; its code decides how it ends (E17).
    WorkflowExecutionCancelRequested {
        /// Why, in the words of whoever asked.
        reason: String,
        /// Who asked.
        identity: Option<Identity>,
        /// Repetitions of this request are applied once.
        request_id: Option<RequestId>,
    },
    /// The validator has agreed to an update (E14); a refused update leaves no event.
    WorkflowExecutionUpdateAccepted {
        /// Names the update; a repetition gets the same answer.
        update_id: UpdateId,
        /// Which handler.
        name: UpdateName,
        /// What the handler is given.
        input: Payload,
        /// Who asked.
        identity: Option<Identity>,
    },
    /// The handler of an accepted update has answered.
    WorkflowExecutionUpdateCompleted {
        /// The update that is answered.
        update_id: UpdateId,
        /// What its caller is told.
        result: Result<Payload, Failure>,
    },
    /// Inputs are kept and not handled until the run is unpaused (E27).
    WorkflowExecutionPaused {
        /// Why, in the words of whoever paused it.
        reason: String,
        /// Who paused it.
        identity: Option<Identity>,
    },
    /// The run goes on with the inputs that were kept.
    WorkflowExecutionUnpaused {
        /// Why, in the words of whoever unpaused it.
        reason: String,
        /// Who unpaused it.
        identity: Option<Identity>,
    },

    /// The code asked for an activity.
    ActivityTaskScheduled(Box<ActivityTaskScheduled>),
    /// Written, durably, before the attempt starts: an attempt that may have run is always known (E08).
    ActivityTaskStarted {
        /// The activity.
        seq: Seq,
        /// Counts from 1.
        attempt: Attempt,
    },
    /// An attempt ended badly and another follows at `next_attempt_at`.
    ActivityTaskAttemptFailed {
        /// The activity.
        seq: Seq,
        /// The attempt that failed.
        attempt: Attempt,
        /// How it failed.
        failure: Failure,
        /// When the next attempt may begin.
        next_attempt_at: Timestamp,
    },
    /// The activity has a result.
    ActivityTaskCompleted {
        /// The activity.
        seq: Seq,
        /// What the function returned.
        result: Payload,
        /// Who completed it, if it was completed by task token.
        identity: Option<Identity>,
    },
    /// The last attempt failed.
    ActivityTaskFailed {
        /// The activity.
        seq: Seq,
        /// How the last attempt failed.
        failure: Failure,
        /// Why no attempt follows.
        retry_state: RetryState,
    },
    /// A limit ran out and no attempt follows.
    ActivityTaskTimedOut {
        /// The activity.
        seq: Seq,
        /// Which limit, with the last heartbeat.
        failure: Failure,
        /// Why no attempt follows.
        retry_state: RetryState,
    },
    /// The code asked the activity to stop.
    ActivityTaskCancelRequested {
        /// The activity.
        seq: Seq,
    },
    /// The activity stopped because it was asked to.
    ActivityTaskCanceled {
        /// The activity.
        seq: Seq,
        /// What it had left to say.
        details: Option<Payload>,
    },
    /// No further attempt begins; one that runs goes on.
    ActivityTaskPaused {
        /// The activity.
        seq: Seq,
        /// Why, in the words of whoever paused it.
        reason: String,
        /// Who paused it.
        identity: Option<Identity>,
    },
    /// Attempts may begin again.
    ActivityTaskUnpaused {
        /// The activity.
        seq: Seq,
        /// Who unpaused it.
        identity: Option<Identity>,
    },
    /// The function has returned and the result comes later, by task token (E09).
    ActivityTaskAwaitingCompletion {
        /// The activity.
        seq: Seq,
        /// The attempt whose token completes it.
        attempt: Attempt,
    },

    /// The code asked to be woken.
    TimerStarted {
        /// The timer.
        seq: Seq,
        /// When it is due.
        fire_at: Timestamp,
        /// What it is for, shown to people.
        summary: Option<String>,
    },
    /// The time of a timer has come.
    TimerFired {
        /// The timer.
        seq: Seq,
    },
    /// The code no longer waits for the timer.
    TimerCanceled {
        /// The timer.
        seq: Seq,
    },

    /// The code asked for a child workflow.
    StartChildWorkflowExecutionInitiated(Box<ChildWorkflowInitiated>),
    /// The child could not be started.
    StartChildWorkflowExecutionFailed {
        /// The child.
        seq: Seq,
        /// Why: its id is taken, or its type is not known.
        failure: Failure,
    },
    /// The first run of the child is in the log.
    ChildWorkflowExecutionStarted {
        /// The child.
        seq: Seq,
        /// That run.
        run_id: RunId,
    },
    /// The child asked for is to be canceled.
    ChildWorkflowExecutionCancelRequested {
        /// The child.
        seq: Seq,
        /// Why, as the child sees it.
        reason: String,
    },
    /// The child has a result.
    ChildWorkflowExecutionCompleted {
        /// The child.
        seq: Seq,
        /// What its last run returned.
        result: Payload,
    },
    /// The child failed, with all retries that its policy allows.
    ChildWorkflowExecutionFailed {
        /// The child.
        seq: Seq,
        /// How its last run failed.
        failure: Failure,
    },
    /// The child ended because it was asked to.
    ChildWorkflowExecutionCanceled {
        /// The child.
        seq: Seq,
        /// What it had left to say.
        details: Option<Payload>,
    },
    /// A limit of the child ran out.
    ChildWorkflowExecutionTimedOut {
        /// The child.
        seq: Seq,
    },
    /// The child was ended from outside.
    ChildWorkflowExecutionTerminated {
        /// The child.
        seq: Seq,
        /// Why, in the words of whoever terminated it.
        reason: String,
    },

    /// The code asked to signal another run.
    SignalExternalWorkflowExecutionInitiated(Box<SignalExternalInitiated>),
    /// The other run has the signal in its history.
    ExternalWorkflowExecutionSignaled {
        /// The signal that was sent.
        seq: Seq,
    },
    /// The signal cannot be delivered.
    SignalExternalWorkflowExecutionFailed {
        /// The signal that was sent.
        seq: Seq,
        /// Why: no such run, or it has closed.
        failure: Failure,
    },
    /// The code asked another run to cancel.
    RequestCancelExternalWorkflowExecutionInitiated {
        /// The number of the request.
        seq: Seq,
        /// The run that is meant.
        target: ExternalTarget,
        /// Why, as that run sees it.
        reason: String,
    },
    /// The other run has the request in its history.
    ExternalWorkflowExecutionCancelRequested {
        /// The request that was sent.
        seq: Seq,
    },
    /// The request cannot be delivered.
    RequestCancelExternalWorkflowExecutionFailed {
        /// The request that was sent.
        seq: Seq,
        /// Why: no such run, or it has closed.
        failure: Failure,
    },

    /// The code noted something for its own replay.
    MarkerRecorded(Marker),
    /// The code changed what lists can look for.
    UpsertWorkflowSearchAttributes {
        /// New values by name; [`SearchValue::Unset`] removes one.
        attributes: SearchAttributes,
    },
    /// The code changed its notes for people.
    WorkflowPropertiesModified {
        /// New notes by name.
        memo: Memo,
    },

    /// The run ended with a result.
    WorkflowExecutionCompleted {
        /// What the code returned.
        result: Payload,
        /// Signals that were accepted and never taken by the code (E11: reported, never lost silently).
        unhandled_signals: Vec<SignalName>,
    },
    /// The run ended in a failure.
    WorkflowExecutionFailed {
        /// What went wrong.
        failure: Failure,
        /// The run that tries again, if the workflow's retry policy allows one.
        new_run: Option<RunId>,
        /// Why no run follows; without a meaning where `new_run` is there.
        retry_state: RetryState,
        /// Signals that the code never took.
        unhandled_signals: Vec<SignalName>,
    },
    /// A limit of the workflow ran out; its code heard nothing of it.
    WorkflowExecutionTimedOut {
        /// Which limit: `execution` or `run`.
        timeout: WorkflowTimeout,
        /// The run that tries again, if the workflow's retry policy allows one.
        new_run: Option<RunId>,
        /// Signals that the code never took.
        unhandled_signals: Vec<SignalName>,
    },
    /// The run ended because it was asked to.
    WorkflowExecutionCanceled {
        /// What the code had left to say.
        details: Option<Payload>,
        /// Signals that the code never took.
        unhandled_signals: Vec<SignalName>,
    },
    /// The run was ended from outside; its code heard nothing of it (E18).
    #[serde(serialize_with = "super::terminated::write")]
    WorkflowExecutionTerminated {
        /// Why, in the words of whoever terminated it.
        reason: String,
        /// Who terminated it.
        identity: Option<Identity>,
        /// The run was reset: another one goes on for it.
        #[serde(default)]
        reset: Option<Box<ResetInto>>,
        /// Signals that the code never took. Those of a run that was reset are told to the run that goes on.
        #[serde(default)]
        unhandled_signals: Vec<SignalName>,
    },
    /// Another run of the same workflow id takes over (E19).
    WorkflowExecutionContinuedAsNew(Box<ContinuedAsNew>),
    /// A pending activity was changed from outside: its options, what its attempts count from, when it is tried next.
    ActivityPropertiesModifiedExternally {
        /// The activity.
        seq: Seq,
        /// What is different from here on.
        change: Box<ActivityChange>,
        /// Why, in the words of whoever changed it.
        reason: String,
        /// Who changed it.
        identity: Option<Identity>,
    },
    /// What came before was copied from another run; from here on the run is itself (see `fork`). What was under way
    /// begins again: activities from their first attempt, timers for as long as was left.
    WorkflowExecutionForked {
        /// This run: whose ids random values and run ids of children derive from now on.
        run_id: RunId,
        /// The last event that was copied, and of which run.
        from: ForkPoint,
        /// Why, in the words of whoever forked it.
        reason: String,
        /// Who forked it.
        identity: Option<Identity>,
        /// Of a reset: children under way (by the numbers of their commands) that go on as this run's. Left out where there
        /// are none, as above.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        children: Vec<Seq>,
    },
}

/// Which limit of a workflow ran out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum WorkflowTimeout {
    /// All runs of the chain together: [`StartWorkflow::execution_timeout`].
    Execution,
    /// This run: [`StartWorkflow::run_timeout`].
    Run,
}

/// How a run came to be. Everything later runs of the same execution need is carried here. How it is written stands in
/// `start_written`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct WorkflowExecutionStarted {
    /// Ids and queues of another namespace are never meant.
    pub namespace: Namespace,
    /// The id that stays over all runs of the chain.
    pub workflow_id: WorkflowId,
    /// Which code.
    pub workflow_type: WorkflowType,
    /// The queue of its activities, unless they name another.
    pub task_queue: TaskQueue,
    /// What the code is given.
    pub input: Payload,
    /// When the whole execution (over continue-as-new and retries) is over.
    pub execution_deadline: Option<Timestamp>,
    /// How long this run may take. `None`: no limit.
    pub run_timeout: Option<Duration>,
    /// Whether another run follows a failed one. `None`: none does.
    pub retry_policy: Option<RetryPolicy>,
    /// Which attempt of the workflow's retry policy this run is.
    pub attempt: Attempt,
    /// The first run of the chain of retries and continue-as-new.
    pub first_run: RunId,
    /// The run before this one in the chain.
    pub continued_from: Option<RunId>,
    /// How the attempt before this one failed.
    pub last_failure: Option<Failure>,
    /// A retried run waits until then before its first activation.
    pub start_at: Option<Timestamp>,
    /// The workflow whose child this is.
    pub parent: Option<Parent>,
    /// Notes for people, which lists show.
    pub memo: Memo,
    /// What lists can look for.
    pub search_attributes: SearchAttributes,
    /// The request that started it; a repetition starts nothing.
    pub request_id: Option<RequestId>,
    /// Who started it.
    pub identity: Option<Identity>,
    /// What it is for, in a few words.
    pub summary: Option<String>,
    /// What it is for, in more of them.
    pub details: Option<String>,
    /// Signals the run before accepted and did not consume.
    pub carried_signals: Vec<WorkflowExecutionSignaled>,
    /// Request ids already applied by earlier runs of the chain.
    pub carried_request_ids: Vec<RequestId>,
    /// Where the run was forked from.
    #[serde(default)]
    pub forked_from: Option<Box<ForkedFrom>>,
    /// The place of its activities among those that wait for a slot, and of its children's, unless they say otherwise.
    #[serde(default)]
    pub priority: Option<Priority>,
    /// How the run counts what its code asks for. `None`: a run that was started before there was a choice, whose activities
    /// are named by the numbers of their commands.
    #[serde(default)]
    pub numbering: Option<IdNumbering>,
    /// How many of the signals that follow came with the start: the code begins when it has heard them, and finds them
    /// waiting. `None`: none, or a run that was started before there was a choice, whose code began without them.
    #[serde(default)]
    pub signals_at_start: Option<u32>,
}

/// How a run names what has no name of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum IdNumbering {
    /// As Temporal's core: activities are counted by themselves, a side effect among them; and an activity or a child that the
    /// code asks for and cancels in answer to the same job is neither asked for nor canceled, and the code hears of the
    /// cancellation at once. Of a timer it hears at once anyway, so its start and its end are recorded.
    ByKind,
}

/// The run that started a child, and the number of the command that did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parent {
    /// The parent's id.
    pub workflow_id: WorkflowId,
    /// The run of the parent that started the child.
    pub run_id: RunId,
    /// The command that started the child.
    pub seq: Seq,
    /// What happens to this run when the parent closes; known here so that a restart can see to it.
    pub close_policy: ParentClosePolicy,
}

/// A signal as it arrived.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkflowExecutionSignaled {
    /// Which channel of the code takes it.
    pub name: SignalName,
    /// What it carries.
    pub input: Payload,
    /// Who sent it.
    pub identity: Option<Identity>,
    /// Repetitions of this request are applied once (E11).
    pub request_id: Option<RequestId>,
}

/// An activity as the code asked for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActivityTaskScheduled {
    /// The number by which later events name it.
    pub seq: Seq,
    /// Its name for people; unique in the run.
    pub activity_id: ActivityId,
    /// Which activity function.
    pub activity_type: ActivityType,
    /// What the function is given.
    pub input: Payload,
    /// Its timeouts, retries and queue.
    pub options: ActivityOptions,
}

/// A child workflow as the code asked for it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ChildWorkflowInitiated {
    /// The number by which later events name it.
    pub seq: Seq,
    /// The id of the child.
    pub workflow_id: WorkflowId,
    /// Which workflow code.
    pub workflow_type: WorkflowType,
    /// What the code is given.
    pub input: Payload,
    /// Its timeouts, retries and what happens to it when the parent closes.
    pub options: ChildWorkflowOptions,
}

/// Another run, named by its workflow id; without a run id the open one is meant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExternalTarget {
    /// Stays over all runs of its chain.
    pub workflow_id: WorkflowId,
    /// One run only; `None`: whichever is open.
    pub run_id: Option<RunId>,
}

/// A signal to another run as the code asked for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignalExternalInitiated {
    /// The number by which later events name it.
    pub seq: Seq,
    /// The run that is meant.
    pub target: ExternalTarget,
    /// Which signal.
    pub name: SignalName,
    /// What the signal carries.
    pub input: Payload,
}

/// What the code noted for its own replay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Marker {
    /// The value a side effect gave when it ran.
    SideEffect {
        /// Its place among the commands of the run.
        seq: Seq,
        /// What it gave; replay gives it again.
        value: Payload,
    },
    /// The code took the new branch of a change.
    Patch {
        /// The change, as `patched` names it.
        id: PatchId,
        /// Whether the old branch is gone from the code.
        deprecated: bool,
    },
}

/// The hand-over from a run to the next one of the same workflow id.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ContinuedAsNew {
    /// The run that takes over; derived from this one.
    pub new_run: RunId,
    /// The code that goes on.
    pub workflow_type: WorkflowType,
    /// What the next run is given.
    pub input: Payload,
    /// What the next run does not take over from this one.
    pub options: ContinueAsNewOptions,
    /// Signals that the next run gets, in the order in which they came.
    pub unconsumed_signals: Vec<WorkflowExecutionSignaled>,
}
