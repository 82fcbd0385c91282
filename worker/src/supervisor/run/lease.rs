//! What workers may spend of the budget of their run (G41).
//!
//! ```text
//!   free = budget − charged − lent       a worker begins with a part of it, asks for more, and gives back what it did not need
//! ```
//!
//! Invariant: what is lent at a time, and what was charged, are never more than the budget; a worker reserves each call
//! against its share before the call. A share only ever makes less of a worker's own limits. Who asks for more than is free
//! waits as long as others may give something back; then it gets the rest, as the last. Planners, reviewers and
//! synthesizers have no share: the run needs their word to end in order, and is charged for it.

use bosun_engine::workflow::Cx;
use bosun_engine::{ExternalTarget, WorkflowId};
use serde_json::{Value, json};

use super::SupervisorRun;
use super::carrier::Carrier;
use super::loans::{Loans, Request};
use crate::agent::ledger::{Resource, TopUp};
use crate::agent::spec::{AgentSpec, Share};
use crate::agent::workflow::SIGNAL_BUDGET_SHARE;
use crate::supervisor::outbox::{Outbox, Purpose};
use crate::supervisor::people::control::ControlRequest;

/// The patch of the runs that lend shares. Those before lent each worker all that was left when it began.
pub(super) const BUDGET_SHARES: &str = "budget-shares";

/// What is left of a budget; none where there is no budget.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Left {
    pub(super) tokens: Option<u64>,
    pub(super) micros: Option<u64>,
    /// The part of it that nobody was lent.
    pub(super) free: Share,
    /// One worker at a time.
    pub(super) alone: bool,
    /// Who gets no more waits for people.
    pub(super) asks: bool,
}

impl Left {
    pub(super) fn of(carrier: &Carrier, loans: &Loans) -> Left {
        let Some(graph) = carrier.graph() else { return Left::default() };
        let (tokens, micros) = graph.budget_left();
        let lent = loans.lent();
        let free = |left: Option<u64>, lent: Option<u64>| left.map(|left| left.saturating_sub(lent.unwrap_or(0)));
        let free = Share { tokens: free(tokens, lent.tokens), cost_micros: free(micros, lent.cost_micros) };
        Left { tokens, micros, free, alone: graph.rules.slots() == 1, asks: graph.rules.ask_on_budget }
    }

    /// Bounds a worker by what is left. What it was lent: when that is used up and there is no more, it ends, since the
    /// budget is the run's and not its own. `shares` says by which rules.
    pub(super) fn lend(
        self,
        purpose: Purpose,
        agent: &mut AgentSpec,
        shares: impl FnOnce() -> bool,
    ) -> (Vec<Resource>, Option<Share>) {
        let budget = self.tokens.is_some() || self.micros.is_some();
        if purpose != Purpose::ExecuteWorker || !budget {
            return (Vec::new(), None);
        }
        if !shares() {
            return (self.lend_all(agent), None);
        }
        // Money can be held only where the price is known before the call.
        let cost_micros = self.free.cost_micros.filter(|_| agent.price.is_some()).map(|free| self.part(free));
        let share = Share { tokens: self.free.tokens.map(|free| self.part(free)), cost_micros };
        let resources = [(Resource::Tokens, share.tokens), (Resource::Cost, share.cost_micros)];
        let lent: Vec<Resource> = resources.into_iter().filter_map(|(resource, part)| part.map(|_| resource)).collect();
        agent.limits.share = (!lent.is_empty()).then_some(share);
        (lent, agent.limits.share)
    }

    /// Whether a supervisor below does better to wait for what others give back: it asks for no more later.
    pub(super) fn too_little_for_child(self) -> bool {
        let little = |left: Option<u64>, free: Option<u64>| match (left, free) {
            (Some(left), Some(free)) => free < left && self.part(free).saturating_mul(8) < left,
            _ => false,
        };
        little(self.tokens, self.free.tokens) || little(self.micros, self.free.cost_micros)
    }

    /// The part of a supervisor below, which asks for no more. `shares` says by which rules.
    pub(super) fn part_of_child(self, shares: impl FnOnce() -> bool) -> Option<Share> {
        let Share { tokens, cost_micros } = self.free;
        let budget = tokens.is_some() || cost_micros.is_some();
        let part = |free: Option<u64>| free.map(|free| self.part(free));
        (budget && shares()).then(|| Share { tokens: part(tokens), cost_micros: part(cost_micros) })
    }

    /// By the rules of runs that know no shares.
    fn lend_all(self, agent: &mut AgentSpec) -> Vec<Resource> {
        let limits = &mut agent.limits;
        let mut lent = Vec::new();
        if lower(&mut limits.max_tokens, self.tokens) {
            lent.push(Resource::Tokens);
        }
        let own = limits.max_cost_micros.is_some();
        if agent.price.is_some() && lower(&mut limits.max_cost_micros, self.micros) {
            // A bill without a price is no reason to stop a worker that has no limit of its own.
            limits.allow_unpriced |= !own;
            lent.push(Resource::Cost);
        }
        limits.stops_at.extend(&lent);
        lent
    }

    /// What one gets of what is free: half, if others may want the rest.
    pub(super) fn part(&self, free: u64) -> u64 {
        if self.alone { free } else { free.div_ceil(2) }
    }

    pub(super) fn free(&self, resource: Resource) -> u64 {
        let free = if resource == Resource::Cost { self.free.cost_micros } else { self.free.tokens };
        free.unwrap_or(0)
    }
}

impl SupervisorRun {
    /// A worker asks for more of the budget.
    pub(super) fn budget_requested(&mut self, value: &Value) -> Result<(), String> {
        let request: Request = serde_json::from_value(value.clone()).map_err(|why| why.to_string())?;
        self.ledger.loans.request(request)
    }

