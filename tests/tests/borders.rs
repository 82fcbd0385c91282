//! A supervisor goes on in new runs by itself while people and crashes come in between, by the shipped binary: who saw an
//! approval before the border answers it after, over `kill -9`, and nothing is done twice or asked twice.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::supervisor_cli::{PATIENCE, Runner, command, run, said, until_pending};

/// One task that a person is asked about, and a row of others that go on meanwhile.
fn spec() -> Value {
    let step = |n: u32| {
        let deps: Vec<String> = (n > 1).then(|| format!("s{}", n - 1)).into_iter().collect();
        json!({ "id": format!("s{n}"), "agent": "worker", "goal": format!("Step {n}"), "deps": deps })
    };
    let mut tasks: Vec<Value> = (1..=12).map(step).collect();
    tasks.push(
        json!({ "id": "send", "agent": "worker", "goal": "Send it", "action": "publish", "requires_approval": true }),
    );
    json!({
        "kind": "supervisor", "preset": "shannon-dag", "name": "border", "objective": "Write and send it",
        "limits": { "history_events": 12 }, "agents": [{ "name": "worker" }],
        "script": [{ "on": "plan", "say": { "tasks": tasks } },
            { "on": "execute_worker", "after": "100ms", "say": "done" }, { "on": "synthesize", "say": "all is done" }],
    })
}

/// The runs of the chain, as the list has them.
fn chain(data: &Path) -> Vec<Value> {
    let listed = run(data, &["list", "--query", "WorkflowId = 'border'", "-o", "jsonl"]);
    let text = String::from_utf8_lossy(&listed.stdout).into_owned();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

#[test]
fn a_supervisor_that_goes_on_in_new_runs_loses_nothing_over_kills() {
    let dir = tempfile::tempdir().unwrap();
    let (data, file) = (dir.path().join("data"), dir.path().join("border.yaml"));
    std::fs::write(&file, spec().to_string()).unwrap();
    let words = ["run", file.to_str().unwrap(), "-w", "border"];
    let start = || Runner(command(&data, &words).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let mut runner = start();
    let id = until_pending(&data);
    // Killed at other points of the way to a border, with the approval open all the time.
    for n in 0..8 {
        std::thread::sleep(Duration::from_millis(70 * n));
        runner.0.kill().unwrap();
        runner.0.wait().unwrap();
        runner = start();
        assert_eq!(until_pending(&data), id, "the same is asked still");
    }
    let begin = Instant::now();
    while chain(&data).len() < 3 {
        assert!(begin.elapsed() < PATIENCE, "it does not go on in new runs: {:#?}", chain(&data));
        std::thread::sleep(Duration::from_millis(100));
    }
    let first = id.split_once('/').unwrap().0.to_owned();
    let of_first = |row: &Value| row["run_id"] == first.as_str() && row["status"] == "ContinuedAsNew";
    assert!(chain(&data).iter().any(of_first), "the run that asked has gone on: {:#?}", chain(&data));

    let shown = said(&run(&data, &["approval", "show", &id]));
    assert!(shown.contains("publish"), "{shown}");
    let stale = json!({ "approval_id": id, "approved": true, "shown": "what was there before" }).to_string();
    let stale = said(&run(&data, &["update", "border", "respond_approval", "--input", &stale]));
    assert!(stale.contains("AnswerStale"), "{stale}");
    let approved = run(&data, &["approval", "approve", &id]);
    assert!(approved.status.success(), "{}", said(&approved));

    let result = said(&run(&data, &["result", "border"]));
    assert!(result.contains("all is done") && result.contains("13 of 13 tasks are done"), "{result}");
    let late = run(&data, &["approval", "reject", &id]);
    assert!(!late.status.success() && said(&late).contains("has approved it"), "{}", said(&late));

    let report = run(&data, &["query", "border", "report", "-o", "json"]);
    let report: Value = serde_json::from_slice(&report.stdout).unwrap();
    let report = &report["result"];
    for task in report["tasks"].as_array().unwrap() {
        assert_eq!(task["attempts"], 1, "{task}");
    }
    let runs = chain(&data);
    let statuses: BTreeSet<&str> = runs.iter().filter_map(|row| row["status"].as_str()).collect();
    assert_eq!(statuses, BTreeSet::from(["Completed", "ContinuedAsNew"]), "{runs:#?}");
    assert!(runs.iter().all(|row| row["first_run_id"] == first.as_str()), "{runs:#?}");
    let replayed = run(&data, &["replay", "check", "--query", "WorkflowId = 'border'", "--prefixes", "all"]);
    assert!(replayed.status.success(), "{}", said(&replayed));
}

/// Whoever waits for a run sees the work of all in which it goes on.
#[test]
fn what_is_waited_for_is_shown_over_the_border() {
    let dir = tempfile::tempdir().unwrap();
    let (data, file) = (dir.path().join("data"), dir.path().join("border.yaml"));
    let mut spec = spec();
    spec["script"][0]["say"]["tasks"].as_array_mut().unwrap().retain(|task| task["id"] != "send");
    std::fs::write(&file, spec.to_string()).unwrap();
    let output = run(&data, &["run", file.to_str().unwrap(), "-w", "border"]);
    let shown = said(&output);
    assert!(output.status.success(), "{shown}");
    assert!(chain(&data).len() > 2, "it has gone on in new runs: {:#?}", chain(&data));
    let missing: Vec<u32> = (1..=12).filter(|n| !shown.contains(&format!("✓ s{n} "))).collect();
    assert_eq!(missing, Vec::<u32>::new(), "{shown}");
}
