//! Single activities: completed by token, paused, left by a worker that drains.
//!
//! Invariant: an activity is named by its number among the activities of its run, here and by Temporal's own tools. Nothing is canceled that nobody has asked to cancel.

use serde_json::{Value, json};

use super::Scene;
use super::rig::{Cluster, shown};

pub(super) const SCENES: &[Scene] = &[
    ("an_activity_is_completed_by_its_token", completed_by_token),
    ("an_activity_is_paused_by_its_number", paused_by_its_number),
    ("a_worker_that_leaves_cancels_nothing", leaving_cancels_nothing),
];

/// The one pending activity of a run, once it is in this state.
fn pending(cluster: &Cluster, id: &str, state: &str) -> Value {
    cluster.until(&format!("the activity is {state}"), || {
        let listed = cluster.json(&["activity", "list", id]);
        listed["activities"].as_array()?.iter().find(|one| one["state"] == state).cloned()
    })
}

fn sleeps(value: &str) -> Value {
    json!({ "activity": { "type": "sleep", "input": { "ms": 3_600_000, "value": value }, "as": "s", "heartbeat": "30s",
        "start_to_close": "2h", "retry": { "initial_interval": "50ms" } } })
}

fn completed_by_token(cluster: &Cluster) {
    let queue = cluster.name("tokens");
    let worker = cluster.worker(&queue, &[]);
    // The code has asked for three things before, of which two are counted as activities.
    let echo = json!({ "activity": { "type": "echo", "input": 1 } });
    let steps = json!([echo, { "timer": "1ms" }, { "side_effect": { "value": 1, "as": "x" } }, sleeps("by itself"), { "return": "$s" }]);
    cluster.start_program(&queue, "tokens", &json!({ "steps": steps }));
    let one = pending(cluster, "tokens", "Started");
    assert_eq!(one["activity_id"], "3", "{one}");
    let token = one["task_token"].as_str().unwrap().to_owned();
    let (run, attempt) = token.rsplit_once(":4:").unwrap();
    assert_eq!(attempt, "1", "{token}");
    for wrong in [format!("{run}:4:2"), format!("{run}:1:1"), format!("{run}:3:1")] {
        let refused = cluster.run(&["activity", "complete", &wrong, "--input", "0"]);
        assert!(!refused.status.success() && shown(&refused).contains(&wrong), "{wrong}: {}", shown(&refused));
    }
    cluster.json(&["activity", "heartbeat", &token, "--input", "7"]);
    cluster.json(&["activity", "complete", &token, "--input", "\"by hand\""]);
    let (exit, result) = cluster.result("tokens");
    assert_eq!((exit, &result["result"]), (0, &json!("by hand")), "{result}");
    let late = cluster.run(&["activity", "complete", &token, "--input", "0"]);
    assert!(!late.status.success(), "an attempt is completed once: {}", shown(&late));
    assert_eq!(worker.term(), 0);
}

fn paused_by_its_number(cluster: &Cluster) {
    let queue = cluster.name("pauses");
    let worker = cluster.worker(&queue, &[]);
    let retry = json!({ "maximum_attempts": 5, "initial_interval": "1h" });
    let fails = json!({ "activity": { "type": "fail_n_times", "input": { "times": 1, "value": 7 }, "as": "f", "retry": retry } });
    let steps = json!([{ "timer": "1ms" }, { "side_effect": { "value": 1, "as": "x" } }, fails, { "return": "$f" }]);
    cluster.start_program(&queue, "pauses", &json!({ "steps": steps }));
    let one = pending(cluster, "pauses", "BackingOff");
    assert_eq!((&one["activity_id"], &one["attempt"]), (&json!("2"), &json!(2)), "{one}");
    let refused = cluster.run(&["activity", "pause", "pauses", "1"]);
    assert!(!refused.status.success(), "that is a side effect: {}", shown(&refused));
    cluster.json(&["activity", "pause", "pauses", "2", "--reason", "look first"]);
    pending(cluster, "pauses", "Paused");
    cluster.json(&["activity", "unpause", "pauses", "2"]);
    let (exit, result) = cluster.result("pauses");
    assert_eq!((exit, &result["result"]), (0, &json!(7)), "{result}");
    let late = cluster.run(&["activity", "unpause", "pauses", "2"]);
    assert!(shown(&late).contains("already Completed"), "{}", shown(&late));
    cluster.start_program(&queue, "again", &json!({ "steps": steps }));
    let first = pending(cluster, "again", "BackingOff");
    cluster.json(&["activity", "retry-now", "again", "2"]);
    let again = cluster.until("it fails once more, and is counted anew", || {
        let one = pending(cluster, "again", "BackingOff");
        (one["next_attempt_at"] != first["next_attempt_at"]).then_some(one)
    });
    assert_eq!((&again["activity_id"], &again["attempt"]), (&json!("2"), &json!(2)), "{again}");
    cluster.json(&["terminate", "-w", "again", "--yes"]);
    assert_eq!(worker.term(), 0);
}

fn leaving_cancels_nothing(cluster: &Cluster) {
    let queue = cluster.name("leaves");
    let worker = cluster.worker(&queue, &["--drain-timeout", "100ms"]);
    cluster.start_program(&queue, "leaves", &json!({ "steps": [sleeps("by itself"), { "return": "$s" }] }));
    pending(cluster, "leaves", "Started");
    worker.term();
    let worker = cluster.worker(&queue, &[]);
    let one = cluster.until("the next attempt runs", || {
        let one = pending(cluster, "leaves", "Started");
        (one["attempt"] == 2).then_some(one)
    });
    assert!(one["last_failure"].to_string().contains("WorkerShutdown"), "{one}");
    cluster.json(&["activity", "complete", one["task_token"].as_str().unwrap(), "--input", "\"done\""]);
    let (exit, result) = cluster.result("leaves");
    assert_eq!((exit, &result["result"]), (0, &json!("done")), "{result}");
    let history = cluster.temporal(&["workflow", "show", "-w", "leaves", "--output", "json"]);
    let history = String::from_utf8_lossy(&history.stdout).into_owned();
    assert!(!history.contains("ACTIVITY_TASK_CANCELED"), "{history}");
    assert_eq!(worker.term(), 0);
}
