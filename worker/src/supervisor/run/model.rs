//! Calls that a language model answers: what it is asked, and what its answer is to whoever asked.
//!
//! A step of agents that call tools of the run is one call of the capability `model`, with the conversation and the tools
//! as the run has recorded them. Everything else is the workflow `agent` as a child: it repairs an answer of the wrong
//! shape, waits out limits, keeps a budget of its own, and may use the tools that the spec grants.
//!
//! Invariant: a request is a pure function of the spec and the call; an answer is read by the part that asked, as a script's
//! would be. Nothing is sent from here.

use serde_json::{Value, json};

use super::lease::lower;
use super::model_shapes::shape_of;
use super::refusal::CarryRefusal;
use super::tool_names::ToolNames;
use super::work::{Carried, TIMEOUT, time_of};
use crate::agent::ledger::Resource;
use crate::agent::spec::{AgentSpec, Limits, ToolGrant};
use crate::capability::model::{AssistantMessage, ChatRequest, Message, ModelInput, ToolCall, ToolSpec};
use crate::supervisor::outbox::{Answer, Call, CallFailure, Purpose};
use crate::supervisor::prompts::steady;
use crate::supervisor::spec::{Family, SupervisorSpec, ViaModel};

/// Those that the name of a model may begin with.
const PROVIDERS: [&str; 2] = ["openai", "anthropic"];
/// The provider of a spec that names none.
const PROVIDER: &str = "openai";
/// How often one request is tried before its failure counts.
pub(super) const ATTEMPTS: u32 = 10;

/// Which model, and how it is asked.
struct ModelSettings {
    provider: String,
    model: String,
    temperature: Option<f64>,
    max_tokens: Option<u32>,
    system: String,
}

/// What `via: model` says, then the agent's or the role's own `model`.
fn asked(spec: &SupervisorSpec, call: &Call, via: &ViaModel) -> Result<ModelSettings, CarryRefusal> {
    let (agent, role) = (spec.player(call), spec.role_of(call));
    let own = agent.and_then(|agent| agent.model.as_ref()).or(role.and_then(|role| role.model.as_ref()));
    let setting = |key: &str| own.and_then(|model| model.settings.get(key));
    let named = |text: Option<&Value>| text.and_then(Value::as_str).map(str::to_owned);
    let system = agent.map(|agent| &agent.system_prompt).filter(|text| !text.is_empty());
    let whole = |value: &Value| value.as_u64().and_then(|number| u32::try_from(number).ok());
    // Names of supyagent begin with the provider: `anthropic/claude`.
    let provided =
        own.and_then(|model| model.name.split_once('/')).filter(|_| via.provider.is_none() && via.name.is_none());
    let provided = provided.filter(|(provider, _)| PROVIDERS.contains(provider) && setting("provider").is_none());
    Ok(ModelSettings {
        provider: via
            .provider
            .clone()
            .or_else(|| named(setting("provider")).or(provided.map(|(provider, _)| provider.to_owned())))
            .unwrap_or_else(|| PROVIDER.to_owned()),
        model: via
            .name
            .clone()
            .or_else(|| provided.map(|(_, name)| name.to_owned()))
            .or_else(|| own.map(|model| model.name.clone()))
            // The manager of a crew is no agent of the spec (CRW-01).
            .or_else(|| named(call.context.get("model")))
            .ok_or_else(|| CarryRefusal::NoModel(call.agent.clone().unwrap_or_else(|| call.key.to_string())))?,
        temperature: via.temperature.or_else(|| setting("temperature").and_then(Value::as_f64)),
        max_tokens: via.max_tokens.or_else(|| setting("max_tokens").and_then(whole)),
        system: system.or(role.map(|role| &role.system_prompt)).cloned().unwrap_or_default(),
    })
}

/// What a call becomes.
pub(super) fn carried(spec: &SupervisorSpec, call: &Call, via: &ViaModel) -> Carried {
    let asked = match asked(spec, call, via) {
        Ok(asked) => asked,
        Err(why) => return Carried::Impossible(why),
    };
    if is_step(spec, call) {
        let timeout = time_of(spec, call).unwrap_or(TIMEOUT);
        let mut input = step(asked, call);
        if let Some(time) = time_of(spec, call).filter(|time| !time.is_zero()) {
            input.timeout_ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        }
        return Carried::Model { input: Box::new(input), timeout };
    }
    match agent(spec, asked, call, via) {
        Ok(spec) => Carried::Agent { spec: Box::new(spec) },
        Err(why) => Carried::Impossible(why),
    }
}

