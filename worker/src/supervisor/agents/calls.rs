//! What a session is to `agent::turn`: what its tools are, what they cost, who is asked about them, and how a refusal is told.
//!
//! Invariant: which call may go on, and in which order it is looked at, is decided in `agent::turn`. A call that is refused tells the
//! model why and changes nothing else.

use std::convert::Infallible;
use std::fmt;

use serde_json::{Value, json};

use super::agent_loop::AgentLoop;
use super::boundary::{HumanAnswer, HumanKind, HumanNeeded};
use super::message::ToolCall;
use super::rules::{AgentRules, ErrorStyle};
use super::session::{Batch, Doing, Running, ToolOutcome, TurnEnd};
use super::toolbox::ToolTarget;
use crate::agent::turn::{
    CallEvent, CallRefusal, CallState, FanOut, FittingArguments, ToolCalls, TurnHost, TurnPlan, WatchRules, carry_on,
};
use crate::supervisor::core::key::{AgentsKey, SessionAsk};
use crate::supervisor::journal::NoteKind;
use crate::supervisor::outbox::Outbox;
use crate::supervisor::reading::json_text;
use crate::supervisor::spec::Limits;
use crate::supervisor::standing as policies;

impl TurnHost for AgentLoop {
    type Seat = u32;
    type Out = Outbox;
    type Call = ToolCall;
    type Question = AgentsKey;
    type Work = Running;
    type Answer = ToolOutcome;
    type Tool = ToolTarget;
    type Plan = ToolTarget;
    type Short = Infallible;

    fn calls(&mut self, seq: u32) -> Option<&mut Batch> {
        self.sessions.get_mut(&seq)?.batch()
    }

    fn fan_out(&self, _: u32) -> FanOut {
        self.rules.fan_out()
    }

    fn tool(&self, seq: u32, name: &str) -> Option<ToolTarget> {
        self.target_of(self.sessions.get(&seq)?, name)
    }

    /// The tools of the system read their arguments themselves.
    fn schema(&self, tool: &ToolTarget) -> Option<Value> {
        match tool {
            ToolTarget::Function(tool) => Some(tool.parameters.clone()).filter(|parameters| !parameters.is_null()),
            ToolTarget::Handoff(_)
            | ToolTarget::Delegate(_)
            | ToolTarget::Spawn
            | ToolTarget::Coworker
            | ToolTarget::Process
            | ToolTarget::Forward
            | ToolTarget::Builtin(_) => None,
        }
    }

    fn looks_at(&mut self, seq: u32, call: &ToolCall, out: &mut Outbox) {
        let id = self.sessions.get(&seq).map(|session| session.id.clone());
        out.note(NoteKind::ToolCalled, json!({"session": id, "call": call.id, "tool": call.name}));
    }

    /// Of the run's budget, also when a person has approved; and once of the tool budget.
    fn pay(&mut self, seq: u32, call: &ToolCall, approved: bool, out: &mut Outbox) -> Option<ToolOutcome> {
        let charged = |it: &Self| it.tool(seq, &call.name).is_none_or(|tool| tool.is_charged());
        match self.unpaid(out) {
            Some(answer) => Some(answer),
            None if !approved && charged(self) => self.charge(),
            None => None,
        }
    }

    fn plan(
        &mut self,
        seq: u32,
        _: &ToolCall,
        tool: ToolTarget,
        arguments: FittingArguments<'_>,
        _: &mut Outbox,
    ) -> TurnPlan<ToolTarget, ToolOutcome> {
        match self.refused_delegation(seq, &tool, arguments.members()) {
            Some(refusal) => TurnPlan::Answer(refusal),
            None => TurnPlan::Make(tool),
        }
    }

