//! Events about something that was asked for: its number, and whether it is over.
//!
//! Invariant: what an event is about is said once, here; requests themselves are `CommandFamily::asked_for`'s. Nothing
//! is looked up: whether such a request exists is for the reader of the history.

use bosun_engine::*;

/// Both ways to the number, from one list.
macro_rules! number {
    ($event:expr) => {
        match $event {
            EventKind::ActivityTaskStarted { seq, .. }
            | EventKind::ActivityTaskAttemptFailed { seq, .. }
            | EventKind::ActivityTaskCompleted { seq, .. }
            | EventKind::ActivityTaskFailed { seq, .. }
            | EventKind::ActivityTaskTimedOut { seq, .. }
            | EventKind::ActivityTaskCanceled { seq, .. }
            | EventKind::ActivityTaskPaused { seq, .. }
            | EventKind::ActivityTaskUnpaused { seq, .. }
            | EventKind::ActivityPropertiesModifiedExternally { seq, .. }
            | EventKind::ActivityTaskAwaitingCompletion { seq, .. }
            | EventKind::TimerFired { seq }
            | EventKind::StartChildWorkflowExecutionFailed { seq, .. }
            | EventKind::ChildWorkflowExecutionStarted { seq, .. }
            | EventKind::ChildWorkflowExecutionCompleted { seq, .. }
            | EventKind::ChildWorkflowExecutionFailed { seq, .. }
            | EventKind::ChildWorkflowExecutionCanceled { seq, .. }
            | EventKind::ChildWorkflowExecutionTimedOut { seq }
            | EventKind::ChildWorkflowExecutionTerminated { seq, .. }
            | EventKind::ExternalWorkflowExecutionSignaled { seq }
            | EventKind::SignalExternalWorkflowExecutionFailed { seq, .. }
            | EventKind::ExternalWorkflowExecutionCancelRequested { seq }
            | EventKind::RequestCancelExternalWorkflowExecutionFailed { seq, .. } => Some(seq),
            _ => None,
        }
    };
}

/// The number of what an event is about, of those that were asked for.
pub(crate) fn about(event: &EventKind) -> Option<Seq> {
    number!(event).copied()
}

/// The same event about another number.
pub(crate) fn renumbered(event: &EventKind, to: Seq) -> EventKind {
    let mut event = event.clone();
    if let Some(seq) = number!(&mut event) {
        *seq = to;
    }
    event
}

/// Whether an event is the end of what it is about.
pub(crate) fn ends(event: &EventKind, of_a_child: bool) -> bool {
    use EventKind::*;
    match event {
        ActivityTaskStarted { .. }
        | ActivityTaskAttemptFailed { .. }
        | ActivityTaskPaused { .. }
        | ActivityTaskUnpaused { .. }
        | ActivityPropertiesModifiedExternally { .. }
        | ActivityTaskAwaitingCompletion { .. }
        | ChildWorkflowExecutionStarted { .. } => false,
        ExternalWorkflowExecutionCancelRequested { .. } => !of_a_child,
        other => about(other).is_some(),
    }
}

/// The number of what an event answers: its end, or the start of a child.
pub(crate) fn answers(event: &EventKind) -> Option<Seq> {
    let starts = matches!(event, EventKind::ChildWorkflowExecutionStarted { .. });
    about(event).filter(|_| starts || ends(event, false))
}
