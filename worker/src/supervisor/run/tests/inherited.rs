//! Whatever a spec says of its tasks, its children can be started: nothing that holds above is refused below.

use serde_json::{Value, json, to_value};

use crate::supervisor::outbox::{ChildKind, ChildTask};
use crate::supervisor::run::children::{self, ChildBudget, FromAbove};
use crate::supervisor::spec::{Family, Preset, SupervisorSpec, read_spec_value};

const SECTIONS: [&str; 7] = ["dispatch", "dependencies", "review", "failure", "synthesis", "compensation", "budget"];

/// Other values of a key; those that are none are refused when the spec is read.
fn others(value: &Value) -> Vec<Value> {
    let words = [
        "skip",
        "fail",
        "fail_task",
        "retry",
        "repair",
        "terminal",
        "completed_or_skipped",
        "wait",
        "run",
        "cancel",
        "block",
        "one",
        "sequential",
        "unlimited",
        "none",
        "rules",
        "task",
        "iteration",
        "last_output",
        "merge",
        "synthesizer",
        "stop",
        "ask",
        "synthesize",
        "5m",
        "1s",
    ];
    let texts = words.into_iter().map(Value::from);
    let more = [json!(0), json!(2), json!(0.4), json!(3_000), json!(["short"]), json!({ "tries": 1 })];
    match value {
        Value::Bool(value) => vec![json!(!value)],
        _ => texts.chain(more).collect(),
    }
}

/// All specs that say one thing more than the preset, of these sections.
fn specs(preset: Preset) -> Vec<SupervisorSpec> {
    let usual = to_value(preset.values()).unwrap();
    let mut all = Vec::new();
    for section in SECTIONS {
        for (key, value) in usual[section].as_object().unwrap() {
            for other in others(value) {
                let said = json!({
                    "preset": preset, "objective": "o", "agents": [{ "name": "ann" }, { "name": "bob" }],
                    "reviewer": {}, section: { key: other },
                });
                let read = read_spec_value(said).ok().map(|file| file.spec);
                all.extend(read.filter(|spec| spec.resolve().is_ok()));
            }
        }
    }
    all
}

#[test]
fn a_child_is_never_refused_for_what_its_parent_says() {
    let mut count = 0;
    for preset in Preset::ALL.into_iter().filter(|preset| preset.values().family() == Family::Graph) {
        for parent in specs(preset) {
            for kind in [ChildKind::SimpleTask, ChildKind::Dag] {
                for is_planned in [false, true] {
                    let task = ChildTask { query: "q".to_owned(), is_planned, ..ChildTask::default() };
                    let child = children::spec_of(&parent, kind, task, 0, ChildBudget::default(), FromAbove::default());
                    assert!(child.is_ok(), "{kind:?} of {}: {}", json!(parent), child.unwrap_err());
                    count += 1;
                }
            }
        }
    }
    assert!(count > 1_000, "{count}");
}

/// What has an effect there holds; what has none is as the child's preset has it.
#[test]
fn a_child_does_its_tasks_as_the_spec_says() {
    let said = json!({
        "preset": "shannon-supervisor", "objective": "o", "agents": [{ "name": "ann" }],
        "review": { "human": true }, "failure": { "tries": 1 }, "dispatch": { "max_concurrency": 2 },
    });
    let parent = read_spec_value(said).unwrap().spec;
    let child = |kind| -> SupervisorSpec {
        let task = ChildTask { query: "q".to_owned(), ..ChildTask::default() };
        let input = children::spec_of(&parent, kind, task, 0, ChildBudget::default(), FromAbove::default()).unwrap();
        serde_json::from_value(input["resolved"]["spec"].clone()).unwrap()
    };
    let (simple, dag) = (child(ChildKind::SimpleTask), child(ChildKind::Dag));
    for one in [&simple, &dag] {
        assert!(one.review.human);
        assert_eq!(one.failure.tries, 1);
    }
    assert_eq!((simple.dispatch.max_concurrency, dag.dispatch.max_concurrency), (Some(1), Some(2)));
}
