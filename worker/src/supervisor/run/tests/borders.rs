//! Random specs of every family and preset that go on in new runs as often as they can: the same report and the same calls as
//! in one run (promise: a supervisor that continues as new loses nothing and does nothing twice).
//!
//! Invariant: nothing differs but the limit. Where a person comes in at a time, what is under way then may differ, so that
//! only lives are drawn in which nobody does; a worker that dies is one of them.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::claims::{Outside, lives};
use super::talks::talks;
use crate::scene::kit::*;
use crate::supervisor::run::SUPERVISOR;

/// What a report says, without its times.
fn told(run: &SceneRun) -> Value {
    let report = run.report();
    let task = |task: &Value| {
        json!([task["task_id"], task["status"], task["attempts"], task["brief"], task["error"], task["agent"]])
    };
    let tasks: Vec<Value> = report["tasks"].as_array().into_iter().flatten().map(task).collect();
    let keys = ["status", "success", "error", "code", "reason", "summary", "errors", "final_result", "tokens", "calls"];
    let of_run: Vec<&Value> = keys.iter().map(|key| &report[*key]).collect();
    json!({ "run": of_run, "tasks": tasks })
}

fn calls(run: &SceneRun) -> Vec<String> {
    let mut calls = run.calls.clone();
    calls.sort();
    calls
}

/// The same in one run and in many.
fn is_the_same(one: &SceneRun, many: &SceneRun) -> Result<(), TestCaseError> {
    prop_assert!(one.noted("RunContinued").is_empty());
    let (first, then) = (told(one), told(many));
    prop_assert!(first == then, "in one run {first:#}\nin many {then:#}\ncalls {:?}\n{:?}", one.calls, many.calls);
    prop_assert_eq!(calls(one), calls(many));
    Ok(())
}

fn nobody_comes(outside: Outside) -> bool {
    matches!(outside, Outside::Nothing | Outside::Killed(_))
}

proptest! {
    #![proptest_config(cases(60))]

    #[test]
    fn plans_end_in_many_runs_as_in_one(life in lives(), most in 1..40u64) {
        prop_assume!(nobody_comes(life.outside));
        let limited = life.play_with(&format!("limits: {{ history_events: {most} }}"));
        is_the_same(&life.play_with(""), &limited)?;
    }

    #[test]
    fn talks_end_in_many_runs_as_in_one(talk in talks(), most in 1..40u64) {
        prop_assume!(nobody_comes(talk.outside));
        let limited = talk.play_with(&format!("limits: {{ history_events: {most} }}"));
        is_the_same(&talk.play_with(""), &limited)?;
    }
}

/// A state that other rules have made is not gone on from: the run is held, and the card says what to do.
#[test]
fn a_state_of_other_rules_is_held_with_a_card() {
    use bosun_engine::workflow::WorkflowRegistry;
    use bosun_engine::*;

    let spec = crate::supervisor::spec::read_spec_value(json!({ "preset": "flow-coordinator", "objective": "o",
        "agents": [{ "name": "worker" }] }))
    .unwrap();
    let mut input = json!(crate::supervisor::run::SupervisorInput::new(spec.resolve().unwrap()));
    for (continued, why) in [
        (json!({ "rules": 6, "from": "r", "timers": {}, "state": {} }), "begun by the supervisor rules number 6"),
        (
            json!({ "rules": super::super::number::RULES, "from": "r", "timers": {}, "state": { "odd": 1 } }),
            "left a state that this program cannot",
        ),
    ] {
        input["continued"] = continued;
        let run = RunId([3; 16]);
        let request = StartWorkflow::new(WorkflowType::of(SUPERVISOR), WorkflowId::of("w"));
        let first = request.input(Payload::encode(&input).unwrap()).first_event(run, Timestamp(0));
        let registry = crate::supervisor::run::register(WorkflowRegistry::new());
        let mut driver = registry.create(&first, run).unwrap();
        let job = Job::InitializeWorkflow(Box::new(first));
        let history = HistorySize::default();
        driver.activate(Activation { at: Timestamp(1), run_id: run, history, job, markers: Markers::Fresh });
        let held = driver.defect().map(|defect| defect.to_string()).unwrap_or_default();
        assert!(held.contains(why), "{held}");
    }
}
