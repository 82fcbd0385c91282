//! Short ways to write the options that nearly every call has.
//!
//! Invariant: each gives the defaults of E04 and E15 and changes what its name says; it checks nothing.

use std::time::Duration;

use crate::vocabulary::*;

impl ActivityOptions {
    /// One attempt may take this long.
    pub fn start_to_close(limit: Duration) -> Self {
        ActivityOptions { start_to_close: Some(limit), ..Default::default() }
    }
    /// All attempts together may take this long.
    pub fn schedule_to_close(limit: Duration) -> Self {
        ActivityOptions { schedule_to_close: Some(limit), ..Default::default() }
    }
    /// With another policy for failed attempts.
    pub fn with_retry(mut self, policy: RetryPolicy) -> Self {
        self.retry_policy = Some(policy);
        self
    }
    /// With another meaning of a cancellation.
    pub fn with_cancellation(mut self, cancellation: CancellationType) -> Self {
        self.cancellation = cancellation;
        self
    }
    /// With a limit between heartbeats: an attempt that is silent for longer counts as lost.
    pub fn with_heartbeat(mut self, timeout: Duration) -> Self {
        self.heartbeat = Some(timeout);
        self
    }
    /// On another task queue than the workflow's.
    pub fn on_queue(mut self, queue: impl Into<TaskQueue>) -> Self {
        self.task_queue = Some(queue.into());
        self
    }
    /// With another place among those that wait for a slot of its queue.
    pub fn with_priority(mut self, priority: Priority) -> Self {
        self.priority = Some(priority);
        self
    }
    /// With a few words on what it is for.
    pub fn with_summary(mut self, summary: impl Into<String>) -> Self {
        self.summary = Some(summary.into());
        self
    }
}

impl ChildWorkflowOptions {
    /// With another meaning of a cancellation.
    pub fn with_cancellation(mut self, cancellation: CancellationType) -> Self {
        self.cancellation = cancellation;
        self
    }
    /// With another fate when the parent ends first.
    pub fn with_close_policy(mut self, policy: ParentClosePolicy) -> Self {
        self.parent_close_policy = policy;
        self
    }
    /// With another place of its activities than the parent's have among those that wait for a slot.
    pub fn with_priority(mut self, priority: Priority) -> Self {
        self.priority = Some(priority);
        self
    }
    /// On another task queue than the parent's.
    pub fn on_queue(mut self, queue: impl Into<TaskQueue>) -> Self {
        self.task_queue = Some(queue.into());
        self
    }
}
