//! The worker on its log: backups, late answers, clocks that are set back, and the test environment itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bosun_engine::clock::{Clock, VirtualClock};
use bosun_engine::log::{InjectedFault, MemoryLog};
use bosun_engine::testing::TestEnvironment;
use bosun_engine::workflow::{Cx, StateMachine, WfContext, WorkflowEvent, WorkflowRegistry};
use bosun_engine::*;

use crate::kit::*;

/// Echoes words until `end`.
async fn parrot(ctx: WfContext, (): ()) -> Result<u32, Failure> {
    let words = ctx.signal_channel::<String>("word");
    let mut heard = 0;
    loop {
        let word = words.recv().await?;
        if word == "end" {
            return Ok(heard);
        }
        ctx.activity::<String>("echo", &word, quick()).await?;
        heard += 1;
    }
}

fn options(path: &std::path::Path) -> WorkerOptions {
    let mut options = WorkerOptions::at(path);
    options.workflows = WorkflowRegistry::new().workflow("parrot", parrot);
    options.activities.register("echo", |_, word: String| async move { Ok(word) });
    options
}

/// E38, G10: backups taken while eight clients work are sound, open, and go on from a consistent prefix: every signal
/// acknowledged before a backup is in it, and no run has a gap.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_under_load_opens_and_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let worker = Worker::start(options(&directory.path().join("live"))).unwrap();
    let client = worker.client();
    let acknowledged: Arc<Vec<AtomicU32>> = Arc::new((0..8).map(|_| AtomicU32::new(0)).collect());
    let stop = Arc::new(AtomicU32::new(0));
    for n in 0..8 {
        client.start(start("parrot", &format!("p{n}"), &())).await.unwrap();
    }
    let load: Vec<_> = (0..8_usize)
        .map(|n| {
            let (client, acknowledged, stop) = (client.clone(), acknowledged.clone(), stop.clone());
            tokio::spawn(async move {
                while stop.load(Ordering::SeqCst) == 0 {
                    client.signal(&target(&format!("p{n}")), signal("word", "x")).await.unwrap();
                    acknowledged[n].fetch_add(1, Ordering::SeqCst);
                }
            })
        })
        .collect();
    let mut backups = Vec::new();
    for round in 0..3 {
        // The load has made some way since the backup before.
        let reached = |n: &AtomicU32| n.load(Ordering::SeqCst) > round * 3;
        while !acknowledged.iter().all(reached) {
            tokio::task::yield_now().await;
        }
        let before: Vec<u32> = acknowledged.iter().map(|n| n.load(Ordering::SeqCst)).collect();
        let path = directory.path().join(format!("backup-{round}"));
        let report = client.backup(&path).await.unwrap();
        assert!(report.last_group >= report.first_group);
        backups.push((path, before));
    }
    stop.store(1, Ordering::SeqCst);
    for load in load {
        load.await.unwrap();
    }
    worker.stop().unwrap();
    for (path, before) in backups {
        let worker = Worker::start(options(&path)).unwrap();
        let client = worker.client();
        let report = client.verify().await.unwrap();
        assert!(report.is_sound(), "{report:?}");
        for (n, before) in before.into_iter().enumerate() {
            let id = format!("p{n}");
            let signals = count(&history(&client, &id).await, "WorkflowExecutionSignaled") as u32;
            assert!(signals >= before, "{id}: {signals} of {before} acknowledged signals");
            client.signal(&target(&id), signal("word", "end")).await.unwrap();
            assert_eq!(output::<u32>(&client, &id).await, signals, "{id} goes on and ends");
        }
        worker.stop().unwrap();
    }
}

