//! What planners, deciders and reviewers answer, read strictly.
//!
//! Invariant: an answer that does not conform is an error that names the field, and nothing of it is used. Every answer that
//! may be the text of JSON is read here, with or without a fence around it. What workers say is read in `reply`.

use std::borrow::Cow;
use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::refusal::{NotTaken, Unreadable};
use super::spellings::words;
use crate::capability::model::without_fence;
use crate::supervisor::model::{
    Condition, DependencyPolicy, Edge, PlanMetadata, Priority, Requires, Risk, Task, TaskId,
};
use crate::supervisor::outbox::Answer;
use crate::supervisor::routing::PlanStrategy;

/// Reads an answer, whoever gave it; the error says where it does not conform.
pub fn read<T: DeserializeOwned>(what: &str, value: &Value) -> Result<T, Unreadable> {
    let named = || what.to_owned();
    let value = data_of(value).map_err(|why| Unreadable::NoJson { what: named(), why: why.to_string() })?;
    if value.is_array() {
        return Err(Unreadable::List { what: named() });
    }
    serde_path_to_error::deserialize(&*value).map_err(|why| match why.path().to_string() {
        path if path == "." => Unreadable::Misfit { what: named(), why: why.inner().to_string() },
        at => Unreadable::MisfitAt { what: named(), at, why: why.inner().to_string() },
    })
}

/// What an answer says: models answer with the text of JSON, and like to put it in a fence; what is no text is taken as it is.
pub(super) fn data_of(value: &Value) -> Result<Cow<'_, Value>, serde_json::Error> {
    match value {
        Value::String(text) => serde_json::from_str(without_fence(text)).map(Cow::Owned),
        value => Ok(Cow::Borrowed(value)),
    }
}

/// Reads what a call was answered; a call that failed has no answer.
pub(super) fn answered<T: DeserializeOwned>(what: &str, answer: Answer) -> Result<T, NotTaken> {
    Ok(read(what, &answer?)?)
}

/// A number from 0 to 1 as basis points. What is below a bound stays below it: 0.59999 is no 0.6.
pub fn basis_points(share: f64) -> Option<u32> {
    // 0.57 is 5699.999… ten-thousandths as it is stored.
    const STORED: f64 = 1e-6;
    (0.0..=1.0).contains(&share).then(|| (share * 10_000.0 + STORED).floor() as u32)
}

pub(super) fn share<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    let Some(share) = Option::<f64>::deserialize(deserializer)? else { return Ok(None) };
    let refuse = || serde::de::Error::custom(format!("{share} is not between 0 and 1"));
    basis_points(share).map(Some).ok_or_else(refuse)
}

/// As it was read: a number from 0 to 1.
fn as_share<S: serde::Serializer>(share: &Option<u32>, serializer: S) -> Result<S::Ok, S::Error> {
    share.map(|share| f64::from(share) / 10_000.0).serialize(serializer)
}

/// As it was read: in dollars.
fn as_dollars<S: serde::Serializer>(micros: &Option<u64>, serializer: S) -> Result<S::Ok, S::Error> {
    micros.map(|micros| micros as f64 / 1e6).serialize(serializer)
}

pub(super) fn dollars<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let Some(dollars) = Option::<f64>::deserialize(deserializer)? else { return Ok(None) };
    if !(0.0..=1e12).contains(&dollars) {
        return Err(serde::de::Error::custom(format!("{dollars} is no amount in dollars")));
    }
    Ok(Some((dollars * 1e6).round() as u64))
}

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
    #[serde(default, alias = "dependencies", alias = "depends_on", alias = "sub_task_dependencies")]
    pub deps: Vec<Dependency>,
    #[serde(default)]
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
    #[serde(default)]
    pub required: bool,
    #[serde(default, alias = "risk_level")]
    pub risk: Risk,
    #[serde(default)]
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
    #[serde(default)]
    pub produces: Vec<String>,
    #[serde(default)]
    pub consumes: Vec<String>,
    #[serde(default, alias = "suggested_tools")]
    pub tools: Vec<String>,
    #[serde(default, alias = "parameters", alias = "tool_parameters")]
    pub params: Map<String, Value>,
    #[serde(default)]
    pub metadata: PlanMetadata,
    #[serde(default)]
    pub compensation: Option<Value>,
    #[serde(default)]
    pub overall_objective: Option<String>,
    #[serde(default)]
    pub max_attempts: Option<u32>,
    #[serde(default)]
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

    /// Changes a task that is planned again: its goal and priority, and of the rest what is said.
    pub(super) fn change(self, task: &mut Task) {
        (task.goal, task.priority) = (self.goal, self.priority);
        let given = |new: Option<String>, old: &mut Option<String>| *old = new.or_else(|| old.take());
        given(self.agent, &mut task.agent);
        given(self.capability, &mut task.capability);
        given(self.role, &mut task.role);
        given(self.action, &mut task.action);
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
    #[serde(default)]
    pub agent_types: Vec<String>,
    #[serde(default, alias = "estimated_tokens")]
    pub tokens: u64,
}

