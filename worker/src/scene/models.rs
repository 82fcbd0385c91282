//! What models are told and say: a scene's answer in the form in which the capability `model` would give it.
//!
//! Invariant: a model of an agent's own run is asked what its conversation says, as in production, though its call holds no
//! text; an answer is checked against the schema of its request by the same code. What it took and cost is what the scene says,
//! and nothing where it says nothing. Nobody is asked here.

use bosun_engine::{EventKind, Payload, Turn};
use serde::Deserialize;
use serde_json::{Value, json};

use super::asked::Asked;
use crate::agent::AgentSpec;
use crate::agent::resolve::Conversation;
use crate::capability::model::{ChatRequest, ChatResponse, Cost, ModelOutput, ModelPrice, OutputSchema};
use crate::supervisor::FieldError;
use crate::supervisor::fields::Fields;
use crate::supervisor::spec::Money;

/// What an answer of a model took, and what it cost; none where nobody knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ModelCharge {
    input: Option<u64>,
    output: Option<u64>,
    cost_micros: Option<u64>,
}

impl Default for ModelCharge {
    fn default() -> Self {
        ModelCharge { input: Some(0), output: Some(0), cost_micros: Some(0) }
    }
}

impl ModelCharge {
    /// The word for what nobody knows.
    pub(super) const UNKNOWN: &str = "unknown";
    pub(super) const KEYS: [&str; 2] = ["usage", "cost"];

    /// The keys `usage` and `cost` of a rule, if it has them.
    pub(super) fn read(rule: &Fields<'_>) -> Result<Option<ModelCharge>, FieldError> {
        let unknown = |value: &Value| value.as_str() == Some(Self::UNKNOWN);
        let mut charge = ModelCharge::default();
        match rule.value("usage") {
            None => {}
            Some(value) if unknown(value) => (charge.input, charge.output) = (None, None),
            Some(value) => {
                let usage = Fields::read(value, &rule.path_of("usage"), &["input", "output"])?;
                charge.input = Some(usage.natural("input")?.unwrap_or(0));
                charge.output = Some(usage.natural("output")?.unwrap_or(0));
            }
        }
        match rule.value("cost") {
            None => {}
            Some(value) if unknown(value) => charge.cost_micros = None,
            Some(value) => {
                let why = |_| rule.error("cost", format!("expected an amount in dollars, or `unknown`, found {value}"));
                charge.cost_micros = Some(serde_json::from_value::<Money>(value.clone()).map_err(why)?.as_micros());
            }
        }
        Ok(Self::KEYS.iter().any(|key| rule.value(key).is_some()).then_some(charge))
    }
}

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
pub(super) fn output(said: &Value, charge: ModelCharge, input: &Value) -> Payload {
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
    // A provider's word for why it said no more: `length`, `refusal`, or one of its own.
    let stop = match said.get("stop").and_then(Value::as_str).filter(|_| is_message) {
        Some(stop @ ("end" | "tool_calls" | "length" | "refusal")) => json!(stop),
        Some(other) => json!({ "other": other }),
        None if calls.is_empty() => json!("end"),
        None => json!("tool_calls"),
    };
    let response = json!({ "said": { "content": content, "tool_calls": calls }, "stop": stop,
        "usage": { "input": charge.input, "output": charge.output }, "model": "scene" });
    let schema = input.pointer("/request/schema").filter(|schema| !schema.is_null());
    let schema: Option<OutputSchema> = schema.and_then(|schema| serde_json::from_value(schema.clone()).ok());
    let output = serde_json::from_value::<ChatResponse>(response);
    let unknown = || Cost::Unpriced("the scene says that nobody knows".to_owned());
    // As the worker does, what the spec says it costs stands in for a price that nobody knows.
    let price = input.get("price").and_then(|price| ModelPrice::deserialize(price).ok());
    let output = output.map(|response| {
        let cost = charge.cost_micros.map_or_else(unknown, Cost::Micros).or_by(price.as_ref(), &response);
        let request = input.get("request").and_then(|request| ChatRequest::deserialize(request).ok());
        let estimated = request.and_then(|request| ModelOutput::estimate(&request, &response));
        ModelOutput { cost, estimated, ..ModelOutput::free(response, schema.as_ref()) }
    });
    output.ok().and_then(|output| Payload::encode(&output).ok()).unwrap_or_else(Payload::null)
}
