//! The slots of a worker: every activity gets its turn, and no slot is ever lost.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bosun_engine::testing::TestEnvironment;
use bosun_engine::workflow::{WfContext, for_each_bounded, join_all};
use bosun_engine::*;

use crate::scene::*;

/// G16: with more activities than slots all of them run, never more at once than there are slots.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_activities_than_slots_all_run() {
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let mut activities = ActivityRegistry::new();
    let (running, seen) = (now.clone(), most.clone());
    activities.register("count", move |_ctx: ActivityContext, n: u64| {
        let (running, seen) = (running.clone(), seen.clone());
        async move {
            seen.fetch_max(running.fetch_add(1, Ordering::AcqRel) + 1, Ordering::AcqRel);
            tokio::task::yield_now().await;
            running.fetch_sub(1, Ordering::AcqRel);
            Ok(n)
        }
    });
    let flows = flows().workflow("fan", |ctx: WfContext, width: u64| async move {
        let all = (0..width).map(|n| ctx.activity::<u64>("count", &n, within(MINUTE))).collect::<Vec<_>>();
        let mut sum = 0;
        for one in join_all(all).await {
            sum += one?;
        }
        Ok(sum)
    });
    let environment = TestEnvironment::start_with(flows, activities, |options| options.slots = 3).unwrap();
    let client = environment.client();
    for run in 0..5 {
        client.start(start("fan", &format!("fan-{run}"), &60u64)).await.unwrap();
    }
    for run in 0..5 {
        assert_eq!(completed::<u64>(&client, &format!("fan-{run}")).await, (0..60).sum::<u64>());
    }
    assert!(most.load(Ordering::Acquire) <= 3);
    let held = history(&client, &target("fan-0")).await;
    let ids = held.iter().filter_map(|held| match &held.kind {
        EventKind::ActivityTaskScheduled(scheduled) => Some(scheduled.activity_id.clone()),
        _ => None,
    });
    assert_eq!(ids.collect::<BTreeSet<_>>().len(), 60, "E04: ids are unique in the run");
}

/// G16: whatever ends an attempt (its result, a panic, a cancellation, its timeout, the end of its run) or keeps it from
/// starting, the slot is there for the next one. Afterwards all slots can be used at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_slot_is_ever_lost() {
    const SLOTS: usize = 3;
    let (mut stage, mut activities) = Stage::new();
    activities.register("mix", |ctx: ActivityContext, n: u64| async move {
        match n % 5 {
            0 => Ok(n),
            1 => panic!("boom"),
            2 => Err(Failure::application("Broken", "as asked").into()),
            3 => {
                ctx.canceled().await;
                Err(ActivityError::Canceled(None))
            }
            // Hangs until it is dropped.
            _ => std::future::pending().await,
        }
    });
    let flows = flows().workflow("mix", |ctx: WfContext, width: u64| async move {
        let options = ActivityOptions { retry_policy: attempts(1), ..within(Duration::from_millis(400)) };
        let all: Vec<_> = (0..width).map(|n| ctx.activity::<u64>("mix", &n, options.clone())).collect();
        // Some are canceled while they run, some while they wait for a slot.
        all.iter().filter(|one| one.seq().0 % 7 == 0).for_each(|one| one.cancel());
        Ok(join_all(all).await.iter().filter(|one| one.is_ok()).count())
    });
    let environment = TestEnvironment::start_with(flows, activities, |options| {
        real_time(options);
        options.slots = SLOTS;
        options.cancel_grace = Duration::from_millis(10);
    })
    .unwrap();
    let client = environment.client();
    for round in 0..2 {
        client.start(start("mix", &format!("mix-{round}"), &25u64)).await.unwrap();
        client.start(start("mix", &format!("killed-{round}"), &25u64)).await.unwrap();
    }
    for round in 0..2 {
        client.terminate(&target(&format!("killed-{round}")), "enough".into(), None).await.unwrap();
        assert!(completed::<usize>(&client, &format!("mix-{round}")).await > 0);
    }
    let mut last = Vec::new();
    for n in 0..SLOTS {
        client.start(one("one", &format!("one-{n}"), &within(MINUTE))).await.unwrap();
    }
    for _ in 0..SLOTS {
        last.push(stage.next().await);
    }
    assert!(stage.is_quiet());
    // They may have begun in any order.
    last.into_iter().for_each(|attempt| attempt.complete("done"));
    for n in 0..SLOTS {
        completed::<String>(&client, &format!("one-{n}")).await;
    }
}

