//! Changing a pending activity from outside: when it is tried next, what its policy counts from, its limits.

use bosun_engine::testing::TestEnvironment;
use bosun_engine::*;

use crate::scene::*;

const SLOW: u64 = 3_600;

fn hourly(maximum_attempts: u32) -> ActivityOptions {
    let initial_interval = std::time::Duration::from_secs(SLOW);
    let policy = RetryPolicy { initial_interval, maximum_attempts, ..RetryPolicy::default() };
    ActivityOptions { retry_policy: Some(policy), ..within(MINUTE) }
}

fn bad() -> Failure {
    Failure::application("Bad", "not now")
}

async fn update(client: &Client, id: &str, update: ActivityUpdate) -> Result<(), Rejection> {
    let seen = client.describe(&target(id)).await.unwrap();
    let activity = seen.pending_activities[0].activity_id.clone();
    client.update_activity(&target(id), &activity, update, "by hand".into(), Some("ada".into())).await
}

async fn backs_off(client: &Client, id: &str) {
    let waits = |one: &PendingActivity| one.state == PendingActivityState::BackingOff;
    until(client, id, |seen| seen.pending_activities.iter().any(waits)).await;
}

fn elapsed(environment: &TestEnvironment, since: Timestamp) -> u64 {
    environment.now().since(since).as_secs()
}

/// E05, E27: an activity that waits for its next attempt is tried at once, over a crash too, and the history says who wanted it.
#[tokio::test]
async fn a_waiting_activity_is_tried_at_once() {
    for form in FORMS {
        let (mut stage, environment) = staged();
        let client = environment.client();
        client.start(one(form, form, &hourly(0))).await.unwrap();
        stage.next().await.fail(bad());
        backs_off(&client, form).await;
        let before = environment.now();
        let now = ActivityUpdate { retry_now: true, ..ActivityUpdate::default() };
        update(&client, form, now.clone()).await.unwrap();
        let second = stage.next().await;
        assert_eq!((second.attempt(), elapsed(&environment, before)), (2, 0), "{form}");
        let refused = update(&client, form, now).await.unwrap_err().to_string();
        assert!(refused.contains("attempt 2 is under way"), "{refused}");
        let environment = environment.crash(3, |_| {}).unwrap();
        let client = environment.client();
        second.complete("of the worker that is gone");
        let third = stage.next().await;
        assert_eq!(third.attempt(), 3);
        third.complete("done");
        assert_eq!(completed::<String>(&client, form).await, "done");
        let events = history(&client, &target(form)).await;
        let changed = |event: &&Event| {
            matches!(&event.kind, EventKind::ActivityPropertiesModifiedExternally { reason, identity, .. }
            if reason == "by hand" && *identity == Some("ada".into()))
        };
        assert_eq!(events.iter().filter(changed).count(), 1);
        let turns = client.turns(&target(form)).await.unwrap();
        bosun_engine::workflow::replay(&flows(), &turns).unwrap();
    }
}

/// E05, G12: after a reset the policy counts anew; attempts keep their numbers, so that what was said of an old one is refused.
#[tokio::test]
async fn a_reset_activity_has_all_its_attempts_again() {
    let (mut stage, environment) = staged();
    let client = environment.client();
    client.start(one("one", "one", &hourly(2))).await.unwrap();
    let first = stage.next().await;
    let token = first.context.task_token();
    first.fail(bad());
    backs_off(&client, "one").await;
    let before = environment.now();
    update(&client, "one", ActivityUpdate { reset: true, ..ActivityUpdate::default() }).await.unwrap();
    let second = stage.next().await;
    assert_eq!((second.attempt(), elapsed(&environment, before)), (2, 0));
    second.fail(bad());
    backs_off(&client, "one").await;
    let stale = client.complete_activity(token, ActivityCompletion::Complete(payload("late"))).await;
    assert!(matches!(stale, Err(Rejection::StaleAttempt { .. })), "{stale:?}");
    let environment = environment.restart(|_| {}).unwrap();
    let client = environment.client();
    let_pass(&environment, 2 * std::time::Duration::from_secs(SLOW));
    let third = stage.next().await;
    assert_eq!(third.attempt(), 3, "the second of two that count");
    third.fail(bad());
    let ended = failed(&client, "one").await;
    assert!(ended.to_string().contains("not now"), "{ended}");
    assert!(stage.is_quiet());
}

/// E04, E05: other limits hold from now on, also for the attempt that is under way; what cannot be is refused.
#[tokio::test]
async fn other_options_hold_from_now_on() {
    let (mut stage, environment) = staged();
    let client = environment.client();
    client.start(one("one", "one", &hourly(0))).await.unwrap();
    let token = stage.next().await.later();
    until(&client, "one", |seen| seen.pending_activities[0].state == PendingActivityState::Started).await;
    let limits = ActivityUpdate {
        start_to_close: Some(5 * SECOND),
        initial_interval: Some(2 * SECOND),
        maximum_attempts: Some(2),
        ..ActivityUpdate::default()
    };
    let wrong = ActivityUpdate { initial_interval: Some(std::time::Duration::ZERO), ..ActivityUpdate::default() };
    let refused = update(&client, "one", wrong).await;
    assert!(matches!(refused, Err(Rejection::Invalid { .. })), "{refused:?}");
    let none = ActivityUpdate { heartbeat: Some(std::time::Duration::ZERO), ..ActivityUpdate::default() };
    let Err(Rejection::Invalid { why, .. }) = update(&client, "one", none).await else {
        panic!("no time is no timeout")
    };
    assert!(why.contains("timeout of 0"), "{why}");
    update(&client, "one", limits).await.unwrap();
    let before = environment.now();
    let_pass(&environment, MINUTE);
    let second = stage.next().await;
    assert_eq!((second.attempt(), elapsed(&environment, before)), (2, 7), "five seconds, and a pause of two");
    let stale = client.complete_activity(token, ActivityCompletion::Complete(payload("late"))).await;
    assert!(matches!(stale, Err(Rejection::StaleAttempt { .. })), "{stale:?}");
    second.fail(bad());
    assert!(failed(&client, "one").await.to_string().contains("not now"), "two attempts are all");
    let nobody =
        client.update_activity(&target("one"), &"1".into(), ActivityUpdate::default(), String::new(), None).await;
    assert!(nobody.is_err(), "{nobody:?}");
}
