//! Timeouts and retries of workflow executions.

use std::time::Duration;

use bosun_engine::testing::TestEnvironment;
use bosun_engine::workflow::{WfContext, WorkflowRegistry};
use bosun_engine::*;

use crate::scene::*;

fn environment() -> TestEnvironment {
    let flows = flows()
        .workflow("stubborn", |ctx: WfContext, succeeds_at: u32| async move {
            let attempt = ctx.info().attempt.0;
            if attempt < succeeds_at {
                return Err(Failure::application("Busy", format!("attempt {attempt}")));
            }
            Ok(attempt)
        })
        .workflow("rolling", |ctx: WfContext, run: u32| async move {
            ctx.timer(MINUTE).await?;
            ctx.continue_as_new::<u32>(&(run + 1), ContinueAsNewOptions::default())
        })
        // Fails once, then gives the signals it got meanwhile, in order.
        .workflow("patient", |ctx: WfContext, (): ()| async move {
            if ctx.info().attempt.0 == 1 {
                return Err(Failure::application("Busy", "try again"));
            }
            let mut words = Vec::new();
            for _ in 0..3 {
                words.push(ctx.signal_channel::<String>("word").recv().await?);
            }
            Ok(words)
        });
    TestEnvironment::start(flows, ActivityRegistry::new()).unwrap()
}

async fn closed_after(client: &Client, id: &str, started: Timestamp) -> Duration {
    client.describe(&target(id)).await.unwrap().info.closed_at.unwrap().since(started)
}

/// E02: there is no timeout by default, however long a run takes.
#[tokio::test]
async fn without_a_timeout_a_run_may_take_years() {
    let environment = environment();
    let client = environment.client();
    let years = 40 * 365 * 24 * 3_600;
    client.start(start("sleep", "a", &years)).await.unwrap();
    assert_eq!(completed::<u64>(&client, "a").await, years);
}

/// E02: the run timeout ends a run at its moment, not before, also when the worker was away.
#[tokio::test]
async fn the_run_timeout_ends_the_run() {
    let environment = environment();
    environment.client().start(StartWorkflow { run_timeout: Some(MINUTE), ..start("wait", "a", &()) }).await.unwrap();
    environment.sleep(MINUTE - SECOND).await;
    let environment = environment.crash(4, |_| {}).unwrap();
    let client = environment.client();
    assert!(client.describe(&target("a")).await.unwrap().info.status.is_open());
    assert_eq!(outcome(&client, "a").await, CloseOutcome::TimedOut(WorkflowTimeout::Run));
    assert_eq!(closed_after(&client, "a", TestEnvironment::EPOCH).await, MINUTE);
}

/// E02: each run of a chain has the whole run timeout; the execution timeout counts over all of them.
#[tokio::test]
async fn the_execution_timeout_counts_over_continue_as_new() {
    let environment = environment();
    let client = environment.client();
    let request = StartWorkflow {
        run_timeout: Some(MINUTE + SECOND),
        execution_timeout: Some(Duration::from_secs(150)),
        ..start("rolling", "a", &1)
    };
    let first = client.start(request).await.unwrap();
    let result = client.result(&target("a"), WHOLE).await.unwrap().unwrap();
    assert_eq!(result.outcome, CloseOutcome::TimedOut(WorkflowTimeout::Execution));
    assert_ne!(result.run_id, first.run_id);
    assert_eq!(closed_after(&client, "a", TestEnvironment::EPOCH).await, Duration::from_secs(150));
    let last = history(&client, &target("a")).await;
    let EventKind::WorkflowExecutionStarted(started) = &last[0].kind else { panic!("{:?}", last[0]) };
    assert_eq!(started.input.decode::<u32>().unwrap(), 3);
}

/// E02, E03: the execution timeout counts over retries, and there is no retry that could only begin after it.
#[tokio::test]
async fn the_execution_timeout_counts_over_retries() {
    let environment = environment();
    let client = environment.client();
    let request = StartWorkflow {
        execution_timeout: Some(Duration::from_secs(5)),
        retry_policy: attempts(0),
        ..start("stubborn", "a", &100)
    };
    client.start(request).await.unwrap();
    // Attempts begin after 0, 1 and 3 seconds; the next would after 7.
    let failure = failed(&client, "a").await;
    assert_eq!(failure.message, "attempt 3");
    let last = history(&client, &target("a")).await;
    let EventKind::WorkflowExecutionFailed { new_run, retry_state, .. } = &last.last().unwrap().kind else {
        panic!("{last:?}")
    };
    assert_eq!((*new_run, *retry_state), (None, RetryState::Timeout));
}

/// E02, E03: a run that ran out of time is retried too.
#[tokio::test]
async fn a_run_that_timed_out_is_retried() {
    let environment = environment();
    let client = environment.client();
    let request = StartWorkflow { run_timeout: Some(SECOND), retry_policy: attempts(2), ..start("wait", "a", &()) };
    client.start(request).await.unwrap();
    assert_eq!(outcome(&client, "a").await, CloseOutcome::TimedOut(WorkflowTimeout::Run));
    assert_eq!(client.describe(&target("a")).await.unwrap().info.attempt, Attempt(2));
    assert_eq!(closed_after(&client, "a", TestEnvironment::EPOCH).await, Duration::from_secs(3));
}

