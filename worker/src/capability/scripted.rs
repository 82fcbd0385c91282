//! The `scripted` capability: says what a script has decided, for runs without models (supervisors.md §5.6).
//!
//! Invariant: it only says; which rule answers is decided by the workflow, and how long it takes is a timer there. It
//! touches nothing.

use bosun_engine::{ActivityContext, ActivityError, ActivityRegistry, Failure};
use serde::Deserialize;
use serde_json::Value;

pub const SCRIPTED: &str = "scripted";
/// The failure type of an answer that was scripted to fail.
pub const SCRIPTED_FAILURE: &str = "ScriptedFailure";

/// What is to be said. The rest of the input is there to be read in the history.
#[derive(Debug, Deserialize)]
struct ScriptedInput {
    answer: ScriptedAnswer,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ScriptedAnswer {
    Say(Value),
    Fail(String),
}

pub(super) fn register(registry: &mut ActivityRegistry) {
    registry.register(SCRIPTED, scripted);
}

async fn scripted(_context: ActivityContext, input: ScriptedInput) -> Result<Value, ActivityError> {
    match input.answer {
        ScriptedAnswer::Say(value) => Ok(value),
        ScriptedAnswer::Fail(why) => {
            Err(ActivityError::Failure(Failure::application(SCRIPTED_FAILURE, why).non_retryable()))
        }
    }
}
