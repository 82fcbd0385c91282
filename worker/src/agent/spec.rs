//! What an agent is started with: its model, its task, what it may use and how far it may go.
//!
//! Invariant: the input holds everything that is decided by; nothing is read from anywhere later. What a tool may do is
//! in its grant and never in what a model says. Pure; it checks a spec and starts nothing.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use super::limits::{Degrade, Limits, OnExhausted, Share};
use super::{border::ContinuedAgent, mcp::McpGrant, schema};
use crate::capability::model::OutputSchema;

/// The input of the workflow `agent`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentSpec {
    pub name: String,
    /// Which of the worker's model providers is asked.
    pub provider: String,
    pub model: String,
    #[serde(default)]
    pub system: String,
    pub task: String,
    /// What the answer must conform to; without it the answer is a text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<OutputSchema>,
    /// All that the agent may use. What is not here does not exist for it.
    #[serde(default)]
    pub tools: Vec<ToolGrant>,
    #[serde(default)]
    pub limits: Limits,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// The most tokens of one answer.
    #[serde(default = "max_output_tokens")]
    pub max_output_tokens: u32,
    /// What the model costs, for reserving money before a call. What was spent is what the call reports, and by this price where it reports none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<Price>,
    /// How many agents stand above this one.
    #[serde(default)]
    pub depth: u32,
    /// The workflow that is told with `pause_v1` when the agent halts for people: a supervisor, which shows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report_to: Option<String>,
    /// The workflow of the agent that called this one, which is told what it waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub called_by: Option<String>,
    /// What one attempt of a model call may take; without it, what the capability says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_timeout_ms: Option<u64>,
    /// Of a run in which another one goes on: what that left. Nobody else gives it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continued: Option<Box<ContinuedAgent>>,
}

/// In millionths of a dollar for a million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Price {
    pub input: u64,
    pub output: u64,
}

/// A tool, and what it may do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolGrant {
    pub name: String,
    #[serde(default)]
    pub description: String,
    /// The schema of the arguments; the kinds that know their arguments have one of their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<Value>,
    /// Whether a person must agree to every call.
    #[serde(default)]
    pub approval: bool,
    /// Tools that watch something may be called again and again.
    #[serde(default)]
    pub repeatable: bool,
    /// How often a call is tried. 1 for what must not happen twice.
    #[serde(default = "one")]
    pub attempts: u32,
    #[serde(default = "tool_timeout_ms")]
    pub timeout_ms: u64,
    pub does: Grant,
}

/// What a tool does, and within which bounds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Grant {
    Process(ProcessGrant),
    Http(HttpGrant),
    File(FileGrant),
    /// A function of the worker; the arguments are its input.
    Activity {
        activity_type: String,
    },
    /// Tools of a server that the worker's owner has configured.
    Mcp(McpGrant),
    /// Hands a part of the task to an agent that may do no more than this one.
    Agent(AgentGrant),
}

/// A command. `{name}` in an argument stands for an argument of the call; the program is fixed. Which programs may be tools
/// at all is said by the worker's owner (`process.allow`): a list of those that may not would never be whole.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProcessGrant {
    pub argv: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jail: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env_allow: Vec<String>,
    /// Whether a value may begin with `-`, and so be read as an option.
    #[serde(default)]
    pub allow_options: bool,
}

/// Requests to some hosts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpGrant {
    /// `host` (the port of the scheme) or `host:port`.
    pub hosts: Vec<String>,
    #[serde(default = "get")]
    pub methods: Vec<String>,
    /// Also `http`, not only `https`.
    #[serde(default)]
    pub plain: bool,
    /// Sent with every request, in the form of the capability `http`; a model sets none.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub headers: Value,
}

/// Files of one directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileGrant {
    pub root: String,
    #[serde(default)]
    pub write: bool,
    #[serde(default = "file_bytes")]
    pub max_bytes: u64,
}

/// Bounds of an agent that is called, beside those of the caller.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AgentGrant {
    pub system: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Names of the caller's tools that may be handed on. `None`: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
}

fn max_output_tokens() -> u32 {
    4_096
}
fn one() -> u32 {
    1
}
fn tool_timeout_ms() -> u64 {
    60_000
}
fn file_bytes() -> u64 {
    1024 * 1024
}
fn get() -> Vec<String> {
    vec!["GET".to_owned()]
}

impl AgentSpec {
    /// An agent without a task, with these bounds: for checking them before there is one.
    pub fn bounded(tools: Vec<ToolGrant>, limits: Limits) -> Self {
        AgentSpec {
            name: String::new(),
            provider: String::new(),
            model: String::new(),
            system: String::new(),
            task: String::new(),
            schema: None,
            tools,
            limits,
            temperature: None,
            max_output_tokens: max_output_tokens(),
            price: None,
            depth: 0,
            report_to: None,
            called_by: None,
            call_timeout_ms: None,
            continued: None,
        }
    }

