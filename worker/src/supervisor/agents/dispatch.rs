//! What tool calls of sessions do: functions, tools of the system, and what becomes of all answers of a response.
//!
//! Invariant: what comes here has passed `agent::turn` (`calls`); answers are used in call order when the last is there,
//! whichever came first.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::agent_loop::AgentLoop;
use super::message::{FunctionResult, Message, ToolCall};
use super::refusal::{ArgumentRefusal, SessionFailure};
use super::rules::ToolDef;
use super::session::{Doing, Home, Running, ToolOutcome, TurnEnd};
use super::todos;
use super::toolbox::ToolTarget;
use crate::agent::turn::TurnHost;
use crate::supervisor::core::key::SessionAsk;
use crate::supervisor::journal::NoteKind;
use crate::supervisor::outbox::{Answer, Call, CallFailureKind, Outbox, Purpose};
use crate::supervisor::spec::Span;
use crate::supervisor::spec::tool_names::Builtin;

impl AgentLoop {
    /// Makes a call. An answer is what is there at once.
    pub(super) fn carry_out(
        &mut self,
        seq: u32,
        index: usize,
        call: &ToolCall,
        target: ToolTarget,
        out: &mut Outbox,
    ) -> Option<ToolOutcome> {
        let args = call.args.as_object().cloned().unwrap_or_default();
        match target {
            ToolTarget::Function(tool) => self.call_function(seq, index, call, &tool, out),
            ToolTarget::Handoff(to) => self.hand_over(seq, index, &to, out),
            ToolTarget::Delegate(suffix) => self.delegate(seq, index, &suffix, &args, out),
            ToolTarget::Spawn => self.spawn(seq, index, &args, out),
            ToolTarget::Coworker => self.ask_coworker(seq, index, &args, out),
            ToolTarget::Process => Some(self.process_tool(&call.name, &args, out)),
            ToolTarget::Forward => Some(self.forward(seq, &args)),
            ToolTarget::Builtin(builtin) => self.builtin(seq, index, builtin, &args, out),
        }
    }

    fn call_function(
        &mut self,
        seq: u32,
        index: usize,
        call: &ToolCall,
        tool: &ToolDef,
        out: &mut Outbox,
    ) -> Option<ToolOutcome> {
        let session = self.sessions.get(&seq)?;
        let key = session.key(SessionAsk::Tool { step: session.steps_total, call: index });
        let owner = tool.owner.clone().unwrap_or_else(|| session.agent.clone());
        let context = json!({
            "session": session.id,
            "tool": call.name,
            "args": call.args,
            "context_variables": session.variables,
        });
        let prompt = call.as_code();
        let asked = Call::new(key.clone(), Purpose::ExecuteWorker, context).agent(owner).round(session.steps_total);
        out.call(asked.prompt(prompt).tool());
        self.set_running(seq, index, Running::Function { key });
        None
    }

    pub(super) fn function_answered(&mut self, seq: u32, index: usize, answer: Answer, out: &mut Outbox) {
        let answer = match answer {
            Err(why) => ToolOutcome { refused: why.kind == CallFailureKind::Denied, ..self.failure(why.message) },
            Ok(value) => {
                let result = FunctionResult::decode(value, |name| self.def(name).is_some());
                match result.agent {
                    Some(name) if self.def(&name).is_none() => self.failure(format!("Agent '{name}' not found")),
                    agent => ToolOutcome {
                        content: result.content,
                        ok: !result.failed,
                        worked: !result.failed,
                        variables: result.context_variables,
                        handoff: agent.filter(|_| self.switches()),
                        ..ToolOutcome::default()
                    },
                }
            }
        };
        if let Some(session) = self.sessions.get_mut(&seq) {
            match (answer.refused, answer.worked) {
                (true, _) => session.denials.push(answer.content.clone()),
                (false, true) => session.denials.clear(),
                // Nothing was done: the no stands.
                (false, false) => {}
            }
        }
        self.complete(seq, index, answer, out);
    }

    fn builtin(
        &mut self,
        seq: u32,
        index: usize,
        builtin: Builtin,
        args: &Map<String, Value>,
        out: &mut Outbox,
    ) -> Option<ToolOutcome> {
        match builtin {
            Builtin::ThinkTool => Some(self.success(&json!("Thought noted."))),
            Builtin::GetCurrentDatetime => Some(self.success(&json!(out.now().to_string()))),
            Builtin::CreateUpdateTodos => Some(match todos::decode(args) {
                Ok(list) => {
                    let answer = self.success(&json!(format!("Todos updated:\n{}", todos::section(&list))));
                    self.sessions.get_mut(&seq)?.todos = list;
                    answer
                }
                Err(why) => self.failure(why),
            }),
            Builtin::Sleep => {
                let (after, seconds) = match sleep_for(args, self.rules.sleep_max) {
                    Ok(sleep) => sleep,
                    Err(why) => return Some(self.failure(why)),
                };
                let session = self.sessions.get(&seq)?;
                let key = session.key(SessionAsk::Sleep { step: session.steps_total, call: index });
                out.timer(key.clone(), out.now().plus(after), format!("sleep {seconds} s"));
                self.set_running(seq, index, Running::Sleep { key, seconds });
                None
            }
        }
    }

    pub(super) fn woke(&mut self, seq: u32, index: usize, out: &mut Outbox) {
        let Some(batch) = self.calls(seq) else { return };
        if let Some(Running::Sleep { seconds, .. }) = batch.work(index) {
            let told = json!(format!("Slept for {seconds} seconds"));
            self.complete(seq, index, self.success(&told), out);
        }
    }

