//! The agents of a run: who they are, what they may do, and how they are run.
//!
//! Invariant: what an agent may do stands in its own entry; nothing is inherited from who calls it (SUP-33). It runs
//! none.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::script::Script;
use super::span::Span;

/// One entry of `agents:`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Agent {
    pub name: String,
    #[serde(default)]
    pub description: String,
    /// What tasks name when they want this agent; null is its name.
    #[serde(default)]
    pub capability: Option<String>,
    #[serde(default)]
    pub role: Option<String>,
    #[serde(default)]
    pub model: Option<Model>,
    #[serde(default)]
    pub system_prompt: String,
    #[serde(default, rename = "type")]
    pub kind: AgentKind,
    /// Whom it may delegate to, or hand over to where control moves; none exposes no such tools at all (SUP-34).
    #[serde(default)]
    pub delegates: Vec<String>,
    #[serde(default)]
    pub tools: Vec<Tool>,
    #[serde(default)]
    pub timeout: Option<Span>,
    /// Executions of one task by this agent; null is `failure.tries` (FSS-18).
    #[serde(default)]
    pub tries: Option<u32>,
    #[serde(default)]
    pub memory_scope: MemoryScope,
    #[serde(default)]
    pub limits: Limits,
    #[serde(default)]
    pub will_create_tools: bool,
    /// A plain function rather than a model: it gets the parameters of its task and nothing else (PDT-19).
    #[serde(default)]
    pub callable: bool,
    /// The parameters a callable cannot do without (PDT-19).
    #[serde(default)]
    pub required_parameters: Vec<String>,
    /// Null is the spec's own `via`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub via: Option<Via>,
    /// What it answers when it is scripted; looked at before the script of the run.
    #[serde(default)]
    pub script: Script,
}

impl Agent {
    pub fn new(name: impl Into<String>) -> Self {
        Agent {
            name: name.into(),
            description: String::new(),
            capability: None,
            role: None,
            model: None,
            system_prompt: String::new(),
            kind: AgentKind::default(),
            delegates: Vec::new(),
            tools: Vec::new(),
            timeout: None,
            tries: None,
            memory_scope: MemoryScope::default(),
            limits: Limits::default(),
            will_create_tools: false,
            callable: false,
            required_parameters: Vec::new(),
            via: None,
            script: Script::default(),
        }
    }
    #[must_use]
    pub fn description(mut self, text: impl Into<String>) -> Self {
        self.description = text.into();
        self
    }
    #[must_use]
    pub fn capability(mut self, name: impl Into<String>) -> Self {
        self.capability = Some(name.into());
        self
    }
    #[must_use]
    pub fn role(mut self, role: impl Into<String>) -> Self {
        self.role = Some(role.into());
        self
    }
    #[must_use]
    pub fn model(mut self, name: impl Into<String>) -> Self {
        self.model = Some(Model::new(name));
        self
    }
    #[must_use]
    pub fn system_prompt(mut self, text: impl Into<String>) -> Self {
        self.system_prompt = text.into();
        self
    }
    #[must_use]
    pub fn delegates<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.delegates = names.into_iter().map(Into::into).collect();
        self
    }
    #[must_use]
    pub fn tool(mut self, tool: Tool) -> Self {
        self.tools.push(tool);
        self
    }
    #[must_use]
    pub fn timeout(mut self, span: Span) -> Self {
        self.timeout = Some(span);
        self
    }
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }
    #[must_use]
    pub fn via(mut self, via: Via) -> Self {
        self.via = Some(via);
        self
    }
    #[must_use]
    pub fn script(mut self, script: Script) -> Self {
        self.script = script;
        self
    }
    /// What tasks call it.
    pub fn capability_name(&self) -> &str {
        self.capability.as_deref().unwrap_or(&self.name)
    }
    pub fn is_callable(&self) -> bool {
        self.callable || !self.required_parameters.is_empty()
    }
}

/// The model behind an agent; in a file also its name alone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Model {
    pub name: String,
    /// Whatever else the provider takes, such as `temperature`.
    #[serde(default)]
    pub settings: Map<String, Value>,
}

impl Model {
    pub fn new(name: impl Into<String>) -> Self {
        Model { name: name.into(), settings: Map::new() }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AgentKind {
    #[default]
    Interactive,
    Execution,
    Daemon,
}

/// What a child remembers between its calls (CUG-38). A file's unknown scope is `call`, with a warning.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MemoryScope {
    #[default]
    Conversation,
    Call,
}

/// Tool calls an agent may make (SUP-31); null is without end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    pub per_turn: Option<u32>,
    pub total: Option<u32>,
}

/// A function an agent can call; in a file also its name alone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Tool {
    pub name: String,
    #[serde(default)]
    pub description: String,
    /// JSON Schema of its arguments.
    #[serde(default)]
    pub parameters: Option<Value>,
    /// A plain function is no tool call: it is not charged to `budget.tool_calls` (CUG-35).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub plain: bool,
}

impl Tool {
    pub fn new(name: impl Into<String>) -> Self {
        Tool { name: name.into(), description: String::new(), parameters: None, plain: false }
    }
}

/// How an agent is run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Via {
    /// By the script of the spec: for tests, demonstrations and dry runs.
    #[default]
    Scripted,
    /// By an activity of the worker, which gets the call as its input.
    Activity(String),
    /// By a program: the call on its standard input, the answer (JSON) on its standard output.
    Process(ViaProcess),
    /// By a service: the call is posted, the answer is the body (JSON).
    Http(ViaHttp),
    /// By a supervisor of its own, as a child run (LGS-08, FSS-23).
    Supervisor(ViaSupervisor),
    /// By a language model.
    Model(ViaModel),
}

impl Via {
    pub fn is_scripted(&self) -> bool {
        *self == Via::Scripted
    }
}

/// Which model, and what it may use. What is absent here stands in the agent's or the role's `model`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ViaModel {
    /// A provider of the worker: `openai` (any address that speaks its protocol), `anthropic`, `schema`. Null is `openai`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// The provider's name for the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// The most tokens of one answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u32>,
    /// What a worker may use: grants of the workflow `agent`. What is not here does not exist for it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<Map<String, Value>>,
    /// How far it may go: limits of the workflow `agent`.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub limits: Map<String, Value>,
    /// What it costs, `{ input, output }` in millionths of a dollar for a million tokens: money is reserved by it before
    /// a call. What was spent is what the call reports.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub price: Map<String, Value>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ViaProcess {
    pub argv: Vec<String>,
    #[serde(default)]
    pub cwd: Option<String>,
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Names that are taken over from the worker's environment.
    #[serde(default)]
    pub env_allow: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ViaHttp {
    pub url: String,
    /// Texts, or `{env: NAME}` and `{file: PATH}` for secrets.
    #[serde(default)]
    pub headers: Map<String, Value>,
}

/// One of the two; reading resolves a file to its spec.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ViaSupervisor {
    pub file: Option<String>,
    pub spec: Option<Map<String, Value>>,
}

/// Who does a job of the run itself, such as planning or reviewing; in a file also an agent's name alone.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Role {
    /// An entry of `agents` that does it; null is a job of its own, with what stands here.
    pub agent: Option<String>,
    pub model: Option<Model>,
    pub system_prompt: String,
    pub timeout: Option<Span>,
    /// Null is the spec's own `via`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub via: Option<Via>,
    pub script: Script,
}
