//! A run that is to go on as new, on an engine that takes less than a cluster does.
//!
//! Invariant: it stays in one run, says so once, and ends as it would have.

use std::time::Duration;

use bosun_engine::testing::TestEnvironment;
use bosun_engine::workflow::{WorkflowRegistry, replay};
use bosun_engine::*;
use bosun_worker::capability::{self, CapabilityConfig};
use bosun_worker::supervisor::run::{SUPERVISOR, SupervisorInput, register};
use bosun_worker::supervisor::spec::read_spec;
use serde_json::{Value, json};

/// A row of steps, under an objective that makes the state long.
fn spec() -> String {
    let step = |n: u32| {
        let deps: Vec<String> = (n > 1).then(|| format!("s{}", n - 1)).into_iter().collect();
        json!({ "id": format!("s{n}"), "agent": "worker", "goal": format!("Step {n}"), "deps": deps })
    };
    let tasks: Vec<Value> = (1..=8).map(step).collect();
    json!({
        "kind": "supervisor", "preset": "shannon-dag", "name": "narrow", "objective": "Write it. ".repeat(1_500),
        "limits": { "history_events": 12 }, "agents": [{ "name": "worker" }],
        "script": [{ "on": "plan", "say": { "tasks": tasks } }, { "on": "execute_worker", "say": "done" },
            { "on": "synthesize", "say": "all is done" }],
    })
    .to_string()
}

/// How the chain ended, how many runs it had, and the turns of the first one.
async fn lived(payload_max: usize) -> (CloseOutcome, usize, Vec<Turn>) {
    let mut activities = ActivityRegistry::new();
    capability::register(&mut activities, &CapabilityConfig::default()).unwrap();
    let limited = |options: &mut WorkerOptions| options.limits.payload_max = payload_max;
    let environment = TestEnvironment::start_with(register(WorkflowRegistry::new()), activities, limited).unwrap();
    let client = environment.client();
    let target = Target::workflow(WorkflowId::of("narrow"));
    let input = SupervisorInput::new(read_spec("spec.yaml", &spec()).unwrap().resolve().unwrap());
    let start = StartWorkflow::new(WorkflowType::of(SUPERVISOR), target.workflow_id.clone());
    let started = client.start(start.input(Payload::encode(&input).unwrap())).await.unwrap();
    let wait = ResultRequest { follow_runs: true, timeout: Some(Duration::from_secs(60)) };
    let ended = client.result(&target, wait).await.unwrap().unwrap();
    let (mut runs, mut next) = (0, Some(started.run_id));
    while let Some(run) = next {
        runs += 1;
        let of_run = Target::run(target.workflow_id.clone(), run);
        next = client.describe(&of_run).await.unwrap().info.next_run;
    }
    let turns = client.turns(&Target::run(target.workflow_id, started.run_id)).await.unwrap();
    (ended.outcome, runs, turns)
}

#[tokio::test]
async fn a_run_whose_state_the_engine_does_not_take_stays_one_run() {
    let (wide, runs, _) = lived(2 * 1024 * 1024).await;
    assert!(runs > 1 && matches!(wide, CloseOutcome::Completed(_)), "{runs} {wide:?}");
    let (narrow, runs, turns) = lived(40_000).await;
    let CloseOutcome::Completed(result) = &narrow else { panic!("{narrow:?}") };
    assert_eq!((runs, &result.to_json()["final_result"]), (1, &json!("all is done")));
    let said = turns.iter().flat_map(|turn| &turn.events).filter(|event| match event {
        EventKind::MarkerRecorded(Marker::SideEffect { value, .. }) => {
            value.to_json().to_string().contains("bytes: the run goes on with a long history")
        }
        _ => false,
    });
    assert_eq!(said.count(), 1, "it is said once");
    // A worker that takes more replays it to the same.
    replay(&register(WorkflowRegistry::new()), &turns).map(drop).unwrap();
}
