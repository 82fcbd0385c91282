//! Events: the stored facts of a run, in the past tense, with Temporal's names. **This file is the disk contract**, with
//! `options`, which events carry.
//!
//! Invariant: changes are additive only. Structs are stored as arrays, so a new field goes last, with
//! `#[serde(default)]`; a variant is never renamed or removed. Folding the events of a run in order rebuilds it exactly.
//! Every event has an [`Origin`], which says who causes it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::*;

/// An event with its place and time, as readers see it. On disk these parts are shared by the whole [`Turn`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    pub id: EventId,
    /// The time of the turn; workflow `now()` is this and nothing else (engine.md G15).
    pub at: Timestamp,
    /// The build of the workflow code that decided the turn (engine.md E22).
    pub build: BuildId,
    pub kind: EventKind,
}

/// The facts. Names are Temporal's; where Temporal refers to an event id, `seq` (the number of the command) stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum EventKind {
    WorkflowExecutionStarted(Box<WorkflowExecutionStarted>),
    /// The backoff before the first activation of a retried run is over.
    FirstWorkflowTaskScheduled,
    WorkflowExecutionSignaled(WorkflowExecutionSignaled),
    WorkflowExecutionCancelRequested {
        reason: String,
        identity: Option<Identity>,
        request_id: Option<RequestId>,
    },
    WorkflowExecutionUpdateAccepted {
        update_id: UpdateId,
        name: UpdateName,
        input: Payload,
        identity: Option<Identity>,
    },
    WorkflowExecutionUpdateCompleted {
        update_id: UpdateId,
        result: Result<Payload, Failure>,
    },
    WorkflowExecutionPaused {
        reason: String,
        identity: Option<Identity>,
    },
    WorkflowExecutionUnpaused {
        reason: String,
        identity: Option<Identity>,
    },

    ActivityTaskScheduled(Box<ActivityTaskScheduled>),
    /// Written, durably, before the attempt starts: an attempt that may have run is always known (engine.md E08).
    ActivityTaskStarted {
        seq: Seq,
        attempt: Attempt,
    },
    /// An attempt ended badly and another follows at `next_attempt_at`.
    ActivityTaskAttemptFailed {
        seq: Seq,
        attempt: Attempt,
        failure: Failure,
        next_attempt_at: Timestamp,
    },
    ActivityTaskCompleted {
        seq: Seq,
        result: Payload,
        identity: Option<Identity>,
    },
    ActivityTaskFailed {
        seq: Seq,
        failure: Failure,
        retry_state: RetryState,
    },
    ActivityTaskTimedOut {
        seq: Seq,
        failure: Failure,
        retry_state: RetryState,
    },
    ActivityTaskCancelRequested {
        seq: Seq,
    },
    ActivityTaskCanceled {
        seq: Seq,
        details: Option<Payload>,
    },
    ActivityTaskPaused {
        seq: Seq,
        reason: String,
        identity: Option<Identity>,
    },
    ActivityTaskUnpaused {
        seq: Seq,
        identity: Option<Identity>,
    },
    /// The function has returned and the result comes later, by task token (engine.md E09).
    ActivityTaskAwaitingCompletion {
        seq: Seq,
        attempt: Attempt,
    },

    TimerStarted {
        seq: Seq,
        fire_at: Timestamp,
        summary: Option<String>,
    },
    TimerFired {
        seq: Seq,
    },
    TimerCanceled {
        seq: Seq,
    },

    StartChildWorkflowExecutionInitiated(Box<ChildWorkflowInitiated>),
    StartChildWorkflowExecutionFailed {
        seq: Seq,
        failure: Failure,
    },
    ChildWorkflowExecutionStarted {
        seq: Seq,
        run_id: RunId,
    },
    /// The child asked for is to be canceled.
    ChildWorkflowExecutionCancelRequested {
        seq: Seq,
        reason: String,
    },
    ChildWorkflowExecutionCompleted {
        seq: Seq,
        result: Payload,
    },
    ChildWorkflowExecutionFailed {
        seq: Seq,
        failure: Failure,
    },
    ChildWorkflowExecutionCanceled {
        seq: Seq,
        details: Option<Payload>,
    },
    ChildWorkflowExecutionTimedOut {
        seq: Seq,
    },
    ChildWorkflowExecutionTerminated {
        seq: Seq,
        reason: String,
    },

    SignalExternalWorkflowExecutionInitiated(Box<SignalExternalInitiated>),
    ExternalWorkflowExecutionSignaled {
        seq: Seq,
    },
    SignalExternalWorkflowExecutionFailed {
        seq: Seq,
        failure: Failure,
    },
    RequestCancelExternalWorkflowExecutionInitiated {
        seq: Seq,
        target: ExternalTarget,
        reason: String,
    },
    ExternalWorkflowExecutionCancelRequested {
        seq: Seq,
    },
    RequestCancelExternalWorkflowExecutionFailed {
        seq: Seq,
        failure: Failure,
    },

    MarkerRecorded(Marker),
    UpsertWorkflowSearchAttributes {
        attributes: SearchAttributes,
    },
    WorkflowPropertiesModified {
        memo: Memo,
    },

    WorkflowExecutionCompleted {
        result: Payload,
        /// Signals that were accepted and never taken by the code (engine.md E11: reported, never lost silently).
        unhandled_signals: Vec<SignalName>,
    },
    WorkflowExecutionFailed {
        failure: Failure,
        /// The run that tries again, if the workflow's retry policy allows one.
        new_run: Option<RunId>,
        retry_state: RetryState,
        unhandled_signals: Vec<SignalName>,
    },
    WorkflowExecutionTimedOut {
        /// Which limit: `execution` or `run`.
        timeout: WorkflowTimeout,
        new_run: Option<RunId>,
        unhandled_signals: Vec<SignalName>,
    },
    WorkflowExecutionCanceled {
        details: Option<Payload>,
        unhandled_signals: Vec<SignalName>,
    },
    WorkflowExecutionTerminated {
        reason: String,
        identity: Option<Identity>,
        /// The run was reset: another one goes on for it. Left out where there is none, so that old events keep their bytes;
        /// whoever adds a field after this one must write both always.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reset: Option<Box<ResetInto>>,
    },
    WorkflowExecutionContinuedAsNew(Box<ContinuedAsNew>),
    /// A pending activity was changed from outside: its options, what its attempts count from, when it is tried next.
    ActivityPropertiesModifiedExternally {
        seq: Seq,
        change: Box<ActivityChange>,
        reason: String,
        identity: Option<Identity>,
    },
    /// What came before was copied from another run; from here on the run is itself (see `fork`). What was under way
    /// begins again: activities from their first attempt, timers for as long as was left.
    WorkflowExecutionForked {
        /// This run: whose ids random values and run ids of children derive from now on.
        run_id: RunId,
        from: ForkPoint,
        reason: String,
        identity: Option<Identity>,
        /// Of a reset: children under way (by the numbers of their commands) that go on as this run's. Left out where there
        /// are none, as above.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        children: Vec<Seq>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum WorkflowTimeout {
    Execution,
    Run,
}

