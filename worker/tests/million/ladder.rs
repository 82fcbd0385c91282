//! A small state machine that climbs arbitrary rungs one by one: the other form of workflow, which has snapshots.
//!
//! Invariant: it ends, or waits for a signal. Which rungs there are is its input.

use std::time::Duration;

use bosun_engine::workflow::{Cx, StateMachine, WorkflowEvent, WorkflowRegistry};
use bosun_engine::{ActivityOptions, ChildWorkflowOptions, Failure, RetryPolicy, Seq};
use proptest::collection::vec;
use proptest::prelude::*;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub(crate) const KIND: &str = "ladder";

pub(crate) fn code() -> WorkflowRegistry {
    WorkflowRegistry::new().state_machine::<Ladder>()
}

pub(crate) fn arb_ladder() -> BoxedStrategy<Value> {
    let leaf = prop_oneof![
        3 => prop_oneof![Just("a"), Just("b"), Just("c")].prop_map(|name| json!({ "Activity": name })),
        2 => prop_oneof![Just(0_u64), Just(1), Just(60)].prop_map(|seconds| json!({ "Timer": seconds })),
        1 => Just(json!("Signal")),
    ];
    let child = vec(leaf.clone(), 1..3).prop_map(|rungs| json!({ "Child": rungs }));
    vec(prop_oneof![5 => leaf, 1 => child], 1..5).prop_map(Value::Array).boxed()
}

#[derive(Debug, Clone, Serialize, Deserialize)]
enum Rung {
    Activity(String),
    Timer(u64),
    Signal,
    Child(Vec<Rung>),
}

#[derive(Serialize, Deserialize)]
struct Ladder {
    rungs: Vec<Rung>,
    at: usize,
    waits_for: Option<Seq>,
    signals: u32,
    seen: Vec<Value>,
}

impl Ladder {
    /// Climbs until it must wait.
    fn climb(&mut self, cx: &mut Cx<'_>) {
        self.waits_for = match self.rungs.get(self.at) {
            None => return cx.complete(&self.seen),
            Some(Rung::Activity(name)) => {
                let retry_policy = Some(RetryPolicy { maximum_attempts: 3, ..RetryPolicy::default() });
                let options =
                    ActivityOptions { retry_policy, ..ActivityOptions::start_to_close(Duration::from_secs(10)) };
                Some(cx.schedule_activity(name.as_str(), &self.at, options))
            }
            Some(Rung::Timer(seconds)) => Some(cx.start_timer(Duration::from_secs(*seconds))),
            Some(Rung::Child(rungs)) => {
                let id = format!("{}/{}", cx.run_id(), self.at);
                Some(cx.start_child(KIND, id.as_str(), rungs, ChildWorkflowOptions::default()))
            }
            Some(Rung::Signal) if self.signals > 0 => {
                self.signals -= 1;
                self.at += 1;
                return self.climb(cx);
            }
            Some(Rung::Signal) => None,
        };
    }

    fn next(&mut self, cx: &mut Cx<'_>, saw: Value) {
        self.seen.push(saw);
        self.at += 1;
        self.climb(cx);
    }
}

impl StateMachine for Ladder {
    const TYPE: &'static str = KIND;
    type Input = Vec<Rung>;
    type Output = Vec<Value>;

    fn start(rungs: Vec<Rung>, cx: &mut Cx<'_>) -> Result<Self, Failure> {
        let mut ladder = Ladder { rungs, at: 0, waits_for: None, signals: 0, seen: Vec::new() };
        ladder.climb(cx);
        Ok(ladder)
    }

    fn on_event(&mut self, event: WorkflowEvent, cx: &mut Cx<'_>) -> Result<(), Failure> {
        match event {
            WorkflowEvent::ActivityResolved { result, .. } | WorkflowEvent::ChildResolved { result, .. } => {
                let saw = result?.decode().unwrap_or_default();
                self.next(cx, saw);
            }
            WorkflowEvent::TimerFired { seq } if self.waits_for == Some(seq) => self.next(cx, Value::Null),
            WorkflowEvent::Signal(_) => {
                self.signals += 1;
                if self.waits_for.is_none() {
                    self.climb(cx);
                }
            }
            WorkflowEvent::CancelRequested { .. } => cx.cancel(None),
            _ => {}
        }
        Ok(())
    }
}
