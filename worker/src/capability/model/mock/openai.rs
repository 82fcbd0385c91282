//! Chat Completions from the provider's side: requests read, answers written.
//!
//! Invariant: the inverse of [`crate::capability::model::openai`], written from the format and not from that code.

use serde_json::{Value, json};

use super::super::wire::arguments;
use super::super::{
    AssistantMessage, ChatRequest, ChatResponse, Message, OutputSchema, StopReason, ToolCall, ToolChoice, ToolSpec,
    Usage,
};
use super::{called, list, pieces, text};

pub(super) fn read(body: &Value) -> Result<ChatRequest, String> {
    let mut messages = Vec::new();
    for message in list(body, "messages") {
        let read = read_message(message, &messages)?;
        messages.push(read);
    }
    if messages.is_empty() {
        return Err("`messages` is empty".into());
    }
    let tool = |tool: &Value| ToolSpec {
        name: text(&tool["function"], "name"),
        description: text(&tool["function"], "description"),
        parameters: tool["function"]["parameters"].clone(),
    };
    let tool_choice = match &body["tool_choice"] {
        Value::Null => ToolChoice::Auto,
        Value::String(word) if word == "auto" => ToolChoice::Auto,
        Value::String(word) if word == "none" => ToolChoice::None,
        Value::String(word) if word == "required" => ToolChoice::Required,
        choice => ToolChoice::Tool(text(&choice["function"], "name")),
    };
    let format = &body["response_format"]["json_schema"];
    let schema =
        format.is_object().then(|| OutputSchema { name: text(format, "name"), schema: format["schema"].clone() });
    let max_tokens = body["max_tokens"].as_u64().or_else(|| body["max_completion_tokens"].as_u64());
    Ok(ChatRequest {
        model: text(body, "model"),
        messages,
        tools: list(body, "tools").iter().map(tool).collect(),
        tool_choice,
        schema,
        temperature: body["temperature"].as_f64(),
        max_tokens: max_tokens.and_then(|max| u32::try_from(max).ok()),
    })
}

fn read_message(message: &Value, before: &[Message]) -> Result<Message, String> {
    let content = text(message, "content");
    Ok(match message["role"].as_str() {
        Some("system") => Message::System { content },
        Some("user") => Message::User { content },
        Some("assistant") => {
            let call = |call: &Value| ToolCall {
                id: text(call, "id"),
                name: text(&call["function"], "name"),
                arguments: arguments(&text(&call["function"], "arguments")),
            };
            Message::Assistant(AssistantMessage {
                content,
                tool_calls: list(message, "tool_calls").iter().map(call).collect(),
            })
        }
        Some("tool") => {
            let call_id = text(message, "tool_call_id");
            let error = content.strip_prefix("Error: ").map(str::to_owned);
            let is_error = error.is_some();
            Message::Tool { name: called(before, &call_id)?, call_id, content: error.unwrap_or(content), is_error }
        }
        role => return Err(format!("the role {role:?} is unknown")),
    })
}

fn finish(stop: &StopReason) -> &str {
    match stop {
        StopReason::End => "stop",
        StopReason::ToolCalls => "tool_calls",
        StopReason::Length => "length",
        StopReason::Refusal => "content_filter",
        StopReason::Other(reason) => reason,
    }
}

fn written(arguments: &Value) -> String {
    match arguments {
        Value::String(text) => text.clone(),
        data => data.to_string(),
    }
}

fn usage(usage: &Usage) -> Value {
    let Usage { input, cache_read, output, reasoning, .. } = usage;
    if input.is_none() && output.is_none() {
        return Value::Null;
    }
    let mut counts = json!({"prompt_tokens": input, "completion_tokens": output});
    if let Some(cached) = cache_read {
        counts["prompt_tokens_details"] = json!({"cached_tokens": cached});
    }
    if let Some(reasoning) = reasoning {
        counts["completion_tokens_details"] = json!({"reasoning_tokens": reasoning});
    }
    counts
}

pub(super) fn whole(response: &ChatResponse) -> Value {
    let ChatResponse { said, stop, usage: counted, model, id } = response;
    let call = |call: &ToolCall| {
        json!({"id": call.id, "type": "function",
               "function": {"name": call.name, "arguments": written(&call.arguments)}})
    };
    let mut message = json!({"role": "assistant", "content": said.content});
    if !said.tool_calls.is_empty() {
        message["tool_calls"] = said.tool_calls.iter().map(call).collect();
    }
    let choice = json!({"index": 0, "message": message, "finish_reason": finish(stop)});
    json!({"id": id, "object": "chat.completion", "model": model, "choices": [choice], "usage": usage(counted)})
}

/// The events of a stream, each as it is written.
pub(super) fn events(body: &Value, response: &ChatResponse) -> Vec<String> {
    let ChatResponse { said, stop, usage: counted, model, id } = response;
    let event = |data: Value| format!("data: {data}\n\n");
    let chunk = |delta: Value, finish: Value| {
        let choice = json!({"index": 0, "delta": delta, "finish_reason": finish});
        event(json!({"id": id, "object": "chat.completion.chunk", "model": model, "choices": [choice]}))
    };
    let mut events = vec![chunk(json!({"role": "assistant", "content": ""}), Value::Null)];
    events.extend(pieces(&said.content).into_iter().map(|piece| chunk(json!({"content": piece}), Value::Null)));
    for (index, call) in said.tool_calls.iter().enumerate() {
        let first = json!({"index": index, "id": call.id, "type": "function",
                           "function": {"name": call.name, "arguments": ""}});
        events.push(chunk(json!({"tool_calls": [first]}), Value::Null));
        events.extend(pieces(&written(&call.arguments)).into_iter().map(|piece| {
            chunk(json!({"tool_calls": [{"index": index, "function": {"arguments": piece}}]}), Value::Null)
        }));
    }
    events.push(chunk(json!({}), json!(finish(stop))));
    if body["stream_options"]["include_usage"] == true && !usage(counted).is_null() {
        events.push(event(json!({"id": id, "model": model, "choices": [], "usage": usage(counted)})));
    }
    events.push("data: [DONE]\n\n".to_owned());
    events
}
