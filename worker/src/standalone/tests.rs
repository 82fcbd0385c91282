//! Standalone activities end as their activity does, and go on after a crash.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bosun_engine::testing::TestEnvironment;
use serde_json::json;

use super::*;

fn order(activity_type: &str, input: Value) -> ActivityOrder {
    let options = ActivityOptions::start_to_close(Duration::from_secs(60));
    ActivityOrder { activity_type: ActivityType::of(activity_type), input, options }
}

fn activities(tries: &Arc<AtomicU32>) -> ActivityRegistry {
    let (mut activities, tries) = (ActivityRegistry::new(), tries.clone());
    activities.register("add", |_: ActivityContext, (a, b): (u64, u64)| async move { Ok(a + b) });
    activities.register("third-time", move |_: ActivityContext, (): ()| {
        let tried = tries.fetch_add(1, Ordering::AcqRel) + 1;
        async move {
            let why = || Failure::application("Unlucky", "not yet").into();
            if tried < 3 { Err(why()) } else { Ok(tried) }
        }
    });
    activities.register("hang", |ctx: ActivityContext, (): ()| async move {
        ctx.canceled().await;
        Err::<(), _>(ActivityError::Canceled(None))
    });
    activities
}

fn environment(tries: &Arc<AtomicU32>) -> TestEnvironment {
    TestEnvironment::start(register(WorkflowRegistry::new()), activities(tries)).unwrap()
}

fn named(id: &str) -> Target {
    Target::workflow(WorkflowId::of(format!("{ID_PREFIX}{id}")))
}

async fn outcome(client: &Client, id: &str) -> CloseOutcome {
    client.result(&named(id), ResultRequest { follow_runs: true, timeout: None }).await.unwrap().unwrap().outcome
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_run_ends_as_the_activity_does() {
    let tries = Arc::default();
    let environment = environment(&tries);
    let client = environment.client();
    client.start(order("add", json!([2, 3])).start("sum").unwrap()).await.unwrap();
    let sum = outcome(&client, "sum").await;
    assert!(matches!(&sum, CloseOutcome::Completed(result) if result.to_json() == json!(5)), "{sum:?}");

    let mut stubborn = order("third-time", json!(null));
    client.start(stubborn.start("third").unwrap()).await.unwrap();
    let third = outcome(&client, "third").await;
    assert!(matches!(&third, CloseOutcome::Completed(result) if result.to_json() == json!(3)), "{third:?}");

    tries.store(0, Ordering::Release);
    stubborn.options.retry_policy = Some(RetryPolicy::attempts(2));
    client.start(stubborn.start("twice").unwrap()).await.unwrap();
    let twice = outcome(&client, "twice").await;
    assert!(matches!(&twice, CloseOutcome::Failed(why) if format!("{why:?}").contains("not yet")), "{twice:?}");
    assert_eq!(tries.load(Ordering::Acquire), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancel_is_heard_by_the_activity_before_the_run_ends() {
    let environment = environment(&Arc::default());
    let client = environment.client();
    client.start(order("hang", json!(null)).start("hang").unwrap()).await.unwrap();
    client.cancel(&named("hang"), "enough".to_owned(), None, None).await.unwrap();
    let ended = outcome(&client, "hang").await;
    assert!(matches!(ended, CloseOutcome::Canceled(_)), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_between_attempts_loses_nothing() {
    let tries = Arc::default();
    let environment = environment(&tries);
    let start = order("third-time", json!(null)).start("third").unwrap();
    environment.client().start(start).await.unwrap();
    while tries.load(Ordering::Acquire) == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let environment = environment.crash(7, |_| ()).unwrap();
    let third = outcome(&environment.client(), "third").await;
    assert!(matches!(third, CloseOutcome::Completed(_)), "{third:?}");
    assert!(tries.load(Ordering::Acquire) >= 3);
}

#[test]
fn what_no_run_could_carry_out_is_refused_before_one_is_started() {
    let refused = |order: ActivityOrder| order.start("x").unwrap_err().to_string();
    assert!(refused(order("bosun.batch.carry_out", json!(null))).contains("Bosun's own"));
    let none = ActivityOrder { options: ActivityOptions::default(), ..order("add", json!(null)) };
    assert!(refused(none).contains("start-to-close"));
    let options = ActivityOptions::start_to_close(Duration::ZERO);
    assert!(refused(ActivityOrder { options, ..order("add", json!(null)) }).contains("timeout of 0"));
    let mut late = order("add", json!(null));
    late.options.priority = Some(Priority::of(9));
    assert!(refused(late).contains("priority 9"));
}
