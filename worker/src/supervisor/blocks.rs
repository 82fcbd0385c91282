//! The supervisor of flow-state in pieces, for programs that put a loop of their own together (FSS-22): the whole as a spec,
//! the steps that keep its state, and the schemas of what it is given and answered.
//!
//! ```
//! use bosun_worker::supervisor::blocks::{apply_review, capture_goal, update_plan_state};
//! use serde_json::json;
//!
//! let mut state = capture_goal(&json!({ "goal": "Explain the tides" }))?;
//! update_plan_state(&mut state, &json!({ "tasks": [{ "id": "neap", "goal": "Neap tides" }] }))?;
//! for task in state.executable() {
//!     let result = json!(format!("done: {}", task.goal)); // your worker
//!     state.worked(&task.id, result)?;
//! }
//! let review = json!({ "assessments": [{ "taskId": "neap", "verdict": "accepted", "feedback": "", "score": 1 }],
//!     "needsReplanning": false, "overallAssessment": "good" }); // your reviewer
//! let reviewed = apply_review(&mut state, &review)?;
//! assert_eq!(reviewed.accepted[0].1, "done: Neap tides");
//! # Ok::<(), bosun_worker::supervisor::blocks::BlockRefused>(())
//! ```
//!
//! Invariant: the same readers, table and rules as in a run; a block that refuses changes nothing. They call nobody, keep
//! nothing on disk, and bound no loop: a run of [`supervisor`] does all three.

use serde::Serialize;
use serde_json::{Value, json};

use super::core::phase::Phase;
use super::graph;
use super::model::{Task, TaskId, TaskPlan};
use super::spec::{Preset, SpecBuilder, SupervisorSpec};
use super::task::{Actor, TaskStatus};

pub use super::graph::{planner_output_schema, review_output_schema, supervisor_input_schema, supervisor_state_schema};

/// Why a block has not taken what it was given, with the place of the mistake.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BlockRefused(String);

impl BlockRefused {
    fn because(why: impl ToString) -> Self {
        BlockRefused(why.to_string())
    }
}

/// What a loop of your own remembers between its steps: the goal, the tasks, and which planning it is.
#[derive(Debug, Clone)]
pub struct PlanState {
    plan: TaskPlan,
    plannings: u32,
}

/// A task for a worker (FSS-05).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ExecutableTask {
    /// The planner's name for it.
    pub id: String,
    /// What is to be done.
    pub goal: String,
    /// Why the work before was not accepted, if it was sent back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub feedback: Option<String>,
}

/// What came of a review.
#[derive(Debug, Clone, PartialEq)]
pub struct Reviewed {
    /// All results that are accepted until now, by task, in plan order: for a synthesizer.
    pub accepted: Vec<(String, Value)>,
    /// Whether the planner is to be asked again.
    pub needs_replanning: bool,
}

/// The whole supervisor, as a step among others: a spec to which agents and an objective are added.
pub fn supervisor(name: &str) -> SpecBuilder {
    SupervisorSpec::preset(Preset::FlowSupervisor).name(name)
}

/// Takes the goal out of an input that fits [`supervisor_input_schema`]; the state begins with it.
pub fn capture_goal(input: &Value) -> Result<PlanState, BlockRefused> {
    let goal = graph::capture_goal(input).map_err(BlockRefused::because)?;
    Ok(PlanState { plan: TaskPlan::new(goal), plannings: 0 })
}

/// Takes a planner's answer that fits [`planner_output_schema`]. A later one keeps what is completed or escalated, and
/// replaces the rest; work that is sent back keeps its feedback.
pub fn update_plan_state(state: &mut PlanState, answer: &Value) -> Result<(), BlockRefused> {
    graph::update_plan_state(&mut state.plan, answer).map_err(BlockRefused::because)?;
    state.plannings += 1;
    Ok(())
}

/// Applies a reviewer's answer that fits [`review_output_schema`] to the tasks that a worker has given a result for. What
/// it says of others is passed over.
pub fn apply_review(state: &mut PlanState, answer: &Value) -> Result<Reviewed, BlockRefused> {
    let (accepted, needs_replanning) = graph::apply_review(&mut state.plan, answer).map_err(BlockRefused::because)?;
    let accepted = accepted.into_iter().map(|(id, result)| (id.to_string(), result)).collect();
    Ok(Reviewed { accepted, needs_replanning })
}

impl PlanState {
    /// The goal.
    pub fn goal(&self) -> &str {
        &self.plan.objective
    }

    /// The tasks that a worker can do now, in plan order: those that nobody has done, or whose work was sent back, and that
    /// wait for no other.
    pub fn executable(&self) -> Vec<ExecutableTask> {
        let has_result = |id: &TaskId| self.plan.get(id).is_some_and(|task| task.result.is_some());
        let waits = |task: &Task| !task.dependencies().iter().all(has_result);
        let to_do =
            |task: &&Task| matches!(task.status, TaskStatus::Pending | TaskStatus::NeedsRevision) && !waits(task);
        let shown = |task: &Task| ExecutableTask {
            id: task.id.to_string(),
            goal: task.goal.clone(),
            feedback: task.open_feedback(),
        };
        self.plan.in_order().into_iter().filter(to_do).map(shown).collect()
    }

    /// A worker has given a result: it awaits the review.
    pub fn worked(&mut self, id: &str, result: Value) -> Result<(), BlockRefused> {
        let id = TaskId::new(id.to_owned()).map_err(BlockRefused::because)?;
        let Some(task) = self.plan.tasks.get_mut(&id) else {
            return Err(BlockRefused(format!("there is no task {id} in the plan")));
        };
        let mut worked = task.clone();
        for status in [TaskStatus::Ready, TaskStatus::Running, TaskStatus::AwaitingReview] {
            let sent_back = status == TaskStatus::Ready && worked.status == TaskStatus::NeedsRevision;
            if !sent_back {
                worked.change(status, Actor::Scheduler).map_err(BlockRefused::because)?;
            }
        }
        (worked.tries, worked.result) = (worked.tries + 1, Some(result).filter(|result| !result.is_null()));
        *task = worked;
        Ok(())
    }

    /// The state as JSON, as [`supervisor_state_schema`] says.
    pub fn to_value(&self) -> Value {
        let task = |task: &Task| {
            json!({ "id": task.id, "status": task.status, "goal": task.goal, "result": task.result,
                "feedback": task.open_feedback() })
        };
        let tasks: Vec<Value> = self.plan.in_order().into_iter().map(task).collect();
        let phase = if tasks.is_empty() { Phase::Planning } else { Phase::Executing };
        json!({ "goal": self.goal(), "phase": phase, "iteration": self.plannings, "tasks": tasks })
    }
}
