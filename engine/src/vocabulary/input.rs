//! Inputs: what reaches an existing run from outside its code, and why one can be refused.
//!
//! Invariant: an input is data, so that it can be kept durably in the run's inbox while the run is paused or held. A
//! refused input changes nothing. Starting a run is a request of its own ([`StartWorkflow`]).
//!
//! Long: two lists, of inputs and of refusals, and a line for each field of them.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::*;

/// What reaches an existing run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Input {
    /// A signal for its code (E11).
    Signal(WorkflowExecutionSignaled),
    /// Somebody asks it to cancel (E17).
    RequestCancel {
        /// Why, as the code sees it.
        reason: String,
        /// Who asks.
        identity: Option<Identity>,
        /// Repetitions of this request are applied once.
        request_id: Option<RequestId>,
    },
    /// It ends at once (E18).
    Terminate {
        /// Why, for the history.
        reason: String,
        /// Who ends it.
        identity: Option<Identity>,
    },
    /// An update for its code, which may refuse it (E14).
    Update {
        /// A repetition gets the first one's answer.
        update_id: UpdateId,
        /// Which handler.
        name: UpdateName,
        /// What the handler is given.
        input: Payload,
        /// Who asks.
        identity: Option<Identity>,
    },
    /// It is not to go on (E27).
    Pause {
        /// Why, for the history.
        reason: String,
        /// Who pauses it.
        identity: Option<Identity>,
    },
    /// It may go on.
    Unpause {
        /// Why, for the history.
        reason: String,
        /// Who unpauses it.
        identity: Option<Identity>,
    },
    /// An activity of it is not to be tried again.
    PauseActivity {
        /// The activity.
        seq: Seq,
        /// Why, for the history.
        reason: String,
        /// Who pauses it.
        identity: Option<Identity>,
    },
    /// An activity of it may be tried again.
    UnpauseActivity {
        /// The activity.
        seq: Seq,
        /// Who unpauses it.
        identity: Option<Identity>,
    },
    /// An activity of it is changed.
    ModifyActivity {
        /// The activity.
        seq: Seq,
        /// What becomes different.
        update: Box<ActivityUpdate>,
        /// Why, for the history.
        reason: String,
        /// Who changes it.
        identity: Option<Identity>,
    },
    /// A slot is free for the attempt of a queued activity.
    StartActivity {
        /// The activity.
        seq: Seq,
        /// The attempt that begins.
        attempt: Attempt,
    },
    /// An attempt has ended.
    ActivityOutcome {
        /// The activity.
        seq: Seq,
        /// The attempt that ended; one that is over is refused.
        attempt: Attempt,
        /// How it ended.
        outcome: ActivityOutcome,
        /// Who says so, if not this worker.
        identity: Option<Identity>,
    },
    /// An attempt is alive.
    Heartbeat {
        /// The activity.
        seq: Seq,
        /// The attempt that is alive.
        attempt: Attempt,
        /// What the next attempt may go on from.
        details: Option<Payload>,
    },
    /// Time has passed: whatever is due is due now.
    Deadline,
    /// The worker that ran this run's attempts is gone: what was under way is looked at again.
    WorkerRestarted,
    /// A child has begun, or could not.
    ChildStarted {
        /// The child.
        seq: Seq,
        /// Its first run, or why there is none.
        result: Result<RunId, Failure>,
    },
    /// A child has ended.
    ChildClosed {
        /// The child.
        seq: Seq,
        /// Its last run.
        run_id: RunId,
        /// How that run ended.
        outcome: CloseOutcome,
    },
    /// A signal to another run has arrived, or could not be delivered.
    SignalDelivered {
        /// The signal that was sent.
        seq: Seq,
        /// That it is in the other history, or why it never will be.
        result: Result<(), Failure>,
    },
    /// A cancel request to another run has arrived, or could not be delivered.
    CancelDelivered {
        /// The request that was sent.
        seq: Seq,
        /// That it is in the other history, or why it never will be.
        result: Result<(), Failure>,
    },
}

/// How an attempt of an activity ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum ActivityOutcome {
    /// With a result.
    Completed(Payload),
    /// With a failure; the policy decides about another attempt.
    Failed(Failure),
    /// It was asked to cancel, and did.
    Canceled(Option<Payload>),
    /// The function returned, the result comes later by token (E09).
    WillCompleteLater,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum CloseOutcome {
    /// With a result.
    Completed(Payload),
    /// In a failure, and no retry followed.
    Failed(Failure),
    /// A limit of the workflow ran out.
    TimedOut(WorkflowTimeout),
    /// It was asked to cancel, and did, with what it left to say.
    Canceled(Option<Payload>),
    /// From outside, without a word of its code.
    Terminated {
        /// Why, in the words of whoever terminated it.
        reason: String,
    },
    /// In a run that goes on for it.
    ContinuedAsNew {
        /// That run.
        new_run: RunId,
    },
}