/// G11: an outcome is applied once. A repeated one, a late one of an attempt that is over, one for a run that has ended
/// and one for a run that never was are refused, and change nothing.
#[tokio::test]
async fn repeated_and_late_outcomes_are_refused_and_change_nothing() {
    let flow = |ctx: WfContext, (): ()| async move {
        let retry = RetryPolicy { maximum_attempts: 2, ..RetryPolicy::default() };
        let mut both = Vec::new();
        for _ in 0..2 {
            both.push(ctx.activity::<String>("outside", &(), quick().with_retry(retry.clone())).await?);
        }
        ctx.signal_channel::<()>("end").recv().await?;
        Ok(both)
    };
    let mut activities = ActivityRegistry::new();
    activities.register("outside", |_, (): ()| async move { Err::<(), _>(ActivityError::WillCompleteLater) });
    let environment = environment_with(WorkflowRegistry::new().workflow("flow", flow), activities);
    let client = environment.client();
    client.start(start("flow", "f", &())).await.unwrap();
    let token = || async {
        settled(&environment).await;
        let pending = client.describe(&target("f")).await.unwrap().pending_activities;
        pending[0].task_token.as_ref().unwrap().parse::<TaskToken>().unwrap()
    };
    let complete = |text: &str| ActivityCompletion::Complete(payload(text));
    let first = token().await;
    client.complete_activity(first, complete("one")).await.unwrap();
    // The second one runs into its timeout; its first attempt comes too late.
    let late = token().await;
    environment.sleep(Duration::from_secs(32)).await;
    let second = token().await;
    assert_eq!((late.seq, late.attempt, second.attempt), (second.seq, Attempt(1), Attempt(2)));

    let before = (client.turns(&target("f")).await.unwrap(), client.store_info().await.unwrap().last_group);
    let completions = |token: TaskToken| {
        let all = [
            complete("again"),
            ActivityCompletion::Fail(Failure::application("Late", "too late")),
            ActivityCompletion::Cancel(None),
            ActivityCompletion::Heartbeat(None),
        ];
        all.map(|completion| (token, completion))
    };
    for (token, completion) in completions(first).into_iter().chain(completions(late)) {
        let refused = client.complete_activity(token, completion).await;
        assert!(
            matches!(refused, Err(Rejection::UnknownActivity { .. } | Rejection::StaleAttempt { .. })),
            "{token}: {refused:?}"
        );
    }
    let unknown = TaskToken { run_id: RunId([9; 16]), ..second };
    let refused = client.complete_activity(unknown, complete("whose?")).await;
    assert!(matches!(refused, Err(Rejection::UnknownActivity { .. })), "{refused:?}");
    assert_eq!((client.turns(&target("f")).await.unwrap(), client.store_info().await.unwrap().last_group), before);

    client.complete_activity(second, complete("two")).await.unwrap();
    client.signal(&target("f"), signal("end", &())).await.unwrap();
    assert_eq!(output::<Vec<String>>(&client, "f").await, ["one", "two"]);
    let refused = client.complete_activity(second, complete("three")).await;
    assert!(matches!(refused, Err(Rejection::StaleAttempt { .. })), "{refused:?}");
    assert!(
        Rejection::StaleAttempt { seq: Seq(1), attempt: Attempt(1), current: Attempt(2) }
            .to_string()
            .contains("stale_epoch")
    );
}

