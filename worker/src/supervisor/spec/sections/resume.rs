//! What a run takes over from an earlier one, and workflows of steps.
//!
//! Invariant: it is data that the earlier run's query `resume_point` gave; nothing of it is looked up later. It resumes
//! nothing itself.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// `resume:` what another run left, as its query `resume_point` says it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Resume {
    /// The conversation so far (AGC-14, SWM-06).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<Map<String, Value>>,
    /// What is said next; null goes on from the last message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The agent whose turn it is (SWM-06).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Variables that agents share, as they stood.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub context_variables: Map<String, Value>,
    /// Tool calls that the conversation has used already (CUG-35).
    pub charged_thread: u32,
    /// What agents below remember of the conversation, by their names (CUG-38).
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub memories: BTreeMap<String, Vec<Map<String, Value>>>,
    /// The todo list of whoever supervises.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub todos: Vec<Map<String, Value>>,
    /// A crew's: outputs of tasks, which are not done again (CRW-11, CRW-12).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<Map<String, Value>>,
    /// A crew's: the runs it comes from, the oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lineage: Vec<String>,
    /// A crew's: the task to begin with again, or behind; null is where the outputs end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// A crew's: the task behind which it goes on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

/// One entry of `steps:` (SUP-29).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// Who does the step.
    pub agent: String,
    /// May hold `{{output}}` of other steps.
    pub task: String,
    /// The name others know its answer by.
    #[serde(default)]
    pub output: Option<String>,
    /// The outputs it waits for, by their names.
    #[serde(default)]
    pub depends_on: Vec<String>,
}
