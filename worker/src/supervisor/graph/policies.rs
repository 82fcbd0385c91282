//! Policies that were resolved before planning, as a plan must reflect them (CUG-04, CUG-19).
//!
//! Invariant: policies only narrow a plan: an agent that is not allowed refuses it as a whole, an order becomes edges, an
//! approval becomes a gate. They are about the agent that does the work, however a task asks for it: by name, capability,
//! role, or not at all; whoever starts a task looks once more (`execute`), so no way into a plan leads around them.
//! Nothing is resolved here.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::answers::{Dependency, PlannedTask};
use super::{Graph, GraphRules, WorkerRequirements};
use crate::supervisor::model::{Task, TaskId};

/// What the supervisor's state says before it plans.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ResolvedPolicies {
    /// Only these may be named; all that are available if empty.
    pub supervisor_allowed_agents: Vec<String>,
    /// Sub-tasks of a later agent wait for those of the earlier ones.
    pub supervisor_sequence_order: Vec<String>,
    /// Sub-tasks of these agents need a person's approval.
    pub approval_agents: Vec<String>,
    /// Agents that have been given work already; they are told to the planner.
    pub supervisor_dispatched_agents: Vec<String>,
}

impl ResolvedPolicies {
    /// Whether an agent may be named.
    pub fn allows(&self, agent: &str) -> bool {
        self.supervisor_allowed_agents.is_empty()
            || self.supervisor_allowed_agents.iter().any(|allowed| allowed == agent)
    }

    /// Whether a person must approve what this agent is given.
    pub fn wants_approval(&self, agent: &str) -> bool {
        self.approval_agents.iter().any(|asked| asked == agent)
    }

    /// The place of an agent in the order, if it has one.
    fn rank(&self, agent: Option<&String>) -> Option<usize> {
        self.supervisor_sequence_order.iter().position(|other| Some(other) == agent)
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
            let known: BTreeSet<&TaskId> = task
                .deps
                .iter()
                .map(|dependency| match dependency {
                    Dependency::Id(id) => id,
                    Dependency::Edge(edge) => &edge.on,
                })
                .collect();
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
    /// What the order of agents puts before a task that joins a plan: all that is not over of whoever comes earlier.
    pub(super) fn ordered_before(&self, task: &Task) -> Vec<TaskId> {
        let rank = |task: &Task| {
            let agent = self.rules.agent_for(WorkerRequirements::of(task));
            self.rules.policies.rank(agent.as_ref())
        };
        let Some(own) = rank(task) else { return Vec::new() };
        let earlier = |id: &&TaskId| self.task(id).and_then(rank).is_some_and(|other| other < own);
        self.open.iter().filter(earlier).cloned().collect()
    }
}
