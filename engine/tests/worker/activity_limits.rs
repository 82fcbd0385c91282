//! The four timeouts of an activity.

use std::collections::BTreeSet;
use std::time::Duration;

use bosun_engine::testing::TestEnvironment;
use bosun_engine::*;

use crate::scene::*;

#[track_caller]
fn which(heard: &Failure) -> (TimeoutType, RetryState) {
    let FailureKind::Activity { retry_state, .. } = heard.kind else { panic!("{heard:?}") };
    let cause = heard.cause.as_ref().unwrap();
    let FailureKind::Timeout { timeout, .. } = cause.kind else { panic!("{heard:?}") };
    (timeout, retry_state)
}

/// E04: without one of the two close timeouts an activity is refused, in words that say so.
#[tokio::test]
async fn one_of_the_two_close_timeouts_is_required() {
    let (mut stage, environment) = staged();
    let client = environment.client();
    for form in FORMS {
        let options =
            ActivityOptions { heartbeat: Some(SECOND), schedule_to_start: Some(SECOND), ..Default::default() };
        client.start(one(form, form, &options)).await.unwrap();
        let heard = failed(&client, form).await;
        let text = heard.to_string();
        assert!(text.contains("start-to-close") && text.contains("schedule-to-close"), "{text}");
        let close = ActivityOptions { schedule_to_close: Some(MINUTE), ..options };
        client.start(one(form, &format!("{form}-close"), &close)).await.unwrap();
        stage.next().await.complete("done");
        completed::<String>(&client, &format!("{form}-close")).await;
    }
}

/// E04: schedule-to-start: nobody serves the queue in time. It is not retried: the next attempt would wait as well.
#[tokio::test]
async fn schedule_to_start_ends_an_attempt_that_finds_no_slot() {
    for form in FORMS {
        let (mut stage, environment) = staged_with(|options| {
            options.task_queues = Some(BTreeSet::from(["default".into()]));
        });
        let client = environment.client();
        let options = ActivityOptions {
            task_queue: Some("unserved".into()),
            schedule_to_start: Some(Duration::from_secs(10)),
            ..within(SECOND)
        };
        client.start(one(form, "a", &options)).await.unwrap();
        let heard = failed(&client, "a").await;
        assert_eq!(which(&heard), (TimeoutType::ScheduleToStart, RetryState::NonRetryableFailure));
        assert_eq!(environment.now().since(TestEnvironment::EPOCH), Duration::from_secs(10));
        assert!(stage.is_quiet());
    }
}

/// E04: start-to-close counts for each attempt, and the attempt is followed by another.
#[tokio::test]
async fn start_to_close_ends_each_attempt() {
    for form in FORMS {
        let (mut stage, environment) = staged();
        let client = environment.client();
        let options = ActivityOptions { retry_policy: attempts(2), ..within(Duration::from_secs(10)) };
        client.start(one(form, "a", &options)).await.unwrap();
        let result = tokio::spawn({
            let client = client.clone();
            async move { failed(&client, "a").await }
        });
        stage.next().await.later();
        stage.next().await.later();
        let heard = result.await.unwrap();
        assert_eq!(which(&heard), (TimeoutType::StartToClose, RetryState::MaximumAttemptsReached));
        // 10 s, the backoff of 1 s, 10 s.
        assert_eq!(environment.now().since(TestEnvironment::EPOCH), Duration::from_secs(21));
    }
}

