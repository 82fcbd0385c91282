//! What runs and agents below get of the budget: a share when they begin, more when they ask, until there is no more.
//!
//! Invariant: a share only ever makes less of an agent's own limits, and one with a share reserves each call against it
//! before the call. Where the run's money is limited an agent makes no other call after one that did not say what it cost. The last word of a run that has spent all has no share. The account says what may be lent.

use bosun_engine::workflow::Cx;
use bosun_engine::{ExternalTarget, WorkflowId};
use serde_json::{Value, json};

use super::SupervisorRun;
use super::children::ChildBudget;
use super::refusal::{Refused, WishRefusal};
use crate::agent::ledger::{Resource, TopUp};
use crate::agent::machine::{AgentStopReason, Lent};
use crate::agent::spec::{AgentSpec, Share};
use crate::agent::workflow::{SIGNAL_BUDGET_REQUEST, SIGNAL_BUDGET_SHARE};
use crate::supervisor::core::account::UsedUp;
use crate::supervisor::core::control::ControlRequest;
use crate::supervisor::core::loans::{Available, LoanRequest};
use crate::supervisor::outbox::{Call, Outbox, Purpose, Weight};

/// Why a run stands still that may go on only with leave for calls of unknown price.
const UNPRICED: &str = "the money of the run is limited, and nobody knows what a call of it cost: \
     `bosun budget top-up --allow-unpriced` lets it go on";

/// What an agent is asked for, and what it was lent for that.
pub(super) struct Lease {
    /// Absent for a supervisor.
    pub(super) purpose: Option<Purpose>,
    pub(super) lent: Vec<Resource>,
    pub(super) share: Option<Share>,
    /// Calls of a supervisor, beyond the one that its start counts as.
    pub(super) calls: Option<u64>,
}

impl Lease {
    /// Of a supervisor, where anything is limited that is shared.
    pub(super) fn of_run(part: ChildBudget) -> Option<Lease> {
        let ChildBudget { share, calls, .. } = part;
        (share.is_some() || calls.is_some()).then(|| Lease {
            purpose: None,
            lent: Vec::new(),
            share: share.or_else(|| Some(Share::default())),
            calls: calls.map(|calls| calls.saturating_sub(1)),
        })
    }
}

/// Bounds an agent by what is left, whatever it is asked for: planners and reviewers like workers. What it was lent: when
/// that is used up and there is no more, it ends, since the budget is the run's and not its own. `wall_ms`: what is left of
/// the time of the run.
pub(super) fn lend(
    free: Available,
    wall_ms: Option<u64>,
    call: &Call,
    agent: &mut AgentSpec,
) -> (Vec<Resource>, Option<Share>) {
    // Nobody is lent anything for the last word.
    let shares = !call.last && !call.needs_no_part();
    let share = free.share().filter(|_| shares);
    agent.limits.share = share;
    if free.needs_prices && shares {
        (agent.limits.needs_prices, agent.limits.allow_unpriced) = (true, false);
        agent.limits.stops_at.extend((!free.asks).then_some(Resource::Unpriced));
    }
    let mut lent = share.map(Share::resources).unwrap_or_default();
    if shares && lower(&mut agent.limits.wall_ms, wall_ms) {
        agent.limits.wall_of_run = true;
        lent.push(Resource::Wall);
    }
    (lent, share)
}

impl SupervisorRun {
    /// What may be lent now.
    pub(super) fn available(&self) -> Available {
        let free = self.account.free(self.strategy.is_one_at_a_time());
        // Nobody gives more to a run that is over; who asks it is told so.
        let is_over = self.parts.control.is_cancelled() || self.strategy.phase().is_terminal();
        if is_over { Available { asks: false, from_above: Default::default(), ..free } } else { free }
    }

    /// A fork owns what was lent to its source: nobody above gives it more, or is told what it spent.
    pub(super) fn own_budget(&mut self) {
        if self.context.shared {
            self.context.shared = false;
            self.account.own(self.resolved.spec.budget.on_exhausted);
        }
    }

    /// What was lent is used up, and nobody is left who could give something back: time to nobody, and the rest where the others
    /// have none.
    pub(super) fn lent_in_vain(&mut self, stop: &AgentStopReason, lent: &[Resource], out: &mut Outbox) {
        if !is_used_up(stop, lent) {
            return;
        }
        if matches!(stop, AgentStopReason::Budget { resource: Resource::Wall, .. }) {
            return self.time_is_over(out);
        }
        // What others give back may be enough for the next one.
        if self.account.loans.lent() == (Share { tokens: Some(0), cost_micros: Some(0) }) {
            self.account.too_little_is_left();
            out.set_budget(self.account.balance());
        }
    }

