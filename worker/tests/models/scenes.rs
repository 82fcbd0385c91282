//! Whole runs of presets on the engine, played by a provider.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bosun_engine::testing::TestEnvironment;
use bosun_engine::workflow::WorkflowRegistry;
use bosun_engine::*;
use bosun_worker::agent::{self, AGENT_MODEL, Conversations};
use bosun_worker::capability::model::mock::{MockAnswer, MockProvider, calls, says};
use bosun_worker::capability::model::{MODEL, Message, ModelConfig, Wire};
use bosun_worker::capability::{self, CapabilityConfig};
use bosun_worker::supervisor;
use bosun_worker::supervisor::run::{SUPERVISOR, SupervisorInput};
use bosun_worker::supervisor::spec::{Preset, Via, ViaModel, read_spec};
use serde_json::Value;
use tokio::sync::Notify;

use super::plays::play;

fn activities(model: ModelConfig, conversations: &Conversations) -> ActivityRegistry {
    let config = CapabilityConfig { model, ..CapabilityConfig::default() };
    let mut registry = ActivityRegistry::new();
    capability::register(&mut registry, &config).unwrap();
    agent::register_activities(&mut registry, conversations.clone());
    registry
}

fn workflows() -> WorkflowRegistry {
    agent::register(supervisor::register(WorkflowRegistry::new()))
}

/// A worker and its models.
pub(crate) struct Scene {
    environment: Option<TestEnvironment>,
    model: ModelConfig,
}

impl Scene {
    pub(crate) fn new(mock: &MockProvider, wire: Wire) -> Scene {
        Scene::of(ModelConfig::default().with_provider("mock", mock.config(wire)))
    }
    pub(crate) fn of(model: ModelConfig) -> Scene {
        let conversations = Conversations::default();
        let environment = TestEnvironment::start(workflows(), activities(model.clone(), &conversations)).unwrap();
        conversations.attach(Arc::new(environment.client()));
        Scene { environment: Some(environment), model }
    }
    pub(crate) fn client(&self) -> Client {
        self.environment.as_ref().unwrap().client()
    }
    pub(crate) async fn settle(&self) {
        self.environment.as_ref().unwrap().settle().await;
    }
    /// A power cut; what was under way is gone.
    fn crash(&mut self, seed: u64) {
        let conversations = Conversations::default();
        let activities = activities(self.model.clone(), &conversations);
        let after = self.environment.take().unwrap().crash(seed, |options| options.activities = activities).unwrap();
        conversations.attach(Arc::new(after.client()));
        self.environment = Some(after);
    }
    /// Starts the run of a spec.
    async fn start_text(&self, text: &str) {
        let spec = read_spec("spec.yaml", text).unwrap_or_else(|why| panic!("{why}")).spec;
        let input = SupervisorInput::new(spec.resolve().unwrap());
        let request = StartWorkflow::new(SUPERVISOR.into(), "run".into()).input(Payload::encode(&input).unwrap());
        self.client().start(request).await.unwrap();
    }
    pub(crate) async fn start(&self, preset: Preset) {
        let path = format!("{}/../fixtures/supervisors/presets/{}.yaml", env!("CARGO_MANIFEST_DIR"), preset.name());
        let mut file = read_spec(&path, &std::fs::read_to_string(&path).unwrap()).unwrap_or_else(|why| panic!("{why}"));
        file.spec.via =
            Via::Model(ViaModel { provider: Some("mock".into()), name: Some("mock-1".into()), ..ViaModel::default() });
        let input = SupervisorInput::new(file.spec.resolve().unwrap_or_else(|why| panic!("{why}")));
        let request = StartWorkflow::new(SUPERVISOR.into(), "run".into()).input(Payload::encode(&input).unwrap());
        self.client().start(request).await.unwrap();
    }
    pub(crate) async fn report(&self) -> Value {
        let wait = ResultRequest { follow_runs: true, timeout: Some(Duration::from_secs(180)) };
        let result = self.client().result(&Target::workflow("run".into()), wait).await.unwrap();
        match result.expect("it ends in time").outcome {
            CloseOutcome::Completed(report) => report.to_json(),
            other => panic!("{other:?}"),
        }
    }
}