/// E04: heartbeat: silence ends the attempt; each heartbeat puts it off; the last one is told.
#[tokio::test]
async fn the_heartbeat_timeout_ends_a_silent_attempt() {
    let (mut stage, environment) = staged();
    let client = environment.client();
    let options =
        ActivityOptions { heartbeat: Some(Duration::from_secs(10)), retry_policy: attempts(1), ..within(MINUTE * 60) };
    client.start(one("one", "a", &options)).await.unwrap();
    let token = stage.next().await.later();
    until(&client, "a", |seen| seen.info.history.events > 3).await;
    for beat in 1..=5 {
        environment.sleep(Duration::from_secs(9)).await;
        client.complete_activity(token, ActivityCompletion::Heartbeat(Some(payload(&beat)))).await.unwrap();
    }
    let heard = failed(&client, "a").await;
    assert_eq!(which(&heard), (TimeoutType::Heartbeat, RetryState::MaximumAttemptsReached));
    let FailureKind::Timeout { last_heartbeat, .. } = &heard.cause.as_ref().unwrap().kind else { panic!("{heard:?}") };
    assert_eq!(last_heartbeat.as_ref(), Some(&payload(&5)));
    assert_eq!(environment.now().since(TestEnvironment::EPOCH), Duration::from_secs(5 * 9 + 10));
}

/// E04: schedule-to-close counts over all attempts: none is begun that could only begin after it, and one that runs is
/// ended by it.
#[tokio::test]
async fn schedule_to_close_counts_over_all_attempts() {
    for form in FORMS {
        let (mut stage, environment) = staged();
        let client = environment.client();
        let options = ActivityOptions { schedule_to_close: Some(Duration::from_secs(5)), ..Default::default() };
        client.start(one(form, "fails", &options)).await.unwrap();
        let result = tokio::spawn({
            let client = client.clone();
            async move { failed(&client, "fails").await }
        });
        for _ in 0..3 {
            stage.next().await.fail(Failure::application("Busy", "later"));
        }
        let heard = result.await.unwrap();
        let FailureKind::Activity { retry_state, .. } = &heard.kind else { panic!("{heard:?}") };
        assert_eq!((*retry_state, heard.type_name()), (RetryState::Timeout, "Busy"));

        let begun = environment.now();
        client.start(one(form, "hangs", &options)).await.unwrap();
        let result = tokio::spawn({
            let client = client.clone();
            async move { failed(&client, "hangs").await }
        });
        stage.next().await.fail(Failure::application("Busy", "later"));
        stage.next().await.later();
        let heard = result.await.unwrap();
        assert_eq!(which(&heard).0, TimeoutType::ScheduleToClose);
        assert_eq!(heard.type_name(), "Busy", "the last attempt that failed is the cause");
        assert_eq!(environment.now().since(begun), Duration::from_secs(5));
    }
}

/// E04, E06: a function that hangs is told to stop when its time is over, and dropped if it does not; the run has gone
/// on by then, and the slot comes back.
#[tokio::test]
async fn a_function_that_hangs_loses_its_attempt_and_gives_its_slot_back() {
    let (mut stage, environment) = staged_with(|options| {
        real_time(options);
        options.slots = 1;
    });
    let client = environment.client();
    let options = ActivityOptions { retry_policy: attempts(1), ..within(Duration::from_millis(500)) };
    client.start(one("one", "a", &options)).await.unwrap();
    let hangs = stage.next().await;
    let heard = failed(&client, "a").await;
    assert_eq!(which(&heard).0, TimeoutType::StartToClose);
    hangs.context.canceled().await;
    client.start(one("one", "b", &within(MINUTE))).await.unwrap();
    stage.next().await.complete("done");
    assert_eq!(completed::<String>(&client, "b").await, "done");
}

/// E04: timeouts survive a crash, and count from when the activity was scheduled.
#[tokio::test]
async fn timeouts_count_over_a_crash() {
    let (mut stage, environment) = staged();
    let options = ActivityOptions { schedule_to_close: Some(MINUTE), retry_policy: attempts(1), ..Default::default() };
    environment.client().start(one("one", "a", &options)).await.unwrap();
    stage.next().await.later();
    let client = environment.client();
    until(&client, "a", |seen| seen.info.history.events > 3).await;
    environment.sleep(MINUTE / 2).await;
    let environment = environment.crash(1, |_| {}).unwrap();
    let heard = failed(&environment.client(), "a").await;
    assert_eq!(which(&heard).0, TimeoutType::ScheduleToClose);
    assert_eq!(environment.now().since(TestEnvironment::EPOCH), MINUTE);
}