    /// People give the run more; it goes on when it is resumed.
    pub(super) fn topped_up(&mut self, value: &Value) -> Result<(), String> {
        let more: TopUp = serde_json::from_value(value.clone()).map_err(|why| why.to_string())?;
        if self.context.shared {
            return Err("its budget is a part of its parent's: give that one more".to_owned());
        }
        if more.wall_ms.is_some() || more.allow_unpriced {
            return Err("a run is given tokens, money and calls".to_owned());
        }
        let graph = self.carrier.graph_mut().ok_or("only graphs have a budget that can be raised")?;
        match graph.top_up(more.tokens, more.cost_micros, more.calls) {
            true => Ok(()),
            false => Err("the run has no such budget".to_owned()),
        }
    }

    /// Pauses a run that can only go on with more than it has, where its spec says so.
    pub(super) fn ask_for_budget(&mut self, out: &mut Outbox) {
        let left = Left::of(&self.carrier, &self.ledger.loans);
        if !left.asks || !self.parts.control.is_running() || self.carrier.phase().is_terminal() {
            return;
        }
        let in_vain = self.ledger.loans.waits_in_vain(left);
        let short = self.carrier.graph().is_some_and(|graph| graph.short) && self.ledger.is_idle();
        if short || in_vain {
            let why = "the budget of the run is spent: `bosun budget top-up` gives it more";
            if self.parts.control.pause(ControlRequest::new(why, "budget"), out) {
                self.carrier.pause(out);
            }
        }
    }

    /// Lends more to whoever has asked for it, the first first.
    pub(super) fn lend_more(&mut self, cx: &mut Cx<'_>) {
        while self.parts.control.is_running() {
            let left = Left::of(&self.carrier, &self.ledger.loans);
            let Some((agent, lent)) = self.ledger.loans.lend_more(left) else { return };
            let target = ExternalTarget { workflow_id: WorkflowId::of(agent), run_id: None };
            cx.signal_external(target, SIGNAL_BUDGET_SHARE, &json!(lent));
        }
    }
}

/// Makes a limit as low as this, if that is lower. Whether it was.
pub(super) fn lower(limit: &mut Option<u64>, left: Option<u64>) -> bool {
    let Some(left) = left.filter(|left| limit.is_none_or(|limit| *left < limit)) else { return false };
    *limit = Some(left);
    true
}

/// Whether an agent stopped because what it was lent is used up. One with a share says so itself.
pub(super) fn is_used_up(output: &Value, lent: &[Resource], shared: bool) -> bool {
    let stop = &output["stop"]["budget"];
    lent.iter().any(|resource| stop["resource"] == json!(resource)) && (!shared || stop["lent"] == true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::spec::{Limits, OnExhausted, Price};

    fn agent(tokens: Option<u64>) -> AgentSpec {
        AgentSpec::bounded(Vec::new(), Limits { max_tokens: tokens, ..Limits::default() })
    }

    /// G41: a lease lowers a limit and never raises it; what was lent ends a worker, and its own limits ask as before.
    #[test]
    fn a_lease_only_makes_less() {
        let left = Left { tokens: Some(100), micros: Some(7), ..Left::default() };
        let lend = |left: Left, purpose, worker: &mut AgentSpec| left.lend(purpose, worker, || false).0;
        let tokens = vec![Resource::Tokens];
        for (own, expected, lent) in
            [(None, 100, &tokens), (Some(500), 100, &tokens), (Some(100), 100, &vec![]), (Some(5), 5, &vec![])]
        {
            let mut worker = agent(own);
            assert_eq!(lend(left, Purpose::ExecuteWorker, &mut worker), *lent, "{own:?}");
            assert_eq!((worker.limits.max_tokens, worker.limits.max_cost_micros), (Some(expected), None));
            assert_eq!((&worker.limits.stops_at, worker.limits.on_exhausted), (lent, OnExhausted::Ask));
        }
        let mut priced = AgentSpec { price: Some(Price { input: 1, output: 1 }), ..agent(Some(5)) };
        assert_eq!(lend(left, Purpose::ExecuteWorker, &mut priced), [Resource::Cost]);
        assert_eq!((priced.limits.max_cost_micros, priced.limits.allow_unpriced), (Some(7), true));
        let mut limited = AgentSpec { price: priced.price, ..agent(Some(5)) };
        limited.limits.max_cost_micros = Some(9);
        lend(left, Purpose::ExecuteWorker, &mut limited);
        assert_eq!((limited.limits.max_cost_micros, limited.limits.allow_unpriced), (Some(7), false));
        let mut planner = agent(None);
        assert!(lend(left, Purpose::Plan, &mut planner).is_empty() && planner == agent(None));
        assert!(lend(Left::default(), Purpose::ExecuteWorker, &mut planner).is_empty() && planner == agent(None));
    }

    #[test]
    fn only_what_was_lent_is_the_budget_of_the_run() {
        let stopped = |resource: &str| json!({ "stop": { "budget": { "resource": resource } } });
        assert!(is_used_up(&stopped("tokens"), &[Resource::Tokens, Resource::Cost], false));
        assert!(!is_used_up(&stopped("cost"), &[Resource::Tokens], false), "its own money");
        assert!(!is_used_up(&json!({ "stop": "completed" }), &[Resource::Tokens], false));
        assert!(!is_used_up(&stopped("tokens"), &[Resource::Tokens], true), "its own limit");
        let lent = json!({ "stop": { "budget": { "resource": "tokens", "lent": true } } });
        assert!(is_used_up(&lent, &[Resource::Tokens], true));
    }
}
