//! Cancellation: scopes, types, cleanup.

use super::*;

fn flow<O, F>(code: impl Fn(WfContext) -> F + Send + Sync + 'static) -> WorkflowRegistry
where
    O: Serialize + 'static,
    F: Future<Output = Result<O, Failure>> + 'static,
{
    WorkflowRegistry::new().workflow("flow", move |ctx, ()| code(ctx))
}

/// E17: the cancellation of the run cancels what it waits for, in the order asked, and the run ends as canceled.
#[test]
fn canceling_the_run_cancels_everything_that_is_under_way() {
    let registry = flow(|ctx| async move {
        let timer = ctx.timer(SECOND);
        let activity = ctx.activity::<()>("work", &(), options());
        let child = ctx.child_workflow::<()>("kid", "kid-1", &(), ChildWorkflowOptions::default());
        let (timer, activity) = join(timer, activity).await;
        assert!(timer.unwrap_err().is_canceled());
        assert!(activity.as_ref().is_err_and(Failure::is_canceled));
        child.await
    });
    let mut world = World::start(&registry, "flow", ());
    let commands = world.cancel();
    assert_eq!(kinds(&commands), ["cancel timer#1", "cancel activity#2", "cancel child#3", "canceled"]);
    world.check_replay();
}

/// E17: `Canceled` is an outcome only after a request; without one, a canceled failure fails the run.
#[test]
fn a_canceled_failure_without_a_request_is_a_failure() {
    let registry = flow(|_| async move { Err::<(), _>(Failure::canceled("on my own")) });
    let world = World::start(&registry, "flow", ());
    assert!(world.failure().is_canceled());
    let registry = flow(|ctx| async move {
        let why = ctx.signal_channel::<()>("never").recv().await.unwrap_err();
        Err::<(), _>(Failure::application("Cleanup", "went wrong").because(why))
    });
    let mut world = World::start(&registry, "flow", ());
    assert_eq!(world.cancel().len(), 1);
    assert_eq!(world.failure().message, "went wrong");
    world.check_replay();
}

/// E17: signal receives, conditions, permits and channels are canceled with their scope too; new work is not started.
#[test]
fn a_canceled_scope_wakes_every_kind_of_wait_and_starts_nothing_new() {
    let registry = flow(|ctx| async move {
        let semaphore = Semaphore::new(&ctx, 0);
        let (_keep, receiver) = channel::<u32>(&ctx, 1);
        let waits: Vec<LocalBoxFuture<bool>> = vec![
            Box::pin({
                let receive = ctx.signal_channel::<()>("x").recv();
                async { receive.await.is_err() }
            }),
            Box::pin({
                let wait = ctx.wait_until(|| false);
                async { wait.await.is_err() }
            }),
            Box::pin(async move { semaphore.acquire().await.is_err() }),
            Box::pin(async move { receiver.recv().await.is_err() }),
            Box::pin({
                let cancellation = ctx.cancellation();
                async { cancellation.await == "enough" }
            }),
        ];
        let canceled = join_all(waits).await;
        let late = ctx.activity::<()>("late", &(), options()).await.is_err_and(|failure| failure.is_canceled());
        Ok((canceled, late, ctx.is_canceled()))
    });
    let mut world = World::start(&registry, "flow", ());
    assert_eq!(kinds(&world.cancel()), ["complete"]);
    world.assert_completed((vec![true; 5], true, true));
    world.check_replay();
}

/// E17: cleanup in a detached scope runs to its end although the run is being canceled.
#[test]
fn cleanup_in_a_detached_scope_is_not_canceled() {
    let registry = flow(|ctx| async move {
        let result = ctx.activity::<()>("work", &(), options()).await;
        if result.is_err() {
            ctx.shielded(|ctx| async move { ctx.activity::<()>("cleanup", &(), options()).await }).await?;
        }
        result
    });
    let mut world = World::start(&registry, "flow", ());
    assert_eq!(kinds(&world.cancel()), ["cancel activity#1", "cleanup#2"]);
    // A second request changes nothing.
    assert_eq!(world.cancel(), []);
    assert_eq!(kinds(&world.complete(2, ())), ["canceled"]);
    world.check_replay();
}

/// E17: a nested scope is canceled alone, and with the one around it.
#[test]
fn nested_scopes_are_canceled_alone_or_with_their_parent() {
    let registry = flow(|ctx| async move {
        let outer = ctx.nested_scope();
        let (inner, beside) = (outer.nested_scope(), outer.nested_scope());
        let (a, b) = (inner.timer(SECOND), beside.timer(SECOND));
        inner.cancel_scope("inner");
        assert!(a.await.is_err() && !beside.is_canceled());
        outer.cancel_scope("outer");
        assert!(b.await.is_err() && outer.nested_scope().is_canceled());
        ctx.timer(SECOND).await?;
        Ok("root goes on")
    });
    let mut world = World::start(&registry, "flow", ());
    world.fire(3);
    world.assert_completed("root goes on");
    world.check_replay();
}

/// What is asked for and canceled in answer to one job: an activity that would be waited for, a timer and a child.
async fn undone_at_once(ctx: WfContext) -> Result<Vec<bool>, Failure> {
    let scope = ctx.nested_scope();
    let waits = options().with_cancellation(CancellationType::WaitCancellationCompleted);
    let kept = ctx.activity::<()>("kept", &(), options());
    let (activity, timer) = (scope.activity::<()>("undone", &(), waits), scope.timer(SECOND));
    let child = scope.child_workflow::<()>("other", "child-1", &(), ChildWorkflowOptions::default());
    scope.cancel_scope("never mind");
    let canceled = vec![activity.await.is_err(), timer.await.is_err(), child.await.is_err()];
    ctx.activity::<()>("last", &(), options()).await?;
    kept.await?;
    Ok(canceled)
}

/// E07, E10, E15: an activity or a child that is canceled in the turn that asks for it was never asked for, and the code hears
/// of that at once, whatever the cancellation type; as on a cluster. A timer leaves both its events.
#[test]
fn what_is_canceled_in_the_turn_that_asks_for_it_is_never_asked_for() {
    let registry = flow(undone_at_once);
    let mut world = World::start(&registry, "flow", ());
    let asked: Vec<_> = world.turns[0].events.iter().filter(|event| event.origin() == Origin::Command).collect();
    // Of a timer, which is over at once anyway, both are recorded.
    let [
        EventKind::ActivityTaskScheduled(kept),
        EventKind::TimerStarted { seq: Seq(3), .. },
        EventKind::TimerCanceled { seq: Seq(3) },
        EventKind::ActivityTaskScheduled(last),
    ] = asked[..]
    else {
        panic!("{asked:?}")
    };
    assert_eq!((kept.seq, kept.activity_id.as_str()), (Seq(1), "1"));
    // Numbers are not given twice; the activity that was taken back was the second.
    assert_eq!((last.seq, last.activity_id.as_str()), (Seq(5), "3"));
    world.complete(1, ());
    world.complete(5, ());
    world.assert_completed(vec![true, true, true]);
    world.check_replay();
}

/// G22: a run that was started before ids were counted by kind asks as it did then.
#[test]
fn an_old_run_keeps_its_ids_and_what_it_canceled_at_once() {
    let registry = flow(undone_at_once);
    let old = WorkflowExecutionStarted { numbering: None, ..started("flow", json(())) };
    let mut world = World::start_with(&registry, old);
    let ids: Vec<String> = world.turns[0]
        .events
        .iter()
        .filter_map(|event| match event {
            EventKind::ActivityTaskScheduled(task) => Some(task.activity_id.to_string()),
            _ => None,
        })
        .collect();
    assert_eq!(ids, ["1", "2"]);
    let named: Vec<&str> = world.turns[0].events.iter().map(EventKind::name).collect();
    assert!(named.contains(&"TimerCanceled") && named.contains(&"ActivityTaskCancelRequested"), "{named:?}");
    world.happen(EventKind::ActivityTaskCanceled { seq: Seq(2), details: None });
    world.complete(5, ());
    world.complete(1, ());
    world.assert_completed(vec![true, true, true]);
    world.check_replay();
}

fn with_type(cancellation: CancellationType) -> World {
    let registry = flow(move |ctx| async move {
        let activity = ctx.activity::<u32>("work", &(), options().with_cancellation(cancellation));
        ctx.signal_channel::<()>("stop").recv().await?;
        activity.cancel();
        match activity.await {
            Ok(done) => Ok(format!("done {done}")),
            Err(failure) => Ok(format!("canceled {}", failure.is_canceled())),
        }
    });
    World::start(&registry, "flow", ())
}

/// E07: try-cancel asks and reports at once; what the activity says later is ignored.
#[test]
fn try_cancel_reports_at_once_and_ignores_the_end() {
    let mut world = with_type(CancellationType::TryCancel);
    assert_eq!(kinds(&world.signal("stop", ())), ["cancel activity#1", "complete"]);
    world.assert_completed("canceled true");

    let registry = flow(|ctx| async move {
        let activity = ctx.activity::<()>("work", &(), options());
        activity.cancel();
        assert!(activity.await.is_err());
        ctx.signal_channel::<()>("end").recv().await
    });
    let mut world = World::start(&registry, "flow", ());
    assert_eq!(world.happen(EventKind::ActivityTaskCanceled { seq: Seq(1), details: None }), []);
    world.signal("end", ());
    world.assert_completed(());
    world.check_replay();
}

/// E07: wait-cancellation-completed asks once and waits for the end, however it ends.
#[test]
fn wait_cancellation_completed_waits_for_the_end() {
    let mut world = with_type(CancellationType::WaitCancellationCompleted);
    assert_eq!(kinds(&world.signal("stop", ())), ["cancel activity#1"]);
    assert_eq!(world.cancel(), [], "it was asked already");
    world.complete(1, 5);
    world.assert_completed("done 5");
    world.check_replay();
}

/// E07: abandon asks for nothing and reports at once.
#[test]
fn abandon_asks_for_nothing() {
    let mut world = with_type(CancellationType::Abandon);
    assert_eq!(kinds(&world.signal("stop", ())), ["complete"]);
    world.assert_completed("canceled true");
    world.check_replay();
}

/// E15: a child may be waited for until its cancel request is delivered, or until it has ended.
#[test]
fn child_cancellation_types_wait_as_they_say() {
    let with = |cancellation| {
        let registry = flow(move |ctx| async move {
            let options = ChildWorkflowOptions::default().with_cancellation(cancellation);
            let child = ctx.child_workflow::<()>("kid", "kid-1", &(), options);
            child.started().await?;
            child.cancel("stop");
            child.await.map_err(|failure| Failure::application("Ended", failure.to_string()))
        });
        let mut world = World::start(&registry, "flow", ());
        let run_id = RunId([9; 16]);
        let commands = world.happen(EventKind::ChildWorkflowExecutionStarted { seq: Seq(1), run_id });
        (world, kinds(&commands))
    };
    let (world, commands) = with(CancellationType::TryCancel);
    assert_eq!(commands, ["cancel child#1", "fail Ended"]);
    world.check_replay();
    let (world, commands) = with(CancellationType::Abandon);
    assert_eq!(commands, ["fail Ended"]);
    world.check_replay();

    let (mut world, commands) = with(CancellationType::WaitCancellationRequested);
    assert_eq!(commands, ["cancel child#1"]);
    world.happen(EventKind::ExternalWorkflowExecutionCancelRequested { seq: Seq(1) });
    assert!(world.failure().message.contains("was asked to cancel"));
    world.check_replay();

    let (mut world, commands) = with(CancellationType::WaitCancellationCompleted);
    assert_eq!(commands, ["cancel child#1"]);
    assert_eq!(world.happen(EventKind::ExternalWorkflowExecutionCancelRequested { seq: Seq(1) }), []);
    world.happen(EventKind::ChildWorkflowExecutionCanceled { seq: Seq(1), details: None });
    assert!(world.failure().message.contains("child workflow kid-1 failed"), "{}", world.failure());
    world.check_replay();
}

async fn trip(saga: Saga, ctx: WfContext) -> Result<&'static str, Failure> {
    for step in ["flight", "hotel", "car"] {
        saga.compensate_with(step, move |ctx| async move {
            ctx.activity::<()>(format!("cancel_{step}").as_str(), &(), options()).await
        });
        ctx.activity::<()>(step, &(), options()).await?;
    }
    Ok("booked")
}

