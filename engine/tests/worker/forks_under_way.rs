//! What was under way at a fork, family by family, and what becomes of it.

use bosun_engine::workflow::{WfContext, WorkflowRegistry, replay};
use bosun_engine::*;

use crate::kit::*;
use crate::scene::{MINUTE, Stage, attempts, until};

fn code() -> WorkflowRegistry {
    WorkflowRegistry::new()
        .workflow("work", |ctx: WfContext, (): ()| async move {
            let options = ActivityOptions { retry_policy: attempts(1), ..quick() };
            ctx.activity::<String>("work", "job", options).await
        })
        .workflow("sleep", |ctx: WfContext, (): ()| async move {
            ctx.timer(HOUR).await?;
            Ok(ctx.now().0)
        })
        .workflow("parent", |ctx: WfContext, (): ()| async move {
            let child: String = ctx.child_workflow("helper", "helper", &(), ChildWorkflowOptions::default()).await?;
            ctx.signal_channel::<()>("go").recv().await?;
            Ok(format!("parent of {child}"))
        })
        .workflow("helper", |ctx: WfContext, (): ()| async move { ctx.signal_channel::<String>("end").recv().await })
        .workflow("talker", |ctx: WfContext, (): ()| async move {
            ctx.signal_channel::<()>("go").recv().await?;
            let to = ExternalTarget { workflow_id: "listener".into(), run_id: None };
            ctx.signal_external(to, "word", "hello").await?;
            ctx.signal_channel::<()>("go").recv().await
        })
        .workflow("brief-parent", |ctx: WfContext, cancels: bool| async move {
            let child = ctx.child_workflow::<String>("helper", "helper", &(), ChildWorkflowOptions::default());
            child.started().await?;
            let options = ActivityOptions { retry_policy: attempts(1), ..quick() };
            let worked: String = ctx.activity("work", "job", options).await?;
            if cancels {
                child.cancel("not needed");
                ctx.signal_channel::<()>("go").recv().await?;
            }
            Ok(worked)
        })
        .workflow("brief-talker", |ctx: WfContext, (): ()| async move {
            let to = ExternalTarget { workflow_id: "listener".into(), run_id: None };
            let told = ctx.signal_external(to, "word", "hello");
            let worked: String = ctx.activity("work", "job", quick()).await?;
            drop(told);
            Ok(worked)
        })
        .workflow("rounds", |ctx: WfContext, (): ()| async move {
            ctx.signal_channel::<()>("go").recv().await?;
            ctx.continue_as_new::<()>(&(), ContinueAsNewOptions::default())
        })
        .workflow("listener", |ctx: WfContext, (): ()| async move {
            ctx.signal_channel::<()>("stop").recv().await?;
            let heard: Vec<Result<String, Failure>> = ctx.signal_channel::<String>("word").drain();
            Ok(heard.len())
        })
        .workflow("counter", |ctx: WfContext, (): ()| async move {
            let mut sum = 0;
            while sum < 10 {
                sum += ctx.signal_channel::<u64>("add").recv().await?;
            }
            Ok(sum)
        })
}

fn fork(source: &str, id: &str) -> ForkRequest {
    ForkRequest::new(ForkSource::Run(target(source)), id.into())
}

async fn check(client: &Client, id: &str) -> Vec<Event> {
    let turns = client.turns(&target(id)).await.unwrap();
    replay(&code(), &turns).unwrap_or_else(|why| panic!("{id}: {why}"));
    turns.iter().flat_map(Turn::numbered).collect()
}

/// E08, G12: an activity that is under way runs again in the fork, under a key of the fork's, though it is allowed one
/// attempt only; the source's goes on by itself.
#[tokio::test]
async fn a_pending_activity_runs_again_under_a_key_of_the_fork() {
    let (mut stage, activities) = Stage::new();
    let environment = environment_with(code(), activities);
    let client = environment.client();
    client.start(start("work", "source", &())).await.unwrap();
    let of_source = stage.next().await;
    let forked = client.fork(fork("source", "fork")).await.unwrap();
    assert_eq!(forked.plan.runs_again.len(), 1);
    let of_fork = stage.next().await;
    assert_eq!(of_fork.attempt(), 1);
    assert_ne!(of_fork.context.idempotency_key(), of_source.context.idempotency_key());
    of_fork.complete("of the fork");
    of_source.complete("of the source");
    assert_eq!(output::<String>(&client, "fork").await, "of the fork");
    assert_eq!(output::<String>(&client, "source").await, "of the source");
    let events = check(&client, "fork").await;
    assert_eq!(count(&events, "ActivityTaskStarted"), 2, "one was the source's");
}

