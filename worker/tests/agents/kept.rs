//! A history of an agent that an older version recorded, by other rules than those of today: nothing of it is decided, and it can be
//! read, shown and compared as any other.
//!
//! Invariant: the file in `fixtures/agents/` is never changed, and cannot be written again: in it something is decided as it no
//! longer is.

use std::path::{Path, PathBuf};
use std::process::Command;

use bosun_engine::testing::TestEnvironment;
use bosun_engine::workflow::{Cx, StateMachine, WorkflowEvent, WorkflowRegistry};
use bosun_engine::*;
use bosun_replay::{History, HistoryLimits, Prefixes, Verdict, replay_history};
use bosun_worker::agent::{AGENT, register};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

fn file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/agents/other-rules.history.json")
}

/// It asks for an approval below a run that hears nothing of it.
#[test]
fn what_an_agent_did_by_other_rules_is_held_with_a_card_at_every_place() {
    let history = History::from_json(&std::fs::read(file()).unwrap(), &HistoryLimits::default()).unwrap();
    let text = history.to_json();
    assert!(text.contains("agent-rules-2") && text.contains("approval_response_v1"), "it is another history");
    let report = replay_history(&register(WorkflowRegistry::new()), &history, Prefixes::All);
    assert!(matches!(report.verdict, Verdict::NonDeterministic(_)), "{report}");
    let card = report.to_string();
    assert!(card.contains("begun by other rules of agents") && card.contains("bosun fork"), "{card}");
}

#[test]
fn what_an_agent_did_by_other_rules_is_shown_and_not_replayed_by_the_binary() {
    let told = |words: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_bosun")).args(words).arg(file()).output().unwrap();
        let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        (output.status.success(), said)
    };
    let (ok, shown) = told(&["replay", "show", "-o", "json"]);
    assert!(ok && shown.contains("approval_response_v1") && shown.contains("agent-rules-2"), "{shown}");
    let (ok, held) = told(&["replay", "check"]);
    assert!(!ok && held.contains("begun by other rules of agents"), "{held}");
}

/// The workflow as a program of before had it, which recorded no number.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct AgentOfBefore;

impl StateMachine for AgentOfBefore {
    const TYPE: &'static str = AGENT;
    type Input = Value;
    type Output = Value;

    fn start(_: Value, _: &mut Cx<'_>) -> Result<Self, Failure> {
        Ok(AgentOfBefore)
    }
    fn on_event(&mut self, _: WorkflowEvent, _: &mut Cx<'_>) -> Result<(), Failure> {
        Ok(())
    }
}

/// An open run of other rules is held by the worker that comes after, and its history is read and exported as before.
#[tokio::test]
async fn an_open_agent_of_other_rules_is_held_and_its_history_stays_readable() {
    let before = WorkflowRegistry::new().state_machine::<AgentOfBefore>();
    let environment = TestEnvironment::start_with(before, ActivityRegistry::new(), |_| {}).unwrap();
    let spec = json!({ "name": "ann", "provider": "p", "model": "m", "task": "t" });
    let request = StartWorkflow::new(AGENT.into(), "old".into()).input(Payload::encode(&spec).unwrap());
    environment.client().start(request).await.unwrap();
    let target = Target::workflow("old".into());
    let (name, input) = (SignalName::of("resume_v1"), Payload::null());
    let signal = SignalRequest { name, input, identity: None, request_id: None };
    environment.client().signal(&target, signal).await.unwrap();
    let written = environment.client().turns(&target).await.unwrap();

    let after = environment.crash(1, |options| options.workflows = register(WorkflowRegistry::new())).unwrap();
    let held = after.client().query(&target, &"state".into(), Payload::null()).await.unwrap_err().to_string();
    assert!(held.contains("held") && held.contains("begun by other rules of agents"), "{held}");
    let kept = after.client().turns(&target).await.unwrap();
    let info = after.client().describe(&target).await.unwrap().info;
    assert_eq!(info.status, WorkflowStatus::Running, "{kept:?}");
    assert_eq!(kept, written, "nothing is decided, and nothing is lost");
    assert!(History::new(kept).unwrap().to_json().contains("resume_v1"));
}
