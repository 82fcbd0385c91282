//! Canceled branches that wait through something from outside, and sagas that are dropped (E28, E29).

use super::*;

fn flow<O, F>(code: impl Fn(WfContext) -> F + Send + Sync + 'static) -> WorkflowRegistry
where
    O: Serialize + 'static,
    F: Future<Output = Result<O, Failure>> + 'static,
{
    WorkflowRegistry::new().workflow("flow", move |ctx, ()| code(ctx))
}

fn work(ctx: &WfContext, what: &str) -> ActivityFuture<u32> {
    ctx.activity(what, &0, options())
}

fn patch(id: &str) -> String {
    format!("patch {id}")
}

/// Waits for a minute at most through something that was made outside of the branch that waits.
async fn waits(ctx: WfContext, how: &str) -> Result<String, Failure> {
    let limit = 60 * SECOND;
    let (go, slots, (sender, receiver)) =
        (ctx.signal_channel::<u32>("go"), Semaphore::new(&ctx, 0), channel::<u32>(&ctx, 1));
    let outside = ctx.clone();
    let end = match how {
        "signal" => with_timeout(&ctx, limit, move |_| async move { go.recv().await }).await?,
        "permit" => with_timeout(&ctx, limit, move |_| async move { slots.acquire().await.map(|_| 0) }).await?,
        "receiver" => with_timeout(&ctx, limit, move |_| async move { receiver.recv().await.map(|_| 0) }).await?,
        "sender" => {
            sender.send(1).await?;
            with_timeout(&ctx, limit, move |_| async move { sender.send(2).await.map(|_| 0) }).await?
        }
        "condition" => {
            with_timeout(&ctx, limit, move |_| async move { outside.wait_until(|| false).await.map(|()| 0) }).await?
        }
        "cancellation" => {
            with_timeout(&ctx, limit, move |_| async move {
                outside.cancellation().await;
                Ok(0)
            })
            .await?
        }
        "nested" => {
            let inner = ctx.clone();
            with_timeout(&ctx, limit, move |_| async move {
                with_timeout(&inner, 2 * limit, move |_| async move { go.recv().await }).await.map(|_| 0)
            })
            .await?
        }
        _ => panic!("no such wait: {how}"),
    };
    Ok(format!("{:?}", end.map(|end| end.is_ok())))
}

/// E29: a branch ends with its deadline whatever it waits through, and the run goes on at once.
#[test]
fn a_deadline_ends_a_wait_through_something_from_outside() {
    for how in ["signal", "permit", "receiver", "sender", "condition", "cancellation", "nested"] {
        let registry = flow(move |ctx| waits(ctx, how));
        let mut world = World::start(&registry, "flow", ());
        // The inner deadline is asked for first.
        let deadline = if how == "nested" { 2 } else { 1 };
        let told = kinds(&world.fire(deadline));
        assert_eq!(told.last().map(String::as_str), Some("complete"), "{how}: {told:?}");
        assert_eq!(told.iter().filter(|one| **one == patch(PATCH_BRANCH_WAITS)).count(), 1, "{how}: {told:?}");
        world.assert_completed("None");
        world.check_replay();
    }
}

/// E29: a wait that ends before its deadline asks for nothing that it did not ask for before there was the rule.
#[test]
fn a_wait_that_ends_in_time_records_no_patch() {
    let registry = flow(|ctx| waits(ctx, "signal"));
    let mut world = World::start(&registry, "flow", ());
    assert_eq!(kinds(&world.signal("go", 7)), ["cancel timer#1", "complete"]);
    world.assert_completed("Some(true)");
    world.check_replay();
}

/// G22: a history in which the loser waited on is replayed as it was made, and that run goes on as it began.
#[test]
fn a_history_in_which_a_loser_waited_on_is_replayed_as_it_was_made() {
    let registry = flow(|ctx| async move {
        let first = waits(ctx.clone(), "signal").await?;
        Ok(format!("{first} {}", waits(ctx, "signal").await?))
    });
    let mut world = World::start(&registry, "flow", ());
    // As the engine wrote it before: the deadline was reached, and nothing came of it until the signal came.
    world.as_recorded(vec![EventKind::TimerFired { seq: Seq(1) }]);
    let (fire_at, summary) = (Timestamp::from_millis(61_000), None);
    world.as_recorded(vec![
        EventKind::WorkflowExecutionSignaled(signal("go", 1)),
        EventKind::TimerStarted { seq: Seq(2), fire_at, summary },
    ]);
    world.check_replay();
    world.reload();
    // Not recorded yet, and as the run has always done.
    assert_eq!(world.fire(2), []);
    assert_eq!(kinds(&world.signal("go", 2)), ["complete"]);
    world.assert_completed("None None");
    world.check_replay();
}

/// E17, E29: an activity that was begun outside is left as it is: only the wait of the branch ends.
#[test]
fn a_lost_wait_for_an_activity_from_outside_does_not_cancel_it() {
    let registry = flow(|ctx| async move {
        let begun = work(&ctx, "work");
        let other = ctx.clone();
        let first = with_timeout(&ctx, SECOND, move |_| begun).await?;
        assert!(first.is_none());
        let again = work(&other, "more");
        again.await
    });
    let mut world = World::start(&registry, "flow", ());
    assert_eq!(kinds(&world.fire(2)), [patch(PATCH_BRANCH_WAITS), "more#3".to_owned()]);
    world.complete(1, 5);
    world.complete(3, 7);
    world.assert_completed(7);
    world.check_replay();
}

/// E17: the branch of a handle that is canceled hears of it where it waits.
#[test]
fn a_canceled_branch_waits_no_more_for_a_permit() {
    let registry = flow(|ctx| async move {
        let slots = Semaphore::new(&ctx, 0);
        let waiting = slots.clone();
        let branch = ctx.spawn(move |_| async move { waiting.acquire().await.map(drop) });
        ctx.timer(SECOND).await?;
        branch.cancel("enough");
        Ok(branch.await.unwrap_err().to_string())
    });
    let mut world = World::start(&registry, "flow", ());
    assert_eq!(kinds(&world.fire(1)), [patch(PATCH_BRANCH_WAITS), "complete".into()]);
    world.assert_completed("canceled: enough");
    world.check_replay();
}

/// E17: cleanup is out of reach, with whatever it waits through, and so is what was made in a detached scope.
#[test]
fn shielded_cleanup_of_a_loser_waits_for_something_from_outside() {
    for detached in [false, true] {
        let registry = flow(move |ctx| async move {
            let go = if detached { ctx.detached_scope() } else { ctx.clone() }.signal_channel::<u32>("go");
            with_timeout(&ctx, SECOND, move |ctx| async move {
                let lost = ctx.timer(60 * SECOND).await;
                assert!(lost.is_err_and(|why| why.is_canceled()));
                if detached { go.recv().await } else { ctx.shielded(|_| async move { go.recv().await }).await }
            })
            .await
            .map(|end| end.is_none())
        });
        let mut world = World::start(&registry, "flow", ());
        assert_eq!(kinds(&world.fire(2)), ["cancel timer#1"], "detached: {detached}");
        assert_eq!(kinds(&world.signal("go", 1)), ["complete"]);
        world.assert_completed(true);
        world.check_replay();
    }
}

/// A saga with two steps, of which the second is under way when a timer is up first.
async fn loses(ctx: WfContext) -> Result<String, Failure> {
    let steps = ctx.clone();
    let saga = Saga::run(&ctx, |saga| async move {
        for thing in ["flight", "hotel"] {
            saga.compensate_with(thing, move |ctx| async move { work(&ctx, &format!("undo {thing}")).await.map(drop) });
            work(&steps, thing).await?;
        }
        Ok("booked".to_owned())
    });
    match select(saga, ctx.timer(60 * SECOND)).await {
        Either::First(booked) => booked,
        Either::Second(late) => late.map(|()| "late".to_owned()),
    }
}

/// E28: a saga that lost a `select` is undone, in reverse order, and the run ends no sooner.
#[test]
fn a_saga_that_is_dropped_is_undone() {
    let mut world = World::start(&flow(loses), "flow", ());
    // The timer is the first: the saga asks for nothing before it is polled.
    world.complete(2, 1);
    assert_eq!(kinds(&world.fire(1)), [patch(PATCH_SAGA_DROPPED), "undo hotel#4".into()]);
    assert_eq!(kinds(&world.complete(4, 0)), ["undo flight#5"]);
    // The step that was under way goes on until the run is canceled, and the compensation is out of reach of that.
    assert_eq!(kinds(&world.cancel()), ["cancel activity#3"]);
    assert_eq!(kinds(&world.complete(5, 0)), ["complete"]);
    world.assert_completed("late");
    world.check_replay();
}

/// E28: of a dropped saga nobody hears; a compensation that fails fails the run.
#[test]
fn a_dropped_saga_that_cannot_be_undone_fails_the_run() {
    let mut world = World::start(&flow(loses), "flow", ());
    world.fire(1);
    let told = kinds(&world.fail(3, Failure::application("Lost", "no answer")));
    assert_eq!(told, ["fail SagaDropped"]);
    let end = world.turns.last().and_then(|turn| turn.events.last()).cloned();
    let Some(EventKind::WorkflowExecutionFailed { failure, .. }) = end else { panic!("{end:?}") };
    assert!(failure.to_string().starts_with("CompensationFailed: 1 compensations failed: flight: "), "{failure}");
    assert!(failure.to_string().contains("caused by: SagaDropped: the saga begun at "), "{failure}");
    world.check_replay();
}

/// G22: a history in which a dropped saga was not undone is replayed as it was made.
#[test]
fn a_history_in_which_a_dropped_saga_was_left_is_replayed_as_it_was_made() {
    let mut world = World::start(&flow(loses), "flow", ());
    let result = json("late");
    world.as_recorded(vec![
        EventKind::TimerFired { seq: Seq(1) },
        EventKind::WorkflowExecutionCompleted { result, unhandled_signals: Vec::new() },
    ]);
    world.check_replay();
}

/// E28: with a deadline the steps are canceled first, and the saga is undone by its own code: no patch is needed.
#[test]
fn a_saga_that_reaches_its_deadline_is_undone_by_its_own_code() {
    let registry = flow(|ctx| async move {
        with_timeout(&ctx, SECOND, |ctx| async move {
            let steps = ctx.clone();
            Saga::run(&ctx, |saga| async move {
                saga.compensate_with("book", |ctx| async move { work(&ctx, "undo").await.map(drop) });
                work(&steps, "book").await
            })
            .await
        })
        .await
        .map(|end| end.is_none())
    });
    let mut world = World::start(&registry, "flow", ());
    assert_eq!(kinds(&world.fire(2)), ["cancel activity#1", "undo#3"]);
    assert_eq!(kinds(&world.complete(3, 0)), ["complete"]);
    world.check_replay();
}
