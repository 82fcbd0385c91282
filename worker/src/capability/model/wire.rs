//! The wire formats that providers speak, chosen by configuration.
//!
//! Invariant: a format is two pure functions, request to JSON and JSON to answer, and a fold over the events of a stream
//! that gives the same answer. Nothing here knows a socket or a key.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::call::code;
use super::sse::SseEvent;
use super::{ChatRequest, ChatResponse, ModelError, TokenSink, ToolCall, anthropic, errors, openai};

/// A wire format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wire {
    /// Chat Completions: OpenAI, Ollama, llama.cpp, vLLM and most gateways.
    #[serde(rename = "openai")]
    OpenAi,
    /// Messages.
    Anthropic,
}

impl Wire {
    /// What follows the base URL. By custom OpenAI's base ends with `/v1` and Anthropic's does not.
    pub(super) fn path(self) -> &'static str {
        match self {
            Wire::OpenAi => "chat/completions",
            Wire::Anthropic => "v1/messages",
        }
    }

    /// Where the list of models is, likewise.
    pub(super) fn models_path(self) -> &'static str {
        match self {
            Wire::OpenAi => "models",
            Wire::Anthropic => "v1/models",
        }
    }

    /// The header that carries the key, and what is put before the key.
    pub(super) fn key_header(self) -> (&'static str, &'static str) {
        match self {
            Wire::OpenAi => ("authorization", "Bearer "),
            Wire::Anthropic => ("x-api-key", ""),
        }
    }

    pub(super) fn headers(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Wire::OpenAi => &[],
            Wire::Anthropic => &[("anthropic-version", "2023-06-01")],
        }
    }

    pub(super) fn body(self, request: &ChatRequest, stream: bool) -> Value {
        match self {
            Wire::OpenAi => openai::body(request, stream),
            Wire::Anthropic => anthropic::body(request, stream),
        }
    }

    /// A whole answer.
    pub(super) fn read(self, request: &ChatRequest, body: &Value) -> Result<ChatResponse, ModelError> {
        if body.get("error").is_some_and(|error| !error.is_null()) {
            return Err(errors::in_band(body));
        }
        match self {
            Wire::OpenAi => openai::read(body),
            Wire::Anthropic => anthropic::read(request, body),
        }
    }

    /// A streamed answer.
    pub(super) fn assembler(self, request: &ChatRequest) -> Box<dyn Assembler> {
        match self {
            Wire::OpenAi => Box::new(openai::CompletionStream::default()),
            Wire::Anthropic => Box::new(anthropic::MessagesStream::new(request)),
        }
    }
}

/// Folds the events of a stream into the answer.
pub(super) trait Assembler: Send {
    fn event(&mut self, data: &Value, sink: &mut dyn TokenSink) -> Result<(), ModelError>;
    /// Nothing that belongs to the answer can follow.
    fn is_done(&self) -> bool;
    /// The answer is whole, and was counted; the last count may follow.
    fn is_whole(&self) -> bool {
        self.is_done()
    }
    /// Fails if the answer is not whole.
    fn finish(self: Box<Self>) -> Result<ChatResponse, ModelError>;
}

/// Hands one event on. Whether it said that the stream is over, as `[DONE]` does, which OpenAI ends one with: not every
/// server closes the connection then.
pub(super) fn feed(
    assembler: &mut dyn Assembler,
    event: &SseEvent,
    sink: &mut dyn TokenSink,
) -> Result<bool, ModelError> {
    if event.data.trim() == "[DONE]" {
        return Ok(true);
    }
    let data: Value = serde_json::from_str(&event.data)
        .map_err(|why| malformed(format!("an event of the stream is no JSON: {why}")))?;
    if event.name == "error" || data.get("error").is_some_and(|error| !error.is_null()) {
        return Err(errors::in_band(&data));
    }
    assembler.event(&data, sink)?;
    Ok(false)
}

/// What a model writes may differ next time, and so may what a broken proxy makes of it.
pub(super) fn malformed(message: impl Into<String>) -> ModelError {
    ModelError::retry(code::MALFORMED, message)
}

