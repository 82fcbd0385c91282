//! Plans forks of recorded histories: what would be kept, told and done again, without an engine.
//!
//! Invariant: nothing runs but the code's replay of what would be copied; nothing is written. The plan is the engine's
//! own, so a dry run, this and a fork say the same.

use bosun_engine::machine::Fork;
use bosun_engine::workflow::WorkflowRegistry;
use bosun_engine::*;

use crate::{History, Redaction};

/// What a fork of the history at this event with these changes would do, or why it cannot be. With `code`, whether that
/// code fits what would be copied is checked too.
pub fn plan_fork(
    history: &History,
    at: Option<EventId>,
    changes: Vec<ForkChange>,
    code: Option<&WorkflowRegistry>,
) -> Result<ForkPlan, Rejection> {
    if history.redaction() != Redaction::None {
        let why = "it is redacted: what activities gave is not in it".to_owned();
        return Err(Rejection::Invalid { what: "fork: the history".into(), why });
    }
    // The turns are in the plan's hands already; the request only carries the wishes.
    let source = ForkSource::History(Vec::new());
    let request = ForkRequest { at, changes, ..ForkRequest::new(source, WorkflowId::of("fork")) };
    let now = history.turns().last().map_or(Timestamp::ZERO, |turn| turn.at);
    let run_id = history.run_id().derive("fork", 0);
    let fork = Fork::plan(&request, history.turns(), run_id, now)?;
    if let Some(code) = code {
        fork.check(code, code.build_id())?;
    }
    Ok(fork.summary().clone())
}
