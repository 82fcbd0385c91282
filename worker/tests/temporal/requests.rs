//! What people and programs ask of a run: signals, queries, updates, lists, ends; and what a cluster cannot do.
//!
//! Invariant: exit codes and schemas are those of the embedded engine. Lists are the cluster's visibility, which may lag.

use serde_json::json;

use super::Scene;
use super::rig::{Cluster, shown};

pub(super) const SCENES: &[Scene] = &[
    ("signals_queries_and_updates", signals_queries_and_updates),
    ("runs_are_described_listed_and_ended", runs_are_described_listed_and_ended),
    ("a_reset_begins_anew", a_reset_begins_anew),
    ("a_namespace_that_is_named_counts", a_namespace_that_is_named_counts),
    ("what_cannot_be_is_refused_by_name", what_cannot_be_is_refused_by_name),
    ("a_panic_fails_the_task_and_not_the_run", a_broken_input_fails_the_task_and_not_the_run),
];

fn signals_queries_and_updates(cluster: &Cluster) {
    let queue = cluster.name("messages");
    let worker = cluster.worker(&queue, &[]);
    let steps = json!([
        { "set": { "ready": false } },
        { "wait_signal": { "name": "go", "as": "go" } },
        { "wait_var": { "name": "ready", "equals": true } },
        { "drain_signals": { "name": "more", "as": "more" } },
        { "return": { "go": "$go", "more": "$more" } }
    ]);
    cluster.start_program(&queue, "messages", &json!({ "steps": steps }));
    let vars = cluster.until("the program waits", || {
        let output = cluster.run(&["query", "-w", "messages", "vars", "-o", "json"]);
        output.status.success().then(|| serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap())
    });
    assert!(vars.to_string().contains("\"ready\":false"), "{vars}");
    let signal = |name: &str, input: &str| cluster.json(&["signal", "-w", "messages", name, "--input", input]);
    signal("more", "1");
    signal("more", "2");
    signal("go", "{\"by\":\"ann\"}");
    let set = |input: &str| cluster.run(&["update", "-w", "messages", "set_var", "--input", input, "-o", "json"]);
    let refused = set("{\"name\": \"a.b\", \"value\": 1}");
    assert_eq!(refused.status.code(), cluster_exit_of_a_refused_update(cluster), "{}", shown(&refused));
    assert!(shown(&refused).contains("was refused by the workflow"), "{}", shown(&refused));
    let done = set("{\"name\": \"ready\", \"value\": true}");
    assert!(done.status.success(), "{}", shown(&done));
    let (exit, result) = cluster.result("messages");
    assert_eq!((exit, &result["result"]), (0, &json!({ "go": { "by": "ann" }, "more": [1, 2] })), "{result}");
    let late = cluster.run(&["signal", "-w", "messages", "go"]);
    assert!(!late.status.success() && shown(&late).contains("already Completed"), "{}", shown(&late));
    assert_eq!(worker.term(), 0);
}

/// The embedded engine says what it is.
fn cluster_exit_of_a_refused_update(cluster: &Cluster) -> Option<i32> {
    let program = json!({ "steps": [{ "wait_signal": { "name": "never" } }] }).to_string();
    let started = cluster.embedded("refusals", &["start", "kitchen-sink", "-w", "waits", "--input", &program]);
    assert!(started.status.success(), "{}", shown(&started));
    let input = "{\"name\": \"a.b\", \"value\": 1}";
    cluster.embedded("refusals", &["update", "-w", "waits", "set_var", "--input", input]).status.code()
}