    /// How long the attempts of a call may begin, where the time of the run is limited: the last word, and what is free of charge,
    /// have all that they need.
    pub(super) fn begins_within(&self, call: &Call, cx: &Cx<'_>) -> Option<u64> {
        let is_bounded = !call.last && call.weight() != Weight::Free;
        is_bounded.then(|| self.account.left_for_child(cx.now(), &self.awaited)).flatten()
    }

    /// An agent asks for more of the budget.
    pub(super) fn budget_requested(&mut self, value: &Value) -> Result<(), Refused> {
        let request: LoanRequest = serde_json::from_value(value.clone()).map_err(WishRefusal::from)?;
        Ok(self.account.loans.request(request)?)
    }

    /// People give the run more; it goes on when it is resumed.
    pub(super) fn topped_up(&mut self, value: &Value, out: &mut Outbox) -> Result<(), Refused> {
        let more: TopUp = serde_json::from_value(value.clone()).map_err(WishRefusal::from)?;
        if self.context.shared {
            return Err(WishRefusal::SharedBudget.into());
        }
        if more.wall_ms.is_some() {
            return Err(WishRefusal::NotGiven.into());
        }
        if !self.account.top_up(&more) {
            return Err(WishRefusal::NoSuchBudget.into());
        }
        out.set_budget(self.account.balance());
        Ok(())
    }

    /// Pauses a run that can only go on with more than it has, where its spec says so.
    pub(super) fn ask_for_budget(&mut self, out: &mut Outbox) {
        if !self.parts.control.is_running() || self.strategy.phase().is_terminal() {
            return;
        }
        let free = self.available();
        let in_vain = self.account.loans.waits_in_vain(free);
        let waits = self.calls.has_put_off() || self.strategy.wants_more(out);
        // What waits for the border is asked for behind it.
        let short = !self.parts.border_closes() && self.account.balance().asks() && waits && self.calls.is_idle();
        // A run below asks the one above, which asks people if it has to.
        if (short || in_vain) && !(self.context.shared && self.account.ask_above(free)) && free.asks {
            let unpriced =
                self.account.balance().used_up() == Some(UsedUp::Unpriced) || self.account.loans.wants_leave();
            let why =
                if unpriced { UNPRICED } else { "the budget of the run is spent: `bosun budget top-up` gives it more" };
            self.pause(ControlRequest::new(why, "budget"), out);
        }
    }

    /// What the run above was asked for, and nobody here needs any more, is withdrawn: it would ask people in vain.
    fn withdraw_from_above(&mut self, cx: &mut Cx<'_>) {
        if !self.account.has_asked_above() {
            return;
        }
        let mut out = self.outbox(cx.now());
        let waits = self.calls.has_put_off() || self.strategy.wants_more(&out);
        self.awaited = out.take_awaited();
        let free = self.available();
        let needs = (waits && self.account.balance().asks()) || self.account.loans.wants_more(free);
        if !needs || self.parts.control.is_cancelled() || self.strategy.phase().is_terminal() {
            self.account.withdraw_from_above();
            self.ask_above(cx);
        }
    }

    /// The same when the account has held back the last of what was asked for.
    pub(super) fn ask_for_what_is_held(&mut self, cx: &mut Cx<'_>) {
        self.withdraw_from_above(cx);
        if self.calls.has_put_off() {
            let mut out = self.outbox(cx.now());
            self.ask_for_budget(&mut out);
            self.ask_above(cx);
            if !self.parts.control.is_running() {
                let checkpoint = self.checkpoint();
                self.parts.control.checkpoint(&checkpoint, &mut out);
            }
            self.ask_all(out, cx);
        }
    }

    /// The run above has answered a request for more.
    pub(super) fn lent_more(&mut self, value: &Value, out: &mut Outbox) -> Result<(), Refused> {
        let lent: Lent = serde_json::from_value(value.clone()).map_err(WishRefusal::from)?;
        if !self.account.lent_from_above(&lent) {
            return Err(WishRefusal::NotAsked.into());
        }
        out.set_budget(self.account.balance());
        Ok(())
    }

    /// Asks the run above for more, where that was decided.
    fn ask_above(&mut self, cx: &mut Cx<'_>) {
        let above = self.context.above.as_deref().and_then(|above| WorkflowId::new(above).ok());
        let (Some(above), Some(asked)) = (above, self.account.next_ask_above()) else { return };
        let own = cx.workflow_id().map(ToString::to_string).unwrap_or_default();
        let mut input = json!({ "agent": own, "resource": asked.resource, "wanted": asked.wanted });
        if let Some(most) = asked.most {
            input["most"] = most.into();
        }
        cx.signal_external(ExternalTarget { workflow_id: above, run_id: None }, SIGNAL_BUDGET_REQUEST, &input);
    }

