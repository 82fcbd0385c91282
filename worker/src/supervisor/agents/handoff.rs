//! Hand-offs: another agent gets the conversation, for good or until it gives it back.
//!
//! Invariant: an agent that is handed over to sees its own tool call and no other of the same response; what comes back
//! is put behind all answers of the response, in call order. With several hand-offs that switch, the last one wins.

use serde_json::{Map, Value, json};

use super::agent_loop::AgentLoop;
use super::message::{Message, MessageRole, Tag, ToolCall, is_switch, switched, text_of};
use super::refusal::SessionFailure;
use super::rules::HandoffRules;
use super::session::{Home, Running, Session, SessionPurpose, ToolOutcome, TurnEnd};
use crate::supervisor::journal::NoteKind;
use crate::supervisor::outbox::Outbox;
use crate::supervisor::spec::OutputMode;
use crate::supervisor::spec::tool_names::handoff_name;

impl AgentLoop {
    /// `transfer_to_<name>`.
    pub(super) fn hand_over(&mut self, seq: u32, index: usize, to: &str, out: &mut Outbox) -> Option<ToolOutcome> {
        if self.switches() {
            return Some(ToolOutcome { handoff: Some(to.to_owned()), ..ToolOutcome::ok(switched(to)) });
        }
        if let Some(refusal) = self.too_deep(seq) {
            return Some(refusal);
        }
        let session = self.sessions.get_mut(&seq)?;
        let batch = session.batch()?;
        let (alone, call) = (batch.len() == 1, batch.get(index)?.0.clone());
        let mut messages = session.messages.clone();
        let mut asked = messages.pop()?;
        if self.rules.handoff.messages {
            if !alone {
                // By its place: ids of a model may stand there twice.
                asked.tool_calls = vec![call.clone()];
            }
            messages.push(asked);
            messages.push(Message::tool(&call, transferred(to)));
        }
        let (variables, from, id) = (session.variables.clone(), session.agent.clone(), session.id.clone());
        out.note(NoteKind::HandedOff, json!({"session": id, "from": from, "to": to}));
        self.select(seq, to);
        let place = self.below(seq, index, Home::Call { session: seq, index });
        let child = self.open(to, place, messages, variables, out);
        self.set_running(seq, index, Running::Child { session: child, kind: SessionPurpose::Handoff });
        self.begin_turn(child, out);
        None
    }

    /// What the supervisor keeps of an agent that worked.
    pub(super) fn handed_back(
        &self,
        supervisor: &Session,
        agent: &Session,
        result: Result<String, SessionFailure>,
    ) -> ToolOutcome {
        let rules = &self.rules.handoff;
        let mut outputs = match &result {
            Ok(_) => output_messages(rules.history, agent.added()),
            Err(why) => {
                let said = Message::assistant(&agent.agent, format!("Error: {why}"));
                let tag = if why.is_refusal() { Tag::Refused } else { Tag::Failed };
                vec![Message { tag: Some(tag), ..said }]
            }
        };
        if rules.messages && rules.back_messages {
            outputs.extend(back_messages(rules, supervisor, agent));
        }
        ToolOutcome {
            content: transferred(&agent.agent),
            ok: result.is_ok(),
            worked: result
                .is_ok_and(|text| agent.has_something(&text) || agent.added().iter().any(Message::says_something)),
            variables: agent.variables.clone(),
            outputs,
            hidden: !rules.messages,
            ..ToolOutcome::default()
        }
    }

    /// `forward_message`: the last words of an agent become the answer, as they are (LGS-07). That it failed is passed on as
    /// what it is, and of one that has said nothing there is nothing to pass on.
    pub(super) fn forward(&self, seq: u32, args: &Map<String, Value>) -> ToolOutcome {
        let from = args.get("from_agent").map(text_of).unwrap_or_default();
        let messages = self.sessions.get(&seq).map(|session| session.messages.as_slice()).unwrap_or_default();
        let by = |message: &&Message| {
            let name = message.name.as_deref().unwrap_or_default();
            message.role == MessageRole::Assistant
                && message.tag != Some(Tag::HandoffBack)
                && name.to_lowercase() == from.to_lowercase()
        };
        let own = || messages.iter().rev().filter(by);
        if let Some(message) =
            own().find(|message| !message.text().trim().is_empty() && message.tag != Some(Tag::Question))
        {
            let text = message.text().to_owned();
            let end = match message.tag {
                Some(Tag::Failed) => TurnEnd::ForwardFailure { text, refused: false },
                Some(Tag::Refused) => TurnEnd::ForwardFailure { text, refused: true },
                _ => TurnEnd::Forward(text),
            };
            return ToolOutcome { end: Some(end), ..ToolOutcome::ok(transferred("user")) };
        }
        if own().next().is_some() {
            return ToolOutcome::failed(format!("The source agent {from} has said nothing that could be forwarded."));
        }
        let mut names: Vec<&str> = Vec::new();
        for message in messages.iter().filter(|message| message.role == MessageRole::Assistant) {
            if let Some(name) = message.name.as_deref().filter(|name| !names.contains(name)) {
                names.push(name);
            }
        }
        ToolOutcome::failed(format!(
            "Could not find message from source agent {from}. Found names: {}",
            names.join(", ")
        ))
    }
}

/// How each answer to a hand-off begins that says that it was done.
const TRANSFERRED: &str = "Successfully transferred";

fn transferred(to: &str) -> String {
    format!("{TRANSFERRED} to {to}")
}

/// Whether this answers a hand-off, and so is no work.
pub(super) fn answers_handoff(answer: &Message) -> bool {
    answer.text().starts_with(TRANSFERRED) || is_switch(answer.text())
}

/// The messages of an agent that its supervisor keeps: the last, with the call it answers if it is a tool's; or all.
pub fn output_messages(mode: OutputMode, added: &[Message]) -> Vec<Message> {
    let from = match mode {
        OutputMode::FullHistory => 0,
        OutputMode::LastMessage => {
            let last = if added.last().is_some_and(|message| message.role == MessageRole::Tool) { 2 } else { 1 };
            added.len().saturating_sub(last)
        }
    };
    added.get(from..).unwrap_or_default().to_vec()
}

fn back_messages(rules: &HandoffRules, supervisor: &Session, agent: &Session) -> [Message; 2] {
    let to = &supervisor.agent;
    let prefix = rules.prefix.strip_suffix("to_").unwrap_or(&rules.prefix);
    let name = format!("{prefix}back_to_{}", handoff_name(to));
    // The same in every run that goes the same way, so that recorded answers of models fit it.
    let index = if let Home::Call { index, .. } = agent.home { index } else { 0 };
    let id = format!("call_back_{}_{index}", supervisor.messages.len());
    let call = ToolCall { id, name, args: json!({}) };
    let mut said = Message::assistant(&agent.agent, format!("Transferring back to {to}"));
    said.tool_calls = vec![call.clone()];
    said.tag = Some(Tag::HandoffBack);
    let answered = Message::tool(&call, format!("{TRANSFERRED} back to {to}"));
    [said, Message { tag: Some(Tag::HandoffBack), ..answered }]
}

/// Takes calls out of the message that made them, and the message if nothing is left of it.
pub(super) fn hide(messages: &mut Vec<Message>, calls: &[String]) {
    if calls.is_empty() {
        return;
    }
    if let Some(mut asked) = messages.pop() {
        asked.tool_calls.retain(|call| !calls.contains(&call.id));
        if !asked.tool_calls.is_empty() || !asked.text().is_empty() {
            messages.push(asked);
        }
    }
}
