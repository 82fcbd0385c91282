//! What a program of its own can do with the capabilities: models of its own, with trouble, watched, and files in bounds.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bosun_engine::testing::TestEnvironment;
use bosun_engine::workflow::WorkflowRegistry;
use bosun_engine::{ActivityRegistry, CloseOutcome, Payload, ResultRequest, StartWorkflow, Target};
use bosun_worker::capability::file::{FILE, FILE_REFUSED, FileConfig};
use bosun_worker::capability::model::mock::MockAnswer;
use bosun_worker::capability::model::{
    Chaos, ChaosRates, ChatRequest, FunctionModel, LiveWhat, ModelConfig, ModelError,
};
use bosun_worker::capability::{self, CapabilityConfig};
use bosun_worker::examples::{self, kitchen_sink::KITCHEN_SINK};
use bosun_worker::supervisor::spec::Preset;
use serde_json::json;
use tokio::sync::broadcast::error::TryRecvError;

use super::plays::play;
use super::scenes::Scene;

/// A closure plays every part; a third of its answers meets with trouble, and whoever watches sees each attempt.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_model_of_the_program_is_troubled_and_watched() {
    let plays = FunctionModel::new(|request: &ChatRequest| match play(request) {
        MockAnswer::Say(response) => Ok(response),
        other => Err(ModelError::fatal("play", format!("{other:?}"))),
    });
    let rates = ChaosRates { rate_limited: 150, overloaded: 100, cut: 100, ..ChaosRates::default() };
    let config = ModelConfig::default().with_model("mock", Chaos::new(Arc::new(plays), 7, rates));
    let mut watcher = config.live.watch();
    let scene = Scene::of(config);
    scene.start(Preset::ShannonSimple).await;
    let report = scene.report().await;
    assert_eq!(report["status"], "completed", "{report:#}");
    let (mut begun, mut ended, mut text) = (BTreeSet::new(), BTreeSet::new(), String::new());
    loop {
        match watcher.try_recv() {
            Ok(token) => {
                let attempt = (token.tag.run_id, token.tag.activity, token.tag.attempt);
                match token.what {
                    LiveWhat::Reset => drop(begun.insert(attempt)),
                    LiveWhat::End => drop(ended.insert(attempt)),
                    LiveWhat::Text(piece) => text.push_str(&piece),
                    LiveWhat::ToolCall(_) => {}
                }
            }
            Err(TryRecvError::Lagged(_)) => {}
            Err(TryRecvError::Empty | TryRecvError::Closed) => break,
        }
    }
    assert!(!begun.is_empty() && begun == ended && text.contains("I say it is done"), "{begun:?} {ended:?} {text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_stay_in_the_roots_that_the_owner_names() {
    let dir = tempfile::tempdir().unwrap();
    let (mine, other) = (dir.path().join("mine"), dir.path().join("other"));
    [&mine, &other].iter().for_each(|path| std::fs::create_dir(path).unwrap());
    let file = FileConfig { roots: Some(vec![mine.clone()]), ..FileConfig::default() };
    let mut activities = ActivityRegistry::new();
    capability::register(&mut activities, &CapabilityConfig { file, ..CapabilityConfig::default() }).unwrap();
    let environment = TestEnvironment::start(examples::register(WorkflowRegistry::new()), activities).unwrap();
    for (root, is_allowed) in [(&mine, true), (&other, false)] {
        let input = json!({"root": root, "op": "write", "path": "a", "content": "text"});
        let program = json!({"steps": [{"activity": {"type": FILE, "input": input, "as": "out"}}]});
        let id = format!("allowed-{is_allowed}");
        let request = StartWorkflow::new(KITCHEN_SINK.into(), id.as_str().into());
        environment.client().start(request.input(Payload::encode(&program).unwrap())).await.unwrap();
        let wait = ResultRequest { follow_runs: true, timeout: Some(Duration::from_secs(180)) };
        let result = environment.client().result(&Target::workflow(id.as_str().into()), wait).await.unwrap().unwrap();
        match result.outcome {
            CloseOutcome::Completed(_) => assert!(is_allowed),
            CloseOutcome::Failed(why) => assert_eq!((is_allowed, why.root().type_name()), (false, FILE_REFUSED)),
            outcome => panic!("{outcome:?}"),
        }
        assert_eq!(root.join("a").exists(), is_allowed);
    }
}