/// G16: what waited for a slot when the worker crashed waits again, and runs.
#[tokio::test]
async fn waiting_attempts_survive_a_crash() {
    let (mut stage, environment) = staged_with(|options| options.slots = 1);
    let ids: Vec<String> = (0..10).map(|n| format!("w{n}")).collect();
    for id in &ids {
        environment.client().start(one("one-machine", id, &within(MINUTE))).await.unwrap();
    }
    stage.next().await;
    let environment = environment.crash(1, |_| {}).unwrap();
    let client = environment.client();
    let mut seen = BTreeSet::new();
    for _ in &ids {
        let attempt = stage.next().await;
        assert!(stage.is_quiet(), "one slot, one attempt");
        seen.insert(attempt.label.clone());
        attempt.complete("done");
    }
    assert_eq!(seen.len(), ids.len());
    for id in &ids {
        completed::<String>(&client, id).await;
    }
}

/// E29, G16: bounded fan-out inside a run keeps to its bound whatever the slots allow.
#[tokio::test]
async fn bounded_fan_out_keeps_to_its_bound() {
    let (mut stage, activities) = Stage::new();
    let flows = flows().workflow("bounded", |ctx: WfContext, width: u64| async move {
        let results = for_each_bounded(2, 0..width, |n| {
            let ctx = ctx.clone();
            async move { ctx.activity::<String>("work", &n.to_string(), within(MINUTE)).await }
        })
        .await;
        results.into_iter().collect::<Result<Vec<String>, Failure>>()
    });
    let environment = TestEnvironment::start(flows, activities).unwrap();
    let client = environment.client();
    client.start(start("bounded", "a", &5u64)).await.unwrap();
    let mut running = vec![stage.next().await, stage.next().await];
    for n in 2..5 {
        assert!(stage.is_quiet(), "two at a time");
        // The younger one ends first: order of results is order of items all the same.
        let ends = running.pop().unwrap();
        let label = ends.label.clone();
        ends.complete(&label);
        running.push(stage.next().await);
        assert_eq!(running.last().unwrap().label, n.to_string());
    }
    for attempt in running {
        let label = attempt.label.clone();
        attempt.complete(&label);
    }
    assert_eq!(completed::<Vec<String>>(&client, "a").await, ["0", "1", "2", "3", "4"]);
}

/// A workflow that has `width` attempts of one activity at once, each with this queue and priority.
fn wide() -> bosun_engine::workflow::WorkflowRegistry {
    flows().workflow("wide", |ctx: WfContext, (width, queue, priority): (u64, String, u8)| async move {
        let options = within(MINUTE * 600).on_queue(queue.as_str()).with_priority(Priority::of(priority));
        let all: Vec<_> = (0..width).map(|n| ctx.activity::<u64>("step", &n, options.clone())).collect();
        for one in join_all(all).await {
            one?;
        }
        Ok(())
    })
}

/// Notes which run an attempt is of, in the order in which they start.
fn noting(started: &Arc<Mutex<Vec<String>>>) -> ActivityRegistry {
    let (mut activities, started) = (ActivityRegistry::new(), started.clone());
    activities.register("step", move |ctx: ActivityContext, n: u64| {
        started.lock().unwrap().push(ctx.task().workflow_id.to_string());
        async move {
            tokio::task::yield_now().await;
            Ok(n)
        }
    });
    activities
}

/// When the attempts of a run were recorded as started.
async fn starts(client: &Client, id: &str) -> Vec<Timestamp> {
    let started = |held: &Event| matches!(held.kind, EventKind::ActivityTaskStarted { .. }).then_some(held.at);
    history(client, &target(id)).await.iter().filter_map(started).collect()
}