fn saga() -> WorkflowRegistry {
    flow(|ctx| async move {
        let inner = ctx.clone();
        Saga::run(&ctx, |saga| trip(saga, inner)).await
    })
}

/// E28: when a step fails, the compensations run in reverse order, each once, and the failure stays what it was.
#[test]
fn a_saga_compensates_in_reverse_order() {
    let mut world = World::start(&saga(), "flow", ());
    world.complete(1, ());
    world.complete(2, ());
    assert_eq!(kinds(&world.fail(3, Failure::application("SoldOut", "no cars"))), ["cancel_car#4"]);
    assert_eq!(kinds(&world.complete(4, ())), ["cancel_hotel#5"]);
    assert_eq!(kinds(&world.complete(5, ())), ["cancel_flight#6"]);
    assert_eq!(kinds(&world.complete(6, ())), ["fail SoldOut"]);
    world.check_replay();
}

/// E28: a cancellation compensates too, out of its own reach, and the run ends as canceled.
#[test]
fn a_canceled_saga_compensates_in_a_detached_scope() {
    let mut world = World::start(&saga(), "flow", ());
    world.complete(1, ());
    assert_eq!(kinds(&world.cancel()), ["cancel activity#2", "cancel_hotel#3"]);
    assert_eq!(kinds(&world.complete(3, ())), ["cancel_flight#4"]);
    assert_eq!(kinds(&world.complete(4, ())), ["canceled"]);
    world.check_replay();
}

/// E28: a compensation that fails stops no other, and is reported; a saga that succeeds compensates nothing.
#[test]
fn a_failed_compensation_is_reported_and_stops_no_other() {
    let mut world = World::start(&saga(), "flow", ());
    world.complete(1, ());
    world.fail(2, Failure::application("SoldOut", "no rooms"));
    world.fail(3, Failure::application("Busy", "later"));
    assert_eq!(kinds(&world.complete(4, ())), ["fail SoldOut"]);
    let FailureKind::Application { failure_type, .. } = &world.failure().kind else { panic!() };
    assert_eq!(failure_type, FAILURE_COMPENSATION);
    assert!(world.failure().message.contains("1 compensations failed: hotel: "), "{}", world.failure());
    world.check_replay();

    let mut world = World::start(&saga(), "flow", ());
    (1..=3).for_each(|seq| drop(world.complete(seq, ())));
    world.assert_completed("booked");
    world.check_replay();
}
