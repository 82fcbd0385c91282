//! Inputs: what reaches an existing run from outside its code, and why one can be refused.
//!
//! Invariant: an input is data, so that it can be kept durably in the run's inbox while the run is paused or held. A
//! refused input changes nothing. Starting a run is a request of its own ([`StartWorkflow`]).

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::*;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Input {
    Signal(WorkflowExecutionSignaled),
    RequestCancel {
        reason: String,
        identity: Option<Identity>,
        request_id: Option<RequestId>,
    },
    Terminate {
        reason: String,
        identity: Option<Identity>,
    },
    Update {
        update_id: UpdateId,
        name: UpdateName,
        input: Payload,
        identity: Option<Identity>,
    },
    Pause {
        reason: String,
        identity: Option<Identity>,
    },
    Unpause {
        reason: String,
        identity: Option<Identity>,
    },
    PauseActivity {
        seq: Seq,
        reason: String,
        identity: Option<Identity>,
    },
    UnpauseActivity {
        seq: Seq,
        identity: Option<Identity>,
    },
    /// A slot is free for the attempt of a queued activity.
    StartActivity {
        seq: Seq,
        attempt: Attempt,
    },
    ActivityOutcome {
        seq: Seq,
        attempt: Attempt,
        outcome: ActivityOutcome,
        identity: Option<Identity>,
    },
    Heartbeat {
        seq: Seq,
        attempt: Attempt,
        details: Option<Payload>,
    },
    /// Time has passed: whatever is due is due now.
    Deadline,
    /// The worker that ran this run's attempts is gone: what was under way is looked at again.
    WorkerRestarted,
    ChildStarted {
        seq: Seq,
        result: Result<RunId, Failure>,
    },
    ChildClosed {
        seq: Seq,
        run_id: RunId,
        outcome: CloseOutcome,
    },
    SignalDelivered {
        seq: Seq,
        result: Result<(), Failure>,
    },
    CancelDelivered {
        seq: Seq,
        result: Result<(), Failure>,
    },
}

/// How an attempt of an activity ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum ActivityOutcome {
    Completed(Payload),
    Failed(Failure),
    Canceled(Option<Payload>),
    /// The function returned, the result comes later by token (engine.md E09).
    WillCompleteLater,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum CloseOutcome {
    Completed(Payload),
    Failed(Failure),
    TimedOut(WorkflowTimeout),
    Canceled(Option<Payload>),
    Terminated { reason: String },
    ContinuedAsNew { new_run: RunId },
}

impl CloseOutcome {
    pub fn status(&self) -> WorkflowStatus {
        match self {
            CloseOutcome::Completed(_) => WorkflowStatus::Completed,
            CloseOutcome::Failed(_) => WorkflowStatus::Failed,
            CloseOutcome::TimedOut(_) => WorkflowStatus::TimedOut,
            CloseOutcome::Canceled(_) => WorkflowStatus::Canceled,
            CloseOutcome::Terminated { .. } => WorkflowStatus::Terminated,
            CloseOutcome::ContinuedAsNew { .. } => WorkflowStatus::ContinuedAsNew,
        }
    }
}

/// A request to start a workflow execution, with Temporal's options and defaults.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StartWorkflow {
    pub namespace: Namespace,
    pub workflow_id: WorkflowId,
    pub workflow_type: WorkflowType,
    pub task_queue: TaskQueue,
    pub input: Payload,
    pub execution_timeout: Option<Duration>,
    pub run_timeout: Option<Duration>,
    pub retry_policy: Option<RetryPolicy>,
    pub id_reuse_policy: IdReusePolicy,
    pub id_conflict_policy: IdConflictPolicy,
    pub memo: Memo,
    pub search_attributes: SearchAttributes,
    pub request_id: Option<RequestId>,
    pub identity: Option<Identity>,
    pub summary: Option<String>,
    pub details: Option<String>,
    pub parent: Option<Parent>,
}

/// The namespace and the task queue of those who name none.
pub const DEFAULT_NAMESPACE: &str = "default";
pub const DEFAULT_TASK_QUEUE: &str = "default";

