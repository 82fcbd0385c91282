//! What the code asks for and cannot have: payloads above the limit (E31), and search attributes with the names of
//! fields that every run has. Requests of clients are checked at the client.
//!
//! Invariant: neither ever starts anything. What can fail by itself (an activity, a child, a signal
//! to another run) is recorded as asked for and fails by name; anything else fails the run by name. Replay accepts the
//! latter whatever its own limit is, since history says how it went.

use super::decision::TurnDraft;
use super::run::Run;
use crate::vocabulary::*;

/// The length of the largest payload of a command.
fn largest(command: &Command) -> usize {
    let of_failure = |failure: &Failure| {
        let mut longest = 0;
        let mut next = Some(failure);
        while let Some(failure) = next {
            if let FailureKind::Application { details: Some(details), .. }
            | FailureKind::Canceled { details: Some(details) } = &failure.kind
            {
                longest = longest.max(details.len());
            }
            next = failure.cause.as_deref();
        }
        longest
    };
    let of_memo = |memo: &Memo| memo.values().map(Payload::len).max().unwrap_or(0);
    match command {
        Command::ScheduleActivity { input, .. } | Command::SignalExternalWorkflow { input, .. } => input.len(),
        Command::StartChildWorkflow { input, options, .. } => input.len().max(of_memo(&options.memo)),
        Command::ContinueAsNew { input, options, .. } => input.len().max(options.memo.as_ref().map_or(0, of_memo)),
        Command::CompleteWorkflow { result, .. } => result.len(),
        Command::CompleteUpdate { result, .. } => result.as_ref().map_or_else(of_failure, Payload::len),
        Command::FailWorkflow { failure, .. } => of_failure(failure),
        Command::CancelWorkflow { details, .. } => details.as_ref().map_or(0, Payload::len),
        Command::RecordMarker(Marker::SideEffect { value, .. }) => value.len(),
        Command::ModifyMemo { memo } => of_memo(memo),
        Command::RecordMarker(Marker::Patch { .. })
        | Command::RequestCancelActivity { .. }
        | Command::StartTimer { .. }
        | Command::CancelTimer { .. }
        | Command::CancelChildWorkflow { .. }
        | Command::RequestCancelExternalWorkflow { .. }
        | Command::UpsertSearchAttributes { .. } => 0,
    }
}

/// What is wrong with a command, if it cannot be carried out.
pub(super) fn refused(command: &Command, limit: usize) -> Option<Failure> {
    too_large(command, limit).or_else(|| bad_attribute(command))
}

/// A list asks for the field of that name, so that the attribute could never be found.
fn bad_attribute(command: &Command) -> Option<Failure> {
    let attributes = if let Command::UpsertSearchAttributes { attributes } = command {
        attributes
    } else if let Command::StartChildWorkflow { options, .. } = command {
        &options.search_attributes
    } else if let Command::ContinueAsNew { options, .. } = command {
        options.search_attributes.as_ref()?
    } else {
        return None;
    };
    // What an earlier version has set can be taken away.
    let mut set = attributes.iter().filter(|(_, value)| **value != SearchValue::Unset);
    let (name, _) = set.find(|(name, _)| crate::Filter::is_builtin(name))?;
    let message =
        format!("the search attribute {name}: lists know a field of that name of every run; choose another name");
    Some(Failure::application(FAILURE_BAD_SEARCH_ATTRIBUTES, message).non_retryable())
}

/// What is wrong with a command that carries a payload above the limit.
fn too_large(command: &Command, limit: usize) -> Option<Failure> {
    let length = largest(command);
    let message = || format!("a payload of the workflow has {length} bytes, the limit is {limit}");
    (length > limit).then(|| Failure::application(FAILURE_PAYLOAD_TOO_LARGE, message()).non_retryable())
}

impl Run {
    /// Records a command that is not carried out, with its failure.
    pub(super) fn refuse_command(&mut self, draft: &mut TurnDraft<'_, '_>, command: Command, failure: Failure) {
        match command {
            Command::ScheduleActivity { seq, activity_id, activity_type, input, options } => {
                let scheduled = ActivityTaskScheduled { seq, activity_id, activity_type, input, options };
                draft.push(self, EventKind::ActivityTaskScheduled(Box::new(scheduled)));
                let retry_state = RetryState::NonRetryableFailure;
                draft.follow_up_event(EventKind::ActivityTaskFailed { seq, failure, retry_state });
            }
            Command::StartChildWorkflow { seq, workflow_id, workflow_type, input, options } => {
                let initiated = ChildWorkflowInitiated { seq, workflow_id, workflow_type, input, options };
                draft.push(self, EventKind::StartChildWorkflowExecutionInitiated(Box::new(initiated)));
                draft.follow_up_event(EventKind::StartChildWorkflowExecutionFailed { seq, failure });
            }
            Command::SignalExternalWorkflow { seq, target, name, input } => {
                let initiated = SignalExternalInitiated { seq, target, name, input };
                draft.push(self, EventKind::SignalExternalWorkflowExecutionInitiated(Box::new(initiated)));
                draft.follow_up_event(EventKind::SignalExternalWorkflowExecutionFailed { seq, failure });
            }
            Command::CompleteWorkflow { unhandled_signals, .. }
            | Command::FailWorkflow { unhandled_signals, .. }
            | Command::CancelWorkflow { unhandled_signals, .. } => self.fail(draft, failure, unhandled_signals),
            Command::ContinueAsNew { unconsumed_signals, .. } => {
                let unhandled = unconsumed_signals.into_iter().map(|signal| signal.name).collect();
                self.fail(draft, failure, unhandled);
            }
            Command::RequestCancelActivity { .. }
            | Command::StartTimer { .. }
            | Command::CancelTimer { .. }
            | Command::CancelChildWorkflow { .. }
            | Command::RequestCancelExternalWorkflow { .. }
            | Command::RecordMarker(_)
            | Command::UpsertSearchAttributes { .. }
            | Command::ModifyMemo { .. }
            | Command::CompleteUpdate { .. } => self.fail(draft, failure, Vec::new()),
        }
    }
}
