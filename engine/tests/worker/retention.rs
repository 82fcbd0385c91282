//! Retention and deletion: closed runs go, open ones stay, and space comes back.

use std::sync::Arc;
use std::time::Duration;

use bosun_engine::clock::{Clock, VirtualClock};
use bosun_engine::log::{Journal, JournalOptions, Log, MemoryLog};
use bosun_engine::testing::TestEnvironment;
use bosun_engine::workflow::{WfContext, WorkflowRegistry};
use bosun_engine::*;

use crate::kit::*;

const DAY: Duration = Duration::from_secs(24 * 3_600);

fn environment() -> TestEnvironment {
    let workflows = WorkflowRegistry::new().workflow("note", |ctx: WfContext, _: String| async move {
        ctx.on_query("ping", |()| Ok("pong"));
        ctx.signal_channel::<()>("end").recv().await
    });
    let change = |options: &mut WorkerOptions| {
        options.retention = Retention::of(7 * DAY);
        options.housekeeping_every = HOUR;
    };
    TestEnvironment::start_with(workflows, ActivityRegistry::new(), change).unwrap()
}

fn blobs(log: &MemoryLog) -> usize {
    (0..=255).map(|first| log.blobs(first).unwrap().len()).sum()
}

/// Starts a run with a large input of its own, and ends it if asked to.
async fn note(client: &Client, id: &str, ends: bool) {
    client.start(start("note", id, &id.repeat(20_000))).await.unwrap();
    if ends {
        client.signal(&target(id), signal("end", &())).await.unwrap();
        outcome(client, id).await;
    }
}

async fn ids(client: &Client) -> Vec<String> {
    let request = ListRequest { query: "ORDER BY WorkflowId".into(), limit: 100 };
    client.list(request).await.unwrap().into_iter().map(|run| run.workflow_id.to_string()).collect()
}

/// E32: closed runs go when their retention is over, counted from their end, and their blobs with them; open ones stay
/// however old they are. The id is free again, also for a policy that refuses used ones.
#[tokio::test]
async fn closed_runs_go_after_their_retention_and_open_ones_stay() {
    let environment = environment();
    let client = environment.client();
    note(&client, "open", false).await;
    note(&client, "early", true).await;
    environment.sleep(4 * DAY).await;
    note(&client, "late", true).await;
    environment.sleep(3 * DAY - Duration::from_secs(1)).await;
    client.housekeep().await.unwrap();
    assert_eq!(ids(&client).await, ["early", "late", "open"]);
    environment.sleep(Duration::from_secs(1)).await;
    let mut deleted = 0;
    for _ in 0..3 {
        deleted += client.housekeep().await.unwrap().deleted;
    }
    assert_eq!(deleted, 1);
    assert_eq!(ids(&client).await, ["late", "open"]);
    assert_eq!(blobs(environment.log()), 2);
    let gone = client.describe(&target("early")).await;
    assert!(matches!(gone, Err(Rejection::NotFound { .. })), "{gone:?}");
    let mut again = start("note", "early", "");
    again.id_reuse_policy = IdReusePolicy::RejectDuplicate;
    assert!(client.start(again).await.unwrap().newly_started);

    let environment = environment.crash(2, |_| {}).unwrap();
    let client = environment.client();
    assert_eq!(ids(&client).await, ["early", "late", "open"]);
    assert!(client.verify().await.unwrap().is_sound());
    environment.sleep(30 * DAY).await;
    client.housekeep().await.unwrap();
    client.housekeep().await.unwrap();
    assert_eq!(ids(&client).await, ["early", "open"]);
    assert_eq!(query::<String>(&client, "open", "ping").await, "pong");
}

