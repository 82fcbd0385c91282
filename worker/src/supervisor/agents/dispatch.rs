//! Tool calls: which are carried out when, and what becomes of their answers.
//!
//! Invariant: calls start in call order, no more at once than the rules allow; their answers are used in call order when
//! the last is there, whichever came first. A call that is refused tells the model why and changes nothing else.
//!
//! Long: a call is admitted, made and answered in one place.

use std::fmt;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::agent_loop::AgentLoop;
use super::boundary::{HumanAnswer, HumanKind, HumanNeeded};
use super::counters::CallRefusal;
use super::message::{FunctionResult, Message, ToolCall, json_text};
use super::policies;
use super::refusal::{ArgumentRefusal, SessionFailure};
use super::rules::{Builtin, ErrorStyle, ToolDef};
use super::session::{Batch, CallStatus, Doing, Home, Running, ToolOutcome, TurnEnd};
use super::todos;
use super::toolbox::ToolTarget;
use crate::supervisor::core::key::SessionAsk;
use crate::supervisor::journal::NoteKind;
use crate::supervisor::outbox::{Answer, Call, CallFailureKind, Outbox, Purpose};
use crate::supervisor::spec::{Limits, Span};

const INVALID_JSON: &str = "Invalid JSON in tool arguments";

impl AgentLoop {
    /// Starts queued calls as long as there is room, and uses the answers when all are there.
    pub(super) fn run_calls(&mut self, seq: u32, out: &mut Outbox) {
        let parallel = if self.rules.parallel_tool_calls { self.rules.delegation.parallel.max(1) } else { 1 };
        let Some(batch) = self.batch(seq) else { return };
        if batch.starting {
            return;
        }
        batch.starting = true;
        loop {
            let Some(batch) = self.batch(seq) else { return };
            if batch.running() >= parallel as usize {
                break;
            }
            let Some(index) = batch.next_queued() else { break };
            let call = batch.calls[index].call.clone();
            let id = self.sessions.get(&seq).map(|session| session.id.clone());
            out.note(NoteKind::ToolCalled, json!({"session": id, "call": call.id, "tool": call.name}));
            if let Some(answer) = self.admit(seq, index, &call, out) {
                self.complete(seq, index, answer, out);
            }
        }
        let Some(batch) = self.batch(seq) else { return };
        batch.starting = false;
        if batch.is_done() {
            self.settle(seq, out);
        }
    }

    fn batch(&mut self, seq: u32) -> Option<&mut Batch> {
        self.sessions.get_mut(&seq)?.batch()
    }

    pub(super) fn set_running(&mut self, seq: u32, index: usize, running: Running) {
        if let Some(call) = self.batch(seq).and_then(|batch| batch.calls.get_mut(index)) {
            call.progress = CallStatus::Running(running);
        }
    }

    fn running(&mut self, seq: u32, index: usize) -> Option<Running> {
        match &self.batch(seq)?.calls.get(index)?.progress {
            CallStatus::Running(running) => Some(running.clone()),
            CallStatus::Queued | CallStatus::Done(_) => None,
        }
    }

    /// A call has its answer.
    pub(super) fn complete(&mut self, seq: u32, index: usize, answer: ToolOutcome, out: &mut Outbox) {
        let id = self.sessions.get(&seq).map(|session| session.id.clone());
        let Some(batch) = self.batch(seq) else { return };
        let starting = batch.starting;
        let Some(call) = batch.calls.get_mut(index) else { return };
        if matches!(call.progress, CallStatus::Done(_)) {
            return;
        }
        out.note(
            NoteKind::ToolAnswered,
            json!({"session": id, "call": call.call.id, "tool": call.call.name, "ok": answer.ok}),
        );
        call.progress = CallStatus::Done(answer);
        if !starting {
            self.run_calls(seq, out);
        }
    }