/// How many model calls the histories of the run and all below it hold: asked for, and answered.
async fn recorded(client: &Client) -> (usize, usize) {
    let (mut asked, mut answered) = (0, 0);
    for run in client.list(ListRequest { query: String::new(), limit: 1_000 }).await.unwrap() {
        let target = Target { run_id: Some(run.run_id), ..Target::workflow(run.workflow_id) };
        let mut models = BTreeSet::new();
        for event in client.history(&target, EventId(1), 100_000).await.unwrap() {
            match &event.kind {
                EventKind::ActivityTaskScheduled(task)
                    if [MODEL, AGENT_MODEL].contains(&task.activity_type.as_str()) =>
                {
                    models.insert(task.seq);
                    asked += 1;
                }
                EventKind::ActivityTaskCompleted { seq, .. } if models.contains(seq) => answered += 1,
                _ => {}
            }
        }
    }
    (asked, answered)
}

/// Each preset, played by models from its planner to its last worker, comes to its end; each call is one request.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_preset_is_played_by_models() {
    for (place, preset) in Preset::ALL.into_iter().enumerate() {
        let mock = MockProvider::start(play).await.unwrap();
        let wire = if place % 2 == 0 { Wire::OpenAi } else { Wire::Anthropic };
        let scene = Scene::new(&mock, wire);
        scene.start(preset).await;
        let report = scene.report().await;
        assert_eq!(report["status"], "completed", "{}: {report:#}", preset.name());
        assert!(report["final_result"].to_string().contains("done"), "{}: {report:#}", preset.name());
        let requests = mock.count();
        assert_eq!(recorded(&scene.client()).await, (requests, requests), "{}", preset.name());
        assert!(requests >= 1 && mock.asked().iter().all(|asked| asked.wire == wire), "{}", preset.name());
    }
}

/// The power is cut after each request of each preset: what was recorded is never asked for again, so that at most the
/// calls that were under way are made twice, and the end is the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_recorded_is_never_asked_for_again() {
    for preset in Preset::ALL {
        let mut cut_after = 1;
        loop {
            let (reached, cut) = (Arc::new(Notify::new()), AtomicUsize::new(cut_after));
            let reaches = reached.clone();
            // The last request before the cut is under way when the power goes.
            let mock = MockProvider::start(move |request| match cut.fetch_sub(1, Ordering::SeqCst) {
                1 => {
                    reaches.notify_one();
                    play(request).later(Duration::from_millis(50))
                }
                _ => play(request),
            });
            let mock = mock.await.unwrap();
            let mut scene = Scene::new(&mock, Wire::OpenAi);
            scene.start(preset).await;
            tokio::select! {
                biased;
                () = reached.notified() => {}
                _ = scene.report() => break,
            }
            let (_, answered) = recorded(&scene.client()).await;
            scene.crash(cut_after as u64);
            // What was asked for before the cut and not recorded may be asked for again, and nothing else.
            let under_way = mock.count() - answered;
            let report = scene.report().await;
            assert_eq!(report["status"], "completed", "{} cut after {cut_after}: {report:#}", preset.name());
            let (asked, _) = recorded(&scene.client()).await;
            let twice = mock.count().saturating_sub(asked);
            assert!(twice <= under_way, "{} cut after {cut_after}: {twice} twice", preset.name());
            cut_after += 1;
        }
        assert!(cut_after > 1, "{} was cut", preset.name());
    }
}

/// A provider that wants a key stops the run with its reason, and nothing is lost: with the key the run goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_key_pauses_the_run_until_somebody_resumes_it() {
    for preset in [Preset::SwarmHandoff, Preset::FlowSupervisor, Preset::AutogenGroupChat] {
        refused(preset).await;
    }
}

async fn refused(preset: Preset) {
    let refused = Arc::new(AtomicBool::new(true));
    let refuses = refused.clone();
    let mock = MockProvider::start(move |request| match refuses.load(Ordering::SeqCst) {
        true => MockAnswer::refuse(401, "invalid_api_key", "no such key"),
        false => play(request),
    });
    let mock = mock.await.unwrap();
    let scene = Scene::new(&mock, Wire::OpenAi);
    scene.start(preset).await;
    scene.settle().await;
    let target = Target::workflow("run".into());
    let parked = scene.client().query(&target, &"parked".into(), Payload::null()).await.unwrap().to_json();
    assert_eq!(parked["parked"], true, "{parked}");
    assert!(parked["waits"][0].as_str().is_some_and(|why| why.contains("no such key")), "{parked}");
    refused.store(false, Ordering::SeqCst);
    let input = Payload::encode(&serde_json::json!({})).unwrap();
    let signal = SignalRequest { name: "resume_v1".into(), input, identity: None, request_id: None };
    scene.client().signal(&target, signal).await.unwrap();
    assert_eq!(scene.report().await["status"], "completed");
    assert_eq!(mock.count(), 1 + recorded(&scene.client()).await.1, "the refused request, and each other once");
}

