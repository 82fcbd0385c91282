//! The determinism test of arbitrary programs of the kitchen sink.
//!
//! Invariant: every program is valid, and says so; which lives are lived is not decided here.

use bosun_engine::CloseOutcome;
use bosun_engine::workflow::WorkflowRegistry;
use bosun_replay::determinism::DeterminismTest;
use bosun_replay::simulate::RARE;
use bosun_worker::examples;
use bosun_worker::examples::kitchen_sink::INVALID_PROGRAM;
pub(crate) use bosun_worker::examples::kitchen_sink::KITCHEN_SINK as KIND;
use proptest::prelude::*;

use super::generate::{arb_program, values};

pub(crate) fn code() -> WorkflowRegistry {
    examples::register(WorkflowRegistry::new())
}

pub(crate) fn kit() -> DeterminismTest {
    DeterminismTest::new(code(), KIND)
        .input(arb_program())
        .activity("a", values())
        .activity("b", values())
        .activity("c", values())
        .signal("go", values())
        .signal("stop", values())
        .update("set_var", values().prop_map(|value| serde_json::json!({ "name": "x", "value": value })))
        .invariant("every program is valid", |run| match run.outcome() {
            Some(CloseOutcome::Failed(failure)) if failure.type_name() == INVALID_PROGRAM => Err(failure.to_string()),
            _ => Ok(()),
        })
        .query("vars", &())
        .query("position", &())
        .deploys(code().version("next"))
        .without_case_files()
}

/// Prints past the capture of the test runner, so that figures are seen in CI when nothing is wrong.
pub(crate) fn tell(figures: &str) {
    use std::io::Write;
    // Figures that cannot be printed change nothing.
    let _ = writeln!(std::io::stderr(), "{figures}");
}

/// The rare states that programs can meet. Async code has no snapshots; the other takes a pause, a signal and a run that
/// ends at once afterwards.
pub(crate) fn rare() -> Vec<&'static str> {
    let excused = |name: &&str| name.contains("snapshot") || *name == "input carried in the inbox to the next run";
    RARE.iter().copied().filter(|name| !excused(name)).collect()
}
