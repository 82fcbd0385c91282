//! What is said in a group chat, and how an agent's answer becomes a message.
//!
//! Invariant: a message is stored once and never changed; its index is its place in the chat. An answer that is neither a
//! message nor "none" is refused with the name of the field. It does not know who may speak.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::rules::ChatError;
use crate::supervisor::reading::text_of;

/// One message, seen by everybody but its speaker as theirs to answer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ChatMessage {
    pub index: u32,
    pub from: String,
    pub content: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function_call: Option<FunctionCall>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ChatToolCall>,
    /// Whom the speaker hands over to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handoff: Option<String>,
    /// The other tool calls of the response that handed over, with their results: what the next speaker must know.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub context: Vec<ChatToolCall>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FunctionCall {
    pub name: String,
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub arguments: Value,
}

/// A call of a tool, read from both spellings: `{id, type, function: {name, arguments}}` and `{id, name, arguments}`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "RawToolCall")]
pub struct ChatToolCall {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    pub name: String,
    #[serde(skip_serializing_if = "Value::is_null")]
    pub arguments: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<Value>,
    /// Only functions are run by agents; other kinds of tools run elsewhere.
    #[serde(rename = "type")]
    pub kind: String,
}

#[derive(Deserialize)]
struct RawToolCall {
    id: Option<String>,
    #[serde(rename = "type")]
    kind: Option<String>,
    function: Option<FunctionCall>,
    name: Option<String>,
    #[serde(default)]
    arguments: Value,
    result: Option<Value>,
}

impl TryFrom<RawToolCall> for ChatToolCall {
    type Error = &'static str;
    fn try_from(raw: RawToolCall) -> Result<Self, Self::Error> {
        let (name, arguments) = match (raw.function, raw.name) {
            (Some(function), _) => (function.name, function.arguments),
            (None, Some(name)) => (name, raw.arguments),
            (None, None) => return Err("missing field `function`"),
        };
        let kind = raw.kind.unwrap_or_else(|| "function".to_owned());
        Ok(ChatToolCall { id: raw.id, name, arguments, result: raw.result, kind })
    }
}

impl ChatMessage {
    pub fn new(from: impl Into<String>, content: impl Into<String>) -> Self {
        ChatMessage { from: from.into(), content: content.into(), ..ChatMessage::default() }
    }
    /// The functions the message suggests to run.
    pub fn functions(&self) -> Vec<&str> {
        let called = self.function_call.iter().map(|call| call.name.as_str());
        let tools = self.tool_calls.iter().filter(|call| call.kind == "function").map(|call| call.name.as_str());
        called.chain(tools).collect()
    }
    /// Whether it hands over, and its speaker has said nothing with that.
    pub(super) fn is_bare_hand_off(&self) -> bool {
        self.handoff.as_deref().is_some_and(|to| self.content == transferred(to))
    }
    /// The message as `reader` gets it: its own words are the assistant's, the others' are the user's.
    pub(super) fn for_reader(&self, reader: &str) -> Value {
        let role = if self.from == reader { "assistant" } else { "user" };
        let mut seen = json!({ "role": role, "name": self.from, "content": self.content });
        if let Some(call) = &self.function_call {
            seen["function_call"] = json!(call);
        }
        if !self.tool_calls.is_empty() {
            seen["tool_calls"] = json!(self.tool_calls);
        }
        if let Some(to) = &self.handoff {
            seen["handoff"] = json!(to);
        }
        if !self.context.is_empty() {
            seen["context"] = json!(self.context);
        }
        seen
    }
}

/// What a speaker answers: none of it at all is "no reply".
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
struct SpeakerReply {
    /// The speaker, in histories that are resumed.
    #[serde(alias = "from")]
    name: Option<String>,
    content: Option<String>,
    /// What a supervisor that speaks gives (FSS-23).
    result: Option<Value>,
    function_call: Option<FunctionCall>,
    tool_calls: Option<Vec<ChatToolCall>>,
    handoff: Option<HandOff>,
    /// What a hand-off of an earlier chat brought along (AGC-21).
    context: Option<Vec<ChatToolCall>>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(untagged)]
enum HandOff {
    To(String),
    Named {
        #[serde(alias = "target")]
        to: String,
    },
}

/// A speaker's answer, decoded.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct SpeakerAnswer {
    pub(super) message: Option<ChatMessage>,
}

