//! Attempts that are completed later, from outside, by token.

use bosun_engine::activity::TaskToken;
use bosun_engine::testing::TestEnvironment;
use bosun_engine::*;

use crate::scene::*;

/// Starts a run whose activity will be completed later, and waits until the log knows.
async fn awaited(stage: &mut Stage, environment: &TestEnvironment, form: &str, options: &ActivityOptions) -> TaskToken {
    let client = environment.client();
    client.start(one(form, form, options)).await.unwrap();
    let token = stage.next().await.later();
    handed_over(&client, form).await;
    token
}

async fn handed_over(client: &Client, id: &str) {
    let mut events = std::pin::pin!(client.events(target(id), EventId(1), true));
    while let Some(event) = futures_util::StreamExt::next(&mut events).await {
        if matches!(event.unwrap().kind, EventKind::ActivityTaskAwaitingCompletion { .. }) {
            return;
        }
    }
    panic!("the attempt should await its completion");
}

/// E09: completed by token, in both forms, also after a crash of the worker that handed the token out.
#[tokio::test]
async fn an_attempt_is_completed_by_token_over_a_crash() {
    for form in FORMS {
        let (mut stage, environment) = staged();
        let token = awaited(&mut stage, &environment, form, &within(MINUTE)).await;
        let environment = environment.crash(1, |_| {}).unwrap();
        let client = environment.client();
        let seen = client.describe(&target(form)).await.unwrap().pending_activities.remove(0);
        assert_eq!(seen.task_token.as_deref(), Some(token.to_string().as_str()));
        let token: TaskToken = token.to_string().parse().unwrap();
        client.complete_activity(token, ActivityCompletion::Complete(payload("by hand"))).await.unwrap();
        assert_eq!(completed::<String>(&client, form).await, "by hand");
        assert!(stage.is_quiet(), "the crash started no other attempt");
    }
}

/// E09: failed by token: the retry policy decides as for any other failure, and the old token is over.
#[tokio::test]
async fn an_attempt_is_failed_by_token_and_retried() {
    let (mut stage, environment) = staged();
    let token = awaited(&mut stage, &environment, "one", &within(MINUTE)).await;
    let client = environment.client();
    let failure = Failure::application("Declined", "not today");
    client.complete_activity(token, ActivityCompletion::Fail(failure)).await.unwrap();
    let_pass(&environment, SECOND);
    let second = stage.next().await;
    assert_eq!(second.attempt(), 2);
    let stale = client.complete_activity(token, ActivityCompletion::Complete(payload("late"))).await;
    assert!(matches!(stale, Err(Rejection::StaleAttempt { .. })), "{stale:?}");
    second.complete("done");
    assert_eq!(completed::<String>(&client, "one").await, "done");
}

/// E09, G28: what an attempt answers in any of these ways is data: the mark of what damage took is none, and a run that was
/// given it would be held as damaged.
#[tokio::test]
async fn the_mark_of_damage_is_no_answer_of_an_attempt() {
    let (mut stage, environment) = staged();
    let token = awaited(&mut stage, &environment, "one", &within(MINUTE)).await;
    let (client, lost) = (environment.client(), || Payload::lost_blob("a"));
    let inner = Failure::application("B", "inner").with_details(lost());
    let deep = Failure { cause: Some(Box::new(inner)), ..Failure::application("A", "outer") };
    for completion in [
        ActivityCompletion::Complete(lost()),
        ActivityCompletion::Fail(deep),
        ActivityCompletion::Cancel(Some(lost())),
        ActivityCompletion::Heartbeat(Some(lost())),
    ] {
        let refused = client.complete_activity(token, completion).await;
        assert!(matches!(&refused, Err(Rejection::Invalid { what, .. }) if what == "payload"), "{refused:?}");
    }
    client.complete_activity(token, ActivityCompletion::Complete(payload("by hand"))).await.unwrap();
    assert_eq!(completed::<String>(&client, "one").await, "by hand");
}

