//! E38: what we export, the official replayers accept: a Python interpreter of the kitchen sink (`kitchen_sink.py`), replayed by the
//! official Python SDK against exports of runs that the embedded engine has carried out.
//!
//! Invariant: the programs are arbitrary and lived under arbitrary faults, with the values, signals, updates and cancellations
//! that come their way; what the shipped binary runs and exports is among them. That the replayer looks at all is shown by exports
//! that were changed: each is refused. Nothing is skipped silently.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};

use bosun_engine::{EventKind, Turn};
use bosun_replay::{History, to_temporal};
use serde_json::{Value, json};

use super::kit::{self, KIND};
use crate::python_sdk::python;

const SCRIPT: &str = include_str!("kitchen_sink.py");
/// As many exports of closed runs are replayed.
const EXPORTS: usize = 200;

/// A history as an export, and of which workflow id.
struct Export {
    workflow_id: String,
    history: Value,
}

impl Export {
    fn events(&self) -> &Vec<Value> {
        self.history["events"].as_array().expect("events")
    }
    fn types(&self) -> BTreeSet<&str> {
        self.events().iter().filter_map(|event| event["eventType"].as_str()).collect()
    }
}

#[test]
fn official_replayers_accept_what_arbitrary_programs_have_done() {
    let Some(python) = python() else { return };
    let exports: BTreeMap<String, Export> = lived();
    let refused = replayed(&python, &exports);
    let accepted = refused.values().filter(|why| why.is_none()).count();
    kit::tell(&format!(
        "exports of arbitrary programs, replayed by the official Python SDK: {accepted} of {}",
        refused.len()
    ));
    let why: Vec<String> =
        refused.iter().filter_map(|(name, why)| Some(format!("{name}: {}", why.as_ref()?))).collect();
    assert!(why.is_empty(), "{} of {} refused:\n{}", why.len(), refused.len(), why.join("\n"));
    assert!(accepted >= EXPORTS, "{accepted}");
    let types: BTreeSet<&str> = exports.values().flat_map(Export::types).collect();
    for wanted in [
        "ACTIVITY_TASK_CANCEL_REQUESTED",
        "ACTIVITY_TASK_FAILED",
        "TIMER_FIRED",
        "TIMER_CANCELED",
        "MARKER_RECORDED",
        "WORKFLOW_EXECUTION_SIGNALED",
        "WORKFLOW_EXECUTION_UPDATE_COMPLETED",
        "CHILD_WORKFLOW_EXECUTION_COMPLETED",
        "WORKFLOW_EXECUTION_FAILED",
        "REQUEST_CANCEL_EXTERNAL_WORKFLOW_EXECUTION_INITIATED",
        "EXTERNAL_WORKFLOW_EXECUTION_SIGNALED",
        "WORKFLOW_EXECUTION_CANCELED",
        "WORKFLOW_EXECUTION_CONTINUED_AS_NEW",
        "UPSERT_WORKFLOW_SEARCH_ATTRIBUTES",
    ] {
        assert!(types.contains(format!("EVENT_TYPE_{wanted}").as_str()), "no program met {wanted}: {types:?}");
    }
    changed_ones_are_refused(&python, &exports);
}

/// The check can fail: another type, another order and another numbering are each refused.
fn changed_ones_are_refused(python: &Path, exports: &BTreeMap<String, Export>) {
    let mut changed = BTreeMap::new();
    for (how, change) in
        [("type", other_type as fn(&mut [Value]) -> bool), ("order", other_order), ("number", other_number)]
    {
        let with = exports.iter().filter_map(|(name, export)| {
            let mut history = export.history.clone();
            change(history["events"].as_array_mut()?)
                .then(|| (format!("{how}-{name}"), Export { workflow_id: export.workflow_id.clone(), history }))
        });
        let before = changed.len();
        changed.extend(with.take(5));
        assert_eq!(changed.len(), before + 5, "exports that can be given another {how}");
    }
    let refused = replayed(python, &changed);
    let accepted: Vec<&String> = refused.iter().filter(|(_, why)| why.is_none()).map(|(name, _)| name).collect();
    assert!(accepted.is_empty(), "taken, although they were changed: {accepted:?}");
    for (name, why) in &refused {
        let why = why.as_deref().unwrap_or_default();
        assert!(why.to_lowercase().contains("nondeterminism"), "{name}: {why}");
    }
}