/// A planner whose second answer the provider refuses for good has been paid for the first one: the report of the run that
/// failed says so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_fails_is_paid_for() {
    let asked = AtomicUsize::new(0);
    let mock = MockProvider::start(move |_| match asked.fetch_add(1, Ordering::SeqCst) {
        0 => says("this is no plan").into(),
        _ => MockAnswer::refuse(400, "invalid_request_error", "never again"),
    });
    let mock = mock.await.unwrap();
    let scene = Scene::new(&mock, Wire::OpenAi);
    scene.start(Preset::FlowSupervisor).await;
    let wait = ResultRequest { follow_runs: true, timeout: Some(Duration::from_secs(180)) };
    let result = scene.client().result(&Target::workflow("run".into()), wait).await.unwrap();
    let outcome = result.expect("it ends in time").outcome;
    let CloseOutcome::Failed(failure) = outcome else { panic!("{outcome:?}") };
    assert!(failure.to_string().contains("never again"), "{failure}");
    let FailureKind::Application { details: Some(report), .. } = &failure.kind else { panic!("{failure:?}") };
    // What the second call would have cost is not known; the first took 10 and 5 tokens.
    assert!(report.to_json()["tokens"].as_u64() >= Some(15), "{}", report.to_json());
    assert_eq!(mock.count(), 2);
}

/// G41: the budget of a run is shared with the agents below it: each begins with what is left and holds each call against it
/// before the call; when that is too little nothing more starts, and the run ends with what there is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_budget_of_a_run_is_that_of_its_agents() {
    let text = "
preset: shannon-dag
objective: five looks
planner: { script: [ { on: plan, say: { subtasks: [ { id: a, description: a, agent: w }, { id: b, description: b, agent: w, deps: [a] },
  { id: c, description: c, agent: w, deps: [b] }, { id: d, description: d, agent: w, deps: [c] }, { id: e, description: e, agent: w, deps: [d] } ] } } ] }
dispatch: { parallelism: sequential }
budget: { tokens: 400, on_exhausted: stop }
synthesis: { mode: none }
agents: [ { name: w, via: { model: { provider: mock, name: mock-1, max_tokens: 200 } } } ]
";
    let mock = MockProvider::start(|_| {
        let mut said = says("seen");
        (said.usage.input, said.usage.output) = (Some(60), Some(30));
        said
    });
    let mock = mock.await.unwrap();
    let scene = Scene::new(&mock, Wire::OpenAi);
    scene.start_text(text).await;
    let report = scene.report().await;
    let (tokens, asked) = (report["tokens"].as_u64().unwrap(), mock.count() as u64);
    assert_eq!(tokens, 90 * asked, "{report:#}");
    assert!(
        (1..=4).contains(&asked) && tokens <= 400,
        "{asked} calls of 90 tokens, with 200 held for an answer: {report:#}"
    );
    let statuses: Vec<&str> =
        report["tasks"].as_array().unwrap().iter().filter_map(|task| task["status"].as_str()).collect();
    let done = statuses.iter().filter(|status| **status == "completed").count() as u64;
    assert_eq!((done, statuses.last()), (asked, Some(&"skipped")), "{report:#}");
    assert!(report.to_string().contains("the budget of the run is spent"), "{report:#}");
}

