//! More budget for a run, by the command line, the API and the pages alike: what may be given to whom, and what then goes on.
//!
//! Invariant: what is not limited cannot be raised, and is refused before anything is sent; what gives a run more is its own
//! signal, which is kept also while no worker runs. A supervisor that its own budget has paused is resumed with it; what
//! somebody else paused stays paused.

use bosun_engine::*;
use serde_json::{Value, json};

use crate::agent::AGENT;
use crate::agent::workflow::SIGNAL_TOP_UP;
use crate::backend::{Backend, CallError};
use crate::cli::spent;
use crate::supervisor::core::control;
use crate::supervisor::run::SUPERVISOR;

/// What there is more of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct MoreBudget {
    pub tokens: Option<u64>,
    /// Millionths of a dollar.
    pub cost_micros: Option<u64>,
    /// Model calls and tool calls.
    pub calls: Option<u64>,
    pub wall_ms: Option<u64>,
    /// Calls whose price is not known are allowed from now on.
    pub allow_unpriced: bool,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ToppedUp {
    /// Of which run: the one that was given more.
    pub info: RunInfo,
    pub resumed: bool,
    /// It goes on to find that it still has too little.
    pub too_little: bool,
}

/// Why nothing was given. Nothing was sent.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoTopUp {
    #[error("the top-up names nothing to add: name tokens, cost, calls or time")]
    Nothing,
    #[error("{0} is neither a supervisor nor an agent, and has no budget")]
    HasNone(WorkflowId),
    #[error(
        "a supervisor takes more tokens, cost and calls, and calls of unknown price; only an agent takes more time"
    )]
    ForAgents,
    #[error("{0} has no budget of {1}, so there is nothing to add to")]
    NotLimited(WorkflowId, &'static str),
    #[error(transparent)]
    Call(#[from] CallError),
}

impl MoreBudget {
    /// As the signal says it.
    pub(crate) fn told(&self) -> Value {
        let MoreBudget { tokens, cost_micros, calls, wall_ms, allow_unpriced } = self;
        json!({ "tokens": tokens, "cost_micros": cost_micros, "calls": calls, "wall_ms": wall_ms,
            "allow_unpriced": allow_unpriced })
    }

    /// Nothing, or 0 of everything, is no top-up.
    pub(crate) fn adds_something(&self) -> bool {
        let MoreBudget { tokens, cost_micros, calls, wall_ms, allow_unpriced } = *self;
        allow_unpriced || [tokens, cost_micros, calls, wall_ms].into_iter().flatten().any(|more| more > 0)
    }

    fn is_for_agents(&self) -> bool {
        self.wall_ms.is_some()
    }

    /// What is asked for and not limited, by what a supervisor says of its budget.
    fn not_limited(&self, budget: &Value) -> Option<&'static str> {
        let limits = &budget["limits"];
        let asked = [
            ("tokens", self.tokens.is_some(), &limits["tokens"]),
            ("cost", self.cost_micros.is_some() || self.allow_unpriced, &limits["cost"]),
            ("calls", self.calls.is_some(), &limits["llm_calls"]),
        ];
        asked.into_iter().find(|(_, asked, limit)| *asked && limit.is_null()).map(|(what, ..)| what)
    }
}

/// Gives a run more, and lets it go on where its own budget was what it waited for.
pub(crate) async fn top_up(
    backend: &dyn Backend,
    run: &Target,
    more: &MoreBudget,
    (by, key): (Option<&Identity>, Option<&RequestId>),
) -> Result<ToppedUp, NoTopUp> {
    if !more.adds_something() {
        return Err(NoTopUp::Nothing);
    }
    let info = backend.describe(run.clone()).await?.info;
    let id = || info.workflow_id.clone();
    let is_supervisor = info.workflow_type.as_str() == SUPERVISOR;
    if info.workflow_type.as_str() != AGENT && !is_supervisor {
        return Err(NoTopUp::HasNone(id()));
    }
    if is_supervisor && more.is_for_agents() {
        return Err(NoTopUp::ForAgents);
    }
    let ask = |query: &str| backend.query(run.clone(), QueryName::of(query), Payload::null());
    let (mut waits, mut too_little) = (false, false);
    if is_supervisor {
        let budget = ask("budget").await?.to_json();
        if let Some(what) = more.not_limited(&budget) {
            return Err(NoTopUp::NotLimited(id(), what));
        }
        too_little = spent::stays_used_up(&budget, more);
        // Whoever gives it more wants it to go on.
        waits = ask("waiting").await.is_ok_and(|entries| spent::pauses(&entries.to_json()));
    }
    send(backend, run, (SIGNAL_TOP_UP, more.told()), (by, key.cloned())).await?;
    if waits {
        let resume = json!({ "reason": "its budget was raised", "requested_by": by });
        let key = key.and_then(|key| RequestId::new(format!("{key}/resume")).ok());
        send(backend, run, (control::RESUME, resume), (by, key)).await?;
    }
    Ok(ToppedUp { info, resumed: waits, too_little })
}

async fn send(
    backend: &dyn Backend,
    run: &Target,
    (name, input): (&'static str, Value),
    (by, request_id): (Option<&Identity>, Option<RequestId>),
) -> Result<(), CallError> {
    let invalid = |why: PayloadError| Rejection::Invalid { what: "budget".into(), why: why.to_string() };
    let input = Payload::encode(&input).map_err(invalid)?;
    let signal = SignalRequest { name: SignalName::of(name), input, identity: by.cloned(), request_id };
    backend.signal(run.clone(), signal).await
}
