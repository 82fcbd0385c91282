//! Routing: which kind of workflow a request is for, by the shape of its decomposition.
//!
//! Invariant: the same decomposition and rules give the same route, in integers; thresholds are settings, their defaults
//! are Shannon's. It starts nothing.

mod degrade;

#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

use super::model::{PlannedTask, PlannerOutput};
use super::spec::{DepsTo, Routing};

pub use degrade::{ThinkingStrategy, degrade};

/// Where a request goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Route {
    /// One execution, no plan.
    SimpleTask,
    /// A fixed graph of tasks.
    Dag,
    /// A team that is managed.
    Supervisor,
}

/// What routing looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RoutingInput {
    pub subtasks: usize,
    pub has_dependencies: bool,
    /// Members may join while it runs.
    pub dynamic: bool,
    /// Agents talk to each other.
    pub communicates: bool,
}

/// The router: many, dynamic or talking subtasks need a supervisor; dependencies go where the rules say; the rest is a
/// graph, or simple.
pub fn route(shape: RoutingInput, rules: &Routing) -> Route {
    if shape.dynamic || shape.communicates || shape.subtasks > rules.supervisor_above as usize {
        return Route::Supervisor;
    }
    match (shape.has_dependencies, rules.deps_to) {
        (true, DepsTo::Supervisor) => Route::Supervisor,
        (true, DepsTo::Dag) => Route::Dag,
        (false, _) if shape.subtasks <= rules.simple_up_to as usize => Route::SimpleTask,
        (false, _) => Route::Dag,
    }
}

impl RoutingInput {
    /// The shape of a decomposition; tasks that exchange topics talk to each other.
    pub fn of(plan: &PlannerOutput) -> RoutingInput {
        RoutingInput {
            subtasks: plan.tasks.len(),
            has_dependencies: plan.tasks.iter().any(|task| !task.deps.is_empty()),
            dynamic: false,
            communicates: plan.tasks.iter().any(|task| !task.produces.is_empty() || !task.consumes.is_empty()),
        }
    }
}

/// Whether a subtask is more than one answer of one agent.
pub fn needs_tools(task: &PlannedTask) -> bool {
    let PlannedTask { deps, produces, consumes, tools, params, .. } = task;
    !(deps.is_empty() && produces.is_empty() && consumes.is_empty() && tools.is_empty() && params.is_empty())
}

/// Whether a supervisor hands a request on to a graph instead of building a team for it. A planner that says nothing of
/// complexity has not called it simple.
pub fn is_simple(plan: &PlannerOutput, rules: &Routing) -> bool {
    let calm = plan.complexity.is_some_and(|complexity| complexity < rules.simple_below.as_bp());
    match &plan.tasks[..] {
        [] => calm || rules.zero_subtasks_simple,
        [single] => calm && !needs_tools(single),
        _ => false,
    }
}

impl Route {
    /// The checkpoint before the workflow of this route starts.
    pub fn checkpoint(self) -> &'static str {
        match self {
            Route::SimpleTask => "pre_simple_workflow",
            Route::Dag => "pre_dag_workflow",
            Route::Supervisor => "pre_supervisor_workflow",
        }
    }
}

/// The checkpoint before a request is routed.
pub const PRE_ROUTING: &str = "pre_routing";
/// The checkpoints of a child: before its agent works, after it, and before it ends.
pub const CHILD_CHECKPOINTS: [&str; 3] = ["pre_execution", "post_agent", "pre_completion"];

/// The three of flow-state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FlowSystem {
    Coordinator,
    PlanAndExecute,
    Supervisor,
}

impl FlowSystem {
    /// Which one fits: work that is reviewed and repeated is the Supervisor's; steps that build on each other are for
    /// Plan-and-Execute; the rest is done at once.
    pub fn fitting(needs_quality_loop: bool, has_dependencies: bool) -> FlowSystem {
        match (needs_quality_loop, has_dependencies) {
            (true, _) => FlowSystem::Supervisor,
            (false, true) => FlowSystem::PlanAndExecute,
            (false, false) => FlowSystem::Coordinator,
        }
    }

    pub fn preset(self) -> &'static str {
        match self {
            FlowSystem::Coordinator => "flow-coordinator",
            FlowSystem::PlanAndExecute => "flow-plan-and-execute",
            FlowSystem::Supervisor => "flow-supervisor",
        }
    }
}