/// E25: the rate of a queue holds over many attempts, in the time of the worker; another queue is not held up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rate_spreads_the_attempts_of_its_queue_over_time() {
    let environment = TestEnvironment::start_with(wide(), noting(&Arc::default()), |options| {
        let limits = QueueLimits { max_activities_per_second: Some("2".parse().unwrap()), ..QueueLimits::default() };
        options.queue_limits.insert("slow".into(), limits);
    })
    .unwrap();
    let client = environment.client();
    client.start(start("wide", "slow", &(21u64, "slow", 3u8))).await.unwrap();
    client.start(start("wide", "fast", &(21u64, "fast", 3u8))).await.unwrap();
    completed::<()>(&client, "slow").await;
    completed::<()>(&client, "fast").await;
    let (slow, fast) = (starts(&client, "slow").await, starts(&client, "fast").await);
    assert_eq!((slow.len(), fast.len()), (21, 21));
    assert!(slow.windows(2).all(|two| two[1].since(two[0]) >= Duration::from_millis(500)), "{slow:?}");
    assert_eq!(slow[20].since(slow[0]), Duration::from_secs(10), "no slower than it may");
    assert!(fast[20].since(fast[0]) < Duration::from_millis(500), "the other queue has no limit");
}

/// E25: a queue runs no more attempts at once than it may, whoever asks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_runs_no_more_attempts_at_once_than_it_may() {
    let (mut stage, activities) = Stage::new();
    let flows = flows().workflow("staged", |ctx: WfContext, width: u64| async move {
        let options = within(MINUTE).on_queue("narrow");
        join_all((0..width).map(|n| ctx.activity::<String>("work", &n.to_string(), options.clone()))).await;
        Ok(())
    });
    let environment = TestEnvironment::start_with(flows, activities, |options| {
        let limits = QueueLimits { max_concurrent_activities: Some(2), ..QueueLimits::default() };
        options.queue_limits.insert("narrow".into(), limits);
    })
    .unwrap();
    let client = environment.client();
    for run in 0..3 {
        client.start(start("staged", &format!("staged-{run}"), &4u64)).await.unwrap();
    }
    for done in 0..12 {
        let one = stage.next().await;
        let slots = environment.worker().slots();
        assert!(slots.running[&TaskQueue::of("narrow")] <= 2, "{slots:?} after {done}");
        one.complete("done");
    }
    for run in 0..3 {
        completed::<()>(&client, &format!("staged-{run}")).await;
    }
}

/// G26: ten runs with 20 000 attempts that wait, beside one with ten: the ten have one turn in eleven, and what is more
/// urgent comes first. (With 100 000, without a log: `queue::tests`.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_attempts_are_done_beside_twenty_thousand() {
    let started = Arc::default();
    let (open, gate) = tokio::sync::watch::channel(false);
    let mut activities = noting(&started);
    activities.register("gate", move |_: ActivityContext, (): ()| {
        let mut gate = gate.clone();
        async move {
            let _ = gate.wait_for(|open| *open).await;
            Ok(())
        }
    });
    let flows = wide().workflow("closed", |ctx: WfContext, (): ()| async move {
        ctx.activity::<()>("gate", &(), within(MINUTE * 600)).await
    });
    let environment = TestEnvironment::start_with(flows, activities, |options| {
        options.slots = 1;
    })
    .unwrap();
    let client = environment.client();
    client.start(start("closed", "gate", &())).await.unwrap();
    for run in 0..10 {
        client.start(start("wide", &format!("large-{run}"), &(2_000u64, "default", 3u8))).await.unwrap();
    }
    client.start(start("wide", "small", &(10u64, "default", 3u8))).await.unwrap();
    client.start(start("wide", "urgent", &(10u64, "default", 1u8))).await.unwrap();
    let waiting = || environment.worker().slots().waiting.values().flat_map(|queues| queues.values()).sum::<usize>();
    while waiting() < 20_020 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    open.send_replace(true);
    completed::<()>(&client, "small").await;
    completed::<()>(&client, "urgent").await;
    let started = started.lock().unwrap().clone();
    let last = |name: &str| started.iter().rposition(|id| id == name).unwrap();
    assert!(last("urgent") < 10, "the more urgent first: {}", last("urgent"));
    assert!(last("small") < 10 + 11 * 11, "one turn in eleven is theirs: {}", last("small"));
    assert!(started.len() < 20_020, "the large ones go on");
}
