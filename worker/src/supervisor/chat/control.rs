//! A group chat and what stops it: interrupts, words from outside, pause, cancellation, a budget that is spent.
//!
//! Invariant: a call that is no longer needed is cancelled, and its late answer is dropped. This module picks no speaker,
//! except the admin, who speaks when a person interrupts.

use super::machine::{ChatPhase, GroupChat, OfPeople};
use super::magentic::OrchestratorStep;
use super::message::{ChatMessage, SpeakerAnswer, failed_by_itself};
use super::rules::ChatError;
use super::view::Stop;
use crate::supervisor::core::account::{Exhausted, SPENT};
use crate::supervisor::core::key::{ChatKey, Key};
use crate::supervisor::outbox::{Answer, Ask, Call, Outbox};
use crate::supervisor::spec::ChatTeam;

impl GroupChat {
    /// A human takes the word: the open ask is dropped and the admin speaks next; without an admin among the agents the
    /// interrupt ends the chat.
    pub fn interrupt(&mut self, out: &mut Outbox) -> Result<(), ChatError> {
        if self.end.is_some() {
            return Err(ChatError::Ended);
        }
        self.drop_ask(out);
        self.refused.clear();
        // Why the final answer was to be given is so no longer.
        self.unsatisfied = false;
        let admin = self.rules.admin_name.clone();
        match self.agent(&admin).is_some() {
            true => self.speak(&admin, "interrupt", out),
            false => {
                self.close(Stop::Interrupted, "Interrupted by a human.", Some("KeyboardInterrupt".to_owned()), out)
            }
        }
        Ok(())
    }

    /// A human takes the word and says this, as the admin: the open ask is dropped, and the chat goes on from there.
    pub fn say(&mut self, text: &str, out: &mut Outbox) -> Result<(), ChatError> {
        if self.end.is_some() {
            return Err(ChatError::Ended);
        }
        self.drop_ask(out);
        // While an orchestrator thinks nobody has a turn that these words could take.
        self.turns += u32::from(!matches!(self.stage, ChatPhase::Ledger(_)));
        // Why the final answer was to be given is so no longer.
        self.unsatisfied = false;
        self.last = Some(self.rules.admin_name.clone());
        let message = ChatMessage::new(self.rules.admin_name.clone(), text);
        let ends = self.terminates(&message);
        self.taken_back = None;
        self.refused.clear();
        self.store_of_people(OfPeople::Interruption, message, out);
        self.go_on(ends, out);
        Ok(())
    }

    /// A turn that ended while the run stood still comes before the words of a person who speaks up meanwhile. It ends nothing
    /// any more: the person has the word. Whether the answer was one.
    pub(super) fn overtaken(&mut self, key: ChatKey, answer: &Answer, out: &mut Outbox) -> bool {
        let (ChatPhase::Speaking { agent, .. }, Ok(answer)) = (self.stage.clone(), answer) else { return false };
        let said = SpeakerAnswer::read(&agent, answer, self.rules.team == ChatTeam::Swarm);
        let Ok(SpeakerAnswer { message: Some(message) }) = said else { return false };
        if self.end.is_some() || failed_by_itself(answer).is_some() || !out.heard(key) {
            return false;
        }
        self.took_turn(&agent);
        self.said(message, out);
        true
    }

    /// A person lets a turn begin, or wants to see it once more, in words of theirs: everybody hears them as the admin's.
    pub(super) fn instructed(&mut self, key: ChatKey, words: &str, out: &mut Outbox) -> Option<Call> {
        let ChatPhase::Speaking { agent, tries } = self.stage.clone() else { return None };
        self.store_of_people(OfPeople::Instruction, ChatMessage::new(self.rules.admin_name.clone(), words), out);
        Some(self.turn_of(&agent, tries, key))
    }

    pub fn cancel(&mut self, reason: &str, out: &mut Outbox) {
        if self.end.is_none() {
            self.drop_ask(out);
            self.close(Stop::Cancelled, reason, Some("The group chat was cancelled.".to_owned()), out);
        }
    }

    /// A call is made, if the budget pays for it; the last one may be the final answer of a `magentic` team.
    pub(super) fn send(&mut self, call: Call, out: &mut Outbox) {
        let final_answer = matches!(self.stage, ChatPhase::Ledger(OrchestratorStep::FinalAnswer { .. }));
        match (out.budget().exhausted(), final_answer && out.budget().has_last_word()) {
            (None, _) => out.call(call),
            (Some(_), true) => out.call(call.last_word()),
            (Some(_), false) => self.end_for_budget(out),
        }
    }

    /// The budget of the run is spent, and nothing is under way: whoever is to choose is not waited for.
    pub fn exhausted(&mut self, out: &mut Outbox) {
        if self.end.is_none() && !out.is_held() && matches!(self.stage, ChatPhase::Choosing(_)) {
            self.end_for_budget(out);
        }
    }

    /// Ends with the messages so far; a `magentic` team tells what it has found, if that is still paid for.
    pub(super) fn end_for_budget(&mut self, out: &mut Outbox) {
        self.cut = true;
        let budget = *out.budget();
        let began = self.has_spoken() && !matches!(self.stage, ChatPhase::Ledger(OrchestratorStep::FinalAnswer { .. }));
        if self.rules.team == ChatTeam::Magentic && began && budget.has_last_word() {
            return self.answer_finally(budget.text(), out);
        }
        let error = (budget.exhausted() == Some(Exhausted::Fail)).then(|| SPENT.to_owned());
        self.close(Stop::Budget, &budget.text(), error, out);
    }

    /// Whether the budget has ended it, or left it one last word.
    pub fn is_cut(&self) -> bool {
        self.cut
    }

    fn drop_ask(&mut self, out: &mut Outbox) {
        let open: Vec<Key> = out.awaited().calls().filter(|key| matches!(key, Key::Chat(_))).cloned().collect();
        open.into_iter().for_each(|key| out.ask(Ask::CancelCall { key }));
    }
}
