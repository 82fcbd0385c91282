//! Stories of whole lives: retries, timeouts, continue-as-new, forks, pauses, restarts.
//!
//! Invariant: as of all stories: names and what they show are unique, and a story that is there is not told differently.

use super::*;

// long: a list of stories.
pub(super) fn lifes(told: &mut StoryList) {
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
        vec![StoryAction::SignalWithStart("twin"), StoryAction::Finish],
    );
    told.sink(
        greet(),
        ("followed", "a run whose events are followed by a subscriber", &["E33"]),
        vec![StoryAction::Follow, StoryAction::Finish, StoryAction::Follow],
    );
    let short = json!([{ "child": { "id": "short-lived", "input": { "steps": [] } } }, { "timer": "1h" }]);
    told.sink(
        short,
        ("child-deleted", "a parent whose closed child is deleted while it goes on", &["E32", "E15"]),
        vec![StoryAction::Delete("short-lived"), StoryAction::Finish],
    );
    told.sink(
        greet(),
        ("imported", "a run that is exported, and a fork of what was imported", &["E38", "E20"]),
        vec![StoryAction::Finish, StoryAction::ForkFile("copy"), StoryAction::Sleep(60)],
    );
    for n in [1_u64, 30] {
        let of = (&*format!("many-events-{n}"), &*format!("{n} rounds of timers and activities"), &["E29", "E35"][..]);
        told.sink(json!([{ "loop": { "times": n, "steps": [{ "timer": "1s" }, { "activity": { "type": "echo", "input": 1 } }] } }]), of, done());
    }
    told.sink(json!([{ "activity": { "type": "echo", "input": 1, "as": "a" } }, { "timer": "1h" }, { "activity": { "type": "echo", "input": 2, "as": "b" } }]), ("restarts", "a run over worker restarts", &["E22", "E37"]), vec![StoryAction::Restart, StoryAction::Sleep(60), StoryAction::Restart, StoryAction::Finish]);
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
            StoryAction::Finish,
            StoryAction::Fork("good", None, vec![verdict(7)]),
            StoryAction::Sleep(10),
            StoryAction::Fork("timer", Some(5), vec![]),
            StoryAction::Sleep(4_000),
            StoryAction::Fork("start", Some(0), vec![]),
        ],
    );
}
