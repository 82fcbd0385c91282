//! The event that a command becomes, as the run machine would write it.
//!
//! Invariant: what the engine adds of its own (ids of next runs, why a failed run is not retried) is taken from the
//! record, so that it makes no difference. What a command says is not changed.

use bosun_engine::*;

/// What the record says about ends of runs, for commands that end one.
pub(super) struct RecordedEnds<'a> {
    pub(super) started: &'a WorkflowExecutionStarted,
    pub(super) run: RunId,
    pub(super) recorded: Option<&'a EventKind>,
}

pub(super) fn event_of(command: Command, ends: &RecordedEnds<'_>) -> EventKind {
    use EventKind::WorkflowExecutionFailed as Failed;
    let mut event = command.into_event(&ends.started.workflow_type, ends.run.derive("continue", 0));
    if let Failed { new_run, retry_state, .. } = &mut event
        && let Some(Failed { new_run: next, retry_state: why, .. }) = ends.recorded
    {
        (*new_run, *retry_state) = (*next, *why);
    }
    event
}
