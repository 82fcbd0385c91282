//! What planners write: tasks as they want them, before the plan makes tasks of its own of them.
//!
//! Invariant: plain data; which of it is taken is the plan's to say. A share is kept in basis points and an amount in micros,
//! and each is written as it was read.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Condition, DependencyPolicy, Edge, PlanMetadata, PlanStrategy, Priority, Requires, Risk, Task, TaskId};

/// A dependency as planners write it: an id, or an id with conditions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Dependency {
    Id(TaskId),
    Edge(PlannedEdge),
}

impl Dependency {
    /// The task that is waited for.
    pub fn on(&self) -> &TaskId {
        match self {
            Dependency::Id(id) => id,
            Dependency::Edge(edge) => &edge.on,
        }
    }

    /// The same for another task.
    pub fn wait_for(&mut self, on: TaskId) {
        match self {
            Dependency::Id(id) => *id = on,
            Dependency::Edge(edge) => edge.on = on,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PlannedEdge {
    pub on: TaskId,
    #[serde(default)]
    pub requires: Option<Requires>,
    #[serde(default)]
    pub when: Option<Condition>,
    #[serde(default)]
    pub on_failure: Option<DependencyPolicy>,
}

/// A task as planners write it (FSS-04 and its superset).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PlannedTask {
    #[serde(default, skip_serializing_if = "Option::is_none", alias = "task_id")]
    pub id: Option<TaskId>,
    #[serde(alias = "description", alias = "task", alias = "objective", alias = "sub_task_objective")]
    pub goal: String,
    #[serde(
        default,
        deserialize_with = "null_is_absent",
        alias = "dependencies",
        alias = "depends_on",
        alias = "sub_task_dependencies"
    )]
    pub deps: Vec<Dependency>,
    #[serde(default, deserialize_with = "null_is_absent")]
    pub priority: Priority,
    #[serde(default)]
    pub revises: Option<TaskId>,
    #[serde(default, alias = "agent_name")]
    pub agent: Option<String>,
    #[serde(default)]
    pub capability: Option<String>,
    #[serde(default)]
    pub role: Option<String>,
    #[serde(default)]
    pub action: Option<String>,
    #[serde(default, deserialize_with = "null_is_absent")]
    pub required: bool,
    #[serde(default, deserialize_with = "null_is_absent", alias = "risk_level")]
    pub risk: Risk,
    #[serde(default, deserialize_with = "null_is_absent")]
    pub requires_approval: bool,
    #[serde(
        default,
        deserialize_with = "dollars",
        serialize_with = "as_dollars",
        skip_serializing_if = "Option::is_none",
        alias = "est_cost"
    )]
    #[schemars(with = "Option<f64>")]
    pub cost: Option<u64>,
    #[serde(default, deserialize_with = "null_is_absent")]
    pub produces: Vec<String>,
    #[serde(default, deserialize_with = "null_is_absent")]
    pub consumes: Vec<String>,
    #[serde(default, deserialize_with = "null_is_absent", alias = "suggested_tools")]
    pub tools: Vec<String>,
    #[serde(default, deserialize_with = "null_is_absent", alias = "parameters", alias = "tool_parameters")]
    pub params: Map<String, Value>,
    #[serde(default, deserialize_with = "null_is_absent")]
    pub metadata: PlanMetadata,
    #[serde(default)]
    pub compensation: Option<Value>,
    #[serde(default)]
    pub overall_objective: Option<String>,
    #[serde(default)]
    pub max_attempts: Option<u32>,
    #[serde(default, deserialize_with = "null_is_absent")]
    pub is_final: bool,
}

impl PlannedTask {
    pub fn edges(&self, requires: Requires) -> Vec<Edge> {
        let edge = |dependency: &Dependency| match dependency {
            Dependency::Id(on) => Edge { on: on.clone(), requires, when: None, on_failure: None },
            Dependency::Edge(edge) => Edge {
                on: edge.on.clone(),
                requires: edge.requires.unwrap_or(requires),
                when: edge.when.clone(),
                on_failure: edge.on_failure,
            },
        };
        self.deps.iter().map(edge).collect()
    }

