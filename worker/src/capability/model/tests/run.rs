//! The activity in a workflow: the run machine repeats it, and nobody else does.

use std::sync::Mutex;

use bosun_engine::workflow::WorkflowRegistry;
use bosun_engine::{ActivityRegistry, CloseOutcome};
use serde_json::{Value, json};

use super::mock::MockAnswer;
use super::*;
use crate::capability::{self, CapabilityConfig};
use crate::examples::kitchen_sink::KITCHEN_SINK;
use crate::stage::Stage;

/// Runs one activity `model` against a mock with these answers, the last one for ever.
async fn run(answers: Vec<MockAnswer>) -> (CloseOutcome, usize) {
    let answers = Mutex::new(answers);
    let mock = MockProvider::start(move |_| {
        let mut answers = answers.lock().unwrap();
        if answers.len() > 1 { answers.remove(0) } else { answers[0].clone() }
    });
    let mock = mock.await.unwrap();
    let model = ModelConfig::default().with_provider("p", mock.config(Wire::Anthropic));
    let mut activities = ActivityRegistry::new();
    capability::register(&mut activities, &CapabilityConfig { model, ..CapabilityConfig::default() }).unwrap();
    let workflows = crate::examples::register(WorkflowRegistry::new());
    let input = serde_json::to_value(ModelInput::new("p", full_request())).unwrap();
    let activity = json!({"type": MODEL, "input": input, "as": "out", "retry": {"maximum_attempts": 5}});
    let program = json!({"steps": [{"activity": activity}, {"return": "$out"}]});
    let played = Arc::new(Stage { workflows, activities }).play(KITCHEN_SINK, program, vec![]).await;
    (played.outcome, mock.count())
}

fn limited_for_a_moment() -> MockAnswer {
    let body = json!({"type": "error", "error": {"type": "rate_limit_error", "message": "slow down"}});
    MockAnswer::Refuse { status: 429, headers: vec![("retry-after-ms".into(), "50".into())], body }
}

#[tokio::test]
async fn a_refusal_that_passes_is_repeated_by_the_engine_alone() {
    let answers = vec![limited_for_a_moment(), limited_for_a_moment(), mock::says("at last").into()];
    let (outcome, requests) = run(answers).await;
    let CloseOutcome::Completed(result) = outcome else { panic!("{outcome:?}") };
    let result: Value = result.to_json();
    assert_eq!((&result["response"]["said"]["content"], requests), (&json!("at last"), 3));
    assert_eq!(result["cost"], json!({"unpriced": "no price for p/mock-1"}));
}

#[tokio::test]
async fn what_needs_somebody_is_asked_once() {
    for (answer, failure_type) in [
        (MockAnswer::refuse(429, "insufficient_quota", "pay"), MODEL_NEEDS_HUMAN),
        (MockAnswer::refuse(422, "invalid_request_error", "what"), MODEL_FATAL),
    ] {
        let (outcome, requests) = run(vec![answer]).await;
        let CloseOutcome::Failed(failure) = outcome else { panic!("{outcome:?}") };
        assert_eq!((failure.type_name(), requests), (failure_type, 1));
    }
}
