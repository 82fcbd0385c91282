//! Families of events: what the part of a run that an event belongs to needs of it.
//!
//! Invariant: every event belongs to exactly one family, and a family can be given nothing else; the one match is
//! exhaustive, so that a new event finds its family or does not compile. Events that mean the same to a family are one
//! variant here. Nothing is decided, and nothing is kept.

use crate::vocabulary::*;

/// An event as its family sees it.
pub(super) enum FamilyEvent<'a> {
    Lifecycle(LifecycleEvent<'a>),
    Signal(&'a WorkflowExecutionSignaled),
    Update(UpdateEvent<'a>),
    Activity(Seq, ActivityEvent<'a>),
    Timer(Seq, TimerEvent<'a>),
    Child(Seq, ChildEvent<'a>),
    External(Seq, ExternalEvent<'a>),
    Closed(CloseOutcome),
}

pub(super) enum LifecycleEvent<'a> {
    Started(&'a WorkflowExecutionStarted),
    BackoffOver,
    Paused,
    Unpaused,
    CancelRequested {
        reason: &'a str,
        request_id: Option<&'a RequestId>,
    },
    Forked {
        run_id: RunId,
        /// Of a reset: children that go on as this run's.
        children: &'a [Seq],
    },
    /// Search attributes and memo are folded into the info; replay reads markers from the events.
    Noted,
}

pub(super) enum UpdateEvent<'a> {
    Accepted(&'a UpdateId),
    Completed(&'a UpdateId, &'a Result<Payload, Failure>),
}

pub(super) enum ActivityEvent<'a> {
    Scheduled(&'a ActivityTaskScheduled),
    Started(Attempt),
    AttemptFailed { attempt: Attempt, failure: &'a Failure, next_attempt_at: Timestamp },
    AwaitingCompletion,
    CancelRequested,
    Paused,
    Unpaused,
    Modified(&'a ActivityChange),
    Ended,
}

pub(super) enum TimerEvent<'a> {
    Started { fire_at: Timestamp, summary: Option<&'a str> },
    Ended,
}

pub(super) enum ChildEvent<'a> {
    Initiated(&'a ChildWorkflowInitiated),
    Started,
    CancelRequested(&'a str),
    Ended,
}

pub(super) enum ExternalEvent<'a> {
    SignalInitiated(&'a SignalExternalInitiated),
    CancelInitiated {
        target: &'a ExternalTarget,
        reason: &'a str,
    },
    /// Of a run elsewhere, or of a child: numbers are unique in the run.
    CancelDelivered,
    Ended,
}

impl<'a> FamilyEvent<'a> {
    // long: one exhaustive match; a variant more is a line more.
    pub(super) fn of(event: &'a EventKind) -> FamilyEvent<'a> {
        use EventKind::*;
        use FamilyEvent::*;
        match event {
            WorkflowExecutionStarted(started) => Lifecycle(LifecycleEvent::Started(started)),
            FirstWorkflowTaskScheduled => Lifecycle(LifecycleEvent::BackoffOver),
            WorkflowExecutionPaused { .. } => Lifecycle(LifecycleEvent::Paused),
            WorkflowExecutionUnpaused { .. } => Lifecycle(LifecycleEvent::Unpaused),
            WorkflowExecutionCancelRequested { reason, request_id, .. } => {
                Lifecycle(LifecycleEvent::CancelRequested { reason, request_id: request_id.as_ref() })
            }
            WorkflowExecutionForked { run_id, children, .. } => {
                Lifecycle(LifecycleEvent::Forked { run_id: *run_id, children })
            }
            UpsertWorkflowSearchAttributes { .. } | WorkflowPropertiesModified { .. } | MarkerRecorded(_) => {
                Lifecycle(LifecycleEvent::Noted)
            }

            WorkflowExecutionSignaled(signal) => Signal(signal),

            WorkflowExecutionUpdateAccepted { update_id, .. } => Update(UpdateEvent::Accepted(update_id)),
            WorkflowExecutionUpdateCompleted { update_id, result } => Update(UpdateEvent::Completed(update_id, result)),

            ActivityTaskScheduled(scheduled) => Activity(scheduled.seq, ActivityEvent::Scheduled(scheduled)),
            ActivityTaskStarted { seq, attempt } => Activity(*seq, ActivityEvent::Started(*attempt)),
            ActivityTaskAttemptFailed { seq, attempt, failure, next_attempt_at } => {
                let (attempt, next_attempt_at) = (*attempt, *next_attempt_at);
                Activity(*seq, ActivityEvent::AttemptFailed { attempt, failure, next_attempt_at })
            }
            ActivityTaskAwaitingCompletion { seq, .. } => Activity(*seq, ActivityEvent::AwaitingCompletion),
            ActivityTaskCancelRequested { seq } => Activity(*seq, ActivityEvent::CancelRequested),
            ActivityTaskPaused { seq, .. } => Activity(*seq, ActivityEvent::Paused),
            ActivityTaskUnpaused { seq, .. } => Activity(*seq, ActivityEvent::Unpaused),
            ActivityPropertiesModifiedExternally { seq, change, .. } => Activity(*seq, ActivityEvent::Modified(change)),
            ActivityTaskCompleted { seq, .. }
            | ActivityTaskFailed { seq, .. }
            | ActivityTaskTimedOut { seq, .. }
            | ActivityTaskCanceled { seq, .. } => Activity(*seq, ActivityEvent::Ended),

            TimerStarted { seq, fire_at, summary } => {
                Timer(*seq, TimerEvent::Started { fire_at: *fire_at, summary: summary.as_deref() })
            }
            TimerFired { seq } | TimerCanceled { seq } => Timer(*seq, TimerEvent::Ended),

            StartChildWorkflowExecutionInitiated(initiated) => Child(initiated.seq, ChildEvent::Initiated(initiated)),
            ChildWorkflowExecutionStarted { seq, .. } => Child(*seq, ChildEvent::Started),
            ChildWorkflowExecutionCancelRequested { seq, reason } => Child(*seq, ChildEvent::CancelRequested(reason)),
            StartChildWorkflowExecutionFailed { seq, .. }
            | ChildWorkflowExecutionCompleted { seq, .. }
            | ChildWorkflowExecutionFailed { seq, .. }
            | ChildWorkflowExecutionCanceled { seq, .. }
            | ChildWorkflowExecutionTimedOut { seq }
            | ChildWorkflowExecutionTerminated { seq, .. } => Child(*seq, ChildEvent::Ended),

            SignalExternalWorkflowExecutionInitiated(signal) => {
                External(signal.seq, ExternalEvent::SignalInitiated(signal))
            }
            RequestCancelExternalWorkflowExecutionInitiated { seq, target, reason } => {
                External(*seq, ExternalEvent::CancelInitiated { target, reason })
            }
            ExternalWorkflowExecutionCancelRequested { seq } => External(*seq, ExternalEvent::CancelDelivered),
            ExternalWorkflowExecutionSignaled { seq }
            | SignalExternalWorkflowExecutionFailed { seq, .. }
            | RequestCancelExternalWorkflowExecutionFailed { seq, .. } => External(*seq, ExternalEvent::Ended),

            WorkflowExecutionCompleted { result, .. } => Closed(CloseOutcome::Completed(result.clone())),
            WorkflowExecutionFailed { failure, .. } => Closed(CloseOutcome::Failed(failure.clone())),
            WorkflowExecutionTimedOut { timeout, .. } => Closed(CloseOutcome::TimedOut(*timeout)),
            WorkflowExecutionCanceled { details, .. } => Closed(CloseOutcome::Canceled(details.clone())),
            WorkflowExecutionTerminated { reason, .. } => Closed(CloseOutcome::Terminated { reason: reason.clone() }),
            WorkflowExecutionContinuedAsNew(next) => Closed(CloseOutcome::ContinuedAsNew { new_run: next.new_run }),
        }
    }
}