    /// Looks whether a call may be made, and makes it. An answer is what is there at once.
    fn admit(&mut self, seq: u32, index: usize, call: &ToolCall, out: &mut Outbox) -> Option<ToolOutcome> {
        if let Some(answer) = self.unpaid(out) {
            return Some(answer);
        }
        let session = self.sessions.get(&seq)?;
        let kind = self.kind_of(session, &call.name);
        let limits = self.def(&session.agent).map_or_else(Limits::default, |def| def.limits);
        let mut counters = session.counters.clone();
        let agent = session.agent.clone();
        let made = self.called.get(&agent).copied().unwrap_or_default();
        let admitted = counters.admit(&agent, made, call, &limits, &self.rules);
        self.sessions.get_mut(&seq)?.counters = counters;
        if let Err(refusal) = admitted {
            return Some(self.refused(refusal));
        }
        self.called.insert(agent, made.saturating_add(1));
        if Self::is_charged(&kind)
            && let Some(answer) = self.charge()
        {
            return Some(answer);
        }
        if call.arguments().is_none() {
            return Some(self.failure(INVALID_JSON));
        }
        if let Some((policy, message)) = policies::approval(&self.rules.policies, &call.name) {
            let (policy, message) = (policy.name.clone(), message.to_owned());
            if let Some(refusal) = self.refused_delegation(seq, &kind, call.arguments()?) {
                return Some(refusal);
            }
            self.ask_about_call(seq, index, call, policy, message);
            return None;
        }
        self.carry_out(seq, index, call, kind, out)
    }

    fn carry_out(
        &mut self,
        seq: u32,
        index: usize,
        call: &ToolCall,
        kind: ToolTarget,
        out: &mut Outbox,
    ) -> Option<ToolOutcome> {
        let args = call.arguments().cloned().unwrap_or_default();
        match kind {
            ToolTarget::Function(tool) => self.call_function(seq, index, call, &tool, out),
            ToolTarget::Handoff(to) => self.hand_over(seq, index, &to, out),
            ToolTarget::Delegate(suffix) => self.delegate(seq, index, &suffix, &args, out),
            ToolTarget::Spawn => self.spawn(seq, index, &args, out),
            ToolTarget::Coworker => self.ask_coworker(seq, index, &args, out),
            ToolTarget::Process => Some(self.process_tool(&call.name, &args, out)),
            ToolTarget::Forward => Some(self.forward(seq, &args)),
            ToolTarget::Builtin(builtin) => self.builtin(seq, index, builtin, &args, out),
            ToolTarget::Unknown => Some(match self.rules.errors {
                ErrorStyle::Object => self.failure(format!("Unknown delegation tool: {}", call.name)),
                ErrorStyle::Text => ToolOutcome::failed(format!("Error: Tool {} not found.", call.name)),
            }),
        }
    }

    /// Charges one tool call, or says that there is nothing left.
    fn charge(&mut self) -> Option<ToolOutcome> {
        if let Some(max) = self.budget_spent() {
            let text = format!("Tool call budget ({max}) is used up. Answer with what you have.");
            let answer = self.refused(CallRefusal { kind: "budget", text, ends: false });
            return Some(ToolOutcome { end: Some(TurnEnd::Budget), ..answer });
        }
        self.charged_task = self.charged_task.saturating_add(1);
        self.charged_thread = self.charged_thread.saturating_add(1);
        None
    }

    /// The budget that is used up, if one is.
    pub(super) fn budget_spent(&self) -> Option<u32> {
        let spent = |max: Option<u32>, used: u32| max.filter(|max| used >= *max);
        spent(self.rules.budget.per_task, self.charged_task)
            .or(spent(self.rules.budget.per_thread, self.charged_thread))
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
        if let Some(Running::Sleep { seconds, .. }) = self.running(seq, index) {
            let answer = self.success(&json!(format!("Slept for {seconds} seconds")));
            self.complete(seq, index, answer, out);
        }
    }

    fn ask_about_call(&mut self, seq: u32, index: usize, call: &ToolCall, policy: String, message: String) {
        let Some(session) = self.sessions.get(&seq) else { return };
        let key = session.key(SessionAsk::Approve { step: session.steps_total, call: index });
        let needed = HumanNeeded {
            key: key.to_string(),
            kind: HumanKind::ToolApproval { policy },
            agent: session.agent.clone(),
            message,
            about: call.as_code(),
        };
        self.humans.insert(key.clone(), needed);
        self.set_running(seq, index, Running::Human { key });
    }

