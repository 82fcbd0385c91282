//! One determinism test a preset, and what must hold of every run after every commit.

use std::collections::{BTreeMap, BTreeSet};

use bosun_engine::workflow::WorkflowRegistry;
use bosun_engine::{ActivityOutcome, EventKind, Failure, FailureKind, Marker, Payload};
use bosun_replay::determinism::{DeterminismTest, Report, armed};
use bosun_replay::simulate::View;
use bosun_worker::supervisor::run::{SUPERVISOR, SupervisorInput, register};
use bosun_worker::supervisor::spec::read_spec;
use bosun_worker::supervisor::{Actor, TaskStatus};
use serde_json::{Value, json};

use crate::acts;

/// Lives of each preset: what fits into the time that all tests have. `BOSUN_CASES` tries more.
const LIVES: u32 = 100;

pub(crate) fn input(preset: &str, more: &str) -> Value {
    let path = format!("{}/../fixtures/supervisors/presets/{preset}.yaml", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|why| panic!("{path}: {why}"));
    let file = read_spec(&path, &(text + more)).unwrap_or_else(|why| panic!("{why}"));
    json!(SupervisorInput::new(file.resolve().unwrap_or_else(|why| panic!("{why}"))))
}

/// What the activity `scripted` does.
fn scripted(input: &Payload) -> ActivityOutcome {
    let answer = &input.to_json()["answer"];
    match answer.get("say") {
        Some(value) => ActivityOutcome::Completed(Payload::encode(value).unwrap_or_default()),
        None => {
            let why = answer["fail"].as_str().unwrap_or("no answer");
            ActivityOutcome::Failed(Failure::application("ScriptedFailure", why).non_retryable())
        }
    }
}

fn kit(inputs: Vec<Value>, tasks: &[&'static str], agents: &[&'static str]) -> DeterminismTest {
    assert!(armed());
    let mut kit = DeterminismTest::new(register(WorkflowRegistry::new()), SUPERVISOR)
        .input(proptest::sample::select(inputs))
        .activity_answers("scripted", scripted)
        .invariant("a call is made once", calls_once)
        .invariant("a task that is over stays as it is", terminal_is_final)
        .invariant("a closed run has nothing under way", closed_is_over)
        .invariant("what is paused starts nothing", paused_starts_nothing)
        .lives(LIVES)
        .steps(24)
        .on_all_cores()
        .without_case_files();
    for (name, inputs) in acts::signals(tasks, agents) {
        kit = kit.signal(name, inputs);
    }
    for (name, inputs) in acts::updates(tasks, agents) {
        kit = kit.update(name, inputs);
    }
    for name in acts::QUERIES {
        kit = kit.query(name, &json!({ "task_id": tasks.first(), "agent_id": agents.first() }));
    }
    kit
}

/// The facts that a turn noted.
fn notes(event: &EventKind) -> Vec<Value> {
    match event {
        EventKind::MarkerRecorded(Marker::SideEffect { value, .. }) => {
            value.to_json().as_array().cloned().unwrap_or_default()
        }
        _ => Vec::new(),
    }
}

/// Calls scheduled and how they ended: again only after the worker was lost.
fn calls_once(run: &View<'_>) -> Result<(), String> {
    let (mut keys, mut again) = (BTreeMap::new(), BTreeSet::new());
    for event in run.events() {
        match event {
            EventKind::ActivityTaskScheduled(task) => {
                let key = task.input.to_json()["key"].as_str().unwrap_or_default().to_owned();
                if keys.values().any(|other| *other == key) && !again.remove(&key) {
                    return Err(format!("{key} is called twice"));
                }
                keys.insert(task.seq, key);
            }
            EventKind::ActivityTaskFailed { seq, failure, .. }
                if matches!(failure.root().kind, FailureKind::WorkerLost) =>
            {
                again.extend(keys.get(seq).cloned());
            }
            _ => {}
        }
    }
    Ok(())
}

