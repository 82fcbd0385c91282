//! OpenAI's Chat Completions, as OpenAI, Ollama, llama.cpp, vLLM and most gateways speak it.
//!
//! Invariant: the request is made from the neutral words alone; what the provider did not count is unknown. Quirks that
//! are absorbed: content as a list of parts, arguments as an object, tool calls that end with `stop`, a last chunk with
//! no choice, `[DONE]` missing. Pure.

use serde_json::{Map, Value, json};

use super::wire::{Assembler, TOOL_CALLS_MAX, arguments, cut, malformed, with_distinct_ids};
use super::{
    AssistantMessage, ChatRequest, ChatResponse, Message, ModelError, OutputSchema, StopReason, StreamToken, TokenSink,
    ToolCall, ToolChoice, Usage,
};

/// The body of the request.
pub(super) fn body(request: &ChatRequest, stream: bool) -> Value {
    let mut body = Map::new();
    body.insert("model".into(), json!(request.model));
    body.insert("messages".into(), request.messages.iter().map(message).collect());
    if !request.tools.is_empty() {
        let tool = |tool: &super::ToolSpec| {
            json!({"type": "function", "function": {
                "name": tool.name, "description": tool.description, "parameters": tool.parameters,
            }})
        };
        body.insert("tools".into(), request.tools.iter().map(tool).collect());
        let choice = match &request.tool_choice {
            ToolChoice::Auto => None,
            ToolChoice::None => Some(json!("none")),
            ToolChoice::Required => Some(json!("required")),
            ToolChoice::Tool(name) => Some(json!({"type": "function", "function": {"name": name}})),
        };
        body.extend(choice.map(|choice| ("tool_choice".to_owned(), choice)));
    }
    body.extend(request.schema.as_ref().map(|schema| ("response_format".to_owned(), response_format(schema))));
    body.extend(request.temperature.map(|temperature| ("temperature".to_owned(), json!(temperature))));
    body.extend(request.max_tokens.map(|max| (max_tokens_field(&request.model).to_owned(), json!(max))));
    if stream {
        body.insert("stream".into(), json!(true));
        body.insert("stream_options".into(), json!({"include_usage": true}));
    }
    Value::Object(body)
}

/// OpenAI's reasoning models refuse the old name, everybody else knows no other.
fn max_tokens_field(model: &str) -> &'static str {
    let reasons = ["o1", "o3", "o4", "gpt-5"].iter().any(|family| model.starts_with(family));
    if reasons { "max_completion_tokens" } else { "max_tokens" }
}

fn message(message: &Message) -> Value {
    match message {
        Message::System { content } => json!({"role": "system", "content": content}),
        Message::User { content } => json!({"role": "user", "content": content}),
        Message::Assistant(said) if said.tool_calls.is_empty() => json!({"role": "assistant", "content": said.content}),
        Message::Assistant(said) => {
            let call = |call: &ToolCall| {
                let written = match &call.arguments {
                    Value::String(text) => text.clone(),
                    data => data.to_string(),
                };
                json!({"id": call.id, "type": "function", "function": {"name": call.name, "arguments": written}})
            };
            let content = if said.content.is_empty() { Value::Null } else { json!(said.content) };
            let calls: Vec<Value> = said.tool_calls.iter().map(call).collect();
            json!({"role": "assistant", "content": content, "tool_calls": calls})
        }
        // The format has no mark for a tool that failed, so the model is told in words.
        Message::Tool { call_id, content, is_error, .. } => {
            let content = if *is_error { format!("Error: {content}") } else { content.clone() };
            json!({"role": "tool", "tool_call_id": call_id, "content": content})
        }
    }
}

fn response_format(output: &OutputSchema) -> Value {
    json!({"type": "json_schema", "json_schema": {
        "name": output.name, "schema": output.schema, "strict": is_strict(&output.schema),
    }})
}

