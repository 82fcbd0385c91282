//! Delivers each answer and each timer to the part that asked: the only place that matches on keys.
//!
//! Invariant: both matches name every key, so that an answer that is ignored is ignored here, in writing. It only routes.

use super::SupervisorRun;
use crate::supervisor::core::calls::Arrival;
use crate::supervisor::core::key::{BegunFor, CoreKey, Key, PeopleKey, TeamKey};
use crate::supervisor::outbox::{Answer, Outbox};

impl SupervisorRun {
    /// What has come in, for whoever it is.
    pub(super) fn heard(&mut self, incoming: Arrival, out: &mut Outbox) {
        match incoming {
            Arrival::Answer { key, answer } => self.answered(key, answer, out),
            Arrival::Fired { key } => self.fired(key, out),
            Arrival::Person { task, outcome, update } => self.told_by_person(&task, outcome, &update, out),
        }
    }

    /// What waited for the run to go on. Where what came before it has ended the run, it had been done all the same.
    pub(super) fn heard_in_order(&mut self, incoming: Arrival, out: &mut Outbox) {
        match incoming {
            Arrival::Answer { key, answer } if key.is_of_strategy() && self.strategy.phase().is_terminal() => {
                self.strategy.ended_before_cancel(&key, answer, out);
            }
            incoming => self.heard(incoming, out),
        }
    }

    /// Whoever asked hears the answer.
    fn answered(&mut self, key: Key, answer: Answer, out: &mut Outbox) {
        if !key.is_of_strategy() {
            out.heard(&key);
        }
        match key {
            Key::Graph(_) | Key::Chat(_) | Key::Agents(_) => {
                if key.begun_for() == BegunFor::Request {
                    // What was handed on as a whole has come back.
                    self.parts.handed_on = None;
                }
                self.strategy.heard(&key, answer, &mut self.parts, out);
            }
            Key::People(PeopleKey::ApprovalNotify(n)) => self.parts.approvals.notified(n, &answer, out),
            Key::Team(key) => {
                let heard = self.parts.team.answered(&key, answer, out);
                self.team_heard(heard, out);
            }
            Key::Memory(key) => {
                self.parts.memory.answered(key, &answer, out);
                self.begin_if_ready(out);
            }
            // Nobody waits for the log of approvals; the others are timers.
            Key::People(
                PeopleKey::Answer(_)
                | PeopleKey::ApprovalLog(_)
                | PeopleKey::ApprovalDeadline(_)
                | PeopleKey::DecisionTimeout(_)
                | PeopleKey::InterruptDeadline(_)
                | PeopleKey::PlanReviewDeadline(_)
                | PeopleKey::TakeoverDeadline(_),
            )
            | Key::Core(CoreKey::Wall) => {}
        }
    }

    /// Whoever set the timer hears of it.
    pub(super) fn fired(&mut self, key: Key, out: &mut Outbox) {
        match key {
            Key::Graph(_) | Key::Chat(_) | Key::Agents(_) => self.strategy.fired(&key, &mut self.parts, out),
            Key::People(PeopleKey::ApprovalDeadline(n)) => {
                if let Some(closed) = self.parts.approvals.fired(n, out) {
                    self.approval_closed(closed, out);
                }
            }
            Key::People(PeopleKey::InterruptDeadline(n)) => {
                if let Some(resumed) = self.parts.interrupts.fired(n, out) {
                    self.interrupt_closed(resumed, out);
                }
            }
            Key::People(PeopleKey::PlanReviewDeadline(_)) => {
                if self.parts.review.as_mut().is_some_and(|review| review.fired(out)) {
                    self.review_ended(out);
                }
            }
            Key::People(PeopleKey::DecisionTimeout(_)) => {
                self.parts.escalations.decision_is_late(out);
            }
            Key::People(PeopleKey::TakeoverDeadline(n)) => {
                if self.parts.control.fired(n, out) {
                    self.cancelled_by_control(out);
                }
            }
            Key::Team(TeamKey::Topic { task, look }) => {
                self.parts.team.topics.fired(&task, look, out);
            }
            Key::Core(CoreKey::Wall) => {
                self.time_is_over(out);
                if self.context.timed {
                    self.cancel("the time of whoever does this work is over", "", out);
                }
            }
            // These are calls and children.
            Key::People(PeopleKey::Answer(_) | PeopleKey::ApprovalLog(_) | PeopleKey::ApprovalNotify(_))
            | Key::Team(
                TeamKey::Mail(_) | TeamKey::AuthorizeRecruit(_) | TeamKey::AuthorizeRetirement(_) | TeamKey::Recruit(_),
            )
            | Key::Memory(_) => {}
        }
    }
}