const SCHEDULED: &str = "EVENT_TYPE_ACTIVITY_TASK_SCHEDULED";
const TIMER: &str = "EVENT_TYPE_TIMER_STARTED";
const CHILD: &str = "EVENT_TYPE_START_CHILD_WORKFLOW_EXECUTION_INITIATED";

fn other_type(events: &mut [Value]) -> bool {
    let Some(event) = events.iter_mut().find(|event| event["eventType"] == SCHEDULED) else { return false };
    event["activityTaskScheduledEventAttributes"]["activityType"]["name"] = json!("another");
    true
}

/// Two neighbours that are asked for in one workflow task change places.
fn other_order(events: &mut [Value]) -> bool {
    let begins = |event: &Value| [SCHEDULED, TIMER, CHILD].iter().any(|kind| event["eventType"] == *kind);
    let pair = |two: &[Value]| begins(&two[0]) && begins(&two[1]) && two[0]["eventType"] != two[1]["eventType"];
    let Some(at) = events.windows(2).position(pair) else { return false };
    events.swap(at, at + 1);
    let (first, second) = ((at + 1).to_string(), (at + 2).to_string());
    for event in events.iter_mut().flat_map(|event| event.as_object_mut()).flat_map(|fields| fields.values_mut()) {
        for (field, id) in event.as_object_mut().into_iter().flatten() {
            if field.ends_with("EventId") {
                *id = match id.as_str() {
                    Some(text) if text == first => json!(second),
                    Some(text) if text == second => json!(first),
                    _ => id.clone(),
                };
            }
        }
    }
    (events[at]["eventId"], events[at + 1]["eventId"]) = (json!(first), json!(second));
    true
}

fn other_number(events: &mut [Value]) -> bool {
    let fired = events.iter_mut().find(|event| event["eventType"] == "EVENT_TYPE_TIMER_FIRED");
    let Some(event) = fired else { return false };
    event["timerFiredEventAttributes"]["timerId"] = json!("77");
    true
}

/// Runs that have closed, of programs that are lived in the simulated world.
fn lived() -> BTreeMap<String, Export> {
    // Lives are lived under the same names: runs are told apart by what they hold.
    let closed: Arc<Mutex<BTreeMap<String, Vec<Turn>>>> = Arc::default();
    let kept = closed.clone();
    let report = kit::kit()
        .invariant("closed runs are kept", move |run| {
            if run.outcome().is_some()
                && let Some(EventKind::WorkflowExecutionStarted(started)) = run.events().next()
                && started.workflow_type.as_str() == KIND
                && started.forked_from.is_none()
            {
                let turns = run.turns().to_vec();
                kept.lock().map_err(|why| why.to_string())?.insert(format!("{turns:?}"), turns);
            }
            Ok(())
        })
        .lives(400)
        .run();
    let closed = std::mem::take(&mut *closed.lock().expect("nothing panics"));
    // The longest first: short ones hold least.
    let mut closed: Vec<Vec<Turn>> = closed.into_values().collect();
    closed.sort_by_key(|turns| std::cmp::Reverse(turns.len()));
    assert!(closed.len() >= EXPORTS, "{} runs have closed: {report}", closed.len());
    let exports = closed.into_iter().take(EXPORTS + 50).enumerate().map(|(number, turns)| {
        let history = History::new(turns).expect("a history");
        let workflow_id = history.started().workflow_id.to_string();
        (format!("{number:03}.json"), Export { workflow_id, history: to_temporal(&history) })
    });
    exports.collect()
}

/// What the official replayer says of each: nothing, or why it refuses.
fn replayed(python: &Path, exports: &BTreeMap<String, Export>) -> BTreeMap<String, Option<String>> {
    let folder = tempfile::tempdir().expect("a folder");
    let script = folder.path().join("kitchen_sink.py");
    std::fs::write(&script, SCRIPT).expect("written");
    let told = folder.path().join("told");
    std::fs::create_dir(&told).expect("made");
    for (name, Export { workflow_id, history }) in exports {
        let name = if name.ends_with(".json") { name.clone() } else { format!("{name}.json") };
        std::fs::write(told.join(name), json!({ "workflow_id": workflow_id, "history": history }).to_string())
            .expect("written");
    }
    if let Some(keep) = std::env::var_os("BOSUN_KEEP_EXPORTS") {
        let copied = Command::new("cp").arg("-r").arg(&told).arg(keep).status();
        assert!(copied.is_ok_and(|status| status.success()));
    }
    let output = Command::new(python).arg(&script).arg(&told).output().expect("Python runs");
    let lines = String::from_utf8_lossy(&output.stdout).into_owned();
    let said = lines.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let said: BTreeMap<String, Option<String>> = said
        .filter_map(|line| Some((line["file"].as_str()?.to_owned(), line["refused"].as_str().map(str::to_owned))))
        .collect();
    assert_eq!(said.len(), exports.len(), "{}", shown(&output));
    said
}

