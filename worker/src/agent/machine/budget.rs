//! When an agent stands still: the budget or the time is used up, somebody is needed, or somebody has paused it.
//!
//! Invariant: what is halted or paused begins nothing, takes in what ends, and goes on by a signal of a person only; time
//! that is spent waiting for people is not counted. A pause and a halt are lifted each by its own signal.

use bosun_engine::Timestamp;
use serde_json::json;

use super::words::{AgentRequests, Lent};
use super::{AgentMachine, AgentPhase, AgentRequest, AgentStopReason, Halt};
use crate::agent::ledger::{Resource, TopUp};
use crate::agent::spec::OnExhausted;

impl AgentMachine {
    /// There is too little of something. Whether the agent goes on by itself.
    pub(super) fn exhausted(&mut self, resource: Resource, out: &mut AgentRequests) -> bool {
        self.note(json!({ "exhausted": resource }));
        let lent = self.spec.limits.stops_at.contains(&resource) || self.is_of_run(resource);
        match self.spec.limits.on_exhausted {
            OnExhausted::Ask if !lent => {
                self.halt_with(Halt::Budget { resource });
                false
            }
            OnExhausted::Degrade if !self.degraded && matches!(resource, Resource::Cost | Resource::Tokens) => {
                self.degrade();
                true
            }
            OnExhausted::Ask | OnExhausted::Degrade | OnExhausted::Stop => {
                let lent = self.is_of_run(resource);
                self.finish(AgentStopReason::Budget { resource, lent }, None, out);
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
            && self.ledger.taken_permille(&self.last_of_share) >= cheaper.at_permille
        {
            self.degrade();
        }
    }

    fn degrade(&mut self) {
        self.degraded = true;
        self.note(json!({ "degraded": self.spec.limits.degrade.as_ref().map(|cheaper| cheaper.model.clone()) }));
    }

    pub(super) fn top_up(&mut self, more: &TopUp, now: Timestamp) {
        // Nobody gives an agent more time than its run has.
        let wall_ms = more.wall_ms.filter(|_| !self.spec.limits.wall_of_run);
        self.ledger.top_up(&TopUp { wall_ms, ..more.clone() }, now);
        self.unpriced_allowed |= more.allow_unpriced;
        self.note(json!({ "top_up": more }));
        if matches!(self.halt, Some(Halt::Budget { .. })) {
            self.halt = None;
        }
    }

    /// What the supervisor lends.
    pub(super) fn lent(&mut self, lent: &Lent) {
        self.ledger.lend(lent.more);
        if lent.last {
            self.last_of_share.extend(lent.more.resources());
        }
        self.note(json!({ "lent": lent }));
        if let Some(Halt::Share { resource, .. }) = self.halt {
            match (resource, lent.last) {
                (Resource::Unpriced, true) => self.spec.limits.stops_at.push(resource),
                (Resource::Unpriced, false) => self.unpriced_allowed = true,
                _ => {}
            }
            self.halt = None;
        }
    }

    /// Whether what it may spend is in the hands of a run above.
    pub fn is_lent(&self) -> bool {
        let limits = &self.spec.limits;
        limits.share.is_some() || !limits.stops_at.is_empty() || limits.wall_of_run
    }

    /// Whether what is used up of this is the run's, and no limit of its own.
    fn is_of_run(&self, resource: Resource) -> bool {
        self.ledger.share_binds(resource) || (resource == Resource::Wall && self.spec.limits.wall_of_run)
    }

    /// What is left of the time of the run above, where that is what limits the agent.
    pub(super) fn left_of_run(&self, now: Timestamp) -> Option<u64> {
        let left = self.ledger.wall.left(now).filter(|_| self.spec.limits.wall_of_run)?;
        Some(u64::try_from(left.as_millis()).unwrap_or(u64::MAX))
    }

    /// When the time of the run above is over nothing begins, and the agent ends as soon as nothing is under way but what people
    /// would have to bring on. Whether the time is over.
    pub(super) fn ends_with_run(&mut self, out: &mut AgentRequests) -> bool {
        let is_over = self.spec.limits.wall_of_run && self.ledger.wall.is_over(out.now);
        if is_over && self.flights.keys().all(|key| self.still.contains(key)) {
            self.finish(AgentStopReason::Budget { resource: Resource::Wall, lent: true }, None, out);
        }
        is_over
    }

    /// It is a fork: what was lent to its source is its own from here on. People give it more, and nobody else is asked.
    pub fn own_budget(&mut self) {
        self.spec.limits.own();
        self.ledger.own();
        self.last_of_share.clear();
        if matches!(self.halt, Some(Halt::Share { .. })) {
            self.halt = None;
        }
        self.note(json!({ "owns_its_budget": true }));
    }

    /// Whether the supervisor has to be asked before so much is held back; the agent stands still until it answers.
    pub(super) fn asks_for_share(&mut self, resource: Resource, wanted: u64) -> bool {
        if self.last_of_share.contains(&resource) {
            return false;
        }
        let Some(wanted) = self.ledger.short_of_share(resource, wanted) else { return false };
        self.halt_with(Halt::Share { resource, wanted });
        true
    }

    pub(super) fn halt_with(&mut self, halt: Halt) {
        self.halt = Some(halt);
        self.halts = self.halts.saturating_add(1);
    }

    /// Whether nothing may begin.
    pub(super) fn stands_still(&self) -> bool {
        self.halt.is_some() || self.paused.is_some()
    }

    pub(super) fn pause(&mut self, reason: String) {
        if self.outcome.is_none() {
            self.note(json!({ "paused": reason }));
            self.paused = Some(reason);
        }
    }

    pub(super) fn resume(&mut self) {
        if self.paused.take().is_some() {
            self.note(json!({ "resumed": true }));
        }
        if matches!(self.halt, Some(Halt::NeedsHuman { .. })) {
            self.halt = None;
        }
    }

    pub(super) fn wall_fired(&mut self, out: &mut AgentRequests) {
        self.wall_timer = false;
        let limits = &self.spec.limits;
        if limits.wall_of_run {
            return;
        }
        let stops = limits.on_exhausted != OnExhausted::Ask || limits.stops_at.contains(&Resource::Wall);
        // Who is asked lets what is under way end; the next thing does not begin.
        if self.ledger.wall.is_over(out.now) && stops && self.outcome.is_none() {
            self.finish(AgentStopReason::Budget { resource: Resource::Wall, lent: false }, None, out);
        }
    }

    /// Whether it goes on by people only: something is asked of them, here or by agents that it called, and nothing else is
    /// under way.
    pub(super) fn waits_for_people(&self) -> bool {
        let asks_people = matches!(&self.phase, AgentPhase::Batch(batch) if batch.asked().next().is_some());
        let asks = self.stands_still() || asks_people || !self.still.is_empty();
        asks && self.flights.keys().all(|key| self.still.contains(key))
    }

    /// The time runs unless people are waited for and nothing else is under way.
    pub(super) fn clock(&mut self, out: &mut AgentRequests) {
        if self.waits_for_people() {
            self.ledger.wall.halt(out.now);
            return;
        }
        self.ledger.wall.go_on(out.now);
        let is_open = self.outcome.is_none() && !self.wall_timer && !self.ledger.wall.is_over(out.now);
        if let Some(at) = self.ledger.wall.deadline().filter(|_| is_open) {
            self.wall_timer = true;
            out.asks.push(AgentRequest::WallTimer { at });
        }
    }
}