// long: one request after the other.
fn runs_are_described_listed_and_ended(cluster: &Cluster) {
    let queue = cluster.name("ends");
    let worker = cluster.worker(&queue, &[]);
    let waits = json!({ "steps": [{ "memo": { "note": 1 } }, { "timer": { "for": "1h", "summary": "long" } }] });
    let polite = json!({ "steps": [{ "wait_cancel": "why" }, { "return": "$why" }] });
    for (id, program) in [("ends-t", &waits), ("ends-c", &waits), ("ends-p", &polite)] {
        cluster.start_program(&queue, id, program);
    }
    let twice = cluster.run(&["start", "kitchen-sink", "-w", "ends-t", "--input", &waits.to_string()]);
    assert!(shown(&twice).contains("a run of ends-t is open"), "{}", shown(&twice));
    let described = cluster.until("the timer is there", || {
        let described = cluster.json(&["describe", "-w", "ends-t"]);
        (!described["pending_timers"].as_array().unwrap().is_empty()).then_some(described)
    });
    assert_eq!(described["workflow"]["status"], "Running", "{described}");
    assert_eq!(described["pending_timers"][0]["summary"], "long", "{described}");
    assert!(described["awaiting"][0]["what"].as_str().unwrap().starts_with("timer 1"), "{described}");
    let query = "WorkflowType = 'kitchen-sink' AND ExecutionStatus = 'Running' AND WorkflowId STARTS_WITH 'ends-'";
    let listed = cluster.until("the list has them", || {
        let listed = cluster.json(&["list", "--query", query]);
        (listed["workflows"].as_array().unwrap().len() == 3).then_some(listed)
    });
    assert_eq!(listed["schema"], "bosun.workflow.list/1", "{listed}");
    assert_eq!(cluster.json(&["count", "--query", query])["count"], 3);
    cluster.json(&["cancel", "-w", "ends-p", "--reason", "enough"]);
    let (exit, result) = cluster.result("ends-p");
    assert_eq!((exit, &result["result"]), (0, &json!("enough")), "{result}");
    cluster.json(&["cancel", "-w", "ends-c"]);
    let (exit, result) = cluster.result("ends-c");
    assert_eq!((exit, &result["status"]), (12, &json!("Canceled")), "{result}");
    cluster.json(&["terminate", "-w", "ends-t", "--reason", "no use", "--yes"]);
    let (exit, result) = cluster.result("ends-t");
    assert_eq!((exit, &result["status"]), (13, &json!("Terminated")), "{result}");
    let shown_run = cluster.run(&["show", "-w", "ends-c"]);
    assert!(shown(&shown_run).contains("WorkflowExecutionCanceled"), "{}", shown(&shown_run));
    cluster.json(&["delete", "-w", "ends-t", "--yes"]);
    assert_eq!(worker.term(), 0);
}

/// A cluster takes its time for it; by now other scenes have passed.
pub(super) fn what_was_deleted_is_gone(cluster: &Cluster) {
    let described = || cluster.run(&["describe", "-w", "ends-t"]);
    cluster.until("the run is gone", || (!described().status.success()).then_some(()));
    assert!(shown(&described()).contains("no workflow execution ends-t"), "{}", shown(&described()));
}

fn a_reset_begins_anew(cluster: &Cluster) {
    let queue = cluster.name("resets");
    let worker = cluster.worker(&queue, &[]);
    let draws = |save: &str| json!({ "activity": { "type": "echo", "input": format!("${save}") } });
    let (wait, end) = (json!({ "wait_signal": { "name": "go", "as": "go" } }), json!({ "return": "$go" }));
    let ready = json!({ "wait_var": { "name": "ready", "equals": true } });
    let steps = json!([{ "set": { "ready": false } }, { "uuid": "u" }, draws("u"), ready, wait, { "uuid": "v" }, draws("v"), end]);
    cluster.start_program(&queue, "resets", &json!({ "steps": steps }));
    let set = "{\"name\": \"ready\", \"value\": true}";
    cluster.json(&["update", "-w", "resets", "set_var", "--input", set]);
    cluster.json(&["signal", "-w", "resets", "go", "--input", "1"]);
    assert_eq!(cluster.result("resets").0, 0);
    let reset =
        cluster.run(&["reset", "-w", "resets", "--to", "first-turn", "--reason", "again", "-o", "json", "--yes"]);
    assert!(reset.status.success(), "{}", shown(&reset));
    assert_eq!(cluster.json(&["describe", "-w", "resets"])["held"], json!(null), "a reset is no failure");
    let (exit, result) = cluster.result("resets");
    assert_eq!((exit, &result["result"]), (0, &json!(1)), "the update and the signal reach the new run: {result}");
    // What it draws before the reset is what the run before has drawn: replay knows.
    let checked = cluster.until("the list has both", || {
        let checked = cluster.run(&["replay", "check", "--query", "WorkflowId = 'resets'"]);
        shown(&checked).contains("2 histories").then_some(checked)
    });
    assert!(checked.status.success() && shown(&checked).contains("2 fit"), "{}", shown(&checked));
    assert_eq!(worker.term(), 0);
}