/// G15: the clock is a day back after each of five restarts; the time of events, and of the code, never decreases.
#[tokio::test]
async fn event_time_never_decreases_when_the_clock_is_set_back() {
    let flow = |ctx: WfContext, (): ()| async move {
        let seen = ctx.state("seen", vec![ctx.now().as_micros()]);
        let shown = seen.clone();
        ctx.on_query("seen", move |()| Ok(shown.get()));
        loop {
            ctx.signal_channel::<()>("tick").recv().await?;
            let now = ctx.now().as_micros();
            seen.write(|seen| seen.push(now));
        }
        #[expect(unreachable_code, reason = "gives the function its type")]
        Ok(())
    };
    let mut environment = environment(WorkflowRegistry::new().workflow("flow", flow));
    environment.client().start(start("flow", "f", &())).await.unwrap();
    for restart in 0..5 {
        let client = environment.client();
        client.signal(&target("f"), signal("tick", &())).await.unwrap();
        client.sleep(Duration::from_secs(10)).await;
        client.signal(&target("f"), signal("tick", &())).await.unwrap();
        let back = [TestEnvironment::EPOCH.as_micros() - 86_400_000_000, 0, -1, i64::from(u32::MAX) * 1_000_000];
        let set_back = VirtualClock::at(Timestamp(back[restart % 4]));
        environment = environment.crash(restart as u64, |options| options.clock = Clock::Virtual(set_back)).unwrap();
    }
    let events = history(&environment.client(), "f").await;
    assert!(events.windows(2).all(|pair| pair[0].at <= pair[1].at), "event time decreases");
    let seen: Vec<i64> = query(&environment.client(), "f", "seen").await;
    assert_eq!(seen.len(), 11);
    assert!(seen.windows(2).all(|pair| pair[0] <= pair[1]), "{seen:?}");
    assert!(seen[10] >= i64::from(u32::MAX) * 1_000_000, "a step forward counts: {seen:?}");
}

/// G4, G11: after a failed commit the run in memory is ahead of the log. Nothing it says counts: a request that it has
/// heard and that is sent again is refused again, and so is a question. What the log has decides after the restart.
#[tokio::test]
async fn a_run_that_is_ahead_of_a_failed_log_acknowledges_nothing() {
    for fault in [InjectedFault::Eio, InjectedFault::EioAfter, InjectedFault::Enospc] {
        let mut activities = ActivityRegistry::new();
        activities.register("echo", |_, word: String| async move { Ok(word) });
        let environment = environment_with(WorkflowRegistry::new().workflow("parrot", parrot), activities);
        let client = environment.client();
        client.start(start("parrot", "p", &())).await.unwrap();
        settled(&environment).await;
        environment.log().fail_at(1, fault);
        for attempt in 1..=3 {
            let answer = client.signal(&target("p"), signal_once("word", "x", "request-1")).await;
            let refused = matches!(answer, Err(Rejection::StorageFailed { .. } | Rejection::StorageFull { .. }));
            assert!(refused, "{fault:?}, attempt {attempt}: {answer:?}");
        }
        let described = client.describe(&target("p")).await;
        assert!(described.is_err(), "{fault:?}: {described:?}");
        let environment = environment.crash(7, |_| {}).unwrap();
        let client = environment.client();
        for word in ["x", "end"] {
            client.signal(&target("p"), signal_once("word", word, &format!("after-{word}"))).await.unwrap();
        }
        let signals = count(&history(&client, "p").await, "WorkflowExecutionSignaled") as u32;
        assert_eq!(output::<u32>(&client, "p").await, signals - 1, "{fault:?}");
    }
}

/// G4, G5: a disk that fails for good while something waits for room on it: who waits is told, what is on the disk can be read
/// meanwhile, and the worker ends when it is told to.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_that_then_fails_lets_the_worker_end() {
    let log = Arc::new(MemoryLog::new([4; 16]));
    let mut options = WorkerOptions::new(DataDirectory::Log(log.clone()));
    options.workflows = WorkflowRegistry::new().workflow("parrot", parrot);
    let worker = Worker::start(options).unwrap();
    let client = worker.client();
    client.start(start("parrot", "p", &())).await.unwrap();
    log.fill(true);
    let refused = client.signal(&target("p"), signal("word", "x")).await;
    assert!(matches!(refused, Err(Rejection::StorageFull { .. })), "{refused:?}");
    assert!(client.describe(&target("p")).await.unwrap().info.status.is_open());
    log.fail_at(1, InjectedFault::Eio);
    log.fill(false);
    let health = tokio::time::timeout(LONG, worker.stopped()).await.expect("the failure is noticed");
    assert!(matches!(health, bosun_engine::Health::StorageFailed { .. }), "{health:?}");
    let (ended, end) = std::sync::mpsc::channel();
    std::thread::spawn(move || ended.send(worker.stop()));
    end.recv_timeout(LONG).expect("the worker ends").unwrap();
}

