//! The agents of a run: who they are, what they may do, and how they are run.
//!
//! Invariant: what an agent may do stands in its own entry; nothing is inherited from who calls it (SUP-33). It runs
//! none.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::script::Script;
use crate::priority::PrioritySaid;
use crate::supervisor::model::Span;

/// One entry of `agents:`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Agent {
    /// What the agent is called. Plans, hand-offs and reports use this name.
    pub name: String,
    /// What the agent is good at. The supervisor and other agents read it when they choose.
    #[serde(default)]
    pub description: String,
    /// What tasks name when they want this agent; null is its name.
    #[serde(default)]
    pub capability: Option<String>,
    /// The role the agent plays; tasks may ask for a role instead of an agent.
    #[serde(default)]
    pub role: Option<String>,
    /// The model behind the agent, if a model plays it.
    #[serde(default)]
    pub model: Option<Model>,
    /// What the model is told before anything else.
    #[serde(default)]
    pub system_prompt: String,
    /// How long the agent lives, as supyagent's files say it. Kept for people; it changes nothing.
    #[serde(default, rename = "type")]
    pub kind: AgentKind,
    /// Whom it may delegate to, or hand over to where control moves; none exposes no such tools at all (SUP-34).
    #[serde(default)]
    pub delegates: Vec<String>,
    /// The functions the agent can call.
    #[serde(default)]
    pub tools: Vec<Tool>,
    /// How long one call of the agent may take; null is the default of what plays it.
    #[serde(default)]
    pub timeout: Option<Span>,
    /// Executions of one task by this agent; null is `failure.tries` (FSS-18).
    #[serde(default)]
    pub tries: Option<u32>,
    /// What the agent remembers between its calls.
    #[serde(default)]
    pub memory_scope: MemoryScope,
    /// How many tool calls the agent may make.
    #[serde(default)]
    pub limits: Limits,
    /// Whether the agent makes tools for others. Kept from supyagent's files; it changes nothing.
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
    /// The place of its work among all that waits for a slot of the worker; null is that of the run (E25).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<PrioritySaid>,
    /// What it answers when it is scripted; looked at before the script of the run.
    #[serde(default)]
    pub script: Script,
}

impl Agent {
    /// An agent that is scripted and has nothing but a name.
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
            priority: None,
            script: Script::default(),
        }
    }
    /// Says what it is good at.
    #[must_use]
    pub fn description(mut self, text: impl Into<String>) -> Self {
        self.description = text.into();
        self
    }
    /// Says by which word tasks ask for it.
    #[must_use]
    pub fn capability(mut self, name: impl Into<String>) -> Self {
        self.capability = Some(name.into());
        self
    }
    /// Gives it a role.
    #[must_use]
    pub fn role(mut self, role: impl Into<String>) -> Self {
        self.role = Some(role.into());
        self
    }
    /// Names the model behind it.
    #[must_use]
    pub fn model(mut self, name: impl Into<String>) -> Self {
        self.model = Some(Model::new(name));
        self
    }
    /// Says what its model is told first.
    #[must_use]
    pub fn system_prompt(mut self, text: impl Into<String>) -> Self {
        self.system_prompt = text.into();
        self
    }
    /// Says whom it may delegate or hand over to.
    #[must_use]
    pub fn delegates<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.delegates = names.into_iter().map(Into::into).collect();
        self
    }
    /// Adds a function that it can call.
    #[must_use]
    pub fn tool(mut self, tool: Tool) -> Self {
        self.tools.push(tool);
        self
    }
    /// Bounds one call of it.
    #[must_use]
    pub fn timeout(mut self, span: Span) -> Self {
        self.timeout = Some(span);
        self
    }
    /// Bounds its tool calls.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }
    /// Says how it is run.
    #[must_use]
    pub fn via(mut self, via: Via) -> Self {
        self.via = Some(via);
        self
    }
    /// Says what it answers when it is scripted.
    #[must_use]
    pub fn script(mut self, script: Script) -> Self {
        self.script = script;
        self
    }
    /// What tasks call it.
    pub fn capability_name(&self) -> &str {
        self.capability.as_deref().unwrap_or(&self.name)
    }
    /// Whether it is a plain function: it says so, or it names parameters it needs.
    pub fn is_callable(&self) -> bool {
        self.callable || !self.required_parameters.is_empty()
    }
}