/// E32: a run is deleted by id: it is gone from lists, reads and memory at once and after a crash, its blob with it; an
/// open run is refused.
#[tokio::test]
async fn a_closed_run_is_deleted_by_id() {
    let environment = environment();
    let client = environment.client();
    for (id, ends) in [("a", true), ("b", true), ("open", false)] {
        note(&client, id, ends).await;
    }
    // Loaded, so that memory has it too.
    assert_eq!(query::<String>(&client, "a", "ping").await, "pong");
    let refused = client.delete(&target("open")).await;
    assert!(matches!(&refused, Err(Rejection::Invalid { why, .. }) if why.contains("open")), "{refused:?}");
    client.delete(&target("a")).await.unwrap();
    let environment = environment.crash(5, |_| {}).unwrap();
    let client = environment.client();
    for id in ["a", "b"] {
        if id == "b" {
            assert_eq!(query::<String>(&client, "b", "ping").await, "pong");
            client.delete(&target("b")).await.unwrap();
        }
        let asked = client.query(&target(id), &"ping".into(), Payload::null()).await;
        assert!(matches!(asked, Err(Rejection::NotFound { .. })), "{id}: {asked:?}");
        assert!(matches!(client.turns(&target(id)).await, Err(Rejection::NotFound { .. })));
        assert!(matches!(client.delete(&target(id)).await, Err(Rejection::NotFound { .. })));
    }
    assert_eq!(ids(&client).await, ["open"]);
    client.housekeep().await.unwrap();
    client.housekeep().await.unwrap();
    assert_eq!(blobs(environment.log()), 1);
    assert!(client.verify().await.unwrap().is_sound());
}

/// E32: the space of runs that are gone comes back on a real disk.
#[tokio::test]
async fn the_space_of_deleted_runs_comes_back() {
    let directory = tempfile::tempdir().unwrap();
    let mut options = WorkerOptions::at(directory.path());
    options.workflows =
        WorkflowRegistry::new().workflow("note", |_: WfContext, _: String| async move { Ok("x".repeat(4_000)) });
    options.retention = Retention::of(Duration::ZERO);
    options.housekeeping_every = HOUR;
    options.journal.log_keep_bytes = 64 * 1024;
    let worker = Worker::start(options).unwrap();
    let client = worker.client();
    let mut sizes = Vec::new();
    for round in 0..4 {
        for n in 0..30 {
            let id = format!("{round}-{n}");
            client.start(start("note", &id, &format!("{id}{}", "y".repeat(100_000)))).await.unwrap();
            outcome(&client, &id).await;
        }
        for _ in 0..6 {
            client.housekeep().await.unwrap();
        }
        sizes.push(client.store_info().await.unwrap().bytes_on_disk);
    }
    assert_eq!(client.count("").await.unwrap(), 0);
    assert!(client.verify().await.unwrap().is_sound());
    // 12 MB went through; what is left does not grow with it.
    assert!(sizes[3] < sizes[0] + 2_000_000 && sizes[3] < 8_000_000, "{sizes:?}");
    worker.stop().unwrap();
}

/// E32: a closed run whose last messages have not arrived is closed in the figures of the store, and is not deleted: whoever
/// asks is told why, instead of being told that it is gone.
#[tokio::test]
async fn a_run_that_still_has_something_to_say_is_not_deleted_silently() {
    let log = Arc::new(MemoryLog::new([3; 16]));
    let mut told = HistoryBuilder::started("order", "parting", Payload::null());
    told.completed(Payload::null());
    let mut turns = told.turns();
    // As the closing turn of a run with a message under way says. There is none here, so it never arrives.
    turns.last_mut().unwrap().outlook.attention = true;
    let journal = Journal::open(log.clone(), JournalOptions::default()).unwrap();
    journal.commit(&turns).unwrap();
    let target = target("parting");
    assert_eq!(journal.delete_run(turns[0].run), Ok(false));
    assert_eq!((journal.info().runs_open, journal.info().runs_closed), (0, 1));
    assert_eq!(journal.find(&target).unwrap().map(|info| info.status), Some(WorkflowStatus::Completed));
    assert_eq!(journal.list(&Filter::parse("").unwrap(), 10).len(), 1);

    drop(journal);
    let worker = Worker::start(WorkerOptions::new(DataDirectory::Log(log))).unwrap();
    let client = worker.client();
    let Err(Rejection::Invalid { why, .. }) = client.delete(&target).await else { panic!("it was deleted") };
    assert_eq!(why, "messages that it sent have not arrived yet; ask again");
    let info = client.store_info().await.unwrap();
    assert_eq!((info.runs_open, info.runs_closed), (0, 1));
    assert_eq!(client.describe(&target).await.unwrap().info.status, WorkflowStatus::Completed);
    worker.stop().unwrap();
}