/// Whether a schema is one that `strict` accepts: every object is closed and requires all that it has. Another one is
/// refused with status 400 if it is sent as strict.
fn is_strict(schema: &Value) -> bool {
    match schema {
        Value::Object(map) => {
            let is_object = map.get("type").is_some_and(|of| of == "object") || map.contains_key("properties");
            let empty = Map::new();
            let properties = map.get("properties").and_then(Value::as_object).unwrap_or(&empty);
            let required = map.get("required").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
            let closed = map.get("additionalProperties") == Some(&Value::Bool(false));
            (!is_object || closed && properties.keys().all(|name| required.iter().any(|of| of == name)))
                && map.values().all(is_strict)
        }
        Value::Array(all) => all.iter().all(is_strict),
        _ => true,
    }
}

/// A whole answer.
pub(super) fn read(body: &Value) -> Result<ChatResponse, ModelError> {
    let choice = body.pointer("/choices/0").ok_or_else(|| malformed("the answer has no `choices`"))?;
    let message = choice.get("message").ok_or_else(|| malformed("the answer has no `message`"))?;
    let call = |call: &Value| {
        let function = call.get("function").unwrap_or(&Value::Null);
        let name = function.get("name").and_then(Value::as_str).unwrap_or_default();
        if name.is_empty() {
            return Err(malformed("a tool call has no name"));
        }
        let arguments = match function.get("arguments") {
            Some(Value::String(text)) => arguments(text),
            None | Some(Value::Null) => json!({}),
            Some(data) => data.clone(), // Ollama's own clients write an object
        };
        Ok(ToolCall { id: text(call, "id"), name: name.to_owned(), arguments })
    };
    let calls = message.get("tool_calls").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let calls = with_distinct_ids(calls.iter().map(call).collect::<Result<_, _>>()?)?;
    let refusal = message.get("refusal").and_then(Value::as_str).filter(|text| !text.is_empty());
    Ok(ChatResponse {
        stop: stop(choice.get("finish_reason").and_then(Value::as_str), refusal.is_some(), !calls.is_empty()),
        said: AssistantMessage { content: content(message.get("content"), refusal), tool_calls: calls },
        usage: usage(body.get("usage")),
        model: text(body, "model"),
        id: body.get("id").and_then(Value::as_str).map(str::to_owned),
    })
}

