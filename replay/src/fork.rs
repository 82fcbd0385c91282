//! Plans forks of recorded histories: what would be kept, told and done again, without an engine.
//!
//! Invariant: nothing runs but the code's replay of what would be copied; nothing is written. The plan is the engine's
//! own, so a dry run, this and a fork say the same.

use bosun_engine::machine::PlannedFork;
use bosun_engine::workflow::WorkflowRegistry;
use bosun_engine::*;

use crate::{History, Redaction};

/// What this fork of the history would do, or why it cannot be. The request says what is wished; the source it names is not
/// looked at. With `code`, whether that code fits what would be copied is checked too.
pub fn plan_fork(
    history: &History,
    request: &ForkRequest,
    code: Option<&WorkflowRegistry>,
) -> Result<ForkPlan, Rejection> {
    if history.redaction() != Redaction::None {
        let why = "it is redacted: what activities gave is not in it".to_owned();
        return Err(Rejection::Invalid { what: "fork: the history".into(), why });
    }
    let now = history.turns().last().map_or(Timestamp::ZERO, |turn| turn.at);
    let run_id = history.run_id().derive("fork", 0);
    let fork = PlannedFork::plan(request, history.turns(), run_id, now)?;
    if let Some(code) = code {
        fork.check(code, code.build_id())?;
    }
    Ok(fork.summary().clone())
}
