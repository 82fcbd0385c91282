//! The event that a command becomes, as the run machine would write it.
//!
//! Invariant: every command is spelled out. What the engine adds of its own (ids of next runs, why a failed run is not
//! retried) is taken from the record, so that it makes no difference.

use bosun_engine::*;

/// What the record says about ends of runs, for commands that end one.
pub(super) struct Ends<'a> {
    pub(super) started: &'a WorkflowExecutionStarted,
    pub(super) run: RunId,
    pub(super) recorded: Option<&'a EventKind>,
}

// long: one exhaustive match; a variant more is a line more.
pub(super) fn event_of(command: Command, ends: &Ends<'_>) -> EventKind {
    match command {
        Command::ScheduleActivity { seq, activity_id, activity_type, input, options } => {
            let scheduled = ActivityTaskScheduled { seq, activity_id, activity_type, input, options };
            EventKind::ActivityTaskScheduled(Box::new(scheduled))
        }
        Command::RequestCancelActivity { seq } => EventKind::ActivityTaskCancelRequested { seq },
        Command::StartTimer { seq, fire_at, summary } => EventKind::TimerStarted { seq, fire_at, summary },
        Command::CancelTimer { seq } => EventKind::TimerCanceled { seq },
        Command::StartChildWorkflow { seq, workflow_id, workflow_type, input, options } => {
            let initiated = ChildWorkflowInitiated { seq, workflow_id, workflow_type, input, options };
            EventKind::StartChildWorkflowExecutionInitiated(Box::new(initiated))
        }
        Command::CancelChildWorkflow { seq, reason } => {
            EventKind::ChildWorkflowExecutionCancelRequested { seq, reason }
        }
        Command::SignalExternalWorkflow { seq, target, name, input } => {
            let initiated = SignalExternalInitiated { seq, target, name, input };
            EventKind::SignalExternalWorkflowExecutionInitiated(Box::new(initiated))
        }
        Command::RequestCancelExternalWorkflow { seq, target, reason } => {
            EventKind::RequestCancelExternalWorkflowExecutionInitiated { seq, target, reason }
        }
        Command::RecordMarker(marker) => EventKind::MarkerRecorded(marker),
        Command::UpsertSearchAttributes { attributes } => EventKind::UpsertWorkflowSearchAttributes { attributes },
        Command::ModifyMemo { memo } => EventKind::WorkflowPropertiesModified { memo },
        Command::CompleteUpdate { update_id, result } => {
            EventKind::WorkflowExecutionUpdateCompleted { update_id, result }
        }
        Command::CompleteWorkflow { result, unhandled_signals } => {
            EventKind::WorkflowExecutionCompleted { result, unhandled_signals }
        }
        Command::FailWorkflow { failure, unhandled_signals } => {
            let (new_run, retry_state) = match ends.recorded {
                Some(EventKind::WorkflowExecutionFailed { new_run, retry_state, .. }) => (*new_run, *retry_state),
                _ => (None, RetryState::RetryPolicyNotSet),
            };
            EventKind::WorkflowExecutionFailed { failure, new_run, retry_state, unhandled_signals }
        }
        Command::CancelWorkflow { details, unhandled_signals } => {
            EventKind::WorkflowExecutionCanceled { details, unhandled_signals }
        }
        Command::ContinueAsNew { workflow_type, input, options, unconsumed_signals } => {
            let new_run = ends.run.derive("continue", 0);
            let workflow_type = workflow_type.unwrap_or_else(|| ends.started.workflow_type.clone());
            let next = ContinuedAsNew { new_run, workflow_type, input, options, unconsumed_signals };
            EventKind::WorkflowExecutionContinuedAsNew(Box::new(next))
        }
    }
}
