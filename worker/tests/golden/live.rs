//! Lets a scenario happen on the engine: in the process, in skipped time, with the scripted capability.
//!
//! Invariant: the same scenario gives the same history, bit for bit: run ids come from the virtual clock, answers from
//! the script, and a person acts only when everything else at that moment is done.

use std::time::Duration;

use bosun_engine::testing::TestEnvironment;
use bosun_engine::*;
use bosun_replay::History;
use bosun_worker::capability::{self, CapabilityConfig};
use bosun_worker::supervisor::run::{SUPERVISOR, SupervisorInput};
use bosun_worker::supervisor::spec::read_spec;
use serde::Deserialize;
use serde_json::Value;

use super::{Scenario, code};

/// One thing that a person does. First time passes: so many seconds, then until the query answers something.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Cue {
    #[serde(default)]
    after: u64,
    /// A query: its answer is no longer null or empty.
    until: Option<String>,
    #[serde(flatten)]
    act: Act,
    /// `{{id}}` is the `id` of what the query shows first.
    #[serde(default)]
    input: Value,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Act {
    Signal(String),
    Update(String),
}

/// How long a person waits to be asked.
const PATIENCE: u64 = 3_600;

/// Why a life does not count: time went on before an update was taken.
const SLIPPED: &str = "time has slipped";

/// The history of the scenario's run. Who waits for an update lets time pass (engine.md E40), and now and then it is
/// faster than the update: then the scenario is lived again.
pub(crate) fn play(scenario: Scenario) -> Result<History, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut lives = (0..50).map(|_| runtime.block_on(lived(scenario)));
    lives.find(|life| life.as_ref().err().is_none_or(|why| why != SLIPPED)).unwrap_or_else(|| Err(SLIPPED.to_owned()))
}

async fn lived(scenario: Scenario) -> Result<History, String> {
    let mut activities = ActivityRegistry::new();
    capability::register(&mut activities, &CapabilityConfig::default()).unwrap();
    let quiet = |options: &mut WorkerOptions| options.housekeeping_every = Duration::from_secs(1 << 30);
    let environment = TestEnvironment::start_with(code(), activities, quiet).unwrap();
    let client = environment.client();
    let target = Target::workflow(WorkflowId::of(scenario.id()));
    let input = Payload::encode(&input(scenario)).unwrap();
    let start = StartWorkflow::new(WorkflowType::of(SUPERVISOR), target.workflow_id.clone()).input(input);
    client.start(start).await.unwrap();
    environment.settle().await;
    for (n, cue) in cues(scenario).into_iter().enumerate() {
        perform(&environment, &target, n, cue).await?;
        environment.settle().await;
    }
    let wait = ResultRequest { follow_runs: false, timeout: Some(Duration::from_secs(120)) };
    if client.result(&target, wait).await.unwrap().is_none() {
        return Err(format!("it does not end: {}", progress(&client, &target).await));
    }
    Ok(History::new(client.turns(&target).await.unwrap()).unwrap())
}

async fn progress(client: &Client, target: &Target) -> String {
    let shown = client.query(target, &"progress".into(), Payload::null()).await;
    shown.map_or_else(|why| why.to_string(), |shown| format!("{:#}", shown.to_json()))
}

fn input(scenario: Scenario) -> SupervisorInput {
    let path = scenario.file("yaml");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
    let file = read_spec(&path.display().to_string(), &text).unwrap_or_else(|why| panic!("{why}"));
    SupervisorInput::new(file.resolve().unwrap_or_else(|why| panic!("{why}")))
}

/// Most scenarios do without a person.
fn cues(scenario: Scenario) -> Vec<Cue> {
    let path = scenario.file("cues.yaml");
    let Ok(text) = std::fs::read_to_string(&path) else { return Vec::new() };
    serde_saphyr::from_str(&text).unwrap_or_else(|why| panic!("{}: {why}", path.display()))
}

async fn perform(environment: &TestEnvironment, target: &Target, n: usize, cue: Cue) -> Result<(), String> {
    let client = environment.client();
    if cue.after > 0 {
        environment.sleep(Duration::from_secs(cue.after)).await;
        environment.settle().await;
    }
    let mut input = cue.input;
    if let Some(query) = &cue.until {
        let shown = shown(environment, target, query).await?;
        fill(&mut input, shown["id"].as_str().or(shown["interrupt_id"].as_str()).unwrap_or_default());
    }
    let input = Payload::encode(&input).unwrap();
    match cue.act {
        Act::Signal(name) => {
            let request_id = Some(RequestId::of(format!("cue-{n}")));
            let signal = SignalRequest { name: SignalName::of(name), input, identity: None, request_id };
            client.signal(target, signal).await.map_err(|why| why.to_string())
        }
        Act::Update(name) => {
            let (update_id, wait) = (UpdateId::of(format!("cue-{n}")), UpdateWait::Completed);
            let request = UpdateRequest { update_id, name: UpdateName::of(name), input, identity: None, wait };
            let before = environment.now();
            let answer = client.update(target, request).await;
            match answer {
                _ if environment.now() != before => Err(SLIPPED.to_owned()),
                Ok(UpdateOutcome::Completed(Ok(_))) => Ok(()),
                other => Err(format!("cue {n}: {other:?}")),
            }
        }
    }
}

/// The first of what the query shows, as soon as it shows something.
async fn shown(environment: &TestEnvironment, target: &Target, query: &str) -> Result<Value, String> {
    let client = environment.client();
    for _ in 0..PATIENCE {
        let answer = client.query(target, &query.into(), Payload::null()).await.map_err(|why| why.to_string())?;
        match answer.to_json() {
            Value::Array(list) if !list.is_empty() => return Ok(list.into_iter().next().unwrap_or_default()),
            Value::Object(map) if !map.is_empty() => return Ok(Value::Object(map)),
            _ => environment.sleep(Duration::from_secs(1)).await,
        }
        environment.settle().await;
    }
    Err(format!("nothing is to be seen in {query}; {}", progress(&client, target).await))
}

fn fill(value: &mut Value, id: &str) {
    match value {
        Value::String(text) if text == "{{id}}" => id.clone_into(text),
        Value::Array(list) => list.iter_mut().for_each(|value| fill(value, id)),
        Value::Object(map) => map.values_mut().for_each(|value| fill(value, id)),
        _ => {}
    }
}
