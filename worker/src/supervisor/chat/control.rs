//! People and a group chat: interrupts, words from outside, pause, cancellation.
//!
//! Invariant: whatever was asked and is not wanted any more is cancelled and its late answer dropped; nothing here picks a
//! speaker but the admin, who takes the word when a human interrupts.

use super::machine::GroupChat;
use super::message::ChatMessage;
use super::rules::ChatError;
use super::view::Stop;
use crate::supervisor::outbox::{Ask, Outbox};

impl GroupChat {
    /// A human takes the word: the open ask is dropped and the admin speaks next; without an admin among the agents the
    /// interrupt ends the chat.
    pub fn interrupt(&mut self, out: &mut Outbox) -> Result<(), ChatError> {
        if self.end.is_some() {
            return Err(ChatError::Ended);
        }
        self.drop_ask(out);
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
        self.turns += 1;
        self.last = Some(self.rules.admin_name.clone());
        let message = ChatMessage::new(self.rules.admin_name.clone(), text);
        let ends = self.terminates(&message);
        self.store(message, out);
        self.go_on(ends, out);
        Ok(())
    }

    pub fn cancel(&mut self, reason: &str, out: &mut Outbox) {
        if self.end.is_none() {
            self.drop_ask(out);
            self.close(Stop::Cancelled, reason, Some("The group chat was cancelled.".to_owned()), out);
        }
    }

    /// Participants are not told of a pause (in AutoGen's base team both hooks do nothing): the conversation is the same
    /// with and without one, only later.
    pub fn pause(&mut self) {
        self.paused = true;
    }
    pub fn unpause(&mut self, out: &mut Outbox) {
        self.paused = false;
        if let Some(call) = self.held.take() {
            out.call(call);
        }
    }

    fn drop_ask(&mut self, out: &mut Outbox) {
        // A call that is held back has not been asked yet.
        if let (Some(key), None) = (self.open.take(), self.held.take()) {
            out.ask(Ask::CancelCall { key });
        }
    }
}
