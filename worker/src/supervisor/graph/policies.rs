//! Policies that were resolved before planning, as a plan must reflect them (CUG-04, CUG-19).
//!
//! Invariant: policies only narrow a plan: an agent that is not allowed refuses it as a whole, an order becomes edges, an
//! approval becomes a gate. Nothing is resolved here.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::answers::{Dependency, PlannedTask};
use crate::supervisor::model::TaskId;

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

    /// Makes a plan reflect the policies.
    pub fn apply(&self, tasks: &mut [PlannedTask]) {
        let agent = |task: &PlannedTask| task.agent.clone().unwrap_or_default();
        let rank = |name: &str| self.supervisor_sequence_order.iter().position(|other| other == name);
        let ranked: Vec<(Option<usize>, Option<TaskId>)> =
            tasks.iter().map(|task| (rank(&agent(task)), task.id.clone())).collect();
        for task in tasks.iter_mut() {
            task.requires_approval |= self.approval_agents.contains(&agent(task));
            let Some(own) = rank(&agent(task)) else { continue };
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
