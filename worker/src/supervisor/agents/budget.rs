//! Agents whose run has spent its budget: who gets one last word, and what becomes of everybody else.
//!
//! Invariant: no agent is asked and no tool is called any more; what is under way is waited for. A conversation ends with
//! one last answer without tools where the spec wants it (CUG-35's way), with the text so far, or failed; the work of a
//! crew or of steps ends where it is, with what is done. Nobody waits for people whose answer would only cost more.

use serde_json::Value;

use super::agent_loop::{AgentLoop, Workload};
use super::handoff::answers_handoff;
use super::message::{Message, MessageRole};
use super::refusal::SessionFailure;
use super::session::{Doing, Session, ToolOutcome};
use crate::supervisor::core::account::{Exhausted, SPENT};
use crate::supervisor::core::key::{AgentsKey, CrewAsk, Key, SessionAsk};
use crate::supervisor::outbox::{Call, Outbox};

impl AgentLoop {
    /// Whether the budget has ended it, or left it one last word.
    pub fn is_cut(&self) -> bool {
        self.cut.is_some()
    }

    /// Whether it tells what there is, and is no failure for the budget's sake.
    pub fn shows_what_there_is(&self) -> bool {
        self.has_something() && self.cut != Some(Exhausted::Fail)
    }

    pub(super) fn is_cut_by(&mut self, out: &Outbox) {
        self.cut = out.budget().exhausted();
    }

    /// Whether this session may not ask its model: then it has ended, or has been given its last word.
    pub(super) fn is_out_of_budget(&mut self, seq: u32, out: &mut Outbox) -> bool {
        let Some(exhausted) = out.budget().exhausted() else { return false };
        self.is_cut_by(out);
        let conversation = matches!(self.work, Workload::Conversation { root } if root == seq);
        let Some(session) = self.sessions.get_mut(&seq) else { return true };
        if conversation && exhausted == Exhausted::LastWord && out.budget().has_last_word() {
            session.last_word = true;
            return false;
        }
        match exhausted {
            Exhausted::LastWord | Exhausted::Stop if conversation => {
                let text = session.text_so_far();
                self.root_ended(seq, Ok(text), out);
            }
            _ => self.ended(seq, Err(SessionFailure::Spent), out),
        }
        true
    }

    /// A step waited for more, and there is no more: the session ends as one does that may not ask its model, or has its last
    /// word. Every other call is refused as unpaid.
    pub(super) fn no_more_for(&mut self, call: Call, out: &mut Outbox) -> Option<Call> {
        let Key::Agents(key @ AgentsKey::Session { ask: SessionAsk::Step { .. }, .. }) = &call.key else {
            return Some(call);
        };
        let thinks = |session: &Session| matches!(&session.doing, Doing::Thinking { key: step } if step == key);
        let Some(seq) = self.sessions.iter().find(|(_, session)| thinks(session)).map(|(seq, _)| *seq) else {
            return Some(call);
        };
        if !self.is_out_of_budget(seq, out) {
            return self.step_of(seq, out).map(|(_, call)| call);
        }
        self.take_back(key, out);
        None
    }

    /// A tool that nobody pays for.
    pub(super) fn unpaid(&self, out: &Outbox) -> Option<ToolOutcome> {
        out.budget().exhausted()?;
        let text = format!("{}{}. Answer with what you have.", SPENT[..1].to_uppercase(), &SPENT[1..]);
        Some(self.not_made("budget", &text))
    }

    /// The budget is spent: nobody waits for people or sleeps before a call that is not made. What a person is asked about
    /// an output that is there costs nothing, but time.
    pub fn exhausted(&mut self, out: &mut Outbox) {
        if out.is_held() || self.outcome.is_some() {
            return;
        }
        let out_of_time = out.budget().is_out_of_time();
        for (key, asker) in self.waits(out) {
            // What ended before has taken some of it back.
            if !self.waits_for(&key, out) {
                continue;
            }
            match key {
                AgentsKey::Session {
                    ask: SessionAsk::Sleep { call, .. } | SessionAsk::Approve { call, .. }, ..
                } => {
                    self.take_back(&key, out);
                    if let Some(answer) = self.unpaid(out) {
                        self.complete(asker, call, answer, out);
                    }
                }
                AgentsKey::Session { ask: SessionAsk::Question { .. }, .. } => {
                    self.take_back(&key, out);
                    self.is_cut_by(out);
                    self.ended(asker, Err(SessionFailure::Spent), out);
                }
                AgentsKey::Crew { ask: CrewAsk::Feedback(_), .. } if out_of_time => {
                    self.take_back(&key, out);
                    self.leave_task(Some(asker as usize), out);
                }
                AgentsKey::Session { .. } | AgentsKey::Crew { .. } => {}
            }
        }
        self.keep_time(out);
    }

    /// A task of a crew is left undone, or none is begun any more: the crew ends when nothing is under way.
    pub(super) fn leave_task(&mut self, at: Option<usize>, out: &Outbox) {
        self.is_cut_by(out);
        let Workload::Crew(run) = &mut self.work else { return };
        if let Some(task) = at.and_then(|at| run.running.get_mut(&at)) {
            task.left = true;
        }
        if run.running.values().all(|task| task.left) && self.outcome.is_none() {
            self.outcome = Some(self.outcome_of(Err(SessionFailure::Spent)));
        }
    }

    /// What there is of the work of a crew that the budget has ended.
    pub(super) fn so_far(&self) -> Option<Value> {
        match &self.work {
            Workload::Crew(run) if self.is_cut() && !run.outputs.is_empty() => Some(Value::String(run.result())),
            _ => None,
        }
    }

    /// What there is of work that failed, for whoever gave it: what was said and what tools gave, or the outputs of a list. The
    /// report has no result all the same.
    pub(super) fn left_at_failure(&self) -> Option<String> {
        let lines: Vec<&str> = match &self.work {
            Workload::Conversation { root } => {
                let added = self.sessions.get(root).map(Session::added).unwrap_or_default();
                added.iter().filter(|message| is_work(message)).map(Message::text).collect()
            }
            Workload::Crew(run) => run.outputs.values().map(|output| output.text.as_str()).collect(),
            Workload::Steps(_) => Vec::new(),
        };
        let why = self.outcome.as_ref().and_then(|outcome| outcome.error.as_deref()).unwrap_or_default();
        // What is the reason is told as that.
        let is_told = |line: &&str| !line.trim().is_empty() && !why.contains(line.trim());
        let lines: Vec<&str> = lines.into_iter().filter(is_told).collect();
        (!lines.is_empty()).then(|| lines.join("\n"))
    }
}

/// Whether a message is of the work: the words of an agent, or what came of a tool that gave something.
fn is_work(message: &Message) -> bool {
    let gave = || message.failure().is_none() && !answers_handoff(message);
    match message.role {
        MessageRole::Assistant => message.tag.is_none(),
        MessageRole::Tool => message.tag.is_none() && gave(),
        _ => false,
    }
}
