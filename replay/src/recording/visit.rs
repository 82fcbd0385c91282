//! Walks everything in a turn that user code or users wrote: payloads, failures and free text.
//!
//! Invariant: one walk for redaction and for validation, with every event and input spelled out, so that a new field
//! with user data cannot be forgotten by either. Ids and names (failure types among them) are not visited: they are kept,
//! and checked by their types. The walk takes `&mut` because redaction writes; validation only reads.

use bosun_engine::*;

/// What is done at each place.
pub(super) trait Visitor {
    fn payload(&mut self, payload: &mut Payload);
    /// Text of users: messages, reasons, summaries.
    fn text(&mut self, text: &mut String);
    /// Attributes are both names and values; they are searched, so they are neither text nor payload.
    fn attributes(&mut self, attributes: &mut SearchAttributes);
    /// The length of a chain of causes, before the chain itself is walked.
    fn causes(&mut self, length: usize);
}

pub(super) fn turn(turn: &mut Turn, v: &mut impl Visitor) {
    turn.events.iter_mut().for_each(|kind| event(kind, v));
    turn.inbox_added.iter_mut().for_each(|kept| input(kept, v));
    turn.heartbeats.iter_mut().for_each(|beat| maybe(&mut beat.details, v));
}

fn maybe(payload: &mut Option<Payload>, v: &mut impl Visitor) {
    payload.iter_mut().for_each(|payload| v.payload(payload));
}

fn maybe_text(text: &mut Option<String>, v: &mut impl Visitor) {
    text.iter_mut().for_each(|text| v.text(text));
}

fn memo(memo: &mut Memo, v: &mut impl Visitor) {
    memo.values_mut().for_each(|payload| v.payload(payload));
}

/// The chain of causes, without recursion.
fn failure(failure: &mut Failure, v: &mut impl Visitor) {
    v.causes(std::iter::successors(failure.cause.as_deref(), |cause| cause.cause.as_deref()).count());
    let mut next = Some(failure);
    while let Some(failure) = next {
        v.text(&mut failure.message);
        match &mut failure.kind {
            FailureKind::Application { failure_type: _, non_retryable: _, details, next_retry_delay: _ }
            | FailureKind::Timeout { timeout: _, last_heartbeat: details }
            | FailureKind::Canceled { details } => maybe(details, v),
            FailureKind::Terminated
            | FailureKind::Activity { .. }
            | FailureKind::ChildWorkflow { .. }
            | FailureKind::WorkerLost => {}
        }
        next = failure.cause.as_deref_mut();
    }
}

fn outcome(result: &mut Result<Payload, Failure>, v: &mut impl Visitor) {
    match result {
        Ok(payload) => v.payload(payload),
        Err(why) => failure(why, v),
    }
}

fn started(started: &mut WorkflowExecutionStarted, v: &mut impl Visitor) {
    v.payload(&mut started.input);
    started.last_failure.iter_mut().for_each(|last| failure(last, v));
    memo(&mut started.memo, v);
    v.attributes(&mut started.search_attributes);
    maybe_text(&mut started.summary, v);
    maybe_text(&mut started.details, v);
    started.carried_signals.iter_mut().for_each(|signal| v.payload(&mut signal.input));
}

fn continued(next: &mut ContinuedAsNew, v: &mut impl Visitor) {
    v.payload(&mut next.input);
    next.options.memo.iter_mut().for_each(|changed| memo(changed, v));
    next.options.search_attributes.iter_mut().for_each(|changed| v.attributes(changed));
    next.unconsumed_signals.iter_mut().for_each(|signal| v.payload(&mut signal.input));
}

fn child(initiated: &mut ChildWorkflowInitiated, v: &mut impl Visitor) {
    v.payload(&mut initiated.input);
    memo(&mut initiated.options.memo, v);
    v.attributes(&mut initiated.options.search_attributes);
    maybe_text(&mut initiated.options.summary, v);
}

