//! When the budget or the time is used up: ask, stop, or go on with a cheaper model.
//!
//! Invariant: what is halted begins nothing, and goes on by a signal of a person only; time that is spent waiting for
//! people is not counted.

use bosun_engine::Timestamp;
use serde_json::json;

use super::words::Out;
use super::{Agent, Ask, Halt, Phase, StopReason};
use crate::agent::ledger::{Resource, TopUp};
use crate::agent::spec::OnExhausted;

impl Agent {
    /// There is too little of something. Whether the agent goes on by itself.
    pub(super) fn exhausted(&mut self, resource: Resource, out: &mut Out) -> bool {
        self.note(json!({ "exhausted": resource }));
        match self.spec.limits.on_exhausted {
            OnExhausted::Ask => {
                self.halt = Some(Halt::Budget { resource });
                false
            }
            OnExhausted::Degrade if !self.degraded && matches!(resource, Resource::Cost | Resource::Tokens) => {
                self.degrade();
                true
            }
            OnExhausted::Degrade | OnExhausted::Stop => {
                self.finish(StopReason::Budget { resource }, None, out);
                false
            }
        }
    }

    /// The cheaper model takes over in time, not only when nothing is left for it.
    pub(super) fn degrade_if_short(&mut self) {
        let limits = &self.spec.limits;
        let Some(cheaper) = &limits.degrade else { return };
        if limits.on_exhausted == OnExhausted::Degrade
            && !self.degraded
            && self.ledger.taken_permille() >= cheaper.at_permille
        {
            self.degrade();
        }
    }

    fn degrade(&mut self) {
        self.degraded = true;
        self.note(json!({ "degraded": self.spec.limits.degrade.as_ref().map(|cheaper| cheaper.model.clone()) }));
    }

    pub(super) fn top_up(&mut self, more: &TopUp, now: Timestamp) {
        self.ledger.top_up(more, now);
        self.unpriced_allowed |= more.allow_unpriced;
        self.note(json!({ "top_up": more }));
        if matches!(self.halt, Some(Halt::Budget { .. })) {
            self.halt = None;
        }
    }

    pub(super) fn resume(&mut self) {
        if matches!(self.halt, Some(Halt::NeedsHuman { .. })) {
            self.halt = None;
        }
    }

    pub(super) fn wall_fired(&mut self, out: &mut Out) {
        self.wall_timer = false;
        let stops = self.spec.limits.on_exhausted != OnExhausted::Ask;
        // Who is asked lets what is under way end; the next thing does not begin.
        if self.ledger.wall.is_over(out.now) && stops && self.outcome.is_none() {
            self.finish(StopReason::Budget { resource: Resource::Wall }, None, out);
        }
    }

    /// The time runs unless people are waited for and nothing else is under way.
    pub(super) fn clock(&mut self, out: &mut Out) {
        let asks_people = matches!(&self.phase, Phase::Batch(batch) if batch.asks_people());
        if (self.halt.is_some() || asks_people) && self.flights.is_empty() {
            self.ledger.wall.halt(out.now);
            return;
        }
        self.ledger.wall.go_on(out.now);
        let is_open = self.outcome.is_none() && !self.wall_timer && !self.ledger.wall.is_over(out.now);
        if let Some(at) = self.ledger.wall.deadline().filter(|_| is_open) {
            self.wall_timer = true;
            out.asks.push(Ask::WallTimer { at });
        }
    }
}