/// Whether the run itself carries out the tools that the answer asks for.
fn is_step(spec: &SupervisorSpec, call: &Call) -> bool {
    spec.family() == Family::Agents && call.context.get("messages").is_some() && call.context.get("tools").is_some()
}

fn agent(spec: &SupervisorSpec, asked: ModelSettings, call: &Call, via: &ViaModel) -> Result<AgentSpec, CarryRefusal> {
    let read = |key: &'static str, why: serde_json::Error| CarryRefusal::ViaModel { key, why: why.to_string() };
    // A question among workers is answered without tools: its call says that there are none.
    let none = call.context.get("tools").and_then(Value::as_array).is_some_and(Vec::is_empty);
    let work = call.purpose == Purpose::ExecuteWorker && !none;
    let granted = if work { via.tools.clone() } else { Vec::new() };
    let tools: Vec<ToolGrant> = serde_json::from_value(Value::Array(granted.into_iter().map(Value::Object).collect()))
        .map_err(|why| read("tools", why))?;
    let limits: Limits =
        serde_json::from_value(Value::Object(via.limits.clone())).map_err(|why| read("limits", why))?;
    if limits.share.is_some() {
        return Err(CarryRefusal::ShareOfAgent);
    }
    let price = (!via.price.is_empty()).then(|| serde_json::from_value(Value::Object(via.price.clone())));
    let mut agent = AgentSpec::bounded(tools, limits);
    agent.price = price.transpose().map_err(|why| read("price", why))?;
    agent.name = call.agent.clone().unwrap_or_else(|| call.purpose.as_str().to_owned());
    let (system, task) = told(asked.system, call);
    (agent.provider, agent.model, agent.system) = (asked.provider, asked.model, system);
    (agent.task, agent.temperature) = (task, asked.temperature);
    agent.max_output_tokens = asked.max_tokens.unwrap_or(agent.max_output_tokens);
    agent.schema = shape_of(spec, call);
    within_call(&mut agent, spec, call);
    agent.check().map_err(CarryRefusal::Agent)?;
    Ok(agent)
}

/// What the call itself allows is never more than what the spec allows its agent.
fn within_call(agent: &mut AgentSpec, spec: &SupervisorSpec, call: &Call) {
    let number = |key: &str| call.context.get(key).and_then(Value::as_u64);
    let time = time_of(spec, call).map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
    // A worker that takes too long has failed; nobody is asked for more time, as with programs and services.
    if lower(&mut agent.limits.wall_ms, time) {
        agent.limits.stops_at.push(Resource::Wall);
    }
    agent.call_timeout_ms = time.filter(|time| *time > 0);
    lower(&mut agent.limits.max_tool_calls, number("tool_call_limit"));
    if let Some(most) = number("max_tokens").and_then(|most| u32::try_from(most).ok()) {
        agent.max_output_tokens = agent.max_output_tokens.min(most);
    }
}

/// The system prompt and the task: what is the same in every turn of a job stands behind the role's own words.
fn told(own: String, call: &Call) -> (String, String) {
    let steady = steady(call.purpose, &call.context);
    match call.prompt.strip_prefix(&steady).map(str::trim_start) {
        Some(turn) if !steady.is_empty() && !turn.is_empty() => {
            let gap = if own.is_empty() { "" } else { "\n\n" };
            (format!("{own}{gap}{steady}"), turn.to_owned())
        }
        _ => (own, task_of(call)),
    }
}

/// The text of the call, or its data where nobody wrote a text for it.
fn task_of(call: &Call) -> String {
    if call.prompt.trim().is_empty() { format!("{:#}", call.context) } else { call.prompt.clone() }
}

/// One step of a conversation, in the model's words.
fn step(asked: ModelSettings, call: &Call) -> ModelInput {
    let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let list = |key: &str| call.context.get(key).and_then(Value::as_array).into_iter().flatten();
    let instructions = text(&call.context, "instructions");
    let system = if instructions.is_empty() { asked.system } else { instructions };
    let system = (!system.is_empty()).then_some(Message::System { content: system });
    let names = ToolNames::of(call);
    let tool = |tool: &Value| ToolSpec {
        name: names.sent(text(tool, "name")),
        description: text(tool, "description"),
        parameters: tool.get("parameters").cloned().unwrap_or_else(|| json!({ "type": "object" })),
    };
    let request = ChatRequest {
        model: asked.model,
        messages: system.into_iter().chain(list("messages").map(|value| message(value, &names))).collect(),
        tools: list("tools").map(tool).collect(),
        temperature: asked.temperature,
        max_tokens: asked.max_tokens,
        ..ChatRequest::default()
    };
    ModelInput::new(asked.provider, request)
}