/// How a run came to be. Everything later runs of the same execution need is carried here.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorkflowExecutionStarted {
    pub namespace: Namespace,
    pub workflow_id: WorkflowId,
    pub workflow_type: WorkflowType,
    pub task_queue: TaskQueue,
    pub input: Payload,
    /// When the whole execution (over continue-as-new and retries) is over.
    pub execution_deadline: Option<Timestamp>,
    pub run_timeout: Option<Duration>,
    pub retry_policy: Option<RetryPolicy>,
    /// Which attempt of the workflow's retry policy this run is.
    pub attempt: Attempt,
    /// The first run of the chain of retries and continue-as-new.
    pub first_run: RunId,
    pub continued_from: Option<RunId>,
    pub last_failure: Option<Failure>,
    /// A retried run waits until then before its first activation.
    pub start_at: Option<Timestamp>,
    pub parent: Option<Parent>,
    pub memo: Memo,
    pub search_attributes: SearchAttributes,
    pub request_id: Option<RequestId>,
    pub identity: Option<Identity>,
    pub summary: Option<String>,
    pub details: Option<String>,
    /// Signals the run before accepted and did not consume.
    pub carried_signals: Vec<WorkflowExecutionSignaled>,
    /// Request ids already applied by earlier runs of the chain.
    pub carried_request_ids: Vec<RequestId>,
    /// Where the run was forked from. Left out where there is nothing, so that old events keep their bytes; whoever adds
    /// a field after this one must write both always.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forked_from: Option<Box<ForkedFrom>>,
}

/// The run that started a child, and the number of the command that did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parent {
    pub workflow_id: WorkflowId,
    pub run_id: RunId,
    pub seq: Seq,
    /// What happens to this run when the parent closes; known here so that a restart can see to it.
    pub close_policy: ParentClosePolicy,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkflowExecutionSignaled {
    pub name: SignalName,
    pub input: Payload,
    pub identity: Option<Identity>,
    pub request_id: Option<RequestId>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActivityTaskScheduled {
    pub seq: Seq,
    pub activity_id: ActivityId,
    pub activity_type: ActivityType,
    pub input: Payload,
    pub options: ActivityOptions,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ChildWorkflowInitiated {
    pub seq: Seq,
    pub workflow_id: WorkflowId,
    pub workflow_type: WorkflowType,
    pub input: Payload,
    pub options: ChildWorkflowOptions,
}

/// Another run, named by its workflow id; without a run id the open one is meant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExternalTarget {
    pub workflow_id: WorkflowId,
    pub run_id: Option<RunId>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignalExternalInitiated {
    pub seq: Seq,
    pub target: ExternalTarget,
    pub name: SignalName,
    pub input: Payload,
}

/// What the code noted for its own replay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Marker {
    /// The value a side effect gave when it ran.
    SideEffect { seq: Seq, value: Payload },
    /// The code took the new branch of a change.
    Patch { id: PatchId, deprecated: bool },
}

/// The hand-over from a run to the next one of the same workflow id.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ContinuedAsNew {
    pub new_run: RunId,
    pub workflow_type: WorkflowType,
    pub input: Payload,
    pub options: ContinueAsNewOptions,
    pub unconsumed_signals: Vec<WorkflowExecutionSignaled>,
}
