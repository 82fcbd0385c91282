//! Turns of a group chat that nobody takes: lost to an error, or refused by a person.
//!
//! Invariant: whose turn a person has refused is not asked about again before somebody has spoken; in a swarm whoever handed over
//! goes on, elsewhere another participant, and where there is none the chat is over. That it ended for what a person said, or
//! did not say, is told with its end (`ChatEnd::refused`). It picks no speaker but in place of one who was refused.

use serde_json::json;

use super::machine::{GroupChat, OfPeople};
use super::message::ChatMessage;
use super::rules::SPEAKER_TRIES;
use super::view::Stop;
use crate::supervisor::core::retry::{Tries, is_refusal};
use crate::supervisor::journal::NoteKind;
use crate::supervisor::outbox::{CallFailure, CallFailureKind, Doer, Outbox};
use crate::supervisor::spec::{ChatTeam, OnSpeakerError};

impl GroupChat {
    pub(super) fn speaker_failed(&mut self, name: &str, tries: u32, failure: &CallFailure, out: &mut Outbox) {
        let data = json!({ "agent": name, "attempt": tries, "error": failure.message });
        out.note(NoteKind::AttemptFailed, data);
        out.work_ended(Doer::Agent(name.to_owned()), false);
        match self.rules.on_speaker_error {
            OnSpeakerError::Retry if Tries::of(SPEAKER_TRIES).are_left_after(tries, failure) => {
                self.ask_speaker(name, tries + 1, out);
            }
            // A run below would ask the person once more.
            OnSpeakerError::Skip if is_refusal(failure) => {
                let cancelled = failure.kind == CallFailureKind::CancelledBelow;
                let what = if cancelled { "cancelled" } else { "denied" };
                self.denied(name, &format!("{what}: {}", failure.message), out);
            }
            OnSpeakerError::Skip => {
                // Nobody lost it but the budget of the run.
                self.cut |= failure.kind == CallFailureKind::Spent;
                (self.turns, self.skipped) = (self.turns + 1, self.skipped + 1);
                self.lost.push(format!("the turn of {name} was lost: {}", failure.message));
                self.last = Some(name.to_owned());
                self.go_on(None, out);
            }
            OnSpeakerError::Stop | OnSpeakerError::Retry => self.fail_for(failure, out),
        }
    }

    /// A person does not let a participant take its turn: everybody hears that in their words, and somebody else goes on. In
    /// a swarm that is whoever handed over; where nobody did, the chat is over.
    pub(super) fn denied(&mut self, name: &str, why: &str, out: &mut Outbox) {
        self.turns += 1;
        self.last = Some(name.to_owned());
        let told = format!("the turn of {name} was {why}");
        self.lost.push(told.clone());
        self.refused.insert(name.to_owned(), told);
        let mut message = ChatMessage::new(self.rules.admin_name.clone(), format!("The turn of {name} was {why}."));
        let ends = self.terminates(&message);
        let swarm = self.rules.team == ChatTeam::Swarm;
        if swarm {
            message.handoff = self.take_back(name);
        }
        let (text, nobody) = (message.content.clone(), swarm && message.handoff.is_none());
        self.store_of_people(OfPeople::Denial, message, out);
        match (nobody, ends) {
            (true, None) => self.close(Stop::Denied, &text, Some(text.clone()), out),
            (_, ends) => self.go_on(ends, out),
        }
    }

    /// Who handed over to somebody who may not speak now. Until somebody speaks no hand-off is taken back twice, so that it
    /// ends also where two hand over to each other.
    fn take_back(&mut self, name: &str) -> Option<String> {
        let before = self.taken_back.and_then(|at| usize::try_from(at).ok()).unwrap_or(self.messages.len());
        let handed = |message: &&ChatMessage| {
            let told = self.of_people.contains_key(&message.index);
            !told && message.handoff.as_deref() == Some(name) && self.agent(&message.from).is_some()
        };
        let handed = self.messages.iter().take(before).rfind(handed)?;
        let (at, from) = (handed.index, handed.from.clone());
        self.taken_back = Some(at);
        Some(from)
    }

    /// Whether a participant may be given the word: a hand-off of a swarm is taken back instead.
    pub(super) fn may_speak(&self, name: &str) -> bool {
        self.rules.team == ChatTeam::Swarm || !self.refused.contains_key(name)
    }

    /// The participants that may be given the word.
    pub(super) fn free_names(&self) -> Vec<String> {
        self.names().into_iter().filter(|name| self.may_speak(name)).map(str::to_owned).collect()
    }

    /// Whoever comes next in the list takes the word of one who may not.
    pub(super) fn somebody_else_speaks(&mut self, out: &mut Outbox) {
        let others = self.free_names();
        match others.is_empty() {
            true => self.nobody_is_left(out),
            false => self.speak(&self.next_in_order(&others), "not_refused", out),
        }
    }

    /// Nobody is left who may speak: the chat ends with what was said. An orchestrator tells what there is of it.
    pub(super) fn nobody_is_left(&mut self, out: &mut Outbox) {
        let why: Vec<&str> = self.refused.values().map(String::as_str).collect();
        let text = format!("Nobody else speaks: {}.", why.join("; "));
        match (self.has_spoken(), self.rules.team) {
            (false, _) => self.close(Stop::Denied, &text, Some(text.clone()), out),
            (true, ChatTeam::Magentic) => {
                self.unsatisfied = true;
                self.answer_finally(text, out);
            }
            (true, _) => self.close(Stop::NoEligibleSpeaker, &text, None, out),
        }
    }

    /// Ends with an error.
    pub(super) fn fail(&mut self, error: &str, out: &mut Outbox) {
        self.close(Stop::Error, "An error occurred in the group chat.", Some(error.to_owned()), out);
    }

    /// Ends with the failure of a call.
    pub(super) fn fail_for(&mut self, failure: &CallFailure, out: &mut Outbox) {
        self.fail(&failure.message, out);
        if let Some(end) = &mut self.end {
            end.refused = is_refusal(failure);
        }
    }

    /// Whether it has ended without a success for what a person said, or did not say: who begins it again asks them again.
    pub(super) fn is_refused(&self) -> bool {
        self.end.as_ref().is_some_and(|end| match end.stop {
            Stop::Denied => true,
            Stop::Error => end.refused,
            stop => stop.ok() && !self.has_spoken() && self.of_people_in_run().any(|of| of == OfPeople::Denial),
        })
    }
}
