//! Stories of the other form: the same features, asked for by a state machine.
//!
//! Invariant: as of all stories: names and what they show are unique, and a story that is there is not told differently.

use super::*;

// long: a list of stories.
pub(super) fn machines(told: &mut StoryList) {
    let activity = |name: &str, input: Value, attempts: u32| json!({ "activity": { "name": name, "input": input, "attempts": attempts } });
    let rows: &[&'static str] = &["E37", "E40"];
    for (name, steps) in [
        ("machine-activity", json!([activity("echo", json!(1), 1)])),
        ("machine-retried", json!([activity("fail_n_times", json!({ "times": 2, "value": 7 }), 5)])),
        ("machine-fails", json!([activity("fail_n_times", json!({ "times": 9 }), 2)])),
        ("machine-timed-out", json!([activity("later", json!(1), 2)])),
        (
            "machine-timers",
            json!([{ "timer": { "seconds": 5 } }, { "timer": { "seconds": 0 } }, { "timer": { "seconds": 3_600 } }]),
        ),
        ("machine-derived", json!([{ "random": null }, { "timer": { "seconds": 1 } }, { "random": null }])),
        (
            "machine-side-effects",
            json!([{ "side_effect": { "value": 7 } }, { "timer": { "seconds": 1 } }, { "side_effect": { "value": 8 } }]),
        ),
        (
            "machine-patched",
            json!([{ "patch": { "id": "p" } }, { "timer": { "seconds": 1 } }, { "patch": { "id": "p" } }]),
        ),
        (
            "machine-notes",
            json!([{ "note": { "text": "a" } }, { "timer": { "seconds": 1 } }, { "note": { "text": "b" } }]),
        ),
        ("machine-child", json!([{ "child": { "id": "machine-inner", "steps": [{ "timer": { "seconds": 9 } }] } }])),
        (
            "machine-child-timed-out",
            json!([{ "child_within": { "id": "machine-late", "seconds": 5, "steps": [{ "timer": { "seconds": 60 } }] } }]),
        ),
        (
            "machine-child-fails",
            json!([{ "child": { "id": "machine-failing", "steps": [{ "fail": { "text": "inner" } }] } }]),
        ),
        ("machine-tells-nobody", json!([{ "tell": { "id": "nobody", "name": "x" } }, { "stop": { "id": "nobody" } }])),
        (
            "machine-continued",
            json!([{ "timer": { "seconds": 1 } }, { "again": { "steps": [{ "again": { "steps": [{ "timer": { "seconds": 2 } }] } }] } }]),
        ),
        ("machine-fails-by-itself", json!([{ "timer": { "seconds": 1 } }, { "fail": { "text": "as asked" } }])),
        ("machine-invalid", json!([{ "dance": {} }])),
        ("machine-empty", json!([])),
    ] {
        let steps: Value = unit_steps(steps);
        told.machine(steps, (name, &format!("the other form: {name}"), rows), done());
    }
    let signal = json!([{ "signal": { "name": "go" } }, { "signal": { "name": "go" } }]);
    let go = |n: u64| StoryAction::Signal("go", json!(n));
    told.machine(
        signal.clone(),
        ("machine-signals", "the other form: signals, one deferred", &["E11"]),
        vec![StoryAction::Signal("x", json!(0)), go(1), go(2), StoryAction::Finish],
    );
    told.machine(
        signal.clone(),
        ("machine-canceled", "the other form: canceled with details", &["E17"]),
        vec![go(1), StoryAction::Cancel, StoryAction::Finish],
    );
    told.machine(signal.clone(), ("machine-open", "the other form: left open", &["E11"]), vec![go(1)]);
    told.machine(
        signal.clone(),
        ("machine-paused", "the other form: paused over signals", &["E27"]),
        vec![StoryAction::Pause, go(1), StoryAction::Unpause, go(2), StoryAction::Finish],
    );
    told.machine(
        signal,
        ("machine-forked", "the other form: forked with another signal, and at a restart", &["E20"]),
        vec![
            go(1),
            StoryAction::Restart,
            go(2),
            StoryAction::Finish,
            StoryAction::Fork(
                "other",
                None,
                vec![ForkChange::Signal { name: "go".into(), nth: Some(2), input: Payload::raw_json("9") }],
            ),
        ],
    );
    told.machine(
        json!(["update", "update"]),
        ("machine-updates", "the other form: updates, one refused", &["E14"]),
        vec![
            StoryAction::Update("say", json!(null)),
            StoryAction::Update("say", json!(1)),
            StoryAction::Update("say", json!(2)),
            StoryAction::Finish,
        ],
    );
    told.machine(
        json!([activity("later", json!(1), 3)]),
        ("machine-by-hand", "the other form: completed from outside after a restart", &["E09"]),
        vec![
            StoryAction::Restart,
            StoryAction::Complete(ActivityCompletion::Complete(Payload::raw_json("1"))),
            StoryAction::Finish,
        ],
    );
    for n in [3_u64, 12] {
        let steps: Vec<Value> =
            (0..n).flat_map(|i| [activity("echo", json!(i), 1), json!({ "timer": { "seconds": i } })]).collect();
        told.machine(
            json!(steps),
            (&format!("machine-steps-{n}"), &format!("the other form: {n} rounds, over a restart"), rows),
            vec![StoryAction::Restart, StoryAction::Finish],
        );
    }
}
