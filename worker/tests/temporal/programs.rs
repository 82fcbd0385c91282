//! Every kind of kitchen-sink step: the same outcome on the embedded engine and on a cluster.
//!
//! Invariant: what is compared is the whole result, or the whole failure with its causes; run ids, random values and times are
//! not asked for by these programs.

use serde_json::{Value, json};

use super::Scene;
use super::rig::{Cluster, shown};

pub(super) const SCENES: &[Scene] = &[("programs_end_alike", programs_end_alike)];

// long: one line a program.
fn programs() -> Vec<(&'static str, Value)> {
    let echo = |value: Value, save: &str| json!({ "activity": { "type": "echo", "input": value, "as": save } });
    let child = |steps: Value| json!({ "child": { "type": "kitchen-sink", "input": { "steps": steps }, "as": "c" } });
    let fails = |times: u32, most: u32| {
        let retry = json!({ "maximum_attempts": most, "initial_interval": "10ms" });
        json!({ "activity": { "type": "fail_n_times", "input": { "times": times, "value": 7 }, "as": "f", "retry": retry } })
    };
    let twice = json!({ "loop": { "times": 3, "as": "i", "steps": [echo(json!({ "i": "$i" }), "e")] } });
    vec![
        ("sequence", json!([echo(json!(1), "a"), echo(json!({ "was": "$a" }), "b"), { "return": ["$a", "$b"] }])),
        ("loop", json!([twice])),
        (
            "fan_out",
            json!([{ "parallel": [[echo(json!(1), "a")], [echo(json!(2), "b")], [{ "timer": "20ms" }, echo(json!(3), "d")]] }]),
        ),
        ("retries", json!([fails(2, 4)])),
        ("fails_for_good", json!([fails(5, 2)])),
        ("caught", json!([{ "try": { "steps": [fails(5, 1)], "as": "why", "catch": [{ "return": "$why" }] } }])),
        ("unknown_activity", json!([{ "activity": { "type": "nobody", "retry": { "maximum_attempts": 1 } } }])),
        (
            "timer",
            json!([{ "timer": "30ms" }, { "timer": { "for": "1ms", "summary": "short" } }, { "return": "late" }]),
        ),
        ("timer_lost", json!([{ "race": { "branches": [[echo(json!(1), "a")], [{ "timer": "1h" }]], "as": "won" } }])),
        (
            "race_of_timers",
            json!([{ "race": { "branches": [[{ "timer": "1h" }], [{ "timer": "1ms" }]], "as": "won" } }]),
        ),
        ("signal_timeout", json!([{ "wait_signal": { "name": "never", "as": "s", "timeout": "20ms" } }])),
        (
            "side_effects",
            json!([{ "side_effect": { "value": { "n": 1 }, "as": "x" } }, { "side_effect": { "value": "$x", "as": "y" } }, echo(json!("$y"), "z")]),
        ),
        (
            "many_side_effects",
            json!([{ "loop": { "times": 600, "as": "i", "steps": [{ "side_effect": { "value": "$i", "as": "x" } }] } }, echo(json!("$x"), "a"), { "return": "$x" }]),
        ),
        (
            "side_effect_last",
            json!([echo(json!(1), "a"), { "side_effect": { "value": 5, "as": "x" } }, { "return": "$x" }]),
        ),
        (
            "patch",
            json!([{ "patch": { "id": "p1", "new": [echo(json!("new"), "a")], "old": [echo(json!("old"), "a")] } }, { "deprecate_patch": "p0" }]),
        ),
        ("child", json!([child(json!([echo(json!("inside"), "v"), { "return": "$v" }]))])),
        ("child_fails", json!([child(json!([{ "fail": { "type": "Broken", "message": "inside", "details": [1] } }]))])),
        (
            "child_caught",
            json!([{ "try": { "steps": [child(json!([{ "fail": { "type": "Broken", "message": "m" } }]))], "as": "why", "catch": [{ "return": "$why.cause.kind" }] } }]),
        ),
        (
            "children",
            json!([{ "parallel": [[child(json!([{ "return": 1 }]))], [child(json!([{ "return": 2 }]))]] }, { "return": "done" }]),
        ),
        (
            "continue_as_new",
            json!([{ "if": { "var": "n", "equals": 0, "then": [{ "continue_as_new": { "vars": { "n": 1 } } }], "else": [echo(json!("$n"), "e")] } }]),
        ),
        (
            "saga",
            json!([{ "try": { "steps": [{ "saga": [{ "do": [echo(json!(1), "a")], "undo": [echo(json!(2), "undone")] }, { "do": [{ "fail": { "type": "X", "message": "m" } }], "undo": [] }] }], "as": "why", "catch": [] } }, { "return": "$undone" }]),
        ),
        (
            "fails",
            json!([{ "fail": { "type": "CardDeclined", "message": "no", "non_retryable": true, "details": { "code": 7 } } }]),
        ),
        ("memo", json!([{ "memo": { "note": { "n": 1 } } }, { "return": "kept" }])),
        ("unknown_step", json!([{ "dance": 1 }])),
        (
            "signal_to_nobody",
            json!([{ "try": { "steps": [{ "signal": { "workflow_id": "nobody-there", "name": "x" } }], "as": "why", "catch": [{ "return": "$why.kind" }] } }]),
        ),
    ]
}

fn programs_end_alike(cluster: &Cluster) {
    let queue = cluster.name("programs");
    let worker = cluster.worker(&queue, &[]);
    let programs = programs();
    for (name, steps) in &programs {
        let vars = json!({ "n": 0, "a": null, "e": null });
        cluster.start_program(&queue, &format!("program-{name}"), &json!({ "steps": steps, "vars": vars }));
    }
    let mut differ = Vec::new();
    for (name, steps) in &programs {
        let id = format!("program-{name}");
        let program = json!({ "steps": steps, "vars": { "n": 0, "a": null, "e": null } }).to_string();
        let here =
            cluster.embedded("programs", &["execute", "kitchen-sink", "-w", &id, "--input", &program, "-o", "json"]);
        let there = cluster.result(&id);
        let here = (
            here.status.code().unwrap_or(-1),
            serde_json::from_slice(&here.stdout).unwrap_or_else(|_| panic!("{name}: {}", shown(&here))),
        );
        let (here, there) = (outcome(here), outcome(there));
        if here != there {
            differ.push(format!("{name}:\n  embedded {here:?}\n  cluster  {there:?}"));
        }
    }
    assert!(differ.is_empty(), "{}", differ.join("\n"));
    assert_eq!(worker.term(), 0);
}

/// What is the same whoever tells it: not the run id, not how long it took; numbers of activities are counted by kind there.
fn outcome((exit, mut json): (i32, Value)) -> (i32, Value) {
    let told: serde_json::Map<String, Value> = ["status", "result", "failure"]
        .iter()
        .filter_map(|key| Some(((*key).to_owned(), json.get_mut(*key)?.take())))
        .collect();
    let mut told = Value::Object(told);
    forget(&mut told);
    (exit, told)
}

fn forget(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for name in ["run_id", "activity_id", "workflow_id"] {
                if fields.contains_key(name) {
                    fields[name] = Value::Null;
                }
            }
            if let Some(Value::String(text)) = fields.get_mut("message") {
                if text.starts_with("child workflow ") {
                    *text = "child workflow failed".to_owned();
                }
                // Batches and notifications have activities of their own, which need the embedded log.
                text.truncate(text.find("; it has: ").unwrap_or(text.len()));
            }
            fields.values_mut().for_each(forget);
        }
        Value::Array(items) => items.iter_mut().for_each(forget),
        _ => {}
    }
}
