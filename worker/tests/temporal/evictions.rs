//! Runs that are told from their beginning at every workflow task, because the worker keeps none in memory.
//!
//! Invariant: they end as the others do: values of side effects, patches and numbers come back out of the history.

use serde_json::json;

use super::Scene;
use super::rig::Cluster;

pub(super) const SCENES: &[Scene] =
    &[("a_run_that_is_never_cached_ends_alike", never_cached), ("long_runs_that_are_never_cached", some_steps)];
/// Those that take long.
pub(super) const FULL: &[Scene] = &[("runs_of_10000_steps", many_steps)];

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

fn some_steps(cluster: &Cluster) {
    long_runs(cluster, &[50, 100, 200], "0");
}

fn many_steps(cluster: &Cluster) {
    long_runs(cluster, &[2_500, 5_000, 10_000], "0");
    long_runs(cluster, &[2_500, 5_000, 10_000], "1000");
}

/// Each step is a side effect and an activity that follows it; a run continues as new after so many.
const ROUND: u64 = 50;

/// The figures are shown, not judged: what has to be right is the end.
fn long_runs(cluster: &Cluster, counts: &[u64], cached: &str) {
    let queue = cluster.name("long");
    let worker = cluster.worker(&queue, &["--max-cached-workflows", cached]);
    for steps in counts {
        let id = format!("long-{cached}-{steps}");
        let began = std::time::Instant::now();
        let program = counting(steps / ROUND);
        cluster.start_program(&queue, &id, &program);
        let result = cluster.until_within(std::time::Duration::from_secs(1_800), "the run has ended", || {
            let output = cluster.run(&["result", "-w", &id, "-o", "json", "--timeout", "60s"]);
            output.status.success().then(|| serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap())
        });
        let took = began.elapsed();
        assert_eq!(result["result"], json!([ROUND - 1, ROUND - 1, steps / ROUND]), "{result}");
        println!(
            "  {steps} steps with {cached} runs in memory: {:.1} s, {:.1} ms a step",
            took.as_secs_f64(),
            took.as_secs_f64() * 1_000.0 / *steps as f64
        );
    }
    assert!(!worker.log().contains("the workflow task failed"), "{}", worker.log());
    assert_eq!(worker.term(), 0);
}

/// So many rounds, each a run.
fn counting(rounds: u64) -> serde_json::Value {
    let step = json!([
        { "side_effect": { "value": "$i", "as": "s" } },
        { "activity": { "type": "echo", "input": "$s", "as": "e" } }
    ]);
    let next = |round: u64| json!({ "if": { "var": "round", "equals": round, "then": [{ "continue_as_new": { "vars": { "round": round + 1 } } }], "else": [] } });
    let mut steps = vec![json!({ "loop": { "times": ROUND, "as": "i", "steps": step } })];
    steps.extend((1..rounds).map(next));
    steps.push(json!({ "return": ["$i", "$e", "$round"] }));
    json!({ "vars": { "round": 1 }, "steps": steps })
}
