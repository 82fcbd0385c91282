//! Concurrency inside a run (E29).

use super::*;

fn flow<O, F>(code: impl Fn(WfContext) -> F + Send + Sync + 'static) -> WorkflowRegistry
where
    O: Serialize + 'static,
    F: Future<Output = Result<O, Failure>> + 'static,
{
    WorkflowRegistry::new().workflow("flow", move |ctx, ()| code(ctx))
}

fn work(ctx: &WfContext, n: u32) -> ActivityFuture<u32> {
    ctx.activity("work", &n, options())
}

/// E29: join gives outputs in the order of the futures, whatever ends first.
#[test]
fn join_all_keeps_the_order_of_its_futures() {
    let registry = flow(|ctx| async move {
        let all = join_all((0..3).map(|n| work(&ctx, n))).await;
        all.into_iter().collect::<Result<Vec<u32>, _>>()
    });
    let mut world = World::start(&registry, "flow", ());
    for seq in [3, 1, 2] {
        world.complete(seq, seq * 10);
    }
    world.assert_completed([10, 20, 30]);
    world.check_replay();
}

/// E29: select takes the first to be ready, and among several ready ones the first given. Losers are not canceled.
#[test]
fn select_prefers_the_order_of_declaration_and_cancels_nothing() {
    let registry = flow(|ctx| async move {
        ctx.signal_channel::<()>("go").recv().await?;
        let (a, b) = (ctx.signal_channel::<u32>("a"), ctx.signal_channel::<u32>("b"));
        let (index, value, rest) = select_all([b.recv(), a.recv()]).await;
        drop(rest);
        let Either::First(timer) = select(ctx.timer(SECOND), ctx.timer(SECOND)).await else {
            panic!("the second timer won");
        };
        timer?;
        Ok((index, value?))
    });
    let mut world = World::start(&registry, "flow", ());
    world.signal("a", 1);
    world.signal("b", 2);
    assert_eq!(kinds(&world.signal("go", ())), ["timer#1", "timer#2"]);
    assert_eq!(kinds(&world.fire(1)), ["complete"]);
    world.assert_completed((0, 2));
    world.check_replay();
}

/// E29: a race cancels the losers, and ends when they have ended.
#[test]
fn a_race_cancels_its_losers_and_waits_for_their_cleanup() {
    let registry = flow(|ctx| async move {
        let branches = vec![
            branch(|ctx: WfContext| async move { work(&ctx, 1).await }),
            branch(|ctx: WfContext| async move {
                let result = work(&ctx, 2).await;
                ctx.shielded(|ctx| async move { work(&ctx, 3).await }).await?;
                result
            }),
            branch(|ctx: WfContext| async move { ctx.timer(SECOND).await.map(|()| 0) }),
        ];
        let (winner, value) = race(&ctx, branches).await;
        Ok((winner, value?))
    });
    let mut world = World::start(&registry, "flow", ());
    assert_eq!(kinds(&world.complete(1, 11)), ["cancel activity#2", "cancel timer#3", "work#4"]);
    assert_eq!(kinds(&world.complete(4, 0)), ["complete"]);
    world.assert_completed((0, 11));
    world.check_replay();
}

/// E29: a timeout is a race with a timer.
#[test]
fn with_timeout_cancels_the_work_or_the_timer() {
    let registry =
        flow(|ctx| async move { with_timeout(&ctx, SECOND, |ctx| async move { work(&ctx, 1).await.is_ok() }).await });
    let mut world = World::start(&registry, "flow", ());
    assert_eq!(kinds(&world.complete(1, 1)), ["cancel timer#2", "complete"]);
    world.assert_completed(Some(true));
    world.check_replay();
    let mut world = World::start(&registry, "flow", ());
    assert_eq!(kinds(&world.fire(2)), ["cancel activity#1", "complete"]);
    world.assert_completed(None::<bool>);
    world.check_replay();
}

/// E29: a bounded fan-out runs at most so many at a time, begins in order, and gives outputs in order.
#[test]
fn a_bounded_fan_out_keeps_its_bound_and_order() {
    let registry = flow(|ctx| async move {
        let all = for_each_bounded(2, 0..4, |n| work(&ctx, n)).await;
        all.into_iter().collect::<Result<Vec<u32>, _>>()
    });
    let mut world = World::start(&registry, "flow", ());
    assert_eq!(world.events().len(), 3);
    assert_eq!(kinds(&world.complete(2, 2)), ["work#3"]);
    assert_eq!(kinds(&world.complete(3, 3)), ["work#4"]);
    assert_eq!(world.complete(4, 4), []);
    world.complete(1, 1);
    world.assert_completed([1, 2, 3, 4]);
    world.check_replay();
}

/// E29: a semaphore lets its number pass, in the order in which the branches came.
#[test]
fn a_semaphore_admits_in_order_of_arrival() {
    let registry = flow(|ctx| async move {
        let semaphore = Semaphore::new(&ctx, 1);
        let branches = (0..3).map(|n| {
            let (semaphore, ctx) = (semaphore.clone(), ctx.clone());
            async move {
                let _permit = semaphore.acquire().await?;
                work(&ctx, n).await
            }
        });
        let all = join_all(branches).await;
        assert_eq!(semaphore.available(), 1);
        all.into_iter().collect::<Result<Vec<u32>, _>>()
    });
    let mut world = World::start(&registry, "flow", ());
    assert_eq!(kinds(&world.complete(1, 1)), ["work#2"]);
    assert_eq!(kinds(&world.complete(2, 2)), ["work#3"]);
    assert_eq!(kinds(&world.complete(3, 3)), ["complete"]);
    world.assert_completed([1, 2, 3]);
    world.check_replay();
}

/// E29: a channel hands values from branch to branch, waits for room, and ends when its senders are gone.
#[test]
fn a_channel_connects_branches() {
    let registry = flow(|ctx| async move {
        let (sender, receiver) = channel::<u32>(&ctx, 1);
        let producer = ctx.spawn(move |ctx| async move {
            for n in 0..4 {
                let made = work(&ctx, n).await?;
                sender.send(made).await?;
                sender.send(made + 1).await?;
            }
            Ok::<(), Failure>(())
        });
        let mut all = Vec::new();
        while let Some(value) = receiver.recv().await? {
            all.push(value);
        }
        producer.await?;
        Ok(all)
    });
    let mut world = World::start(&registry, "flow", ());
    for seq in 1..=4 {
        world.complete(seq, seq * 10);
    }
    world.assert_completed([10, 11, 20, 21, 30, 31, 40, 41]);
    world.check_replay();
}

/// E29: combinators of `futures_util` that poll woken branches only work with the context's futures too.
#[test]
fn futures_from_other_crates_are_woken_properly() {
    use futures_util::StreamExt;
    let registry = flow(|ctx| async move {
        let mut unordered: futures_util::stream::FuturesUnordered<_> = (0..40).map(|n| work(&ctx, n)).collect();
        let mut sum = 0;
        while let Some(value) = unordered.next().await {
            sum += value?;
        }
        Ok(sum)
    });
    let mut world = World::start(&registry, "flow", ());
    for seq in 1..=40 {
        world.complete(seq, 1);
    }
    world.assert_completed(40);
    world.check_replay();
}

/// E29: a condition that stays true while nobody looks does not spin.
#[test]
fn an_unpolled_condition_does_not_spin() {
    let registry = flow(|ctx| async move {
        let mut condition = Box::pin(ctx.wait_until({
            let ctx = ctx.clone();
            move || ctx.now() > Timestamp::from_millis(1_000)
        }));
        let Either::Second(_) = select(&mut condition, std::future::ready(())).await else { panic!() };
        ctx.signal_channel::<()>("go").recv().await?;
        condition.await
    });
    let mut world = World::start(&registry, "flow", ());
    world.now = Timestamp::from_millis(2_000);
    world.signal("other", ());
    world.signal("go", ());
    world.assert_completed(());
    world.check_replay();
}
