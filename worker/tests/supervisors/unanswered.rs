//! Work that no rule of a spec answers, on the engine with the scripted capability itself: a scene would name the rule that
//! is missing before the run could.
//!
//! Invariant: in every family such a run is no success, has no result, and its error is the rule that is to be written.

use std::collections::BTreeMap;
use std::time::Duration;

use bosun_engine::testing::TestEnvironment;
use bosun_engine::workflow::WorkflowRegistry;
use bosun_engine::*;
use bosun_worker::capability::{self, CapabilityConfig};
use bosun_worker::supervisor::run::{SUPERVISOR, SupervisorInput, register};
use bosun_worker::supervisor::spec::read_spec;
use serde_json::Value;

/// How a run ended.
#[derive(Debug, Clone)]
pub(crate) struct Ended {
    pub(crate) report: Value,
    /// The keys of calls that were answered, a failure aside.
    pub(crate) answered: Vec<String>,
}

/// A run of this spec, from its beginning to its end.
pub(crate) fn ended(spec: &str) -> Ended {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut activities = ActivityRegistry::new();
        capability::register(&mut activities, &CapabilityConfig::default()).unwrap();
        let environment =
            TestEnvironment::start_with(register(WorkflowRegistry::new()), activities, |_: &mut WorkerOptions| {})
                .unwrap();
        let client = environment.client();
        let target = Target::workflow(WorkflowId::of("unanswered"));
        let read = read_spec("spec.yaml", spec).unwrap_or_else(|why| panic!("{why}\n{spec}"));
        let input = SupervisorInput::new(read.resolve().unwrap());
        let start = StartWorkflow::new(WorkflowType::of(SUPERVISOR), target.workflow_id.clone());
        client.start(start.input(Payload::encode(&input).unwrap())).await.unwrap();
        let wait = ResultRequest { follow_runs: false, timeout: Some(Duration::from_secs(60)) };
        assert!(client.result(&target, wait).await.unwrap().is_some(), "it does not end: {spec}");
        let turns = client.turns(&target).await.unwrap();
        let events: Vec<&EventKind> = turns.iter().flat_map(|turn| &turn.events).collect();
        let report = match events.last() {
            Some(EventKind::WorkflowExecutionCompleted { result, .. }) => result.to_json(),
            Some(EventKind::WorkflowExecutionFailed { failure, .. }) => match &failure.kind {
                FailureKind::Application { details: Some(details), .. } => details.to_json(),
                other => panic!("{failure}: {other:?}\n{spec}"),
            },
            other => panic!("{other:?}\n{spec}"),
        };
        Ended { report, answered: answered(&events) }
    })
}

fn report(spec: &str) -> Value {
    ended(spec).report
}

fn answered(events: &[&EventKind]) -> Vec<String> {
    let mut asked = BTreeMap::new();
    let mut answered = Vec::new();
    for event in events {
        match event {
            EventKind::ActivityTaskScheduled(task) => {
                let key = task.input.to_json()["key"].as_str().unwrap_or_default().to_owned();
                asked.insert(task.seq, key);
            }
            EventKind::ActivityTaskCompleted { seq, .. } => answered.extend(asked.get(seq).cloned()),
            _ => {}
        }
    }
    answered
}

/// Work that no rule of the spec answers is an error that names the rule, in every family.
#[test]
fn work_without_a_rule_is_an_error_that_names_the_rule() {
    let head = |preset: &str| format!("kind: supervisor\nname: s\npreset: {preset}\nobjective: o\n");
    for preset in ["flow-supervisor", "flow-plan-and-execute", "flow-coordinator", "shannon-supervisor", "shannon-dag"]
    {
        let direct = if preset == "shannon-supervisor" { "routing: { enabled: false }" } else { "" };
        let report = report(&format!(
            "{}{direct}\nagents: [{{ name: ann }}]\nscript:\n- {{ on: plan, say: {{ tasks: [{{ id: t1, goal: look }}] }} }}\n- {{ on: review, say: {{ assessments: [], needsReplanning: false, overallAssessment: so }} }}\n- {{ on: synthesize, say: summed up }}",
            head(preset)
        ));
        assert_eq!(report["success"], false, "{preset}");
        let why = report["tasks"][0]["error"].as_str().unwrap_or_default();
        assert!(why.contains("`- { on: execute_worker, task: t1, say: { ... } }`"), "{preset}: {report:#}");
    }
    let chat = format!(
        "{}agents: [{{ name: ann }}, {{ name: bob }}]\nspeaker: {{ method: round_robin }}",
        head("autogen-groupchat")
    );
    let agents = format!("{}agents: [{{ name: ann }}]", head("swarm-handoff"));
    for report in [report(&chat), report(&agents)] {
        assert_eq!((&report["success"], &report["final_result"]), (&Value::Bool(false), &Value::Null), "{report:#}");
        let why = report["error"].as_str().unwrap_or_default();
        assert!(why.contains("`- { on: execute_worker, agent: ann, say: { ... } }`"), "{report:#}");
    }
}
