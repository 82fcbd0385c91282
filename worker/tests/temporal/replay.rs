//! Histories of a cluster and the code of this program: by id, and from Temporal's own JSON.
//!
//! Invariant: a run that this code carried out replays without a difference, whatever its workflow tasks were made of; code that
//! does not fit is told with the card of the embedded engine, exit 20.

use serde_json::{Value, json};

use super::Scene;
use super::rig::{Cluster, shown};

pub(super) const SCENES: &[Scene] = &[("histories_of_a_cluster_replay", histories_replay)];

fn histories_replay(cluster: &Cluster) {
    // The programs of the other scenes have ended on this server.
    let query = "WorkflowType = 'kitchen-sink' AND ExecutionStatus != 'Running'";
    let checked = cluster.run(&["replay", "check", "--query", query]);
    assert!(checked.status.success(), "{}", shown(&checked));

    let queue = cluster.name("replays");
    let worker = cluster.worker(&queue, &[]);
    let echo = |value: Value| json!({ "activity": { "type": "echo", "input": value, "as": "a" } });
    let steps = json!([echo(json!(1)), { "timer": "5ms" }, { "side_effect": { "value": 3, "as": "s" } }, echo(json!(2)), { "return": "$a" }]);
    cluster.start_program(&queue, "replays", &json!({ "steps": steps }));
    assert_eq!(cluster.result("replays").0, 0);
    assert_eq!(worker.term(), 0);
    let history = cluster.temporal(&["workflow", "show", "-w", "replays", "--output", "json"]);
    let file = cluster.folder.path().join("replays.json");
    std::fs::write(&file, &history.stdout).unwrap();
    let file = file.display().to_string();
    for args in [vec!["replay", "check", &file], vec!["replay", "show", &file], vec!["replay", "explain", &file]] {
        let output = cluster.embedded("files", &args);
        assert!(output.status.success(), "{args:?}: {}", shown(&output));
    }
    let shown_run = cluster.run(&["replay", "show", "replays"]);
    assert!(shown(&shown_run).contains("ActivityTaskScheduled"), "{}", shown(&shown_run));

    // Other code: the program in the history asks for another activity than history holds.
    let mut other: Value = serde_json::from_slice(&history.stdout).unwrap();
    for event in other["events"].as_array_mut().unwrap() {
        if event["eventType"] == "EVENT_TYPE_ACTIVITY_TASK_SCHEDULED" {
            event["activityTaskScheduledEventAttributes"]["activityType"]["name"] = json!("shout");
        }
    }
    let changed = cluster.folder.path().join("changed.json");
    std::fs::write(&changed, other.to_string()).unwrap();
    let refused = cluster.embedded("files", &["replay", "check", &changed.display().to_string()]);
    let text = shown(&refused);
    assert_eq!(refused.status.code(), Some(20), "{text}");
    assert!(text.contains("BOSUN0101") || text.contains("no longer matches history"), "{text}");
}