impl CloseOutcome {
    /// Whether damage to the store took what the run left to say.
    pub fn is_lost(&self) -> bool {
        match self {
            CloseOutcome::Completed(payload) | CloseOutcome::Canceled(Some(payload)) => payload.is_lost(),
            CloseOutcome::Failed(_)
            | CloseOutcome::TimedOut(_)
            | CloseOutcome::Canceled(None)
            | CloseOutcome::Terminated { .. }
            | CloseOutcome::ContinuedAsNew { .. } => false,
        }
    }

    /// The status that the run shows.
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
    /// Where it is started. Ids and queues of namespaces have nothing to do with each other.
    pub namespace: Namespace,
    /// The id that stays over all runs of the chain. One run of it is open at a time.
    pub workflow_id: WorkflowId,
    /// Which code.
    pub workflow_type: WorkflowType,
    /// The queue of its activities, unless they name another.
    pub task_queue: TaskQueue,
    /// What the code is given.
    pub input: Payload,
    /// How long all runs of the chain may take together. `None`: no limit.
    pub execution_timeout: Option<Duration>,
    /// How long one run may take. `None`: no limit.
    pub run_timeout: Option<Duration>,
    /// Whether another run follows a failed one. `None`: none does.
    pub retry_policy: Option<RetryPolicy>,
    /// What happens where a closed run has the id.
    pub id_reuse_policy: IdReusePolicy,
    /// What happens where an open run has the id.
    pub id_conflict_policy: IdConflictPolicy,
    /// Notes for people, which lists show.
    pub memo: Memo,
    /// What lists can look for.
    pub search_attributes: SearchAttributes,
    /// The same for every repetition of this request: the run is started once.
    pub request_id: Option<RequestId>,
    /// Who starts it, for the history.
    pub identity: Option<Identity>,
    /// What it is for, in a few words.
    pub summary: Option<String>,
    /// What it is for, in more of them.
    pub details: Option<String>,
    /// The workflow that starts it as its child. Set by the engine.
    pub parent: Option<Parent>,
    /// The place of its activities among those that wait for a slot, and of its children's, unless they say otherwise.
    /// `None`: the default one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<Priority>,
    /// How long its code waits before it begins; the time limits begin then, too. `None`: it begins at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_delay: Option<Duration>,
}

/// The namespace and the task queue of those who name none.
pub const DEFAULT_NAMESPACE: &str = "default";
/// See [`DEFAULT_NAMESPACE`].
pub const DEFAULT_TASK_QUEUE: &str = "default";

impl StartWorkflow {
    /// The first event of the run that this request starts at `at`.
    pub fn first_event(self, run: RunId, at: Timestamp) -> WorkflowExecutionStarted {
        let start_at = self.start_delay.filter(|delay| !delay.is_zero()).map(|delay| at.plus(delay));
        let begins = start_at.unwrap_or(at);
        WorkflowExecutionStarted {
            namespace: self.namespace,
            workflow_id: self.workflow_id,
            workflow_type: self.workflow_type,
            task_queue: self.task_queue,
            input: self.input,
            execution_deadline: self.execution_timeout.map(|timeout| begins.plus(timeout)),
            run_timeout: self.run_timeout,
            retry_policy: self.retry_policy,
            attempt: Attempt(1),
            first_run: run,
            continued_from: None,
            last_failure: None,
            start_at,
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
            priority: self.priority,
            numbering: Some(IdNumbering::ByKind),
            signals_at_start: None,
        }
    }
    /// A start with the defaults of all else, in the default namespace.
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
            priority: None,
            start_delay: None,
        }
    }
    /// With this input.
    pub fn input(mut self, input: Payload) -> Self {
        self.input = input;
        self
    }
}

/// How it begins why a start is [held](Rejection::Held) whose code does not come back: there is no run.
pub const NOTHING_STARTED: &str = "nothing was started";
/// Why an update is [held](Rejection::Held) off: somebody has paused the run.
pub const RUN_IS_PAUSED: &str = "the run is paused";
/// Why an update is [held](Rejection::Held) off: the code of a delayed start has not begun.
pub const START_IS_DELAYED: &str = "its start was delayed: its code begins later";
/// Why an update is [held](Rejection::Held) off: the code is tried again after a failure, and has not begun.
pub const FIRST_TURN_BACKS_OFF: &str = "its first turn waits for the end of a backoff";

