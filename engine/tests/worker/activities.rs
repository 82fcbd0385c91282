//! Activities: attempts and retries, heartbeats, crashes.

use std::time::Duration;

use bosun_engine::testing::TestEnvironment;
use bosun_engine::*;

use crate::scene::*;

async fn times_of(client: &Client, id: &str, event: &str) -> Vec<u64> {
    let held = history(client, &target(id)).await;
    let times = held.iter().filter(|held| held.kind.name() == event);
    times.map(|held| held.at.since(TestEnvironment::EPOCH).as_secs()).collect()
}

/// E04: input, task queue, summary and id of an activity are what the code asked for, and the result comes back, in both
/// forms of workflow code.
#[tokio::test]
async fn an_activity_gets_what_was_asked_and_gives_its_result() {
    let (mut stage, environment) = staged();
    let client = environment.client();
    for form in FORMS {
        let options = ActivityOptions {
            task_queue: Some("special".into()),
            summary: Some("the whole job".into()),
            ..within(MINUTE)
        };
        client.start(one(form, form, &options)).await.unwrap();
        let attempt = stage.next().await;
        assert_eq!(attempt.label, form);
        let task = attempt.context.task();
        assert_eq!((task.task_queue.as_str(), task.workflow_id.as_str()), ("special", form));
        assert_eq!(task.deadline, Some(TestEnvironment::EPOCH.plus(MINUTE)));
        let seen = client.describe(&target(form)).await.unwrap().pending_activities.remove(0);
        assert_eq!(seen.summary.as_deref(), Some("the whole job"));
        assert_eq!(seen.state, PendingActivityState::Started);
        assert_eq!((seen.activity_id.clone(), seen.seq), (task.activity_id.clone(), task.seq));
        attempt.complete("done");
        assert_eq!(completed::<String>(&client, form).await, "done");
    }
}

/// E05: the default policy: 1 s, doubled each time; every attempt is counted in history.
#[tokio::test]
async fn failed_attempts_follow_each_other_with_backoff() {
    let (mut stage, environment) = staged();
    let client = environment.client();
    for form in FORMS {
        let begun = environment.now().since(TestEnvironment::EPOCH).as_secs();
        client.start(one(form, form, &within(MINUTE))).await.unwrap();
        let result = tokio::spawn({
            let client = client.clone();
            async move { completed::<String>(&client, form).await }
        });
        for expected in 1..=4 {
            let attempt = stage.next().await;
            assert_eq!(attempt.attempt(), expected);
            attempt.fail(Failure::application("Busy", "later"));
        }
        stage.next().await.complete("at last");
        assert_eq!(result.await.unwrap(), "at last");
        let started = times_of(&client, form, "ActivityTaskStarted").await;
        assert_eq!(started, [0, 1, 3, 7, 15].map(|after| begun + after));
        assert_eq!(times_of(&client, form, "ActivityTaskAttemptFailed").await.len(), 4);
    }
}

/// E05: the attempts have a maximum; what the code hears names the last failure and why there was no other attempt.
#[tokio::test]
async fn attempts_end_by_maximum_type_and_word_of_the_function() {
    let (mut stage, environment) = staged();
    let client = environment.client();
    let policy = RetryPolicy {
        maximum_attempts: 2,
        non_retryable_error_types: vec!["BadCard".into()],
        ..RetryPolicy::default()
    };
    let options = ActivityOptions { retry_policy: Some(policy), ..within(MINUTE) };
    let cases = [
        ("maximum", Failure::application("Busy", "later"), 2, RetryState::MaximumAttemptsReached),
        ("type", Failure::application("BadCard", "no"), 1, RetryState::NonRetryableFailure),
        ("word", Failure::application("Busy", "never").non_retryable(), 1, RetryState::NonRetryableFailure),
    ];
    for form in FORMS {
        for (case, failure, runs, expected) in &cases {
            let id = format!("{form}-{case}");
            client.start(one(form, &id, &options)).await.unwrap();
            let result = tokio::spawn({
                let (client, id) = (client.clone(), id.clone());
                async move { failed(&client, &id).await }
            });
            for _ in 0..*runs {
                stage.next().await.fail(failure.clone());
            }
            let heard = result.await.unwrap();
            let FailureKind::Activity { retry_state, activity_type, .. } = &heard.kind else { panic!("{heard:?}") };
            assert_eq!((retry_state, activity_type.as_str()), (expected, "work"), "{id}");
            assert_eq!(heard.root(), failure, "{id}");
            assert_eq!(count(&client, &id, "ActivityTaskStarted").await, *runs, "{id}");
            assert!(stage.is_quiet(), "{id}");
        }
    }
}

