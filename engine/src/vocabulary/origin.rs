//! Origins and names: who causes an event, what it is called, and whether it ends the run.
//!
//! Invariant: an *activating* event is given to the workflow code as one job, a *command* event is what the code asked for
//! in answer to the activating event before it, and *bookkeeping* never reaches the code. Every match is exhaustive, so
//! that a new event must say what it is.

use super::*;

/// Who causes an event, which is how replay treats it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The code hears of it, as one job.
    Activating,
    /// The code asked for it, in answer to the activating event before.
    Command,
    /// The code never hears of it.
    Bookkeeping,
}

impl EventKind {
    /// How replay treats the event.
    // long: one exhaustive match; a variant more is a line more.
    pub fn origin(&self) -> Origin {
        use EventKind::*;
        match self {
            // A delayed start does not activate; the end of its backoff does.
            WorkflowExecutionStarted(started) if started.start_at.is_some() => Origin::Bookkeeping,
            WorkflowExecutionStarted(_)
            | FirstWorkflowTaskScheduled
            | WorkflowExecutionSignaled(_)
            | WorkflowExecutionCancelRequested { .. }
            | WorkflowExecutionUpdateAccepted { .. }
            | ActivityTaskCompleted { .. }
            | ActivityTaskFailed { .. }
            | ActivityTaskTimedOut { .. }
            | ActivityTaskCanceled { .. }
            | TimerFired { .. }
            | StartChildWorkflowExecutionFailed { .. }
            | ChildWorkflowExecutionStarted { .. }
            | ChildWorkflowExecutionCompleted { .. }
            | ChildWorkflowExecutionFailed { .. }
            | ChildWorkflowExecutionCanceled { .. }
            | ChildWorkflowExecutionTimedOut { .. }
            | ChildWorkflowExecutionTerminated { .. }
            | ExternalWorkflowExecutionSignaled { .. }
            | SignalExternalWorkflowExecutionFailed { .. }
            | ExternalWorkflowExecutionCancelRequested { .. }
            | RequestCancelExternalWorkflowExecutionFailed { .. } => Origin::Activating,
            ActivityTaskScheduled(_)
            | ActivityTaskCancelRequested { .. }
            | TimerStarted { .. }
            | TimerCanceled { .. }
            | StartChildWorkflowExecutionInitiated(_)
            | ChildWorkflowExecutionCancelRequested { .. }
            | SignalExternalWorkflowExecutionInitiated(_)
            | RequestCancelExternalWorkflowExecutionInitiated { .. }
            | MarkerRecorded(_)
            | UpsertWorkflowSearchAttributes { .. }
            | WorkflowPropertiesModified { .. }
            | WorkflowExecutionUpdateCompleted { .. }
            | WorkflowExecutionCompleted { .. }
            | WorkflowExecutionFailed { .. }
            | WorkflowExecutionCanceled { .. }
            | WorkflowExecutionContinuedAsNew(_) => Origin::Command,
            ActivityTaskStarted { .. }
            | ActivityTaskAttemptFailed { .. }
            | ActivityTaskPaused { .. }
            | ActivityTaskUnpaused { .. }
            | ActivityPropertiesModifiedExternally { .. }
            | ActivityTaskAwaitingCompletion { .. }
            | WorkflowExecutionPaused { .. }
            | WorkflowExecutionUnpaused { .. }
            | WorkflowExecutionTimedOut { .. }
            | WorkflowExecutionTerminated { .. }
            | WorkflowExecutionForked { .. } => Origin::Bookkeeping,
        }
    }