/// A pending activity can be given its result at the fork.
#[tokio::test]
async fn a_pending_activity_can_be_given_its_outcome() {
    let (mut stage, activities) = Stage::new();
    let environment = environment_with(code(), activities);
    let client = environment.client();
    client.start(start("work", "source", &())).await.unwrap();
    let of_source = stage.next().await;
    let given = |outcome| ForkChange::Outcome { of: ForkSubject::Seq(Seq(1)), outcome };
    let forked = client.fork(fork("source", "ok").change(given(Ok(payload("given"))))).await.unwrap();
    assert!(forked.plan.runs_again.is_empty());
    assert_eq!(output::<String>(&client, "ok").await, "given");
    let failure = Failure::application("Given", "as asked");
    client.fork(fork("source", "failed").change(given(Err(failure)))).await.unwrap();
    let CloseOutcome::Failed(failure) = outcome(&client, "failed").await else { panic!("it was given a failure") };
    assert_eq!(failure.root().type_name(), "Given");
    assert!(stage.is_quiet());
    check(&client, "ok").await;
    of_source.complete("late");
}

/// E10, G14: a timer waits in the fork for as long as was left; the time between does not count.
#[tokio::test]
async fn a_pending_timer_waits_for_what_was_left() {
    let environment = environment_with(code(), ActivityRegistry::new());
    let client = environment.client();
    let run_timeout = Some(2 * HOUR);
    client.start(StartWorkflow { run_timeout, ..start("sleep", "source", &()) }).await.unwrap();
    outcome(&client, "source").await;
    environment.sleep(10 * HOUR).await;
    let now = environment.now();
    let forked = client.fork(fork("source", "fork")).await.unwrap();
    assert_eq!(forked.plan.timers.len(), 1);
    assert_eq!(forked.plan.timers[0].left, HOUR);
    let fired: i64 = output(&client, "fork").await;
    assert_eq!(Timestamp(fired), now.plus(HOUR), "not early, not late, and the run timeout was moved too");
    check(&client, "fork").await;
}

/// E15, G18: a child of the source is neither shared nor started again: its recorded end is told, else that it was
/// terminated.
#[tokio::test]
async fn a_pending_child_is_told_as_recorded_or_as_terminated() {
    let environment = environment_with(code(), ActivityRegistry::new());
    let client = environment.client();
    client.start(start("parent", "source", &())).await.unwrap();
    settled(&environment).await;
    let forked = client.fork(fork("source", "early")).await.unwrap();
    assert_eq!(forked.plan.told[0].why, ForkTelling::NotShared);
    let CloseOutcome::Failed(failure) = outcome(&client, "early").await else { panic!("its child is not shared") };
    assert!(failure.to_string().contains("child workflow helper"), "{failure}");
    check(&client, "early").await;
    assert_eq!(client.describe(&target("helper")).await.unwrap().info.status, WorkflowStatus::Running);

    client.signal(&target("helper"), signal("end", "helped")).await.unwrap();
    outcome(&client, "helper").await;
    settled(&environment).await;
    let at = EventId(3);
    let forked = client.fork(fork("source", "later").at(at)).await.unwrap();
    assert_eq!((forked.plan.event, forked.plan.told[0].why), (at, ForkTelling::AsRecorded));
    client.signal(&target("later"), signal("go", &())).await.unwrap();
    assert_eq!(output::<String>(&client, "later").await, "parent of helped");
    check(&client, "later").await;
    let runs = client.count("WorkflowType = 'helper'").await.unwrap();
    assert_eq!(runs, 1, "no other child was started");

    let given =
        ForkChange::Outcome { of: ForkSubject::Name { name: "helper".into(), nth: None }, outcome: Ok(payload("x")) };
    client.fork(fork("source", "given").change(given)).await.unwrap();
    client.signal(&target("given"), signal("go", &())).await.unwrap();
    assert_eq!(output::<String>(&client, "given").await, "parent of x");
    check(&client, "given").await;
}

/// E16, G13: a message that the source sent is not sent by its forks, whether its arrival was recorded or not.
#[tokio::test]
async fn a_message_of_the_copied_part_is_not_sent_again() {
    let environment = environment_with(code(), ActivityRegistry::new());
    let client = environment.client();
    for name in ["listener", "talker"] {
        client.start(start(name, name, &())).await.unwrap();
    }
    client.signal(&target("talker"), signal("go", &())).await.unwrap();
    settled(&environment).await;
    let events = history(&client, "talker").await;
    let sent = events.iter().find(|event| event.kind.name() == "SignalExternalWorkflowExecutionInitiated").unwrap().id;
    for (id, at) in [("before", sent), ("after", sent.next())] {
        let forked = client.fork(fork("talker", id).at(at)).await.unwrap();
        assert_eq!(forked.plan.told.len(), usize::from(id == "before"), "{:?}", forked.plan);
        client.signal(&target(id), signal("go", &())).await.unwrap();
        outcome(&client, id).await;
        check(&client, id).await;
    }
    client.signal(&target("listener"), signal("stop", &())).await.unwrap();
    assert_eq!(output::<usize>(&client, "listener").await, 1);
}