/// E09: heartbeated by token: the details reach the next attempt; canceled by token once the code has asked for it.
#[tokio::test]
async fn an_attempt_is_heartbeated_and_canceled_by_token() {
    for form in FORMS {
        let (mut stage, environment) = staged();
        let options =
            ActivityOptions { cancellation: CancellationType::WaitCancellationCompleted, ..within(MINUTE * 60) };
        let token = awaited(&mut stage, &environment, form, &options).await;
        let client = environment.client();
        client.complete_activity(token, ActivityCompletion::Heartbeat(Some(payload(&7)))).await.unwrap();
        let seen = client.describe(&target(form)).await.unwrap().pending_activities.remove(0);
        assert_eq!(seen.heartbeat_details, Some(payload(&7)));
        client.cancel(&target(form), "enough".into(), None, None).await.unwrap();
        let seen = until(&client, form, |seen| !seen.pending_activities.is_empty()).await;
        assert_eq!(seen.pending_activities[0].state, PendingActivityState::CancelRequested);
        client.complete_activity(token, ActivityCompletion::Cancel(Some(payload("half")))).await.unwrap();
        assert_eq!(outcome(&client, form).await.status(), WorkflowStatus::Canceled);
        let held = history(&client, &target(form)).await;
        let details = held.iter().find_map(|held| match &held.kind {
            EventKind::ActivityTaskCanceled { details, .. } => details.clone(),
            _ => None,
        });
        assert_eq!(details, Some(payload("half")));
    }
}

/// G20: whoever lost the attempt cannot complete, fail, cancel or heartbeat it: after its timeout, after a crash, after
/// the end of the activity and of the run. Nothing is changed, and the refusal says `stale_epoch`.
#[tokio::test]
async fn a_token_that_is_over_changes_nothing() {
    let (mut stage, environment) = staged();
    let client = environment.client();
    client.start(one("one", "one", &within(MINUTE))).await.unwrap();
    let lost = stage.next().await.context.task_token();
    let environment = environment.crash(3, |_| {}).unwrap();
    let client_after = environment.client();
    let second = stage.next().await;
    let events = history(&client_after, &target("one")).await.len();
    let tries = || {
        [
            ActivityCompletion::Complete(payload("stale")),
            ActivityCompletion::Fail(Failure::application("Stale", "stale")),
            ActivityCompletion::Cancel(None),
            ActivityCompletion::Heartbeat(Some(payload(&1))),
        ]
    };
    for completion in tries() {
        let stale = client_after.complete_activity(lost, completion).await.unwrap_err();
        assert!(matches!(stale, Rejection::StaleAttempt { .. }), "{stale}");
        assert!(stale.to_string().contains("stale_epoch"), "{stale}");
    }
    assert_eq!(history(&client_after, &target("one")).await.len(), events);
    let last = second.context.task_token();
    second.complete("done");
    assert_eq!(completed::<String>(&client_after, "one").await, "done");
    for completion in tries() {
        let stale = client_after.complete_activity(last, completion).await.unwrap_err();
        assert!(matches!(stale, Rejection::StaleAttempt { .. }), "{stale}");
    }
    let unknown = TaskToken { run_id: RunId([9; 16]), ..last };
    let refused = client_after.complete_activity(unknown, ActivityCompletion::Cancel(None)).await;
    assert!(matches!(refused, Err(Rejection::UnknownActivity { .. })), "{refused:?}");
    // The worker that lost its log has nothing to say any more.
    drop(client);
}

/// G20: a token of an attempt that timed out is over, though the next attempt has not begun.
#[tokio::test]
async fn a_token_is_over_with_its_timeout() {
    let (mut stage, environment) = staged();
    let token = awaited(&mut stage, &environment, "one", &within(SECOND)).await;
    environment.sleep(SECOND + SECOND / 2).await;
    let client = environment.client();
    let seen = client.describe(&target("one")).await.unwrap().pending_activities.remove(0);
    assert_eq!(seen.state, PendingActivityState::BackingOff);
    let stale = client.complete_activity(token, ActivityCompletion::Complete(payload("late"))).await;
    let expected = Rejection::StaleAttempt { seq: token.seq, attempt: Attempt(1), current: Attempt(2) };
    assert_eq!(stale, Err(expected));
}
