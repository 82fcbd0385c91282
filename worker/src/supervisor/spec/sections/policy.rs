//! Policies that hold whatever a model says.
//!
//! Invariant: an id begins with the type of its policy (CUG-39). Nothing is applied here.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One entry of `policies:` (CUG-39). Which keys it takes depends on its type.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// Begins with the type; null is made of type and name.
    #[serde(default)]
    pub id: Option<String>,
    /// What the policy is called.
    pub name: String,
    /// What the policy does.
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
    /// Playbook: the agents it is delegated to, in order.
    #[serde(default)]
    pub delegations: Vec<String>,
    /// Tool guide and tool approval: which tools.
    #[serde(default)]
    pub tools: Vec<String>,
    /// Tool guide: what the model is told about the tools.
    #[serde(default)]
    pub guide: Option<String>,
    /// Tool approval: what the person is asked.
    #[serde(default)]
    pub message: Option<String>,
    /// Output formatter: a text with `{{answer}}`, or instructions for one more call.
    #[serde(default)]
    pub template: Option<String>,
    /// Output formatter: how one more call rewrites the answer.
    #[serde(default)]
    pub instructions: Option<String>,
}

/// What a policy does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PolicyKind {
    /// It answers a request without anybody working on it.
    IntentGuard,
    /// It says how a request is met, and by whom.
    Playbook,
    /// It tells the model how to use tools.
    ToolGuide,
    /// It asks a person before a tool is called.
    ToolApproval,
    /// It gives the answer another form.
    OutputFormatter,
}

impl PolicyKind {
    /// The word in a spec.
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
    /// A policy of this kind that says nothing yet.
    pub fn new(kind: PolicyKind, name: &str) -> Self {
        Policy {
            id: None,
            name: name.to_owned(),
            kind,
            triggers: Vec::new(),
            response: None,
            guidance: None,
            delegations: Vec::new(),
            tools: Vec::new(),
            guide: None,
            message: None,
            template: None,
            instructions: None,
        }
    }
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