/// Why a request about a run was refused: the caller's mistake or the run's state. Nothing has changed.
#[derive(Debug, Clone, PartialEq, thiserror::Error, Serialize, Deserialize)]
pub enum Rejection {
    /// There is no such run in this namespace.
    #[error("no workflow execution {workflow_id}{}", in_run(run_id))]
    NotFound {
        /// The id that was asked for.
        workflow_id: WorkflowId,
        /// The run that was asked for, if one was named.
        run_id: Option<RunId>,
    },
    /// The run has ended, and takes nothing more.
    #[error("the run {run_id} of {workflow_id} is already {status}")]
    Closed {
        /// The id that was asked for.
        workflow_id: WorkflowId,
        /// Its last run.
        run_id: RunId,
        /// How that run ended.
        status: WorkflowStatus,
    },
    #[error(
        "a run of {workflow_id} is open: {run_id}; end it, use another id, or ask for `use-existing` or `terminate-existing`"
    )]
    /// A start found an open run of its id, which it was not to use.
    AlreadyOpen {
        /// The id that is taken.
        workflow_id: WorkflowId,
        /// The open run.
        run_id: RunId,
    },
    #[error(
        "the workflow id {workflow_id} was used by {run_id}, which is {status}; the reuse policy {policy:?} refuses it"
    )]
    /// A start found a closed run of its id, which its policy forbids.
    IdReused {
        /// The id that was used.
        workflow_id: WorkflowId,
        /// The run that used it.
        run_id: RunId,
        /// How that run ended.
        status: WorkflowStatus,
        /// The policy that refuses it.
        policy: IdReusePolicy,
    },
    /// The worker has no code of this type.
    #[error("no workflow type {workflow_type} in this worker; it has: {}", known.join(", "))]
    UnknownWorkflowType {
        /// The type that was asked for.
        workflow_type: WorkflowType,
        /// The types that this worker has.
        known: Vec<String>,
    },
    /// The code refuses the update, or cannot carry it out. The run is as it was.
    #[error("the update {update_id} was refused by the workflow: {failure}")]
    UpdateRefused {
        /// The update.
        update_id: UpdateId,
        /// What the validator or the handler said.
        failure: Failure,
    },
    /// No activity of this id is pending.
    #[error("no pending activity {activity} in this run")]
    UnknownActivity {
        /// The id or number that was asked for.
        activity: String,
    },
    /// Somebody speaks for an attempt that is over.
    #[error("attempt {attempt} of activity {seq} is over ({}): stale_epoch", if attempt == current { "it or its run has ended".to_owned() } else { format!("now at attempt {current}") })]
    StaleAttempt {
        /// The activity.
        seq: Seq,
        /// The attempt that spoke.
        attempt: Attempt,
        /// The attempt that counts.
        current: Attempt,
    },
    /// There is nothing to pause.
    #[error("the run is already paused")]
    AlreadyPaused,
    /// There is nothing to unpause.
    #[error("the run is not paused")]
    NotPaused,
    /// A paused or held run keeps no more; see [`Limits::inbox_max`](crate::machine::Limits::inbox_max).
    #[error("the inbox of the run is full ({limit} inputs wait); try again later")]
    InboxFull {
        /// How many inputs one run keeps.
        limit: usize,
    },
    /// The worker has too much to do. Try again after the time it names.
    #[error("the worker has too much to do ({limit} inputs wait); try again in {}s", retry_after.as_secs_f32())]
    Overloaded {
        /// How many inputs may wait in the worker.
        limit: usize,
        /// When it is worth trying again.
        retry_after: Duration,
    },
    /// A payload of the request is above the limit.
    #[error("the payload has {length} bytes, the limit is {limit}; pass a reference to the data instead")]
    PayloadTooLarge {
        /// Its length in bytes.
        length: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// The request makes no sense in any state of the run; `what` names the part.
    #[error("{what}: {why}")]
    Invalid {
        /// Which part of the request.
        what: String,
        /// What is wrong with it, and what to write instead.
        why: String,
    },
    /// The code of the run cannot be asked now.
    #[error("the run is held: {why}")]
    Held {
        /// The defect or difference that holds it.
        why: String,
    },
    /// A fork: the card of the first difference.
    #[error("the workflow code of this worker does not fit the history up to the fork: {why}")]
    DoesNotFit {
        /// The card.
        why: String,
    },
    /// The worker leaves, and takes no new work.
    #[error("the worker is shutting down; try again when it is back")]
    ShuttingDown,
    /// Nothing can be written any more; the worker leaves.
    #[error("the log has failed and the worker stops: {why}")]
    StorageFailed {
        /// The first failure, with the file.
        why: String,
    },
    /// There is no space for anything new. It is over when there is.
    #[error("the disk is full: {}; no new work is started until there is space", why.trim_start_matches("the disk is full: "))]
    StorageFull {
        /// Which file could not grow.
        why: String,
    },
    /// What was asked for cannot be read as it was written; everything else goes on.
    #[error("{why}")]
    Damaged {
        /// Where the damage is.
        why: String,
    },
    /// Reading or copying failed; the log has not, and the worker goes on.
    #[error("{why}; the log itself goes on")]
    StorageError {
        /// What could not be read or copied.
        why: String,
    },
    /// The query has no answer.
    #[error(transparent)]
    Query(#[from] QueryError),
}

fn in_run(run_id: &Option<RunId>) -> String {
    run_id.map_or_else(String::new, |id| format!(" with run id {id}"))
}