    /// Changes a task that is planned again: its goal and priority, and of the rest what is said. An empty action is none.
    pub(crate) fn change(self, task: &mut Task) {
        (task.goal, task.priority) = (self.goal, self.priority);
        let given = |new: Option<String>, old: &mut Option<String>| *old = new.or_else(|| old.take());
        given(self.agent, &mut task.agent);
        given(self.capability, &mut task.capability);
        given(self.role, &mut task.role);
        given(self.action, &mut task.action);
        task.action.take_if(|action| action.trim().is_empty());
        task.params.extend(self.params);
        task.metadata.say(self.metadata);
        if !self.tools.is_empty() {
            task.tools = self.tools;
        }
        task.required |= self.required;
        task.requires_approval |= self.requires_approval;
        task.risk = task.risk.max(self.risk);
        task.est_cost_micros = self.cost.or(task.est_cost_micros);
        task.is_final |= self.is_final;
    }

    pub fn task(self, id: TaskId, requires: Requires, max_attempts: u32) -> Task {
        Task {
            edges: self.edges(requires),
            revises: self.revises,
            overall_objective: self.overall_objective.unwrap_or_default(),
            capability: self.capability,
            agent: self.agent,
            role: self.role,
            action: self.action,
            produces: self.produces,
            consumes: self.consumes,
            tools: self.tools,
            priority: self.priority,
            required: self.required,
            risk: self.risk,
            requires_approval: self.requires_approval,
            est_cost_micros: self.cost,
            compensation: self.compensation,
            params: self.params,
            metadata: self.metadata.into(),
            max_attempts: self.max_attempts.unwrap_or(max_attempts).max(1),
            is_final: self.is_final,
            ..Task::new(id, self.goal)
        }
    }
}

/// What a planner answers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PlannerOutput {
    #[serde(alias = "subtasks", alias = "sub_tasks")]
    pub tasks: Vec<PlannedTask>,
    #[serde(default, alias = "thoughts")]
    pub reasoning: Option<String>,
    #[serde(default, alias = "execution_strategy")]
    pub strategy: Option<PlanStrategy>,
    #[serde(default, deserialize_with = "share", serialize_with = "as_share", alias = "complexity_score")]
    #[schemars(with = "Option<f64>")]
    pub complexity: Option<u32>,
    /// The role of each task by position (SHN-40).
    #[serde(default, deserialize_with = "null_is_absent")]
    pub agent_types: Vec<String>,
    #[serde(default, deserialize_with = "null_is_absent", alias = "estimated_tokens")]
    pub tokens: u64,
}

/// Models write null where they have nothing to say: where a key may be left out, that is the same.
pub(crate) fn null_is_absent<'de, D: serde::Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

/// A number from 0 to 1 as basis points. What is below a bound stays below it: 0.59999 is no 0.6.
pub fn basis_points(share: f64) -> Option<u32> {
    // 0.57 is 5699.999… ten-thousandths as it is stored.
    const STORED: f64 = 1e-6;
    (0.0..=1.0).contains(&share).then(|| (share * 10_000.0 + STORED).floor() as u32)
}

pub(crate) fn share<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    let Some(share) = Option::<f64>::deserialize(deserializer)? else { return Ok(None) };
    let refuse = || serde::de::Error::custom(format!("{share} is not between 0 and 1"));
    basis_points(share).map(Some).ok_or_else(refuse)
}

/// As it was read: a number from 0 to 1.
fn as_share<S: serde::Serializer>(share: &Option<u32>, serializer: S) -> Result<S::Ok, S::Error> {
    share.map(|share| f64::from(share) / 10_000.0).serialize(serializer)
}

pub(crate) fn dollars<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let Some(dollars) = Option::<f64>::deserialize(deserializer)? else { return Ok(None) };
    if !(0.0..=1e12).contains(&dollars) {
        return Err(serde::de::Error::custom(format!("{dollars} is no amount in dollars")));
    }
    Ok(Some((dollars * 1e6).round() as u64))
}

/// As it was read: in dollars.
fn as_dollars<S: serde::Serializer>(micros: &Option<u64>, serializer: S) -> Result<S::Ok, S::Error> {
    micros.map(|micros| micros as f64 / 1e6).serialize(serializer)
}
