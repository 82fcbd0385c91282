//! Standalone activities: a durable job without a workflow of the user's (E36).
//!
//! ```text
//!   order ──► run: the workflow `bosun.activity` ──► one activity, with its policy and timeouts ──► its end is the run's end
//! ```
//!
//! A standalone activity is itself a run, `activity:ID`: it goes on after kill -9, and whatever is done to a run (`result`,
//! `describe`, `cancel`, `terminate`, `list`) or to a pending activity (`activity pause`, `activity reset`) is done to it.
//!
//! Invariant: pure. It asks for the one activity of its order and ends as that ends, with its result or its failure. What
//! belongs to Bosun's own workflows (`bosun.…`) it never asks for: those act with the rights of whoever ordered them.

use bosun_engine::workflow::{Cx, StateMachine, WorkflowEvent, WorkflowRegistry};
use bosun_engine::*;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The workflow type.
pub const ACTIVITY: &str = "bosun.activity";
/// What the workflow id of a standalone activity begins with.
pub const ID_PREFIX: &str = "activity:";
/// How long an attempt may run of which nothing is said.
pub const DEFAULT_START_TO_CLOSE: std::time::Duration = std::time::Duration::from_secs(600);
/// The failure type of an input that is no order.
pub const INVALID_ORDER: &str = "InvalidActivity";
/// Activities of Bosun's own workflows begin with this.
const OWN: &str = "bosun.";

/// What somebody asks for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ActivityOrder {
    /// Which function of the worker.
    pub activity_type: ActivityType,
    /// What it is given.
    #[serde(default)]
    pub input: Value,
    /// Its limits, policy, queue and priority.
    pub options: ActivityOptions,
}

impl ActivityOrder {
    /// What is wrong with it, before anything is started.
    ///
    /// # Errors
    /// What no run could carry out.
    pub fn check(&self) -> Result<(), String> {
        let ActivityOptions { schedule_to_close, schedule_to_start, start_to_close, heartbeat, .. } = &self.options;
        if self.activity_type.as_str().starts_with(OWN) {
            return Err(format!(
                "{} belongs to a workflow of Bosun's own; it is not started alone",
                self.activity_type
            ));
        }
        if schedule_to_close.is_none() && start_to_close.is_none() {
            return Err("one of start-to-close and schedule-to-close timeout is required".to_owned());
        }
        if [schedule_to_close, schedule_to_start, start_to_close, heartbeat]
            .into_iter()
            .flatten()
            .any(|at| at.is_zero())
        {
            return Err("a timeout of 0 leaves no time for any attempt".to_owned());
        }
        self.options.retry_policy.as_ref().map_or(Ok(()), RetryPolicy::check)?;
        self.options.priority.as_ref().map_or(Ok(()), Priority::check)
    }

    /// The start of its run; whoever asks for the same id while it runs may ask for that one (`IdConflictPolicy`).
    ///
    /// # Errors
    /// An order that no run could carry out, or an id that is none.
    pub fn start(&self, id: &str) -> Result<StartWorkflow, Rejection> {
        let invalid = |why: String| Rejection::Invalid { what: "activity".into(), why };
        self.check().map_err(invalid)?;
        let workflow_id = WorkflowId::new(format!("{ID_PREFIX}{id}")).map_err(|why| invalid(why.to_string()))?;
        let input = Payload::encode(self).map_err(|why| invalid(why.to_string()))?;
        let mut start = StartWorkflow::new(WorkflowType::of(ACTIVITY), workflow_id).input(input);
        start.summary = self.options.summary.clone().or_else(|| Some(self.activity_type.to_string()));
        Ok(start)
    }
}

/// The workflow: waits for the activity of this number.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ActivityRun {
    seq: Seq,
}

impl StateMachine for ActivityRun {
    const TYPE: &'static str = ACTIVITY;
    type Input = ActivityOrder;
    type Output = Value;

    fn start(order: ActivityOrder, cx: &mut Cx<'_>) -> Result<Self, Failure> {
        // Recorded: what is allowed is another version's affair.
        let wrong: Option<String> = cx.side_effect(|| order.check().err());
        if let Some(why) = wrong {
            return Err(Failure::application(INVALID_ORDER, why).non_retryable());
        }
        // Whoever cancels the run hears how the activity took it.
        let cancellation = CancellationType::WaitCancellationCompleted;
        let options = ActivityOptions { cancellation, ..order.options };
        Ok(ActivityRun { seq: cx.schedule_activity(order.activity_type.as_str(), &order.input, options) })
    }

    fn on_event(&mut self, event: WorkflowEvent, cx: &mut Cx<'_>) -> Result<(), Failure> {
        match event {
            WorkflowEvent::ActivityResolved { seq, result, .. } if seq == self.seq => match result {
                Ok(result) => cx.complete(&result.to_json()),
                Err(failure) if failure.is_canceled() => cx.cancel(None),
                Err(failure) => cx.fail(failure),
            },
            WorkflowEvent::CancelRequested { .. } => cx.cancel_activity(self.seq),
            // It asks for nothing else, and has no use for messages.
            _ => {}
        }
        Ok(())
    }
}

/// Adds the workflow of standalone activities.
pub fn register(registry: WorkflowRegistry) -> WorkflowRegistry {
    registry.state_machine::<ActivityRun>()
}

#[cfg(test)]
mod tests;
