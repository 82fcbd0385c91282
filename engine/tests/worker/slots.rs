//! The slots of a worker: every activity gets its turn, and no slot is ever lost.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
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
