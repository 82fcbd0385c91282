//! Policies that were resolved before planning, as a plan must reflect them (CUG-04, CUG-19).
//!
//! Invariant: policies only narrow a plan: an agent that is not allowed refuses it as a whole, an order becomes edges, an
//! approval becomes a gate. They are about the agent that does the work, however a task asks for it: by name, capability,
//! role, or not at all; whoever starts a task looks once more (`execute`), so no way into a plan leads around them.
//! Nothing is resolved here.

use std::collections::{BTreeMap, BTreeSet};

use super::{Graph, GraphRules, WorkerRequirements};
use crate::supervisor::model::{Dependency, Edge, PlannedTask, Task, TaskId};
use crate::supervisor::spec::PlanPolicies;

impl PlanPolicies {
    /// Whether an agent may be named.
    pub fn allows(&self, agent: &str) -> bool {
        self.allowed_agents.is_empty() || self.allowed_agents.iter().any(|allowed| allowed == agent)
    }

    /// Whether a person must approve what this agent is given.
    pub fn wants_approval(&self, agent: &str) -> bool {
        self.approval_agents.iter().any(|asked| asked == agent)
    }

    /// The place of an agent in the order, if it has one.
    fn rank(&self, agent: Option<&String>) -> Option<usize> {
        self.sequence_order.iter().position(|other| Some(other) == agent)
    }
}

impl GraphRules {
    /// Makes a plan reflect the policies, whether its tasks name their agents or are found one (CUG-04).
    pub fn apply_policies(&self, tasks: &mut [PlannedTask]) {
        let agents: Vec<Option<String>> =
            tasks.iter().map(|task| self.agent_for(WorkerRequirements::by(task))).collect();
        let rank = |agent: &Option<String>| self.policies.rank(agent.as_ref());
        let ranked: Vec<(Option<usize>, Option<TaskId>)> =
            agents.iter().map(rank).zip(tasks.iter().map(|task| task.id.clone())).collect();
        for (task, agent) in tasks.iter_mut().zip(&agents) {
            task.requires_approval |= agent.as_ref().is_some_and(|agent| self.policies.wants_approval(agent));
            let Some(own) = rank(agent) else { continue };
            // The nearest agent before it that has something to do.
            let Some(before) = ranked.iter().filter_map(|(rank, _)| rank.filter(|rank| *rank < own)).max() else {
                continue;
            };
            let known: BTreeSet<&TaskId> = task.deps.iter().map(Dependency::on).collect();
            let missing: Vec<TaskId> = ranked
                .iter()
                .filter(|(rank, id)| *rank == Some(before) && id.as_ref().is_some_and(|id| !known.contains(id)))
                .filter_map(|(_, id)| id.clone())
                .collect();
            task.deps.extend(missing.into_iter().map(Dependency::Id));
        }
    }
}

impl Graph {
    /// What the order of agents puts before work that joins a plan: all that is not over of whoever comes earlier.
    pub(super) fn ordered_before(&self, wanted: WorkerRequirements<'_>) -> Vec<TaskId> {
        let rank = |wanted| self.rules.policies.rank(self.rules.agent_for(wanted).as_ref());
        let Some(own) = rank(wanted) else { return Vec::new() };
        let of = |id: &TaskId| self.task(id).and_then(|task| rank(WorkerRequirements::of(task)));
        self.open.iter().filter(|id| of(id).is_some_and(|other| other < own)).cloned().collect()
    }

    /// What it puts before a task of the plan that is changed to this: of all that, what the task does not wait for by these
    /// edges anyway, and what does not wait for the task itself.
    pub(super) fn ordered_before_changed(&self, task: &Task, edges: &[Edge]) -> Vec<TaskId> {
        let mut ordered = self.ordered_before(WorkerRequirements::of(task));
        if ordered.is_empty() {
            return ordered;
        }
        let mut waiting: BTreeMap<&TaskId, Vec<&TaskId>> = BTreeMap::new();
        let others = self.plan.tasks.values().filter(|other| other.id != task.id);
        for (other, edge) in others.flat_map(|other| other.edges.iter().map(move |edge| (&other.id, &edge.on))) {
            waiting.entry(edge).or_default().push(other);
        }
        let after = reached(vec![&task.id], |id| waiting.get(id).cloned().unwrap_or_default());
        let edges_of = |id: &TaskId| self.task(id).map(|task| task.edges.as_slice()).unwrap_or_default();
        let before = reached(edges.iter().map(|edge| &edge.on).collect(), |id| {
            edges_of(id).iter().map(|edge| &edge.on).collect()
        });
        ordered.retain(|id| !after.contains(id) && !before.contains(id));
        ordered
    }

    /// A plan of a person leaves alone what runs: its tasks wait for that as the order of agents wants it.
    pub(super) fn put_after_what_runs(&self, planned: &mut [PlannedTask]) {
        for task in planned {
            let known: BTreeSet<TaskId> = task.deps.iter().map(|dependency| dependency.on().clone()).collect();
            let mut before = self.ordered_before(WorkerRequirements::by(task));
            before.retain(|id| !known.contains(id) && self.task(id).is_some_and(Task::is_in_flight));
            task.deps.extend(before.into_iter().map(Dependency::Id));
        }
    }
}

/// These and all that is reached from them, step by step.
fn reached<'t>(mut from: Vec<&'t TaskId>, next: impl Fn(&TaskId) -> Vec<&'t TaskId>) -> BTreeSet<&'t TaskId> {
    let mut seen = BTreeSet::new();
    while let Some(id) = from.pop() {
        if seen.insert(id) {
            from.extend(next(id));
        }
    }
    seen
}