/// G41: workers side by side never spend more than the run has, together; and one that needs more than its first share is
/// lent more, as long as there is some.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_side_by_side_share_the_budget() {
    let looks = |id: &str| format!("{{ id: {id}, description: {id}, agent: w }}");
    let looks: Vec<String> = ["a", "b", "c", "d", "e", "f"].map(looks).into();
    for (budget, completed) in [(1_500, None), (20_000, Some(6))] {
        let text = format!(
            "
preset: shannon-dag
objective: six looks
planner: {{ script: [ {{ on: plan, say: {{ subtasks: [ {} ] }} }} ] }}
dispatch: {{ max_concurrency: 6 }}
budget: {{ tokens: {budget}, on_exhausted: stop }}
synthesis: {{ mode: none }}
agents: [ {{ name: w, via: {{ model: {{ provider: mock, name: mock-1, max_tokens: 200, tools: [
  {{ name: look, parameters: {{ type: object }}, does: {{ activity: {{ activity_type: echo }} }} }} ] }} }} }} ]
",
            looks.join(", ")
        );
        // Each worker looks three times before it knows.
        let mock = MockProvider::start(|request| {
            let looked = request.messages.iter().filter(|message| matches!(message, Message::Tool { .. })).count();
            let mut said = if looked < 3 { calls("look", serde_json::json!({ "at": looked })) } else { says("seen") };
            (said.usage.input, said.usage.output) = (Some(60), Some(30));
            said
        });
        let mock = mock.await.unwrap();
        let scene = Scene::new(&mock, Wire::OpenAi);
        scene.start_text(&text).await;
        let report = scene.report().await;
        let (tokens, asked) = (report["tokens"].as_u64().unwrap(), mock.count() as u64);
        assert_eq!(tokens, 90 * asked, "{report:#}");
        assert!(tokens <= budget && asked > 6, "{asked} calls: {report:#}");
        let done = report["tasks"].as_array().unwrap().iter().filter(|task| task["status"] == "completed").count();
        assert!(completed.is_none_or(|completed| done == completed), "{report:#}");
        assert!(done >= 1, "somebody gets what it needs: {report:#}");
    }
}

/// G41: a run that asks is paused when its budget is spent, workers that wait for a share included; with more, and a resume,
/// it goes on where it was.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_asks_waits_for_more_and_goes_on() {
    let text = "
preset: shannon-dag
objective: two looks
planner: { script: [ { on: plan, say: { subtasks: [ { id: a, description: a, agent: w }, { id: b, description: b, agent: w } ] } } ] }
budget: { tokens: 800, on_exhausted: ask }
synthesis: { mode: none }
agents: [ { name: w, via: { model: { provider: mock, name: mock-1, max_tokens: 200, tools: [
  { name: look, parameters: { type: object }, does: { activity: { activity_type: echo } } } ] } } } ]
";
    let mock = MockProvider::start(|request| {
        let looked = request.messages.iter().filter(|message| matches!(message, Message::Tool { .. })).count();
        let at = serde_json::json!({ "at": looked });
        let mut said = if looked < 5 { calls("look", at) } else { says("seen") };
        (said.usage.input, said.usage.output) = (Some(60), Some(30));
        said
    });
    let mock = mock.await.unwrap();
    let scene = Scene::new(&mock, Wire::OpenAi);
    scene.start_text(text).await;
    let target = Target::workflow("run".into());
    let send = async |name: &str, input: Value| {
        let input = Payload::encode(&input).unwrap();
        let signal = SignalRequest { name: name.into(), input, identity: None, request_id: None };
        scene.client().signal(&target, signal).await.unwrap();
    };
    scene.settle().await;
    let asked = mock.count() as u64;
    let parked = scene.client().query(&target, &"parked".into(), Payload::null()).await.unwrap().to_json();
    assert!(parked["parked"] == true && parked["waits"][0].as_str().unwrap().contains("budget"), "{parked}");
    assert!((1..=8).contains(&asked), "90 tokens a call of 800: {asked}");
    // A resume alone asks again, and asks no model.
    send("resume_v1", serde_json::json!({})).await;
    scene.settle().await;
    let parked = scene.client().query(&target, &"parked".into(), Payload::null()).await.unwrap().to_json();
    assert_eq!((parked["parked"].clone(), mock.count() as u64), (Value::Bool(true), asked), "{parked}");
    send("budget_top_up_v1", serde_json::json!({ "tokens": 5_000 })).await;
    send("resume_v1", serde_json::json!({})).await;
    let report = scene.report().await;
    assert_eq!((report["status"].as_str(), mock.count()), (Some("completed"), 12), "{report:#}");
    assert_eq!(report["tokens"], 12 * 90, "{report:#}");
}

