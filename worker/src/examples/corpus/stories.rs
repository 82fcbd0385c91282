//! The stories of the corpus: what is started, and what happens to it from outside.
//!
//! Invariant: names and what they show are unique and never change; a story that is there is not told differently.
//!
//! Long: one line or two a story, in one place, by feature.

use std::time::Duration;

use bosun_engine::*;
use serde_json::{Value, json};

use super::machine::STEP_MACHINE;
use super::programs::{machine_program, program};
use crate::examples::kitchen_sink::KITCHEN_SINK;
use crate::examples::order_saga::ORDER_SAGA;

pub(super) enum Act {
    Signal(&'static str, Value),
    Update(&'static str, Value),
    Cancel,
    Terminate,
    Pause,
    Unpause,
    PauseActivity(&'static str),
    UnpauseActivity(&'static str),
    Sleep(u64),
    /// Until the execution has ended.
    Finish,
    /// The pending activity, by its token.
    Complete(ActivityCompletion),
    /// Another run of the story.
    TerminateOther(&'static str),
    Query(&'static str),
    /// Another run with this suffix, started together with a signal.
    SignalWithStart(&'static str),
    /// Reads the history as a subscriber does, and finds every event once.
    Follow,
    /// Deletes another, closed run, and keeps house.
    Delete(&'static str),
    /// Exports the run as JSON, imports it and forks that.
    ForkFile(&'static str),
    Restart,
    /// Under another id: at an event, with changes.
    Fork(&'static str, Option<u64>, Vec<ForkChange>),
}

pub(super) struct Story {
    pub(super) name: String,
    pub(super) shows: String,
    pub(super) rows: Vec<&'static str>,
    pub(super) workflow_type: &'static str,
    pub(super) input: Value,
    pub(super) options: fn(&mut StartWorkflow),
    pub(super) acts: Vec<Act>,
}

#[derive(Default)]
struct Told(Vec<Story>);

impl Told {
    fn tell(&mut self, workflow_type: &'static str, input: Value, of: (&str, &str, &[&'static str]), acts: Vec<Act>) {
        let (name, shows, rows) = of;
        let story = Story {
            name: name.to_owned(),
            shows: shows.to_owned(),
            rows: rows.to_vec(),
            workflow_type,
            input,
            options: |_| {},
            acts,
        };
        self.0.push(story);
    }
    fn sink(&mut self, steps: Value, of: (&str, &str, &[&'static str]), acts: Vec<Act>) {
        self.tell(KITCHEN_SINK, json!({ "steps": steps }), of, acts);
    }
    fn machine(&mut self, steps: Value, of: (&str, &str, &[&'static str]), acts: Vec<Act>) {
        self.tell(STEP_MACHINE, steps, of, acts);
    }
    fn with(&mut self, options: fn(&mut StartWorkflow)) {
        if let Some(story) = self.0.last_mut() {
            story.options = options;
        }
    }
}

pub(super) fn stories() -> Vec<Story> {
    let mut told = Told::default();
    activities(&mut told);
    messages(&mut told);
    structure(&mut told);
    lifes(&mut told);
    machines(&mut told);
    sagas(&mut told);
    for seed in 1..=24_u64 {
        let name = format!("machine-program-{seed:02}");
        let of = (&*name, &*format!("the other form: the program of seed {seed}"), &["E37", "E40"][..]);
        told.machine(unit_steps(machine_program(seed)), of, vec![Act::Restart, Act::Finish]);
    }
    for seed in 1..=60_u64 {
        let of = (&*format!("program-{seed:02}"), &*format!("the program of seed {seed}"), &["E29", "E40"][..]);
        told.tell(KITCHEN_SINK, program(seed), of, vec![Act::Finish]);
    }
    told.0
}

fn done() -> Vec<Act> {
    vec![Act::Finish]
}

fn result(name: &str, value: &'static str) -> ForkChange {
    let of = ForkSubject::Name { name: name.into(), nth: Some(1) };
    ForkChange::Outcome { of, outcome: Ok(Payload::raw_json(value)) }
}

// long: a list of stories.
fn activities(told: &mut Told) {
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
        vec![Act::Complete(ok()), Act::Finish],
    );
    let failure = ActivityCompletion::Fail(Failure::application("ByHand", "no").non_retryable());
    told.sink(
        later.clone(),
        ("failed-later", "failed from outside by its token", &["E09"]),
        vec![Act::Complete(failure), Act::Finish],
    );
    let beat = || ActivityCompletion::Heartbeat(Some(Payload::raw_json("50")));
    let beats = vec![Act::Complete(beat()), Act::Sleep(60), Act::Complete(beat()), Act::Complete(ok()), Act::Finish];
    told.sink(later.clone(), ("heartbeats", "heartbeats with details, then the result", &["E06", "E09"]), beats);
    told.sink(
        later.clone(),
        ("worker-restarted", "a worker restart while an activity is under way", &["E08", "E37"]),
        vec![Act::Restart, Act::Complete(ok()), Act::Finish],
    );
    told.sink(later.clone(), ("left-open", "a run that waits for an activity", &["E04"]), vec![]);
    told.sink(
        later,
        ("fork-of-pending", "a fork while an activity is under way", &["E20"]),
        vec![Act::Fork("fork", None, vec![result("later", "9")]), Act::Complete(ok()), Act::Finish],
    );
    let waits = json!({ "type": "later", "input": 1, "cancellation": "wait", "start_to_close": "9m" });
    told.sink(
        json!([{ "activity": waits }]),
        ("canceled-by-token", "an activity that is asked to cancel and says that it has", &["E07", "E09"]),
        vec![Act::Cancel, Act::Complete(ActivityCompletion::Cancel(Some(Payload::raw_json("\"half\"")))), Act::Finish],
    );
    for (kind, name) in [("try", "try-cancel"), ("wait", "wait-cancel"), ("abandon", "abandon")] {
        let step = json!({ "activity": { "type": "later", "input": 1, "cancellation": kind, "start_to_close": "9m" } });
        let acts = vec![Act::Cancel, Act::Sleep(30), Act::Sleep(900)];
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
    told.sink(json!([{ "activity": { "type": "later", "input": 1, "as": "x", "retry": { "initial_interval": "1h" }, "start_to_close": "10s" } }]), ("activity-paused", "an activity that is paused between attempts and goes on", &["E27"]), vec![Act::Sleep(15), Act::PauseActivity("1"), Act::Sleep(9_000), Act::UnpauseActivity("1"), Act::Complete(ok()), Act::Finish]);
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

// long: a list of stories.
fn messages(told: &mut Told) {
    let wait = |name: &str| json!({ "wait_signal": { "name": name, "as": name } });
    let go = |n: u64| Act::Signal("go", json!(n));
    told.sink(json!([wait("go")]), ("signal", "a signal that is waited for", &["E11"]), vec![go(1), Act::Finish]);
    told.sink(
        json!([{ "timer": "5s" }, wait("go"), { "drain_signals": { "name": "go", "as": "rest" } }]),
        ("signals-buffered", "signals that come before they are waited for, in order", &["E11"]),
        vec![go(1), go(2), go(3), Act::Finish],
    );
    told.sink(
        json!([{ "timer": "5s" }]),
        ("signals-unhandled", "signals that nobody takes are reported at the end", &["E11"]),
        vec![go(1), Act::Signal("other", json!(2)), Act::Finish],
    );
    told.sink(
        json!([{ "timer": "5s" }, { "drain_signals": { "name": "go", "as": "all" } }]),
        ("signal-repeated", "a signal sent twice under one request id is one", &["E11"]),
        vec![go(1), go(1), go(2), Act::Finish],
    );
    told.sink(
        json!([{ "wait_signal": { "name": "go", "as": "go", "timeout": "1m" } }]),
        ("signal-timed-out", "a wait for a signal that ends by its timer", &["E11", "E10"]),
        done(),
    );
    told.sink(
        json!([{ "wait_signal": { "name": "go", "as": "go", "timeout": "1m" } }]),
        ("signal-in-time", "a wait for a signal whose timer is canceled", &["E10", "E29"]),
        vec![Act::Sleep(30), go(7), Act::Finish],
    );
    told.sink(
        json!([{ "set": { "door": "shut" } }, { "wait_var": { "name": "door", "equals": "open" } }]),
        ("updates", "an update that is refused, one that is accepted, one that lets the run go on", &["E14"]),
        vec![
            Act::Update("set_var", json!({ "name": "a.b", "value": 1 })),
            Act::Update("set_var", json!({ "name": "n", "value": 1 })),
            Act::Update("set_var", json!({ "name": "door", "value": "open" })),
            Act::Finish,
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
            Act::Query("vars"),
            Act::Update("set_var", json!({ "name": "n", "value": 1 })),
            Act::Update("set_var", json!({ "name": "n", "value": 2 })),
        ],
    );
    told.sink(
        json!([{ "wait_cancel": "why" }, { "return": "$why" }]),
        ("waits-for-cancel", "a run that waits for its cancellation and completes", &["E17"]),
        vec![Act::Cancel, Act::Finish],
    );
    told.sink(json!([{ "try": { "steps": [{ "timer": "9h" }], "always": [{ "activity": { "type": "echo", "input": "cleanup" } }] } }]), ("canceled-with-cleanup", "a cancellation with a cleanup that is shielded", &["E17"]), vec![Act::Sleep(60), Act::Cancel, Act::Finish]);
    told.sink(
        json!([{ "timer": "9h" }]),
        ("terminated", "a run that is terminated", &["E18"]),
        vec![Act::Sleep(60), Act::Terminate],
    );
    told.sink(
        json!([{ "timer": "1h" }, wait("go")]),
        ("paused", "a run that is paused over its timer and a signal", &["E27"]),
        vec![Act::Pause, Act::Sleep(7_200), go(1), Act::Unpause, Act::Finish],
    );
    told.sink(
        json!([wait("go")]),
        ("paused-and-open", "a run that is left paused with a signal in its inbox", &["E27", "E11"]),
        vec![Act::Pause, go(1)],
    );
    told.sink(
        json!([wait("go")]),
        ("paused-and-terminated", "a paused run that is terminated", &["E27", "E18"]),
        vec![Act::Pause, Act::Terminate],
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
            Act::Finish,
            Act::Fork(
                "signal",
                None,
                vec![ForkChange::Signal { name: "go".into(), nth: None, input: Payload::raw_json("2") }],
            ),
            Act::Sleep(1),
            Act::Fork("at", Some(1), vec![]),
            Act::Fork("input", None, vec![ForkChange::Input(Payload::raw_json("{\"steps\":[]}"))]),
            Act::Sleep(1),
        ],
    );
}

// long: a list of stories.
fn structure(told: &mut Told) {
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
        vec![Act::Cancel, Act::Finish],
    );
    let killed = json!([{ "child": { "id": "killer", "input": inner(json!([{ "cancel_workflow": { "workflow_id": "child-cancels-parent", "reason": "up" } }, { "timer": "1s" }])) } }]);
    told.sink(killed, ("child-cancels-parent", "a child that asks its parent to cancel", &["E16", "E15"]), done());
    told.sink(
        json!([{ "child": { "id": "victim", "input": inner(json!([{ "timer": "1h" }])) } }]),
        ("child-terminated", "a child that is terminated while its parent waits for it", &["E15", "E18"]),
        vec![Act::TerminateOther("victim"), Act::Finish],
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
            vec![Act::Signal("kept", json!(n)), Act::Finish],
        );
    }
}

// long: a list of stories.
fn lifes(told: &mut Told) {
    let fails = || json!([{ "timer": "5s" }, { "fail": { "type": "Again" } }]);
    told.sink(fails(), ("run-retried", "a workflow that is retried twice and fails", &["E03", "E02"]), done());
    told.with(|start| start.retry_policy = Some(RetryPolicy { maximum_attempts: 3, ..RetryPolicy::default() }));
    told.sink(json!([{ "timer": "9h" }]), ("run-timed-out", "a run that is out of time", &["E02"]), done());
    told.with(|start| start.run_timeout = Some(Duration::from_secs(60)));
    told.sink(
        json!([{ "activity": { "type": "later", "input": 1 } }]),
        ("execution-timed-out", "an execution that is out of time with an activity under way", &["E02", "E04"]),
        done(),
    );
    told.with(|start| start.execution_timeout = Some(Duration::from_secs(20)));
    told.sink(
        fails(),
        ("out-of-time-between-retries", "an execution whose retries end with its time", &["E02", "E03"]),
        done(),
    );
    told.with(|start| {
        start.retry_policy = Some(RetryPolicy { initial_interval: Duration::from_secs(30), ..RetryPolicy::default() });
        start.execution_timeout = Some(Duration::from_secs(100));
    });
    told.sink(
        json!([{ "upsert": { "stage": "a" } }, { "memo": { "m": 1 } }]),
        ("started-with-everything", "memo, attributes, summary and details of a start, changed by the run", &["E23"]),
        done(),
    );
    told.with(|start| {
        start.memo = [("why".into(), Payload::raw_json("\"test\""))].into();
        start.search_attributes =
            [("stage".into(), SearchValue::Keyword("new".into())), ("n".into(), SearchValue::Int(1))].into();
        (start.summary, start.details) = (Some("a run".into()), Some("with details".into()));
        (start.request_id, start.identity) = (Some("r-1".into()), Some("me@here".into()));
    });
    let greet = || json!([{ "activity": { "type": "echo", "input": "hello", "as": "said" } }, { "timer": "5s" }]);
    let steps = json!([{ "wait_signal": { "name": "go", "as": "go", "timeout": "1m" } }]);
    told.sink(
        steps,
        ("signal-with-start", "a run that is started together with its signal", &["E12"]),
        vec![Act::SignalWithStart("twin"), Act::Finish],
    );
    told.sink(
        greet(),
        ("followed", "a run whose events are followed by a subscriber", &["E33"]),
        vec![Act::Follow, Act::Finish, Act::Follow],
    );
    let short = json!([{ "child": { "id": "short-lived", "input": { "steps": [] } } }, { "timer": "1h" }]);
    told.sink(
        short,
        ("child-deleted", "a parent whose closed child is deleted while it goes on", &["E32", "E15"]),
        vec![Act::Delete("short-lived"), Act::Finish],
    );
    told.sink(
        greet(),
        ("imported", "a run that is exported, and a fork of what was imported", &["E38", "E20"]),
        vec![Act::Finish, Act::ForkFile("copy"), Act::Sleep(60)],
    );
    for n in [1_u64, 30] {
        let of = (&*format!("many-events-{n}"), &*format!("{n} rounds of timers and activities"), &["E29", "E35"][..]);
        told.sink(json!([{ "loop": { "times": n, "steps": [{ "timer": "1s" }, { "activity": { "type": "echo", "input": 1 } }] } }]), of, done());
    }
    told.sink(json!([{ "activity": { "type": "echo", "input": 1, "as": "a" } }, { "timer": "1h" }, { "activity": { "type": "echo", "input": 2, "as": "b" } }]), ("restarts", "a run over worker restarts", &["E22", "E37"]), vec![Act::Restart, Act::Sleep(60), Act::Restart, Act::Finish]);
    let review = json!([{ "activity": { "type": "echo", "input": "draft", "as": "draft" } }, { "timer": "1h" }, { "activity": { "type": "echo", "input": "bad", "as": "verdict" } }, { "if": { "var": "verdict", "equals": "bad", "then": [{ "fail": { "type": "Rejected" } }], "else": [{ "uuid": "u" }, { "activity": { "type": "echo", "input": "$u" } }] } }]);
    let verdict = |event| ForkChange::Outcome {
        of: ForkSubject::Event(EventId(event)),
        outcome: Ok(Payload::raw_json("\"good\"")),
    };
    told.sink(
        review,
        (
            "fork-of-a-review",
            "a failed review, forked with another verdict, at the timer, and forked again",
            &["E20", "E26"],
        ),
        vec![
            Act::Finish,
            Act::Fork("good", None, vec![verdict(7)]),
            Act::Sleep(10),
            Act::Fork("timer", Some(5), vec![]),
            Act::Sleep(4_000),
            Act::Fork("start", Some(0), vec![]),
        ],
    );
}

// long: a list of stories.
fn machines(told: &mut Told) {
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
    let go = |n: u64| Act::Signal("go", json!(n));
    told.machine(
        signal.clone(),
        ("machine-signals", "the other form: signals, one deferred", &["E11"]),
        vec![Act::Signal("x", json!(0)), go(1), go(2), Act::Finish],
    );
    told.machine(
        signal.clone(),
        ("machine-canceled", "the other form: canceled with details", &["E17"]),
        vec![go(1), Act::Cancel, Act::Finish],
    );
    told.machine(signal.clone(), ("machine-open", "the other form: left open", &["E11"]), vec![go(1)]);
    told.machine(
        signal.clone(),
        ("machine-paused", "the other form: paused over signals", &["E27"]),
        vec![Act::Pause, go(1), Act::Unpause, go(2), Act::Finish],
    );
    told.machine(
        signal,
        ("machine-forked", "the other form: forked with another signal, and at a restart", &["E20"]),
        vec![
            go(1),
            Act::Restart,
            go(2),
            Act::Finish,
            Act::Fork(
                "other",
                None,
                vec![ForkChange::Signal { name: "go".into(), nth: Some(2), input: Payload::raw_json("9") }],
            ),
        ],
    );
    told.machine(
        json!(["update", "update"]),
        ("machine-updates", "the other form: updates, one refused", &["E14"]),
        vec![Act::Update("say", json!(null)), Act::Update("say", json!(1)), Act::Update("say", json!(2)), Act::Finish],
    );
    told.machine(
        json!([activity("later", json!(1), 3)]),
        ("machine-by-hand", "the other form: completed from outside after a restart", &["E09"]),
        vec![Act::Restart, Act::Complete(ActivityCompletion::Complete(Payload::raw_json("1"))), Act::Finish],
    );
    for n in [3_u64, 12] {
        let steps: Vec<Value> =
            (0..n).flat_map(|i| [activity("echo", json!(i), 1), json!({ "timer": { "seconds": i } })]).collect();
        told.machine(
            json!(steps),
            (&format!("machine-steps-{n}"), &format!("the other form: {n} rounds, over a restart"), rows),
            vec![Act::Restart, Act::Finish],
        );
    }
}

/// Steps without fields are their names alone.
fn unit_steps(steps: Value) -> Value {
    let unit = |step: &Value| match step.as_object().and_then(|step| step.iter().next()) {
        Some((name, Value::Null)) => Value::String(name.clone()),
        _ => step.clone(),
    };
    steps.as_array().map_or(Value::Null, |steps| steps.iter().map(unit).collect())
}

fn sagas(told: &mut Told) {
    let order = |fail: Value| json!({ "order_id": "o-1", "items": [{ "sku": "tea", "quantity": 2 }], "cents": 900, "fail": fail });
    for (name, fail) in [
        ("order", json!({})),
        ("order-retried", json!({ "charge_card": { "times": 2 } })),
        ("order-not-charged", json!({ "charge_card": { "times": 99, "type": "Declined", "non_retryable": true } })),
        ("order-not-shipped", json!({ "ship_order": { "times": 99, "type": "NoTruck", "non_retryable": true } })),
        ("order-not-reserved", json!({ "reserve_stock": { "times": 99, "type": "SoldOut", "non_retryable": true } })),
        (
            "order-undo-retried",
            json!({ "ship_order": { "times": 99, "type": "NoTruck", "non_retryable": true }, "refund_card": { "times": 2 } }),
        ),
    ] {
        told.tell(ORDER_SAGA, order(fail), (name, &format!("a saga: {name}"), &["E28"]), done());
    }
    let late = json!({ "ship_order": { "times": 99, "type": "NoTruck", "non_retryable": true } });
    told.tell(
        ORDER_SAGA,
        order(late),
        ("order-forked", "a saga that compensated, forked with a shipment", &["E28", "E20"]),
        vec![Act::Finish, Act::Fork("shipped", None, vec![result("ship_order", "\"truck 7\"")]), Act::Sleep(60)],
    );
    told.tell(
        ORDER_SAGA,
        json!({ "order_id": "o-2", "items": [], "cents": 0 }),
        ("order-empty", "a saga that refuses its input", &["E28", "E30"]),
        done(),
    );
}
