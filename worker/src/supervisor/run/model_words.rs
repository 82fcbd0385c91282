//! What models are offered and told beside the prompts that everybody is given, and how their texts are read: replies of
//! workers, and the turns of a conversation.
//!
//! Invariant: whoever is played by a model can say what a script can say. A text is a reply, or hands over, only as a
//! whole: any other text is the result. Nothing is sent from here.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::tool_names::ToolNames;
use crate::capability::model::{ModelOutput, ToolCall};
use crate::supervisor::agents::{Message, StepContext, ToolOffer};
use crate::supervisor::core::asker::{AnswerForm, Asker, HandOffOffer};
use crate::supervisor::core::call_context::{AskedWork, LastSaid};
use crate::supervisor::graph::Reply;
use crate::supervisor::outbox::Call;
use crate::supervisor::prompts::{ReplyForm, more_for_models};
use crate::supervisor::reading::read;
use crate::supervisor::spec::{SupervisorSpec, Via, ViaModel};

/// The turn of somebody in a conversation who is offered tools that others carry out: hand-offs, and the functions of its
/// entry. Whoever has tools or limits of its own uses and keeps them in a run of its own, and hands over by a word.
pub(super) fn turn_of(
    spec: &SupervisorSpec,
    call: &Call,
    via: &ViaModel,
    asker: &dyn Asker,
    (instructions, task): (&str, String),
) -> Option<StepContext<'static>> {
    let tools = offers(spec, call, asker);
    if tools.is_empty() || !via.tools.is_empty() || !via.limits.is_empty() {
        return None;
    }
    Some(StepContext {
        session: Cow::default(),
        depth: 0,
        task: Cow::default(),
        model: None,
        instructions: instructions.to_owned().into(),
        messages: vec![Message::user(task)].into(),
        tools,
        parallel_tool_calls: true,
        last_word: false,
    })
}

/// What a participant that a model plays may call in its turn.
pub(super) fn offers(spec: &SupervisorSpec, call: &Call, asker: &dyn Asker) -> Vec<ToolOffer> {
    if asker.runs_tools() || asker.reads(call.purpose) != AnswerForm::Message {
        return Vec::new();
    }
    // Whoever is to run what the last message calls, calls nothing meanwhile.
    let own = spec
        .player(call)
        .filter(|_| !LastSaid::before(call).calls())
        .map(|agent| agent.tools.as_slice())
        .unwrap_or_default();
    let own = own.iter().map(|tool| ToolOffer {
        name: tool.name.clone(),
        description: tool.description.clone(),
        parameters: tool.parameters.clone().unwrap_or_else(|| json!({ "type": "object" })),
    });
    asker.hand_offs(call).into_iter().map(|offer| offer.tool).chain(own).collect()
}

/// What is behind the system prompt of whoever answers in a run of its own.
pub(super) fn behind(spec: &SupervisorSpec, call: &Call, asker: &dyn Asker) -> String {
    let names = |offers: Vec<HandOffOffer>| offers.into_iter().map(|offer| offer.to).collect::<Vec<_>>().join(", ");
    match asker.reads(call.purpose) {
        AnswerForm::Reply if !AskedWork::of(call).is_question() => reply_form(spec, call).text(),
        AnswerForm::Message => match names(asker.hand_offs(call)) {
            none if none.is_empty() => none,
            names => format!(
                "To hand the conversation over, answer with JSON only: {{\"handoff\": one of {names}, \"content\": text}}"
            ),
        },
        _ if asker.shape(call).is_some() => more_for_models(call.purpose, &call.context).to_owned(),
        _ => String::new(),
    }
}

fn reply_form(spec: &SupervisorSpec, call: &Call) -> ReplyForm {
    let own = spec.player(call);
    let others = spec.agents.iter().filter(|agent| own.is_none_or(|own| own.name != agent.name));
    ReplyForm {
        confidence: spec.hitl.enabled || spec.review.reflection.is_some(),
        people: spec.hitl.enabled,
        colleagues: others.map(|agent| agent.capability.clone().unwrap_or_else(|| agent.name.clone())).collect(),
        overflow: matches!(spec.via(call), Via::Model(model) if !model.tools.is_empty()),
        recruits: spec.team.recruit,
    }
}

/// What was said in the turn of a conversation. Who only calls, says nothing beside.
pub(super) fn spoken(output: &ModelOutput, names: &ToolNames) -> Value {
    let said = &output.response.said;
    let mut message = json!({ "content": said.content, "tokens": output.tokens(), "model": output.response.model });
    if !said.tool_calls.is_empty() {
        let call =
            |call: &ToolCall| json!({ "id": call.id, "name": names.meant(&call.name), "arguments": call.arguments });
        message["tool_calls"] = said.tool_calls.iter().map(call).collect();
    }
    message
}

/// The object in a text that is one, with or without a fence around it.
fn object_in(text: &str) -> Option<Map<String, Value>> {
    read("object", &text.into()).ok()
}

/// A text that is a reply as a whole (FSP-04); any other text is the result, also one that is nearly a reply.
pub(super) fn reply_in(text: &str) -> Option<Map<String, Value>> {
    object_in(text).filter(|map| Reply::is_reply(map) && Reply::of(Value::Object(map.clone())).is_ok())
}

/// A text that hands over, and says no more than that.
pub(super) fn handed_over(text: &str) -> Option<(String, String)> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct HandedOver {
        handoff: String,
        #[serde(default)]
        content: String,
    }
    let said: HandedOver = serde_json::from_value(Value::Object(object_in(text)?)).ok()?;
    Some((said.handoff, said.content))
}