/// The limit only keeps a broken test from hanging.
const LONG: Duration = Duration::from_secs(120);

async fn until(what: &str, holds: impl Fn() -> bool) {
    let waits = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(LONG, waits).await.expect(what);
}

/// Counts signals, and asks for nothing: a signal is one event.
#[derive(serde::Serialize, serde::Deserialize)]
struct Tally(u64);

impl StateMachine for Tally {
    const TYPE: &'static str = "tally";
    type Input = ();
    type Output = u64;

    fn start((): (), _: &mut Cx<'_>) -> Result<Self, Failure> {
        Ok(Tally(0))
    }
    fn on_event(&mut self, event: WorkflowEvent, _: &mut Cx<'_>) -> Result<(), Failure> {
        self.0 += u64::from(matches!(event, WorkflowEvent::Signal(_)));
        Ok(())
    }
    fn queries() -> &'static [&'static str] {
        &["count"]
    }
    fn query(&self, _: &QueryName, _: &Payload) -> Result<Payload, Failure> {
        Ok(Payload::encode(&self.0)?)
    }
}

/// G5, E37: a worker that leaves while the disk is full refuses what found no room. Nothing of that is in a snapshot either, even
/// if there is room by the time that snapshots are written: the next worker knows what the log holds, and goes on from there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_full_disk_refused_is_in_no_snapshot() {
    let log = Arc::new(MemoryLog::new([5; 16]));
    // Below 2: the turn of `slow` has not begun; 2: it may end.
    let gate = Arc::new(AtomicU32::new(0));
    let options = || {
        let gate = gate.clone();
        let slow = move |ctx: WfContext, (): ()| {
            let gate = gate.clone();
            async move {
                ctx.signal_channel::<()>("go").recv().await?;
                gate.fetch_max(1, Ordering::SeqCst);
                while gate.load(Ordering::SeqCst) < 2 {
                    std::thread::yield_now();
                }
                Ok(())
            }
        };
        let mut options = WorkerOptions::new(DataDirectory::Log(log.clone()));
        (options.shards, options.housekeeping_every, options.shadow_replay_every) = (1, HOUR, 0);
        options.workflows = WorkflowRegistry::new().state_machine::<Tally>().workflow("slow", slow);
        options
    };
    let worker = Worker::start(options()).unwrap();
    let client = worker.client();
    client.start(start("tally", "t", &())).await.unwrap();
    client.start(start("slow", "s", &())).await.unwrap();
    let looks = log.write_calls();
    log.fill(true);
    let counted = tokio::spawn({
        let client = client.clone();
        async move { client.signal(&target("t"), signal("x", &())).await }
    });
    until("the disk is found full", || log.write_calls() != looks).await;
    // The shard is at this turn until the signal before it has been refused.
    let kept = tokio::spawn(async move { client.signal(&target("s"), signal("go", &())).await });
    until("its turn begins", || gate.load(Ordering::SeqCst) > 0).await;
    let stopped = std::thread::spawn(move || worker.stop());
    let refused = counted.await.unwrap();
    assert!(matches!(refused, Err(Rejection::StorageFull { .. })), "{refused:?}");
    log.fill(false);
    gate.store(2, Ordering::SeqCst);
    assert!(kept.await.unwrap().is_err());
    stopped.join().unwrap().unwrap();

    let worker = Worker::start(options()).unwrap();
    let client = worker.client();
    assert_eq!(query::<u64>(&client, "t", "count").await, 0, "what was refused does not count");
    client.signal(&target("t"), signal("x", &())).await.unwrap();
    assert_eq!(query::<u64>(&client, "t", "count").await, 1);
    worker.stop().unwrap();
}

