//! Workers that are killed with -9 in the middle: the next one goes on, and nothing happens twice in any history.
//!
//! Invariant: at random moments in a loop, but a fixed number of them; what is judged is the end, never the time it took.

use serde_json::{Value, json};

use super::Scene;
use super::rig::Cluster;

pub(super) const SCENES: &[Scene] = &[("workers_are_killed_in_the_middle", workers_are_killed)];

const KILLS: usize = 6;
const RUNS: usize = 6;

fn workers_are_killed(cluster: &Cluster) {
    let queue = cluster.name("kills");
    let steps = json!([
        { "loop": { "times": 8, "as": "i", "steps": [
            { "side_effect": { "value": "$i", "as": "s" } },
            { "activity": { "type": "echo", "input": "$s", "as": "e", "start_to_close": "2s", "retry": { "initial_interval": "50ms" } } },
            { "timer": "40ms" } ] } },
        { "return": ["$i", "$s", "$e"] }
    ]);
    let id = |n: usize| format!("kills-{n}");
    (0..RUNS).for_each(|n| cluster.start_program(&queue, &id(n), &json!({ "steps": steps })));
    for n in 0..KILLS {
        let worker = cluster.worker(&queue, &[]);
        // Somewhere in the work: other places each time.
        std::thread::sleep(std::time::Duration::from_millis(80 + 70 * n as u64));
        worker.kill();
    }
    let worker = cluster.worker(&queue, &[]);
    for n in 0..RUNS {
        let (exit, result) = cluster.result(&id(n));
        assert_eq!((exit, &result["result"]), (0, &json!([7, 7, 7])), "{result}");
        let history = cluster.temporal(&["workflow", "show", "-w", &id(n), "--output", "json"]);
        let history: Value = serde_json::from_slice(&history.stdout).unwrap();
        let events = history["events"].as_array().unwrap();
        let of = |name: &str| events.iter().filter(|event| event["eventType"] == name).count();
        assert_eq!(of("EVENT_TYPE_ACTIVITY_TASK_COMPLETED"), 8, "each activity completed once");
        assert_eq!(of("EVENT_TYPE_MARKER_RECORDED"), 8, "each side effect is recorded once");
        assert_eq!(of("EVENT_TYPE_WORKFLOW_TASK_FAILED"), 0, "no task fails: the code fits its history");
    }
    assert_eq!(worker.term(), 0);
}