/// A message of the run as the model's.
fn message(value: &Value, names: &ToolNames) -> Message {
    let text = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let call = |call: &Value| {
        let text = |key: &str| call.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let arguments = call.get("args").or_else(|| call.get("arguments")).cloned().unwrap_or_else(|| json!({}));
        ToolCall { id: text("id"), name: names.sent(text("name")), arguments }
    };
    match text("role").as_str() {
        "system" => Message::System { content: text("content") },
        "assistant" => {
            let calls = value.get("tool_calls").and_then(Value::as_array).into_iter().flatten();
            Message::Assistant(AssistantMessage { content: text("content"), tool_calls: calls.map(call).collect() })
        }
        "tool" => Message::Tool {
            call_id: text("tool_call_id"),
            name: names.sent(text("name")),
            content: text("content"),
            is_error: false,
        },
        _ => Message::User { content: text("content") },
    }
}

/// What the model said in a step, as the loop of agents reads it.
pub(super) fn said(output: &Value, call: &Call) -> Value {
    let (response, names) = (&output["response"], ToolNames::of(call));
    let calls = response["said"]["tool_calls"].as_array().into_iter().flatten();
    let meant = |name: &Value| name.as_str().map_or(Value::Null, |name| names.meant(name).into());
    let call =
        |call: &Value| json!({ "id": call["id"], "name": meant(&call["name"]), "args": arguments(&call["arguments"]) });
    let mut said = json!({
        "content": response["said"]["content"], "tokens": tokens(&response["usage"]), "model": response["model"],
    });
    let calls: Vec<Value> = calls.map(call).collect();
    if !calls.is_empty() {
        said["tool_calls"] = calls.into();
    }
    said
}

/// Arguments that are no object are shown to the loop as they are: it refuses them by name.
fn arguments(arguments: &Value) -> Value {
    if arguments.is_null() { json!({}) } else { arguments.clone() }
}

fn tokens(usage: &Value) -> u64 {
    let part = |key: &str| usage.get(key).and_then(Value::as_u64).unwrap_or_default();
    part("input").saturating_add(part("output"))
}

/// What an agent below spent: tokens, and the money that is known.
pub(super) fn spent(output: &Value) -> (u64, u64) {
    let of = |key: &str| output["spent"][key].as_u64().unwrap_or_default();
    (of("tokens"), of("cost_micros"))
}

/// What an agent below gave, as the part that asked reads it. A worker's answer says what it cost, also when it stopped:
/// that counts for its attempt. What other answers cost is charged to the run by whoever hears of them.
pub(super) fn given(family: Family, purpose: Purpose, output: &Value) -> Answer {
    let stop = &output["stop"];
    let why = match (stop.as_str(), stop["failed"]["message"].as_str()) {
        (Some("completed"), _) => None,
        (_, Some(message)) => Some(message.to_owned()),
        (Some(why), None) => Some(format!("the agent stopped: {why}")),
        (None, None) => Some(format!("the agent stopped: {stop}")),
    };
    let text = output.get("text").cloned().unwrap_or_default();
    let value = output.get("value").filter(|value| !value.is_null());
    let (tokens, micros) = spent(output);
    if (purpose, family) == (Purpose::ExecuteWorker, Family::Graph) {
        // Money that is not known is not said, and is not 0.
        let known = output["unpriced_calls"].as_u64() == Some(0);
        let cost = known.then_some(micros as f64 / 1e6);
        let model = output["by_model"].as_object().and_then(|models| models.keys().next().cloned());
        let result = value.cloned().unwrap_or(text);
        return Ok(match why {
            None => json!({ "result": result, "success": true, "tokens": tokens, "cost_usd": cost, "model": model }),
            Some(why) => json!({ "success": false, "reason": why, "tokens": tokens, "cost_usd": cost }),
        });
    }
    match why {
        Some(why) => Err(CallFailure::error(why)),
        None if (purpose, family) == (Purpose::ExecuteWorker, Family::Chat) => {
            Ok(json!({ "content": text, "tokens": tokens }))
        }
        None => Ok(value.cloned().unwrap_or(text)),
    }
}