/// G5, G6: on a full disk, too, whoever waits for the end of a run whose history cannot be read is told so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_for_the_end_of_an_unreadable_run_is_told_on_a_full_disk() {
    let log = Arc::new(MemoryLog::new([6; 16]));
    let mut options = WorkerOptions::new(DataDirectory::Log(log.clone()));
    (options.shards, options.housekeeping_every) = (1, HOUR);
    options.workflows = WorkflowRegistry::new().workflow("parrot", parrot);
    let worker = Worker::start(options).unwrap();
    let client = worker.client();
    client.start(start("parrot", "damaged", &())).await.unwrap();
    client.signal(&target("damaged"), signal("word", "end")).await.unwrap();
    assert_eq!(output::<u32>(&client, "damaged").await, 0);
    client.start(start("parrot", "open", &())).await.unwrap();
    assert!(log.damage_group(GroupSeq(1), |bytes| bytes.iter_mut().for_each(|byte| *byte ^= 0xff)));
    log.fill(true);
    let refused = client.signal(&target("open"), signal("word", "x")).await;
    assert!(matches!(refused, Err(Rejection::StorageFull { .. })), "{refused:?}");
    let end = tokio::time::timeout(LONG, client.result(&target("damaged"), WHOLE)).await.expect("an answer");
    assert!(matches!(end, Err(Rejection::Held { .. })), "{end:?}");
    log.fill(false);
    worker.stop().unwrap();
}

/// G5: what an attempt says of itself while the disk is full does not pile up: reads go on for as long as it is full.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heartbeats_do_not_pile_up_on_a_full_disk() {
    const ATTEMPTS: usize = 512;
    let log = Arc::new(MemoryLog::new([7; 16]));
    let mut options = WorkerOptions::new(DataDirectory::Log(log.clone()));
    let beats = |ctx: WfContext, (): ()| async move {
        let beating = ActivityOptions { heartbeat: Some(Duration::from_millis(250)), ..quick() };
        let all: Vec<_> = (0..ATTEMPTS).map(|_| ctx.activity::<()>("beats", &(), beating.clone())).collect();
        for one in all {
            one.await?;
        }
        Ok(())
    };
    options.workflows = WorkflowRegistry::new().workflow("parrot", parrot).workflow("beats", beats);
    let said = Arc::new(AtomicU32::new(0));
    let counted = said.clone();
    options.activities.register("beats", move |ctx: ActivityContext, (): ()| {
        let said = counted.clone();
        async move {
            loop {
                ctx.heartbeat(&said.fetch_add(1, Ordering::SeqCst))?;
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            #[expect(unreachable_code, reason = "gives the function its type")]
            Ok(())
        }
    });
    (options.shards, options.housekeeping_every, options.slots) = (1, HOUR, ATTEMPTS);
    let worker = Worker::start(options).unwrap();
    let client = worker.client();
    client.start(start("parrot", "p", &())).await.unwrap();
    client.start(start("beats", "b", &())).await.unwrap();
    let heard = || said.load(Ordering::SeqCst);
    until("the attempts run", || heard() >= ATTEMPTS as u32).await;
    log.fill(true);
    until("more heartbeats than may wait", || heard() >= 16_000).await;
    // A machine that has too much to do answers late, and then that the disk is full.
    let answered = async { while client.describe(&target("p")).await.is_err() {} };
    tokio::time::timeout(LONG, answered).await.expect("reads go on");
    log.fill(false);
    // Refused until it is known that there is room.
    let taken = async { while client.signal(&target("p"), signal("word", "end")).await.is_err() {} };
    tokio::time::timeout(LONG, taken).await.expect("there is room");
    assert_eq!(output::<u32>(&client, "p").await, 0);
    worker.stop().unwrap();
}