impl SpeakerAnswer {
    /// Reads the answer of `speaker`: a text, an object of [`SpeakerReply`], or null. Fields a chat has no use for are left
    /// alone, as agents add their own; an object with none of a message's fields is refused.
    ///
    /// Where speakers hand over (`handing`), a call of a tool such as `transfer_to_bob` hands over to bob.
    pub(super) fn read(speaker: &str, answer: &Value, handing: bool) -> Result<Self, ChatError> {
        let refuse = |why: String| ChatError::Answer { speaker: speaker.to_owned(), why };
        let reply = match answer {
            Value::Null => return Ok(SpeakerAnswer::default()),
            Value::String(text) => SpeakerReply { content: Some(text.clone()), ..SpeakerReply::default() },
            Value::Object(fields) => {
                // LGI-01: a question that nobody would be asked is not passed over.
                if fields.get("interrupt").is_some_and(|asked| !asked.is_null()) {
                    return Err(refuse(ASKS.to_owned()));
                }
                const KNOWN: [&str; 5] = ["content", "result", "function_call", "tool_calls", "handoff"];
                if !KNOWN.iter().any(|field| fields.contains_key(*field)) {
                    let known = KNOWN.join(", ");
                    return Err(refuse(format!("content: missing field `content`; an answer has one of: {known}")));
                }
                serde_path_to_error::deserialize(answer).map_err(|why| refuse(why.to_string()))?
            }
            _ => return Err(refuse("content: expected a text or an object".to_owned())),
        };
        Ok(reply.said(speaker, handing))
    }
}

/// What whoever asks a person from within a chat is told.
const ASKS: &str = "interrupt: nobody who takes part in a chat stops to ask a person: ask in `content`, and a person answers \
                    with `say`; or let the asker be a run of agents (`via: supervisor`), which asks people itself";

/// The words of a speaker that says of itself that it did not succeed.
pub(super) fn failed_by_itself(answer: &Value) -> Option<String> {
    let fields = answer.as_object().filter(|fields| fields.get("success") == Some(&Value::Bool(false)))?;
    let words = ["reason", "error"].iter().find_map(|key| fields.get(*key)?.as_str());
    Some(words.unwrap_or("it did not succeed, and does not say why").to_owned())
}

impl SpeakerReply {
    fn said(mut self, speaker: &str, handing: bool) -> SpeakerAnswer {
        if let Some(result) = self.result.take().filter(|result| !result.is_null()) {
            self.content.get_or_insert_with(|| text_of(&result));
        }
        let tool_calls = self.tool_calls.unwrap_or_default();
        let handoff = self.handoff.map(|(HandOff::To(to) | HandOff::Named { to })| to);
        let by_tool = || tool_calls.iter().find_map(handed_to).filter(|_| handing).map(str::to_owned);
        let handoff = handoff.or_else(by_tool);
        if self.content.is_none() && self.function_call.is_none() && tool_calls.is_empty() && handoff.is_none() {
            return SpeakerAnswer { message: None };
        }
        let mut message = ChatMessage::new(speaker, self.content.unwrap_or_default());
        message.function_call = self.function_call;
        match handoff {
            // The calls of a response that hands over are done: the next speaker gets them as what has happened.
            Some(to) => {
                if message.content.is_empty() {
                    message.content = transferred(&to);
                }
                let called = tool_calls.into_iter().filter(|call| handed_to(call).is_none());
                message.context = self.context.unwrap_or_default().into_iter().chain(called).collect();
                message.handoff = Some(to);
            }
            None => message.tool_calls = tool_calls,
        }
        SpeakerAnswer { message: Some(message) }
    }
}

/// What is said by whoever hands over without a word.
fn transferred(to: &str) -> String {
    format!("Transferred to {to}.")
}

/// How the name of a tool begins that hands over; behind it stands to whom.
pub(super) const HAND_OVER: &str = "transfer_to_";

/// Whom a tool call hands over to: hand-off tools are named after their target.
fn handed_to(call: &ChatToolCall) -> Option<&str> {
    call.name.strip_prefix(HAND_OVER).or_else(|| call.name.strip_prefix("handoff_to_"))
}

/// The messages of an earlier chat: a list, or a JSON text of one. A message without a name is the manager's.
pub(super) fn read_history(history: &Value, manager: &str) -> Result<Vec<ChatMessage>, ChatError> {
    let refuse = |why: String| ChatError::Answer { speaker: "the history".to_owned(), why };
    let replies: Vec<SpeakerReply> = match history {
        Value::String(text) => {
            let mut reader = serde_json::Deserializer::from_str(text);
            serde_path_to_error::deserialize(&mut reader).map_err(|why| refuse(why.to_string()))?
        }
        other => serde_path_to_error::deserialize(other).map_err(|why| refuse(why.to_string()))?,
    };
    let message = |mut reply: SpeakerReply| {
        let name = reply.name.take().filter(|name| !name.is_empty()).unwrap_or_else(|| manager.to_owned());
        reply.said(&name, false).message.unwrap_or_else(|| ChatMessage::new(name, ""))
    };
    Ok(replies.into_iter().map(message).collect())
}
