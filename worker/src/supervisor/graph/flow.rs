//! flow-state's blocks by themselves (FSS-22), and its task board's words (FSS-34): for programs that use a piece only.
//!
//! Invariant: the same readers and the same table as the machine; a block that refuses changes nothing.

use std::fmt;

use bosun_engine::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::answers::{ReviewOutput, VerdictKind};
use super::refusal::{NotTaken, PlanRefusal};
use super::{Graph, GraphRules, Open};
use crate::supervisor::model::{Feedback, FeedbackFrom, PlanOrigin, PlannerOutput, Requires, Task, TaskId, TaskPlan};
use crate::supervisor::outbox::Outbox;
use crate::supervisor::reading::{Unreadable, read};
use crate::supervisor::task::{Actor, TaskStatus};

/// The input of a supervisor (FSS-02): a goal, and nothing else.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SupervisorGoal {
    pub goal: String,
}

/// Takes the goal out of an input, or says what is wrong with it.
pub fn capture_goal(input: &Value) -> Result<String, Unreadable> {
    let SupervisorGoal { goal } = read("supervisor's input", input)?;
    if goal.trim().is_empty() {
        let (what, at) = ("supervisor's input".to_owned(), "goal".to_owned());
        Err(Unreadable::MisfitAt { what, at, why: "it is empty".to_owned() })
    } else {
        Ok(goal)
    }
}

/// Takes a planner's answer into a plan: all of it, or nothing. A later answer keeps what is completed and escalated, and
/// replaces the rest (FSS-12); feedback follows a task by its id, or to the one that revises it (FSS-13).
pub fn update_plan_state(plan: &mut TaskPlan, answer: &Value) -> Result<(), NotTaken> {
    let output: PlannerOutput = read("plan", answer)?;
    if !plan.tasks.is_empty() {
        let mut graph = Graph::new(GraphRules::default(), plan.clone());
        let mut out = Outbox::new("blocks", Timestamp::ZERO);
        let planned = graph.checked(output)?;
        graph.merge_plan(planned.tasks, PlanOrigin::Replan, &mut Open, &mut out)?;
        *plan = graph.plan;
        return Ok(());
    }
    let place = |(place, task): (usize, super::PlannedTask)| {
        let id = task.id.clone().unwrap_or_else(|| TaskId::from(place as u64 + 1));
        task.task(id, Requires::Completed, 3)
    };
    plan.add(output.tasks.into_iter().enumerate().map(place).collect()).map_err(PlanRefusal::from)?;
    Ok(())
}

/// Applies a reviewer's answer to tasks that await it; gives the results it accepted, in plan order, and whether the
/// planner is asked again.
pub fn apply_review(plan: &mut TaskPlan, answer: &Value) -> Result<(Vec<(TaskId, Value)>, bool), Unreadable> {
    let review: ReviewOutput = read("review", answer)?;
    for assessment in &review.assessments {
        let Some(task) = plan.tasks.get_mut(&assessment.task_id) else { continue };
        let to = match assessment.verdict {
            VerdictKind::Accepted => TaskStatus::Completed,
            VerdictKind::Escalate => TaskStatus::Escalated,
            VerdictKind::NeedsRevision => TaskStatus::NeedsRevision,
        };
        if task.change(to, Actor::Critic).is_ok() {
            task.feedback.push(Feedback {
                from: FeedbackFrom::Reviewer,
                attempt: task.tries,
                text: assessment.feedback.clone(),
                score_bp: assessment.score,
                passed: to == TaskStatus::Completed,
            });
        }
    }
    let accepted = |task: &&Task| task.status == TaskStatus::Completed;
    let results =
        plan.in_order().into_iter().filter(accepted).filter_map(|task| Some((task.id.clone(), task.result.clone()?)));
    Ok((results.collect(), review.needs_replanning))
}

/// JSON Schema of the input.
pub fn supervisor_input_schema() -> Value {
    json!(schemars::schema_for!(SupervisorGoal))
}

/// JSON Schema of what planners answer (FSS-04).
pub fn planner_output_schema() -> Value {
    let task = json!({ "type": "object", "required": ["id", "goal"], "properties": {
        "id": { "type": ["string", "integer"] }, "goal": { "type": "string" },
        "deps": { "type": "array", "items": { "type": ["string", "integer"] } },
        "priority": { "enum": ["high", "medium", "low"] }, "revises": { "type": "string" } } });
    json!({ "type": "object", "required": ["tasks"], "properties": { "tasks": { "type": "array", "items": task } } })
}

