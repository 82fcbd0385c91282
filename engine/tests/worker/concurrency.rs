//! Local concurrency of a live run: join, select, race, semaphore, channel.

use std::time::Duration;

use bosun_engine::testing::TestEnvironment;
use bosun_engine::workflow::{Either, Semaphore, WfContext, branch, channel, join, race, select, with_timeout};
use bosun_engine::*;

use crate::scene::*;

fn environment() -> (Stage, TestEnvironment) {
    let (stage, activities) = Stage::new();
    let flows = flows()
        .workflow("join", |ctx: WfContext, (): ()| async move {
            let (a, b) = join(
                ctx.activity::<String>("work", "a", within(MINUTE)),
                ctx.activity::<String>("work", "b", within(MINUTE)),
            )
            .await;
            Ok(format!("{}{}", a?, b?))
        })
        // Both timers are due in the same moment: the one given first wins.
        .workflow("select", |ctx: WfContext, (): ()| async move {
            let (late, early) = (ctx.timer(MINUTE), ctx.timer(MINUTE));
            match select(late, early).await {
                Either::First(end) => end.map(|()| "first"),
                Either::Second(end) => end.map(|()| "second"),
            }
        })
        .workflow("race", |ctx: WfContext, (): ()| async move {
            let slow = branch(|ctx: WfContext| async move {
                ctx.activity::<String>("work", "slow", within(MINUTE)).await.map_err(|failure| failure.is_canceled())
            });
            let fast = branch(|ctx: WfContext| async move {
                ctx.activity::<String>("work", "fast", within(MINUTE)).await.map_err(|failure| failure.is_canceled())
            });
            let (winner, output) = race(&ctx, vec![slow, fast]).await;
            // Waits, so that the loser's end can be looked at.
            ctx.signal_channel::<String>("go").recv().await?;
            output.map(|output| (winner, output)).map_err(|_| Failure::application("Lost", "the winner was canceled"))
        })
        .workflow("permits", |ctx: WfContext, width: u64| async move {
            let semaphore = Semaphore::new(&ctx, 2);
            let (sender, receiver) = channel(&ctx, 10);
            let mut branches = Vec::new();
            for n in 0..width {
                let (semaphore, sender) = (semaphore.clone(), sender.clone());
                branches.push(ctx.spawn(move |ctx| async move {
                    let _permit = semaphore.acquire().await?;
                    let timer = ctx.timer(Duration::from_secs(10)).await;
                    sender.send((n, ctx.now())).await?;
                    timer
                }));
            }
            let mut ended = Vec::new();
            for _ in 0..width {
                ended.extend(receiver.recv().await?);
            }
            Ok(ended)
        });
    (stage, TestEnvironment::start(flows, activities).unwrap())
}

/// E29: join gives the results in the order of the branches, whichever ends first, also when a crash falls between.
#[tokio::test]
async fn join_waits_for_both_over_a_crash() {
    let (mut stage, environment) = environment();
    environment.client().start(start("join", "x", &())).await.unwrap();
    let (a, b) = (stage.next().await, stage.next().await);
    assert_eq!((a.label.as_str(), b.label.as_str()), ("a", "b"));
    b.complete("B");
    until(&environment.client(), "x", |seen| seen.pending_activities.len() == 1).await;
    let environment = environment.crash(1, |_| {}).unwrap();
    let a = stage.next().await;
    assert_eq!((a.label.as_str(), a.attempt()), ("a", 2));
    a.complete("A");
    assert_eq!(completed::<String>(&environment.client(), "x").await, "AB");
}

/// E29: select has a fixed order.
#[tokio::test]
async fn select_prefers_the_branch_given_first() {
    let (_stage, environment) = environment();
    environment.client().start(start("select", "x", &())).await.unwrap();
    assert_eq!(completed::<String>(&environment.client(), "x").await, "first");
}

/// E29: a race cancels its losers, and their functions hear of it.
#[tokio::test]
async fn a_race_cancels_its_losers() {
    let (mut stage, environment) = environment();
    let client = environment.client();
    client.start(start("race", "x", &())).await.unwrap();
    let (slow, fast) = (stage.next().await, stage.next().await);
    assert_eq!((slow.label.as_str(), fast.label.as_str()), ("slow", "fast"));
    fast.complete("won");
    tokio::time::timeout(PATIENCE, slow.context.canceled()).await.expect("the loser should be told");
    slow.end(Err(ActivityError::Canceled(None)));
    until(&client, "x", |seen| seen.pending_activities.is_empty()).await;
    let environment = environment.crash(1, |_| {}).unwrap();
    let client = environment.client();
    client.signal(&target("x"), signal("go", "on")).await.unwrap();
    assert_eq!(completed::<(usize, String)>(&client, "x").await, (1, "won".into()));
    assert_eq!(count(&client, "x", "ActivityTaskCanceled").await, 1);
}

/// E29: a semaphore inside a run lets through as many as it has permits, in order; a channel keeps the order.
#[tokio::test]
async fn a_semaphore_bounds_what_runs_at_once() {
    let (_stage, environment) = environment();
    environment.client().start(start("permits", "x", &5u64)).await.unwrap();
    let ended = completed::<Vec<(u64, Timestamp)>>(&environment.client(), "x").await;
    let seconds: Vec<(u64, u64)> =
        ended.into_iter().map(|(n, at)| (n, at.since(TestEnvironment::EPOCH).as_secs())).collect();
    assert_eq!(seconds, [(0, 10), (1, 10), (2, 20), (3, 20), (4, 30)]);
}

/// E29: a branch that waits through what was made outside of it ends with its deadline, on the worker as well, and after a
/// crash the run goes on from there.
#[tokio::test]
async fn a_deadline_ends_a_wait_for_a_signal_and_a_permit_from_outside() {
    const WAITS: Workflow<String, String> = Workflow::named("waits");
    async fn waits(ctx: WfContext, how: String) -> Result<String, Failure> {
        let (go, slots) = (ctx.signal_channel::<u32>("go"), Semaphore::new(&ctx, 1));
        let _taken = slots.acquire().await?;
        let waiting = slots.clone();
        let end = match how.as_str() {
            "signal" => with_timeout(&ctx, MINUTE, move |_| async move { go.recv().await }).await?,
            _ => with_timeout(&ctx, MINUTE, move |_| async move { waiting.acquire().await.map(|_| 0) }).await?,
        };
        ctx.timer(MINUTE).await?;
        Ok(format!("{:?} at {:?}", end.map(|end| end.is_ok()), ctx.now().since(TestEnvironment::EPOCH)))
    }
    for how in ["signal", "permit"] {
        let (_stage, activities) = Stage::new();
        let environment = TestEnvironment::start(flows().workflow(WAITS, waits), activities).unwrap();
        let client = environment.client();
        client.start_workflow(WAITS, how.to_owned(), &how.to_owned()).await.unwrap();
        environment.sleep(MINUTE + MINUTE / 2).await;
        let environment = environment.crash(1, |_| {}).unwrap();
        let handle = environment.client().handle(WAITS, how.to_string());
        assert_eq!(handle.result_within(PATIENCE).await.unwrap().as_deref(), Some("None at 120s"), "{how}");
    }
}
