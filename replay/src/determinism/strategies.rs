//! From what a test says about a workflow to strategies for whole plans.
//!
//! Invariant: a plan is drawn in one go from one seed, its steps first, so that a failure is made small by dropping steps
//! before anything else. Which kinds of steps a plan has at all is drawn for each plan (swarm): many faults at once hide
//! each other.

use bosun_engine::*;
use proptest::collection::vec;
use proptest::prelude::*;

use super::steps::Possible;
use crate::simulate::{LifePlan, LifeStep};

/// What is drawn for a plan.
#[derive(Clone)]
pub(crate) struct Drawn {
    pub(super) workflow_type: WorkflowType,
    pub(super) input: BoxedStrategy<Payload>,
    pub(super) results: Vec<(ActivityType, BoxedStrategy<ActivityOutcome>)>,
    pub(super) other_results: Option<BoxedStrategy<ActivityOutcome>>,
    pub(super) children: Vec<(WorkflowType, BoxedStrategy<CloseOutcome>)>,
    pub(super) signals: Vec<(SignalName, BoxedStrategy<Payload>)>,
    pub(super) updates: Vec<(UpdateName, BoxedStrategy<Payload>)>,
    pub(super) queries: Vec<(QueryName, Payload)>,
    pub(super) deploys: bool,
    pub(super) steps_max: usize,
}

/// Results of an activity as tests give them, with failures of both kinds now and then.
pub(super) fn with_failures(results: BoxedStrategy<Payload>) -> BoxedStrategy<ActivityOutcome> {
    let failed = |retry: bool| {
        let failure = Failure::application("Simulated", "the simulated activity failed");
        ActivityOutcome::Failed(if retry { failure } else { failure.non_retryable() })
    };
    prop_oneof![
        6 => results.prop_map(ActivityOutcome::Completed),
        1 => Just(failed(true)),
        1 => Just(failed(false)),
    ]
    .boxed()
}

/// Any JSON, for code whose types are not known.
pub(super) fn any_json() -> BoxedStrategy<Payload> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        (-3_i64..1_000).prop_map(Into::into),
        prop_oneof![Just("ok"), Just("fail"), Just("")].prop_map(Into::into),
    ];
    let json = leaf.prop_recursive(2, 8, 3, |inside| {
        let key = prop_oneof![Just("ok"), Just("id"), Just("value")];
        prop_oneof![
            vec(inside.clone(), 0..3).prop_map(serde_json::Value::Array),
            vec((key, inside), 0..3).prop_map(|fields| {
                fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect::<serde_json::Map<_, _>>().into()
            }),
        ]
    });
    json.prop_map(|value| Payload::encode(&value).unwrap_or_default()).boxed()
}

impl Drawn {
    pub(super) fn plans(&self) -> BoxedStrategy<LifePlan> {
        let workflow_type = self.workflow_type.clone();
        let queries = self.queries.clone();
        let slots = prop_oneof![3 => Just(0_u8), 1 => 1_u8..4];
        let values = (
            pools(&self.results, 1..5),
            self.other_results.clone().map_or(Just(Vec::new()).boxed(), |any| vec(any, 1..5).boxed()),
            pools(&self.children, 1..4),
            pools(&self.signals, 1..3),
            pools(&self.updates, 1..3),
        );
        (self.steps(), self.input.clone(), slots, values)
            .prop_map(move |(steps, input, slots, (results, other_results, children, signals, updates))| {
                let mut plan = LifePlan::new(workflow_type.as_str(), input);
                plan.results = results.into_iter().collect();
                plan.other_results = other_results;
                plan.children = children.into_iter().collect();
                plan.signals = flat(signals);
                plan.updates = flat(updates);
                plan.queries = queries.clone();
                plan.slots = slots;
                plan.steps = steps;
                plan
            })
            .boxed()
    }

    pub(super) fn possible(&self) -> Possible {
        Possible {
            signals: !self.signals.is_empty(),
            queries: !self.queries.is_empty(),
            updates: !self.updates.is_empty(),
            deploys: self.deploys,
        }
    }

    fn steps(&self) -> BoxedStrategy<Vec<LifeStep>> {
        let (possible, most) = (self.possible(), self.steps_max);
        any::<u32>().no_shrink().prop_flat_map(move |mask| vec(possible.strategy(mask), 0..=most)).boxed()
    }
}

/// A few values for each name.
fn pools<N, V>(named: &[(N, BoxedStrategy<V>)], size: std::ops::Range<usize>) -> BoxedStrategy<Vec<(N, Vec<V>)>>
where
    N: Clone + std::fmt::Debug + 'static,
    V: std::fmt::Debug + 'static,
{
    named
        .iter()
        .map(|(name, values)| (Just(name.clone()), vec(values.clone(), size.clone())).boxed())
        .collect::<Vec<_>>()
        .boxed()
}

fn flat<N: Clone, V>(pools: Vec<(N, Vec<V>)>) -> Vec<(N, V)> {
    pools.into_iter().flat_map(|(name, values)| values.into_iter().map(move |value| (name.clone(), value))).collect()
}
