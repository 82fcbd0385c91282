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

use std::collections::BTreeSet;

use bosun_engine::workflow::Cx;
use bosun_engine::{ExternalTarget, WorkflowId};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::SupervisorRun;
use super::asks::{Ledger, Pending};
use super::carrier::Carrier;
use crate::agent::ledger::{Resource, TopUp};
use crate::agent::machine::Lent;
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
    free: Share,
    /// One worker at a time.
    alone: bool,
    /// Who gets no more waits for people.
    asks: bool,
}

/// A worker that asks for more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Request {
    /// Its workflow id.
    pub(super) agent: String,
    resource: Resource,
    wanted: u64,
}

impl Left {
    pub(super) fn of(carrier: &Carrier, ledger: &Ledger) -> Left {
        let Some(graph) = carrier.graph() else { return Left::default() };
        let (tokens, micros) = graph.budget_left();
        let lent = ledger.lent();
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
    fn part(&self, free: u64) -> u64 {
        if self.alone { free } else { free.div_ceil(2) }
    }

    fn meets(&self, request: &Request) -> bool {
        self.free(request.resource) >= request.wanted
    }

    fn free(&self, resource: Resource) -> u64 {
        let free = if resource == Resource::Cost { self.free.cost_micros } else { self.free.tokens };
        free.unwrap_or(0)
    }
}

/// What is lent, and who asks for more.
impl Ledger {
    /// What is lent now.
    pub(super) fn lent(&self) -> Share {
        let shares = self.pending.values().filter_map(|pending| match pending {
            Pending::Child { share, .. } => *share,
            Pending::Call { .. } | Pending::Later { .. } | Pending::Timer { .. } => None,
        });
        let sum = |one: Option<u64>, other: Option<u64>| Some(one?.saturating_add(other.unwrap_or(0)));
        shares.chain(self.bill_shares.values().copied()).chain(self.unheard.values().copied()).fold(
            Share { tokens: Some(0), cost_micros: Some(0) },
            |all, one| Share {
                tokens: sum(all.tokens, one.tokens),
                cost_micros: sum(all.cost_micros, one.cost_micros),
            },
        )
    }

    /// What the worker that is this workflow was lent.
    pub(super) fn share_of(&mut self, agent: &str) -> Option<&mut Share> {
        self.pending.values_mut().find_map(|pending| match pending {
            Pending::Child { workflow_id, share: Some(share), .. } if workflow_id == agent => Some(share),
            _ => None,
        })
    }

    /// Keeps a request; a worker has one.
    pub(super) fn request(&mut self, request: Request) {
        self.requests.retain(|other| other.agent != request.agent);
        self.requests.push(request);
    }

    /// Takes the first request that can be met; or, where nobody is left who could give something back and people are not
    /// asked for more (`may_be_last`), the first, as the last of its worker.
    pub(super) fn next_request(
        &mut self,
        may_be_last: bool,
        can_be_met: impl Fn(&Request) -> bool,
    ) -> Option<(Request, bool)> {
        let in_vain = self.all_wait();
        match self.requests.iter().position(can_be_met) {
            Some(at) => Some((self.requests.remove(at), false)),
            None if in_vain && may_be_last => Some((self.requests.remove(0), true)),
            None => None,
        }
    }

    /// Whether somebody asks for more, and nobody is left who could give something back.
    pub(super) fn all_wait(&mut self) -> bool {
        let lent: BTreeSet<&str> = self
            .pending
            .values()
            .filter_map(|pending| match pending {
                Pending::Child { workflow_id, share: Some(_), .. } => Some(workflow_id.as_str()),
                _ => None,
            })
            .collect();
        self.requests.retain(|request| lent.contains(request.agent.as_str()));
        !self.requests.is_empty() && self.requests.len() == lent.len() && self.bill_shares.is_empty()
    }
}

impl SupervisorRun {
    /// A worker asks for more of the budget.
    pub(super) fn budget_requested(&mut self, value: &Value) -> Result<(), String> {
        let request: Request = serde_json::from_value(value.clone()).map_err(|why| why.to_string())?;
        if !matches!(request.resource, Resource::Tokens | Resource::Cost) {
            return Err("only tokens and money are shared".to_owned());
        }
        if self.ledger.share_of(&request.agent).is_none() {
            return Err(format!("{} is no worker of this run that was lent anything", request.agent));
        }
        self.ledger.request(request);
        Ok(())
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
        let left = Left::of(&self.carrier, &self.ledger);
        if !left.asks || !self.parts.control.is_running() || self.carrier.phase().is_terminal() {
            return;
        }
        let in_vain = self.ledger.all_wait() && !self.ledger.requests.iter().any(|request| left.meets(request));
        let short = self.carrier.graph().is_some_and(|graph| graph.short) && self.ledger.is_idle();
        if short || in_vain {
            let why = "the budget of the run is spent: `bosun budget top-up` gives it more";
            if self.parts.control.pause(ControlRequest::new(why, "budget"), out) {
                self.carrier.pause();
            }
        }
    }

