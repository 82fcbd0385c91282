//! Every payload inside a turn, in a fixed order: what the log's codec transforms between the run and the disk.
//!
//! Invariant: the matches are exhaustive, so that a new event, input or failure with a payload cannot slip past
//! encryption unnoticed. This module transforms nothing itself; search attributes are not payloads (they are searched).

use super::*;

impl Turn {
    /// Visits every payload of the turn with the event it belongs to. Inbox inputs and heartbeats belong to no event
    /// yet: they are visited under `first_event`.
    pub fn payloads_mut(&mut self, visit: &mut dyn FnMut(EventId, &mut Payload)) {
        for (i, event) in self.events.iter_mut().enumerate() {
            let id = EventId(self.first_event.0 + i as u64);
            event.payloads_mut(&mut |payload| visit(id, payload));
        }
        let id = self.first_event;
        for input in &mut self.inbox_added {
            input.payloads_mut(&mut |payload| visit(id, payload));
        }
        for heartbeat in &mut self.heartbeats {
            heartbeat.payloads_mut(&mut |payload| visit(id, payload));
        }
    }
}

impl Heartbeat {
    pub fn payloads_mut(&mut self, visit: &mut dyn FnMut(&mut Payload)) {
        self.details.iter_mut().for_each(visit);
    }
}

impl Failure {
    /// The payloads of the failure and of everything that caused it.
    pub fn payloads_mut(&mut self, visit: &mut dyn FnMut(&mut Payload)) {
        match &mut self.kind {
            FailureKind::Application { details, failure_type: _, non_retryable: _, next_retry_delay: _ }
            | FailureKind::Canceled { details } => details.iter_mut().for_each(&mut *visit),
            FailureKind::Timeout { last_heartbeat, timeout: _ } => last_heartbeat.iter_mut().for_each(&mut *visit),
            FailureKind::Terminated
            | FailureKind::Activity { .. }
            | FailureKind::ChildWorkflow { .. }
            | FailureKind::WorkerLost => {}
        }
        if let Some(cause) = &mut self.cause {
            cause.payloads_mut(visit);
        }
    }
}

impl EventKind {
    /// The payloads of the event, in the order of its fields.
    pub fn payloads_mut(&mut self, visit: &mut dyn FnMut(&mut Payload)) {
        use EventKind::*;
        match self {
            WorkflowExecutionStarted(started) => started.payloads_mut(visit),
            WorkflowExecutionSignaled(signal) => visit(&mut signal.input),
            WorkflowExecutionUpdateAccepted { input, .. } => visit(input),
            WorkflowExecutionUpdateCompleted { result, .. } => outcome(result, visit),
            ActivityTaskScheduled(scheduled) => visit(&mut scheduled.input),
            ActivityTaskAttemptFailed { failure, .. }
            | ActivityTaskFailed { failure, .. }
            | ActivityTaskTimedOut { failure, .. }
            | StartChildWorkflowExecutionFailed { failure, .. }
            | ChildWorkflowExecutionFailed { failure, .. }
            | SignalExternalWorkflowExecutionFailed { failure, .. }
            | RequestCancelExternalWorkflowExecutionFailed { failure, .. }
            | WorkflowExecutionFailed { failure, .. } => failure.payloads_mut(visit),
            ActivityTaskCompleted { result, .. }
            | ChildWorkflowExecutionCompleted { result, .. }
            | WorkflowExecutionCompleted { result, .. } => visit(result),
            ActivityTaskCanceled { details, .. }
            | ChildWorkflowExecutionCanceled { details, .. }
            | WorkflowExecutionCanceled { details, .. } => details.iter_mut().for_each(visit),
            StartChildWorkflowExecutionInitiated(initiated) => {
                visit(&mut initiated.input);
                initiated.options.memo.values_mut().for_each(visit);
            }
            SignalExternalWorkflowExecutionInitiated(initiated) => visit(&mut initiated.input),
            MarkerRecorded(Marker::SideEffect { value, .. }) => visit(value),
            WorkflowPropertiesModified { memo } => memo.values_mut().for_each(visit),
            WorkflowExecutionContinuedAsNew(next) => {
                visit(&mut next.input);
                next.options.memo.iter_mut().flat_map(|memo| memo.values_mut()).for_each(&mut *visit);
                next.unconsumed_signals.iter_mut().for_each(|signal| visit(&mut signal.input));
            }
            MarkerRecorded(Marker::Patch { .. })
            | FirstWorkflowTaskScheduled
            | WorkflowExecutionCancelRequested { .. }
            | WorkflowExecutionPaused { .. }
            | WorkflowExecutionUnpaused { .. }
            | ActivityTaskStarted { .. }
            | ActivityTaskCancelRequested { .. }
            | ActivityTaskPaused { .. }
            | ActivityTaskUnpaused { .. }
            | TimerStarted { .. }
            | TimerFired { .. }
            | TimerCanceled { .. }
            | ChildWorkflowExecutionStarted { .. }
            | ChildWorkflowExecutionCancelRequested { .. }
            | ChildWorkflowExecutionTimedOut { .. }
            | ChildWorkflowExecutionTerminated { .. }
            | ExternalWorkflowExecutionSignaled { .. }
            | RequestCancelExternalWorkflowExecutionInitiated { .. }
            | ExternalWorkflowExecutionCancelRequested { .. }
            | UpsertWorkflowSearchAttributes { .. }
            | WorkflowExecutionTimedOut { .. }
            | WorkflowExecutionTerminated { .. } => {}
        }
    }
}