/// E11, E27, G13: signals that were accepted by a paused run are decided by its fork, once, and the fork is not paused;
/// those after the fork are named and not sent again where that was asked for.
#[tokio::test]
async fn a_paused_run_is_forked_with_what_it_had_accepted() {
    let environment = environment_with(code(), ActivityRegistry::new());
    let client = environment.client();
    client.start(start("counter", "source", &())).await.unwrap();
    client.signal(&target("source"), signal("add", &1_u64)).await.unwrap();
    client.pause(&target("source"), "let me look".into(), None).await.unwrap();
    client.signal(&target("source"), signal("add", &3_u64)).await.unwrap();
    let forked = client.fork(fork("source", "fork")).await.unwrap();
    assert_eq!(forked.plan.inbox, 1);
    until(&client, "fork", |seen| seen.inbox == 0 && seen.info.status == WorkflowStatus::Running).await;
    client.signal(&target("fork"), signal("add", &6_u64)).await.unwrap();
    assert_eq!(output::<u64>(&client, "fork").await, 10);
    check(&client, "fork").await;

    client.unpause(&target("source"), "go on".into(), None).await.unwrap();
    let second = ForkChange::Signal { name: "add".into(), nth: Some(1), input: payload(&9_u64) };
    let request = fork("source", "other").change(second).reapply(ForkReapply::None);
    let forked = client.fork(request).await.unwrap();
    assert_eq!(forked.plan.signals_dropped, ["add".into()]);
    client.signal(&target("other"), signal("add", &1_u64)).await.unwrap();
    assert_eq!(output::<u64>(&client, "other").await, 10);
    check(&client, "other").await;
}

/// E17: an activity that was asked to cancel is canceled in the fork, not run.
#[tokio::test]
async fn an_activity_that_was_asked_to_cancel_does_not_run_again() {
    let waits = WorkflowRegistry::new().workflow("waits", |ctx: WfContext, (): ()| async move {
        let options = ActivityOptions { cancellation: CancellationType::WaitCancellationCompleted, ..quick() };
        ctx.activity::<String>("work", "job", options).await
    });
    let (mut stage, activities) = Stage::new();
    let environment = environment_with(waits, activities);
    let client = environment.client();
    client.start(start("waits", "source", &())).await.unwrap();
    let of_source = stage.next().await;
    client.cancel(&target("source"), "enough".into(), None, None).await.unwrap();
    let forked = client.fork(fork("source", "fork")).await.unwrap();
    assert!(forked.plan.runs_again.is_empty());
    assert!(matches!(outcome(&client, "fork").await, CloseOutcome::Canceled(_)));
    assert!(stage.is_quiet());
    of_source.complete("done all the same");
}

/// E02, E19: what comes after the fork in its chain is a run like any other.
#[tokio::test]
async fn the_runs_after_a_fork_are_ordinary_runs() {
    let code = WorkflowRegistry::new().workflow("again", |ctx: WfContext, n: u64| async move {
        ctx.timer(MINUTE).await?;
        if n < 2 {
            return ctx.continue_as_new(&(n + 1), ContinueAsNewOptions::default());
        }
        Ok((n, ctx.workflow_id().to_string(), ctx.info().first_run == ctx.run_id()))
    });
    let environment = environment_with(code, ActivityRegistry::new());
    let client = environment.client();
    client.start(start("again", "source", &1_u64)).await.unwrap();
    let first = client.describe(&target("source")).await.unwrap().info.run_id;
    outcome(&client, "source").await;
    let request = ForkRequest::new(ForkSource::Run(Target::run("source".into(), first)), "fork".into());
    client.fork(request).await.unwrap();
    let ended: (u64, String, bool) = output(&client, "fork").await;
    assert_eq!(ended, (2, "fork".into(), false));
    let last = client.describe(&target("fork")).await.unwrap().info;
    assert_eq!(last.forked_from, None);
    let of_fork = client.list(ListRequest { query: "WorkflowId = 'fork'".into(), limit: 10 }).await.unwrap();
    assert_eq!(of_fork.len(), 2);
}

/// The outcome that a fork is given for the only activity of its source.
fn given(value: &str) -> ForkChange {
    let of = ForkSubject::Name { name: "work".into(), nth: None };
    ForkChange::Outcome { of, outcome: Ok(payload(value)) }
}

