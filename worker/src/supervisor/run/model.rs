//! Calls that a language model answers: the request to the model, and the answer that the caller reads.
//!
//! A step of agents that call tools of the run is one call of the capability `model`, with the conversation and the tools
//! as the run has recorded them. Everything else is the workflow `agent` as a child: it repairs an answer of the wrong
//! shape, waits out limits, keeps a budget of its own, and may use the tools that the spec grants.
//!
//! Invariant: a request is a pure function of the spec and the call; an answer is read by the part that asked, as a script's
//! would be. Nothing is sent from here.

use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::lease::lower;
use super::model_words::{behind, handed_over, offers, reply_in, spoken, turn_of};
use super::refusal::{AnswerUnusable, CarryRefusal};
use super::tool_names::ToolNames;
use super::work::{Carried, TIMEOUT, time_of};
use crate::agent::AgentOutput;
use crate::agent::ledger::{Amount, Resource};
use crate::agent::machine::AgentStopReason;
use crate::agent::spec::{AgentSpec, Limits, ToolGrant};
use crate::capability::model::{
    AssistantMessage, ChatRequest, Message, ModelInput, ModelOutput, OutputSchema, StopReason as ModelStop, ToolCall,
    ToolSpec, with_provider,
};
use crate::supervisor::agents::{self, MessageRole, StepContext, ToolOffer};
use crate::supervisor::core::account::SPENT;
use crate::supervisor::core::asker::{AnswerForm, AnswerShape, Asker};
use crate::supervisor::core::call_context::CallContext;
use crate::supervisor::outbox::{Answer, Call, CallFailure, Purpose};
use crate::supervisor::prompts::steady;
use crate::supervisor::spec::tool_names::Builtin;
use crate::supervisor::spec::{SupervisorSpec, ViaModel};

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
    let provider = via.provider.clone().or_else(|| named(setting("provider")));
    let name = via
        .name
        .clone()
        .or_else(|| own.map(|model| model.name.clone()))
        // The manager of a crew is no agent of the spec (CRW-01).
        .or_else(|| CallContext::of(call).model)
        .ok_or_else(|| CarryRefusal::NoModel(call.agent.clone().unwrap_or_else(|| call.key.to_string())))?;
    // A name may begin with the provider, as in supyagent's files: `anthropic/claude`. Beside a provider it is that one's own.
    let (provider, model) = match (provider, with_provider(&name)) {
        (None, Some((first, rest))) => (first.to_owned(), rest.to_owned()),
        (provider, _) => (provider.unwrap_or_else(|| PROVIDER.to_owned()), name),
    };
    Ok(ModelSettings {
        provider,
        model,
        temperature: via.temperature.or_else(|| setting("temperature").and_then(Value::as_f64)),
        max_tokens: via.max_tokens.or_else(|| setting("max_tokens").and_then(whole)),
        system: system.or(role.map(|role| &role.system_prompt)).cloned().unwrap_or_default(),
    })
}

/// What a call becomes.
pub(super) fn carried(spec: &SupervisorSpec, call: &Call, via: &ViaModel, asker: &dyn Asker) -> Carried {
    let asked = match asked(spec, call, via) {
        Ok(asked) => asked,
        Err(why) => return Carried::Impossible(why),
    };
    let turn = || turn_of(spec, call, via, asker, (asked.system.as_str(), task_of(call)));
    let context = step_of(call, asker);
    let alone = context.as_ref().is_some_and(|context| works_alone(context, via));
    let own = !via.tools.is_empty() || !via.limits.is_empty();
    if own && !alone && context.as_ref().is_some_and(|context| !context.last_word) {
        let name = call.agent.clone().unwrap_or_else(|| call.key.to_string());
        return Carried::Impossible(CarryRefusal::ToolsOfTwoKinds(name));
    }
    if let Some(context) = context.filter(|_| !alone).or_else(turn) {
        let timeout = time_of(spec, call, asker).unwrap_or(TIMEOUT);
        let mut input = step(asked, &context);
        input.price = match price_of(via) {
            Ok(price) => price,
            Err(why) => return Carried::Impossible(why),
        };
        if let Some(time) = time_of(spec, call, asker).filter(|time| !time.is_zero()) {
            input.timeout_ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        }
        return Carried::Model { input: Box::new(input), timeout };
    }
    match agent(spec, asked, call, via, asker) {
        Ok(spec) => Carried::Agent { spec: Box::new(spec) },
        Err(why) => Carried::Impossible(why),
    }
}

/// What the spec says that the model costs.
fn price_of<P: DeserializeOwned>(via: &ViaModel) -> Result<Option<P>, CarryRefusal> {
    let price = (!via.price.is_empty()).then(|| serde_json::from_value(Value::Object(via.price.clone())));
    price.transpose().map_err(|why| CarryRefusal::ViaModel { key: "price", why: why.to_string() })
}

/// The step that is asked for, where the run itself carries out the tools that the answer asks for.
fn step_of(call: &Call, asker: &dyn Asker) -> Option<StepContext<'static>> {
    asker.runs_tools().then(|| StepContext::deserialize(&call.context).ok()).flatten()
}

