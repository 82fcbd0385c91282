//! What Prometheus reads of a real worker, and who may read it; and the rules and the dashboard in `fixtures/telemetry`,
//! which name only what there is.
//!
//! It does not judge the times that are measured.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use bosun_tests::harness::crash::READY_MAX;
use bosun_tests::harness::http::{Endpoint, Http};
use bosun_tests::harness::process::{Program, REQUEST_MAX, WorkerProcess, bosun};
use serde_json::{Value, json};

/// A worker that has done something: one run that completed, one that failed.
fn worked(data: &Path) -> (WorkerProcess, Http) {
    let (worker, owner) = WorkerProcess::start(&Program::bosun_worker().unwrap(), data, READY_MAX).unwrap();
    let asked = json!({ "provider": "schema", "request": { "model": "any", "messages": [{ "role": "user", "content": "hello" }] } });
    for (id, steps) in [
        ("asks", json!([{ "activity": { "type": "model", "input": asked } }])),
        ("good", json!([{ "activity": { "type": "echo", "input": 1, "as": "said" } }, { "return": "$said" }])),
        ("bad", json!([{ "fail": { "type": "Broken", "message": "no" } }])),
    ] {
        let start = json!({ "workflow_type": "kitchen-sink", "workflow_id": id, "input": { "steps": steps } });
        let started: Value = owner.call("POST", "/api/v1/workflows", Some(&start)).acknowledged().unwrap();
        assert_eq!(started["newly_started"], true, "{started}");
        let path = format!("/api/v1/workflows/{id}/result?wait=20s");
        let ended: Value = owner.call("GET", &path, None::<&()>).acknowledged().unwrap();
        assert_ne!(ended["status"], "Running", "{ended}");
    }
    (worker, owner)
}

fn scrape(http: &Http) -> (u16, String) {
    let answer = http.request("GET", "/metrics", None).unwrap();
    (answer.status, String::from_utf8_lossy(&answer.body).into_owned())
}

/// The names of what is measured, as rules write them.
fn names(text: &str) -> BTreeSet<&str> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.split(['{', ' ']).next()).collect()
}

#[test]
fn what_the_worker_did_is_measured() {
    let dir = tempfile::tempdir().unwrap();
    let (_worker, owner) = worked(&dir.path().join("data"));
    let (status, text) = scrape(&owner);
    assert_eq!(status, 200);
    for line in [
        "bosun_closed_runs_total{workflow_type=\"kitchen-sink\",status=\"completed\"} 2",
        "bosun_closed_runs_total{workflow_type=\"kitchen-sink\",status=\"failed\"} 1",
        "bosun_activity_duration_seconds_count{activity_type=\"echo\",outcome=\"completed\"} 1",
        "bosun_runs{state=\"closed\"} 3",
        "bosun_activity_duration_seconds_count{activity_type=\"model\",outcome=\"completed\"} 1",
        "bosun_ready 1",
    ] {
        assert!(text.lines().any(|one| one == line), "{line} is not in\n{text}");
    }
    let commits = text.lines().find_map(|line| line.strip_prefix("bosun_commit_duration_seconds_count "));
    assert!(commits.and_then(|count| count.parse().ok()).is_some_and(|count: u64| count >= 2), "{text}");
    if Command::new("promtool").arg("--version").output().is_ok() {
        let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/telemetry/rules.yml");
        let checked = Command::new("promtool").args(["check", "rules"]).arg(rules).output().unwrap();
        assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
    }
}

/// Queues and types are of all namespaces: who is bound to one does not see them. Whether it is ready, anybody may ask.
#[test]
fn who_may_read_what_is_measured() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let (_worker, owner) = worked(&data);
    let token = |words: &[&str]| {
        let output = Command::new(bosun().unwrap()).arg("token").args(words).arg("--data").arg(&data).output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    let as_whom = |token: String| Http::new(Endpoint { token, ..owner.endpoint.clone() }, REQUEST_MAX);
    assert_eq!(scrape(&as_whom(token(&["create", "prometheus", "--role", "viewer"]))).0, 200);
    let bound = as_whom(token(&["create", "team", "--role", "owner", "--only-namespace", "dev"]));
    assert_eq!(scrape(&bound).0, 403);
    let nobody = as_whom("0123456789abcdef0123456789abcdef".to_owned());
    assert_eq!(scrape(&nobody).0, 401);
    assert_eq!((nobody.readyz().unwrap(), nobody.healthz().unwrap()), (200, 200));
}

/// A rule or a panel on a name that nobody measures is never heard of again.
#[test]
fn rules_and_dashboard_name_what_is_measured() {
    let dir = tempfile::tempdir().unwrap();
    let (_worker, owner) = worked(&dir.path().join("data"));
    let text = scrape(&owner).1;
    // A family that has nothing to show yet tells its name all the same.
    let described = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    let known: BTreeSet<&str> = names(&text).into_iter().chain(described).collect();
    for file in ["rules.yml", "grafana.json"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/telemetry").join(file);
        let told = std::fs::read_to_string(path).unwrap();
        let words = told.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let asked: BTreeSet<&str> = words.filter(|word| word.starts_with("bosun_")).collect();
        assert!(asked.len() >= 5, "{file}");
        let unknown: Vec<_> = asked.iter().filter(|name| !known.contains(**name)).collect();
        assert!(unknown.is_empty(), "{file} asks for {unknown:?}; there are {known:?}");
    }
}