    /// Why this spec cannot be run, if it cannot.
    pub fn check(&self) -> Result<(), String> {
        let mut names = BTreeSet::new();
        for tool in &self.tools {
            if !names.insert(&tool.name) {
                return Err(format!("there are two tools named `{}`", tool.name));
            }
            tool.check().map_err(|why| format!("tool `{}`: {why}", tool.name))?;
        }
        let limits = &self.limits;
        if limits.fan_out == 0 || limits.context_tokens == 0 || limits.result_bytes == 0 || self.max_output_tokens == 0
        {
            return Err("fan_out, context_tokens, result_bytes and max_output_tokens must be above 0".to_owned());
        }
        if self.call_timeout_ms == Some(0) {
            return Err("call_timeout_ms must be above 0".to_owned());
        }
        if limits.on_exhausted == OnExhausted::Degrade && limits.degrade.is_none() {
            return Err("on_exhausted is `degrade`, and limits.degrade names no model".to_owned());
        }
        if self.depth > limits.depth {
            return Err(format!("the agent is {} deep, and {} are allowed", self.depth, limits.depth));
        }
        Ok(())
    }

    pub fn tool(&self, name: &str) -> Option<&ToolGrant> {
        self.tools.iter().find(|tool| tool.name == name)
    }
}

impl ToolGrant {
    fn check(&self) -> Result<(), String> {
        if !matches!(&self.does, Grant::Mcp(mcp) if mcp.published) {
            schema::check(&self.schema()).map_err(|why| format!("parameters: {why}"))?;
        }
        match &self.does {
            Grant::Mcp(mcp) => mcp.check(self.parameters.is_some()),
            Grant::Process(process) => process.check(self.parameters.as_ref()),
            Grant::Http(http) if http.hosts.is_empty() => Err("no hosts are allowed".to_owned()),
            Grant::Http(http) if http.methods.is_empty() => Err("no methods are allowed".to_owned()),
            Grant::File(file) if !file.root.starts_with('/') => Err("the root must be an absolute path".to_owned()),
            Grant::Activity { .. } if self.parameters.is_none() => {
                Err("an activity needs `parameters`: the schema of its input".to_owned())
            }
            // The kinds below know their arguments; another schema would only seem to bound them.
            Grant::Http(_) | Grant::File(_) | Grant::Agent(_) if self.parameters.is_some() => {
                Err("this kind of tool has a schema of its own; leave `parameters` out".to_owned())
            }
            Grant::Activity { activity_type } if activity_type.starts_with("agent_") => {
                Err("activities of the agent itself are no tools".to_owned())
            }
            Grant::Http(_) | Grant::File(_) | Grant::Activity { .. } | Grant::Agent(_) => Ok(()),
        }
    }
}

impl ProcessGrant {
    fn check(&self, parameters: Option<&Value>) -> Result<(), String> {
        let Some(program) = self.argv.first() else { return Err("argv is empty".to_owned()) };
        if !self.placeholders(program).is_empty() || program.is_empty() {
            return Err("the program must be fixed".to_owned());
        }
        let Some(parameters) = parameters else { return Ok(()) };
        for name in self.names() {
            if parameters.get("properties").and_then(|properties| properties.get(&name)).is_none() {
                return Err(format!("argv names `{{{name}}}`, which the parameters do not have"));
            }
        }
        Ok(())
    }

    /// The names of all placeholders, in order.
    pub(super) fn names(&self) -> Vec<String> {
        let mut names = Vec::new();
        for name in self.argv.iter().flat_map(|argument| self.placeholders(argument)) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }

    fn placeholders(&self, argument: &str) -> Vec<String> {
        pieces(argument)
            .into_iter()
            .filter_map(|piece| match piece {
                ArgumentPiece::Name(name) => Some(name.to_owned()),
                ArgumentPiece::Text(_) => None,
            })
            .collect()
    }
}

/// A part of an argument of a template.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ArgumentPiece<'t> {
    Text(&'t str),
    Name(&'t str),
}

/// `{name}` is a placeholder if the name is made of letters, digits and `_`; other braces are text.
pub(super) fn pieces(template: &str) -> Vec<ArgumentPiece<'_>> {
    let (mut pieces, mut text, mut rest) = (Vec::new(), 0, 0);
    while let Some(open) = template[rest..].find('{').map(|at| rest + at) {
        let name = template[open + 1..].split('}').next().unwrap_or_default();
        let end = open + 1 + name.len();
        let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        if is_name && template[end..].starts_with('}') {
            if text < open {
                pieces.push(ArgumentPiece::Text(&template[text..open]));
            }
            pieces.push(ArgumentPiece::Name(name));
            text = end + 1;
            rest = end + 1;
        } else {
            rest = open + 1;
        }
    }
    if text < template.len() {
        pieces.push(ArgumentPiece::Text(&template[text..]));
    }
    pieces
}
