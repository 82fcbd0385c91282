//! Requests and answers at the client edge, as plain data: the command line, the control API and tests share them.
//!
//! Invariant: every type here can be sent as JSON, so that a client attached over HTTP sees exactly what an embedded
//! one sees. Nothing here carries a request out; the client does.

mod fork;
mod reset;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use self::fork::*;
pub use self::reset::*;
use crate::vocabulary::*;

/// Names a run: by workflow id (then the open or else the newest run is meant), by run id, or both.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// Where it is.
    pub namespace: Namespace,
    /// Its workflow id.
    pub workflow_id: WorkflowId,
    /// Its run; `None`: the open one of this id, or else the newest.
    pub run_id: Option<RunId>,
}

impl Target {
    /// The open or newest run of an id in the default namespace.
    pub fn workflow(workflow_id: WorkflowId) -> Self {
        Target { namespace: Namespace::of(DEFAULT_NAMESPACE), workflow_id, run_id: None }
    }
    /// One run of an id in the default namespace.
    pub fn run(workflow_id: WorkflowId, run_id: RunId) -> Self {
        Target { run_id: Some(run_id), ..Target::workflow(workflow_id) }
    }
}

/// The answer to a start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    /// The workflow id that was started.
    pub workflow_id: WorkflowId,
    /// The run that there is now.
    pub run_id: RunId,
    /// False when the request had been carried out before, or an open run was used.
    pub newly_started: bool,
}

/// A signal to a run (E11).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignalRequest {
    /// Which signal.
    pub name: SignalName,
    /// What it brings.
    pub input: Payload,
    /// Who sends it, for the history.
    pub identity: Option<Identity>,
    /// The same for every repetition of this request: the run takes it once. `None`: each is a signal of its own.
    pub request_id: Option<RequestId>,
}

/// An update of a run (E14).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpdateRequest {
    /// The same for every repetition: the run carries it out once, and each gets the answer of the first.
    pub update_id: UpdateId,
    /// Which update.
    pub name: UpdateName,
    /// What it brings.
    pub input: Payload,
    /// Who sends it, for the history.
    pub identity: Option<Identity>,
    /// What the caller waits for.
    pub wait: UpdateWait,
}

/// How long an update's caller waits (E14).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UpdateWait {
    /// Until the validator has agreed and the update is durable.
    Accepted,
    /// Until its handler has answered (default).
    #[default]
    Completed,
}

/// Where an update is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UpdateOutcome {
    /// It is durable, and has no answer yet.
    Accepted,
    /// The handler's answer.
    Completed(Result<Payload, Failure>),
}

/// How an activity is completed from outside (E09).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ActivityCompletion {
    /// It has given this result.
    Complete(Payload),
    /// It has failed; the retry policy decides about another attempt.
    Fail(Failure),
    /// It was canceled, and leaves this.
    Cancel(Option<Payload>),
    /// It is under way still.
    Heartbeat(Option<Payload>),
}

/// Everything `describe` shows of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Description {
    /// What lists show of it.
    pub info: RunInfo,
    /// Activities that have not ended.
    pub pending_activities: Vec<PendingActivity>,
    /// Timers that have not fired.
    pub pending_timers: Vec<PendingTimer>,
    /// Child workflows that have not ended.
    pub pending_children: Vec<PendingChild>,
    /// Accepted updates without an answer yet.
    pub pending_updates: Vec<UpdateId>,
    /// Inputs that wait because the run is paused or held.
    pub inbox: usize,
    /// Why no turn can be decided now: non-determinism, a missing workflow type, a busy loop.
    pub held: Option<String>,
    /// What the code waits for.
    pub awaiting: Vec<Awaited>,
    /// Whether it was asked to cancel.
    pub cancel_requested: bool,
    /// Early warnings: history or payload near a limit (E31).
    pub warnings: Vec<String>,
    /// How it ended, if it has.
    pub result: Option<CloseOutcome>,
    /// When its code begins, while that has not come: its start was delayed, or it is tried again after a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub starts_at: Option<Timestamp>,
}

/// An activity that has not ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PendingActivity {
    /// The number of the command that asked for it.
    pub seq: Seq,
    /// Its id in the run.
    pub activity_id: ActivityId,
    /// Its type.
    pub activity_type: ActivityType,
    /// What it is at.
    pub state: PendingActivityState,
    /// The attempt that runs, or comes next.
    pub attempt: Attempt,
    /// When it was asked for.
    pub scheduled_at: Timestamp,
    /// When it is tried again, if it waits for that.
    pub next_attempt_at: Option<Timestamp>,
    /// Why the last attempt failed.
    pub last_failure: Option<Failure>,
    /// What the last heartbeat said.
    pub heartbeat_details: Option<Payload>,
    /// Names the attempt for a completion from outside, while one is under way.
    pub task_token: Option<String>,
    /// What it is for.
    pub summary: Option<String>,
    /// The task queue that it waits in, where it is not the one of its run.
    #[serde(default)]
    pub task_queue: Option<TaskQueue>,
    /// Its time limits and its retry policy as they are now; `None`: whoever was asked does not say.
    #[serde(default)]
    pub options: Option<Box<ActivityOptions>>,
}

/// What a pending activity is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum PendingActivityState {
    /// It waits for a slot.
    Scheduled,
    /// An attempt runs.
    Started,
    /// An attempt has failed, and the next one waits for its time.
    BackingOff,
    /// It was paused.
    Paused,
    /// It was asked to cancel, and has not ended yet.
    CancelRequested,
}

/// A timer that has not fired.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PendingTimer {
    /// The number of the command that started it.
    pub seq: Seq,
    /// When it fires.
    pub fire_at: Timestamp,
    /// What it is for.
    pub summary: Option<String>,
}

/// A child workflow that has not ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PendingChild {
    /// The number of the command that asked for it.
    pub seq: Seq,
    /// Its workflow id.
    pub workflow_id: WorkflowId,
    /// Its type.
    pub workflow_type: WorkflowType,
    /// Its run, once it has begun.
    pub run_id: Option<RunId>,
}

/// A page of runs, newest start first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ListRequest {
    /// A list filter (E23); empty: all runs.
    pub query: String,
    /// At most 1 000.
    pub limit: usize,
}

/// What a waiter for a result gets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunResult {
    /// The workflow that has ended.
    pub workflow_id: WorkflowId,
    /// The last run of the chain that was followed.
    pub run_id: RunId,
    /// How it ended.
    pub outcome: CloseOutcome,
}

/// A committed event with its run, as visibility streams give it (E33).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunEvent {
    /// The group of the log with which it became durable; a stream goes on after it.
    pub group: GroupSeq,
    /// The workflow it is of.
    pub workflow_id: WorkflowId,
    /// The run it is of.
    pub run_id: RunId,
    /// The event.
    pub event: Event,
}

/// How long `result`-like calls follow a chain of runs and how long they wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResultRequest {
    /// Follow continue-as-new and workflow retries to the end.
    pub follow_runs: bool,
    /// How long to wait, on a real clock (in the test environment too); `None`: for as long as it takes.
    pub timeout: Option<Duration>,
}
