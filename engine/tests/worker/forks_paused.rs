//! What a paused run was told and its code has not heard: its forks and resets hear it, and nothing of it is done again.

use bosun_engine::machine::fold_run;
use bosun_engine::testing::TestEnvironment;
use bosun_engine::workflow::{WfContext, WorkflowRegistry, replay};
use bosun_engine::*;

use crate::kit::*;
use crate::scene::{Attempted, Stage, attempts, let_pass, until};

fn code() -> WorkflowRegistry {
    WorkflowRegistry::new()
        .workflow("work", |ctx: WfContext, (): ()| async move {
            let options = ActivityOptions { retry_policy: attempts(2), ..quick() };
            ctx.activity::<String>("work", "job", options).await
        })
        .workflow("parent", |ctx: WfContext, (): ()| async move {
            let child: String = ctx.child_workflow("helper", "helper", &(), ChildWorkflowOptions::default()).await?;
            Ok(format!("parent of {child}"))
        })
        .workflow("helper", |ctx: WfContext, (): ()| async move { ctx.signal_channel::<String>("end").recv().await })
}

fn fork(source: &str, id: &str) -> ForkRequest {
    ForkRequest::new(ForkSource::Run(target(source)), id.into())
}

async fn pause(client: &Client) {
    client.pause(&target("source"), "let me look".into(), None).await.unwrap();
}

/// A run of `work` that was paused while its activity ran, and has been told how that ended.
async fn paused_work(end: impl FnOnce(Attempted)) -> (Stage, TestEnvironment) {
    let (mut stage, activities) = Stage::new();
    let environment = environment_with(code(), activities);
    let client = environment.client();
    client.start(start("work", "source", &())).await.unwrap();
    let act = stage.next().await;
    pause(&client).await;
    end(act);
    until(&client, "source", |seen| seen.inbox == 1).await;
    (stage, environment)
}

async fn check(client: &Client, id: &str) -> Vec<Event> {
    let turns = client.turns(&target(id)).await.unwrap();
    replay(&code(), &turns).unwrap_or_else(|why| panic!("{id}: {why}"));
    turns.iter().flat_map(Turn::numbered).collect()
}

/// E08, E26, E27: a result that was accepted counts: the activity does not run a second time.
#[tokio::test]
async fn a_result_that_a_paused_run_has_accepted_is_told_and_not_made_again() {
    let (mut stage, environment) = paused_work(|act| act.complete("done")).await;
    let client = environment.client();
    let forked = client.fork(fork("source", "fork")).await.unwrap();
    assert_eq!((forked.plan.runs_again.len(), forked.plan.inbox), (0, 1), "{:?}", forked.plan);
    assert_eq!(output::<String>(&client, "fork").await, "done");
    let given = ForkChange::Outcome { of: ForkSubject::Seq(Seq(1)), outcome: Ok(payload("given")) };
    client.fork(fork("source", "other").change(given)).await.unwrap();
    assert_eq!(output::<String>(&client, "other").await, "given", "what is changed takes its place");
    let reset = client.reset(ResetRequest::new(target("source"), ResetTo::Event(EventId(4)))).await.unwrap();
    assert!(reset.plan.runs_again.is_empty(), "{:?}", reset.plan);
    assert_eq!(output::<String>(&client, "source").await, "done");
    for id in ["fork", "other", "source"] {
        let events = check(&client, id).await;
        assert_eq!(count(&events, "ActivityTaskStarted"), 1, "{id}: {events:?}");
    }
    assert!(stage.is_quiet());
}

/// A fork that an older program has written took the end from the inbox and told nothing of it: its attempt is made again, as it
/// was decided then.
#[tokio::test]
async fn a_fork_of_an_older_program_makes_its_attempt_again() {
    let (_stage, environment) = paused_work(|act| act.complete("done")).await;
    let client = environment.client();
    client.fork(fork("source", "fork")).await.unwrap();
    assert_eq!(output::<String>(&client, "fork").await, "done");
    let mut turns = client.turns(&target("fork")).await.unwrap();
    let forks = |turn: &Turn| turn.events.iter().position(|event| event.name() == "WorkflowExecutionForked");
    let (at, event) = turns.iter().enumerate().find_map(|(at, turn)| Some((at, forks(turn)?))).unwrap();
    turns.truncate(at + 1);
    turns[at].events.truncate(event + 1);
    assert_eq!(turns[at].inbox_taken, 1);
    let pending = fold_run(&turns).unwrap().pending_activities();
    let states: Vec<_> = pending.iter().map(|one| (one.state, one.attempt)).collect();
    assert_eq!(states, [(PendingActivityState::Scheduled, Attempt(1))]);
}

/// E07, E26: a failure that was accepted is an attempt that was made; the next one follows.
#[tokio::test]
async fn a_failure_that_a_paused_run_has_accepted_counts_as_an_attempt() {
    let (mut stage, environment) = paused_work(|act| act.fail(Failure::application("Busy", "not now"))).await;
    let client = environment.client();
    let reset = client.reset(ResetRequest::new(target("source"), ResetTo::Event(EventId(4)))).await.unwrap();
    assert_eq!(reset.plan.runs_again.len(), 1, "{:?}", reset.plan);
    let_pass(&environment, HOUR);
    let again = stage.next().await;
    assert_eq!(again.attempt(), 2);
    again.complete("done");
    assert_eq!(output::<String>(&client, "source").await, "done");
    check(&client, "source").await;
}

/// E15, E27: the end of a child that was accepted is told, and not that the child was terminated.
#[tokio::test]
async fn an_end_of_a_child_that_a_paused_run_has_accepted_is_told() {
    let environment = environment_with(code(), ActivityRegistry::new());
    let client = environment.client();
    client.start(start("parent", "source", &())).await.unwrap();
    settled(&environment).await;
    pause(&client).await;
    client.signal(&target("helper"), signal("end", "helped")).await.unwrap();
    until(&client, "source", |seen| seen.inbox == 1).await;
    let forked = client.fork(fork("source", "fork")).await.unwrap();
    assert!(forked.plan.told.is_empty() && forked.plan.inbox == 1, "{:?}", forked.plan);
    assert_eq!(output::<String>(&client, "fork").await, "parent of helped");
    let at = EventId(history(&client, "source").await.len() as u64);
    client.reset(ResetRequest::new(target("source"), ResetTo::Event(at))).await.unwrap();
    assert_eq!(output::<String>(&client, "source").await, "parent of helped");
    for id in ["fork", "source"] {
        check(&client, id).await;
    }
    assert_eq!(client.count("WorkflowType = 'helper'").await.unwrap(), 1, "no other child was started");
}
