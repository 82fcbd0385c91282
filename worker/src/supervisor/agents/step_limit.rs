//! The steps that all agents of a loop share (LGS-08), where they are used up.
//!
//! Invariant: that they are is noted once in a turn; nobody waits for a person with whose answer nobody could go on.

use serde_json::json;

use super::agent_loop::AgentLoop;
use super::rules::{LoopCount, OnLimit};
use crate::supervisor::core::key::{AgentsKey, SessionAsk};
use crate::supervisor::journal::NoteKind;
use crate::supervisor::outbox::Outbox;

impl AgentLoop {
    /// A session that wants a step that there is not: it has failed.
    pub(super) fn out_of_steps(&mut self, seq: u32, used: u32, out: &mut Outbox) {
        let Some(session) = self.sessions.get(&seq) else { return };
        if !self.limit_told {
            out.note(NoteKind::BudgetExhausted, json!({"session": session.id, "what": "steps", "used": used}));
        }
        self.limit_told = self.rules.limit.count == LoopCount::Steps;
        let why = self.at_limit(seq, self.rules.limit.text());
        self.ended(seq, Err(why), out);
    }

    /// Whether the next step of anybody would be one too many.
    fn has_no_step_left(&self) -> bool {
        let limit = &self.rules.limit;
        let fails = matches!(limit.then, OnLimit::StepLimit | OnLimit::RecursionLimit);
        fails && limit.count == LoopCount::Steps && self.steps >= limit.max
    }

    /// Withdraws questions of agents that could not go on with the answer.
    pub(super) fn ask_nobody_in_vain(&mut self, out: &mut Outbox) {
        if self.outcome.is_some() || out.is_held() || !self.has_no_step_left() {
            return;
        }
        for (key, asker) in self.waits(out) {
            let asks = matches!(key, AgentsKey::Session { ask: SessionAsk::Question { .. }, .. });
            let may_go_on = self.sessions.get(&asker).is_some_and(|session| session.last_word);
            // What ended before has taken some of it back.
            if asks && !may_go_on && self.waits_for(&key, out) {
                self.take_back(&key, out);
                self.out_of_steps(asker, self.steps, out);
            }
        }
    }
}
