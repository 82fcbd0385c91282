//! A task of a crew, as a plan says it and as it is carried out.
//!
//! Invariant: plain data; what tasks must be to each other is the crew's to say.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::supervisor::model::Condition;

/// What only tasks of crews have: parameters of a task in a plan, under the names of [`CrewTask`].
pub(crate) const CREW_PARAMETERS: [&str; 6] =
    ["expected_output", "async_execution", "when", "guardrail", "guardrail_max_retries", "human_input"];

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CrewTask {
    pub id: String,
    pub description: String,
    pub expected_output: String,
    /// The only coworker for this task, under the scope `assigned`.
    pub agent: Option<String>,
    /// Tasks whose outputs it is told; all earlier ones if none are named.
    pub context: Option<Vec<String>>,
    pub async_execution: bool,
    pub when: Option<OutputCondition>,
    /// What the outputs of these tasks must be like; an output that is JSON is looked into, any other is a text.
    pub conditions: BTreeMap<String, Condition>,
    /// Without it the run has failed, whatever else is done.
    pub required: bool,
    /// Who validates the output.
    pub guardrail: Option<String>,
    pub guardrail_max_retries: u32,
    pub human_input: bool,
}

impl Default for CrewTask {
    fn default() -> Self {
        CrewTask {
            id: String::new(),
            description: String::new(),
            expected_output: String::new(),
            agent: None,
            context: None,
            async_execution: false,
            when: None,
            conditions: BTreeMap::new(),
            required: false,
            guardrail: None,
            guardrail_max_retries: 3,
            human_input: false,
        }
    }
}

impl CrewTask {
    pub(crate) fn is_conditional(&self) -> bool {
        self.when.is_some() || !self.conditions.is_empty()
    }
}

/// What an earlier output must be like; everything that is given must hold.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct OutputCondition {
    /// Whose output; the last one before this task if none is named.
    pub task: Option<String>,
    pub contains: Option<String>,
    pub not_contains: Option<String>,
    /// A place in an output that is JSON, such as `/count`, and what it must hold.
    pub pointer: Option<String>,
    pub equals: Option<Value>,
}