/// By the facts noted: each change begins where the last one ended, and is in the table for who asked.
fn terminal_is_final(run: &View<'_>) -> Result<(), String> {
    let mut statuses: BTreeMap<String, TaskStatus> = BTreeMap::new();
    for note in run.events().flat_map(notes).filter(|note| note["kind"] == "TaskStatusChanged") {
        let data = &note["data"];
        let of = |key: &str| serde_json::from_value::<TaskStatus>(data[key].clone()).map_err(|why| why.to_string());
        let by = serde_json::from_value::<Actor>(data["by"].clone()).map_err(|why| why.to_string())?;
        let (task, from, to) = (data["task"].to_string(), of("from")?, of("to")?);
        if let Some(last) = statuses.insert(task.clone(), to)
            && last != from
        {
            return Err(format!("task {task} was {last}, and then changed from {from} to {to}"));
        }
        if from.is_terminal() || !from.may_become(to, by) {
            return Err(format!("task {task} changed from {from} to {to} by the {by}"));
        }
    }
    Ok(())
}

/// Whatever was scheduled has ended when the run is closed, or the close ended it: nothing may follow the close.
fn closed_is_over(run: &View<'_>) -> Result<(), String> {
    let Some(outcome) = run.outcome() else { return Ok(()) };
    let Some(state) = run.state() else { return Ok(()) };
    let open: Vec<String> = state["ledger"]["pending"]
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(_, pending)| pending.get("Timer").is_none())
        .map(|(seq, pending)| format!("{seq}: {pending}"))
        .collect();
    let tasks = state["carrier"]["graph"]["plan"]["tasks"].as_object();
    let running: Vec<&String> =
        tasks.into_iter().flatten().filter(|(_, task)| task["status"] == "running").map(|(id, _)| id).collect();
    match open.is_empty() && running.is_empty() {
        true => Ok(()),
        false => Err(format!("closed ({outcome:?}) with {open:?} under way, tasks {running:?} running")),
    }
}

/// Between the turn that notes a pause and the one that notes its end no attempt of a task begins.
fn paused_starts_nothing(run: &View<'_>) -> Result<(), String> {
    let mut held = false;
    for note in run.events().flat_map(notes) {
        match note["kind"].as_str().unwrap_or_default() {
            "Paused" | "HumanTookOver" => held = true,
            "Resumed" | "HumanReleased" | "CancelRequested" => held = false,
            "AttemptStarted" | "DecisionRequested" | "SpeakerSelected" if held => {
                return Err(format!("paused, and {} begins", note["data"]));
            }
            _ => {}
        }
    }
    Ok(())
}

const SHANNON: [&str; 4] = ["A", "B", "E", "F"];
/// People are asked before the plan starts, before tasks start, and before results count.
const PEOPLE: &str = "hitl: { approval: { timeout: 10m } }
planning: { approval: { required: true } }
";

/// G21: the book's analysis, with people at the plan or without; recruits, pauses, takeovers, cancellation.
#[test]
fn shannon_supervisors_keep_their_promises() {
    let inputs = vec![input("shannon-supervisor", ""), input("shannon-supervisor", PEOPLE)];
    tell("shannon-supervisor", &kit(inputs, &SHANNON, &["researcher", "analyst", "writer"]).run());
}

/// G21: iterations of review and planning.
#[test]
fn flow_supervisors_keep_their_promises() {
    tell("flow-supervisor", &kit(vec![input("flow-supervisor", "")], &["t1", "t2", "t3"], &["worker"]).run());
}

/// G21: the decider makes the plan by its tools.
#[test]
fn pydantask_supervisors_keep_their_promises() {
    tell("pydantask-llm", &kit(vec![input("pydantask-llm", "")], &["1", "2", "3"], &["researcher", "writer"]).run());
}

/// G21: agents that call agents.
#[test]
fn delegating_agents_keep_their_promises() {
    let kit = kit(vec![input("supyagent-delegation", "")], &["1"], &["assistant", "planner", "coder"]);
    tell("supyagent-delegation", &kit.run());
}

/// G21: a group chat.
#[test]
fn group_chats_keep_their_promises() {
    tell("autogen-groupchat", &kit(vec![input("autogen-groupchat", "")], &["1"], &["alice", "bob", "carol"]).run());
}

/// Prints past the capture of the test runner, so that figures are seen when nothing is wrong.
fn tell(preset: &str, report: &Report) {
    use std::io::Write;
    // Lives that all end alike would doubt nothing.
    for end in ["Completed", "Failed", "Canceled"] {
        assert!(report.lives < 100 || report.ends.contains_key(end), "no life of {preset} is {end}: {report}");
    }
    assert!(report.lives < 100 || report.rare.contains_key("attempt lost"), "{report}");
    // Figures that cannot be printed change nothing.
    let _ = writeln!(std::io::stderr(), "{preset}: {report}");
}
