//! What many tests need: short ways to ask, and to read what came of it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bosun_engine::testing::TestEnvironment;
use bosun_engine::workflow::WorkflowRegistry;
use bosun_engine::*;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Follows a chain of runs to its end. The limit is real time and only keeps a broken test from hanging.
pub(crate) const WHOLE: ResultRequest = ResultRequest { follow_runs: true, timeout: Some(Duration::from_secs(180)) };
pub(crate) const THIS_RUN: ResultRequest = ResultRequest { follow_runs: false, ..WHOLE };
pub(crate) const HOUR: Duration = Duration::from_secs(3_600);

pub(crate) fn payload<T: Serialize + ?Sized>(value: &T) -> Payload {
    Payload::encode(value).unwrap()
}

pub(crate) fn start<T: Serialize + ?Sized>(workflow_type: &str, id: &str, input: &T) -> StartWorkflow {
    StartWorkflow::new(workflow_type.into(), id.into()).input(payload(input))
}

pub(crate) fn target(id: &str) -> Target {
    Target::workflow(id.into())
}

pub(crate) fn signal<T: Serialize + ?Sized>(name: &str, input: &T) -> SignalRequest {
    SignalRequest { name: name.into(), input: payload(input), identity: None, request_id: None }
}

/// A signal that may be sent again.
pub(crate) fn signal_once<T: Serialize + ?Sized>(name: &str, input: &T, request_id: &str) -> SignalRequest {
    SignalRequest { request_id: Some(request_id.into()), ..signal(name, input) }
}

pub(crate) fn update<T: Serialize + ?Sized>(id: &str, name: &str, input: &T, wait: UpdateWait) -> UpdateRequest {
    UpdateRequest { update_id: id.into(), name: name.into(), input: payload(input), identity: None, wait }
}

pub(crate) fn quick() -> ActivityOptions {
    ActivityOptions::start_to_close(Duration::from_secs(30))
}

pub(crate) fn environment(workflows: WorkflowRegistry) -> TestEnvironment {
    environment_with(workflows, ActivityRegistry::new())
}

/// Without housekeeping in the background, so that what is written follows from what is asked.
pub(crate) fn environment_with(workflows: WorkflowRegistry, activities: ActivityRegistry) -> TestEnvironment {
    TestEnvironment::start_with(workflows, activities, |options| options.housekeeping_every = HOUR).unwrap()
}

/// Waits until nothing is under way any more, because all is done or because the storage has failed.
pub(crate) async fn settled(environment: &TestEnvironment) {
    environment.settle().await;
}

/// How the execution ended, with all runs of its chain.
pub(crate) async fn outcome(client: &Client, id: &str) -> CloseOutcome {
    client.result(&target(id), WHOLE).await.unwrap().expect("the run should have ended").outcome
}

#[track_caller]
pub(crate) fn decoded<T: DeserializeOwned>(outcome: CloseOutcome) -> T {
    match outcome {
        CloseOutcome::Completed(result) => result.decode().unwrap(),
        other => panic!("expected a completed run, found {other:?}"),
    }
}

pub(crate) async fn output<T: DeserializeOwned>(client: &Client, id: &str) -> T {
    decoded(outcome(client, id).await)
}

pub(crate) async fn query<T: DeserializeOwned>(client: &Client, id: &str, name: &str) -> T {
    client.query(&target(id), &name.into(), Payload::null()).await.unwrap().decode().unwrap()
}

/// The whole history of the newest run.
pub(crate) async fn history(client: &Client, id: &str) -> Vec<Event> {
    history_of(client, &target(id)).await
}

pub(crate) async fn history_of(client: &Client, target: &Target) -> Vec<Event> {
    client.turns(target).await.unwrap().iter().flat_map(Turn::numbered).collect()
}

pub(crate) fn names(events: &[Event]) -> Vec<&'static str> {
    events.iter().map(|event| event.kind.name()).collect()
}

pub(crate) fn count(events: &[Event], name: &str) -> usize {
    events.iter().filter(|event| event.kind.name() == name).count()
}

/// What activities have seen, across restarts of the worker: the world outside.
#[derive(Clone, Default)]
pub(crate) struct Ledger(Arc<Mutex<Vec<String>>>);

impl Ledger {
    pub(crate) fn note(&self, entry: impl Into<String>) {
        self.0.lock().unwrap().push(entry.into());
    }
    pub(crate) fn entries(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}