    pub(super) fn tool_decided(&mut self, seq: u32, index: usize, answer: &HumanAnswer, out: &mut Outbox) {
        let Some(call) = self.batch(seq).and_then(|batch| batch.calls.get(index)).map(|call| call.call.clone()) else {
            return;
        };
        let done = if answer.approved {
            let Some(session) = self.sessions.get(&seq) else { return };
            let kind = self.kind_of(session, &call.name);
            self.carry_out(seq, index, &call, kind, out)
        } else {
            let why = if answer.feedback.is_empty() { String::new() } else { format!(": {}", answer.feedback) };
            let text = format!("The call of '{}' was denied{why}. The task is cancelled.", call.name);
            Some(ToolOutcome { refused: true, end: Some(TurnEnd::Denied(text.clone())), ..ToolOutcome::failed(text) })
        };
        if let Some(answer) = done {
            self.complete(seq, index, answer, out);
        }
    }

    /// All answers of a response are there: they go into the messages in call order, and the session goes on.
    fn settle(&mut self, seq: u32, out: &mut Outbox) {
        let Some(session) = self.sessions.get_mut(&seq) else { return };
        let Doing::Acting(batch) = std::mem::replace(&mut session.doing, Doing::Waiting) else { return };
        let (mut outputs, mut ends, mut handoff, mut hidden) = (Vec::new(), Vec::new(), None, Vec::new());
        let (mut tools, mut round, mut missed) = (Vec::new(), false, Vec::new());
        for CallDone { call, answer } in batch.calls.into_iter().filter_map(CallDone::of) {
            if !answer.refused {
                session.counters.ended(&call.name, answer.ok);
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
            TurnEnd::Forward(_) | TurnEnd::ForwardFailure(_) => 1,
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
            Some(TurnEnd::ForwardFailure(text)) => {
                let why = SessionFailure::Forwarded { by: session.agent.clone(), text };
                self.ended(seq, Err(why), out);
            }
            Some(TurnEnd::Limit(why)) => {
                let mut text = session.text_so_far();
                let stopped = format!("{} was stopped: {why}", session.agent);
                // It was not through with its work: whoever gave it work is told so, and the report tells it.
                self.cut_turns.insert(seq, stopped.clone());
                if !matches!(session.home, Home::Root { .. }) {
                    if !session.has_something(&text) {
                        return self.ended(seq, Err(SessionFailure::Limit(stopped)), out);
                    }
                    text = format!("{text}\n[{stopped}]").trim_start().to_owned();
                    let told = Message::assistant(&session.agent, text.clone());
                    session.messages.push(told);
                }
                self.ended(seq, Ok(text), out);
            }
            Some(TurnEnd::Budget) | None => self.begin_step(seq, out),
        }
    }

    /// A refusal or failure in the words of the system.
    pub(super) fn failure(&self, text: impl fmt::Display) -> ToolOutcome {
        ToolOutcome::failed(match self.rules.errors {
            ErrorStyle::Object => json_text(&json!({"ok": false, "error": text.to_string()})),
            ErrorStyle::Text => format!("Error: {text}"),
        })
    }

    pub(super) fn success(&self, data: &Value) -> ToolOutcome {
        ToolOutcome::ok(match self.rules.errors {
            ErrorStyle::Object => json_text(&json!({"ok": true, "data": data})),
            ErrorStyle::Text => super::message::text_of(data),
        })
    }

    pub(super) fn refused(&self, refusal: CallRefusal) -> ToolOutcome {
        let content = match self.rules.errors {
            ErrorStyle::Object => json_text(&json!({"ok": false, "error": refusal.text, "error_type": refusal.kind})),
            ErrorStyle::Text => format!("Error: {}", refusal.text),
        };
        let end = refusal.ends.then(|| TurnEnd::Limit(refusal.text.clone()));
        ToolOutcome { refused: true, end, ..ToolOutcome::failed(content) }
    }
}

/// A call with its answer.
struct CallDone {
    call: ToolCall,
    answer: ToolOutcome,
}

impl CallDone {
    fn of(state: super::session::CallState) -> Option<CallDone> {
        match state.progress {
            CallStatus::Done(answer) => Some(CallDone { call: state.call, answer }),
            CallStatus::Queued | CallStatus::Running(_) => None,
        }
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
