//! One small workflow through everything: activity, timer, signal, result, restart.

use std::time::Duration;

use bosun_engine::testing::TestEnvironment;
use bosun_engine::workflow::{WfContext, WorkflowRegistry};
use bosun_engine::*;

fn workflows() -> WorkflowRegistry {
    WorkflowRegistry::new().workflow("greet", |ctx: WfContext, name: String| async move {
        let options = ActivityOptions { start_to_close: Some(Duration::from_secs(60)), ..ActivityOptions::default() };
        let greeting: String = ctx.activity("hello", &name, options.clone()).await?;
        ctx.timer(Duration::from_secs(3_600)).await?;
        let word: String = ctx.signal_channel("word").recv().await?;
        let echoed: String = ctx.activity("hello", &word, options).await?;
        Ok(format!("{greeting} {echoed}"))
    })
}

fn activities() -> ActivityRegistry {
    let mut activities = ActivityRegistry::new();
    activities.register("hello", |_ctx, name: String| async move { Ok(format!("hello {name}")) });
    activities
}

fn start(id: &str) -> StartWorkflow {
    StartWorkflow::new("greet".into(), id.into()).input(Payload::encode("ada").unwrap())
}

fn word(id: &str) -> SignalRequest {
    SignalRequest {
        name: "word".into(),
        input: Payload::encode("bosun").unwrap(),
        identity: None,
        request_id: Some(RequestId::of(id)),
    }
}

const WHOLE: ResultRequest = ResultRequest { follow_runs: true, timeout: Some(Duration::from_secs(120)) };

#[tokio::test]
async fn a_workflow_runs_to_its_end_in_skipped_time() {
    let environment = TestEnvironment::start(workflows(), activities()).unwrap();
    let client = environment.client();
    let started = client.start(start("one")).await.unwrap();
    assert!(started.newly_started);
    let target = Target::workflow("one".into());
    client.signal(&target, word("r1")).await.unwrap();
    client.signal(&target, word("r1")).await.unwrap();
    let result = client.result(&target, WHOLE).await.unwrap().unwrap();
    assert_eq!(result.outcome, CloseOutcome::Completed(Payload::encode("hello ada hello bosun").unwrap()));
    let names: Vec<&str> =
        client.history(&target, EventId(1), 100).await.unwrap().iter().map(|event| event.kind.name()).collect();
    assert_eq!(names.iter().filter(|name| **name == "WorkflowExecutionSignaled").count(), 1);
    assert!(environment.now().since(TestEnvironment::EPOCH) >= Duration::from_secs(3_600));
}

#[tokio::test]
async fn a_run_goes_on_after_a_crash() {
    let environment = TestEnvironment::start(workflows(), activities()).unwrap();
    environment.client().start(start("two")).await.unwrap();
    let environment = environment.crash(42, |_| {}).unwrap();
    let client = environment.client();
    let target = Target::workflow("two".into());
    client.signal(&target, word("r1")).await.unwrap();
    let result = client.result(&target, WHOLE).await.unwrap().unwrap();
    assert_eq!(result.outcome, CloseOutcome::Completed(Payload::encode("hello ada hello bosun").unwrap()));
}

#[tokio::test]
async fn the_same_on_a_directory_in_real_time() {
    let directory = tempfile::tempdir().unwrap();
    let flow = WorkflowRegistry::new().workflow("greet", |ctx: WfContext, name: String| async move {
        let options = ActivityOptions { start_to_close: Some(Duration::from_secs(60)), ..ActivityOptions::default() };
        ctx.timer(Duration::from_millis(20)).await?;
        ctx.activity::<String>("hello", &name, options).await
    });
    let mut options = WorkerOptions::at(directory.path());
    options.workflows = flow;
    options.activities = activities();
    let worker = Worker::start(options).unwrap();
    let client = worker.client();
    client.start(start("three")).await.unwrap();
    let result = client.result(&Target::workflow("three".into()), WHOLE).await.unwrap().unwrap();
    assert_eq!(result.outcome, CloseOutcome::Completed(Payload::encode("hello ada").unwrap()));
    worker.drain(Duration::from_secs(60)).await.unwrap();
}
