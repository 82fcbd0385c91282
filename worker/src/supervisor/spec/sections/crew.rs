//! The tasks of a crew, and the policies that hold whatever a model says.
//!
//! Invariant: a crew's tasks run in list order (CRW-03). Whether a list can be run is checked where it is run.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// `crew:`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Crew {
    pub tasks: Vec<CrewTask>,
}

/// One task of a crew.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CrewTask {
    /// Null is its place in the list, from 1.
    #[serde(default)]
    pub id: Option<String>,
    pub description: String,
    #[serde(default)]
    pub expected_output: String,
    /// The only coworker for this task, under `delegation.scope: assigned` (CRW-04).
    #[serde(default)]
    pub agent: Option<String>,
    /// Tasks whose outputs it is told; null is all before it.
    #[serde(default)]
    pub context: Option<Vec<String>>,
    #[serde(default)]
    pub async_execution: bool,
    /// It is skipped unless an earlier output is like this (CRW-09).
    #[serde(default)]
    pub when: Option<CrewCondition>,
    /// The agent that validates the output (CRW-10).
    #[serde(default)]
    pub guardrail: Option<String>,
    /// Null is `review.guardrail_retries`.
    #[serde(default)]
    pub guardrail_max_retries: Option<u32>,
    /// A person is asked before the output is accepted (CRW-10).
    #[serde(default)]
    pub human_input: bool,
}

/// What an earlier output must be like. All that is given must hold.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CrewCondition {
    /// Whose output; null is the last one before this task.
    pub task: Option<String>,
    pub contains: Option<String>,
    pub not_contains: Option<String>,
    /// A place in an output that is JSON, such as `/count`.
    pub pointer: Option<String>,
    pub equals: Option<Value>,
}

/// One entry of `policies:` (CUG-39). Which keys it takes depends on its type.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// Begins with the type; null is made of type and name.
    #[serde(default)]
    pub id: Option<String>,
    pub name: String,
    #[serde(rename = "type")]
    pub kind: PolicyKind,
    /// Texts of a request it applies to, in any case; none is every request.
    #[serde(default)]
    pub triggers: Vec<String>,
    /// Intent guard: what is answered instead.
    #[serde(default)]
    pub response: Option<String>,
    /// Playbook: how such a request is met, and the agents it is delegated to, in order.
    #[serde(default)]
    pub guidance: Option<String>,
    #[serde(default)]
    pub delegations: Vec<String>,
    /// Tool guide and tool approval: which tools.
    #[serde(default)]
    pub tools: Vec<String>,
    #[serde(default)]
    pub guide: Option<String>,
    #[serde(default)]
    pub message: Option<String>,
    /// Output formatter: a text with `{{answer}}`, or instructions for one more call.
    #[serde(default)]
    pub template: Option<String>,
    #[serde(default)]
    pub instructions: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PolicyKind {
    IntentGuard,
    Playbook,
    ToolGuide,
    ToolApproval,
    OutputFormatter,
}

impl PolicyKind {
    pub fn as_str(self) -> &'static str {
        match self {
            PolicyKind::IntentGuard => "intent_guard",
            PolicyKind::Playbook => "playbook",
            PolicyKind::ToolGuide => "tool_guide",
            PolicyKind::ToolApproval => "tool_approval",
            PolicyKind::OutputFormatter => "output_formatter",
        }
    }
}

impl Policy {
    /// What it must have and has not.
    pub fn missing(&self) -> Option<&'static str> {
        match self.kind {
            PolicyKind::IntentGuard if self.response.is_none() => Some("response"),
            PolicyKind::Playbook if self.guidance.is_none() && self.delegations.is_empty() => Some("guidance"),
            PolicyKind::ToolGuide if self.guide.is_none() => Some("guide"),
            PolicyKind::ToolGuide | PolicyKind::ToolApproval if self.tools.is_empty() => Some("tools"),
            PolicyKind::OutputFormatter if self.template.is_none() && self.instructions.is_none() => Some("template"),
            _ => None,
        }
    }
}
