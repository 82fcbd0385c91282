//! Options: what limits and guides activities, child workflows and the next run. Part of the disk contract: events carry
//! them.
//!
//! Invariant: changes are additive only, as in `event`: structs are stored as arrays, so a new field goes last, with
//! `#[serde(default)]`. Nothing here has a default that depends on anything but the type.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::*;

/// What limits and guides an activity (engine.md E04). One of the two close timeouts is required.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ActivityOptions {
    /// `None`: the queue of the workflow.
    pub task_queue: Option<TaskQueue>,
    pub schedule_to_close: Option<Duration>,
    pub schedule_to_start: Option<Duration>,
    pub start_to_close: Option<Duration>,
    pub heartbeat: Option<Duration>,
    /// `None`: the default policy.
    pub retry_policy: Option<RetryPolicy>,
    pub cancellation: CancellationType,
    pub summary: Option<String>,
}

/// What a cancellation of an activity or child means to the code that waits for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum CancellationType {
    /// Ask for cancellation and report `Canceled` at once (default).
    #[default]
    TryCancel,
    /// Ask, and wait until the other side has ended, however it ends.
    WaitCancellationCompleted,
    /// Do not ask; report `Canceled` at once.
    Abandon,
    /// Children only: wait until the request has been delivered.
    WaitCancellationRequested,
}

/// What happens to a child when its parent closes (engine.md E15).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum ParentClosePolicy {
    #[default]
    Terminate,
    Abandon,
    RequestCancel,
}

/// What a start does when a closed run of the same id exists (engine.md E01).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum IdReusePolicy {
    #[default]
    AllowDuplicate,
    AllowDuplicateFailedOnly,
    RejectDuplicate,
}

/// What a start does when a run of the same id is open (engine.md E01).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum IdConflictPolicy {
    #[default]
    Fail,
    UseExisting,
    TerminateExisting,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ChildWorkflowOptions {
    pub task_queue: Option<TaskQueue>,
    pub execution_timeout: Option<Duration>,
    pub run_timeout: Option<Duration>,
    pub retry_policy: Option<RetryPolicy>,
    pub parent_close_policy: ParentClosePolicy,
    pub cancellation: CancellationType,
    pub id_reuse_policy: IdReusePolicy,
    pub memo: Memo,
    pub search_attributes: SearchAttributes,
    pub summary: Option<String>,
}

/// What the next run changes; `None` keeps what this run has.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ContinueAsNewOptions {
    pub task_queue: Option<TaskQueue>,
    pub run_timeout: Option<Duration>,
    pub retry_policy: Option<RetryPolicy>,
    pub memo: Option<Memo>,
    pub search_attributes: Option<SearchAttributes>,
}