/// E03: off by default.
#[tokio::test]
async fn a_failed_run_is_not_retried_by_default() {
    let environment = environment();
    let client = environment.client();
    let started = client.start(start("stubborn", "a", &2)).await.unwrap();
    assert_eq!(failed(&client, "a").await.type_name(), "Busy");
    assert_eq!(client.describe(&target("a")).await.unwrap().info.run_id, started.run_id);
}

/// E03: attempts follow with the policy's backoff, each as a run of its own that knows the failure before it.
#[tokio::test]
async fn a_failed_run_is_retried_with_backoff() {
    let environment = environment();
    let client = environment.client();
    let first = client.start(StartWorkflow { retry_policy: attempts(0), ..start("stubborn", "a", &4) }).await.unwrap();
    assert_eq!(completed::<u32>(&client, "a").await, 4);
    let last = history(&client, &target("a")).await;
    let EventKind::WorkflowExecutionStarted(started) = &last[0].kind else { panic!("{:?}", last[0]) };
    assert_eq!((started.attempt, started.first_run), (Attempt(4), first.run_id));
    assert_eq!(started.last_failure.as_ref().unwrap().message, "attempt 3");
    assert_eq!(last[1].kind, EventKind::FirstWorkflowTaskScheduled);
    assert_eq!(last[1].at.since(TestEnvironment::EPOCH), Duration::from_secs(1 + 2 + 4));
    assert_eq!(client.count("").await.unwrap(), 4);
}

/// E03: the attempts have a maximum, and failure types that are not retried.
#[tokio::test]
async fn attempts_of_a_run_end_by_maximum_and_by_failure_type() {
    let environment = environment();
    let client = environment.client();
    client.start(StartWorkflow { retry_policy: attempts(2), ..start("stubborn", "a", &9) }).await.unwrap();
    assert_eq!(failed(&client, "a").await.message, "attempt 2");
    let policy = RetryPolicy { non_retryable_error_types: vec!["Busy".into()], ..RetryPolicy::default() };
    client.start(StartWorkflow { retry_policy: Some(policy), ..start("stubborn", "b", &9) }).await.unwrap();
    assert_eq!(failed(&client, "b").await.message, "attempt 1");
}

/// E03: the backoff survives a crash: the attempt comes at its moment, once.
#[tokio::test]
async fn the_backoff_of_a_run_survives_crashes() {
    let mut environment = environment();
    let policy = RetryPolicy { initial_interval: MINUTE, ..RetryPolicy::default() };
    let request = StartWorkflow { retry_policy: Some(policy), ..start("stubborn", "a", &2) };
    environment.client().start(request).await.unwrap();
    for seed in 0..3 {
        environment.sleep(SECOND).await;
        environment = environment.crash(seed, |_| {}).unwrap();
    }
    let client = environment.client();
    assert_eq!(completed::<u32>(&client, "a").await, 2);
    assert_eq!(closed_after(&client, "a", TestEnvironment::EPOCH).await, MINUTE);
    assert_eq!(client.count("").await.unwrap(), 2);
}

/// E03: signals that come during the backoff are kept, durably, and heard in order by the next attempt.
#[tokio::test]
async fn signals_during_the_backoff_are_kept_in_order() {
    let mut environment = environment();
    let policy = RetryPolicy { initial_interval: MINUTE, ..RetryPolicy::default() };
    let request = StartWorkflow { retry_policy: Some(policy), ..start("patient", "a", &()) };
    environment.client().start(request).await.unwrap();
    for (seed, word) in ["one", "two", "three"].into_iter().enumerate() {
        environment.client().signal(&target("a"), signal("word", word)).await.unwrap();
        environment = environment.crash(seed as u64, |_| {}).unwrap();
    }
    let client = environment.client();
    assert_eq!(client.describe(&target("a")).await.unwrap().info.attempt, Attempt(2));
    assert_eq!(completed::<Vec<String>>(&client, "a").await, ["one", "two", "three"]);
}

/// E03, E17: during the backoff a run can be canceled and terminated.
#[tokio::test]
async fn a_run_in_backoff_can_be_ended() {
    let environment = environment();
    let client = environment.client();
    let policy = RetryPolicy { initial_interval: MINUTE, ..RetryPolicy::default() };
    for id in ["canceled", "terminated"] {
        let request = StartWorkflow { retry_policy: Some(policy.clone()), ..start("patient", id, &()) };
        client.start(request).await.unwrap();
        until(&client, id, |seen| seen.info.attempt == Attempt(2)).await;
    }
    client.terminate(&target("terminated"), "enough".into(), None).await.unwrap();
    assert_eq!(outcome(&client, "terminated").await, CloseOutcome::Terminated { reason: "enough".into() });
    client.cancel(&target("canceled"), "enough".into(), None, None).await.unwrap();
    assert_eq!(outcome(&client, "canceled").await.status(), WorkflowStatus::Canceled);
}

/// E02: a start request whose policy makes no sense is refused and nothing is started.
#[tokio::test]
async fn a_start_with_a_senseless_policy_is_refused() {
    let environment = TestEnvironment::start(WorkflowRegistry::new(), ActivityRegistry::new()).unwrap();
    let policy = RetryPolicy { initial_interval: Duration::ZERO, ..RetryPolicy::default() };
    let request = StartWorkflow { retry_policy: Some(policy), ..start("wait", "a", &()) };
    let refused = environment.client().start(request).await;
    assert!(matches!(refused, Err(Rejection::Invalid { .. })), "{refused:?}");
    assert_eq!(environment.client().count("").await.unwrap(), 0);
}
