//! Messages from the provider's side: requests read, answers written.
//!
//! Invariant: the inverse of [`crate::capability::model::anthropic`], written from the format and not from that code. The
//! tool that stands for a schema is known by its description, so that a test sees the schema and gives text.

use serde_json::{Value, json};

use super::super::wire::arguments;
use super::super::{
    AssistantMessage, ChatRequest, ChatResponse, Message, OutputSchema, StopReason, ToolCall, ToolChoice, ToolSpec,
    Usage,
};
use super::{called, list, pieces, text};

const ANSWER: &str = "Gives the final answer.";

pub(super) fn read(body: &Value) -> Result<ChatRequest, String> {
    if body["max_tokens"].as_u64().is_none() {
        return Err("`max_tokens` is missing".into());
    }
    let mut messages = Vec::new();
    let system = text(body, "system");
    if !system.is_empty() {
        messages.push(Message::System { content: system });
    }
    let mut last = "";
    for turn in list(body, "messages") {
        let role = turn["role"].as_str().unwrap_or_default();
        if role == last {
            return Err(format!("two turns of {role} in a row"));
        }
        last = role;
        read_turn(turn, &mut messages)?;
    }
    let (answers, tools): (Vec<&Value>, Vec<&Value>) =
        list(body, "tools").iter().partition(|tool| tool["description"] == ANSWER);
    let tool = |tool: &&Value| ToolSpec {
        name: text(tool, "name"),
        description: text(tool, "description"),
        parameters: tool["input_schema"].clone(),
    };
    let schema = answers.first().map(|tool| OutputSchema { name: text(tool, "name"), schema: unwrapped(tool) });
    let choice = &body["tool_choice"];
    let tool_choice = match choice["type"].as_str() {
        Some("none") => ToolChoice::None,
        Some("any") if schema.is_none() => ToolChoice::Required,
        Some("tool") if schema.as_ref().is_none_or(|schema| choice["name"] != *schema.name) => {
            ToolChoice::Tool(text(choice, "name"))
        }
        _ => ToolChoice::Auto,
    };
    Ok(ChatRequest {
        model: text(body, "model"),
        messages,
        tools: tools.iter().map(tool).collect(),
        tool_choice,
        schema,
        temperature: body["temperature"].as_f64(),
        max_tokens: body["max_tokens"].as_u64().and_then(|max| u32::try_from(max).ok()),
    })
}

/// Whether the answer stands under `value`, because the schema is none of an object.
fn is_wrapped(tool: &Value) -> bool {
    let schema = &tool["input_schema"];
    let names: Vec<&String> = schema["properties"].as_object().into_iter().flat_map(|map| map.keys()).collect();
    names == ["value"] && schema["required"] == json!(["value"])
}

fn unwrapped(tool: &Value) -> Value {
    let schema = &tool["input_schema"];
    if is_wrapped(tool) { schema["properties"]["value"].clone() } else { schema.clone() }
}

fn read_turn(turn: &Value, messages: &mut Vec<Message>) -> Result<(), String> {
    let mut said = AssistantMessage::default();
    for block in list(turn, "content") {
        match (turn["role"].as_str(), block["type"].as_str()) {
            (Some("user"), Some("text")) => messages.push(Message::User { content: text(block, "text") }),
            (Some("user"), Some("tool_result")) => {
                let call_id = text(block, "tool_use_id");
                let name = called(messages, &call_id)?;
                let is_error = block["is_error"] == true;
                messages.push(Message::Tool { call_id, name, content: text(block, "content"), is_error });
            }
            (Some("assistant"), Some("text")) => said.content.push_str(&text(block, "text")),
            (Some("assistant"), Some("tool_use")) if block["input"].is_object() => said.tool_calls.push(ToolCall {
                id: text(block, "id"),
                name: text(block, "name"),
                arguments: block["input"].clone(),
            }),
            _ => return Err(format!("{block} does not belong there")),
        }
    }
    if turn["role"] == "assistant" {
        messages.push(Message::Assistant(said));
    }
    Ok(())
}

