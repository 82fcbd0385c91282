//! An agent that goes on in new runs: its model is told what it would be told in one run, over crashes, and nothing is done twice.

use std::time::Duration;

use bosun_engine::workflow::WorkflowRegistry;
use bosun_engine::*;
use bosun_replay::{History, Prefixes, Verdict, replay_history};
use bosun_worker::agent::machine::AgentStopReason;
use bosun_worker::agent::register;
use bosun_worker::capability::model::{ChatRequest, Message};
use serde_json::{Value, json};

use super::scenes::{Says, Scene, looks, spec, turn};

type Model = fn(&ChatRequest, u32) -> Says;

/// All requests of these runs, in order.
fn requests(scene: &Scene, runs: &[RunInfo]) -> Vec<ChatRequest> {
    let asked = scene.log.models.lock().unwrap();
    let of_run = |run: &RunInfo| {
        let of_run = asked.iter().filter(|((id, _), _)| *id == run.run_id);
        of_run.flat_map(|(_, requests)| requests.clone()).collect::<Vec<_>>()
    };
    runs.iter().flat_map(of_run).collect()
}

/// The runs of the chain, each of which replays from every prefix.
async fn chain(scene: &Scene, id: &str) -> Vec<RunInfo> {
    let client = scene.environment().client();
    let last = client.describe(&Target::workflow(id.into())).await.unwrap().info;
    let (mut runs, mut next) = (Vec::new(), Some(last.first_run));
    while let Some(run) = next {
        let target = Target::run(id.into(), run);
        let history = History::new(client.turns(&target).await.unwrap()).unwrap();
        let report = replay_history(&register(WorkflowRegistry::new()), &history, Prefixes::All);
        assert_eq!(report.verdict, Verdict::Ok, "{report}");
        let info = client.describe(&target).await.unwrap().info;
        next = info.next_run;
        runs.push(info);
    }
    runs
}

fn limited(events: u64, more: Value) -> Value {
    let mut limits = json!({ "history_events": events, "max_steps": 200 });
    limits.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let mut spec = spec(json!({ "limits": limits }));
    // What a crash has cut is made again.
    spec["tools"][0]["attempts"] = json!(50);
    spec
}

/// Talks, and sums up when it is asked to.
fn talks(request: &ChatRequest, attempt: u32) -> Says {
    let asked = |message: &Message| matches!(message, Message::User { content } if content.contains("Sum up this"));
    match request.messages.iter().any(asked) {
        true => Ok((format!("what matters of {} messages", request.messages.len()), Vec::new())),
        false if request.messages.iter().any(|message| json!(message).to_string().contains("seen 29")) => {
            Ok(("done".to_owned(), Vec::new()))
        }
        false => {
            let seen = |message: &Message| match message {
                Message::Tool { content, .. } => content.strip_prefix("seen ")?.parse::<usize>().ok(),
                _ => None,
            };
            let at = request.messages.iter().filter_map(seen).max().map_or(attempt as usize - 1, |last| last + 1);
            Ok(("x".repeat(200), vec![("look".to_owned(), json!({ "at": at }))]))
        }
    }
}

#[tokio::test]
async fn in_many_runs_the_model_hears_what_it_hears_in_one() {
    let of = async |events: u64, more: Value, model: Model| {
        let scene = Scene::new(model);
        scene.start("a", &limited(events, more)).await;
        let output = scene.output("a").await;
        let runs = chain(&scene, "a").await;
        assert!(runs.iter().all(|run| run.history.events < events + 40), "{runs:?}");
        (requests(&scene, &runs), json!(output), runs.len())
    };
    let (looking, talking): (Model, Model) = (|request, attempt| looks(20)(request, attempt), talks);
    for (more, model) in [(json!({}), looking), (json!({ "context_tokens": 600 }), talking)] {
        let (one, ended, runs) = of(100_000, more.clone(), model).await;
        assert_eq!((runs, &ended["stop"]), (1, &json!("completed")), "{ended}");
        for events in [1, 10, 35] {
            let (many, also, runs) = of(events, more.clone(), model).await;
            assert!(runs > 2, "{runs} runs");
            assert_eq!(one.len(), many.len());
            assert_eq!(one, many);
            assert_eq!(also, ended);
        }
    }
}

/// The power is cut while the conversation is carried, and before and after.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_at_the_border_loses_nothing() {
    let calm = Scene::new(looks(12));
    calm.start("a", &limited(12, json!({}))).await;
    calm.output("a").await;
    let one = requests(&calm, &chain(&calm, "a").await);
    for seed in 0..8 {
        let mut scene = Scene::new(looks(12));
        scene.start("a", &limited(12, json!({}))).await;
        for n in 0..4 {
            tokio::time::sleep(Duration::from_millis(7 * (seed + n) % 40)).await;
            scene.crash(seed * 10 + n, looks(12));
        }
        let output = scene.output("a").await;
        assert_eq!((output.stop, output.spent.steps), (AgentStopReason::Completed, 13));
        let runs = chain(&scene, "a").await;
        assert!(runs.len() > 2);
        let mut told = requests(&scene, &runs);
        // Attempts that a crash has cut are made again.
        told.dedup();
        assert_eq!(told, one, "seed {seed}");
    }
}

/// Its time is over when it would be in one run; a pause goes along.
#[tokio::test]
async fn a_pause_and_the_time_of_the_agent_go_along() {
    let scene = Scene::new(looks(8));
    let limits = json!({ "wall_ms": 3_600_000 });
    scene.start("a", &limited(6, limits.clone())).await;
    scene.output("a").await;
    let runs = chain(&scene, "a").await;
    assert!(runs.len() > 2, "{runs:?}");
    let client = scene.environment().client();
    let mut ends = Vec::new();
    for run in runs {
        let turns = client.turns(&Target::run("a".into(), run.run_id)).await.unwrap();
        ends.extend(turns.iter().flat_map(|turn| &turn.events).find_map(|event| match event {
            EventKind::TimerStarted { fire_at, .. } => Some(*fire_at),
            _ => None,
        }));
        assert_eq!(ends.last(), ends.first(), "each run has as much time as is left");
    }
    assert!(ends.len() > 2);
    scene.start("b", &limited(6, limits)).await;
    scene.signal("b", "pause_v1", &json!({ "reason": "wait" })).await;
    scene.environment().sleep(Duration::from_secs(7_200)).await;
    scene.signal("b", "resume_v1", &json!({})).await;
    let output = scene.output("b").await;
    assert_eq!((output.stop, output.spent.steps), (AgentStopReason::Completed, 9), "{:?}", output.text);
    assert!(chain(&scene, "b").await.len() > 1);
}

/// An engine that takes less than a cluster does.
#[tokio::test]
async fn what_is_too_large_stays_in_one_run() {
    let says = |request: &ChatRequest, _: u32| match turn(request) {
        turn @ 0..8 => Ok(("x".repeat(4_000), vec![("look".to_owned(), json!({ "at": turn }))])),
        _ => Ok(("done".to_owned(), Vec::new())),
    };
    let scene = Scene::with(says, |options| options.limits.payload_max = 25_000);
    scene.start("a", &limited(40, json!({}))).await;
    assert_eq!(scene.output("a").await.text, "done");
    assert_eq!(chain(&scene, "a").await.len(), 1);
    let said = scene.query("a", "state").await.to_string();
    assert!(said.contains("stays_in_one_run"), "{said}");
}
