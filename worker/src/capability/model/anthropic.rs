//! Anthropic's Messages, as Anthropic and local servers with that interface speak it.
//!
//! Invariant: as in [`super::openai`]. What this format lacks is made from what it has: system messages become the system
//! prompt, results of tools become parts of a user's turn, and an answer under a schema is the input of a tool that the
//! model has to call; whoever reads the answer sees text, as with every other provider. Pure.

use serde_json::{Map, Value, json};

use super::{AssistantMessage, ChatRequest, Message, OutputSchema, ToolChoice, ToolSpec};

mod answer;

pub(super) use answer::{MessagesStream, read};

/// The format demands a limit.
const MAX_TOKENS_DEFAULT: u32 = 4096;

/// The body of the request.
pub(super) fn body(request: &ChatRequest, stream: bool) -> Value {
    let mut body = Map::new();
    body.insert("model".into(), json!(request.model));
    body.insert("max_tokens".into(), json!(request.max_tokens.unwrap_or(MAX_TOKENS_DEFAULT)));
    let system: Vec<&str> = request.messages.iter().filter_map(system).collect();
    if !system.is_empty() {
        body.insert("system".into(), json!(system.join("\n\n")));
    }
    body.insert("messages".into(), Value::Array(turns(&request.messages)));
    let answer = AnswerTool::of(request);
    let mut tools: Vec<Value> = request.tools.iter().map(tool).collect();
    tools.extend(answer.as_ref().map(AnswerTool::spec));
    if !tools.is_empty() {
        body.insert("tools".into(), Value::Array(tools));
        body.extend(tool_choice(request, answer.as_ref()).map(|choice| ("tool_choice".to_owned(), choice)));
    }
    body.extend(request.temperature.map(|temperature| ("temperature".to_owned(), json!(temperature))));
    if stream {
        body.insert("stream".into(), json!(true));
    }
    Value::Object(body)
}

fn system(message: &Message) -> Option<&str> {
    match message {
        Message::System { content } => Some(content),
        _ => None,
    }
}

fn tool(tool: &ToolSpec) -> Value {
    json!({"name": tool.name, "description": tool.description, "input_schema": tool.parameters})
}

fn tool_choice(request: &ChatRequest, answer: Option<&AnswerTool>) -> Option<Value> {
    let named = |name: &str| json!({"type": "tool", "name": name});
    match (&request.tool_choice, answer) {
        (ToolChoice::Tool(name), _) => Some(named(name)),
        (ToolChoice::Auto, None) => None,
        (ToolChoice::None, None) => Some(json!({"type": "none"})),
        (ToolChoice::Required, _) => Some(json!({"type": "any"})),
        // With a schema an answer is a call of the answer tool, so the model has to call that one or another.
        (ToolChoice::Auto, Some(_)) if !request.tools.is_empty() => Some(json!({"type": "any"})),
        (ToolChoice::Auto | ToolChoice::None, Some(answer)) => Some(named(&answer.name)),
    }
}

/// Turns alternate: what one side says in a row is one turn.
fn turns(messages: &[Message]) -> Vec<Value> {
    let mut turns: Vec<(&str, Vec<Value>)> = Vec::new();
    for message in messages {
        let (role, blocks) = match message {
            Message::System { .. } => continue,
            Message::User { content } => ("user", text_block(content)),
            Message::Assistant(said) => ("assistant", said_blocks(said)),
            Message::Tool { call_id, content, is_error, .. } => {
                let mut block = json!({"type": "tool_result", "tool_use_id": call_id, "content": content});
                if *is_error {
                    block["is_error"] = json!(true);
                }
                ("user", vec![block])
            }
        };
        match turns.last_mut() {
            Some((last, all)) if *last == role => all.extend(blocks),
            _ => turns.push((role, blocks)),
        }
    }
    // An empty turn is refused by the provider.
    turns.retain(|(_, blocks)| !blocks.is_empty());
    turns.into_iter().map(|(role, blocks)| json!({"role": role, "content": blocks})).collect()
}

fn text_block(text: &str) -> Vec<Value> {
    // An empty text is refused by the provider.
    if text.trim().is_empty() { Vec::new() } else { vec![json!({"type": "text", "text": text})] }
}

fn said_blocks(said: &AssistantMessage) -> Vec<Value> {
    let mut blocks = text_block(&said.content);
    for call in &said.tool_calls {
        // The format knows objects only.
        let input = match &call.arguments {
            Value::Object(_) => call.arguments.clone(),
            other => json!({"arguments": other}),
        };
        blocks.push(json!({"type": "tool_use", "id": call.id, "name": call.name, "input": input}));
    }
    blocks
}

/// The tool whose input is the answer, where the request has a schema.
#[derive(Debug, Clone, PartialEq)]
struct AnswerTool {
    name: String,
    schema: Value,
    /// The schema is not one of an object, and stands under `value`.
    wrapped: bool,
}

impl AnswerTool {
    fn of(request: &ChatRequest) -> Option<AnswerTool> {
        let OutputSchema { name, schema } = request.schema.as_ref()?;
        let taken = request.tools.iter().any(|tool| tool.name == *name);
        let name = if taken || name.is_empty() { format!("answer_{name}") } else { name.clone() };
        let wrapped = schema.get("type").is_none_or(|of| of != "object");
        let schema = if wrapped { wrap(schema) } else { schema.clone() };
        Some(AnswerTool { name, schema, wrapped })
    }

    fn spec(&self) -> Value {
        json!({"name": self.name, "description": "Gives the final answer.", "input_schema": self.schema})
    }

    /// What the model gave as the answer.
    fn answer(&self, mut input: Value) -> Value {
        match input.get_mut("value") {
            Some(value) if self.wrapped => value.take(),
            _ => input,
        }
    }
}

/// Definitions stay at the root, where references look for them.
fn wrap(schema: &Value) -> Value {
    let mut inner = schema.clone();
    let mut outer = json!({"type": "object", "properties": {}, "required": ["value"], "additionalProperties": false});
    for definitions in ["$defs", "definitions"] {
        if let Some(found) = inner.as_object_mut().and_then(|map| map.remove(definitions)) {
            outer[definitions] = found;
        }
    }
    outer["properties"]["value"] = inner;
    outer
}

#[cfg(test)]
mod tests;