impl WorkflowExecutionStarted {
    pub fn payloads_mut(&mut self, visit: &mut dyn FnMut(&mut Payload)) {
        visit(&mut self.input);
        if let Some(failure) = &mut self.last_failure {
            failure.payloads_mut(visit);
        }
        self.memo.values_mut().for_each(&mut *visit);
        self.carried_signals.iter_mut().for_each(|signal| visit(&mut signal.input));
    }
}

impl Input {
    /// The payloads of the input, in the order of its fields.
    pub fn payloads_mut(&mut self, visit: &mut dyn FnMut(&mut Payload)) {
        match self {
            Input::Signal(signal) => visit(&mut signal.input),
            Input::Update { input, .. } => visit(input),
            Input::ActivityOutcome { outcome, .. } => match outcome {
                ActivityOutcome::Completed(result) => visit(result),
                ActivityOutcome::Failed(failure) => failure.payloads_mut(visit),
                ActivityOutcome::Canceled(details) => details.iter_mut().for_each(visit),
                ActivityOutcome::WillCompleteLater => {}
            },
            Input::Heartbeat { details, .. } => details.iter_mut().for_each(visit),
            Input::ChildStarted { result, .. } => {
                if let Err(failure) = result {
                    failure.payloads_mut(visit);
                }
            }
            Input::ChildClosed { outcome, .. } => match outcome {
                CloseOutcome::Completed(result) => visit(result),
                CloseOutcome::Failed(failure) => failure.payloads_mut(visit),
                CloseOutcome::Canceled(details) => details.iter_mut().for_each(visit),
                CloseOutcome::TimedOut(_) | CloseOutcome::Terminated { .. } | CloseOutcome::ContinuedAsNew { .. } => {}
            },
            Input::SignalDelivered { result, .. } | Input::CancelDelivered { result, .. } => {
                if let Err(failure) = result {
                    failure.payloads_mut(visit);
                }
            }
            Input::RequestCancel { .. }
            | Input::Terminate { .. }
            | Input::Pause { .. }
            | Input::Unpause { .. }
            | Input::PauseActivity { .. }
            | Input::UnpauseActivity { .. }
            | Input::StartActivity { .. }
            | Input::Deadline => {}
        }
    }
}

fn outcome(result: &mut Result<Payload, Failure>, visit: &mut dyn FnMut(&mut Payload)) {
    match result {
        Ok(payload) => visit(payload),
        Err(failure) => failure.payloads_mut(visit),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_deep_in_cause_chains_and_inboxes_are_visited_under_their_event() {
        let failure = Failure::application("A", "outer")
            .with_details(Payload::bytes("a"))
            .because(Failure::timeout(TimeoutType::Heartbeat, Some(Payload::bytes("b"))));
        let mut turn = Turn {
            run: RunId([1; 16]),
            first_event: EventId(5),
            at: Timestamp(0),
            build: BuildId(0),
            events: vec![
                EventKind::TimerFired { seq: Seq(1) },
                EventKind::ActivityTaskFailed { seq: Seq(1), failure, retry_state: RetryState::RetryPolicyNotSet },
            ],
            inbox_added: vec![Input::Heartbeat {
                seq: Seq(1),
                attempt: Attempt(1),
                details: Some(Payload::bytes("c")),
            }],
            inbox_taken: 0,
            heartbeats: vec![Heartbeat { seq: Seq(1), attempt: Attempt(1), details: Some(Payload::bytes("d")) }],
            outlook: Outlook::default(),
        };
        let mut seen = Vec::new();
        turn.payloads_mut(&mut |event, payload| seen.push((event.0, payload.data.clone())));
        let expected: Vec<(u64, &[u8])> = vec![(6, b"a"), (6, b"b"), (5, b"c"), (5, b"d")];
        assert_eq!(seen.iter().map(|(e, d)| (*e, d.as_ref())).collect::<Vec<_>>(), expected);
    }
}
