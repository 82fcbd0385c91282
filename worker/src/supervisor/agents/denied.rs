//! Work of agents that a person did not let begin, or wants to be done otherwise (`core::gate`).
//!
//! Invariant: whoever gave the work hears who said no and why, as the answer of its call, and goes on; a task of a list is
//! left out, and a step ends its list like one that failed. Nobody who was not let through is asked for anything. It asks
//! nobody itself.

use serde_json::json;

use super::agent_loop::{AgentLoop, Workload};
use super::message::{Message, MessageRole};
use super::refusal::SessionFailure;
use super::session::{Doing, Home, Session, ToolOutcome};
use crate::supervisor::core::key::{AgentsKey, SessionAsk};
use crate::supervisor::journal::NoteKind;
use crate::supervisor::outbox::{Call, Outbox};
use crate::supervisor::spec::DelegationProtocol;

impl AgentLoop {
    /// The step of a session was not let through. Where a hand-off has changed who is active, it is taken back.
    pub(super) fn denied(&mut self, seq: u32, why: String, out: &mut Outbox) {
        let Some(session) = self.sessions.get_mut(&seq) else { return };
        let Some(before) = session.handed_by.take() else {
            session.denied = true;
            self.deselect(seq);
            return self.ended(seq, Err(SessionFailure::NotApproved(why)), out);
        };
        let to = std::mem::replace(&mut session.agent, before);
        session.denials.push(format!("the hand-off to '{to}' was {why}"));
        session.messages.push(Message::user(format!("The hand-off to '{to}' was {why}. Go on without it.")));
        session.doing = Doing::Waiting;
        out.note(NoteKind::HandedOff, json!({"session": session.id, "from": to, "to": session.agent}));
        self.begin_step(seq, out);
    }

    /// Whoever was let begin nothing was given no work.
    fn deselect(&mut self, seq: u32) {
        let Some(agent) = self.sessions.get(&seq).map(|session| session.agent.clone()) else { return };
        let works = |other: &Session| other.agent == agent && other.parent.is_some() && !other.denied;
        if !self.sessions.values().any(works) {
            self.selected.retain(|name| *name != agent);
        }
    }

    /// What the caller is told of a session that was not let through.
    pub(super) fn not_begun(&self, caller: u32, index: usize, child: u32, why: &str) -> ToolOutcome {
        let handed = self.sessions.get(&caller).is_some_and(|caller| caller.hands_over(index));
        let answer = match self.rules.delegation.kind {
            DelegationProtocol::Processes | DelegationProtocol::Variables if !handed => {
                let name = self.sessions.get(&child).map(|session| session.agent.as_str()).unwrap_or_default();
                self.failure(format!("The delegation to '{name}' was {why}"))
            }
            _ => self.child_answer(caller, index, child, Err(SessionFailure::NotApproved(why.to_owned()))),
        };
        // It is no fault of a tool.
        ToolOutcome { refused: true, ..answer }
    }

    /// Work that a session gave away has ended: that a person refused it is remembered, until something has been done.
    pub(super) fn note_denial(
        &mut self,
        caller: u32,
        child: u32,
        result: &Result<String, SessionFailure>,
        worked: bool,
    ) {
        let name = self.sessions.get(&child).map(|child| child.agent.clone()).unwrap_or_default();
        let Some(caller) = self.sessions.get_mut(&caller) else { return };
        match result {
            Err(SessionFailure::NotApproved(why)) => caller.denials.push(format!("the work of '{name}' was {why}")),
            Err(why) if why.is_refusal() => caller.denials.push(why.to_string()),
            Ok(_) if worked => caller.denials.clear(),
            // Nothing has come of it: the no stands.
            Ok(_) | Err(_) => {}
        }
    }

    /// A bound has ended a session. With nothing done since a person said no, it is their no that has ended it.
    pub(super) fn at_limit(&self, seq: u32, limit: String) -> SessionFailure {
        match self.denials_of(seq) {
            None => SessionFailure::Limit(limit),
            Some(denials) => SessionFailure::LimitAfterNo { limit, denials },
        }
    }

    /// The same of a session that ends by itself, with a failure or with nothing.
    pub(super) fn after_no(&self, seq: u32, result: Result<String, SessionFailure>) -> Result<String, SessionFailure> {
        let (Some(denials), Some(session)) = (self.denials_of(seq), self.sessions.get(&seq)) else { return result };
        let why = match result {
            Ok(text) if !self.is_nothing(session, &text) => return Ok(text),
            Ok(_) => SessionFailure::Nothing,
            // These have ended it whatever people say.
            Err(why @ (SessionFailure::Spent | SessionFailure::Stopped(_) | SessionFailure::Policy(_))) => {
                return Err(why);
            }
            Err(why) if why.is_refusal() => return Err(why),
            Err(why) => why,
        };
        Err(SessionFailure::AfterNo { why: why.to_string(), denials })
    }

    /// Whether nothing has come of a session that ends with this text.
    fn is_nothing(&self, session: &Session, text: &str) -> bool {
        // What was said beside the call that was denied, and before it, is no answer to the no.
        let added = session.added();
        let from = added.iter().position(|message| message.role == MessageRole::Tool).unwrap_or(added.len());
        let spoke = || added[from..].iter().any(Message::says_something);
        match (&self.work, session.home) {
            // Without words there is no output, whatever was done before.
            (Workload::Crew(_), Home::Root { .. }) => text.trim().is_empty(),
            (Workload::Steps(_), Home::Root { .. }) => !session.has_something(text),
            _ => !session.has_something(text) && !spoke(),
        }
    }

    /// What people have refused a session, as long as nothing has been done since.
    fn denials_of(&self, seq: u32) -> Option<String> {
        let mut denials: Vec<&str> = Vec::new();
        for denial in self.sessions.get(&seq).iter().flat_map(|session| &session.denials) {
            if !denials.contains(&denial.as_str()) {
                denials.push(denial);
            }
        }
        (!denials.is_empty()).then(|| denials.join("; "))
    }

    /// A task of a crew that was not let through is left out, and the others go on; without one that is required nothing does.
    pub(super) fn leave_out(&mut self, at: usize, why: String, out: &mut Outbox) {
        if let Workload::Crew(run) = &mut self.work {
            run.denied.insert(at, why.clone());
            if let Some(not_begun) = run.running.get_mut(&at) {
                not_begun.attempt = not_begun.attempt.saturating_sub(1);
            }
            if run.tasks.get(at).is_some_and(|task| task.required) {
                return self.stop_crew(at, why, out);
            }
        }
        self.accept(at, String::new(), true, out);
        self.go_on_with_crew(out);
    }

    /// A person wants the work of a session done in words of theirs: its agent is told as if the user said so.
    pub(super) fn instructed(&mut self, key: &AgentsKey, words: &str, out: &mut Outbox) -> Option<Call> {
        let AgentsKey::Session { ask: SessionAsk::Step { .. }, .. } = key else { return None };
        let seq = self.asker(key)?;
        let session = self.sessions.get_mut(&seq)?;
        session.messages.push(Message::user(words));
        if let Some(item) = session.path.0.first().copied() {
            self.keep_words(item, words);
        }
        self.step_of(seq, out).map(|(_, call)| call)
    }
}