    fn question(&mut self, seq: u32, index: usize, call: &ToolCall, _: &ToolTarget) -> Option<AgentsKey> {
        let (policy, message) = policies::approval(&self.rules.policies, &call.name)?;
        let session = self.sessions.get(&seq)?;
        let key = session.key(SessionAsk::Approve { step: session.steps_total, call: index });
        let needed = HumanNeeded {
            key: key.clone(),
            kind: HumanKind::ToolApproval { policy: policy.name.clone() },
            agent: session.agent.clone(),
            message: message.to_owned(),
            about: call.as_code(),
        };
        self.humans.insert(key.clone(), needed);
        Some(key)
    }

    fn begin(
        &mut self,
        seq: u32,
        index: usize,
        call: &ToolCall,
        tool: ToolTarget,
        out: &mut Outbox,
    ) -> Result<Option<ToolOutcome>, Infallible> {
        Ok(self.carry_out(seq, index, call, tool, out))
    }

    fn refused(&mut self, _: u32, call: &ToolCall, why: CallRefusal) -> ToolOutcome {
        match &why {
            CallRefusal::Unknown { .. } => match self.rules.errors {
                ErrorStyle::Object => self.failure(format!("Unknown delegation tool: {}", call.name)),
                ErrorStyle::Text => ToolOutcome::failed(format!("Error: Tool {} not found.", call.name)),
            },
            CallRefusal::NoObject => self.failure("Invalid JSON in tool arguments"),
            CallRefusal::Misfit { problems } => {
                self.failure(format!("Invalid tool arguments: {}", problems.join("; ")))
            }
            CallRefusal::Planned(why) => self.failure(why),
            CallRefusal::PerTurn(_) | CallRefusal::Total(_) => {
                let text = format!("{why}.");
                ToolOutcome { end: Some(TurnEnd::Limit(text.clone())), ..self.not_made("limit", &text) }
            }
            CallRefusal::Repeated { .. } => self.not_made("repetition_detected", &format!("{why}.")),
            CallRefusal::Failing { .. } => self.not_made("circuit_breaker", &format!("{why}.")),
            CallRefusal::Round { .. } => self.not_made("loop_detected", &format!("{why}.")),
            CallRefusal::TooMany(_) => self.not_made("too_many_calls", &format!("{why}.")),
        }
    }

    fn answer(&mut self, seq: u32, index: usize, answer: ToolOutcome, out: &mut Outbox) {
        self.complete(seq, index, answer, out);
    }
}

impl AgentLoop {
    /// A response asks for these calls.
    pub(super) fn begin_calls(&mut self, seq: u32, calls: Vec<ToolCall>, out: &mut Outbox) {
        let agent = self.sessions.get(&seq).and_then(|session| self.def(&session.agent));
        let limits = agent.map_or_else(Limits::default, |def| def.limits);
        let Some(session) = self.sessions.get_mut(&seq) else { return };
        let agent = session.agent.clone();
        let made = self.called.entry(agent.clone()).or_default();
        let in_turn = session.made.entry(agent).or_default();
        let before = session.watch.in_turn();
        let rules = WatchRules {
            of_turn: i64::from(*in_turn) - i64::from(before),
            of_all: i64::from(*made) - i64::from(session.watch.total()),
            ..self.rules.watch(limits)
        };
        let (batch, _) = ToolCalls::judged(calls, &mut session.watch, &rules, |_| false);
        let admitted = session.watch.in_turn().saturating_sub(before);
        *made = made.saturating_add(admitted);
        *in_turn = in_turn.saturating_add(admitted);
        session.doing = Doing::Acting(batch);
        self.run_calls(seq, out);
    }

    /// Starts calls as long as there is room, and uses the answers when all are there.
    fn run_calls(&mut self, seq: u32, out: &mut Outbox) {
        let Ok(done) = carry_on(self, seq, out);
        if done {
            self.settle(seq, out);
        }
    }

    pub(super) fn set_running(&mut self, seq: u32, index: usize, running: Running) {
        if let Some(batch) = self.calls(seq) {
            batch.hear(index, CallEvent::Began(running));
        }
    }

