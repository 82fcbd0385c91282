//! Leaving in order: what a drain waits for, what it leaves, and that nothing is lost.

use std::time::Duration;

use bosun_engine::*;

use crate::scene::*;

/// G27: a drain refuses new requests, lets running attempts finish and keeps their results; it starts nothing new. The
/// next start goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_lets_running_attempts_finish() {
    for form in FORMS {
        let (mut stage, environment) = staged_with(|options| options.slots = 1);
        let client = environment.client();
        let options = ActivityOptions { retry_policy: attempts(1), ..within(MINUTE) };
        client.start(one(form, "running", &options)).await.unwrap();
        let running = stage.next().await;
        client.start(one(form, "waiting", &options)).await.unwrap();
        let mut health = Box::pin(environment.worker().drain(PATIENCE));
        assert!(poll_once(&mut health).await.is_pending(), "it waits for the attempt");
        let refused = client.start(start("wait", "late", &())).await;
        assert_eq!(refused, Err(Rejection::ShuttingDown));
        running.complete("just in time");
        health.await.unwrap();
        assert_eq!(environment.worker().health(), Health::Stopped);
        assert!(stage.is_quiet(), "the slot was not given to another one");

        let environment = environment.restart(|_| {}).unwrap();
        let client = environment.client();
        assert_eq!(completed::<String>(&client, "running").await, "just in time", "{form}");
        let waited = stage.next().await;
        assert_eq!((waited.label.as_str(), waited.attempt()), ("waiting", 1));
        waited.complete("later");
        assert_eq!(completed::<String>(&client, "waiting").await, "later");
    }
}

/// G27: attempts that do not finish in time are told to stop, and left behind if they do not; the next start tries them
/// again. A drain is bounded.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_does_not_wait_for_ever() {
    let (mut stage, environment) = staged();
    let client = environment.client();
    for id in ["stops", "hangs"] {
        client.start(one("one", id, &within(MINUTE))).await.unwrap();
    }
    let (first, second) = (stage.next().await, stage.next().await);
    let (stops, hangs) = if first.label == "stops" { (first, second) } else { (second, first) };
    let drained = {
        let drain = environment.worker().drain(Duration::from_millis(20));
        let obedient = async move {
            stops.context.canceled().await;
            stops.end(Err(ActivityError::Canceled(None)));
        };
        let (drained, ()) = tokio::join!(tokio::time::timeout(PATIENCE, drain), obedient);
        drained
    };
    drained.expect("a drain is bounded").unwrap();
    let environment = environment.restart(|_| {}).unwrap();
    let client = environment.client();
    let result = tokio::spawn({
        let client = client.clone();
        async move { (completed::<String>(&client, "stops").await, completed::<String>(&client, "hangs").await) }
    });
    for _ in 0..2 {
        let again = stage.next().await;
        assert_eq!(again.attempt(), 2);
        let label = again.label.clone();
        again.complete(&label);
    }
    assert_eq!(result.await.unwrap(), ("stops".into(), "hangs".into()));
    let client = environment.client();
    let failed = history(&client, &target("stops")).await.into_iter().find_map(|event| match event.kind {
        EventKind::ActivityTaskAttemptFailed { failure, .. } => Some(failure.to_string()),
        _ => None,
    });
    assert_eq!(failed.as_deref(), Some("the worker that ran the attempt was stopped"));
    drop(hangs);
}

/// G27: under load, everything that was acknowledged before the drain is there after it, on the real disk.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_survives_a_drain_under_load() {
    let directory = tempfile::tempdir().unwrap();
    let options = || {
        let mut options = WorkerOptions::at(directory.path());
        options.workflows = flows().workflow("echo", |ctx: workflow::WfContext, n: u64| async move {
            ctx.activity::<u64>("echo", &n, within(MINUTE)).await
        });
        options.activities.register("echo", |_ctx, n: u64| async move {
            tokio::task::yield_now().await;
            Ok(n)
        });
        options.slots = 4;
        options
    };
    let mut acknowledged = Vec::new();
    for round in 0..3 {
        let worker = Worker::start(options()).unwrap();
        let (report, mut reported) = tokio::sync::mpsc::unbounded_channel();
        let load = (0..4).map(|sender| {
            let (client, report) = (worker.client(), report.clone());
            tokio::spawn(async move {
                for n in 0u64.. {
                    let id = format!("{round}-{sender}-{n}");
                    if client.start(start("echo", &id, &n)).await.is_err() {
                        return;
                    }
                    // The test may have ended.
                    let _ = report.send((id, n));
                }
            })
        });
        let load: Vec<_> = load.collect();
        for _ in 0..50 {
            acknowledged.push(reported.recv().await.unwrap());
        }
        let drained = tokio::time::timeout(PATIENCE, worker.drain(Duration::from_millis(50))).await;
        drained.expect("a drain is bounded").unwrap();
        futures_util::future::join_all(load).await;
        drop(report);
        while let Some(started) = reported.recv().await {
            acknowledged.push(started);
        }
    }
    let worker = Worker::start(options()).unwrap();
    for (id, n) in acknowledged {
        assert_eq!(completed::<u64>(&worker.client(), &id).await, n);
    }
    worker.drain(PATIENCE).await.unwrap();
}
