//! How a session ends, and where its result goes: to the call that waits, to its process, or to the loop's own work.
//!
//! Invariant: a session ends once, when everything it asked for is answered or cancelled; a session that waited for its
//! memory continues then. This module chooses no answer.

use serde_json::{Value, json};

use super::agent_loop::{AgentLoop, Workload};
use super::boundary::AgentOutcome;
use super::message::{Message, Variables};
use super::refusal::SessionFailure;
use super::session::{Doing, Home, Running, Session};
use crate::agent::turn::CallState;
use crate::supervisor::core::key::{AgentsKey, Key, SessionAsk};
use crate::supervisor::journal::NoteKind;
use crate::supervisor::model::InstanceStatus;
use crate::supervisor::outbox::{Doer, Fact, Outbox};

/// How many sessions that have ended are still shown.
const ENDED_SHOWN_MAX: usize = 256;

impl AgentLoop {
    /// A session has its answer, or gave up.
    pub(super) fn ended(&mut self, seq: u32, result: Result<String, SessionFailure>, out: &mut Outbox) {
        let result = self.after_no(seq, result);
        let Some(session) = self.sessions.get(&seq) else { return };
        match session.home {
            Home::Root { .. } => {
                let result = match result {
                    Ok(answer) => match self.format_answer(seq, &answer, out) {
                        Some(text) => Ok(text),
                        None => return,
                    },
                    Err(why) => Err(why),
                };
                self.root_ended(seq, result, out);
            }
            Home::Call { session: caller, index } => {
                let answer = match &result {
                    Err(SessionFailure::NotApproved(why)) => self.not_begun(caller, index, seq, why),
                    _ => self.child_answer(caller, index, seq, result.clone()),
                };
                self.note_denial(caller, seq, &result, answer.worked);
                self.closed(seq, result.is_ok(), out);
                self.complete(caller, index, answer, out);
            }
            Home::Process { process } => {
                self.process_ended(process, seq, &result, out);
                self.closed(seq, result.is_ok(), out);
            }
        }
    }

    /// The loop's own session ended: the conversation is over, or the next item of its list is due.
    pub(super) fn root_ended(&mut self, seq: u32, result: Result<String, SessionFailure>, out: &mut Outbox) {
        let Some(session) = self.sessions.get(&seq) else { return };
        let Home::Root { item } = session.home else { return };
        let last_word = session.last_word;
        let result = match result {
            // What the next step is told would be made of nothing.
            Ok(text) if matches!(self.work, Workload::Steps(_)) && !session.has_something(&text) => {
                Err(SessionFailure::Nothing)
            }
            result => result,
        };
        self.closed(seq, result.is_ok(), out);
        match self.work {
            Workload::Conversation { .. } => {
                self.refused = result.as_ref().is_err_and(SessionFailure::is_refusal);
                let is_over = result.is_err() || last_word;
                self.outcome = Some(self.outcome_of(result.map(Value::String)));
                if !is_over {
                    self.hear_late_words(out);
                }
            }
            Workload::Crew(_) => self.task_answered(item, result, out),
            Workload::Steps(_) => self.step_ended(item, result, out),
        }
    }

    /// The outcome with that result, as things stand.
    pub(super) fn outcome_of(&self, result: Result<Value, SessionFailure>) -> AgentOutcome {
        let root = match self.work {
            Workload::Conversation { root } => self.sessions.get(&root),
            Workload::Crew(_) | Workload::Steps(_) => None,
        };
        AgentOutcome {
            ok: result.is_ok(),
            error: result.as_ref().err().map(ToString::to_string),
            result: result.ok().or_else(|| self.so_far()).unwrap_or_default(),
            messages: root.map(|root| root.added().to_vec()).unwrap_or_default(),
            active_agent: root.map(|root| root.agent.clone()).unwrap_or_default(),
            context_variables: root.map_or_else(Variables::new, |root| root.variables.clone()),
            policy_blocked: false,
            selected_agents: self.selected.clone(),
        }
    }

