//! What a person who takes over a run is shown: where it stands, what it has found, what to do next.
//!
//! Invariant: every task of the plan is either completed or pending, never both; lists are in plan order. It is built
//! from what the plan shows and keeps nothing.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

pub use crate::supervisor::core::control::HANDED_TO_HUMAN;
use crate::supervisor::model::TaskId;
use crate::supervisor::task::TaskStatus;

pub const HANDED_MESSAGE: &str = "Task handed to human for processing";

/// A task as the plan shows it, in plan order.
#[derive(Debug, Clone, PartialEq)]
pub struct PlanStepView {
    pub id: TaskId,
    pub objective: String,
    pub status: TaskStatus,
    /// Its worker has answered while the run stands still: that counts when it goes on.
    pub has_ended: bool,
    pub result: Option<Value>,
    pub error: Option<String>,
}

/// SHN-67, with the seed's names.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TakeoverContext {
    pub current_step: usize,
    pub total_steps: usize,
    pub completed_tasks: Vec<TaskId>,
    /// Every other task: also one that failed or was skipped is the person's to judge.
    pub pending_tasks: Vec<TaskId>,
    pub intermediate_results: Map<String, Value>,
    pub suggested_next_action: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_reason: Option<String>,
}

impl TakeoverContext {
    pub fn of(plan: &[PlanStepView]) -> Self {
        let (completed, pending): (Vec<_>, Vec<_>) = plan.iter().partition(|step| step.status == TaskStatus::Completed);
        let has_result = |step: &&PlanStepView| step.status == TaskStatus::Completed || step.has_ended;
        let results =
            plan.iter().filter(has_result).filter_map(|step| Some((step.id.to_string(), step.result.clone()?)));
        let failed = pending.iter().find(|step| step.error.is_some());
        TakeoverContext {
            current_step: (completed.len() + 1).min(plan.len()),
            total_steps: plan.len(),
            intermediate_results: results.collect(),
            suggested_next_action: suggestion(&pending),
            failure_reason: failed.and_then(|step| Some(format!("task {}: {}", step.id, step.error.as_ref()?))),
            completed_tasks: completed.into_iter().map(|step| step.id.clone()).collect(),
            pending_tasks: pending.into_iter().map(|step| step.id.clone()).collect(),
        }
    }

    /// What a run that is in a person's hands shows as its result (SHN-66).
    pub fn handed(&self) -> Value {
        json!({ "status": HANDED_TO_HUMAN, "message": HANDED_MESSAGE, "context": self })
    }
}

/// What has gone wrong comes first, then what waits for a person, then what is next in the plan.
fn suggestion(pending: &[&PlanStepView]) -> String {
    let first = |which: fn(TaskStatus) -> bool| pending.iter().find(|step| which(step.status));
    let wrong = |status| matches!(status, TaskStatus::Failed | TaskStatus::Errored | TaskStatus::Escalated);
    let waits = |status| matches!(status, TaskStatus::AwaitingApproval | TaskStatus::AwaitingInput);
    let open = |status: TaskStatus| !status.is_terminal() && status != TaskStatus::Running;
    let runs = |status: TaskStatus| status == TaskStatus::Running;
    let (verb, step) = if let Some(step) = first(wrong) {
        ("Repair or complete by hand", step)
    } else if let Some(step) = first(waits) {
        ("Answer for", step)
    } else if let Some(step) = pending.iter().find(|step| step.has_ended) {
        return format!("Release the run: task {} has been done, and its result counts then", step.id);
    } else if let Some(step) = first(runs) {
        ("Wait for", step)
    } else if let Some(step) = first(open) {
        ("Execute", step)
    } else {
        return "Release the run or cancel it: no task is open".to_owned();
    };
    format!("{verb} task {}: {}", step.id, step.objective)
}