/// E40: the test environment skips time instead of waiting, gives the same ids, times and histories every time, and is
/// driven through the client that production has.
#[tokio::test]
async fn the_test_environment_skips_time_and_repeats_itself() {
    let mut all = Vec::new();
    for _ in 0..3 {
        let flow = |ctx: WfContext, (): ()| async move {
            let drawn = (ctx.random_u64(), ctx.uuid().to_string());
            ctx.timer(365 * 24 * HOUR).await?;
            ctx.activity::<String>("echo", &drawn.1, quick()).await?;
            Ok(drawn)
        };
        let mut activities = ActivityRegistry::new();
        activities.register("echo", |_, word: String| async move { Ok(word) });
        let environment = environment_with(WorkflowRegistry::new().workflow("year", flow), activities);
        let client: Client = environment.client();
        for id in ["a", "b"] {
            client.start(start("year", id, &())).await.unwrap();
        }
        assert_eq!(environment.now(), TestEnvironment::EPOCH, "time stands still until somebody waits");
        outcome(&client, "a").await;
        assert_eq!(environment.now(), TestEnvironment::EPOCH.plus(365 * 24 * HOUR));
        outcome(&client, "b").await;
        let mut turns = client.turns(&target("a")).await.unwrap();
        turns.extend(client.turns(&target("b")).await.unwrap());
        all.push(turns);
    }
    assert_eq!(all[0], all[1]);
    assert_eq!(all[0], all[2]);
}

/// G7: a run that a salvage could not save whole is held with its reason. Nobody lets it go on from less history than it
/// had; it can be looked at and ended. All others go on.
#[tokio::test]
async fn a_run_that_lost_a_part_of_its_history_stays_held() {
    let log = Arc::new(MemoryLog::new([3; 16]));
    let options = || {
        let mut options = WorkerOptions::new(DataDirectory::Log(log.clone()));
        options.workflows = WorkflowRegistry::new().workflow("parrot", parrot);
        options.activities.register("echo", |_, word: String| async move { Ok(word) });
        options
    };
    let worker = Worker::start(options()).unwrap();
    let hit = worker.client().start(start("parrot", "hit", &())).await.unwrap().run_id;
    worker.client().start(start("parrot", "whole", &())).await.unwrap();
    worker.stop().unwrap();
    drop(worker);
    log.hold(hit, "its events 3 to 4 are lost");
    let worker = Worker::start(options()).unwrap();
    let client = worker.client();
    let card = client.describe(&target("hit")).await.unwrap().held.unwrap();
    assert!(card.contains("its events 3 to 4 are lost") && card.contains("bosun store restore"), "{card}");
    let refused = client.unpause(&target("hit"), "try".into(), None).await.unwrap_err();
    assert!(matches!(&refused, Rejection::Held { why } if why.contains("events 3 to 4")), "{refused}");
    client.signal(&target("hit"), signal("word", "end")).await.unwrap();
    client.signal(&target("whole"), signal("word", "end")).await.unwrap();
    assert_eq!(output::<u32>(&client, "whole").await, 0);
    assert!(client.describe(&target("hit")).await.unwrap().held.is_some(), "its input is kept, and nothing decided");
    client.terminate(&target("hit"), "its history is not whole".into(), None).await.unwrap();
    client.delete(&target("hit")).await.unwrap();
    worker.stop().unwrap();
}

/// A backup that is refused is no failure of the log.
#[tokio::test]
async fn a_refused_backup_does_not_say_that_the_log_has_failed() {
    let directory = tempfile::tempdir().unwrap();
    let worker = Worker::start(options(&directory.path().join("live"))).unwrap();
    let taken = directory.path().join("live");
    let refused = worker.client().backup(&taken).await.unwrap_err();
    assert!(matches!(refused, Rejection::Invalid { .. }), "{refused:?}");
    assert!(!refused.to_string().contains("failed"), "{refused}");
    std::fs::write(directory.path().join("file"), "x").unwrap();
    let refused = worker.client().backup(&directory.path().join("file/below")).await.unwrap_err();
    assert!(!refused.to_string().contains("the log has failed"), "{refused}");
    assert_eq!(worker.health(), Health::Ready);
    worker.stop().unwrap();
}