fn shown(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{}\n{}{}", output.status, text(&output.stdout), text(&output.stderr))
}

/// The same through the shipped binary: programs are executed, and their runs exported, in one data directory.
#[test]
fn official_replayers_accept_what_the_binary_exports() {
    let Some(python) = python() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let bosun = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bosun"));
        command.arg("--data").arg(folder.path().join("data")).args(args).env_remove("BOSUN_TEMPORAL");
        command.output().expect("bosun runs")
    };
    let mut exports = BTreeMap::new();
    for (name, steps) in shipped() {
        let program = json!({ "vars": { "x": 0 }, "steps": steps }).to_string();
        let ran = bosun(&["execute", "kitchen-sink", "-w", name, "--input", &program, "-o", "json"]);
        assert!(ran.status.code().is_some_and(|code| code < 2 || code == 10), "{name}: {}", shown(&ran));
        let export = bosun(&["workflow", "export", name, "--as", "temporal"]);
        assert!(export.status.success(), "{name}: {}", shown(&export));
        let history: Value = serde_json::from_slice(&export.stdout).expect("JSON");
        exports.insert(format!("{name}.json"), Export { workflow_id: name.to_owned(), history });
    }
    let summaries: Vec<&Value> =
        exports["summaries.json"].events().iter().map(|event| &event["userMetadata"]).collect();
    assert_eq!(summaries.iter().filter(|metadata| metadata.is_object()).count(), 2, "{summaries:?}");
    let refused = replayed(&python, &exports);
    let why: Vec<String> =
        refused.iter().filter_map(|(name, why)| Some(format!("{name}: {}", why.as_ref()?))).collect();
    assert!(why.is_empty(), "{}", why.join("\n"));
}

fn shipped() -> Vec<(&'static str, Value)> {
    let echo = |value: Value| json!({ "activity": { "type": "echo", "input": value, "as": "x" } });
    vec![
        ("sequence", json!([echo(json!(1)), { "timer": "1ms" }, echo(json!("$x"))])),
        (
            "fan-out",
            json!([{ "parallel": [[{ "timer": "5ms" }, echo(json!(1))], [echo(json!(2)), { "timer": "1ms" }], [echo(json!(3))]] }]),
        ),
        ("race", json!([{ "race": { "branches": [[{ "timer": "1h" }], [echo(json!(1))]], "as": "won" } }])),
        (
            "race-at-once",
            json!([{ "race": { "branches": [[{ "timer": "1h" }], [{ "set": { "x": 1 } }]], "as": "won" } }]),
        ),
        (
            // What is asked for later keeps the numbers that the official SDKs give it.
            "after-a-race-at-once",
            json!([
                { "race": { "branches": [[{ "timer": "1h" }], [{ "set": { "x": 1 } }]], "as": "won" } },
                { "timer": "1ms" },
                { "side_effect": { "value": 7, "as": "x" } },
                echo(json!("$x"))
            ]),
        ),
        (
            "side-effects",
            json!([{ "side_effect": { "value": 7, "as": "x" } }, echo(json!("$x")), { "side_effect": { "value": 8, "as": "x" } }]),
        ),
        ("patch", json!([{ "patch": { "id": "p", "new": [echo(json!(1))], "old": [{ "timer": "1h" }] } }])),
        (
            "child",
            json!([{ "child": { "input": { "steps": [{ "return": 1 }] }, "as": "x" } }, { "child": { "id": "named", "input": { "steps": [{ "fail": {} }] } } }]),
        ),
        (
            "summaries",
            json!([
                { "timer": { "for": "1ms", "summary": "a short rest" } },
                { "activity": { "type": "echo", "input": 1, "summary": "says it again" } }
            ]),
        ),
        (
            "saga",
            json!([{ "saga": [{ "do": [echo(json!(1))], "undo": [echo(json!(2))] }, { "do": [{ "fail": { "message": "no" } }], "undo": [] }] }]),
        ),
        ("random", json!([{ "random": "x" }, { "uuid": "x" }, { "child": { "input": { "steps": [] } } }])),
    ]
}