    /// A call has its answer.
    pub(super) fn complete(&mut self, seq: u32, index: usize, answer: ToolOutcome, out: &mut Outbox) {
        let id = self.sessions.get(&seq).map(|session| session.id.clone());
        let Some(batch) = self.calls(seq) else { return };
        let Some((call, _)) = batch.get(index) else { return };
        let told = json!({"session": id, "call": call.id, "tool": call.name, "ok": answer.ok});
        if batch.hear(index, CallEvent::Answered(answer)) {
            out.note(NoteKind::ToolAnswered, told);
            self.run_calls(seq, out);
        }
    }

    /// A person has decided about a call.
    pub(super) fn tool_decided(&mut self, seq: u32, index: usize, answer: &HumanAnswer, out: &mut Outbox) {
        let Some(batch) = self.calls(seq) else { return };
        if answer.approved {
            if batch.hear(index, CallEvent::Approved) {
                self.run_calls(seq, out);
            }
            return;
        }
        let Some((call, _)) = batch.get(index) else { return };
        let why = if answer.feedback.is_empty() { String::new() } else { format!(": {}", answer.feedback) };
        let text = format!("The call of '{}' was denied{why}. The task is cancelled.", call.name);
        let end = Some(TurnEnd::Denied(text.clone()));
        self.begin_no_more(seq, index, out);
        self.complete(seq, index, ToolOutcome { refused: true, end, ..ToolOutcome::failed(text) }, out);
    }

    /// The turn ends with a person's no to a call: what has not begun is not begun, and nobody is asked about it.
    fn begin_no_more(&mut self, seq: u32, denied: usize, out: &mut Outbox) {
        let Some(batch) = self.calls(seq) else { return };
        let waits = |(at, (_, state)): (usize, &(ToolCall, _))| match state {
            _ if at == denied => None,
            CallState::Queued | CallState::Approved => Some((at, None)),
            CallState::Asking(question) => Some((at, Some(AgentsKey::clone(question)))),
            CallState::Refused(_) | CallState::Running(_) | CallState::Done(_) => None,
        };
        for (at, question) in batch.iter().enumerate().filter_map(waits).collect::<Vec<_>>() {
            if let Some(question) = question {
                self.take_back(&question, out);
            }
            let told =
                self.not_made("denied", "It was not made: a person denied another call, and the task is cancelled.");
            if let Some(batch) = self.calls(seq) {
                batch.hear(at, CallEvent::Answered(told));
            }
        }
    }

    /// Charges one tool call, or says that there is nothing left.
    fn charge(&mut self) -> Option<ToolOutcome> {
        if let Some(max) = self.budget_spent() {
            let text = format!("Tool call budget ({max}) is used up. Answer with what you have.");
            return Some(ToolOutcome { end: Some(TurnEnd::Budget), ..self.not_made("budget", &text) });
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

    /// A failure in the words of the system.
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

    /// A call that was not made, for a reason of this kind: it is no failure of its tool.
    pub(super) fn not_made(&self, kind: &str, text: &str) -> ToolOutcome {
        let content = match self.rules.errors {
            ErrorStyle::Object => json_text(&json!({"ok": false, "error": text, "error_type": kind})),
            ErrorStyle::Text => format!("Error: {text}"),
        };
        ToolOutcome { refused: true, ..ToolOutcome::failed(content) }
    }
}

impl AgentRules {
    /// How many calls of a response are under way together.
    pub(super) fn fan_out(&self) -> FanOut {
        let most = if self.parallel_tool_calls { self.delegation.parallel.max(1) } else { 1 };
        FanOut { most: most as usize, in_order: true }
    }

    fn watch(&self, limits: Limits) -> WatchRules {
        let (repetitions, failures) = (self.repetitions, self.breaker_failures);
        WatchRules {
            rounds: 0,
            repetitions,
            failures,
            most: None,
            per_turn: limits.per_turn,
            total: limits.total,
            of_turn: 0,
            of_all: 0,
        }
    }
}