// Long because it is a list: every event kind once.
// long: one exhaustive match; a variant more is a line more.
fn event(kind: &mut EventKind, v: &mut impl Visitor) {
    use EventKind::*;
    match kind {
        WorkflowExecutionStarted(attributes) => started(attributes, v),
        StartChildWorkflowExecutionInitiated(initiated) => child(initiated, v),
        WorkflowExecutionContinuedAsNew(next) => continued(next, v),
        ActivityTaskScheduled(scheduled) => {
            v.payload(&mut scheduled.input);
            maybe_text(&mut scheduled.options.summary, v);
        }
        WorkflowExecutionSignaled(signal) => v.payload(&mut signal.input),
        SignalExternalWorkflowExecutionInitiated(initiated) => v.payload(&mut initiated.input),
        MarkerRecorded(Marker::SideEffect { seq: _, value }) => v.payload(value),
        WorkflowExecutionUpdateAccepted { input, .. } => v.payload(input),
        WorkflowExecutionUpdateCompleted { result, .. } => outcome(result, v),
        ActivityTaskCompleted { result, .. }
        | ChildWorkflowExecutionCompleted { result, .. }
        | WorkflowExecutionCompleted { result, .. } => v.payload(result),
        ActivityTaskAttemptFailed { failure: why, .. }
        | ActivityTaskFailed { failure: why, .. }
        | ActivityTaskTimedOut { failure: why, .. }
        | StartChildWorkflowExecutionFailed { failure: why, .. }
        | ChildWorkflowExecutionFailed { failure: why, .. }
        | SignalExternalWorkflowExecutionFailed { failure: why, .. }
        | RequestCancelExternalWorkflowExecutionFailed { failure: why, .. }
        | WorkflowExecutionFailed { failure: why, .. } => failure(why, v),
        ActivityTaskCanceled { details, .. }
        | ChildWorkflowExecutionCanceled { details, .. }
        | WorkflowExecutionCanceled { details, .. } => maybe(details, v),
        WorkflowExecutionCancelRequested { reason, .. }
        | WorkflowExecutionPaused { reason, .. }
        | WorkflowExecutionUnpaused { reason, .. }
        | ActivityTaskPaused { reason, .. }
        | ActivityPropertiesModifiedExternally { reason, .. }
        | ChildWorkflowExecutionCancelRequested { reason, .. }
        | ChildWorkflowExecutionTerminated { reason, .. }
        | RequestCancelExternalWorkflowExecutionInitiated { reason, .. }
        | WorkflowExecutionForked { reason, .. }
        | WorkflowExecutionTerminated { reason, .. } => v.text(reason),
        TimerStarted { summary, .. } => maybe_text(summary, v),
        UpsertWorkflowSearchAttributes { attributes } => v.attributes(attributes),
        WorkflowPropertiesModified { memo: changed } => memo(changed, v),
        MarkerRecorded(Marker::Patch { .. })
        | FirstWorkflowTaskScheduled
        | ActivityTaskStarted { .. }
        | ActivityTaskAwaitingCompletion { .. }
        | ActivityTaskCancelRequested { .. }
        | ActivityTaskUnpaused { .. }
        | TimerFired { .. }
        | TimerCanceled { .. }
        | ChildWorkflowExecutionStarted { .. }
        | ChildWorkflowExecutionTimedOut { .. }
        | ExternalWorkflowExecutionSignaled { .. }
        | ExternalWorkflowExecutionCancelRequested { .. }
        | WorkflowExecutionTimedOut { .. } => {}
    }
}

fn closed(how: &mut CloseOutcome, v: &mut impl Visitor) {
    match how {
        CloseOutcome::Completed(result) => v.payload(result),
        CloseOutcome::Failed(why) => failure(why, v),
        CloseOutcome::Canceled(details) => maybe(details, v),
        CloseOutcome::Terminated { reason } => v.text(reason),
        CloseOutcome::TimedOut(_) | CloseOutcome::ContinuedAsNew { .. } => {}
    }
}

fn input(input: &mut Input, v: &mut impl Visitor) {
    match input {
        Input::Signal(signal) => v.payload(&mut signal.input),
        Input::Update { input, .. } => v.payload(input),
        Input::RequestCancel { reason, .. }
        | Input::Terminate { reason, .. }
        | Input::Pause { reason, .. }
        | Input::Unpause { reason, .. }
        | Input::PauseActivity { reason, .. }
        | Input::ModifyActivity { reason, .. } => v.text(reason),
        Input::ActivityOutcome { outcome, .. } => match outcome {
            ActivityOutcome::Completed(result) => v.payload(result),
            ActivityOutcome::Failed(why) => failure(why, v),
            ActivityOutcome::Canceled(details) => maybe(details, v),
            ActivityOutcome::WillCompleteLater => {}
        },
        Input::Heartbeat { details, .. } => maybe(details, v),
        Input::ChildStarted { result: Err(why), .. }
        | Input::SignalDelivered { result: Err(why), .. }
        | Input::CancelDelivered { result: Err(why), .. } => failure(why, v),
        Input::ChildClosed { outcome, .. } => closed(outcome, v),
        Input::ChildStarted { result: Ok(_), .. }
        | Input::SignalDelivered { result: Ok(()), .. }
        | Input::CancelDelivered { result: Ok(()), .. }
        | Input::UnpauseActivity { .. }
        | Input::StartActivity { .. }
        | Input::Deadline
        | Input::WorkerRestarted => {}
    }
}
