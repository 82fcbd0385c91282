//! How a run below ended, by its own account: read once, and then asked for the answer and for the bill.
//!
//! Invariant: what a run below says that it spent is charged, whether it completed, failed or was cancelled, and whether or
//! not the rest of it can be read; what it does not know, or nobody can read, is unknown and not 0. It decides nothing: the
//! account and the parts of the run do.

use std::collections::BTreeMap;

use bosun_engine::{Failure, FailureKind, Payload};
use serde::Deserialize;

use super::SupervisorOutput;
use crate::agent::AgentOutput;
use crate::agent::ledger::{Tally, UnknownUsage};
use crate::agent::spec::Share;
use crate::supervisor::core::account::Spent;
use crate::supervisor::core::call_context::of_its_kind;

/// What a run below leaves at its end.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum ChildEnd {
    Agent(Box<AgentOutput>),
    Supervisor(Box<SupervisorOutput>),
    /// No report of either; only what it spent is looked for.
    Bill(ChildBill),
    /// Something that is no report.
    Unreadable(serde::de::IgnoredAny),
    /// It left nothing.
    #[serde(skip)]
    Nothing,
}

/// What a report says that the run spent: an agent says it in a part of its report, a supervisor in the report itself.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ChildBill {
    spent: Option<BillItems>,
    unknown: UnknownUsage,
    /// Of an agent, also the attempts that were cut: each is a call, and no step.
    #[serde(deserialize_with = "of_its_kind")]
    by_model: Option<BTreeMap<String, Tally>>,
    #[serde(flatten)]
    own: BillItems,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default)]
struct BillItems {
    tokens: u64,
    cost_micros: u64,
    calls: u64,
    steps: u64,
    unpriced_calls: u64,
}

impl ChildEnd {
    pub(super) fn of(result: &Result<Payload, Failure>) -> ChildEnd {
        match result {
            Ok(payload) => ChildEnd::read(payload),
            Err(failure) => ChildEnd::of_failure(failure),
        }
    }

    fn read(payload: &Payload) -> ChildEnd {
        match payload.to_json() {
            serde_json::Value::Null => ChildEnd::Nothing,
            report => serde_json::from_value(report).unwrap_or(ChildEnd::Unreadable(serde::de::IgnoredAny)),
        }
    }

    /// The outermost details of a failure and its causes; of several, those that are an agent's report.
    fn of_failure(failure: &Failure) -> ChildEnd {
        let chain = std::iter::successors(Some(failure), |failure| failure.cause.as_deref());
        let mut left = chain.filter_map(Failure::details).map(ChildEnd::read);
        let first = left.next().unwrap_or(ChildEnd::Nothing);
        match first {
            ChildEnd::Agent(_) => first,
            _ => left.find(|end| matches!(end, ChildEnd::Agent(_))).unwrap_or(first),
        }
    }

    /// What it spent. A run that was lost without a word may have spent all of its share: `lost` is that share, and where it
    /// had none of money nobody knows.
    pub(super) fn spent(&self, lost: Option<Share>) -> Spent {
        match self {
            ChildEnd::Agent(output) => Spent {
                tokens: output.spent.tokens,
                cost_micros: output.spent.cost_micros,
                calls: output.spent.steps.max(calls_in(&output.by_model)),
                unpriced_calls: output.unknown.unpriced_calls,
            },
            ChildEnd::Supervisor(report) => {
                let SupervisorOutput { tokens, cost_micros, calls, unpriced_calls, .. } = **report;
                Spent { tokens, cost_micros, calls, unpriced_calls }
            }
            ChildEnd::Bill(bill) => {
                let BillItems { tokens, cost_micros, calls, steps, unpriced_calls } = bill.spent.unwrap_or(bill.own);
                let unpriced_calls = unpriced_calls.max(bill.unknown.unpriced_calls);
                let told = bill.by_model.as_ref().map_or(0, calls_in);
                Spent { tokens, cost_micros, calls: calls.max(steps).max(told), unpriced_calls }
            }
            ChildEnd::Unreadable(_) => Spent { calls: 1, unpriced_calls: 1, ..Spent::default() },
            ChildEnd::Nothing => {
                let Share { tokens, cost_micros } = lost.unwrap_or_default();
                let unpriced_calls = u64::from(lost.is_some() && cost_micros.is_none());
                Spent { tokens: tokens.unwrap_or(0), cost_micros: cost_micros.unwrap_or(0), calls: 1, unpriced_calls }
            }
        }
    }
}

/// The calls of all models, with those attempts that were cut.
fn calls_in(by_model: &BTreeMap<String, Tally>) -> u64 {
    by_model.values().fold(0, |sum, one| sum.saturating_add(one.calls))
}

/// Whether the run ended without having had a chance to say anything.
pub(super) fn is_lost(result: &Result<Payload, Failure>) -> bool {
    result.as_ref().is_err_and(|failure| {
        matches!(failure.root().kind, FailureKind::Terminated | FailureKind::Timeout { .. } | FailureKind::WorkerLost)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// An attempt that was cut is a call that may have been paid for, and no step of its agent.
    #[test]
    fn attempts_that_were_cut_are_calls() {
        let by_model = json!({ "m": { "calls": 3, "tokens": 30, "cost_micros": 3, "unpriced_calls": 0 } });
        let spent = json!({ "steps": 1, "tool_calls": 0, "tokens": 30, "cost_micros": 3 });
        let output = json!({ "name": "a", "stop": "completed", "text": "", "spent": spent, "unpriced_calls": 0,
            "estimated_calls": 0, "by_model": by_model, "compactions": 0, "refusals": 0 });
        let bill = json!({ "spent": spent, "by_model": by_model });
        for (report, is_agent) in [(output, true), (bill, false)] {
            let end = ChildEnd::of(&Ok(Payload::encode(&report).unwrap()));
            assert_eq!(matches!(end, ChildEnd::Agent(_)), is_agent);
            assert_eq!(end.spent(None).calls, 3);
        }
    }
}