/// JSON Schema of what reviewers answer (FSS-08).
pub fn review_output_schema() -> Value {
    let assessment = json!({ "type": "object", "required": ["taskId", "verdict", "feedback", "score"], "properties": {
        "taskId": { "type": ["string", "integer"] }, "verdict": { "enum": ["accepted", "needs-revision", "escalate"] },
        "feedback": { "type": "string" }, "score": { "type": "number", "minimum": 0, "maximum": 1 } } });
    json!({ "type": "object", "required": ["assessments", "needsReplanning", "overallAssessment"], "properties": {
        "assessments": { "type": "array", "items": assessment }, "needsReplanning": { "type": "boolean" },
        "overallAssessment": { "type": "string" } } })
}

/// JSON Schema of the state as the query `digest` shows it.
pub fn supervisor_state_schema() -> Value {
    let task = json!({ "type": "object", "required": ["id", "status", "goal"], "properties": {
        "id": { "type": "string" }, "status": { "enum": TaskStatus::ALL }, "goal": { "type": "string" } } });
    json!({ "type": "object", "required": ["phase", "iteration", "tasks"], "properties": {
        "phase": { "enum": super::Phase::ALL }, "iteration": { "type": "integer" },
        "tasks": { "type": "array", "items": task } } })
}

/// The words of flow-state's task board.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BoardStatus {
    Pending,
    InProgress,
    Blocked,
    AwaitingReview,
    Completed,
    Errored,
    Cancelled,
}

/// A move that the board does not allow.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("[tasks] illegal status transition for task \"{task}\": {from} -> {to}")]
pub struct IllegalBoardMove {
    pub task: String,
    pub from: BoardStatus,
    pub to: BoardStatus,
}

impl BoardStatus {
    pub const ALL: [BoardStatus; 7] = [
        BoardStatus::Pending,
        BoardStatus::InProgress,
        BoardStatus::Blocked,
        BoardStatus::AwaitingReview,
        BoardStatus::Completed,
        BoardStatus::Errored,
        BoardStatus::Cancelled,
    ];

    /// How the board calls a status of ours; `None` for what it does not know.
    pub fn of(status: TaskStatus) -> Option<Self> {
        Some(match status {
            TaskStatus::Pending | TaskStatus::Ready | TaskStatus::NeedsRevision => BoardStatus::Pending,
            TaskStatus::Running => BoardStatus::InProgress,
            TaskStatus::Blocked | TaskStatus::AwaitingApproval => BoardStatus::Blocked,
            TaskStatus::AwaitingReview | TaskStatus::AwaitingInput => BoardStatus::AwaitingReview,
            TaskStatus::Completed => BoardStatus::Completed,
            TaskStatus::Errored | TaskStatus::Failed => BoardStatus::Errored,
            TaskStatus::Cancelled => BoardStatus::Cancelled,
            TaskStatus::Escalated | TaskStatus::Skipped => return None,
        })
    }

    pub fn may_become(self, to: BoardStatus) -> bool {
        use BoardStatus::*;
        match self {
            Pending => matches!(to, InProgress | Blocked | Cancelled),
            InProgress => matches!(to, Completed | Errored | AwaitingReview | Pending | Cancelled),
            Blocked => matches!(to, Pending | Cancelled),
            AwaitingReview => matches!(to, Pending | Completed | Cancelled | Errored),
            Completed | Errored | Cancelled => false,
        }
    }

    /// The new status; asking for the same one is no move.
    pub fn change(self, task: &TaskId, to: BoardStatus) -> Result<BoardStatus, IllegalBoardMove> {
        let refused = || IllegalBoardMove { task: task.to_string(), from: self, to };
        if self == to || self.may_become(to) { Ok(to) } else { Err(refused()) }
    }
}

impl fmt::Display for BoardStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BoardStatus::Pending => "pending",
            BoardStatus::InProgress => "in_progress",
            BoardStatus::Blocked => "blocked",
            BoardStatus::AwaitingReview => "awaiting_review",
            BoardStatus::Completed => "completed",
            BoardStatus::Errored => "errored",
            BoardStatus::Cancelled => "cancelled",
        })
    }
}
