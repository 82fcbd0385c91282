//! Whole runs of presets on the engine, played by a provider.

use std::sync::Arc;
use std::time::Duration;

use bosun_engine::testing::TestEnvironment;
use bosun_engine::workflow::WorkflowRegistry;
use bosun_engine::*;
use bosun_worker::agent::{self, Conversations};
use bosun_worker::capability::model::mock::MockProvider;
use bosun_worker::capability::model::{ModelConfig, Wire};
use bosun_worker::capability::{self, CapabilityConfig};
use bosun_worker::supervisor;
use bosun_worker::supervisor::run::{SUPERVISOR, SupervisorInput};
use bosun_worker::supervisor::spec::{Preset, Via, ViaModel, read_spec};
use serde_json::Value;

use crate::plays::play;

fn activities(mock: &MockProvider, wire: Wire, conversations: &Conversations) -> ActivityRegistry {
    let mut config = CapabilityConfig { model: ModelConfig::default(), ..CapabilityConfig::default() };
    config.model = config.model.with_provider("mock", mock.config(wire));
    let mut registry = ActivityRegistry::new();
    capability::register(&mut registry, &config).unwrap();
    agent::register_activities(&mut registry, conversations.clone());
    registry
}

fn workflows() -> WorkflowRegistry {
    agent::register(supervisor::register(WorkflowRegistry::new()))
}

/// A worker whose provider is the mock.
struct Scene {
    environment: Option<TestEnvironment>,
    wire: Wire,
}

impl Scene {
    fn new(mock: &MockProvider, wire: Wire) -> Scene {
        let conversations = Conversations::default();
        let environment = TestEnvironment::start(workflows(), activities(mock, wire, &conversations)).unwrap();
        conversations.attach(Arc::new(environment.client()));
        Scene { environment: Some(environment), wire }
    }
    fn client(&self) -> Client {
        self.environment.as_ref().unwrap().client()
    }
    /// A power cut; what was under way is gone.
    fn crash(&mut self, seed: u64, mock: &MockProvider) {
        let conversations = Conversations::default();
        let activities = activities(mock, self.wire, &conversations);
        let after = self.environment.take().unwrap().crash(seed, |options| options.activities = activities).unwrap();
        conversations.attach(Arc::new(after.client()));
        self.environment = Some(after);
    }
    async fn start(&self, preset: Preset) {
        let path = format!("{}/../fixtures/supervisors/presets/{}.yaml", env!("CARGO_MANIFEST_DIR"), preset.name());
        let mut file = read_spec(&path, &std::fs::read_to_string(&path).unwrap()).unwrap_or_else(|why| panic!("{why}"));
        file.spec.via =
            Via::Model(ViaModel { provider: Some("mock".into()), name: Some("mock-1".into()), ..ViaModel::default() });
        let input = SupervisorInput::new(file.spec.resolve().unwrap_or_else(|why| panic!("{why}")));
        let request = StartWorkflow::new(SUPERVISOR.into(), "run".into()).input(Payload::encode(&input).unwrap());
        self.client().start(request).await.unwrap();
    }
    async fn report(&self) -> Value {
        let wait = ResultRequest { follow_runs: true, timeout: Some(Duration::from_secs(60)) };
        let result = self.client().result(&Target::workflow("run".into()), wait).await.unwrap();
        match result.expect("it ends in time").outcome {
            CloseOutcome::Completed(report) => report.to_json(),
            other => panic!("{other:?}"),
        }
    }
}

/// Each preset, played by models from its planner to its last worker, comes to an end that counts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_preset_is_played_by_models() {
    for preset in Preset::ALL {
        let mock = MockProvider::start(|request| play(request)).await.unwrap();
        let scene = Scene::new(&mock, Wire::OpenAi);
        scene.start(preset).await;
        let report = scene.report().await;
        eprintln!("{} {} {} {}", preset.name(), report["status"], mock.count(), report["final_result"]);
    }
}