fn waits_for(seen: &Description, signal: &str) -> bool {
    seen.awaiting.iter().any(|awaited| awaited.what == format!("signal {signal}"))
}

/// E15, G18: a fork that ends at once, or that cancels the child it was told of, leaves the source's child alone: the
/// child is not the fork's to end.
#[tokio::test]
async fn the_end_of_a_fork_does_not_touch_the_child_of_its_source() {
    for cancels in [false, true] {
        let (mut stage, activities) = Stage::new();
        let environment = environment_with(code(), activities);
        let client = environment.client();
        client.start(start("brief-parent", "source", &cancels)).await.unwrap();
        let of_source = stage.next().await;
        client.fork(fork("source", "fork").change(given("given"))).await.unwrap();
        // What the fork does to others arrives before what is asked after it.
        let told = |seen: &Description| if cancels { waits_for(seen, "go") } else { !seen.info.status.is_open() };
        until(&client, "fork", told).await;
        let helper = client.describe(&target("helper")).await.unwrap();
        assert_eq!(helper.info.status, WorkflowStatus::Running, "cancels: {cancels}");
        assert!(!helper.cancel_requested);
        check(&client, "fork").await;
        of_source.complete("of the source");
        until(&client, "source", told).await;
        let helper = client.describe(&target("helper")).await.unwrap();
        let touched = !helper.info.status.is_open() || helper.cancel_requested;
        assert!(touched, "it is the source's to end");
    }
}

/// G13, G18: a message that the source had under way is not sent again by a fork that ends at once, also not by the
/// recovery after it.
#[tokio::test]
async fn the_end_of_a_fork_does_not_repeat_a_message_of_its_source() {
    let (mut stage, activities) = Stage::new();
    let environment = environment_with(code(), activities);
    let client = environment.client();
    client.start(start("listener", "listener", &())).await.unwrap();
    client.start(start("brief-talker", "source", &())).await.unwrap();
    let of_source = stage.next().await;
    until(&client, "source", |seen| seen.info.history.events >= 5).await;
    let events = client.history(&target("source"), EventId(1), 100).await.unwrap();
    let arrived = events.iter().find(|event| event.kind.name() == "ExternalWorkflowExecutionSignaled");
    let before = EventId(arrived.expect("the listener was told").id.0 - 1);
    let forked = client.fork(fork("source", "fork").at(before).change(given("given"))).await.unwrap();
    assert_eq!(forked.plan.event, before, "the message is under way there");
    assert_eq!(output::<String>(&client, "fork").await, "given");
    let last = client.turns(&target("fork")).await.unwrap().pop().expect("turns");
    assert!(!last.outlook.attention, "the fork has nothing to deliver: {:?}", last.outlook);
    of_source.complete("late");
    let environment = environment.restart(|_| {}).unwrap();
    let client = environment.client();
    client.signal(&target("listener"), signal("stop", &())).await.unwrap();
    assert_eq!(output::<usize>(&client, "listener").await, 1, "heard once");
    check(&client, "fork").await;
}

/// E08: an activity that was paused by hand in the source runs again in the fork: whoever forks wants it to go on.
#[tokio::test]
async fn an_activity_paused_in_the_source_runs_in_the_fork() {
    let (mut stage, activities) = Stage::new();
    let environment = environment_with(code(), activities);
    let client = environment.client();
    client.start(start("work", "source", &())).await.unwrap();
    let of_source = stage.next().await;
    let activity = client.describe(&target("source")).await.unwrap().pending_activities[0].activity_id.clone();
    client.pause_activity(&target("source"), &activity, "by hand".into(), None).await.unwrap();
    client.fork(fork("source", "fork")).await.unwrap();
    stage.next().await.complete("of the fork");
    assert_eq!(output::<String>(&client, "fork").await, "of the fork");
    check(&client, "fork").await;
    of_source.complete("late");
}

/// G17: a fork asked for again finds the run it made, also when that has gone on as another one since.
#[tokio::test]
async fn a_repeated_fork_finds_its_run_after_that_has_continued_as_new() {
    let environment = environment_with(code(), ActivityRegistry::new());
    let client = environment.client();
    client.start(start("rounds", "source", &())).await.unwrap();
    let once = ForkRequest { request_id: Some("r1".into()), ..fork("source", "fork") };
    let first = client.fork(once.clone()).await.unwrap();
    client.signal(&target("fork"), signal("go", &())).await.unwrap();
    settled(&environment).await;
    let newest = client.describe(&target("fork")).await.unwrap().info;
    assert_eq!(newest.continued_from, first.run_id);
    let second = client.fork(once).await.unwrap();
    assert_eq!((second.run_id, second.newly_started), (first.run_id, false));
}
