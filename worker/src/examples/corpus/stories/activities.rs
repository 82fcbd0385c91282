//! Stories of activities: attempts, timeouts, heartbeats, cancellation, completion from outside.
//!
//! Invariant: as of all stories: names and what they show are unique, and a story that is there is not told differently.

use super::*;

// long: a list of stories.
pub(super) fn activities(told: &mut StoryList) {
    let echo = |input: Value| json!({ "activity": { "type": "echo", "input": input, "as": "out" } });
    told.sink(json!([echo(json!(1)), { "return": "$out" }]), ("activity", "one activity", &["E04", "E01"]), done());
    for attempts in [2_u32, 3, 5] {
        let of = (
            &*format!("retried-{attempts}"),
            &*format!("an activity that succeeds at attempt {attempts}"),
            &["E05"][..],
        );
        let fails = json!({ "times": attempts - 1, "value": attempts });
        let retry = json!({ "maximum_attempts": 9, "initial_interval": "2s", "coefficient_permille": 3000, "maximum_interval": "9s" });
        told.sink(
            json!([{ "activity": { "type": "fail_n_times", "input": fails, "as": "n", "retry": retry } }]),
            of,
            done(),
        );
    }
    let fails = |retry: Value| json!([{ "activity": { "type": "fail_n_times", "input": { "times": 9, "type": "Busy" }, "retry": retry } }]);
    told.sink(
        fails(json!({ "maximum_attempts": 2 })),
        ("attempts-used-up", "an activity out of attempts fails the run", &["E05", "E30"]),
        done(),
    );
    told.sink(
        fails(json!({ "non_retryable": ["Busy"] })),
        ("non-retryable-type", "a failure type that is not retried", &["E05"]),
        done(),
    );
    told.sink(
        fails(json!({ "maximum_attempts": 1 })),
        ("at-most-once", "an activity with one attempt", &["E08"]),
        done(),
    );
    let hard = json!({ "times": 9, "type": "Hard", "non_retryable": true });
    told.sink(
        json!([{ "activity": { "type": "fail_n_times", "input": hard } }]),
        ("non-retryable", "a failure that says it is final", &["E30"]),
        done(),
    );
    for (name, limits) in [
        ("start-to-close", json!({ "start_to_close": "20s" })),
        ("schedule-to-close", json!({ "schedule_to_close": "50s" })),
        ("heartbeat-missed", json!({ "start_to_close": "9m", "heartbeat": "15s" })),
    ] {
        let mut options =
            json!({ "type": "later", "input": 1, "retry": { "maximum_attempts": 2, "initial_interval": "1s" } });
        options.as_object_mut().unwrap().extend(limits.as_object().unwrap().clone());
        told.sink(
            json!([{ "activity": options }]),
            (name, &format!("the timeout {name}, over attempts"), &["E04", "E06"]),
            done(),
        );
    }
    let queue = json!({ "type": "echo", "input": 1, "task_queue": "nobody", "schedule_to_start": "30s", "retry": { "maximum_attempts": 1 } });
    told.sink(
        json!([{ "activity": queue }]),
        ("own-queue", "an activity on a queue of its own, started within its limit", &["E04"]),
        done(),
    );
    let later = json!([{ "activity": { "type": "later", "input": 1, "as": "out", "start_to_close": "1h", "heartbeat": "10m", "summary": "by hand" } }]);
    let ok = || ActivityCompletion::Complete(Payload::raw_json("\"by hand\""));
    told.sink(
        later.clone(),
        ("completed-later", "completed from outside by its token", &["E09"]),
        vec![StoryAction::Complete(ok()), StoryAction::Finish],
    );
    let failure = ActivityCompletion::Fail(Failure::application("ByHand", "no").non_retryable());
    told.sink(
        later.clone(),
        ("failed-later", "failed from outside by its token", &["E09"]),
        vec![StoryAction::Complete(failure), StoryAction::Finish],
    );
    let beat = || ActivityCompletion::Heartbeat(Some(Payload::raw_json("50")));
    let beats = vec![
        StoryAction::Complete(beat()),
        StoryAction::Sleep(60),
        StoryAction::Complete(beat()),
        StoryAction::Complete(ok()),
        StoryAction::Finish,
    ];
    told.sink(later.clone(), ("heartbeats", "heartbeats with details, then the result", &["E06", "E09"]), beats);
    told.sink(
        later.clone(),
        ("worker-restarted", "a worker restart while an activity is under way", &["E08", "E37"]),
        vec![StoryAction::Restart, StoryAction::Complete(ok()), StoryAction::Finish],
    );
    told.sink(later.clone(), ("left-open", "a run that waits for an activity", &["E04"]), vec![]);
    told.sink(
        later,
        ("fork-of-pending", "a fork while an activity is under way", &["E20"]),
        vec![
            StoryAction::Fork("fork", None, vec![result("later", "9")]),
            StoryAction::Complete(ok()),
            StoryAction::Finish,
        ],
    );
    let waits = json!({ "type": "later", "input": 1, "cancellation": "wait", "start_to_close": "9m" });
    told.sink(
        json!([{ "activity": waits }]),
        ("canceled-by-token", "an activity that is asked to cancel and says that it has", &["E07", "E09"]),
        vec![
            StoryAction::Cancel,
            StoryAction::Complete(ActivityCompletion::Cancel(Some(Payload::raw_json("\"half\"")))),
            StoryAction::Finish,
        ],
    );
    for (kind, name) in [("try", "try-cancel"), ("wait", "wait-cancel"), ("abandon", "abandon")] {
        let step = json!({ "activity": { "type": "later", "input": 1, "cancellation": kind, "start_to_close": "9m" } });
        let acts = vec![StoryAction::Cancel, StoryAction::Sleep(30), StoryAction::Sleep(900)];
        told.sink(
            json!([step]),
            (
                &format!("canceled-{name}"),
                &format!("a run canceled while an activity of cancellation type {kind} is under way"),
                &["E07", "E17"],
            ),
            acts,
        );
    }
    told.sink(json!([{ "activity": { "type": "later", "input": 1, "as": "x", "retry": { "initial_interval": "1h" }, "start_to_close": "10s" } }]), ("activity-paused", "an activity that is paused between attempts and goes on", &["E27"]), vec![StoryAction::Sleep(15), StoryAction::PauseActivity("1"), StoryAction::Sleep(9_000), StoryAction::UnpauseActivity("1"), StoryAction::Complete(ok()), StoryAction::Finish]);
    told.sink(
        json!([{ "activity": { "type": "nobody-has-it", "retry": { "maximum_attempts": 1 } } }]),
        ("unknown-activity", "an activity type that no worker has", &["E04", "E30"]),
        done(),
    );
    let big = "x".repeat(5_000);
    told.sink(
        json!([{ "side_effect": { "value": "small", "as": "s" } }, { "set": { "big": ["$s", "$s"] } }]),
        ("small-payloads", "a run whose result is its variables", &["E31"]),
        done(),
    );
    told.sink(json!([{ "loop": { "times": 6, "as": "i", "steps": [{ "set": { "all": ["$all", "$all", big[..200]] } }] } }, { "try": { "steps": [{ "activity": { "type": "echo", "input": "$all" } }], "catch": [{ "set": { "all": null } }], "as": "why" } }, { "return": "$why.type" }]), ("payload-too-large", "an activity whose input is above the limit fails by name", &["E31"]), done());
    for n in [2_usize, 5, 9] {
        let branches: Vec<Value> =
            (0..n).map(|i| json!([echo(json!(i)), { "timer": format!("{}s", n - i) }])).collect();
        told.sink(
            json!([{ "parallel": branches }]),
            (&format!("fan-out-{n}"), &format!("{n} branches at once that end in another order"), &["E29", "E10"]),
            done(),
        );
    }
}
