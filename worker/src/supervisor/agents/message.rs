//! Messages between models and tools, and what an agent or a function may answer.
//!
//! Invariant: an answer is decoded strictly: an unknown or ill-typed field is an error that names it, and nothing of such
//! an answer is used. Arguments of a tool that are no JSON object are kept as they came, for the model to see.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::agent::turn::TurnCall;

use crate::supervisor::reading::json_text;

use crate::supervisor::spec::Span;

/// Named values that models do not see.
pub type Variables = BTreeMap<String, Value>;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MessageRole {
    System,
    User,
    Assistant,
    Tool,
}

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Message {
    pub role: MessageRole,
    #[serde(default)]
    pub content: Option<String>,
    /// The agent that said it, or the tool that answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    /// Set on messages that the loop itself put there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<Tag>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tag {
    HandoffBack,
    Correction,
    /// What an agent that failed left in place of its words.
    Failed,
    /// The same of one whose work a person has refused.
    Refused,
    /// What an agent asks a person, and nothing beside it: whoever only asks has said nothing yet. No model is told of it.
    Question,
}

impl Message {
    /// Why a tool has failed, by what its model was told of it.
    pub(crate) fn failure(&self) -> Option<String> {
        let text = self.content.as_deref().filter(|_| self.role == MessageRole::Tool)?;
        if let Some(why) = text.strip_prefix("Error: ") {
            return Some(why.to_owned());
        }
        let told: Value = serde_json::from_str(text).ok().filter(|told: &Value| told["ok"] == false)?;
        told["error"].as_str().map(str::to_owned)
    }
    fn new(role: MessageRole, content: impl Into<String>) -> Self {
        let content = Some(content.into());
        Message { role, content, name: None, tool_calls: Vec::new(), tool_call_id: None, tag: None }
    }
    pub fn user(content: impl Into<String>) -> Self {
        Message::new(MessageRole::User, content)
    }
    pub fn system(content: impl Into<String>) -> Self {
        Message::new(MessageRole::System, content)
    }
    pub fn assistant(name: &str, content: impl Into<String>) -> Self {
        Message { name: Some(name.to_owned()), ..Message::new(MessageRole::Assistant, content) }
    }
    pub fn tool(call: &ToolCall, content: impl Into<String>) -> Self {
        let (name, id) = (Some(call.name.clone()), Some(call.id.clone()));
        Message { name, tool_call_id: id, ..Message::new(MessageRole::Tool, content) }
    }
    /// Whether an agent has said something with it.
    pub(super) fn says_something(&self) -> bool {
        self.role == MessageRole::Assistant && self.tag.is_none() && !self.text().trim().is_empty()
    }
    pub fn text(&self) -> &str {
        self.content.as_deref().unwrap_or_default()
    }
}

/// A model's wish to call a tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    pub id: String,
    pub name: String,
    /// An object; anything else is what the model wrote instead.
    pub args: Value,
}

impl ToolCall {
    /// The call as code, for people.
    pub(super) fn as_code(&self) -> String {
        format!("{}({})", self.name, json_text(&self.args))
    }
}

impl TurnCall for ToolCall {
    fn name(&self) -> &str {
        &self.name
    }
    fn arguments(&self) -> &Value {
        &self.args
    }
}

/// One answer of an agent.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AgentAnswer {
    pub content: Option<String>,
    pub tool_calls: Vec<ToolCall>,
    pub context_variables: Variables,
    pub tokens: u64,
    pub model: Option<String>,
    /// What it asks a person before it goes on (LGI-01).
    pub interrupt: Option<Value>,
}

