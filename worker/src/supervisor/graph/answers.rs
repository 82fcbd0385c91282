//! What planners, deciders and reviewers answer, read strictly.
//!
//! Invariant: an answer that does not conform is an error that names the field, and nothing of it is used. How is
//! said in `reading`; what planners write is in `model`, and what workers say in `reply`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::refusal::NotTaken;
use super::spellings::words;
use crate::supervisor::model::{PlannedTask, TaskId, null_is_absent, share};
use crate::supervisor::outbox::Answer;
use crate::supervisor::reading::{read, refused};

/// Reads what a call was answered; a call that failed has no answer.
pub(super) fn answered<T: DeserializeOwned>(what: &str, answer: Answer) -> Result<T, NotTaken> {
    let said = answer?;
    match refused(&said) {
        Some(why) => Err(NotTaken::Refused(why)),
        None => Ok(read(what, &said)?),
    }
}

/// One call of a tool by a decider.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ToolCall")]
pub struct DeciderToolCall {
    #[serde(alias = "name")]
    pub tool: String,
    #[serde(default, deserialize_with = "null_is_absent", alias = "arguments")]
    pub args: Map<String, Value>,
}

/// What the supervisor decides in a cycle (PDT-02), with the tools it called on the way.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SupervisorDecision {
    #[serde(default, deserialize_with = "null_is_absent")]
    pub reasoning: String,
    #[serde(default, deserialize_with = "chosen")]
    #[schemars(with = "Vec<String>")]
    pub tasks_to_execute: Vec<TaskId>,
    #[serde(default, deserialize_with = "feedback")]
    #[schemars(with = "BTreeMap<String, String>")]
    pub feedback_to_subagents: BTreeMap<TaskId, String>,
    #[serde(default, deserialize_with = "null_is_absent")]
    pub all_tasks_completed: bool,
    #[serde(default, deserialize_with = "null_is_absent")]
    pub tool_calls: Vec<DeciderToolCall>,
    #[serde(default, deserialize_with = "null_is_absent")]
    pub tokens: u64,
}

/// Ids of no task are skipped, and the decision counts (PDT-14): also numbers that no task can have.
fn chosen<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<TaskId>, D::Error> {
    let said = Option::<Vec<Value>>::deserialize(deserializer)?.unwrap_or_default();
    let read = |id: Value| match TaskId::deserialize(&id) {
        Err(_) if id.is_number() => TaskId::new(id.to_string()).map_err(serde::de::Error::custom),
        read => read.map_err(serde::de::Error::custom),
    };
    said.into_iter().map(read).collect()
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
    #[serde(default, deserialize_with = "null_is_absent")]
    pub conclude_task: bool,
    #[serde(default)]
    pub conclude_final_answer: Option<String>,
    #[serde(default, deserialize_with = "null_is_absent")]
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
    #[serde(default, deserialize_with = "null_is_absent", alias = "reasoning")]
    pub feedback: String,
    #[serde(default, deserialize_with = "share")]
    #[schemars(with = "Option<f64>")]
    pub score: Option<u32>,
    #[serde(default)]
    pub criteria: Value,
    #[serde(default, deserialize_with = "null_is_absent")]
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
    #[serde(default, deserialize_with = "null_is_absent")]
    pub tokens: u64,
}

/// What an evaluator of Plan-and-Execute answers (FSP-05, FSP-06).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Evaluation {
    pub decision: EvaluationKind,
    #[serde(default, deserialize_with = "null_is_absent")]
    pub reason: String,
    /// Bypasses the replanner.
    #[serde(default)]
    pub tasks: Option<Vec<PlannedTask>>,
    #[serde(default, deserialize_with = "null_is_absent")]
    pub tokens: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EvaluationKind {
    Continue,
    Replan,
    Complete,
}