    /// Lends more to whoever has asked for it, the first first.
    pub(super) fn lend_more(&mut self, cx: &mut Cx<'_>) {
        self.ask_above(cx);
        while !self.parts.control.is_held() {
            let free = self.available();
            let Some((agent, lent)) = self.account.loans.lend_more(free) else { return };
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
pub(super) fn is_used_up(stop: &AgentStopReason, lent: &[Resource]) -> bool {
    matches!(stop, AgentStopReason::Budget { resource, lent: true } if lent.contains(resource))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::spec::{Limits, Price};
    use crate::supervisor::core::key::GraphKey;

    /// G41: a share is lent beside an agent's own limits and never raises them, to whoever is asked but for the last word, of
    /// money also where no price is known; and where money is limited, a call without a price is the last or is asked about.
    #[test]
    fn a_share_only_makes_less() {
        let left = Share { tokens: Some(100), cost_micros: Some(7) };
        let free = Available { left, free: left, needs_prices: true, ..Available::default() };
        let agent = |price| {
            let limits = Limits { max_tokens: Some(5), ..Limits::default() };
            AgentSpec { price, ..AgentSpec::bounded(Vec::new(), limits) }
        };
        for purpose in [Purpose::ExecuteWorker, Purpose::Plan, Purpose::Review, Purpose::Synthesize] {
            let call = Call::new(GraphKey::Format, purpose, Value::Null);
            let mut unpriced = agent(None);
            let (lent, share) = lend(free, None, &call, &mut unpriced);
            assert_eq!(lent, [Resource::Tokens, Resource::Cost]);
            assert_eq!((share, unpriced.limits.share), (Some(Share { tokens: Some(50), cost_micros: Some(4) }), share));
            assert_eq!((unpriced.limits.needs_prices, &*unpriced.limits.stops_at), (true, &[Resource::Unpriced][..]));
            assert_eq!(unpriced.limits.max_tokens, Some(5), "its own limit stays");
            let mut priced = agent(Some(Price { input: 1, output: 1 }));
            assert_eq!(lend(free, None, &call, &mut priced).0, [Resource::Tokens, Resource::Cost]);
            assert_eq!(priced.limits.share, Some(Share { tokens: Some(50), cost_micros: Some(4) }));
            let mut asks = agent(None);
            lend(Available { asks: true, ..free }, None, &call, &mut asks);
            assert!(asks.limits.needs_prices && asks.limits.stops_at.is_empty(), "people are asked");
            let mut allowed = agent(None);
            lend(Available { needs_prices: false, ..free }, None, &call, &mut allowed);
            assert!(!allowed.limits.needs_prices && allowed.limits.stops_at.is_empty());
            let mut last = agent(None);
            assert_eq!(lend(free, Some(9), &call.last_word(), &mut last), (Vec::new(), None));
            assert_eq!(last.limits.wall_ms, None, "the last word has its time");
        }
        let call = Call::new(GraphKey::Format, Purpose::Plan, Value::Null);
        assert!(lend(Available::default(), None, &call, &mut agent(None)).0.is_empty());
    }

    /// G41: the time of the run is that of its agents, too, where their own is no shorter.
    #[test]
    fn an_agent_has_no_more_time_than_its_run() {
        let call = Call::new(GraphKey::Format, Purpose::Plan, Value::Null);
        let lent = |own: Option<u64>, left: Option<u64>| {
            let mut agent = AgentSpec::bounded(Vec::new(), Limits { wall_ms: own, ..Limits::default() });
            let lent = lend(Available::default(), left, &call, &mut agent).0;
            (lent, agent.limits.wall_ms, agent.limits.wall_of_run)
        };
        assert_eq!(lent(None, Some(3)), (vec![Resource::Wall], Some(3), true));
        assert_eq!(lent(Some(5), Some(3)), (vec![Resource::Wall], Some(3), true));
        assert_eq!(lent(Some(2), Some(3)), (Vec::new(), Some(2), false));
        assert_eq!(lent(Some(2), None), (Vec::new(), Some(2), false));
    }

    #[test]
    fn only_what_was_lent_is_the_budget_of_the_run() {
        let stopped = |resource, lent| AgentStopReason::Budget { resource, lent };
        assert!(is_used_up(&stopped(Resource::Tokens, true), &[Resource::Tokens, Resource::Cost]));
        assert!(!is_used_up(&stopped(Resource::Cost, true), &[Resource::Tokens]), "its own money");
        assert!(!is_used_up(&stopped(Resource::Tokens, false), &[Resource::Tokens]), "its own limit");
        assert!(!is_used_up(&AgentStopReason::Completed, &[Resource::Tokens]));
    }
}
