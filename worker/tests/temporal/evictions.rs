//! Runs that are told from their beginning at every workflow task, because the worker keeps none in memory.
//!
//! Invariant: they end as the others do: values of side effects, patches and numbers come back out of the history.

use serde_json::json;

use super::Scene;
use super::rig::Cluster;

pub(super) const SCENES: &[Scene] = &[("a_run_that_is_never_cached_ends_alike", never_cached)];

fn never_cached(cluster: &Cluster) {
    let queue = cluster.name("uncached");
    let worker = cluster.worker(&queue, &["--max-cached-workflows", "0"]);
    let echo =
        |value: serde_json::Value, save: &str| json!({ "activity": { "type": "echo", "input": value, "as": save } });
    let steps = json!([
        { "uuid": "u" }, { "random": "r" }, echo(json!(["$u", "$r"]), "first"),
        { "side_effect": { "value": { "n": 1 }, "as": "s" } }, echo(json!("$s"), "a"),
        { "patch": { "id": "p", "new": [{ "timer": "5ms" }, { "side_effect": { "value": 2, "as": "t" } }], "old": [] } },
        { "race": { "branches": [[echo(json!(1), "x")], [{ "timer": "1h" }]], "as": "won" } },
        { "child": { "type": "kitchen-sink", "input": { "steps": [echo(json!(1), "y"), { "side_effect": { "value": 9, "as": "z" } }, { "return": "$z" }] }, "as": "c" } },
        { "wait_signal": { "name": "go", "as": "go" } },
        echo(json!(["$u", "$r"]), "last"), { "side_effect": { "value": "end", "as": "e" } },
        { "return": { "same": ["$first", "$last"], "s": "$s", "t": "$t", "won": "$won", "c": "$c", "go": "$go", "e": "$e" } }
    ]);
    cluster.start_program(&queue, "uncached", &json!({ "steps": steps }));
    cluster.json(&["signal", "-w", "uncached", "go", "--input", "7"]);
    let (exit, result) = cluster.result("uncached");
    let result = &result["result"];
    assert_eq!(exit, 0, "{result}");
    assert_eq!(result["same"][0], result["same"][1], "the run's own values stay: {result}");
    assert_eq!((&result["s"], &result["t"], &result["won"]), (&json!({ "n": 1 }), &json!(2), &json!(0)), "{result}");
    assert_eq!((&result["c"], &result["go"], &result["e"]), (&json!(9), &json!(7), &json!("end")), "{result}");
    assert!(!worker.log().contains("the workflow task failed"), "{}", worker.log());
    assert_eq!(worker.term(), 0);
}
