//! Stories of structure: children, races, scopes, timers, what code is built of.
//!
//! Invariant: as of all stories: names and what they show are unique, and a story that is there is not told differently.

use super::*;

// long: a list of stories.
pub(super) fn structure(told: &mut StoryList) {
    for (name, steps) in [
        (
            "loop",
            json!([{ "loop": { "times": 4, "as": "i", "steps": [{ "activity": { "type": "echo", "input": "$i" } }] } }]),
        ),
        (
            "branches",
            json!([{ "set": { "x": 1 } }, { "if": { "var": "x", "equals": 1, "then": [{ "timer": "1s" }], "else": [{ "fail": {} }] } }]),
        ),
        (
            "race-won-by-timer",
            json!([{ "race": { "as": "w", "branches": [[{ "timer": "1h" }], [{ "timer": "1s" }]] } }, { "return": "$w" }]),
        ),
        (
            "race-of-activities",
            json!([{ "race": { "as": "w", "branches": [[{ "activity": { "type": "later", "input": 1 } }], [{ "activity": { "type": "echo", "input": 2 } }]] } }]),
        ),
        (
            "nested",
            json!([{ "parallel": [[{ "race": { "branches": [[{ "timer": "2s" }], [{ "timer": "3s" }]] } }], [{ "parallel": [[{ "timer": "1s" }], [{ "timer": "4s" }]] }]] }]),
        ),
        (
            "parallel-fails",
            json!([{ "parallel": [[{ "timer": "5s" }, { "fail": { "type": "Late" } }], [{ "fail": { "type": "Early" } }]] }]),
        ),
        (
            "caught",
            json!([{ "try": { "steps": [{ "fail": { "type": "A", "message": "m", "details": { "d": 1 } } }], "catch": [{ "set": { "c": "$why" } }], "as": "why", "always": [{ "timer": "1s" }] } }]),
        ),
        (
            "failed",
            json!([{ "fail": { "type": "Asked", "message": "for", "non_retryable": true, "details": [1, 2] } }]),
        ),
        ("invalid-program", json!([{ "nothing": 1 }])),
    ] {
        told.sink(steps, (name, &format!("structured concurrency and failures: {name}"), &["E29", "E30"]), done());
    }
    for (name, steps, row) in [
        (
            "derived",
            json!([{ "random": "r" }, { "uuid": "u" }, { "now": "t" }, { "timer": "90s" }, { "random": "r2" }, { "now": "t2" }]),
            "E20",
        ),
        (
            "side-effects",
            json!([{ "side_effect": { "value": 1, "as": "a" } }, { "side_effect": { "value": "$a", "as": "b" } }, { "timer": "1s" }, { "side_effect": { "value": null } }]),
            "E20",
        ),
        (
            "patched",
            json!([{ "patch": { "id": "p", "new": [{ "timer": "1s" }], "old": [{ "timer": "2s" }] } }, { "patch": { "id": "p", "new": [{ "set": { "again": true } }], "old": [] } }]),
            "E21",
        ),
        ("patch-deprecated", json!([{ "deprecate_patch": "p" }, { "timer": "1s" }]), "E21"),
        (
            "attributes",
            json!([{ "upsert": { "city": "Rome", "n": 3, "f": 1.5, "on": true, "tags": ["a", "b"] } }, { "timer": "1s" }, { "upsert": { "city": null } }, { "memo": { "k": { "v": 1 } } }]),
            "E23",
        ),
        (
            "timers-in-order",
            json!([{ "parallel": [[{ "timer": "3s" }], [{ "timer": "1s" }], [{ "timer": { "for": "2s", "summary": "middle" } }]] }]),
            "E10",
        ),
        ("sleep-until", json!([{ "sleep_until": 1_767_225_700_000_u64 }, { "sleep_until": 1_000 }]), "E10"),
    ] {
        told.sink(steps, (name, &format!("notes for replay and lists: {name}"), &[row, "E22"]), done());
    }
    let inner = |steps: Value| json!({ "steps": steps });
    for (name, child) in [
        ("child-completed", json!({ "input": inner(json!([{ "return": 5 }])), "as": "c" })),
        ("child-failed", json!({ "input": inner(json!([{ "fail": { "type": "Inner" } }])) })),
        (
            "child-not-waited-for",
            json!({ "id": "lonely", "input": inner(json!([{ "timer": "1h" }])), "wait": false, "close_policy": "abandon", "as": "run" }),
        ),
        (
            "child-terminated-with-parent",
            json!({ "id": "doomed", "input": inner(json!([{ "timer": "1h" }])), "wait": false }),
        ),
        (
            "child-asked-to-cancel",
            json!({ "id": "asked", "input": inner(json!([{ "wait_cancel": "why" }])), "wait": false, "close_policy": "request_cancel" }),
        ),
        (
            "child-of-another-type",
            json!({ "type": "step-machine", "id": "machine-of-a-sink", "input": [{ "timer": { "seconds": 5 } }], "as": "c" }),
        ),
        ("child-of-no-type", json!({ "type": "nothing", "input": null })),
        (
            "child-continues",
            json!({ "input": inner(json!([{ "if": { "var": "n", "equals": null, "then": [{ "continue_as_new": { "vars": { "n": 1 } } }], "else": [{ "return": "$n" }] } }])), "as": "c" }),
        ),
    ] {
        told.sink(
            json!([{ "child": child }]),
            (name, &format!("children and parent close policies: {name}"), &["E15"]),
            done(),
        );
    }
    let slow =
        json!({ "child": { "id": "slow-child", "input": inner(json!([{ "timer": "9h" }])), "cancellation": "wait" } });
    told.sink(
        json!([slow]),
        ("child-canceled", "a run that is canceled and cancels its child", &["E15", "E17"]),
        vec![StoryAction::Cancel, StoryAction::Finish],
    );
    let killed = json!([{ "child": { "id": "killer", "input": inner(json!([{ "cancel_workflow": { "workflow_id": "child-cancels-parent", "reason": "up" } }, { "timer": "1s" }])) } }]);
    told.sink(killed, ("child-cancels-parent", "a child that asks its parent to cancel", &["E16", "E15"]), done());
    told.sink(
        json!([{ "child": { "id": "victim", "input": inner(json!([{ "timer": "1h" }])) } }]),
        ("child-terminated", "a child that is terminated while its parent waits for it", &["E15", "E18"]),
        vec![StoryAction::TerminateOther("victim"), StoryAction::Finish],
    );
    let two = json!([{ "child": { "id": "twin", "input": inner(json!([{ "timer": "1h" }])), "wait": false, "close_policy": "abandon" } }, { "child": { "id": "twin", "input": inner(json!([])) } }]);
    told.sink(two, ("child-id-in-use", "a child whose workflow id is in use cannot start", &["E15", "E01"]), done());
    for n in [2_u64, 4] {
        let again = json!([{ "timer": "10s" }, { "if": { "var": "n", "equals": n, "then": [{ "return": "$n" }], "else": [{ "loop": { "times": 1, "as": "x", "steps": [] } }] } }, { "if": { "var": "n", "equals": 1, "then": [{ "continue_as_new": { "vars": { "n": n } } }], "else": [{ "continue_as_new": { "vars": { "n": 1 } } }] } }]);
        told.sink(
            again,
            (
                &format!("continued-{n}"),
                &format!("a chain of three runs that counts over {n}, with a signal carried over"),
                &["E19", "E11"],
            ),
            vec![StoryAction::Signal("kept", json!(n)), StoryAction::Finish],
        );
    }
}