fn reason(stop: &StopReason, answers: bool) -> &str {
    match stop {
        StopReason::End if answers => "tool_use",
        StopReason::End => "end_turn",
        StopReason::ToolCalls => "tool_use",
        StopReason::Length => "max_tokens",
        StopReason::Refusal => "refusal",
        StopReason::Other(reason) => reason,
    }
}

fn usage(usage: &Usage) -> Value {
    let Usage { input, cache_read, cache_write, output, .. } = usage;
    let plain = input.map(|input| input - cache_read.unwrap_or(0) - cache_write.unwrap_or(0));
    json!({"input_tokens": plain, "cache_read_input_tokens": cache_read,
           "cache_creation_input_tokens": cache_write, "output_tokens": output})
}

/// The parts of the answer, and whether one is the answer under a schema.
fn blocks(body: &Value, response: &ChatResponse) -> (Vec<Value>, bool) {
    let AssistantMessage { content, tool_calls } = &response.said;
    let answer = list(body, "tools").iter().find(|tool| tool["description"] == ANSWER);
    if let Some(tool) = answer.filter(|_| tool_calls.is_empty()) {
        let data = arguments(content);
        let input = if is_wrapped(tool) { json!({"value": data}) } else { data };
        return (vec![json!({"type": "tool_use", "id": "toolu_answer", "name": tool["name"], "input": input})], true);
    }
    let text = (!content.is_empty()).then(|| json!({"type": "text", "text": content}));
    let call = |call: &ToolCall| json!({"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments});
    (text.into_iter().chain(tool_calls.iter().map(call)).collect(), false)
}

pub(super) fn whole(body: &Value, response: &ChatResponse) -> Value {
    let (blocks, answers) = blocks(body, response);
    json!({"id": response.id, "type": "message", "role": "assistant", "model": response.model, "content": blocks,
           "stop_reason": reason(&response.stop, answers), "usage": usage(&response.usage)})
}

/// The events of a stream, each as it is written.
pub(super) fn events(body: &Value, response: &ChatResponse) -> Vec<String> {
    let event = |data: Value| format!("event: {}\ndata: {data}\n\n", text(&data, "type"));
    let (blocks, answers) = blocks(body, response);
    let mut counted = usage(&response.usage);
    let output = counted["output_tokens"].take();
    let message = json!({"id": response.id, "type": "message", "role": "assistant", "model": response.model,
                         "content": [], "stop_reason": null, "usage": counted});
    let mut events = vec![event(json!({"type": "message_start", "message": message})), event(json!({"type": "ping"}))];
    for (index, block) in blocks.iter().enumerate() {
        let delta = |delta: Value| event(json!({"type": "content_block_delta", "index": index, "delta": delta}));
        let mut opened = block.clone();
        let written = match block["type"].as_str() {
            Some("text") => {
                opened["text"] = json!("");
                pieces(&text(block, "text"))
                    .into_iter()
                    .map(|piece| json!({"type": "text_delta", "text": piece}))
                    .collect()
            }
            _ => {
                opened["input"] = json!({});
                let input = block["input"].as_str().map_or_else(|| block["input"].to_string(), str::to_owned);
                let piece = |piece| json!({"type": "input_json_delta", "partial_json": piece});
                pieces(&input).into_iter().map(piece).collect::<Vec<_>>()
            }
        };
        events.push(event(json!({"type": "content_block_start", "index": index, "content_block": opened})));
        events.extend(written.into_iter().map(delta));
        events.push(event(json!({"type": "content_block_stop", "index": index})));
    }
    events.push(event(json!({"type": "message_delta", "delta": {"stop_reason": reason(&response.stop, answers)},
                             "usage": {"output_tokens": output}})));
    events.push(event(json!({"type": "message_stop"})));
    events
}