    /// The name of the variant, as in Temporal.
    // long: one exhaustive match; a variant more is a line more.
    pub fn name(&self) -> &'static str {
        use EventKind::*;
        match self {
            WorkflowExecutionStarted(_) => "WorkflowExecutionStarted",
            FirstWorkflowTaskScheduled => "FirstWorkflowTaskScheduled",
            WorkflowExecutionSignaled(_) => "WorkflowExecutionSignaled",
            WorkflowExecutionCancelRequested { .. } => "WorkflowExecutionCancelRequested",
            WorkflowExecutionUpdateAccepted { .. } => "WorkflowExecutionUpdateAccepted",
            WorkflowExecutionUpdateCompleted { .. } => "WorkflowExecutionUpdateCompleted",
            WorkflowExecutionPaused { .. } => "WorkflowExecutionPaused",
            WorkflowExecutionUnpaused { .. } => "WorkflowExecutionUnpaused",
            ActivityTaskScheduled(_) => "ActivityTaskScheduled",
            ActivityTaskStarted { .. } => "ActivityTaskStarted",
            ActivityTaskAttemptFailed { .. } => "ActivityTaskAttemptFailed",
            ActivityTaskCompleted { .. } => "ActivityTaskCompleted",
            ActivityTaskFailed { .. } => "ActivityTaskFailed",
            ActivityTaskTimedOut { .. } => "ActivityTaskTimedOut",
            ActivityTaskCancelRequested { .. } => "ActivityTaskCancelRequested",
            ActivityTaskCanceled { .. } => "ActivityTaskCanceled",
            ActivityTaskPaused { .. } => "ActivityTaskPaused",
            ActivityTaskUnpaused { .. } => "ActivityTaskUnpaused",
            ActivityPropertiesModifiedExternally { .. } => "ActivityPropertiesModifiedExternally",
            ActivityTaskAwaitingCompletion { .. } => "ActivityTaskAwaitingCompletion",
            TimerStarted { .. } => "TimerStarted",
            TimerFired { .. } => "TimerFired",
            TimerCanceled { .. } => "TimerCanceled",
            StartChildWorkflowExecutionInitiated(_) => "StartChildWorkflowExecutionInitiated",
            StartChildWorkflowExecutionFailed { .. } => "StartChildWorkflowExecutionFailed",
            ChildWorkflowExecutionStarted { .. } => "ChildWorkflowExecutionStarted",
            ChildWorkflowExecutionCancelRequested { .. } => "ChildWorkflowExecutionCancelRequested",
            ChildWorkflowExecutionCompleted { .. } => "ChildWorkflowExecutionCompleted",
            ChildWorkflowExecutionFailed { .. } => "ChildWorkflowExecutionFailed",
            ChildWorkflowExecutionCanceled { .. } => "ChildWorkflowExecutionCanceled",
            ChildWorkflowExecutionTimedOut { .. } => "ChildWorkflowExecutionTimedOut",
            ChildWorkflowExecutionTerminated { .. } => "ChildWorkflowExecutionTerminated",
            SignalExternalWorkflowExecutionInitiated(_) => "SignalExternalWorkflowExecutionInitiated",
            ExternalWorkflowExecutionSignaled { .. } => "ExternalWorkflowExecutionSignaled",
            SignalExternalWorkflowExecutionFailed { .. } => "SignalExternalWorkflowExecutionFailed",
            RequestCancelExternalWorkflowExecutionInitiated { .. } => "RequestCancelExternalWorkflowExecutionInitiated",
            ExternalWorkflowExecutionCancelRequested { .. } => "ExternalWorkflowExecutionCancelRequested",
            RequestCancelExternalWorkflowExecutionFailed { .. } => "RequestCancelExternalWorkflowExecutionFailed",
            MarkerRecorded(_) => "MarkerRecorded",
            UpsertWorkflowSearchAttributes { .. } => "UpsertWorkflowSearchAttributes",
            WorkflowPropertiesModified { .. } => "WorkflowPropertiesModified",
            WorkflowExecutionCompleted { .. } => "WorkflowExecutionCompleted",
            WorkflowExecutionFailed { .. } => "WorkflowExecutionFailed",
            WorkflowExecutionTimedOut { .. } => "WorkflowExecutionTimedOut",
            WorkflowExecutionCanceled { .. } => "WorkflowExecutionCanceled",
            WorkflowExecutionTerminated { .. } => "WorkflowExecutionTerminated",
            WorkflowExecutionContinuedAsNew(_) => "WorkflowExecutionContinuedAsNew",
            WorkflowExecutionForked { .. } => "WorkflowExecutionForked",
        }
    }

    /// The children that go on as the children of the run that takes this one's place, if this event is the end by a reset.
    pub fn handed_over(&self) -> &[Seq] {
        match self {
            EventKind::WorkflowExecutionTerminated { reset: Some(into), .. } => &into.children,
            _ => &[],
        }
    }

    /// How the run closed, if this event closes it.
    pub fn closes(&self) -> Option<WorkflowStatus> {
        match self {
            EventKind::WorkflowExecutionCompleted { .. } => Some(WorkflowStatus::Completed),
            EventKind::WorkflowExecutionFailed { .. } => Some(WorkflowStatus::Failed),
            EventKind::WorkflowExecutionTimedOut { .. } => Some(WorkflowStatus::TimedOut),
            EventKind::WorkflowExecutionCanceled { .. } => Some(WorkflowStatus::Canceled),
            EventKind::WorkflowExecutionTerminated { .. } => Some(WorkflowStatus::Terminated),
            EventKind::WorkflowExecutionContinuedAsNew(_) => Some(WorkflowStatus::ContinuedAsNew),
            _ => None,
        }
    }
}
