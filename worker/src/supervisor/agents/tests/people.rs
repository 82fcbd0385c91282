//! People and a run of agents: what they are asked, and how their answers are read, through the workflow and the driver.

use std::sync::Arc;

use bosun_engine::workflow::WorkflowRegistry;
use bosun_engine::{ActivityRegistry, CloseOutcome};

use super::*;
use crate::capability::{self, CapabilityConfig};
use crate::stage::{Cue, Played, Stage};
use crate::supervisor::run::{SUPERVISOR, SupervisorOutput, register};

/// Somebody pays when a person approves of it.
async fn pay(cues: Vec<Cue>) -> Played {
    let pays = json!({ "tool_calls": [{ "name": "delegate_to_clerk", "args": { "task": "pay" } }] });
    let spec = json!({
        "kind": "supervisor", "name": "desk", "preset": "cuga-conversational", "objective": "pay the bill",
        "policies": [{ "type": "tool_approval", "name": "people", "tools": ["delegate_to_clerk"], "message": "Pay?" }],
        "agents": [
            { "name": "boss", "delegates": ["clerk"], "script": [
                { "on": "execute_worker", "round": 1, "say": pays }, { "on": "execute_worker", "say": "it is paid" },
            ] },
            { "name": "clerk", "script": [{ "on": "execute_worker", "say": "paid" }] },
        ],
    });
    let mut activities = ActivityRegistry::new();
    capability::register(&mut activities, &CapabilityConfig::default()).unwrap();
    let stage = Arc::new(Stage { workflows: register(WorkflowRegistry::new()), activities });
    let spec = crate::supervisor::spec::read_spec("spec.yaml", &spec.to_string()).unwrap_or_else(|why| panic!("{why}"));
    stage.play(SUPERVISOR, json!({ "resolved": spec.spec.resolve().unwrap() }), cues).await
}

fn asked(pending: &Value) -> bool {
    pending.as_array().is_some_and(|pending| pending.len() == 1)
}

fn result(played: &Played) -> Option<Value> {
    match &played.outcome {
        CloseOutcome::Completed(output) => output.decode::<SupervisorOutput>().unwrap().final_result,
        other => panic!("expected a completed run, got {other:?}"),
    }
}

/// CUG-39: words decide nothing about a tool, neither "yes" nor silence: the person is asked again, until they say which.
#[tokio::test]
async fn words_do_not_approve_a_tool() {
    let words = |text: &str| Cue::Signal("human_input_v1", json!(text));
    let played = pay(vec![
        Cue::Until("pending_interrupts", asked),
        words("yes"),
        Cue::Until("pending_interrupts", asked),
        words(""),
        Cue::Until("pending_interrupts", asked),
        Cue::Update("respond_interrupt", json!({ "resume": true })),
    ])
    .await;
    assert_eq!(result(&played), Some(json!("it is paid")));
    assert!(played.updates[0].is_ok());
}

/// An answer in a pause is given once: nobody is asked again before the run is resumed, or after.
#[tokio::test]
async fn an_answer_in_a_pause_is_not_asked_for_again() {
    let played = pay(vec![
        Cue::Until("pending_interrupts", asked),
        Cue::Signal("pause_v1", json!({})),
        Cue::Update("respond_interrupt", json!({ "resume": { "approved": true } })),
        Cue::Query("pending_interrupts"),
        Cue::Signal("resume_v1", json!({})),
    ])
    .await;
    assert_eq!(played.queries.last(), Some(&json!([])));
    assert_eq!(result(&played), Some(json!("it is paid")));
}