/// E05: the failure may say when the next attempt comes.
#[tokio::test]
async fn a_failure_may_ask_for_its_own_delay() {
    let (mut stage, environment) = staged();
    let client = environment.client();
    client.start(one("one", "a", &within(MINUTE))).await.unwrap();
    let result = tokio::spawn({
        let client = client.clone();
        async move { completed::<String>(&client, "a").await }
    });
    stage.next().await.fail(Failure::application("Busy", "come back").retry_after(Duration::from_secs(17)));
    stage.next().await.complete("done");
    result.await.unwrap();
    assert_eq!(times_of(&client, "a", "ActivityTaskStarted").await, [0, 17]);
}

/// E05: attempts are counted durably: a crash in the backoff neither forgets nor adds one.
#[tokio::test]
async fn the_backoff_of_an_activity_survives_crashes() {
    let (mut stage, mut environment) = staged();
    let options = ActivityOptions { retry_policy: attempts(3), ..within(MINUTE) };
    environment.client().start(one("one-machine", "a", &options)).await.unwrap();
    for attempt in 1..=3 {
        let running = stage.next().await;
        assert_eq!(running.attempt(), attempt);
        running.fail(Failure::application("Busy", "later"));
        if attempt < 3 {
            let client = environment.client();
            until(&client, "a", |seen| seen.pending_activities[0].state == PendingActivityState::BackingOff).await;
            environment = environment.crash(u64::from(attempt), |_| {}).unwrap();
            let_pass(&environment, Duration::from_secs(1 << (attempt - 1)));
        }
    }
    let client = environment.client();
    assert_eq!(failed(&client, "a").await.type_name(), "Busy");
    assert_eq!(times_of(&client, "a", "ActivityTaskStarted").await, [0, 1, 3]);
}

/// E06: the details of the last heartbeat reach the next attempt, after a failure and after a crash.
#[tokio::test]
async fn heartbeat_details_reach_the_next_attempt() {
    let (mut stage, environment) = staged();
    let client = environment.client();
    let options = ActivityOptions { heartbeat: Some(MINUTE), ..within(MINUTE * 60) };
    client.start(one("one", "a", &options)).await.unwrap();
    let attempt = stage.next().await;
    assert_eq!(attempt.context.heartbeat_details::<u32>(), None);
    attempt.context.heartbeat(&41).unwrap();
    attempt.context.heartbeat(&42).unwrap();
    attempt.fail(Failure::application("Busy", "later"));
    let_pass(&environment, SECOND);
    let attempt = stage.next().await;
    assert_eq!(attempt.context.heartbeat_details::<u32>(), Some(42), "the last one, though the writes are throttled");
    attempt.context.heartbeat(&43).unwrap();
    let written = payload(&43);
    until(&client, "a", |seen| seen.pending_activities[0].heartbeat_details.as_ref() == Some(&written)).await;
    let environment = environment.crash(5, |_| {}).unwrap();
    let attempt = stage.next().await;
    assert_eq!((attempt.attempt(), attempt.context.heartbeat_details::<u32>()), (3, Some(43)));
    attempt.complete("done");
    assert_eq!(completed::<String>(&environment.client(), "a").await, "done");
}

/// E06: heartbeats are written at most once in 0.8 times the heartbeat timeout, and the last one always is.
#[tokio::test]
async fn heartbeats_are_throttled_and_the_last_one_is_written() {
    let (mut stage, environment) = staged();
    let client = environment.client();
    for (id, heartbeat) in [("timeout", Some(MINUTE)), ("no-timeout", None)] {
        client.start(one("one", id, &ActivityOptions { heartbeat, ..within(MINUTE * 60) })).await.unwrap();
        let attempt = stage.next().await;
        for beat in 0..1_000 {
            attempt.context.heartbeat(&beat).unwrap();
        }
        attempt.complete("done");
        completed::<String>(&client, id).await;
        let turns = client.turns(&target(id)).await.unwrap();
        let beats: Vec<u32> = turns
            .iter()
            .flat_map(|turn| &turn.heartbeats)
            .map(|beat| beat.details.as_ref().unwrap().decode().unwrap())
            .collect();
        assert_eq!(beats, [0, 999], "{id}");
    }
}