/// The environment names another one: it counts for who names none.
fn a_namespace_that_is_named_counts(cluster: &Cluster) {
    let queue = cluster.name("places");
    let made = cluster.temporal(&["operator", "namespace", "create", "--namespace", "boats"]);
    assert!(made.status.success(), "{}", shown(&made));
    let worker = cluster.until("the namespace is known", || {
        let known = cluster.run_where("boats", &["list"]);
        known.status.success().then(|| cluster.worker(&queue, &["--namespace", "boats"]))
    });
    let sleep =
        json!({ "activity": { "type": "sleep", "input": { "ms": 3_600_000 }, "as": "s", "start_to_close": "2h" } });
    let program = json!({ "steps": [{ "timer": "1ms" }, sleep, { "return": "$s" }] }).to_string();
    let start = ["start", "kitchen-sink", "-w", "places", "--task-queue", &queue, "--input", &program];
    let started = cluster.until("its workers are known", || {
        let started = cluster.run_where("boats", &start);
        started.status.success().then_some(started)
    });
    let named = |args: &[&str]| cluster.run_where("boats", &[args, &["--namespace", "default"]].concat());
    assert!(shown(&started).contains("started places"), "{}", shown(&started));
    let there = cluster.run_where("boats", &["describe", "places"]);
    assert!(there.status.success(), "{}", shown(&there));
    let elsewhere = named(&["describe", "places"]);
    assert!(shown(&elsewhere).contains("no workflow execution places"), "{}", shown(&elsewhere));
    // A token names no namespace: its run is looked for where the command is.
    let token = cluster.until("the activity runs", || {
        let listed = cluster.run_where("boats", &["activity", "list", "places", "-o", "json"]);
        let listed: serde_json::Value = serde_json::from_slice(&listed.stdout).ok()?;
        listed["activities"][0]["task_token"].as_str().map(str::to_owned)
    });
    let done = cluster.run_where("boats", &["activity", "complete", &token, "--input", "5"]);
    assert!(done.status.success(), "{}", shown(&done));
    let result = cluster.run_where("boats", &["result", "places", "--timeout", "100s"]);
    assert!(shown(&result).contains('5'), "{}", shown(&result));
    assert_eq!(worker.term(), 0);
}

fn what_cannot_be_is_refused_by_name(cluster: &Cluster) {
    let queue = cluster.name("refused");
    cluster.start_program(&queue, "refused", &json!({ "steps": [{ "timer": "1h" }] }));
    for (args, says) in [
        (vec!["fork", "refused"], "a Temporal cluster cannot do this: a fork"),
        (vec!["pause", "-w", "refused"], "pausing a workflow"),
        (vec!["terminate", "--query", "WorkflowId = 'refused'", "--yes"], "a batch of Bosun's"),
        (vec!["store", "verify"], "no store"),
        (vec!["query", "-w", "refused", "vars"], "no worker has answered"),
        (vec!["describe", "-w", "nobody"], "no workflow execution nobody"),
    ] {
        let refused = cluster.run(&args);
        assert!(!refused.status.success() && shown(&refused).contains(says), "{args:?}: {}", shown(&refused));
    }
    let large = cluster.folder.path().join("large.json");
    std::fs::write(&large, format!("\"{}\"", "x".repeat(2_200_000))).unwrap();
    let large = format!("@{}", large.display());
    let refused = cluster.run(&["signal", "-w", "refused", "go", "--input", &large]);
    assert!(shown(&refused).contains("the payload has 2200002 bytes, the limit is 2097152"), "{}", shown(&refused));
    let nobody = cluster.embedded("nobody", &["list", "--temporal", "127.0.0.1:1"]);
    assert!(shown(&nobody).contains("no Temporal cluster answers at 127.0.0.1:1"), "{}", shown(&nobody));
    cluster.json(&["terminate", "-w", "refused", "--yes"]);
}

/// The input of another program: the code cannot read it, and the run waits for code that can.
fn a_broken_input_fails_the_task_and_not_the_run(cluster: &Cluster) {
    let queue = cluster.name("broken");
    let worker = cluster.worker(&queue, &[]);
    cluster.json(&["start", "order-saga", "-w", "broken", "--task-queue", &queue, "--input", "\"not an order\""]);
    let described = cluster.until("the workflow task has failed", || {
        let described = cluster.json(&["describe", "-w", "broken"]);
        described["held"].is_string().then_some(described)
    });
    assert_eq!(described["workflow"]["status"], "Running", "{described}");
    let held = described["held"].as_str().unwrap();
    assert!(held.contains("BOSUN0102") && held.contains("cannot read its input"), "{held}");
    assert!(!held.contains("BOSUN0101"), "it has not diverged: {held}");
    cluster.json(&["terminate", "-w", "broken", "--yes"]);
    drop(worker);
}
