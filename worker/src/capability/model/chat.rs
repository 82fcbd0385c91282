//! What a model is asked and what it answers: plain data that goes into history.
//!
//! Invariant: equal requests have equal canonical JSON, whoever made them; what a provider did not say is absent, and
//! never 0 (the requirements of operating §3.1). Pure.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A request: the whole conversation, as a model sees it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChatRequest {
    /// The provider's name of the model.
    pub model: String,
    /// The conversation, the oldest message first.
    pub messages: Vec<Message>,
    /// Tools that the model may ask for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<ToolSpec>,
    /// Whether it must ask for one.
    #[serde(default, skip_serializing_if = "ToolChoice::is_auto")]
    pub tool_choice: ToolChoice,
    /// What the answer must conform to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<OutputSchema>,
    /// How much chance there is in the answer; the provider's default if it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// The most tokens that may be answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u32>,
}

/// A message of a conversation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "snake_case", deny_unknown_fields)]
pub enum Message {
    /// What the model is and may do.
    System {
        /// The text.
        content: String,
    },
    /// What is asked.
    User {
        /// The text.
        content: String,
    },
    /// What the model said before.
    Assistant(AssistantMessage),
    /// What a tool gave.
    Tool {
        /// The [`ToolCall::id`] that it answers.
        call_id: String,
        /// The tool.
        name: String,
        /// The result as text.
        content: String,
        /// Whether the tool failed.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
    },
}

/// What a model said.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AssistantMessage {
    /// The text; empty if it only calls tools.
    #[serde(default)]
    pub content: String,
    /// The tools that it asks for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
}

/// A tool that a model may ask for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolSpec {
    /// The name by which the model asks for it.
    pub name: String,
    /// What the model is told of it.
    #[serde(default)]
    pub description: String,
    /// The JSON Schema of its arguments.
    pub parameters: Value,
}

/// Whether a model may, must or must not ask for a tool.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolChoice {
    /// The model decides.
    #[default]
    Auto,
    /// It must not.
    None,
    /// It must ask for one, whichever.
    Required,
    /// This tool and no other.
    Tool(String),
}

impl ToolChoice {
    /// Whether the model decides: what a request leaves out.
    pub fn is_auto(&self) -> bool {
        *self == ToolChoice::Auto
    }
}

/// A call of a tool, as a model asks for it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolCall {
    /// Names the call in the message with its result.
    pub id: String,
    /// The tool.
    pub name: String,
    /// As the model wrote them; a text that is no JSON stays a text.
    pub arguments: Value,
}

/// A JSON Schema with the name that providers want for it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OutputSchema {
    /// Letters, digits, `_` and `-`.
    pub name: String,
    /// The JSON Schema.
    pub schema: Value,
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChatResponse {
    /// The message.
    pub said: AssistantMessage,
    /// Why it ends there.
    pub stop: StopReason,
    /// What the provider counted.
    #[serde(default)]
    pub usage: Usage,
    /// The model that answered, as the provider names it.
    pub model: String,
    /// The provider's id of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
}

/// Why a model stopped.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// It had no more to say.
    #[default]
    End,
    /// It waits for the results of tools.
    ToolCalls,
    /// The limit of tokens was reached: what was said is cut.
    Length,
    /// The provider or the model refused.
    Refusal,
    /// In the provider's words.
    Other(String),
}

/// An estimate: four bytes to a token, and a little for the message around it.
pub(crate) fn tokens(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(4)).unwrap_or(u32::MAX).saturating_add(4)
}

/// Tokens, as far as the provider counted them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Usage {
    /// All input, what was read from a cache included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<u64>,
    /// Input that was read from a cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_read: Option<u64>,
    /// Input that was written to a cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_write: Option<u64>,
    /// All output, reasoning included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<u64>,
    /// Output that was thought and not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<u64>,
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct ModelError {
    /// What can be done about it.
    pub class: ErrorClass,
    /// The status code of HTTP, if there was an answer.
    pub status: Option<u16>,
    /// The provider's own word: `insufficient_quota`.
    pub code: Option<String>,
    /// Never holds a secret.
    pub message: String,
}

/// What can be done about an error (the requirements of operating §3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorClass {
    /// The same request may succeed later, and not before this long.
    Retry {
        /// `None`: the provider names no time.
        after: Option<Duration>,
    },
    /// Somebody has to do something: money, a key, a permission. The run waits for them.
    NeedsHuman,
    /// The same request will never succeed.
    Fatal,
}
