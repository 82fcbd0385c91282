//! Runs that were played by a provider, and are played again from what their histories hold.

use std::collections::BTreeSet;

use bosun_engine::{Client, Event, EventId, ListRequest, RunId, Target};
use bosun_worker::capability::model::mock::MockProvider;
use bosun_worker::capability::model::{CassetteMode, ModelConfig, Wire};
use bosun_worker::harvest::{HarvestError, children, from_histories, from_history};
use bosun_worker::supervisor::spec::Preset;
use serde_json::Value;

use super::plays::play;
use super::scenes::Scene;

/// The run and all below it, each with its events.
async fn histories(client: &Client) -> Vec<(RunId, Vec<Event>)> {
    let mut runs = client.list(ListRequest { query: String::new(), limit: 1_000 }).await.unwrap();
    runs.sort_by_key(|run| run.workflow_id.as_str() != "run");
    let mut all = Vec::new();
    for run in runs {
        let target = Target { run_id: Some(run.run_id), ..Target::workflow(run.workflow_id) };
        all.push((run.run_id, client.history(&target, EventId(1), 100_000).await.unwrap()));
    }
    all
}

/// A report without what differs from run to run whoever plays it.
fn settled(mut value: Value, runs: &[(RunId, Vec<Event>)]) -> String {
    if let Some(report) = value.as_object_mut() {
        report.retain(|name, _| !["started_at", "ended_at", "elapsed_ms"].contains(&name.as_str()));
    }
    let text = format!("{value:#}");
    runs.iter().fold(text, |text, (id, _)| text.replace(&id.to_string(), "RUN"))
}

/// Every preset: played by a provider, harvested, and played again by a worker that has no provider and may ask nobody.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_is_played_again_from_its_own_history() {
    let dir = tempfile::tempdir().unwrap();
    for preset in Preset::ALL {
        let mock = MockProvider::start(play).await.unwrap();
        let scene = Scene::new(&mock, Wire::OpenAi);
        scene.start(preset).await;
        let recorded = scene.report().await;
        let runs = histories(&scene.client()).await;
        let tape = from_histories(runs.iter().map(|(_, events)| events.as_slice())).unwrap();
        assert_eq!(tape.len(), mock.count(), "{}: each answer once", preset.name());
        let below: BTreeSet<RunId> = runs.iter().flat_map(|(_, events)| children(events)).collect();
        assert_eq!(below.len(), runs.len() - 1, "{}: all are below the first", preset.name());
        drop((scene, mock));

        let path = dir.path().join(format!("{}.json", preset.name()));
        std::fs::write(&path, tape.to_text()).unwrap();
        let played = Scene::of(ModelConfig {
            cassette_mode: CassetteMode::Replay,
            cassette_dir: path,
            allow_requests: false,
            ..ModelConfig::default()
        });
        played.start(preset).await;
        let again = played.report().await;
        let runs_again = histories(&played.client()).await;
        assert_eq!(settled(again, &runs_again), settled(recorded, &runs), "{}", preset.name());
        let tape_again = from_histories(runs_again.iter().map(|(_, events)| events.as_slice())).unwrap();
        assert_eq!(
            tape_again.to_text(),
            tape.to_text(),
            "{}: the cassette of the played run is the same",
            preset.name()
        );
    }
}

/// A tape that is not of this run: the call that is missing says which recording is the nearest, and how it differs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_run_is_told_how_the_nearest_recording_differs() {
    let dir = tempfile::tempdir().unwrap();
    let mock = MockProvider::start(play).await.unwrap();
    let scene = Scene::new(&mock, Wire::OpenAi);
    scene.start(Preset::FlowSupervisor).await;
    scene.report().await;
    let runs = histories(&scene.client()).await;
    let path = dir.path().join("tape.json");
    std::fs::write(&path, from_histories(runs.iter().map(|(_, events)| events.as_slice())).unwrap().to_text()).unwrap();
    let mut model = ModelConfig { cassette_mode: CassetteMode::Replay, cassette_dir: path, ..ModelConfig::default() };
    model.allow_requests = false;
    let played = Scene::of(model);
    played.start(Preset::ShannonDag).await;
    played.settle().await;
    let told = format!("{:?}", histories(&played.client()).await);
    assert!(told.contains("The nearest is") && told.contains("(- recorded, + asked)"), "{told}");
}

/// Half a history, or one of a program with activities of its own, is no cassette, and says why.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_history_that_is_not_whole_is_no_cassette() {
    let mock = MockProvider::start(play).await.unwrap();
    let scene = Scene::new(&mock, Wire::OpenAi);
    scene.start(Preset::FlowSupervisor).await;
    scene.report().await;
    let (mut without_start, mut whole) = (Vec::new(), 0);
    for (_, events) in histories(&scene.client()).await {
        whole += from_history(&events).unwrap().len();
        without_start.push(from_history(&events[1..]));
    }
    assert_eq!(whole, mock.count());
    let cut = without_start.into_iter().filter_map(Result::err).collect::<Vec<_>>();
    assert!(!cut.is_empty() && cut.iter().all(|why| matches!(why, HarvestError::Request { .. })), "{cut:?}");
}