/// One call of a tool by a decider.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ToolCall")]
pub struct DeciderToolCall {
    #[serde(alias = "name")]
    pub tool: String,
    #[serde(default, alias = "arguments")]
    pub args: Map<String, Value>,
}

/// What the supervisor decides in a cycle (PDT-02), with the tools it called on the way.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SupervisorDecision {
    #[serde(default)]
    pub reasoning: String,
    #[serde(default)]
    pub tasks_to_execute: Vec<TaskId>,
    #[serde(default, deserialize_with = "feedback")]
    #[schemars(with = "BTreeMap<String, String>")]
    pub feedback_to_subagents: BTreeMap<TaskId, String>,
    #[serde(default)]
    pub all_tasks_completed: bool,
    #[serde(default)]
    pub tool_calls: Vec<DeciderToolCall>,
    #[serde(default)]
    pub tokens: u64,
}

/// Keys of JSON objects are texts, whatever they name; absent and null mean none.
fn feedback<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<TaskId, String>, D::Error> {
    let texts = Option::<BTreeMap<String, String>>::deserialize(deserializer)?.unwrap_or_default();
    let read = |(id, text): (String, String)| Ok((TaskId::new(id).map_err(serde::de::Error::custom)?, text));
    texts.into_iter().map(read).collect()
}

/// What a plan controller decides (CUG-42).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ControllerDecision {
    #[serde(default)]
    pub thoughts: Value,
    pub subtasks_progress: Vec<SubtaskProgress>,
    /// What is to be done next, by id or by refined words; nothing: whatever may run.
    #[serde(default, deserialize_with = "words")]
    #[schemars(with = "String")]
    pub next_subtask: String,
    #[serde(default, rename = "type")]
    pub kind: Option<String>,
    #[serde(default)]
    pub app: Option<String>,
    #[serde(default)]
    pub conclude_task: bool,
    #[serde(default)]
    pub conclude_final_answer: Option<String>,
    #[serde(default)]
    pub tokens: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SubtaskProgress {
    Completed,
    NotStarted,
    InProgress,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum VerdictKind {
    #[serde(alias = "approve", alias = "passed")]
    Accepted,
    #[serde(alias = "needs-revision", alias = "reject", alias = "failed")]
    NeedsRevision,
    #[serde(alias = "escalated")]
    Escalate,
}

/// What a reviewer says of one task. pydantask's critic says `passed` and `reasoning`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TaskReview {
    #[serde(default)]
    pub verdict: Option<VerdictKind>,
    #[serde(default)]
    pub passed: Option<bool>,
    #[serde(default, alias = "reasoning")]
    pub feedback: String,
    #[serde(default, deserialize_with = "share")]
    #[schemars(with = "Option<f64>")]
    pub score: Option<u32>,
    #[serde(default)]
    pub criteria: Value,
    #[serde(default)]
    pub tokens: u64,
}

/// One verdict of a review of an iteration (FSS-08).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Assessment {
    #[serde(rename = "taskId", alias = "task_id")]
    pub task_id: TaskId,
    pub verdict: VerdictKind,
    pub feedback: String,
    #[serde(default, deserialize_with = "share")]
    #[schemars(with = "Option<f64>")]
    pub score: Option<u32>,
}

/// What a reviewer of an iteration answers (FSS-08).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReviewOutput {
    pub assessments: Vec<Assessment>,
    #[serde(rename = "needsReplanning", alias = "needs_replanning")]
    pub needs_replanning: bool,
    #[serde(rename = "overallAssessment", alias = "overall_assessment")]
    pub overall_assessment: String,
    #[serde(default)]
    pub tokens: u64,
}

/// What an evaluator of Plan-and-Execute answers (FSP-05, FSP-06).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Evaluation {
    pub decision: EvaluationKind,
    #[serde(default)]
    pub reason: String,
    /// Bypasses the replanner.
    #[serde(default)]
    pub tasks: Option<Vec<PlannedTask>>,
    #[serde(default)]
    pub tokens: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EvaluationKind {
    Continue,
    Replan,
    Complete,
}
