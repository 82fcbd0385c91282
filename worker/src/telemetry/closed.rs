//! The span of a run as a whole: it is told when the run closes, and begins when the run began.
//!
//! Invariant: it is told by the turn that closes the run, before that turn is durable. A crash between the two has the run closed
//! and told again, as the same span, since its ids are made of the run. It holds ids and names, and nothing that was said.

use bosun_engine::{RunInfo, WorkflowStatus};

use crate::agent::workflow::AGENT;
use crate::supervisor::run::SUPERVISOR;

/// Tells the span of a run that has just closed.
pub(super) fn tell(run: &RunInfo, status: &'static str) {
    let is_error = matches!(run.status, WorkflowStatus::Failed | WorkflowStatus::TimedOut);
    let operation = match run.workflow_type.as_str() {
        AGENT => Some("invoke_agent"),
        SUPERVISOR => Some("invoke_workflow"),
        _ => None,
    };
    tracing::debug!(workflow_type = %run.workflow_type, workflow_id = %run.workflow_id, run_id = %run.run_id, status, "the run closes");
    let after = run.continued_from.or(run.forked_from.as_ref().map(|from| from.run_id));
    drop(tracing::debug_span!(
        parent: None,
        "run",
        workflow_type = %run.workflow_type,
        workflow_id = %run.workflow_id,
        run_id = %run.run_id,
        status,
        events = run.history.events,
        started_at_us = run.started_at.0,
        parent_run = run.parent.as_ref().map(|parent| tracing::field::display(parent.run_id)),
        run_before = after.map(tracing::field::display),
        "gen_ai.operation.name" = operation,
        "gen_ai.conversation.id" = operation.map(|_| tracing::field::display(&run.workflow_id)),
        "error.type" = is_error.then_some(status),
    ));
}
