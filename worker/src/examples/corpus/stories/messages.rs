//! Stories of messages: signals, queries, updates, requests to other runs.
//!
//! Invariant: as of all stories: names and what they show are unique, and a story that is there is not told differently.

use super::*;

// long: a list of stories.
pub(super) fn messages(told: &mut StoryList) {
    let wait = |name: &str| json!({ "wait_signal": { "name": name, "as": name } });
    let go = |n: u64| StoryAction::Signal("go", json!(n));
    told.sink(
        json!([wait("go")]),
        ("signal", "a signal that is waited for", &["E11"]),
        vec![go(1), StoryAction::Finish],
    );
    told.sink(
        json!([{ "timer": "5s" }, wait("go"), { "drain_signals": { "name": "go", "as": "rest" } }]),
        ("signals-buffered", "signals that come before they are waited for, in order", &["E11"]),
        vec![go(1), go(2), go(3), StoryAction::Finish],
    );
    told.sink(
        json!([{ "timer": "5s" }]),
        ("signals-unhandled", "signals that nobody takes are reported at the end", &["E11"]),
        vec![go(1), StoryAction::Signal("other", json!(2)), StoryAction::Finish],
    );
    told.sink(
        json!([{ "timer": "5s" }, { "drain_signals": { "name": "go", "as": "all" } }]),
        ("signal-repeated", "a signal sent twice under one request id is one", &["E11"]),
        vec![go(1), go(1), go(2), StoryAction::Finish],
    );
    told.sink(
        json!([{ "wait_signal": { "name": "go", "as": "go", "timeout": "1m" } }]),
        ("signal-timed-out", "a wait for a signal that ends by its timer", &["E11", "E10"]),
        done(),
    );
    told.sink(
        json!([{ "wait_signal": { "name": "go", "as": "go", "timeout": "1m" } }]),
        ("signal-in-time", "a wait for a signal whose timer is canceled", &["E10", "E29"]),
        vec![StoryAction::Sleep(30), go(7), StoryAction::Finish],
    );
    told.sink(
        json!([{ "set": { "door": "shut" } }, { "wait_var": { "name": "door", "equals": "open" } }]),
        ("updates", "an update that is refused, one that is accepted, one that lets the run go on", &["E14"]),
        vec![
            StoryAction::Update("set_var", json!({ "name": "a.b", "value": 1 })),
            StoryAction::Update("set_var", json!({ "name": "n", "value": 1 })),
            StoryAction::Update("set_var", json!({ "name": "door", "value": "open" })),
            StoryAction::Finish,
        ],
    );
    told.sink(
        json!([{ "wait_var": { "name": "n", "equals": 3 } }]),
        (
            "updates-of-an-open-run",
            "updates, and queries that leave no trace, of a run that stays open",
            &["E13", "E14"],
        ),
        vec![
            StoryAction::Query("vars"),
            StoryAction::Update("set_var", json!({ "name": "n", "value": 1 })),
            StoryAction::Update("set_var", json!({ "name": "n", "value": 2 })),
        ],
    );
    told.sink(
        json!([{ "wait_cancel": "why" }, { "return": "$why" }]),
        ("waits-for-cancel", "a run that waits for its cancellation and completes", &["E17"]),
        vec![StoryAction::Cancel, StoryAction::Finish],
    );
    told.sink(json!([{ "try": { "steps": [{ "timer": "9h" }], "always": [{ "activity": { "type": "echo", "input": "cleanup" } }] } }]), ("canceled-with-cleanup", "a cancellation with a cleanup that is shielded", &["E17"]), vec![StoryAction::Sleep(60), StoryAction::Cancel, StoryAction::Finish]);
    told.sink(
        json!([{ "timer": "9h" }]),
        ("terminated", "a run that is terminated", &["E18"]),
        vec![StoryAction::Sleep(60), StoryAction::Terminate],
    );
    told.sink(
        json!([{ "timer": "1h" }, wait("go")]),
        ("paused", "a run that is paused over its timer and a signal", &["E27"]),
        vec![StoryAction::Pause, StoryAction::Sleep(7_200), go(1), StoryAction::Unpause, StoryAction::Finish],
    );
    told.sink(
        json!([wait("go")]),
        ("paused-and-open", "a run that is left paused with a signal in its inbox", &["E27", "E11"]),
        vec![StoryAction::Pause, go(1)],
    );
    told.sink(
        json!([wait("go")]),
        ("paused-and-terminated", "a paused run that is terminated", &["E27", "E18"]),
        vec![StoryAction::Pause, StoryAction::Terminate],
    );
    told.sink(
        json!([{ "signal": { "workflow_id": "nobody", "name": "news", "input": 1 } }]),
        ("signal-to-nobody", "a signal to a run that does not exist", &["E16"]),
        done(),
    );
    told.sink(json!([{ "try": { "steps": [{ "cancel_workflow": { "workflow_id": "nobody", "reason": "r" } }], "catch": [{ "set": { "missed": true } }], "as": "why" } }]), ("cancel-of-nobody", "a cancel request to a run that does not exist, caught", &["E16"]), done());
    let listener = json!({ "steps": [{ "wait_signal": { "name": "news", "as": "n" } }, { "wait_cancel": "why" }] });
    told.sink(json!([{ "child": { "id": "told-by-parent", "input": listener, "wait": false, "close_policy": "abandon" } }, { "signal": { "workflow_id": "told-by-parent", "name": "news", "input": { "n": 1 } } }, { "cancel_workflow": { "workflow_id": "told-by-parent", "reason": "enough" } }]), ("tells-its-child", "a run that signals and cancels another one", &["E16", "E15"]), done());
    told.sink(
        json!([wait("go"), { "activity": { "type": "echo", "input": "$go", "as": "out" } }]),
        ("fork-other-signal", "forks with another signal, at an event, and with another input", &["E20"]),
        vec![
            go(1),
            StoryAction::Finish,
            StoryAction::Fork(
                "signal",
                None,
                vec![ForkChange::Signal { name: "go".into(), nth: None, input: Payload::raw_json("2") }],
            ),
            StoryAction::Sleep(1),
            StoryAction::Fork("at", Some(1), vec![]),
            StoryAction::Fork("input", None, vec![ForkChange::Input(Payload::raw_json("{\"steps\":[]}"))]),
            StoryAction::Sleep(1),
        ],
    );
}
