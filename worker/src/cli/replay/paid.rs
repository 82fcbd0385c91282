//! What a run had spent when one of its events had happened.
//!
//! Invariant: of a supervisor and of an agent it is what their own account said then, which knows of all below them; of any
//! other run, the answers of models in its history up to that event. A price that is not known is told, and never counted as
//! nothing. It asks nobody.

use std::collections::BTreeSet;

use bosun_engine::{Event, EventId, EventKind, Seq};
use bosun_replay::{Moment, Timeline};
use serde::Serialize;

use crate::agent::AGENT;
use crate::capability::model::{MODEL, ModelOutput};
use crate::cli::budget::dollars;
use crate::supervisor::run::SUPERVISOR;

/// All that was spent until a moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(super) struct PaidSoFar {
    calls: u64,
    tokens: u64,
    cost_micros: u64,
    unpriced_calls: u64,
}

/// What the answers of models in a history come to, answer by answer: read once.
#[derive(Debug, Default)]
pub(super) struct PaidAnswers(Vec<(EventId, PaidSoFar)>);

impl PaidAnswers {
    pub(super) fn of(events: &[Event]) -> PaidAnswers {
        let mut asked: BTreeSet<Seq> = BTreeSet::new();
        let (mut sum, mut all) = (PaidSoFar::default(), Vec::new());
        for event in events {
            match &event.kind {
                EventKind::ActivityTaskScheduled(task) if task.activity_type.as_str() == MODEL => {
                    asked.insert(task.seq);
                }
                EventKind::ActivityTaskCompleted { seq, result, .. } if asked.contains(seq) => {
                    // What is no answer of a model was not paid as one.
                    let Ok(output) = result.decode::<ModelOutput>() else { continue };
                    let (calls, tokens, micros) = output.paid();
                    sum.calls = sum.calls.saturating_add(calls);
                    sum.tokens = sum.tokens.saturating_add(tokens);
                    match micros {
                        Some(micros) => sum.cost_micros = sum.cost_micros.saturating_add(micros),
                        None => sum.unpriced_calls = sum.unpriced_calls.saturating_add(calls),
                    }
                    all.push((event.id, sum));
                }
                _ => {}
            }
        }
        PaidAnswers(all)
    }

    fn until(&self, event: EventId) -> PaidSoFar {
        let answered = self.0.partition_point(|(at, _)| *at <= event);
        answered.checked_sub(1).map_or_else(PaidSoFar::default, |last| self.0[last].1)
    }

    /// What the run had spent at this moment; nothing where it spends nothing at all.
    pub(super) fn at(&self, timeline: &Timeline<'_>, moment: &Moment) -> Option<PaidSoFar> {
        let answers = self.until(moment.event.id);
        let place = match timeline.history().started().workflow_type.as_str() {
            SUPERVISOR => "/account/balance/spent",
            AGENT => "/agent/ledger/spent",
            _ => return (!self.0.is_empty()).then_some(answers),
        };
        let Some(account) = moment.state.as_ref().and_then(|state| state.pointer(place)) else {
            return (!self.0.is_empty()).then_some(answers);
        };
        let of = |name: &str| account[name].as_u64().unwrap_or_default();
        // An agent counts its calls of models as steps.
        let calls = of("calls").max(of("steps") + of("tool_calls"));
        Some(PaidSoFar { calls, tokens: of("tokens"), cost_micros: of("cost_micros"), ..answers })
    }
}

impl std::fmt::Display for PaidSoFar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let PaidSoFar { calls, tokens, cost_micros, unpriced_calls } = self;
        let word = if *calls == 1 { "call" } else { "calls" };
        write!(f, "{calls} {word}, {tokens} tokens, {}", dollars(*cost_micros))?;
        match unpriced_calls {
            0 => Ok(()),
            1 => f.write_str(" and a call of unknown price"),
            many => write!(f, " and {many} calls of unknown price"),
        }
    }
}
