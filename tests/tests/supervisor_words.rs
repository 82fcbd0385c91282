//! What verbs say of supervisors: that one is paused or taken over, why one was cancelled, and whom one has started.
//!
//! Invariant: people read how a run stands in the column of its status and in one sentence, never in a report's JSON
//! (SHN-74, SHN-62, SUP-12). Real processes on a real directory.

use std::path::Path;

use bosun_tests::harness::crash::READY_MAX;
use bosun_tests::harness::process::{Program, WorkerProcess};
use serde_json::Value;

use crate::supervisor_cli::{run, said};

/// A plan whose second task waits for a person.
const BOATS: &str = "
kind: supervisor
name: boats
preset: shannon-dag
objective: Sell the boats
agents: [{ name: clerk }]
script:
  - { on: plan, say: { tasks: [{ id: a, goal: Count them }, { id: b, goal: Sell them, deps: [a], requires_approval: true }] } }
  - { on: execute_worker, say: done }
";

#[track_caller]
fn well(data: &Path, words: &[&str]) -> String {
    let output = run(data, words);
    assert!(output.status.success(), "{words:?}: {}", said(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn status_in_list(data: &Path, id: &str) -> String {
    let listed = well(data, &["list"]);
    listed.lines().find(|line| line.starts_with(id)).unwrap_or_else(|| panic!("{listed}")).to_owned()
}

fn control(data: &Path, id: &str) -> Value {
    let described: Value = serde_json::from_str(&well(data, &["describe", id, "-o", "json"])).unwrap();
    described["workflow"]["control"].clone()
}

/// The words of a status by which the only run is found; `list` and `count` agree.
fn found_by_status(data: &Path) -> Vec<&'static str> {
    let finds = |word: &&'static str| {
        let query = format!("ExecutionStatus = '{word}' AND WorkflowType = 'supervisor'");
        let count = well(data, &["count", "--query", &query]).trim().to_owned();
        let listed: Value = serde_json::from_str(&well(data, &["list", "--query", &query, "-o", "json"])).unwrap();
        assert_eq!(listed["workflows"].as_array().unwrap().len().to_string(), count, "{word}");
        count == "1"
    };
    ["Running", "Paused", "Held", "Taken over", "Completed"].into_iter().filter(finds).collect()
}

/// SHN-74: what people see as the status follows their pauses and takeovers; a cancelled run says why in words.
#[test]
fn the_status_is_what_people_have_made_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path();
    let beside = tempfile::tempdir().unwrap();
    let spec = beside.path().join("boats.yaml");
    std::fs::write(&spec, BOATS).unwrap();
    let (_worker, _http) = WorkerProcess::start(&Program::bosun_worker().unwrap(), data, READY_MAX).unwrap();
    // It leaves the run with a person, and its exit code says so.
    run(data, &["run", spec.to_str().unwrap(), "-w", "boats", "--no-wait"]);
    assert!(status_in_list(data, "boats").contains("Running"));
    assert_eq!(control(data, "boats"), Value::Null);

    for (verb, shown, name) in [
        ("pause", "Paused", "paused"),
        ("resume", "Running", ""),
        ("takeover", "Taken over", "taken_over"),
        ("release", "Running", ""),
    ] {
        well(data, &[verb, "boats"]);
        assert!(status_in_list(data, "boats").contains(shown), "{verb}: {}", status_in_list(data, "boats"));
        let described = well(data, &["describe", "boats"]);
        let status = described.lines().find(|line| line.starts_with("status")).unwrap();
        assert!(status.contains(shown), "{verb}: {status}");
        assert_eq!(control(data, "boats").as_str().unwrap_or_default(), name);
        assert_eq!(
            found_by_status(data),
            if shown == "Running" { vec![shown] } else { vec!["Running", shown] },
            "{verb}"
        );
    }

    well(data, &["signal", "boats", "cancel_v1", "--input", r#"{"reason":"enough"}"#]);
    // Once for its end, and once without what happens meanwhile.
    run(data, &["result", "boats", "--timeout", "60s"]);
    let told = said(&run(data, &["result", "boats", "--no-wait"]));
    assert!(told.contains("boats Canceled: workflow cancelled: enough; 1 of 2 tasks are done"), "{told}");
    assert!(!told.contains('{'), "{told}");
    let described = well(data, &["describe", "boats"]);
    let result = described.lines().find(|line| line.starts_with("result")).unwrap();
    assert!(result.contains("workflow cancelled: enough") && !result.contains('{'), "{result}");
}

/// SUP-12: where agents call agents, `agent list` names each that was started, and by whom.
#[test]
fn agents_that_call_agents_are_listed() {
    let dir = tempfile::tempdir().unwrap();
    let spec = crate::tidy::workspace().join("fixtures/supervisors/presets/supyagent-delegation.yaml");
    well(dir.path(), &["run", spec.to_str().unwrap(), "-w", "web", "--timeout", "60s"]);
    let listed = well(dir.path(), &["agent", "list", "web"]);
    let row = |name: &str| listed.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{listed}"));
    assert!(row("coder").contains("planner") && row("planner").contains("assistant"), "{listed}");
    assert!(row("assistant").contains("completed") && !listed.contains("has no team"), "{listed}");
}

/// A run that has gone on as a new one is still the run of its file; one that a person has is told to be released.
#[test]
fn a_run_that_goes_on_as_new_is_that_of_its_file() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path();
    let beside = tempfile::tempdir().unwrap();
    let spec = beside.path().join("boats.yaml");
    let long = BOATS.replace("preset:", "limits: { history_events: 1 }\npreset:");
    std::fs::write(&spec, &long).unwrap();
    let again = |data: &Path| said(&run(data, &["run", spec.to_str().unwrap(), "-w", "boats", "--no-wait"]));
    assert!(again(data).contains("BOSUN0042"));
    let chain = well(data, &["list", "--query", "WorkflowId = 'boats'", "-o", "json"]);
    assert!(chain.matches("ContinuedAsNew").count() > 1, "{chain}");
    let told = again(data);
    assert!(told.contains("BOSUN0042") && !told.contains("another spec"), "{told}");
    well(data, &["takeover", "boats"]);
    let told = again(data);
    assert!(
        told.contains("then `bosun") && told.contains("release boats`") && !told.contains("resume boats"),
        "{told}"
    );
    std::fs::write(&spec, long.replace("Sell the boats", "Burn the boats")).unwrap();
    assert!(again(data).contains("another spec than this file"));
}
