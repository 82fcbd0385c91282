//! Verbs and options of the command line that ask once, again and again, or about a file: `result --no-wait`, `list --watch`,
//! `cost --group-by`, `config validate`, `agent list`.
//!
//! Real processes on a real directory.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::{Value, json};

use crate::pages::{Pages, gated};
use crate::supervisor_cli::{command, run, said};

#[test]
fn a_result_that_nobody_waits_for_says_how_it_stands() {
    let pages = Pages::serve();
    let data = pages.dir.path().join("data");
    pages.supervisor("asks", &gated("a publication", "publish it"));
    let asked = pages.asked("asks");
    pages.program("goes-on", json!([{ "wait_signal": { "name": "go" } }]));
    let now = |id: &str| run(&data, &["result", id, "--no-wait"]);
    let asks = now("asks");
    let told = said(&asks);
    assert_eq!(asks.status.code(), Some(15), "{told}");
    assert!(told.contains(&format!("approval approve {}", asked["id"].as_str().unwrap())), "{told}");
    let open = now("goes-on");
    assert!(open.status.code() == Some(1) && said(&open).contains("has not closed yet"), "{}", said(&open));
    pages.post("/api/v1/workflows/asks/answers", &json!({ "id": asked["id"], "approved": true }));
    pages.ended("asks");
    let done = now("asks");
    assert!(done.status.success() && said(&done).contains("done"), "{}", said(&done));
    assert_eq!(now("nobody").status.code(), Some(30));
    assert_eq!(run(&data, &["result", "asks", "--no-wait", "--timeout", "1s"]).status.code(), Some(2));
}

#[test]
fn a_list_is_listed_again_when_it_has_changed() {
    let pages = Pages::serve();
    let data = pages.dir.path().join("data");
    pages.program("first", json!([{ "wait_signal": { "name": "go" } }]));
    assert_eq!(run(&data, &["list", "--watch", "-o", "json"]).status.code(), Some(2));
    let mut watching =
        command(&data, &["list", "--watch=100ms", "-o", "jsonl"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(watching.stdout.take().unwrap()).lines();
    // Each of them comes; the harness ends a test that waits for ever.
    let mut next = || -> (String, String) {
        let row: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        (row["workflow_id"].as_str().unwrap().to_owned(), row["status"].as_str().unwrap().to_owned())
    };
    assert_eq!(next(), ("first".to_owned(), "Running".to_owned()));
    pages.bosun(&["signal", "first", "go"]);
    while next() != ("first".to_owned(), "Completed".to_owned()) {}
    watching.kill().unwrap();
    watching.wait().unwrap();
}

#[test]
fn a_configuration_is_checked_with_all_of_its_profiles() {
    let dir = tempfile::tempdir().unwrap();
    let (data, file) = (dir.path().join("data"), dir.path().join("other.toml"));
    let check = |text: &str| {
        std::fs::write(&file, text).unwrap();
        run(&data, &["config", "validate", file.to_str().unwrap()])
    };
    let well = check("namespace = \"dev\"\n[worker]\nslots = 4\n[profiles.night]\nworker.slots = 8\n");
    assert!(well.status.success() && said(&well).contains("2 keys, and the profiles night"), "{}", said(&well));
    for (text, named) in [
        ("slots = 4\n", "slots"),
        ("[worker]\nslots = \"many\"\n", "worker.slots"),
        ("[profiles.night]\nworker.retention = [\"soon\"]\n", "profiles.night"),
        ("not toml", "other.toml"),
    ] {
        let refused = check(text);
        assert!(refused.status.code() == Some(2) && said(&refused).contains(named), "{text}: {}", said(&refused));
    }
    assert!(!data.exists(), "no store is made for it");
}

#[test]
fn a_team_is_a_table() {
    let pages = Pages::serve();
    let data = pages.dir.path().join("data");
    pages.supervisor("asks", &gated("a publication", "publish it"));
    let asked = pages.asked("asks");
    pages.post("/api/v1/workflows/asks/answers", &json!({ "id": asked["id"], "approved": true }));
    pages.ended("asks");
    let shown = said(&run(&data, &["agent", "list", "asks"]));
    let mut lines = shown.lines();
    assert_eq!(lines.next().unwrap().split_whitespace().collect::<Vec<_>>(), ["AGENT", "ROLE", "STATUS"], "{shown}");
    let member: Vec<&str> = lines.next().unwrap().split_whitespace().collect();
    assert!(member.len() == 3 && member[2] == "completed", "{shown}");
    assert!(shown.contains("agents started: ") && !shown.contains('{'), "{shown}");
    let told: Value = serde_json::from_slice(&run(&data, &["agent", "list", "asks", "-o", "json"]).stdout).unwrap();
    assert_eq!(told["schema"], "bosun.agent.list/1", "{told}");
    assert!(told["team"].is_array() && told["registry"]["total"].is_u64(), "{told}");
}

/// By models, and by the runs that asked them, it is the same sum.
#[test]
fn costs_are_added_up_by_models_or_by_runs() {
    let pages = Pages::serve();
    let data = pages.dir.path().join("data");
    pages.program("plain", json!([]));
    pages.ended("plain");
    let none = said(&run(&data, &["cost", "plain", "--group-by", "run"]));
    assert!(none.contains("no model was called"), "{none}");
    let told: Value = serde_json::from_slice(&run(&data, &["cost", "plain", "-o", "json"]).stdout).unwrap();
    assert_eq!(
        told["by_run"],
        json!([{ "workflow_id": "plain", "calls": 0, "tokens": 0, "cost_micros": 0 }]),
        "{told}"
    );
}
