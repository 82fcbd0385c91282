//! Runs that end as canceled by their own decision, by the shipped binary: nobody asked the engine to cancel them, and they
//! can be replayed, exported, forked and shown like any other. And what a closed run's result is when nobody works.

use std::path::Path;
use std::time::{Duration, Instant};

use bosun_tests::harness::binary::{run, said};
use bosun_tests::harness::crash::READY_MAX;
use bosun_tests::harness::process::{Program, WorkerProcess};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(120);

#[track_caller]
fn did(data: &Path, words: &[&str]) -> String {
    let output = run(data, words);
    assert!(output.status.success(), "{words:?}: {}", said(&output));
    said(&output)
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !done() {
        assert!(begin.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(30));
    }
}

fn canceled(data: &Path, query: &str) -> Vec<String> {
    let all = listed(data, query).into_iter();
    all.filter(|(_, status)| status == "Canceled").map(|(id, _)| id).collect()
}

/// Workflow ids with their status.
fn listed(data: &Path, query: &str) -> Vec<(String, String)> {
    let told = run(data, &["list", "--query", query, "-o", "json"]);
    let told: Value = serde_json::from_slice(&told.stdout).unwrap_or_default();
    let text = |row: &Value, key: &str| row[key].as_str().unwrap_or_default().to_owned();
    let rows = told["workflows"].as_array().into_iter().flatten();
    rows.map(|row| (text(row, "workflow_id"), text(row, "status"))).collect()
}

/// Everything that reads a history reads this one.
fn is_read(data: &Path, id: &str, dir: &Path, by_itself: bool) {
    let history = did(data, &["show", id, "-o", "jsonl"]);
    assert!(history.contains("WorkflowExecutionCanceled"), "{history}");
    let asked = history.contains(r#""WorkflowExecutionCancelRequested""#);
    assert!(!(by_itself && asked), "it ended by itself: {history}");
    did(data, &["replay", "show", id]);
    did(data, &["replay", "explain", id]);
    did(data, &["replay", "what-if", id]);
    did(data, &["replay", "check", "--query", &format!("WorkflowId = '{id}'")]);
    let file = dir.join("exported.json");
    did(data, &["export", id, "--out", file.to_str().unwrap(), "--force"]);
    did(data, &["replay", "check", file.to_str().unwrap()]);
    did(data, &["diff", id, file.to_str().unwrap()]);
    let last = history.lines().count().to_string();
    did(data, &["fork", id, "--at", &last, "--id", &format!("fork-of-{id}"), "--dry-run"]);
}

const WAITS: &str = "
kind: supervisor
preset: shannon-supervisor
objective: two steps and a publication
planner: { script: [{ on: plan, say: { subtasks: [
  { id: look, description: look around }, { id: tell, description: tell it, action: publish it, deps: [look] }] } }] }
script: [{ on: synthesize, say: done }]
";

const REVIEWED: &str = "
kind: supervisor
preset: flow-supervisor
objective: write a note
planning: { approval: { required: true } }
agents: [{ name: writer }]
script:
  - { on: plan, say: { tasks: [{ id: t1, goal: write }] } }
  - { on: execute_worker, say: a note }
  - { on: synthesize, say: The note. }
";

const PARENT: &str = "
kind: supervisor
preset: flow-supervisor
objective: ask the team below
agents: [{ name: below, via: { supervisor: { file: waits.yaml } } }]
script:
  - { on: plan, say: { tasks: [{ id: t1, goal: do it below }] } }
  - { on: synthesize, say: done }
";

/// A signal, a person's no to the plan, and the deadline of a takeover: in each case the workflow decides that it is over.
#[test]
fn a_run_that_ends_as_canceled_by_itself_can_be_read() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let (_worker, _) = WorkerProcess::start(&Program::bosun_worker().unwrap(), &data, READY_MAX).unwrap();
    let spec = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (waits, reviewed) = (spec("waits.yaml", WAITS), spec("reviewed.yaml", REVIEWED));
    for (id, spec) in [("signaled", &waits), ("taken", &waits), ("denied", &reviewed)] {
        assert_eq!(run(&data, &["run", spec, "-w", id, "--no-wait"]).status.code(), Some(15), "{id} waits for people");
    }
    let parent = spec("parent.yaml", PARENT);
    run(&data, &["run", &parent, "-w", "above", "--timeout", "1s"]);
    let below = "ParentWorkflowId = 'above' AND WorkflowType = 'supervisor'";
    until("a child", || did(&data, &["count", "--query", below]).trim() == "1");
    did(&data, &["signal", "above", "cancel_v1", "reason=enough"]);
    did(&data, &["signal", "signaled", "cancel_v1", "reason=enough"]);
    let taken = r#"{"reason":"mine","requested_by":"ann","timeout":"100ms"}"#;
    did(&data, &["signal", "taken", "human_takeover_v1", "--input", taken]);
    did(&data, &["update", "denied", "approve_plan", "--input", r#"{"version":1,"approved":false,"comment":"no"}"#]);
    for id in ["signaled", "taken", "denied"] {
        until(id, || !canceled(&data, &format!("WorkflowId = '{id}'")).is_empty());
        is_read(&data, id, dir.path(), true);
    }
    // A child that is told itself, while its parent goes on, asks nobody.
    run(&data, &["run", &parent, "-w", "over", "--timeout", "1s"]);
    let told = "ParentWorkflowId = 'over' AND WorkflowType = 'supervisor'";
    until("another child", || did(&data, &["count", "--query", told]).trim() == "1");
    let child = listed(&data, told).remove(0).0;
    did(&data, &["signal", &child, "cancel_v1", "reason=enough"]);
    until("its end", || canceled(&data, told) == [child.clone()]);
    is_read(&data, &child, dir.path(), true);
    until("the child", || canceled(&data, below).len() == 1);
    until("its parent", || !canceled(&data, "WorkflowId = 'above'").is_empty());
    // The child may hear of its parent's end by a request as well.
    for (id, by_itself) in [(canceled(&data, below).remove(0), false), ("above".to_owned(), true)] {
        is_read(&data, &id, dir.path(), by_itself);
    }
}

/// The result of a closed run is the same with a worker and without one, however often it is asked for: the answer does not
/// race with the engine that opens and closes around it.
#[test]
fn the_result_of_a_closed_run_needs_no_worker() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let program = r#"{"steps":[{"return":"tea"}]}"#;
    did(&data, &["execute", "kitchen-sink", "-w", "closed", "--input", program]);
    for word in ["closed", "latest"] {
        for _ in 0..15 {
            assert_eq!(did(&data, &["result", word]).trim(), "tea");
            assert!(did(&data, &["describe", word]).contains("Completed"));
            assert!(did(&data, &["show", word]).contains("WorkflowExecutionCompleted"));
        }
    }
    assert_eq!(did(&data, &["result", "closed", "--no-follow-runs"]).trim(), "tea");
    did(&data, &["start", "kitchen-sink", "-w", "open", "--input", r#"{"steps":[{"wait_signal":{"name":"go"}}]}"#]);
    let open = run(&data, &["result", "open"]);
    assert!(!open.status.success() && said(&open).contains("has not closed yet"), "{}", said(&open));
}