/// G41: a supervisor below has a part of the budget and no more, and what it spent is its parent's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn supervisors_below_share_the_budget() {
    // What the budget leaves undone below is left out, and is no failure of the crew.
    for (looks, status, code) in [(2, "completed", None), (usize::MAX, "skipped", Some("budget_exhausted"))] {
        let text = "
preset: shannon-dag
objective: two crews
planner: { script: [ { on: plan, say: { subtasks: [ { id: a, description: a, agent: crew }, { id: b, description: b, agent: crew, deps: [a] } ] } } ] }
dispatch: { parallelism: sequential }
budget: { tokens: 2000, on_exhausted: stop }
synthesis: { mode: none }
agents: [ { name: crew, via: { supervisor: { spec: { preset: shannon-simple, objective: look, failure: { tries: 1 },
  agents: [ { name: w, via: { model: { provider: mock, name: mock-1, max_tokens: 200, tools: [
    { name: look, parameters: { type: object }, does: { activity: { activity_type: echo } } } ] } } } ] } } } } ]
";
        let mock = MockProvider::start(move |request| {
            let looked = request.messages.iter().filter(|message| matches!(message, Message::Tool { .. })).count();
            let at = serde_json::json!({ "at": looked });
            let mut said = if looked < looks { calls("look", at) } else { says("seen") };
            (said.usage.input, said.usage.output) = (Some(60), Some(30));
            said
        });
        let mock = mock.await.unwrap();
        let scene = Scene::new(&mock, Wire::OpenAi);
        scene.start_text(text).await;
        let report = scene.report().await;
        let (tokens, asked) = (report["tokens"].as_u64().unwrap(), mock.count() as u64);
        assert_eq!(tokens, 90 * asked, "{report:#}");
        assert!(tokens <= 2_000 && asked >= 6, "{asked} calls: {report:#}");
        assert_eq!(
            (report["tasks"][1]["status"].as_str(), report["code"].as_str()),
            (Some(status), code),
            "{report:#}"
        );
    }
}

/// G41: supervisors below that begin side by side wait for a part that is of use, rather than begin with none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn supervisors_side_by_side_wait_for_their_part() {
    let crews: Vec<String> =
        ["a", "b", "c", "d", "e", "f"].map(|id| format!("{{ id: {id}, description: {id}, agent: crew }}")).into();
    let text = format!(
        "
preset: shannon-dag
objective: six crews
planner: {{ script: [ {{ on: plan, say: {{ subtasks: [ {} ] }} }} ] }}
dispatch: {{ max_concurrency: 6 }}
budget: {{ tokens: 6000, on_exhausted: stop }}
synthesis: {{ mode: none }}
agents: [ {{ name: crew, via: {{ supervisor: {{ spec: {{ preset: shannon-simple, objective: look, failure: {{ tries: 1 }},
  agents: [ {{ name: w, via: {{ model: {{ provider: mock, name: mock-1, max_tokens: 200 }} }} }} ] }} }} }} }} ]
",
        crews.join(", ")
    );
    let mock = MockProvider::start(|_| {
        let mut said = says("seen");
        (said.usage.input, said.usage.output) = (Some(60), Some(30));
        said
    });
    let mock = mock.await.unwrap();
    let scene = Scene::new(&mock, Wire::OpenAi);
    scene.start_text(&text).await;
    let report = scene.report().await;
    let done = report["tasks"].as_array().unwrap().iter().filter(|task| task["status"] == "completed").count();
    assert_eq!((done, mock.count(), report["tokens"].as_u64()), (6, 6, Some(540)), "{report:#}");
}

/// What an agent spent before somebody cancelled it is charged to the run, beside what its next attempt spends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_agent_is_paid_for() {
    let (asked, waits) = (AtomicUsize::new(0), Arc::new(Notify::new()));
    let reaches = waits.clone();
    let mock = MockProvider::start(move |_| match asked.fetch_add(1, Ordering::SeqCst) {
        0 => calls("nothing", serde_json::json!({})).into(),
        1 => {
            reaches.notify_one();
            MockAnswer::from(says("too late")).later(Duration::from_secs(120))
        }
        _ => says("seen").into(),
    });
    let mock = mock.await.unwrap();
    let scene = Scene::new(&mock, Wire::OpenAi);
    let text = "
preset: shannon-simple
objective: look
failure: { tries: 2 }
agents: [ { name: w, via: { model: { provider: mock, name: mock-1 } } } ]
";
    scene.start_text(text).await;
    waits.notified().await;
    let open = ListRequest { query: "WorkflowType = 'agent'".into(), limit: 10 };
    let agent = scene.client().list(open).await.unwrap().remove(0);
    scene.client().cancel(&Target::workflow(agent.workflow_id), "enough".into(), None, None).await.unwrap();
    let report = scene.report().await;
    assert_eq!(report["final_result"], "seen", "{report:#}");
    assert!(report["tokens"].as_u64() >= Some(30), "15 before it was cancelled, and 15 after: {report:#}");
}