fn text(value: &Value, name: &str) -> String {
    value.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn content(content: Option<&Value>, refusal: Option<&str>) -> String {
    let said = match content {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => parts.iter().filter_map(|part| part.get("text")?.as_str()).collect(),
        _ => String::new(),
    };
    if said.is_empty() { refusal.unwrap_or_default().to_owned() } else { said }
}

fn stop(reason: Option<&str>, refused: bool, calls: bool) -> StopReason {
    match reason {
        _ if refused => StopReason::Refusal,
        Some("content_filter") => StopReason::Refusal,
        Some("length") => StopReason::Length,
        // Some servers say `stop` after a tool call.
        None | Some("stop" | "tool_calls" | "function_call") if calls => StopReason::ToolCalls,
        None | Some("stop" | "tool_calls" | "function_call") => StopReason::End,
        Some(other) => StopReason::Other(other.to_owned()),
    }
}

/// Counts that are no natural numbers are unknown.
fn usage(usage: Option<&Value>) -> Usage {
    let count = |path: &str| usage.and_then(|usage| usage.pointer(path)).and_then(Value::as_u64);
    Usage {
        input: count("/prompt_tokens"),
        cache_read: count("/prompt_tokens_details/cached_tokens"),
        cache_write: None,
        output: count("/completion_tokens"),
        reasoning: count("/completion_tokens_details/reasoning_tokens"),
    }
}

/// The fold over `chat.completion.chunk`s.
#[derive(Debug, Default)]
pub(super) struct CompletionStream {
    id: Option<String>,
    model: String,
    content: String,
    refusal: String,
    /// In the order in which they began.
    calls: Vec<(u64, Partial)>,
    finish: Option<String>,
    usage: Option<Value>,
    /// The usage is of the whole answer: it came at its end or behind it.
    counted: bool,
}

#[derive(Debug, Default)]
struct Partial {
    id: String,
    name: String,
    arguments: String,
}

/// Calls by their index, those of one index as they began.
fn in_order(mut calls: Vec<(u64, Partial)>) -> impl Iterator<Item = Partial> {
    calls.sort_by_key(|(index, _)| *index);
    calls.into_iter().map(|(_, call)| call)
}

impl CompletionStream {
    fn call_delta(&mut self, place: usize, delta: &Value, sink: &mut dyn TokenSink) -> Result<(), ModelError> {
        // Servers that send every call in one piece sometimes leave the index out.
        let index = delta.get("index").and_then(Value::as_u64).unwrap_or(place as u64);
        let id = text(delta, "id");
        // The last one of this index goes on, unless the piece names another call: some servers give every call the same index,
        // and some give every piece an id of its own.
        let is_named = delta.pointer("/function/name").and_then(Value::as_str).is_some_and(|name| !name.is_empty());
        let is_of = |call: &Partial| id.is_empty() || call.id.is_empty() || call.id == id || !is_named;
        let open = self.calls.iter().rposition(|(at, _)| *at == index).filter(|at| is_of(&self.calls[*at].1));
        if open.is_none() && self.calls.len() >= TOOL_CALLS_MAX {
            return Err(malformed(format!("the answer has more than {TOOL_CALLS_MAX} tool calls")));
        }
        let at = open.unwrap_or(self.calls.len());
        if open.is_none() {
            self.calls.push((index, Partial::default()));
        }
        let (_, call) = &mut self.calls[at];
        if call.id.is_empty() {
            call.id = id;
        }
        let Some(function) = delta.get("function") else { return Ok(()) };
        if call.name.is_empty()
            && let Some(name) = function.get("name").and_then(Value::as_str).filter(|name| !name.is_empty())
        {
            name.clone_into(&mut call.name);
            sink.token(StreamToken::ToolCall(name));
        }
        match function.get("arguments") {
            Some(Value::String(piece)) => call.arguments.push_str(piece),
            None | Some(Value::Null) => {}
            Some(data) => call.arguments.push_str(&data.to_string()),
        }
        Ok(())
    }
}

impl Assembler for CompletionStream {
    fn event(&mut self, data: &Value, sink: &mut dyn TokenSink) -> Result<(), ModelError> {
        if self.id.is_none() {
            self.id = data.get("id").and_then(Value::as_str).map(str::to_owned);
        }
        if self.model.is_empty() {
            self.model = text(data, "model");
        }
        let usage = data.get("usage").filter(|usage| usage.is_object());
        if let Some(usage) = usage {
            self.usage = Some(usage.clone());
            self.counted |= self.finish.is_some();
        }
        let Some(choice) = data.pointer("/choices/0") else { return Ok(()) };
        let delta = choice.get("delta").unwrap_or(&Value::Null);
        let piece = content(delta.get("content"), None);
        if !piece.is_empty() {
            sink.token(StreamToken::Text(&piece));
            self.content.push_str(&piece);
        }
        self.refusal.push_str(delta.get("refusal").and_then(Value::as_str).unwrap_or_default());
        let calls = delta.get("tool_calls").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        for (place, call) in calls.iter().enumerate() {
            self.call_delta(place, call, sink)?;
        }
        if let Some(reason) = choice.get("finish_reason").and_then(Value::as_str) {
            self.finish = Some(reason.to_owned());
            self.counted |= usage.is_some();
        }
        Ok(())
    }

    /// Some servers count in every chunk: what they said before the end is not all.
    fn is_done(&self) -> bool {
        self.finish.is_some() && self.counted
    }

    fn is_whole(&self) -> bool {
        self.finish.is_some() && self.usage.is_some()
    }

    fn finish(self: Box<Self>) -> Result<ChatResponse, ModelError> {
        let Some(finish) = self.finish else { return Err(cut()) };
        let call = |call: Partial| match call.name.is_empty() {
            true => Err(malformed("a tool call has no name")),
            false => Ok(ToolCall { id: call.id, name: call.name, arguments: arguments(&call.arguments) }),
        };
        let calls = with_distinct_ids(in_order(self.calls).map(call).collect::<Result<_, _>>()?)?;
        let refused = !self.refusal.is_empty();
        Ok(ChatResponse {
            stop: stop(Some(&finish), refused, !calls.is_empty()),
            said: AssistantMessage {
                content: if self.content.is_empty() { self.refusal } else { self.content },
                tool_calls: calls,
            },
            usage: usage(self.usage.as_ref()),
            model: self.model,
            id: self.id,
        })
    }
}

#[cfg(test)]
mod tests;
