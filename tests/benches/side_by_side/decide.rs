//! The machine and the code alone: what one decision costs without a log, a thread or a disk, early and late in a run
//! (F08: it must not depend on how long the run has lived).

use std::time::Instant;

use bosun_engine::machine::{Environment, Execution, Limits};
use bosun_engine::*;

/// Nanoseconds for one step (an outcome decided, the next activity scheduled and started) of a run of `steps` steps:
/// over its first tenth, and over its last.
pub(crate) fn step_cost(workflow_type: &str, steps: u64) -> (f64, f64) {
    let registry = super::flows::workflows();
    let limits = Limits::default();
    let mut take_slot = |_: &ActivityType, _: &TaskQueue| true;
    let mut now = Timestamp(1);
    let input = Payload::encode(&steps).expect("json");
    let started = StartWorkflow::new(workflow_type.into(), "decided".into()).input(input);
    let run = RunId([1; 16]);
    let mut environment = Environment { now, build: BuildId(0), limits: &limits, take_slot: &mut take_slot };
    let (mut execution, first) =
        Execution::start(run, started.first_event(run, now), &registry, &mut environment).expect("a start");
    assert!(!first.is_empty());
    let result = Payload::encode(&"r".repeat(100)).expect("json");
    let tenth = steps / 10;
    let (mut early, mut late) = (0.0, 0.0);
    let mut begun = Instant::now();
    for seq in 1..=steps {
        if seq == steps - tenth + 1 {
            begun = Instant::now();
        }
        now = now.plus(std::time::Duration::from_micros(1));
        let outcome = ActivityOutcome::Completed(result.clone());
        let input = Input::ActivityOutcome { seq: Seq(seq), attempt: Attempt(1), outcome, identity: None };
        let mut environment = Environment { now, build: BuildId(0), limits: &limits, take_slot: &mut take_slot };
        let decision = execution.decide(input, &mut environment).expect("a decision");
        std::hint::black_box(&decision);
        if seq == tenth {
            early = begun.elapsed().as_nanos() as f64 / tenth as f64;
        }
        if seq == steps {
            late = begun.elapsed().as_nanos() as f64 / tenth as f64;
        }
    }
    assert!(execution.run().is_closed(), "the run has ended");
    (early, late)
}
