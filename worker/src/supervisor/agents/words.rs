//! What people say to agents: to whoever leads a conversation, and to whoever has asked them.
//!
//! Invariant: words that were taken are told to the agent that leads the conversation: before its next step, or in a turn of their
//! own where the last one ended over them. Words that a guard blocks no agent is told (CUG-39). It asks nobody.

use serde_json::json;

use super::agent_loop::{AgentLoop, Workload};
use super::message::{Message, all_answered};
use super::refusal::SessionFailure;
use super::session::{Doing, Home};
use crate::supervisor::journal::NoteKind;
use crate::supervisor::outbox::Outbox;
use crate::supervisor::standing as policies;

impl AgentLoop {
    /// The user goes on after an answer: a new turn of the same conversation. While one is under way, or nothing starts, the
    /// words are kept for it. What a guard blocks of them it has answered, and what agents do goes on as if nobody had said it.
    pub fn say(&mut self, text: &str, out: &mut Outbox) -> bool {
        let Workload::Conversation { root } = self.work else { return false };
        if !self.sessions.contains_key(&root) {
            return false;
        }
        let begins = self.outcome.is_some() && !out.is_held();
        if begins && !is_paid(out) {
            // A turn that may ask nobody would only take the place of the answer that there is.
            return false;
        }
        match self.blocked_words(text, out) {
            Some(response) => self.blocked.push(response),
            None => self.words.push(text.to_owned()),
        }
        if begins && !self.words.is_empty() {
            self.next_turn(root, out);
        }
        true
    }

    /// What was said too late for a turn that has ended begins the next one, if it is paid for.
    pub(super) fn hear_late_words(&mut self, out: &mut Outbox) {
        let Workload::Conversation { root } = self.work else { return };
        if self.outcome.is_some() && !self.words.is_empty() && !out.is_held() && is_paid(out) {
            self.next_turn(root, out);
        }
    }

    /// A turn that begins with what people have said since the last one.
    fn next_turn(&mut self, root: u32, out: &mut Outbox) {
        (self.outcome, self.cut, self.refused) = (None, None, false);
        self.charged_task = 0;
        (self.steps, self.limit_told) = (0, false);
        self.selected.clear();
        // What was cut short before is no part of what is asked now.
        self.cut_turns.clear();
        self.bounded.clear();
        let words = std::mem::take(&mut self.words);
        if let Some(session) = self.sessions.get_mut(&root) {
            session.messages = all_answered(std::mem::take(&mut session.messages));
            session.messages.extend(words.into_iter().map(Message::user));
            session.doing = Doing::Waiting;
        }
        self.begin_turn(root, out);
    }

    /// A person has answered the question of an agent.
    pub(super) fn told_by_person(&mut self, seq: u32, answer: &str, out: &mut Outbox) {
        if let Some(response) = self.blocked_words(answer, out) {
            return self.answered_by_policy(seq, response, out);
        }
        let Some(session) = self.sessions.get_mut(&seq) else { return };
        session.messages.push(Message::user(answer));
        session.denials.clear();
        self.begin_step(seq, out);
    }

    /// What a guard says to words of a person, if one blocks them.
    pub(super) fn blocked_words(&self, words: &str, out: &mut Outbox) -> Option<String> {
        let (policy, response) = policies::blocked(&self.rules.policies, words)?;
        out.note(NoteKind::ActionRefused, json!({"policy": policy.id, "request": words}));
        Some(response.to_owned())
    }

    /// A guard answers in place of an agent, whose turn ends with that.
    pub(super) fn answered_by_policy(&mut self, seq: u32, response: String, out: &mut Outbox) {
        let Some(session) = self.sessions.get_mut(&seq) else { return };
        if !matches!(session.home, Home::Root { .. }) {
            return self.ended(seq, Err(SessionFailure::Policy(response)), out);
        }
        let message = Message::assistant(&session.agent, response.clone());
        session.messages.push(message);
        self.blocked_by_policy(seq, response, out);
    }
}

/// Whether another turn could ask its model, be it for one last word.
fn is_paid(out: &Outbox) -> bool {
    out.budget().exhausted().is_none() || out.budget().has_last_word()
}