impl StartWorkflow {
    /// The first event of the run that this request starts at `at`.
    pub fn first_event(self, run: RunId, at: Timestamp) -> WorkflowExecutionStarted {
        WorkflowExecutionStarted {
            namespace: self.namespace,
            workflow_id: self.workflow_id,
            workflow_type: self.workflow_type,
            task_queue: self.task_queue,
            input: self.input,
            execution_deadline: self.execution_timeout.map(|timeout| at.plus(timeout)),
            run_timeout: self.run_timeout,
            retry_policy: self.retry_policy,
            attempt: Attempt(1),
            first_run: run,
            continued_from: None,
            last_failure: None,
            start_at: None,
            parent: self.parent,
            memo: self.memo,
            search_attributes: self.search_attributes,
            request_id: self.request_id,
            identity: self.identity,
            summary: self.summary,
            details: self.details,
            carried_signals: Vec::new(),
            carried_request_ids: Vec::new(),
            forked_from: None,
        }
    }
    pub fn new(workflow_type: WorkflowType, workflow_id: WorkflowId) -> Self {
        StartWorkflow {
            namespace: Namespace::of(DEFAULT_NAMESPACE),
            workflow_id,
            workflow_type,
            task_queue: TaskQueue::of(DEFAULT_TASK_QUEUE),
            input: Payload::null(),
            execution_timeout: None,
            run_timeout: None,
            retry_policy: None,
            id_reuse_policy: IdReusePolicy::default(),
            id_conflict_policy: IdConflictPolicy::default(),
            memo: Memo::new(),
            search_attributes: SearchAttributes::new(),
            request_id: None,
            identity: None,
            summary: None,
            details: None,
            parent: None,
        }
    }
    pub fn input(mut self, input: Payload) -> Self {
        self.input = input;
        self
    }
}

/// Why a request about a run was refused: the caller's mistake or the run's state. Nothing has changed.
#[derive(Debug, Clone, PartialEq, thiserror::Error, Serialize, Deserialize)]
pub enum Rejection {
    #[error("no workflow execution {workflow_id}{}", in_run(run_id))]
    NotFound { workflow_id: WorkflowId, run_id: Option<RunId> },
    #[error("the run {run_id} of {workflow_id} is already {status}")]
    Closed { workflow_id: WorkflowId, run_id: RunId, status: WorkflowStatus },
    #[error(
        "a run of {workflow_id} is open: {run_id}; end it, use another id, or ask for `use-existing` or `terminate-existing`"
    )]
    AlreadyOpen { workflow_id: WorkflowId, run_id: RunId },
    #[error(
        "the workflow id {workflow_id} was used by {run_id}, which is {status}; the reuse policy {policy:?} refuses it"
    )]
    IdReused { workflow_id: WorkflowId, run_id: RunId, status: WorkflowStatus, policy: IdReusePolicy },
    #[error("no workflow type {workflow_type} in this worker; it has: {}", known.join(", "))]
    UnknownWorkflowType { workflow_type: WorkflowType, known: Vec<String> },
    #[error("the update {update_id} was refused by the workflow: {failure}")]
    UpdateRefused { update_id: UpdateId, failure: Failure },
    #[error("no pending activity {activity} in this run")]
    UnknownActivity { activity: String },
    #[error("attempt {attempt} of activity {seq} is over (now at attempt {current}): stale_epoch")]
    StaleAttempt { seq: Seq, attempt: Attempt, current: Attempt },
    #[error("the run is already paused")]
    AlreadyPaused,
    #[error("the run is not paused")]
    NotPaused,
    #[error("the inbox of the run is full ({limit} inputs wait); try again later")]
    InboxFull { limit: usize },
    #[error("the worker has too much to do ({limit} inputs wait); try again in {}s", retry_after.as_secs_f32())]
    Overloaded { limit: usize, retry_after: Duration },
    #[error("the payload has {length} bytes, the limit is {limit}")]
    PayloadTooLarge { length: usize, limit: usize },
    #[error("{what}: {why}")]
    Invalid { what: String, why: String },
    #[error("the run is held: {why}")]
    Held { why: String },
    /// A fork: the card of the first difference.
    #[error("the workflow code of this worker does not fit the history up to the fork: {why}")]
    DoesNotFit { why: String },
    #[error("the worker is shutting down")]
    ShuttingDown,
    #[error("the log has failed and the worker is leaving: {why}")]
    StorageFailed { why: String },
    #[error("the disk is full: {why}; nothing new is begun until there is space")]
    StorageFull { why: String },
    /// What was asked for cannot be read as it was written; everything else goes on.
    #[error("{why}")]
    Damaged { why: String },
    /// Reading or copying failed; the log has not, and the worker goes on.
    #[error("{why}; the log itself goes on")]
    StorageError { why: String },
    #[error(transparent)]
    Query(#[from] QueryError),
}

fn in_run(run_id: &Option<RunId>) -> String {
    run_id.map_or_else(String::new, |id| format!(" with run id {id}"))
}