    /// Whether anything has come of it: words, a function that ran, or what others brought. Calls that nobody is to carry out
    /// are what an agent was asked for (SWM-05).
    pub(super) fn has_something(&self) -> bool {
        let Some(outcome) = &self.outcome else { return false };
        let said = |text: &str| !text.trim().is_empty();
        match &self.work {
            Workload::Conversation { root } => {
                let calls = || outcome.messages.last().is_some_and(|last| !last.tool_calls.is_empty());
                outcome.result.as_str().is_some_and(said)
                    || outcome.messages.iter().any(Message::says_something)
                    || self.sessions.get(root).is_some_and(|root| root.gave)
                    || (!self.rules.execute_tools && calls())
            }
            Workload::Crew(run) => run.outputs.values().any(|output| said(&output.text)),
            Workload::Steps(run) => run.has_something(),
        }
    }

    /// Marks a session as ended and lets go of what it held.
    pub(super) fn closed(&mut self, seq: u32, ok: bool, out: &mut Outbox) {
        let Some(session) = self.sessions.get_mut(&seq) else { return };
        if session.is_over() {
            return;
        }
        session.doing = Doing::Ended { ok };
        let (deadline, memory) = (session.deadline.take(), session.memory.take());
        let messages = match session.home {
            Home::Root { .. } => None,
            Home::Call { .. } | Home::Process { .. } => Some(std::mem::take(&mut session.messages)),
        };
        let (status, key) = (session.status(), session.key(SessionAsk::Deadline));
        let mut told =
            json!({"instance_id": session.id, "name": session.agent, "status": status, "steps": session.steps_total});
        let instance_id = session.id.clone();
        out.tell(Fact::AgentClosed { instance_id: instance_id.clone(), status });
        if session.denied {
            told["denied"] = true.into();
        } else {
            // What a person did not let begin has not ended.
            out.work_ended(Doer::Instance(instance_id), status == InstanceStatus::Completed);
        }
        out.note(NoteKind::AgentClosed, told);
        if deadline.is_some() {
            self.take_back(&key, out);
        }
        if let Some(memory) = memory {
            self.release(&memory, seq, messages.filter(|_| ok), out);
        }
    }

    /// Ends a session from outside, with everything below it.
    pub(super) fn kill(&mut self, seq: u32, out: &mut Outbox) {
        // One that ends lets the next in line for its memory begin: that must be none of those that end as well.
        let mut doomed = vec![seq];
        let mut seen = 0;
        while let Some(next) = doomed.get(seen).copied() {
            doomed.extend(self.sessions.get(&next).into_iter().flat_map(Session::children));
            seen += 1;
        }
        for seq in doomed {
            self.leave_queue(seq);
        }
        self.end_with_all_below(seq, out);
    }

    fn end_with_all_below(&mut self, seq: u32, out: &mut Outbox) {
        let Some(session) = self.sessions.get_mut(&seq) else { return };
        let waits = |key: &AgentsKey| out.awaited().before_people().any(|other| *other == Key::Agents(key.clone()));
        match session.doing.clone() {
            Doing::Thinking { key } | Doing::Formatting { key, .. } => {
                // Whoever nobody has let begin has failed at nothing.
                session.denied |= waits(&key);
                self.take_back(&key, out);
            }
            Doing::Acting(batch) => {
                for (_, state) in batch.iter() {
                    match state {
                        CallState::Running(Running::Child { session, .. }) => self.end_with_all_below(*session, out),
                        CallState::Running(Running::Function { key } | Running::Sleep { key, .. })
                        | CallState::Asking(key) => self.take_back(key, out),
                        CallState::Queued | CallState::Refused(_) | CallState::Approved | CallState::Done(_) => {}
                    }
                }
            }
            Doing::Waiting | Doing::Ended { .. } => {}
        }
        self.closed(seq, false, out);
    }

    /// Drops the oldest ended sessions, so that a long run stays small. The log has them all.
    pub(super) fn forget_old_sessions(&mut self) {
        let keep = match self.work {
            Workload::Conversation { root } => root,
            Workload::Crew(_) | Workload::Steps(_) => 0,
        };
        let ended = |(seq, session): &(&u32, &Session)| session.is_over() && **seq != keep;
        let count = self.sessions.iter().filter(ended).count();
        let old: Vec<u32> = self
            .sessions
            .iter()
            .filter(ended)
            .map(|(seq, _)| *seq)
            .take(count.saturating_sub(ENDED_SHOWN_MAX))
            .collect();
        for seq in old {
            self.sessions.remove(&seq);
        }
    }
}