pub(super) fn cut() -> ModelError {
    ModelError::retry(code::CUT, "the stream ended before the answer was whole")
}

/// More than anybody asks for in one answer.
pub(super) const TOOL_CALLS_MAX: usize = 128;

/// The arguments as the model wrote them. None at all are an empty object.
pub(super) fn arguments(text: &str) -> Value {
    if text.trim().is_empty() {
        return json!({});
    }
    serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()))
}

/// Calls are told apart by id: what lacks one, or shares one, gets one by its place.
pub(super) fn with_distinct_ids(mut calls: Vec<ToolCall>) -> Result<Vec<ToolCall>, ModelError> {
    if calls.len() > TOOL_CALLS_MAX {
        return Err(malformed(format!("the answer has more than {TOOL_CALLS_MAX} tool calls")));
    }
    let mut seen = BTreeSet::new();
    for (i, call) in calls.iter_mut().enumerate() {
        let mut tries = 0;
        while call.id.is_empty() || seen.contains(&call.id) {
            call.id = if tries == 0 { format!("call_{i}") } else { format!("call_{i}_{tries}") };
            tries += 1;
        }
        seen.insert(call.id.clone());
    }
    Ok(calls)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::capability::model::NullSink;

    /// Data of the names that the formats have, in any shape.
    fn data() -> impl Strategy<Value = Value> {
        let names = vec![
            "choices",
            "message",
            "delta",
            "content",
            "tool_calls",
            "function",
            "name",
            "arguments",
            "index",
            "id",
            "usage",
            "prompt_tokens",
            "finish_reason",
            "type",
            "content_block",
            "input",
            "partial_json",
            "text",
            "stop_reason",
            "error",
        ];
        let words =
            vec!["content_block_start", "content_block_delta", "message_stop", "tool_use", "text", "stop", "out", "{"];
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            proptest::sample::select(words).prop_map(Value::from),
        ];
        leaf.prop_recursive(6, 48, 6, move |inner| {
            let name = proptest::sample::select(names.clone());
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                proptest::collection::btree_map(name, inner, 0..6)
                    .prop_map(|map| map.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()),
            ]
        })
    }

    proptest! {
        #[test]
        fn no_data_is_too_odd_to_be_read(events in proptest::collection::vec(data(), 1..6)) {
            let schema = super::super::OutputSchema { name: "out".into(), schema: json!({"type": "array"}) };
            let request = ChatRequest { schema: Some(schema), ..ChatRequest::default() };
            for wire in [Wire::OpenAi, Wire::Anthropic] {
                let mut stream = wire.assembler(&request);
                for event in &events {
                    drop(wire.read(&request, event));
                    drop(stream.event(event, &mut NullSink));
                }
                if let Ok(response) = stream.finish() {
                    let ids: BTreeSet<&String> = response.said.tool_calls.iter().map(|call| &call.id).collect();
                    prop_assert_eq!(ids.len(), response.said.tool_calls.len());
                }
            }
        }
    }

    #[test]
    fn arguments_that_are_no_json_stay_a_text() {
        assert_eq!(arguments(r#"{"a": 1}"#), json!({"a": 1}));
        assert_eq!(arguments(" "), json!({}));
        assert_eq!(arguments("{a: 1"), json!("{a: 1"));
        let deep = "[".repeat(100_000);
        assert_eq!(arguments(&deep), json!(deep));
    }

    #[test]
    fn ids_become_distinct() {
        let call = |id: &str| ToolCall { id: id.into(), name: "t".into(), arguments: json!({}) };
        let ids = |calls: Vec<ToolCall>| -> Vec<String> {
            with_distinct_ids(calls).unwrap().into_iter().map(|call| call.id).collect()
        };
        assert_eq!(ids(vec![call("a"), call("a"), call(""), call("b")]), ["a", "call_1", "call_2", "b"]);
        assert_eq!(ids(vec![call("call_1"), call("call_1")]), ["call_1", "call_1_1"]);
        assert!(with_distinct_ids(vec![call("a"); TOOL_CALLS_MAX + 1]).is_err());
    }
}