/// E08: an attempt is in the log before its function begins.
#[tokio::test]
async fn an_attempt_is_recorded_before_it_starts() {
    let (mut stage, environment) = staged();
    environment.client().start(one("one", "a", &within(MINUTE))).await.unwrap();
    let attempt = stage.next().await;
    // What a power cut at this very moment leaves behind knows of the attempt.
    let environment = environment.crash(6, |options| options.slots = 0).unwrap();
    let held = history(&environment.client(), &target("a")).await;
    let started = EventKind::ActivityTaskStarted { seq: attempt.context.task().seq, attempt: Attempt(1) };
    assert!(held.iter().any(|held| held.kind == started), "{held:?}");
}

/// E08: an activity with one attempt never runs twice, wherever the crash falls; the code hears that it may have run.
#[tokio::test]
async fn an_at_most_once_activity_never_runs_twice() {
    for form in FORMS {
        let (mut stage, environment) = staged();
        let options = ActivityOptions { retry_policy: attempts(1), ..within(MINUTE) };
        environment.client().start(one(form, form, &options)).await.unwrap();
        let running = stage.next().await;
        let environment = environment.crash(7, |_| {}).unwrap();
        let heard = failed(&environment.client(), form).await;
        assert_eq!(heard.root().kind, FailureKind::WorkerLost);
        let FailureKind::Activity { retry_state, .. } = &heard.kind else { panic!("{heard:?}") };
        assert_eq!(*retry_state, RetryState::MaximumAttemptsReached);
        running.complete("too late");
        assert!(stage.is_quiet());
        assert_eq!(count(&environment.client(), form, "ActivityTaskStarted").await, 1);
    }
}

/// E08: one that was still waiting for its slot when the worker crashed has not run, and does.
#[tokio::test]
async fn an_at_most_once_activity_that_had_not_started_is_started_after_a_crash() {
    let (mut stage, environment) = staged_with(|options| options.slots = 0);
    let options = ActivityOptions { retry_policy: attempts(1), ..within(MINUTE) };
    environment.client().start(one("one", "a", &options)).await.unwrap();
    let environment = environment.crash(8, |options| options.slots = 1).unwrap();
    stage.next().await.complete("once");
    assert_eq!(completed::<String>(&environment.client(), "a").await, "once");
}

/// G12: over crash after crash the attempts never exceed the maximum, the idempotency key stays, and the activity ends
/// once.
#[tokio::test]
async fn crashes_never_add_attempts() {
    for form in FORMS {
        let (mut stage, mut environment) = staged();
        let options = ActivityOptions { retry_policy: attempts(3), ..within(MINUTE) };
        environment.client().start(one(form, "a", &options)).await.unwrap();
        let mut keys = Vec::new();
        for attempt in 1..=3 {
            let running = stage.next().await;
            assert_eq!(running.attempt(), attempt);
            keys.push(running.context.idempotency_key());
            environment = environment.crash(u64::from(attempt), |_| {}).unwrap();
        }
        environment = environment.crash(9, |_| {}).unwrap();
        let client = environment.client();
        assert_eq!(failed(&client, "a").await.root().kind, FailureKind::WorkerLost);
        assert!(stage.is_quiet());
        keys.dedup();
        assert_eq!(keys.len(), 1);
        assert_eq!(count(&client, "a", "ActivityTaskFailed").await, 1);
    }
}

/// E04: an input that the function cannot read fails the activity at once; it would not get better.
#[tokio::test]
async fn an_input_of_the_wrong_type_is_not_retried() {
    let (mut stage, mut activities) = Stage::new();
    activities.register("work", |_ctx, (): ()| async move { Ok("never") });
    let environment = TestEnvironment::start(flows(), activities).unwrap();
    environment.client().start(one("one", "a", &within(MINUTE))).await.unwrap();
    let heard = failed(&environment.client(), "a").await;
    assert_eq!(heard.type_name(), "PayloadError");
    assert_eq!(count(&environment.client(), "a", "ActivityTaskStarted").await, 1);
    assert!(stage.is_quiet());
}