/// Whether a step is a run of its own: its model is granted tools or limits of its own, and has no others of the run than
/// those that everybody has. One that answers without tools is asked once.
fn works_alone(context: &StepContext<'_>, via: &ViaModel) -> bool {
    let own = !via.tools.is_empty() || !via.limits.is_empty();
    let of_all = |name: &str| Builtin::ALL.iter().any(|builtin| builtin.name() == name);
    let of_run = context.tools.iter().any(|tool| !of_all(&tool.name));
    own && !of_run && !context.last_word
}

fn agent(
    spec: &SupervisorSpec,
    asked: ModelSettings,
    call: &Call,
    via: &ViaModel,
    asker: &dyn Asker,
) -> Result<AgentSpec, CarryRefusal> {
    let read = |key: &'static str, why: serde_json::Error| CarryRefusal::ViaModel { key, why: why.to_string() };
    // A question among workers is answered without tools: its call says that there are none.
    let has_none = CallContext::of(call).has_no_tools() && !asker.runs_tools();
    let work = call.purpose == Purpose::ExecuteWorker && !has_none;
    let granted = if work { via.tools.clone() } else { Vec::new() };
    let tools: Vec<ToolGrant> = serde_json::from_value(Value::Array(granted.into_iter().map(Value::Object).collect()))
        .map_err(|why| read("tools", why))?;
    let limits: Limits =
        serde_json::from_value(Value::Object(via.limits.clone())).map_err(|why| read("limits", why))?;
    if limits.share.is_some() || limits.needs_prices || limits.wall_of_run {
        return Err(CarryRefusal::ShareOfAgent);
    }
    let mut agent = AgentSpec::bounded(tools, limits);
    agent.price = price_of(via)?;
    agent.name = call.agent.clone().unwrap_or_else(|| call.purpose.as_str().to_owned());
    let (mut system, task) =
        step_of(call, asker).map_or_else(|| told(asked.system, call), |step| told_alone(step, call));
    let behind = behind(spec, call, asker);
    if !behind.is_empty() {
        system = if system.is_empty() { behind } else { format!("{system}\n\n{behind}") };
    }
    (agent.provider, agent.model, agent.system) = (asked.provider, asked.model, system);
    (agent.task, agent.temperature) = (task, asked.temperature);
    agent.max_output_tokens = asked.max_tokens.unwrap_or(agent.max_output_tokens);
    agent.schema = asker.shape(call).map(|AnswerShape { name, schema }| OutputSchema { name: name.to_owned(), schema });
    within_call(&mut agent, call, time_of(spec, call, asker));
    agent.check().map_err(CarryRefusal::Agent)?;
    Ok(agent)
}

/// What the call itself allows is never more than what the spec allows its agent.
fn within_call(agent: &mut AgentSpec, call: &Call, time: Option<Duration>) {
    let CallContext { tool_call_limit, max_tokens, .. } = CallContext::of(call);
    let time = time.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
    // A worker that takes too long has failed; nobody is asked for more time, as with programs and services.
    if lower(&mut agent.limits.wall_ms, time) {
        agent.limits.stops_at.push(Resource::Wall);
    }
    agent.call_timeout_ms = time.filter(|time| *time > 0);
    lower(&mut agent.limits.max_tool_calls, tool_call_limit);
    if let Some(most) = max_tokens {
        agent.max_output_tokens = agent.max_output_tokens.min(most);
    }
}