/// Fifty closed runs in a directory, and a worker on it whose clock shows `at`.
fn worker_at(directory: &std::path::Path, at: Timestamp, retention: Retention) -> (Worker, Client, VirtualClock) {
    let clock = VirtualClock::at(at);
    let mut options = WorkerOptions::at(directory);
    options.workflows = WorkflowRegistry::new().workflow("note", |_: WfContext, text: String| async move { Ok(text) });
    options.clock = Clock::Virtual(clock.clone());
    options.retention = retention;
    options.housekeeping_every = HOUR;
    let worker = Worker::start(options).unwrap();
    let client = worker.client();
    (worker, client, clock)
}

async fn fifty(client: &Client) {
    for n in 0..50 {
        let id = format!("r{n}");
        client.start(start("note", &id, &id)).await.unwrap();
        outcome(client, &id).await;
    }
    client.housekeep().await.unwrap();
}

async fn left(client: &Client) -> u64 {
    for _ in 0..4 {
        client.housekeep().await.unwrap();
    }
    client.count("").await.unwrap()
}

/// E32: without a retention that the owner set, closed runs stay, however late it is.
#[tokio::test]
async fn the_default_keeps_closed_runs() {
    let directory = tempfile::tempdir().unwrap();
    let (worker, client, clock) = worker_at(directory.path(), TestEnvironment::EPOCH, WorkerOptions::at("x").retention);
    fifty(&client).await;
    clock.advance_to(TestEnvironment::EPOCH.plus(4_000 * DAY));
    assert_eq!(left(&client).await, 50);
    assert!(!client.retention().retention.is_set());
    worker.stop().unwrap();
}

/// E32: a clock that is wrong at boot deletes nothing, forward or back; what was seen to pass does, and so does the owner's
/// word that the clock is right.
#[tokio::test]
async fn a_clock_that_jumped_deletes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let at = |offset: Duration| TestEnvironment::EPOCH.plus(offset);
    let week = || Retention::of(7 * DAY);
    let (worker, client, _) = worker_at(directory.path(), at(Duration::ZERO), week());
    fifty(&client).await;
    worker.stop().unwrap();
    // The client keeps the directory, too.
    drop((worker, client));
    // Ten years ahead, then back behind the beginning.
    for offset in [3_650 * DAY, Duration::ZERO] {
        let (worker, client, clock) = worker_at(directory.path(), at(offset), week());
        assert_eq!(left(&client).await, 50, "at {offset:?}");
        clock.advance_to(clock.now().plus(2 * DAY));
        assert_eq!(left(&client).await, 50, "two days later");
        assert!(client.retention().closed_before.is_none());
        worker.stop().unwrap();
    }
    // Plausible for the retention's own span.
    let (worker, client, clock) = worker_at(directory.path(), at(20 * DAY), week());
    clock.advance_to(at(24 * DAY));
    assert_eq!(left(&client).await, 50);
    clock.advance_to(at(26 * DAY));
    assert_eq!(left(&client).await, 0);
    worker.stop().unwrap();
}

/// The owner may say that time in which no worker ran counts.
#[tokio::test]
async fn an_owner_who_trusts_the_clock_is_believed() {
    let directory = tempfile::tempdir().unwrap();
    let (worker, client, _) = worker_at(directory.path(), TestEnvironment::EPOCH, Retention::default());
    fifty(&client).await;
    worker.stop().unwrap();
    // The client keeps the directory, too.
    drop((worker, client));
    let trusting = Retention { trust_clock: true, ..Retention::of(7 * DAY) };
    let (worker, client, _) = worker_at(directory.path(), TestEnvironment::EPOCH.plus(8 * DAY), trusting);
    assert_eq!(left(&client).await, 0);
    worker.stop().unwrap();
}