/// The model behind an agent; in a file also its name alone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// The provider's name for the model.
    pub name: String,
    /// Whatever else the provider takes, such as `temperature`.
    #[serde(default)]
    pub settings: Map<String, Value>,
}

impl Model {
    /// A model without settings.
    pub fn new(name: impl Into<String>) -> Self {
        Model { name: name.into(), settings: Map::new() }
    }
}

/// How long an agent lives, as supyagent's files say it. It changes nothing here.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AgentKind {
    /// It takes part in a conversation.
    #[default]
    Interactive,
    /// It does one piece of work and ends.
    Execution,
    /// It stays until somebody ends it.
    Daemon,
}

/// What a child remembers between its calls (CUG-38). A file's unknown scope is `call`, with a warning.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MemoryScope {
    /// It remembers all earlier calls of the conversation.
    #[default]
    Conversation,
    /// It begins anew with each call.
    Call,
}

/// Tool calls an agent may make (SUP-31); null is without end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Tool calls in one turn.
    pub per_turn: Option<u32>,
    /// Tool calls in the whole run.
    pub total: Option<u32>,
}

/// A function an agent can call; in a file also its name alone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Tool {
    /// What the function is called.
    pub name: String,
    /// What the function does, for the model that may call it.
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
    /// A function without parameters.
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
    /// Whether the script of the spec answers.
    pub fn is_scripted(&self) -> bool {
        *self == Via::Scripted
    }
}

/// Which model, and what it may use; in a file also its name alone. What is absent here stands in the agent's or the role's
/// `model`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ViaModel {
    /// A provider of the worker: `openai` (any address that speaks its protocol), `anthropic`, `schema`. Null is the one that
    /// the name begins with (`anthropic/claude-sonnet-4-5`), else `openai`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// The provider's name for the model. Without `provider` it may begin with `openai/`, `anthropic/` or `schema/`; beside one it
    /// is taken as it stands, whatever it begins with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// How freely the model chooses its words; null is the provider's default.
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

/// A program that is started for each call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ViaProcess {
    /// The program and its arguments; no shell reads them.
    pub argv: Vec<String>,
    /// Where the program runs; null is where the worker runs.
    #[serde(default)]
    pub cwd: Option<String>,
    /// Variables of its environment.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Names that are taken over from the worker's environment.
    #[serde(default)]
    pub env_allow: Vec<String>,
}

/// A service that each call is posted to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ViaHttp {
    /// The address that the call is posted to.
    pub url: String,
    /// Texts, or `{env: NAME}` and `{file: PATH}` for secrets.
    #[serde(default)]
    pub headers: Map<String, Value>,
}

/// One of the two; reading resolves a file to its spec.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ViaSupervisor {
    /// A file with the spec, beside this one.
    pub file: Option<String>,
    /// The spec itself.
    pub spec: Option<Map<String, Value>>,
}

/// Who does a job of the run itself, such as planning or reviewing; in a file also an agent's name alone.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Role {
    /// An entry of `agents` that does it; null is a job of its own, with what stands here.
    pub agent: Option<String>,
    /// The model behind the job, if a model does it.
    pub model: Option<Model>,
    /// What the model is told before anything else.
    pub system_prompt: String,
    /// How long one call may take; null is the default of what plays it.
    pub timeout: Option<Span>,
    /// Null is the spec's own `via`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub via: Option<Via>,
    /// What is answered when the job is scripted.
    pub script: Script,
}