    /// All answers of a response are there: they go into the messages in call order, and the session goes on.
    pub(super) fn settle(&mut self, seq: u32, out: &mut Outbox) {
        let Some(session) = self.sessions.get_mut(&seq) else { return };
        let Doing::Acting(batch) = std::mem::replace(&mut session.doing, Doing::Waiting) else { return };
        let (mut outputs, mut ends, mut handoff, mut hidden) = (Vec::new(), Vec::new(), None, Vec::new());
        let (mut tools, mut round, mut missed) = (Vec::new(), false, Vec::new());
        for (call, answer) in batch.into_answers() {
            if !answer.refused {
                session.watch.ended(&call.name, answer.ok);
            }
            session.gave |= answer.worked;
            if matches!(answer.end, Some(TurnEnd::Limit(_))) {
                missed.push(call.name.clone());
            }
            round |= !answer.outputs.is_empty();
            if answer.hidden {
                hidden.push(call.id.clone());
            } else {
                tools.push(Message::tool(&call, answer.content));
            }
            session.variables.extend(answer.variables);
            outputs.extend(answer.outputs);
            ends.extend(answer.end);
            handoff = answer.handoff.map(|to| (to, call.name)).or(handoff);
        }
        super::handoff::hide(&mut session.messages, &hidden);
        session.messages.extend(tools);
        session.messages.extend(outputs);
        if let Some((to, tool)) = handoff.filter(|(to, _)| *to != session.agent) {
            out.note(NoteKind::HandedOff, json!({"session": session.id, "from": session.agent, "to": to}));
            session.handed_by = Some(std::mem::replace(&mut session.agent, to));
            session.tool = Some(tool);
        }
        self.steps = self.steps.saturating_add(u32::from(round));
        if let Some(TurnEnd::Limit(why)) = ends.iter_mut().find(|end| matches!(end, TurnEnd::Limit(_))) {
            why.push_str(&format!(" Not called any more: {}.", missed.join(", ")));
        }
        self.go_on(seq, ends, out);
    }

    fn go_on(&mut self, seq: u32, mut ends: Vec<TurnEnd>, out: &mut Outbox) {
        ends.sort_by_key(|end| match end {
            TurnEnd::Denied(_) => 0,
            TurnEnd::Forward(_) | TurnEnd::ForwardFailure { .. } => 1,
            TurnEnd::Limit(_) => 2,
            TurnEnd::Budget => 3,
        });
        let Some(session) = self.sessions.get_mut(&seq) else { return };
        match ends.into_iter().next() {
            Some(TurnEnd::Denied(text)) => self.ended(seq, Err(SessionFailure::Denied(text)), out),
            Some(TurnEnd::Forward(text)) => {
                let message = Message::assistant(&session.agent, text.clone());
                session.messages.push(message);
                self.ended(seq, Ok(text), out);
            }
            Some(TurnEnd::ForwardFailure { text, refused }) => {
                let why = SessionFailure::Forwarded { by: session.agent.clone(), text, refused };
                self.ended(seq, Err(why), out);
            }
            Some(TurnEnd::Limit(why)) => {
                let told = format!("{} was stopped: {why}", session.agent);
                self.cut_turns.insert(seq, told.clone());
                self.stopped(seq, told, out);
            }
            Some(TurnEnd::Budget) | None => self.begin_step(seq, out),
        }
    }

    /// A bound has ended the turn of a session that was not through with its work: whoever gave it work is told so, and the
    /// report tells it.
    pub(super) fn stopped(&mut self, seq: u32, told: String, out: &mut Outbox) {
        let Some(session) = self.sessions.get_mut(&seq) else { return };
        let mut text = session.text_so_far();
        if matches!(session.home, Home::Root { .. }) && !session.denials.is_empty() && !session.has_something(&text) {
            self.bounded.remove(&seq);
            self.cut_turns.remove(&seq);
            let why = self.at_limit(seq, told);
            return self.ended(seq, Err(why), out);
        }
        let Some(session) = self.sessions.get_mut(&seq) else { return };
        if !matches!(session.home, Home::Root { .. }) {
            if !session.has_something(&text) {
                // A failure is told by whoever hears it.
                if matches!(session.home, Home::Process { .. }) {
                    self.cut_turns.remove(&seq);
                }
                let why = self.at_limit(seq, told);
                return self.ended(seq, Err(why), out);
            }
            text = format!("{text}\n[{told}]").trim_start().to_owned();
            let said = Message::assistant(&session.agent, text.clone());
            session.messages.push(said);
        }
        self.ended(seq, Ok(text), out);
    }
}

/// How long to sleep, and the number as it was given.
fn sleep_for(args: &Map<String, Value>, max: Span) -> Result<(Duration, String), ArgumentRefusal> {
    let not_positive = || ArgumentRefusal::NotPositive;
    let number = args.get("seconds").and_then(Value::as_number).ok_or_else(not_positive)?;
    let seconds = number.as_f64().filter(|seconds| *seconds > 0.0).ok_or_else(not_positive)?;
    // Compared as micros; a number that is far too large saturates.
    let after = Duration::from_micros((seconds * 1e6).ceil() as u64);
    if after <= max.duration() {
        return Ok((after, number.to_string()));
    }
    let seconds = super::delegation::seconds(max);
    Err(match max.as_ms() % 3_600_000 {
        0 => ArgumentRefusal::ManyHours { hours: max.as_secs() / 3_600, seconds },
        _ => ArgumentRefusal::ManySeconds(seconds),
    })
}
