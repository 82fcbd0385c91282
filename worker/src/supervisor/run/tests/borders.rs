//! Random specs of every family and preset that go on in new runs as often as they can: the same report and the same calls as
//! in one run (promise: a supervisor that continues as new loses nothing and does nothing twice).
//!
//! Invariant: nothing differs but the limit. A worker that dies, and a person who holds the run for a while, change nothing of
//! that. Where a person cancels it, what is under way at that time may differ: then nothing is done twice, and what the report
//! says to be done was done.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::claims::{Outside, lives};
use super::talks::talks;
use crate::scene::kit::*;
use crate::supervisor::run::SUPERVISOR;
use crate::supervisor::run::again::approvals_as_expert;

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

/// A cancelled run ends in many pieces as in one: each call is made once, and what a plan reports as done was.
fn is_cancelled_once(many: &SceneRun) -> Result<(), TestCaseError> {
    let (report, made) = (many.report(), calls(many));
    let mut once = made.clone();
    once.dedup();
    prop_assert_eq!(&made, &once, "a call is made once");
    let of_plan = made.iter().any(|call| call.contains("execute/"));
    let done = |task: &&Value| of_plan && task["status"] == "completed" && task["attempts"] != 0;
    for task in report["tasks"].as_array().into_iter().flatten().filter(done) {
        let begins = format!("execute/{}/", task["task_id"].as_str().unwrap_or_default());
        prop_assert!(made.iter().any(|call| call.contains(&begins)), "{task:#} of {made:?}");
    }
    Ok(())
}

/// The same in one run and in many, as far as it may be.
fn judged(outside: Outside, one: &SceneRun, many: &SceneRun) -> Result<(), TestCaseError> {
    match outside {
        Outside::Nothing | Outside::Killed(_) | Outside::Paused(_) | Outside::TakenOver(_) => is_the_same(one, many),
        Outside::Cancelled(_) => is_cancelled_once(many),
    }
}

proptest! {
    #![proptest_config(cases(60))]

    #[test]
    fn plans_end_in_many_runs_as_in_one(mut life in lives(), most in 1..40u64) {
        life.outside = life.outside.between_answers();
        let limited = life.play_with(&format!("limits: {{ history_events: {most} }}"));
        judged(life.outside, &life.play_with(""), &limited)?;
    }

    #[test]
    fn talks_end_in_many_runs_as_in_one(mut talk in talks(), most in 1..40u64) {
        talk.outside = talk.outside.between_answers();
        let limited = talk.play_with(&format!("limits: {{ history_events: {most} }}"));
        judged(talk.outside, &talk.play_with(""), &limited)?;
    }
}

/// What an expert would not have been asked is told of the whole chain, as of one run; of a part of it, that it is one.
#[test]
fn what_trust_would_have_saved_is_told_of_all_runs() {
    let play = |limits: &str| {
        let task = |id: &str, after: &str| json!({ "id": id, "goal": id, "agent": "w", "action": "publish", "deps": after.split_terminator(',').collect::<Vec<_>>() });
        let tasks = [task("a", ""), task("b", "a"), task("c", "b")];
        let spec = format!(
            "preset: shannon-dag\nname: asks\nobjective: o\nagents: [{{ name: w }}]\n{limits}hitl: {{ mode: human_in_the_loop }}\n"
        );
        let ann = || Act::Do(json!({ "do": "approve", "by": "ann", "after": 1 }));
        let asked = || json!({ "approval": "publish" });
        let scene = SceneText::new(&spec).world(json!([{ "on": "plan", "say": { "tasks": tasks } },
            { "on": "execute_worker", "say": { "result": "done", "confidence": 0.9 } }, { "on": "synthesize", "say": "all" }]));
        scene.once(asked(), ann()).once(asked(), ann()).once(asked(), ann()).straight()
    };
    let saved = |turns: &[bosun_engine::Turn]| approvals_as_expert(turns).map_err(|why| why.to_string());
    let (one, many) = (play("").turns(), play("limits: { history_events: 12 }\n").turns());
    let whole = saved(&one).unwrap();
    assert_eq!(whole.asked, 3);
    assert_eq!(saved(&many).unwrap(), whole);
    let is_start = |turn: &bosun_engine::Turn| {
        turn.events.iter().any(|event| matches!(event, bosun_engine::EventKind::WorkflowExecutionStarted(_)))
    };
    let starts: Vec<usize> = many.iter().enumerate().filter(|(_, turn)| is_start(turn)).map(|(at, _)| at).collect();
    assert!(starts.len() > 2, "{starts:?}");
    let first = saved(&many[..starts[1]]).unwrap_err();
    assert!(first.starts_with("the run goes on in a new one"), "{first}");
    let last = saved(&many[starts[1]..]).unwrap_err();
    assert!(last.starts_with("another run goes on in this one"), "{last}");
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
