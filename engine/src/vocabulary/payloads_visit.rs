//! Visits every payload inside events, inputs and turns: for sizes, and for the codecs between run and log.
//!
//! Invariant: the walk is exhaustive; a new variant or field with a payload does not compile (or is destructured here)
//! until somebody decides. One macro writes the reading and the changing walk, so that they cannot drift apart.

use super::*;

macro_rules! walks {
    ($events:ident, $inputs:ident, $failures:ident, $visit_failure:ident, $visit_started:ident, $visit_outcome:ident,
     $values:ident, $as_deref:ident $(, $mutability:tt)?) => {
        fn $visit_failure(failure: & $($mutability)? Failure, visit: &mut dyn FnMut(& $($mutability)? Payload)) {
            match & $($mutability)? failure.kind {
                FailureKind::Application { details: Some(details), .. } => visit(details),
                FailureKind::Timeout { last_heartbeat: Some(details), .. } => visit(details),
                FailureKind::Canceled { details: Some(details) } => visit(details),
                FailureKind::Application { details: None, .. }
                | FailureKind::Timeout { last_heartbeat: None, .. }
                | FailureKind::Canceled { details: None }
                | FailureKind::Terminated
                | FailureKind::Activity { .. }
                | FailureKind::ChildWorkflow { .. }
                | FailureKind::WorkerLost => {}
            }
            if let Some(cause) = failure.cause.$as_deref() {
                $visit_failure(cause, visit);
            }
        }

        fn $visit_started(
            started: & $($mutability)? WorkflowExecutionStarted,
            visit: &mut dyn FnMut(& $($mutability)? Payload),
        ) {
            visit(& $($mutability)? started.input);
            started.memo.$values().for_each(&mut *visit);
            if let Some(failure) = & $($mutability)? started.last_failure {
                $visit_failure(failure, visit);
            }
            for signal in & $($mutability)? started.carried_signals {
                visit(& $($mutability)? signal.input);
            }
        }

        fn $visit_outcome(result: & $($mutability)? Result<Payload, Failure>, visit: &mut dyn FnMut(& $($mutability)? Payload)) {
            match result {
                Ok(payload) => visit(payload),
                Err(failure) => $visit_failure(failure, visit),
            }
        }

        impl EventKind {
            /// Visits every payload of the event, always in the same order.
            pub fn $events(& $($mutability)? self, visit: &mut dyn FnMut(& $($mutability)? Payload)) {
                use EventKind::*;
                match self {
                    WorkflowExecutionStarted(started) => $visit_started(started, visit),
                    WorkflowExecutionSignaled(signal) => visit(& $($mutability)? signal.input),
                    WorkflowExecutionUpdateAccepted { input, .. } => visit(input),
                    WorkflowExecutionUpdateCompleted { result, .. } => $visit_outcome(result, visit),
                    ActivityTaskScheduled(scheduled) => visit(& $($mutability)? scheduled.input),
                    ActivityTaskCompleted { result, .. } | ChildWorkflowExecutionCompleted { result, .. } => visit(result),
                    WorkflowExecutionCompleted { result, .. } => visit(result),
                    ActivityTaskAttemptFailed { failure, .. }
                    | ActivityTaskFailed { failure, .. }
                    | ActivityTaskTimedOut { failure, .. }
                    | StartChildWorkflowExecutionFailed { failure, .. }
                    | ChildWorkflowExecutionFailed { failure, .. }
                    | SignalExternalWorkflowExecutionFailed { failure, .. }
                    | RequestCancelExternalWorkflowExecutionFailed { failure, .. }
                    | WorkflowExecutionFailed { failure, .. } => $visit_failure(failure, visit),
                    ActivityTaskCanceled { details: Some(details), .. }
                    | ChildWorkflowExecutionCanceled { details: Some(details), .. }
                    | WorkflowExecutionCanceled { details: Some(details), .. } => visit(details),
                    StartChildWorkflowExecutionInitiated(child) => {
                        visit(& $($mutability)? child.input);
                        child.options.memo.$values().for_each(visit);
                    }
                    SignalExternalWorkflowExecutionInitiated(signal) => visit(& $($mutability)? signal.input),
                    MarkerRecorded(Marker::SideEffect { value, .. }) => visit(value),
                    WorkflowPropertiesModified { memo } => memo.$values().for_each(visit),
                    WorkflowExecutionContinuedAsNew(next) => {
                        visit(& $($mutability)? next.input);
                        if let Some(memo) = & $($mutability)? next.options.memo {
                            memo.$values().for_each(&mut *visit);
                        }
                        for signal in & $($mutability)? next.unconsumed_signals {
                            visit(& $($mutability)? signal.input);
                        }
                    }
                    FirstWorkflowTaskScheduled
                    | WorkflowExecutionCancelRequested { .. }
                    | WorkflowExecutionPaused { .. }
                    | WorkflowExecutionUnpaused { .. }
                    | ActivityTaskStarted { .. }
                    | ActivityTaskCancelRequested { .. }
                    | ActivityTaskCanceled { details: None, .. }
                    | ActivityTaskPaused { .. }
                    | ActivityTaskUnpaused { .. }
                    | ActivityPropertiesModifiedExternally { .. }
                    | ActivityTaskAwaitingCompletion { .. }
                    | TimerStarted { .. }
                    | TimerFired { .. }
                    | TimerCanceled { .. }
                    | ChildWorkflowExecutionStarted { .. }
                    | ChildWorkflowExecutionCancelRequested { .. }
                    | ChildWorkflowExecutionCanceled { details: None, .. }
                    | ChildWorkflowExecutionTimedOut { .. }
                    | ChildWorkflowExecutionTerminated { .. }
                    | ExternalWorkflowExecutionSignaled { .. }
                    | RequestCancelExternalWorkflowExecutionInitiated { .. }
                    | ExternalWorkflowExecutionCancelRequested { .. }
                    | MarkerRecorded(Marker::Patch { .. })
                    | UpsertWorkflowSearchAttributes { .. }
                    | WorkflowExecutionTimedOut { .. }
                    | WorkflowExecutionCanceled { details: None, .. }
                    | WorkflowExecutionTerminated { .. }
                    | WorkflowExecutionForked { .. } => {}
                }
            }
        }

        impl Input {
            /// Visits every payload of the input, always in the same order.
            pub fn $inputs(& $($mutability)? self, visit: &mut dyn FnMut(& $($mutability)? Payload)) {
                match self {
                    Input::Signal(signal) => visit(& $($mutability)? signal.input),
                    Input::Update { input, .. } => visit(input),
                    Input::ActivityOutcome { outcome, .. } => match outcome {
                        ActivityOutcome::Completed(result) => visit(result),
                        ActivityOutcome::Failed(failure) => $visit_failure(failure, visit),
                        ActivityOutcome::Canceled(Some(details)) => visit(details),
                        ActivityOutcome::Canceled(None) | ActivityOutcome::WillCompleteLater => {}
                    },
                    Input::Heartbeat { details: Some(details), .. } => visit(details),
                    Input::ChildStarted { result: Err(failure), .. }
                    | Input::SignalDelivered { result: Err(failure), .. }
                    | Input::CancelDelivered { result: Err(failure), .. } => $visit_failure(failure, visit),
                    Input::ChildClosed { outcome, .. } => match outcome {
                        CloseOutcome::Completed(result) => visit(result),
                        CloseOutcome::Failed(failure) => $visit_failure(failure, visit),
                        CloseOutcome::Canceled(Some(details)) => visit(details),
                        CloseOutcome::Canceled(None)
                        | CloseOutcome::TimedOut(_)
                        | CloseOutcome::Terminated { .. }
                        | CloseOutcome::ContinuedAsNew { .. } => {}
                    },
                    Input::RequestCancel { .. }
                    | Input::Terminate { .. }
                    | Input::Pause { .. }
                    | Input::Unpause { .. }
                    | Input::PauseActivity { .. }
                    | Input::ModifyActivity { .. }
                    | Input::UnpauseActivity { .. }
                    | Input::StartActivity { .. }
                    | Input::Heartbeat { details: None, .. }
                    | Input::Deadline
                    | Input::WorkerRestarted
                    | Input::ChildStarted { result: Ok(_), .. }
                    | Input::SignalDelivered { result: Ok(()), .. }
                    | Input::CancelDelivered { result: Ok(()), .. } => {}
                }
            }
        }
    };
}

