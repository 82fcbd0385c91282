//! What the real worker records of the corpus's workflows: the other side of the stories.
//!
//! Invariant: every history that the engine writes passes the check that guards imports, survives JSON and Temporal's
//! form, and replays at every prefix. If the machine learns something new, this fails before a user's import does.

use std::time::Duration;

use bosun_engine::clock::Clock;
use bosun_engine::machine::fold_run;
use bosun_engine::testing::TestEnvironment;
use bosun_engine::*;
use proptest::prelude::*;

use super::stories::STORIES;
use super::workflows::registry;
use crate::*;

fn activities() -> ActivityRegistry {
    let mut activities = ActivityRegistry::new();
    activities.register("charge_card", |ctx: ActivityContext, cents: u64| async move {
        match (cents, ctx.attempt()) {
            (0, _) => Err(Failure::application("Declined", "nothing to charge").non_retryable().into()),
            (_, Attempt(1)) => Err(Failure::application("Busy", "later").into()),
            _ => Ok("receipt".to_owned()),
        }
    });
    activities.register("work", |_: ActivityContext, part: u64| async move { Ok(part * 10) });
    activities.register("undo", |_: ActivityContext, (): ()| async move { Ok(()) });
    activities
}

fn signal(name: &str, input: Payload) -> SignalRequest {
    SignalRequest { name: SignalName::of(name), input, identity: None, request_id: None }
}

struct LiveEnvironment {
    environment: TestEnvironment,
}

impl LiveEnvironment {
    async fn start(&self, workflow_type: &str, id: &str, input: Payload) -> Target {
        let start = StartWorkflow::new(WorkflowType::of(workflow_type), WorkflowId::of(id)).input(input);
        self.environment.client().start(start).await.unwrap();
        Target::workflow(WorkflowId::of(id))
    }
    async fn signal(&self, target: &Target, name: &str, input: Payload) {
        self.environment.client().signal(target, signal(name, input)).await.unwrap();
    }
    async fn update(&self, target: &Target, id: &str, level: u64) {
        let request = UpdateRequest {
            update_id: UpdateId::of(id),
            name: UpdateName::of("set"),
            input: Payload::encode(&level).unwrap(),
            identity: None,
            wait: UpdateWait::Completed,
        };
        self.environment.client().update(target, request).await.unwrap();
    }

    /// The history as the log holds it, after everything a reader may do to it.
    async fn check(&self, target: &Target, ends: WorkflowStatus) {
        let client = self.environment.client();
        if !ends.is_open() {
            let request = ResultRequest { follow_runs: false, timeout: Some(Duration::from_secs(120)) };
            client.result(target, request).await.unwrap().unwrap();
        }
        let turns = client.turns(target).await.unwrap();
        let history = History::new(turns).unwrap_or_else(|why| panic!("{}: {why}", target.workflow_id));
        assert_eq!(history.status(), ends, "{}", target.workflow_id);
        assert_eq!(History::from_json(history.to_json().as_bytes(), &HistoryLimits::default()), Ok(history.clone()));
        let report = replay_history(&registry(), &history, Prefixes::All);
        assert!(report.is_ok(), "{report}");
        let temporal = TemporalHistory::from(&history).statistics();
        assert_eq!(temporal.status, (!ends.is_open()).then(|| ends.to_string()), "{}", target.workflow_id);
    }
}

async fn live_through_everything() {
    // In real time: nothing here takes longer than the second before a retry.
    let environment = TestEnvironment::start_with(registry(), activities(), |options| options.clock = Clock::system());
    let environment = environment.unwrap();
    let live = LiveEnvironment { environment };
    let client = live.environment.client();
    let json = |value: u64| Payload::encode(&value).unwrap();

    let greet = live.start("greet", "greet", Payload::encode("ada").unwrap()).await;
    live.check(&greet, WorkflowStatus::Completed).await;
    let retried = live.start("charge", "retried", json(700)).await;
    live.check(&retried, WorkflowStatus::Completed).await;
    let failed = live.start("charge", "failed", json(0)).await;
    live.check(&failed, WorkflowStatus::Failed).await;
    let fan_out = live.start("fan-out", "fan-out", Payload::encode(&[1, 2, 3]).unwrap()).await;
    live.check(&fan_out, WorkflowStatus::Completed).await;
    let parent = live.start("parent", "parent", json(700)).await;
    live.check(&parent, WorkflowStatus::Completed).await;
    let notes = live.start("notes", "notes", Payload::null()).await;
    live.check(&notes, WorkflowStatus::Completed).await;

    let approval = live.start("approval", "approval", Payload::null()).await;
    live.signal(&approval, "approve", Payload::encode(&true).unwrap()).await;
    live.check(&approval, WorkflowStatus::Completed).await;
    let cleanup = live.start("cleanup", "cleanup", Payload::null()).await;
    client.cancel(&cleanup, "not needed".into(), None, None).await.unwrap();
    live.check(&cleanup, WorkflowStatus::Canceled).await;
    let terminated = live.start("approval", "terminated", Payload::null()).await;
    client.terminate(&terminated, "out of hand".into(), None).await.unwrap();
    live.check(&terminated, WorkflowStatus::Terminated).await;

    let settings = live.start("settings", "settings", Payload::null()).await;
    live.update(&settings, "u1", 2).await;
    live.check(&settings, WorkflowStatus::Running).await;
    live.update(&settings, "u2", 3).await;
    live.check(&settings, WorkflowStatus::Completed).await;

    let other = live.start("approval", "other", Payload::null()).await;
    let messenger = live.start("messenger", "messenger", Payload::null()).await;
    live.check(&messenger, WorkflowStatus::Completed).await;
    live.check(&other, WorkflowStatus::Canceled).await;

    let counter = live.start("counter", "counter", json(1)).await;
    client.pause(&counter, "let me look".into(), None).await.unwrap();
    live.signal(&counter, "add", json(2)).await;
    live.check(&counter, WorkflowStatus::Paused).await;
    client.unpause(&counter, "go on".into(), None).await.unwrap();
    let first = Target::run(counter.workflow_id.clone(), client.describe(&counter).await.unwrap().info.run_id);
    live.signal(&counter, "add", json(3)).await;
    live.signal(&counter, "add", json(4)).await;
    live.check(&first, WorkflowStatus::ContinuedAsNew).await;
}

/// E38, G40: what the worker writes is what the reader accepts.
#[tokio::test]
async fn every_history_of_a_real_worker_passes_the_readers_checks() {
    tokio::time::timeout(Duration::from_secs(600), live_through_everything()).await.expect("it ends");
}

/// The run machine folds what the stories tell, and comes to the same end.
#[test]
fn the_run_machine_folds_every_story() {
    for story in STORIES {
        let turns = (story.tell)(story.name);
        let run = fold_run(&turns).unwrap_or_else(|why| panic!("{}: {why}", story.name));
        let history = History::new(turns).unwrap();
        assert_eq!(run.info().status, history.status(), "{}", story.name);
        assert_eq!(run.info().history.events, history.len() as u64, "{}", story.name);
    }
}

proptest! {
    #![proptest_config(crate::arbitrary::cases(200))]

    /// A history that passes the check can be folded: the machine's own invariants hold after every event.
    #[test]
    fn the_run_machine_folds_any_checked_history(history in crate::arbitrary::histories(60)) {
        let run = fold_run(history.turns()).unwrap();
        prop_assert_eq!(run.info().status, history.status());
    }
}