/// The same of a step that is a run of its own. The system prompt is in its instructions, and those begin the text of the
/// call.
fn told_alone(step: StepContext<'_>, call: &Call) -> (String, String) {
    let said = call.prompt.strip_prefix(&*step.instructions).unwrap_or(&call.prompt).trim_start().to_owned();
    (step.instructions.into_owned(), said)
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
fn step(asked: ModelSettings, context: &StepContext<'_>) -> ModelInput {
    let system = if context.instructions.is_empty() { asked.system } else { context.instructions.clone().into_owned() };
    let system = (!system.is_empty()).then_some(Message::System { content: system });
    let names = ToolNames::of(context);
    let tool = |tool: &ToolOffer| ToolSpec {
        name: names.sent(&tool.name),
        description: tool.description.clone(),
        parameters: tool.parameters.clone(),
    };
    let request = ChatRequest {
        model: asked.model,
        messages: system.into_iter().chain(context.messages.iter().map(|said| message(said, &names))).collect(),
        tools: context.tools.iter().map(tool).collect(),
        temperature: asked.temperature,
        max_tokens: asked.max_tokens,
        ..ChatRequest::default()
    };
    ModelInput::new(asked.provider, request)
}

/// A message of the run as the model's.
fn message(said: &agents::Message, names: &ToolNames) -> Message {
    let content = said.text().to_owned();
    let call = |call: &agents::ToolCall| ToolCall {
        id: call.id.clone(),
        name: names.sent(&call.name),
        arguments: call.args.clone(),
    };
    match said.role {
        MessageRole::System => Message::System { content },
        MessageRole::User => Message::User { content },
        MessageRole::Assistant => {
            Message::Assistant(AssistantMessage { content, tool_calls: said.tool_calls.iter().map(call).collect() })
        }
        MessageRole::Tool => Message::Tool {
            call_id: said.tool_call_id.clone().unwrap_or_default(),
            name: names.sent(said.name.as_deref().unwrap_or_default()),
            content,
            is_error: said.failure().is_some(),
        },
    }
}

/// What the model said in a step, as the loop of agents reads it.
#[derive(Serialize)]
struct StepAnswer {
    content: String,
    tokens: u64,
    model: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<agents::ToolCall>,
}

/// The same as data, as it comes from whoever plays an agent. Arguments that are no object are shown to the loop as they
/// are: it refuses them by name. An answer that is not whole, and a refusal, are no answer.
pub(super) fn said(
    spec: &SupervisorSpec,
    output: &ModelOutput,
    call: &Call,
    asker: &dyn Asker,
) -> Result<Value, AnswerUnusable> {
    let response = &output.response;
    match response.stop {
        ModelStop::Refusal => return Err(AnswerUnusable::Refused { said: response.said.content.trim().to_owned() }),
        ModelStop::Length if response.said.tool_calls.is_empty() => return Err(AnswerUnusable::Cut),
        ModelStop::Length | ModelStop::End | ModelStop::ToolCalls | ModelStop::Other(_) => {}
    }
    let offered = offers(spec, call, asker);
    if !offered.is_empty() {
        return Ok(spoken(output, &ToolNames::of_offers(&offered)));
    }
    let names = StepContext::deserialize(&call.context).map(|context| ToolNames::of(&context)).unwrap_or_default();
    let call = |call: &ToolCall| {
        let args = if call.arguments.is_null() { json!({}) } else { call.arguments.clone() };
        agents::ToolCall { id: call.id.clone(), name: names.meant(&call.name), args }
    };
    Ok(json!(StepAnswer {
        content: response.said.content.clone(),
        tokens: output.tokens(),
        model: response.model.clone(),
        tool_calls: response.said.tool_calls.iter().map(call).collect(),
    }))
}

/// Why an agent ended without its answer.
fn stopped(stop: &AgentStopReason) -> Option<String> {
    match stop {
        AgentStopReason::Completed => None,
        AgentStopReason::Failed { message } => Some(message.clone()),
        AgentStopReason::Budget { .. } => Some(spent_words(stop)),
        AgentStopReason::InvalidOutput { problems } => {
            Some(format!("the agent stopped: its answer did not conform: {}", problems.join("; ")))
        }
        AgentStopReason::Canceled { reason } => Some(format!("the agent was canceled: {reason}")),
        stop => Some(format!("the agent stopped: {}", json!(stop).as_str().unwrap_or_default())),
    }
}

/// What an agent has used up: what was lent of the run's, or a limit of its own.
pub(super) fn spent_words(stop: &AgentStopReason) -> String {
    let AgentStopReason::Budget { resource, lent } = stop else { return SPENT.to_owned() };
    let resource = json!(resource);
    let resource = resource.as_str().unwrap_or_default().replace('_', " ");
    match lent {
        true if resource == "wall" => format!("{SPENT}: its time is over"),
        true => format!("{SPENT}: what is left of its {resource} does not pay another call"),
        false => format!("the agent stopped: its own budget of {resource} is spent"),
    }
}

/// What an agent below gave, as the part that asked reads it. A worker's answer says what it cost, also when it stopped:
/// that counts for its attempt. What other answers cost is charged to the run by whoever hears of them.
pub(super) fn given(form: AnswerForm, output: AgentOutput) -> Answer {
    let why = stopped(&output.stop);
    let value = output.value.filter(|value| !value.is_null());
    let Amount { tokens, cost_micros, .. } = output.spent;
    if form == AnswerForm::Reply {
        // Money that is not known is not said, and is not 0.
        let cost = (output.unknown.unpriced_calls == 0).then_some(cost_micros as f64 / 1e6);
        let model = output.by_model.into_keys().next();
        if let Some(mut reply) = reply_in(&output.text).filter(|_| why.is_none() && value.is_none()) {
            // What it cost is known better than the model can say.
            reply.shift_remove("cost");
            reply.extend([
                ("tokens".into(), json!(tokens)),
                ("cost_usd".into(), json!(cost)),
                ("model".into(), json!(model)),
            ]);
            return Ok(reply.into());
        }
        let result = value.unwrap_or_else(|| output.text.into());
        return Ok(match why {
            None => json!({ "result": result, "success": true, "tokens": tokens, "cost_usd": cost, "model": model }),
            Some(why) => json!({ "success": false, "reason": why, "tokens": tokens, "cost_usd": cost }),
        });
    }
    match why {
        Some(why) => Err(CallFailure::error(why)),
        None if form == AnswerForm::Message => Ok(match handed_over(&output.text) {
            Some((to, content)) => json!({ "content": content, "handoff": to, "tokens": tokens }),
            None => json!({ "content": output.text, "tokens": tokens }),
        }),
        None => Ok(value.unwrap_or_else(|| output.text.into())),
    }
}
