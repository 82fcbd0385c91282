//! What a worker may spend of the budget of its run: what is left of it when it begins (G41).
//!
//! Invariant: a lease only ever makes less of a worker's own limits. The worker reserves each call against it before the
//! call; when it stops for that, nothing more starts in the run. Workers that run side by side each begin with what is
//! left then, so that together they may spend it more than once; what they spent is charged when they end. Planners,
//! reviewers and synthesizers have no lease: the run needs their word to end in order.

use serde_json::Value;

use super::carrier::Carrier;
use crate::agent::spec::{AgentSpec, OnExhausted};
use crate::supervisor::outbox::Purpose;

/// What is left of a budget; none where there is no budget.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Left {
    pub(super) tokens: Option<u64>,
    pub(super) micros: Option<u64>,
}

impl Left {
    pub(super) fn of(carrier: &Carrier) -> Left {
        let (tokens, micros) = carrier.graph().map(|graph| graph.budget_left()).unwrap_or_default();
        Left { tokens, micros }
    }

    /// Bounds a worker by what is left. Whether that is less than what it may spend by itself.
    pub(super) fn lend(self, purpose: Purpose, agent: &mut AgentSpec) -> bool {
        if purpose != Purpose::ExecuteWorker {
            return false;
        }
        let mut lent = lower(&mut agent.limits.max_tokens, self.tokens);
        // Money can be held only where the price is known before the call.
        if agent.price.is_some() {
            lent |= lower(&mut agent.limits.max_cost_micros, self.micros);
        }
        if lent && agent.limits.on_exhausted == OnExhausted::Ask {
            // There is no more that a person could give this one worker: the budget is the run's.
            agent.limits.on_exhausted = OnExhausted::Stop;
        }
        lent
    }
}

fn lower(limit: &mut Option<u64>, left: Option<u64>) -> bool {
    let Some(left) = left.filter(|left| limit.is_none_or(|limit| *left < limit)) else { return false };
    *limit = Some(left);
    true
}

/// Whether an agent stopped because the tokens or the money were used up.
pub(super) fn is_used_up(output: &Value) -> bool {
    matches!(output["stop"]["budget"]["resource"].as_str(), Some("tokens" | "cost"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::spec::{Limits, Price};

    fn agent(tokens: Option<u64>) -> AgentSpec {
        AgentSpec::bounded(Vec::new(), Limits { max_tokens: tokens, ..Limits::default() })
    }

    /// G41: a lease lowers a limit and never raises it; whoever is lent less does not wait for people.
    #[test]
    fn a_lease_only_makes_less() {
        let left = Left { tokens: Some(100), micros: Some(7) };
        for (own, expected, lent) in
            [(None, 100, true), (Some(500), 100, true), (Some(100), 100, false), (Some(5), 5, false)]
        {
            let mut worker = agent(own);
            assert_eq!(left.lend(Purpose::ExecuteWorker, &mut worker), lent, "{own:?}");
            assert_eq!((worker.limits.max_tokens, worker.limits.max_cost_micros), (Some(expected), None));
            assert_eq!(worker.limits.on_exhausted == OnExhausted::Stop, lent);
        }
        let mut priced = AgentSpec { price: Some(Price { input: 1, output: 1 }), ..agent(Some(5)) };
        assert!(left.lend(Purpose::ExecuteWorker, &mut priced));
        assert_eq!(priced.limits.max_cost_micros, Some(7));
        let mut planner = agent(None);
        assert!(!left.lend(Purpose::Plan, &mut planner) && planner == agent(None));
        assert!(!Left::default().lend(Purpose::ExecuteWorker, &mut planner) && planner == agent(None));
    }
}