/// Why an answer cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    #[error("the answer does not conform at `{at}`: {why}")]
    Field { at: String, why: String },
    /// It says of itself that it is a failure.
    #[error("{0}")]
    Failed(String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawAnswer {
    #[serde(default, rename = "role")]
    _role: Option<String>,
    #[serde(default, rename = "name", alias = "sender")]
    _name: Option<String>,
    #[serde(default)]
    content: Option<String>,
    #[serde(default)]
    tool_calls: Option<Vec<RawCall>>,
    #[serde(default)]
    context_variables: Option<Variables>,
    #[serde(default)]
    handoff: Option<RawHandoff>,
    #[serde(default)]
    tokens: Option<u64>,
    #[serde(default, rename = "cost_micros")]
    _cost_micros: Option<u64>,
    #[serde(default, rename = "cost_usd")]
    _cost_usd: Option<f64>,
    #[serde(default)]
    model: Option<String>,
    #[serde(default, rename = "finish_reason")]
    _finish_reason: Option<String>,
    /// What a supervisor that is an agent answers, and any worker may: a result, or that it did not succeed.
    #[serde(default)]
    result: Option<Value>,
    #[serde(default)]
    success: Option<bool>,
    #[serde(default, alias = "error")]
    reason: Option<Value>,
    /// A question to a person (LGI-01): the payload.
    #[serde(default)]
    interrupt: Option<Value>,
    /// Variables in the word of a worker of a plan.
    #[serde(default)]
    variables: Option<Variables>,
    // What a worker may say of its result in a plan: nobody weighs it here, and the result is no less for it.
    #[serde(default, rename = "confidence")]
    _confidence: Option<Value>,
    #[serde(default, rename = "cost")]
    _cost: Option<Value>,
    #[serde(default, rename = "action", alias = "proposed_action")]
    _action: Option<Value>,
    #[serde(default, rename = "out_of_scope")]
    _out_of_scope: Option<Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawCall {
    #[serde(default)]
    id: Option<String>,
    #[serde(default, rename = "type")]
    _kind: Option<String>,
    #[serde(default)]
    name: Option<String>,
    #[serde(default, alias = "arguments")]
    args: Option<Value>,
    #[serde(default)]
    function: Option<RawFunction>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFunction {
    name: String,
    #[serde(default, alias = "args")]
    arguments: Option<Value>,
}

/// `HandOff{to}` as an action of the answer.
#[derive(Deserialize)]
#[serde(untagged)]
enum RawHandoff {
    Name(String),
    To { to: String },
}

impl AgentAnswer {
    /// Decodes an answer: a text, or the object of a chat completion. `prefix` begins ids of calls that have none,
    /// `handoff` names the tool for an agent that is handed over to.
    // long: one case after the other, in their order.
    pub(crate) fn decode(
        value: Value,
        prefix: &str,
        handoff: impl Fn(&str) -> String,
    ) -> Result<AgentAnswer, AnswerError> {
        if let Value::String(text) = value {
            return Ok(AgentAnswer { content: Some(text), ..AgentAnswer::default() });
        }
        if !value.is_object() {
            let what = match value {
                Value::Array(_) => "a list",
                Value::Number(_) => "a number",
                Value::Bool(_) => "true or false",
                _ => "nothing",
            };
            let why = format!(
                "an agent answers with a text, or with an object such as {{content, tool_calls}}; this is {what}"
            );
            return Err(AnswerError::Field { at: ".".to_owned(), why });
        }
        let raw: RawAnswer = serde_path_to_error::deserialize(value)
            .map_err(|why| AnswerError::Field { at: why.path().to_string(), why: why.inner().to_string() })?;
        if raw.success == Some(false) {
            let why = raw.reason.or(raw.result).map_or_else(|| "it did not succeed".to_owned(), |why| text_of(&why));
            return Err(AnswerError::Failed(why));
        }
        let interrupt = raw.interrupt.filter(|payload| !payload.is_null());
        // A question that names a time is never one that waits for ever (LGI-07).
        let time = interrupt.as_ref().and_then(|payload| payload.get("timeout")).filter(|time| !time.is_null());
        if let Some(Err(why)) = time.map(Span::deserialize) {
            return Err(AnswerError::Field { at: "interrupt.timeout".to_owned(), why: why.to_string() });
        }
        let mut variables = raw.variables.unwrap_or_default();
        variables.extend(raw.context_variables.unwrap_or_default());
        let mut tool_calls = Vec::new();
        for (i, call) in raw.tool_calls.unwrap_or_default().into_iter().enumerate() {
            tool_calls.push(call.decode(i, prefix)?);
        }
        if let Some(RawHandoff::Name(to) | RawHandoff::To { to }) = raw.handoff {
            let id = format!("{prefix}_{}", tool_calls.len());
            tool_calls.push(ToolCall { id, name: handoff(&to), args: json!({}) });
        }
        Ok(AgentAnswer {
            content: raw.content.or_else(|| raw.result.as_ref().map(text_of)),
            tool_calls,
            context_variables: variables,
            tokens: raw.tokens.unwrap_or_default(),
            model: raw.model,
            interrupt,
        })
    }
}

impl RawCall {
    fn decode(self, i: usize, prefix: &str) -> Result<ToolCall, AnswerError> {
        let (name, args) = match (self.name, self.function) {
            (Some(name), None) => (name, self.args),
            (None, Some(function)) => (function.name, function.arguments),
            (Some(_), Some(_)) | (None, None) => {
                let why = "one of `name` and `function` is needed".to_owned();
                return Err(AnswerError::Field { at: format!("tool_calls[{i}]"), why });
            }
        };
        let args = match args {
            None | Some(Value::Null) => json!({}),
            Some(Value::String(text)) => serde_json::from_str(&text).unwrap_or(Value::String(text)),
            Some(other) => other,
        };
        Ok(ToolCall { id: self.id.unwrap_or_else(|| format!("{prefix}_{i}")), name, args })
    }
}

/// What a function gave back: a plain value, or a `Result{value, agent, context_variables}`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FunctionResult {
    /// What the model is told.
    pub content: String,
    pub agent: Option<String>,
    pub context_variables: Variables,
    /// Whether it said of itself that it failed.
    pub failed: bool,
}

impl FunctionResult {
    /// `is_agent` tells which names are agents: `{"assistant": name}` is a hand-off only for those.
    pub(crate) fn decode(value: Value, is_agent: impl Fn(&str) -> bool) -> FunctionResult {
        let failed = value.get("ok") == Some(&Value::Bool(false));
        let Value::Object(fields) = &value else {
            return FunctionResult { content: text_of(&value), ..FunctionResult::default() };
        };
        let named = |key: &str| fields.get(key).and_then(Value::as_str).map(str::to_owned);
        if let (1, Some(name)) = (fields.len(), named("assistant").filter(|name| is_agent(name))) {
            return FunctionResult { content: switched(&name), agent: Some(name), ..FunctionResult::default() };
        }
        let known = fields.keys().all(|key| matches!(key.as_str(), "value" | "agent" | "context_variables"));
        let variables = fields.get("context_variables").map(Value::as_object);
        if !known || fields.is_empty() || variables == Some(None) || fields.get("agent").is_some_and(|a| !a.is_string())
        {
            return FunctionResult { content: text_of(&value), failed, ..FunctionResult::default() };
        }
        let agent = named("agent");
        let content = match (fields.get("value"), &agent) {
            (Some(value), _) => text_of(value),
            (None, Some(name)) => switched(name),
            (None, None) => String::new(),
        };
        let context_variables = variables.flatten().map(|map| map.clone().into_iter().collect()).unwrap_or_default();
        FunctionResult { content, agent, context_variables, failed: false }
    }
}

/// A conversation in which every call has its answer, as providers want it: the run that it is of may have ended before.
pub(crate) fn all_answered(messages: Vec<Message>) -> Vec<Message> {
    let mut all = Vec::with_capacity(messages.len());
    let mut open: Vec<ToolCall> = Vec::new();
    for message in messages {
        match (message.role, &message.tool_call_id) {
            // Ids of a model may come twice.
            (MessageRole::Tool, Some(id)) => {
                if let Some(at) = open.iter().position(|call| call.id == *id) {
                    open.remove(at);
                }
            }
            (MessageRole::Tool, None) => _ = (!open.is_empty()).then(|| open.remove(0)),
            _ => {
                all.extend(open.drain(..).map(unanswered));
                open.clone_from(&message.tool_calls);
            }
        }
        all.push(message);
    }
    all.extend(open.into_iter().map(unanswered));
    all
}

fn unanswered(call: ToolCall) -> Message {
    Message::tool(&call, format!("Error: the run ended before {} had answered", call.name))
}

/// The messages as models are told them.
pub(super) fn as_told(messages: &[Message]) -> Cow<'_, [Message]> {
    let asks = |message: &Message| message.tag == Some(Tag::Question);
    if !messages.iter().any(asks) {
        return Cow::Borrowed(messages);
    }
    let told = messages
        .iter()
        .cloned()
        .map(|message| Message { tag: message.tag.filter(|tag| *tag != Tag::Question), ..message });
    Cow::Owned(told.collect())
}

/// What the tool message of a hand-off says: `{"assistant": "name"}`.
pub(crate) fn switched(name: &str) -> String {
    json_text(&json!({ "assistant": name }))
}

/// Whether a text is one of [`switched`].
pub(super) fn is_switch(text: &str) -> bool {
    let said: Option<BTreeMap<String, String>> = serde_json::from_str(text).ok();
    said.is_some_and(|said| said.len() == 1 && said.contains_key("assistant"))
}

/// A text as it is, anything else as JSON.
pub(crate) fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => json_text(value),
    }
}
