//! What the whole-engine simulation runs: arbitrary kitchen-sink programs and a state machine, several at a time.
//!
//! Invariant: a plan follows from a seed and from nothing else. The programs are valid; whether they end is theirs.

use std::time::Duration;

use bosun_engine::workflow::{Cx, StateMachine, WorkflowEvent, WorkflowRegistry};
use bosun_engine::*;
use bosun_replay::simulate::engine::EnginePlan;
use bosun_worker::examples;
use bosun_worker::examples::kitchen_sink::KITCHEN_SINK;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Gathers what signals and activities bring, as a state that is snapshotted; ends when it has enough.
#[derive(Debug, Serialize, Deserialize)]
pub struct Gatherer {
    wanted: usize,
    gathered: Vec<Value>,
    waiting: Vec<Seq>,
    nap: Option<Seq>,
}

impl Gatherer {
    fn go_on(&mut self, cx: &mut Cx<'_>) {
        if self.gathered.len() >= self.wanted && self.waiting.is_empty() && self.nap.is_none() {
            cx.complete(&self.gathered);
        }
    }
    fn schedule(&mut self, name: &str, input: &Value, cx: &mut Cx<'_>) {
        let options = ActivityOptions {
            heartbeat: Some(Duration::from_secs(5)),
            retry_policy: Some(RetryPolicy { maximum_attempts: 3, ..RetryPolicy::default() }),
            ..ActivityOptions::start_to_close(Duration::from_secs(10))
        };
        self.waiting.push(cx.schedule_activity(name, input, options));
    }
}

impl StateMachine for Gatherer {
    const TYPE: &'static str = "gatherer";
    type Input = usize;
    type Output = Vec<Value>;

    fn start(wanted: usize, cx: &mut Cx<'_>) -> Result<Self, Failure> {
        let mut machine = Gatherer { wanted, gathered: Vec::new(), waiting: Vec::new(), nap: None };
        machine.schedule("a", &json!("first"), cx);
        machine.nap = Some(cx.start_timer(Duration::from_secs(30)));
        Ok(machine)
    }

    fn on_event(&mut self, event: WorkflowEvent, cx: &mut Cx<'_>) -> Result<(), Failure> {
        match event {
            WorkflowEvent::ActivityResolved { seq, result } => {
                self.waiting.retain(|waiting| *waiting != seq);
                self.gathered.push(result.map_or(Value::Null, |value| value.to_json()));
            }
            WorkflowEvent::Signal(signal) => {
                self.gathered.push(signal.input.to_json());
                if self.gathered.len() < self.wanted {
                    self.schedule("b", &json!({ "after": self.gathered.len() }), cx);
                }
            }
            WorkflowEvent::TimerFired { seq } if self.nap == Some(seq) => self.nap = None,
            WorkflowEvent::CancelRequested { .. } => {
                cx.cancel(None);
                return Ok(());
            }
            _ => {}
        }
        self.go_on(cx);
        Ok(())
    }
}

/// The code: two versions that fit each other's histories.
pub fn code() -> WorkflowRegistry {
    examples::register(WorkflowRegistry::new()).state_machine::<Gatherer>()
}

/// A plan that runs these programs beside a gatherer.
pub fn plan(programs: &[Value]) -> EnginePlan {
    let payload = |value: &Value| Payload::raw_json(value.to_string());
    let mut plan = EnginePlan::new(code());
    plan.code.push(code().version("next"));
    let start = |kind: &str, id: &str, input: Payload| {
        let mut start = StartWorkflow::new(kind.into(), WorkflowId::of(id));
        start.input = input;
        start
    };
    // `other` is whom the programs signal and cancel.
    let ids = ["one", "other", "three", "four"];
    plan.starts = programs.iter().zip(ids).map(|(program, id)| start(KITCHEN_SINK, id, payload(program))).collect();
    plan.starts.push(start(Gatherer::TYPE, "gatherer", payload(&json!(3))));
    plan.activities = ["a", "b", "c"].map(ActivityType::of).into();
    let failed = |failure: Failure| ActivityOutcome::Failed(failure);
    plan.results = vec![
        ActivityOutcome::Completed(payload(&json!(1))),
        ActivityOutcome::Completed(payload(&json!({ "id": 7 }))),
        failed(Failure::application("Flaky", "try again")),
        failed(Failure::application("Broken", "do not").non_retryable()),
        ActivityOutcome::WillCompleteLater,
    ];
    plan.signals = vec![("go".into(), payload(&json!(1))), ("stop".into(), payload(&json!("x")))];
    plan.updates = vec![("set_var".into(), payload(&json!({ "name": "x", "value": 1 })))];
    plan.queries = vec![("vars".into(), Payload::null()), ("position".into(), Payload::null())];
    plan
}
