//! Options: what limits and guides activities, child workflows and the next run. Part of the disk contract: events carry
//! them.
//!
//! Invariant: changes are additive only, as in `event`: structs are stored as arrays, so a new field goes last, with
//! `#[serde(default)]`. Nothing here has a default that depends on anything but the type.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::*;

/// What limits and guides an activity (E04). One of the two close timeouts is required.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ActivityOptions {
    /// `None`: the queue of the workflow.
    pub task_queue: Option<TaskQueue>,
    /// How long the activity may take with all of its attempts and the pauses between them, from the moment it was asked for.
    pub schedule_to_close: Option<Duration>,
    /// How long an attempt may wait for a slot. What waits too long is not tried again.
    pub schedule_to_start: Option<Duration>,
    /// How long one attempt may run. One that takes longer has failed, and the policy decides about the next.
    pub start_to_close: Option<Duration>,
    /// How long an attempt may go without a heartbeat before it counts as lost. `None`: it need not give any.
    pub heartbeat: Option<Duration>,
    /// `None`: the default policy.
    pub retry_policy: Option<RetryPolicy>,
    /// What a cancellation means to whoever waits for the result.
    pub cancellation: CancellationType,
    /// What this call is for, in a few words, for histories and lists. Not a part of what replay compares.
    pub summary: Option<String>,
    /// Its place among those that wait for a slot of its queue. `None`: that of its run.
    // Left out where there is none, so that old events keep their bytes; whoever adds a field after this one must write
    // both always.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<Priority>,
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

/// What happens to a child when its parent closes (E15).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum ParentClosePolicy {
    /// It is terminated: no code of it runs any more (default).
    #[default]
    Terminate,
    /// It goes on by itself.
    Abandon,
    /// It is asked to cancel, and may clean up.
    RequestCancel,
}

/// What a start does when a closed run of the same id exists (E01).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum IdReusePolicy {
    /// A new run is started, however the last one ended (default).
    #[default]
    AllowDuplicate,
    /// A new run is started unless the last one has completed.
    AllowDuplicateFailedOnly,
    /// The start is refused with [`Rejection::IdReused`].
    RejectDuplicate,
}

/// What a start does when a run of the same id is open (E01).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum IdConflictPolicy {
    /// The start is refused with [`Rejection::AlreadyOpen`] (default).
    #[default]
    Fail,
    /// The open run is what the start gives; nothing new begins.
    UseExisting,
    /// The open run is terminated, and a new one begins in the same commit.
    TerminateExisting,
}

/// What limits and guides a child workflow (E15).
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ChildWorkflowOptions {
    /// `None`: the queue of the parent.
    pub task_queue: Option<TaskQueue>,
    /// How long the child may take with all runs of its chain. `None`: no limit.
    pub execution_timeout: Option<Duration>,
    /// How long one run of it may take. `None`: no limit.
    pub run_timeout: Option<Duration>,
    /// Whether it is tried again when it fails. `None`: it is not.
    pub retry_policy: Option<RetryPolicy>,
    /// What happens to it when the parent ends first.
    pub parent_close_policy: ParentClosePolicy,
    /// What a cancellation means to the parent that waits for it.
    pub cancellation: CancellationType,
    /// What happens where a closed run has its workflow id.
    pub id_reuse_policy: IdReusePolicy,
    /// Notes for people, which lists show and cannot look for.
    pub memo: Memo,
    /// What lists can look for.
    pub search_attributes: SearchAttributes,
    /// What it is for, in a few words.
    pub summary: Option<String>,
    /// The place of its activities among those that wait for a slot. `None`: that of the parent.
    // Left out where there is none, so that old events keep their bytes; whoever adds a field after this one must write
    // both always.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<Priority>,
}

/// What the next run changes; `None` keeps what this run has.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ContinueAsNewOptions {
    /// The queue of the next run and, unless they name one, of its activities.
    pub task_queue: Option<TaskQueue>,
    /// How long the next run may take.
    pub run_timeout: Option<Duration>,
    /// Whether the next run is tried again when it fails.
    pub retry_policy: Option<RetryPolicy>,
    /// Its notes, instead of those of this run.
    pub memo: Option<Memo>,
    /// Its search attributes, instead of those of this run.
    pub search_attributes: Option<SearchAttributes>,
}

/// What somebody from outside wants of a pending activity. Nothing named: nothing changes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ActivityUpdate {
    /// As in [`ActivityOptions`], in place of what it has; so are those that follow.
    pub schedule_to_close: Option<Duration>,
    /// See [`ActivityOptions::schedule_to_start`].
    pub schedule_to_start: Option<Duration>,
    /// See [`ActivityOptions::start_to_close`].
    pub start_to_close: Option<Duration>,
    /// See [`ActivityOptions::heartbeat`].
    pub heartbeat: Option<Duration>,
    /// See [`RetryPolicy::initial_interval`].
    pub initial_interval: Option<Duration>,
    /// See [`RetryPolicy::maximum_interval`].
    pub maximum_interval: Option<Duration>,
    /// See [`RetryPolicy::maximum_attempts`].
    pub maximum_attempts: Option<u32>,
    /// The policy counts from the next attempt on, which starts at once.
    pub reset: bool,
    /// The next attempt starts at once.
    pub retry_now: bool,
}

impl ActivityUpdate {
    /// These options with what is named in place of theirs; `None` if nothing is.
    pub fn options(&self, options: &ActivityOptions) -> Option<ActivityOptions> {
        let mut policy = options.retry_policy.clone().unwrap_or_default();
        policy.initial_interval = self.initial_interval.unwrap_or(policy.initial_interval);
        policy.maximum_interval = self.maximum_interval.or(policy.maximum_interval);
        policy.maximum_attempts = self.maximum_attempts.unwrap_or(policy.maximum_attempts);
        let of_policy = self.initial_interval.is_some() || self.maximum_interval.is_some();
        let updated = ActivityOptions {
            schedule_to_close: self.schedule_to_close.or(options.schedule_to_close),
            schedule_to_start: self.schedule_to_start.or(options.schedule_to_start),
            start_to_close: self.start_to_close.or(options.start_to_close),
            heartbeat: self.heartbeat.or(options.heartbeat),
            retry_policy: match of_policy || self.maximum_attempts.is_some() {
                true => Some(policy),
                false => options.retry_policy.clone(),
            },
            ..options.clone()
        };
        (updated != *options).then_some(updated)
    }
}

/// What has changed of a pending activity, as its history has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActivityChange {
    /// All of its options, if any is another one now.
    pub options: Option<ActivityOptions>,
    /// The policy counts from the attempt that runs, or comes next.
    pub reset: bool,
    /// It does not wait for the end of its backoff.
    pub retry_now: bool,
}
