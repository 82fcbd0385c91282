//! What models are told and say: a scene's answer in the form in which the capability `model` would give it.
//!
//! Invariant: a model of an agent's own run is asked what its conversation says, as in production, though its call holds no
//! text; an answer is checked against the schema of its request by the same code. Nobody is asked here.

use bosun_engine::{EventKind, Payload, Turn};
use serde_json::{Value, json};

use super::asked::Asked;
use crate::agent::AgentSpec;
use crate::agent::resolve::Conversation;
use crate::capability::model::{ChatResponse, ModelOutput, OutputSchema};

impl Asked {
    /// With the whole request of an agent's call, and the name of the agent. `turns`: the history of its run.
    pub(super) fn in_conversation(mut self, seq: u64, turns: &[Turn]) -> Asked {
        let mut conversation = Conversation::default();
        for event in turns.iter().flat_map(Turn::numbered) {
            if let EventKind::WorkflowExecutionStarted(started) = &event.kind {
                let spec = started.input.decode::<AgentSpec>().ok();
                self.call.agent = spec.map(|spec| spec.name).filter(|name| !name.is_empty());
            }
            conversation.hear(event.id, &event.kind);
        }
        let Ok(request) = conversation.request(seq) else { return self };
        let request = json!(request);
        self.call.prompt = told(&request).unwrap_or_default();
        (self.data, self.call.context) = (request.clone(), request.clone());
        self.input = request;
        self
    }
}

/// What a model is told, a message a line.
pub(super) fn told(input: &Value) -> Option<String> {
    let messages = input.pointer("/request/messages")?.as_array()?;
    Some(messages.iter().map(Value::to_string).collect::<Vec<_>>().join("\n"))
}

/// What a model says: a text, or `content` with `tool_calls`; anything else is its answer as data.
pub(super) fn output(said: &Value, input: &Value) -> Payload {
    let calls = said.get("tool_calls").and_then(Value::as_array);
    let call = |(i, call): (usize, &Value)| {
        json!({ "id": call.get("id").cloned().unwrap_or_else(|| format!("call-{}", i + 1).into()),
            "name": call["name"], "arguments": call.get("arguments").or_else(|| call.get("args")).cloned().unwrap_or_else(|| json!({})) })
    };
    let calls: Vec<Value> = calls.into_iter().flatten().enumerate().map(call).collect();
    let is_message = said.get("content").is_some() || !calls.is_empty();
    let content = match said {
        Value::String(text) => text.clone(),
        _ if is_message => said["content"].as_str().unwrap_or_default().to_owned(),
        other => other.to_string(),
    };
    let stop = if calls.is_empty() { "end" } else { "tool_calls" };
    let response = json!({ "said": { "content": content, "tool_calls": calls }, "stop": stop,
        "usage": { "input": 0, "output": 0 }, "model": "scene" });
    let schema = input.pointer("/request/schema").filter(|schema| !schema.is_null());
    let schema: Option<OutputSchema> = schema.and_then(|schema| serde_json::from_value(schema.clone()).ok());
    let output = serde_json::from_value::<ChatResponse>(response);
    let output = output.map(|response| ModelOutput::free(response, schema.as_ref()));
    output.ok().and_then(|output| Payload::encode(&output).ok()).unwrap_or_else(Payload::null)
}
