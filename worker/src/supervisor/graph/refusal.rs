//! Why an answer is not taken, and why a change of the plan is refused, in the words that people and models read.
//!
//! Invariant: each variant has one text, which names what is wrong and where; histories record the text and nothing else.
//! Nothing here decides.

use crate::supervisor::core::phase::Phase;
use crate::supervisor::model::{PlanChangeError, TaskId};
use crate::supervisor::outbox::CallFailure;
use crate::supervisor::reading::Unreadable;
use crate::supervisor::task::TaskStatus;

/// Why an answer of a planner, decider, reviewer or worker is not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotTaken {
    #[error(transparent)]
    Failed(#[from] CallFailure),
    #[error("it did not succeed: {0}")]
    Refused(String),
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    #[error(transparent)]
    Plan(#[from] PlanRefusal),
    #[error("the review says neither `verdict` nor `passed`")]
    NoVerdict,
    #[error("assessments[{place}]: task {task} has another verdict before: say one for each task")]
    TwoVerdicts { place: usize, task: TaskId },
    #[error("subtasks_progress has {given} entries for {shown} sub-tasks")]
    NotAllSubtasks { given: usize, shown: usize },
}

/// Why a plan, or a change of it, is not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanRefusal {
    #[error("tasks[{place}]{key}: {why}")]
    NobodyDoes { place: usize, key: &'static str, why: String },
    #[error("tasks[{place}].agent: {why}")]
    Forbidden { place: usize, why: AgentForbidden },
    #[error("tasks[{place}].capability: {why}")]
    Reserved { place: usize, why: BuiltInReserved },
    #[error("tasks[{place}].goal: the text is empty; it says what is to be done")]
    NoGoal { place: usize },
    #[error("tasks[{place}].revises: there is no task {of} that it could take the place of")]
    RevisesNothing { place: usize, of: TaskId },
    #[error("tasks[{place}].max_attempts: expected a whole number of 1 or more, found 0")]
    NoAttempt { place: usize },
    #[error("the plan has {given} tasks; at most {max} are taken")]
    TooLong { given: usize, max: u32 },
    #[error("task {0} is being done; cancel it, or leave it out of the new plan")]
    BeingDone(TaskId),
    #[error("task {task} depends on task {on}, which this plan leaves out; name {on} too, or drop the dependency")]
    NeedsLeftOut { task: TaskId, on: TaskId },
    #[error(transparent)]
    Change(#[from] PlanChangeError),
    #[error(transparent)]
    Tool(#[from] ToolRefusal),
    #[error("No task with id {0}.")]
    NoTask(TaskId),
    #[error("Task {id} is {status} already.")]
    TaskIsOver { id: TaskId, status: TaskStatus },
    #[error("the run is {0}")]
    RunIsOver(Phase),
    #[error("A feedback request is in progress. Please wait and try again.")]
    IsAskedAnew,
    #[error("the run is {0}: a plan is changed while it waits for approval or is executed")]
    NotNow(Phase),
}

/// The policies of the run keep work from this agent (CUG-03).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the agent '{agent}' is not allowed; allowed: {}", allowed.join(", "))]
pub struct AgentForbidden {
    pub agent: String,
    pub allowed: Vec<String>,
}

/// A model may not use what is in the box unless the spec grants it (supervisors.md §2.2).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{capability}` is not for whoever plans or decides unless `planning.built_in` lists it; available are the agents"
)]
pub struct BuiltInReserved {
    pub capability: String,
}

/// Why a tool of the plan is not used as it was called.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ToolRefusal {
    #[error("Error: there is no tool '{name}' here; the tools are: {}", tools.join(", "))]
    NoTool { name: String, tools: Vec<&'static str> },
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    #[error("Error: sub_task_objective is empty: say what is to be done")]
    NoObjective,
    #[error("Error: the plan has {0} tasks; no more are taken")]
    Full(usize),
    #[error("Error: {0}")]
    NobodyDoes(String),
    #[error("Error: {0}")]
    Forbidden(#[from] AgentForbidden),
    #[error("Error: {0}")]
    Reserved(#[from] BuiltInReserved),
    #[error("Error: {0}")]
    Change(#[from] PlanChangeError),
    #[error("Task not found.")]
    NothingToPatch,
    #[error("Error: Task {id} is {status} and cannot be patched.")]
    NotPatched { id: TaskId, status: TaskStatus },
    #[error("Error: Task {0} not found.")]
    NothingToCancel(TaskId),
    #[error("Error: a person has changed task {0} since you were asked; look at it again.")]
    ChangedByPerson(TaskId),
    #[error("Error: Task {id} is {status} and cannot be cancelled.")]
    NotCancelled { id: TaskId, status: TaskStatus },
    #[error("Error: No task with id {0} found in plan.")]
    NothingToMark(TaskId),
    #[error("Error: No task with {0} found in plan. Be sure task_id actually exists.")]
    NoStatusToSet(TaskId),
    #[error("Error: '{0}' is no task status.")]
    NoStatus(String),
    #[error("Error: [tasks] illegal status transition for task \"{id}\": {from} -> {to}")]
    IllegalStatus { id: TaskId, from: String, to: String },
}
