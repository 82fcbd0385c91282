//! Requests and answers at the client edge, as plain data: the command line, the control API and tests share them.
//!
//! Invariant: every type here can be sent as JSON, so that a client attached over HTTP sees exactly what an embedded
//! one sees. Nothing here carries a request out; the client does.

mod fork;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use self::fork::*;
use crate::vocabulary::*;

/// Names a run: by workflow id (then the open or else the newest run is meant), by run id, or both.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    pub namespace: Namespace,
    pub workflow_id: WorkflowId,
    pub run_id: Option<RunId>,
}

impl Target {
    pub fn workflow(workflow_id: WorkflowId) -> Self {
        Target { namespace: Namespace::of(DEFAULT_NAMESPACE), workflow_id, run_id: None }
    }
    pub fn run(workflow_id: WorkflowId, run_id: RunId) -> Self {
        Target { run_id: Some(run_id), ..Target::workflow(workflow_id) }
    }
}

/// The answer to a start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    pub workflow_id: WorkflowId,
    pub run_id: RunId,
    /// False when the request had been carried out before, or an open run was used.
    pub newly_started: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignalRequest {
    pub name: SignalName,
    pub input: Payload,
    pub identity: Option<Identity>,
    pub request_id: Option<RequestId>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpdateRequest {
    pub update_id: UpdateId,
    pub name: UpdateName,
    pub input: Payload,
    pub identity: Option<Identity>,
    pub wait: UpdateWait,
}

/// How long an update's caller waits (engine.md E14).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UpdateWait {
    Accepted,
    #[default]
    Completed,
}

/// Where an update is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UpdateOutcome {
    Accepted,
    Completed(Result<Payload, Failure>),
}

/// How an activity is completed from outside (engine.md E09).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ActivityCompletion {
    Complete(Payload),
    Fail(Failure),
    Cancel(Option<Payload>),
    Heartbeat(Option<Payload>),
}

/// Everything `describe` shows of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Description {
    pub info: RunInfo,
    pub pending_activities: Vec<PendingActivity>,
    pub pending_timers: Vec<PendingTimer>,
    pub pending_children: Vec<PendingChild>,
    /// Accepted updates without an answer yet.
    pub pending_updates: Vec<UpdateId>,
    /// Inputs that wait because the run is paused or held.
    pub inbox: usize,
    /// Why no turn can be decided now: non-determinism, a missing workflow type, a busy loop.
    pub held: Option<String>,
    /// What the code waits for.
    pub awaiting: Vec<Awaited>,
    pub cancel_requested: bool,
    /// Early warnings: history or payload near a limit (engine.md E31).
    pub warnings: Vec<String>,
    pub result: Option<CloseOutcome>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PendingActivity {
    pub seq: Seq,
    pub activity_id: ActivityId,
    pub activity_type: ActivityType,
    pub state: PendingActivityState,
    pub attempt: Attempt,
    pub scheduled_at: Timestamp,
    pub next_attempt_at: Option<Timestamp>,
    pub last_failure: Option<Failure>,
    pub heartbeat_details: Option<Payload>,
    pub task_token: Option<String>,
    pub summary: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum PendingActivityState {
    Scheduled,
    Started,
    BackingOff,
    Paused,
    CancelRequested,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PendingTimer {
    pub seq: Seq,
    pub fire_at: Timestamp,
    pub summary: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PendingChild {
    pub seq: Seq,
    pub workflow_id: WorkflowId,
    pub workflow_type: WorkflowType,
    pub run_id: Option<RunId>,
}

/// A page of runs, newest start first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ListRequest {
    /// A list filter (engine.md E23); empty: all runs.
    pub query: String,
    /// At most 1 000.
    pub limit: usize,
}

/// What a waiter for a result gets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunResult {
    pub workflow_id: WorkflowId,
    /// The last run of the chain that was followed.
    pub run_id: RunId,
    pub outcome: CloseOutcome,
}

/// A committed event with its run, as visibility streams give it (engine.md E33).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunEvent {
    pub group: GroupSeq,
    pub workflow_id: WorkflowId,
    pub run_id: RunId,
    pub event: Event,
}

/// How long `result`-like calls follow a chain of runs and how long they wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResultRequest {
    /// Follow continue-as-new and workflow retries to the end.
    pub follow_runs: bool,
    /// `None`: wait for as long as it takes.
    pub timeout: Option<Duration>,
}