    /// Lends more to whoever has asked for it, the first first.
    pub(super) fn lend_more(&mut self, cx: &mut Cx<'_>) {
        while self.parts.control.is_running() {
            let left = Left::of(&self.carrier, &self.ledger);
            let Some((agent, lent)) = next_loan(&mut self.ledger, left) else { return };
            let target = ExternalTarget { workflow_id: WorkflowId::of(agent), run_id: None };
            cx.signal_external(target, SIGNAL_BUDGET_SHARE, &json!(lent));
        }
    }
}

/// Meets the next request that can be met.
fn next_loan(ledger: &mut Ledger, left: Left) -> Option<(String, Lent)> {
    let (request, last) = ledger.next_request(!left.asks, |request| left.meets(request))?;
    let free = left.free(request.resource);
    let amount = if last { free } else { request.wanted.max(left.part(free)) };
    let more = match request.resource {
        Resource::Cost => Share { cost_micros: Some(amount), tokens: None },
        _ => Share { tokens: Some(amount), cost_micros: None },
    };
    let share = ledger.share_of(&request.agent)?;
    *share = share.plus(more);
    Some((request.agent, Lent { more, last }))
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
    use std::collections::BTreeMap;

    use bosun_engine::Seq;
    use proptest::prelude::*;

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

    /// A worker that was lent so much, for tests of what is lent.
    fn keep_worker(ledger: &mut Ledger, seq: Seq, workflow_id: &str, share: Option<Share>) {
        let (key, workflow_id) = (workflow_id.to_owned(), workflow_id.to_owned());
        let (agent, lent) = (Some(Purpose::ExecuteWorker), Vec::new());
        ledger.keep(key.clone(), seq, Pending::Child { key, workflow_id, agent, lent, share });
    }

    /// A worker as far as its budget goes: it needs so many tokens, `call` at a time.
    struct Working {
        needs: u64,
        call: u64,
        spent: u64,
        share: u64,
        last: bool,
        asking: bool,
    }

    proptest! {
        /// G41: whatever workers begin, need and give back, in any order: what is lent and was charged is never more than the
        /// budget, nobody waits for ever, and nobody ends short of budget while there is some that nobody has.
        #[test]
        fn what_is_lent_is_never_more_than_what_is_left(
            budget in 0u64..5_000,
            alone in any::<bool>(),
            needs in prop::collection::vec((0u64..2_000, 1u64..300), 1..8),
            order in prop::collection::vec(any::<prop::sample::Index>(), 200),
        ) {
            let (mut ledger, mut charged) = (Ledger::default(), 0u64);
            let mut waiting: Vec<(u64, u64)> = needs;
            let mut working: BTreeMap<u64, Working> = BTreeMap::new();
            let left = |ledger: &Ledger, charged: u64| {
                let all = budget.checked_sub(charged).expect("no more is spent than there is");
                let lent = ledger.lent().tokens.unwrap();
                assert!(lent <= all, "{lent} is lent of {all}");
                let free = Share { tokens: Some(all - lent), cost_micros: None };
                Left { tokens: Some(all), free, alone, ..Left::default() }
            };
            let mut steps = 0;
            while !(waiting.is_empty() && working.is_empty()) {
                let able: Vec<u64> = working.iter().filter(|(_, one)| !one.asking).map(|(name, _)| *name).collect();
                let may_begin = !waiting.is_empty() && (!alone || working.is_empty());
                prop_assert!(may_begin || !able.is_empty(), "everybody waits");
                steps += 1;
                prop_assert!(steps < 5_000, "it does not end");
                let choice = order[steps % order.len()].index(able.len() + usize::from(may_begin));
                if choice == able.len() {
                    let (needs, call) = waiting.pop().unwrap();
                    let name = waiting.len() as u64;
                    let mut spec = agent(None);
                    let (_, share) = left(&ledger, charged).lend(Purpose::ExecuteWorker, &mut spec, || true);
                    keep_worker(&mut ledger, Seq(name), &name.to_string(), share);
                    let share = share.and_then(|share| share.tokens).unwrap();
                    working.insert(name, Working { needs, call, spent: 0, share, last: false, asking: false });
                } else {
                    let name = able[choice];
                    let one = working.get_mut(&name).unwrap();
                    let wanted = one.call.min(one.needs - one.spent);
                    let has = one.share - one.spent;
                    if has < wanted && !one.last {
                        one.asking = true;
                        ledger.request(Request { agent: name.to_string(), resource: Resource::Tokens, wanted: wanted - has });
                    } else if one.spent == one.needs || has == 0 {
                        // A share of nothing is asked for before, unless nobody else has anything.
                        let (spent, short) = (one.spent, one.spent < one.needs);
                        working.remove(&name);
                        ledger.take(Seq(name)).unwrap();
                        charged += spent;
                        prop_assert!(!short || left(&ledger, charged).free.tokens < Some(wanted) || !working.is_empty());
                    } else {
                        one.spent += wanted.min(has);
                    }
                }
                while let Some((name, lent)) = { let left = left(&ledger, charged); next_loan(&mut ledger, left) } {
                    let one = working.get_mut(&name.parse().unwrap()).unwrap();
                    prop_assert!(one.asking);
                    (one.asking, one.last) = (false, lent.last);
                    one.share += lent.more.tokens.unwrap();
                }
            }
        }
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