walks!(payloads, payloads, failures, visit_failure, visit_started, visit_outcome, values, as_deref);
walks!(
    payloads_mut,
    payloads_mut,
    failures_mut,
    visit_failure_mut,
    visit_started_mut,
    visit_outcome_mut,
    values_mut,
    as_deref_mut,
    mut
);

impl EventKind {
    /// How much the event counts towards the history's size: a fixed part and its payloads. Workflow code can see the
    /// sum (`continue_as_new_suggested`), so it must never depend on how events are encoded.
    pub fn size(&self) -> u64 {
        let mut bytes = 64;
        self.payloads(&mut |payload| bytes += payload.len() as u64);
        bytes
    }
}

impl Turn {
    /// Visits every payload of the turn under the event it belongs to; what is not in an event counts for the turn's
    /// first.
    pub fn payloads_mut(&mut self, visit: &mut dyn FnMut(EventId, &mut Payload)) {
        let first = self.first_event.0;
        for (i, event) in self.events.iter_mut().enumerate() {
            event.payloads_mut(&mut |payload| visit(EventId(first + i as u64), payload));
        }
        let next = self.first_event;
        for input in &mut self.inbox_added {
            input.payloads_mut(&mut |payload| visit(next, payload));
        }
        for details in self.heartbeats.iter_mut().filter_map(|beat| beat.details.as_mut()) {
            visit(next, details);
        }
    }

    /// The first payload of the turn that damage to the store took, if there is one: no code may hear of such a turn.
    pub fn lost_payload(&self) -> Option<Payload> {
        let mut lost = None;
        let mut look = |payload: &Payload| {
            if payload.is_lost() && lost.is_none() {
                lost = Some(payload.clone());
            }
        };
        self.events.iter().for_each(|event| event.payloads(&mut look));
        self.inbox_added.iter().for_each(|input| input.payloads(&mut look));
        self.heartbeats.iter().filter_map(|beat| beat.details.as_ref()).for_each(look);
        lost
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
            delivered: Vec::new(),
            size_told: None,
        };
        let mut seen = Vec::new();
        turn.payloads_mut(&mut |event, payload| seen.push((event.0, payload.data.clone())));
        let expected: Vec<(u64, &[u8])> = vec![(6, b"a"), (6, b"b"), (5, b"c"), (5, b"d")];
        assert_eq!(seen.iter().map(|(e, d)| (*e, d.as_ref())).collect::<Vec<_>>(), expected);
    }
}
