//! Sagas: compensations over crashes.

use std::sync::Arc;

use bosun_engine::workflow::{Either, Saga, WfContext, WorkflowRegistry, select};
use bosun_engine::*;
use tokio::sync::Semaphore;

use crate::kit::*;

/// Books three things, each undone by a compensation; the third cannot be had unless somebody waits for it.
async fn trip(ctx: WfContext, fails: bool) -> Result<String, Failure> {
    let steps = ctx.clone();
    Saga::run(&ctx, |saga| async move {
        for thing in ["flight", "hotel"] {
            saga.compensate_with(thing, move |ctx| async move { ctx.activity("undo", thing, quick()).await });
            steps.activity::<()>("book", thing, quick()).await?;
        }
        if fails {
            return Err(Failure::application("SoldOut", "no car"));
        }
        steps.timer(HOUR).await?;
        Ok("booked".to_owned())
    })
    .await
}

/// The world: what was done, and a gate at which the first attempt to undo the flight is stuck until the process dies.
#[derive(Clone)]
struct World {
    ledger: Ledger,
    stuck: Arc<Semaphore>,
}

fn world() -> (World, ActivityRegistry) {
    let world = World { ledger: Ledger::default(), stuck: Arc::new(Semaphore::new(0)) };
    let mut activities = ActivityRegistry::new();
    let booked = world.clone();
    activities.register("book", move |_, thing: String| {
        booked.ledger.note(format!("book {thing}"));
        async move { Ok(()) }
    });
    let undone = world.clone();
    activities.register("undo", move |ctx: ActivityContext, thing: String| {
        let world = undone.clone();
        async move {
            world.ledger.note(format!("undo {thing} ({})", ctx.attempt()));
            if thing == "flight" && ctx.attempt() == Attempt(1) {
                world.stuck.add_permits(1);
                std::future::pending::<()>().await;
            }
            Ok(())
        }
    });
    (world, activities)
}

/// E28: after a failure, and after a cancellation, the compensations run in reverse order and each completes exactly
/// once, also when the process dies in the middle of one.
#[tokio::test]
async fn compensations_run_in_reverse_order_over_a_crash_in_the_middle() {
    for fails in [true, false] {
        let (world, activities) = world();
        let environment = environment_with(WorkflowRegistry::new().workflow("trip", trip), activities);
        let client = environment.client();
        client.start(start("trip", "t", &fails)).await.unwrap();
        if !fails {
            settled(&environment).await;
            client.cancel(&target("t"), "rain".into(), None, None).await.unwrap();
        }
        world.stuck.acquire().await.unwrap().forget();
        let environment = environment.crash(6, |_| {}).unwrap();
        let client = environment.client();
        match outcome(&client, "t").await {
            CloseOutcome::Failed(failure) if fails => assert_eq!(failure.type_name(), "SoldOut"),
            CloseOutcome::Canceled(_) if !fails => {}
            other => panic!("unexpected end: {other:?}"),
        }
        let expected = ["book flight", "book hotel", "undo hotel (1)", "undo flight (1)", "undo flight (2)"];
        assert_eq!(world.ledger.entries(), expected, "fails: {fails}");
        assert_eq!(
            count(&history(&client, "t").await, "ActivityTaskCompleted"),
            4,
            "each step and each compensation once"
        );
        assert!(environment.now().since(bosun_engine::testing::TestEnvironment::EPOCH) < HOUR);
    }
}

/// E28: a saga that loses a `select` is undone, also over a crash in the middle of a compensation, before the run ends.
#[tokio::test]
async fn a_saga_that_loses_a_select_is_undone_over_a_crash() {
    async fn late(ctx: WfContext, (): ()) -> Result<String, Failure> {
        match select(trip(ctx.clone(), false), ctx.timer(HOUR / 2)).await {
            Either::First(booked) => booked,
            Either::Second(late) => late.map(|()| "late".to_owned()),
        }
    }
    let (world, activities) = world();
    let environment = environment_with(WorkflowRegistry::new().workflow("late", late), activities);
    environment.client().start(start("late", "t", &())).await.unwrap();
    environment.sleep(HOUR / 2).await;
    world.stuck.acquire().await.unwrap().forget();
    let environment = environment.crash(6, |_| {}).unwrap();
    assert_eq!(output::<String>(&environment.client(), "t").await, "late");
    let expected = ["book flight", "book hotel", "undo hotel (1)", "undo flight (1)", "undo flight (2)"];
    assert_eq!(world.ledger.entries(), expected);
}
