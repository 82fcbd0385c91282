//! What a worker may spend of the budget of its run: what is left of it when it begins (G41).
//!
//! Invariant: a lease only ever makes less of a worker's own limits. The worker reserves each call against it before the
//! call; when it stops for that, nothing more starts in the run. Workers that run side by side each begin with what is
//! left then, so that together they may spend it more than once; what they spent is charged when they end. Planners,
//! reviewers and synthesizers have no lease: the run needs their word to end in order.

use serde_json::{Value, json};

use super::carrier::Carrier;
use crate::agent::ledger::Resource;
use crate::agent::spec::AgentSpec;
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

    /// Bounds a worker by what is left. What it was lent: where it may spend less than by itself, it ends when that is used
    /// up, since the budget is the run's and not its own.
    pub(super) fn lend(self, purpose: Purpose, agent: &mut AgentSpec) -> Vec<Resource> {
        let limits = &mut agent.limits;
        let mut lent = Vec::new();
        if purpose != Purpose::ExecuteWorker {
            return lent;
        }
        if lower(&mut limits.max_tokens, self.tokens) {
            lent.push(Resource::Tokens);
        }
        // Money can be held only where the price is known before the call.
        let own = limits.max_cost_micros.is_some();
        if agent.price.is_some() && lower(&mut limits.max_cost_micros, self.micros) {
            // A bill without a price is no reason to stop a worker that has no limit of its own.
            limits.allow_unpriced |= !own;
            lent.push(Resource::Cost);
        }
        limits.stops_at.extend(&lent);
        lent
    }
}

/// Makes a limit as low as this, if that is lower. Whether it was.
pub(super) fn lower(limit: &mut Option<u64>, left: Option<u64>) -> bool {
    let Some(left) = left.filter(|left| limit.is_none_or(|limit| *left < limit)) else { return false };
    *limit = Some(left);
    true
}

/// Whether an agent stopped because what it was lent is used up.
pub(super) fn is_used_up(output: &Value, lent: &[Resource]) -> bool {
    lent.iter().any(|resource| output["stop"]["budget"]["resource"] == json!(resource))
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
        let left = Left { tokens: Some(100), micros: Some(7) };
        let tokens = vec![Resource::Tokens];
        for (own, expected, lent) in
            [(None, 100, &tokens), (Some(500), 100, &tokens), (Some(100), 100, &vec![]), (Some(5), 5, &vec![])]
        {
            let mut worker = agent(own);
            assert_eq!(left.lend(Purpose::ExecuteWorker, &mut worker), *lent, "{own:?}");
            assert_eq!((worker.limits.max_tokens, worker.limits.max_cost_micros), (Some(expected), None));
            assert_eq!((&worker.limits.stops_at, worker.limits.on_exhausted), (lent, OnExhausted::Ask));
        }
        let mut priced = AgentSpec { price: Some(Price { input: 1, output: 1 }), ..agent(Some(5)) };
        assert_eq!(left.lend(Purpose::ExecuteWorker, &mut priced), [Resource::Cost]);
        assert_eq!((priced.limits.max_cost_micros, priced.limits.allow_unpriced), (Some(7), true));
        let mut limited = AgentSpec { price: priced.price, ..agent(Some(5)) };
        limited.limits.max_cost_micros = Some(9);
        left.lend(Purpose::ExecuteWorker, &mut limited);
        assert_eq!((limited.limits.max_cost_micros, limited.limits.allow_unpriced), (Some(7), false));
        let mut planner = agent(None);
        assert!(left.lend(Purpose::Plan, &mut planner).is_empty() && planner == agent(None));
        assert!(Left::default().lend(Purpose::ExecuteWorker, &mut planner).is_empty() && planner == agent(None));
    }

    #[test]
    fn only_what_was_lent_is_the_budget_of_the_run() {
        let stopped = |resource: &str| json!({ "stop": { "budget": { "resource": resource } } });
        assert!(is_used_up(&stopped("tokens"), &[Resource::Tokens, Resource::Cost]));
        assert!(!is_used_up(&stopped("cost"), &[Resource::Tokens]), "its own money");
        assert!(!is_used_up(&json!({ "stop": "completed" }), &[Resource::Tokens]));
    }
}
