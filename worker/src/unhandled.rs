//! Signals that a run was given and that its code never took: what its end says of them (E11, G13).
//!
//! Invariant: it is read from the last event of a run that has closed, and guesses nothing; an open run may still take what it
//! was sent.

use bosun_engine::*;

use crate::backend::Backend;
use crate::inbox::target_of;

/// What an end says of signals; nothing of any other event.
pub(crate) fn of_event(kind: &EventKind) -> &[SignalName] {
    match kind {
        EventKind::WorkflowExecutionCompleted { unhandled_signals, .. }
        | EventKind::WorkflowExecutionFailed { unhandled_signals, .. }
        | EventKind::WorkflowExecutionTimedOut { unhandled_signals, .. }
        | EventKind::WorkflowExecutionCanceled { unhandled_signals, .. } => unhandled_signals,
        _ => &[],
    }
}

/// Of a run that has closed. One whose end cannot be read hides nothing else of it.
pub(crate) async fn of_run(backend: &dyn Backend, info: &RunInfo) -> Vec<SignalName> {
    if info.status.is_open() {
        return Vec::new();
    }
    let last = backend.history(target_of(info), EventId(info.history.events), 1).await.unwrap_or_default();
    last.last().map(|event| of_event(&event.kind).to_vec()).unwrap_or_default()
}

/// Of the run that a result is of.
pub(crate) async fn of_result(backend: &dyn Backend, namespace: &Namespace, result: &RunResult) -> Vec<SignalName> {
    let target = Target { namespace: namespace.clone(), ..Target::run(result.workflow_id.clone(), result.run_id) };
    match backend.describe(target).await {
        Ok(found) => of_run(backend, &found.info).await,
        Err(_) => Vec::new(),
    }
}

/// Their names in a sentence.
pub(crate) fn in_words(names: &[SignalName]) -> String {
    let named: Vec<&str> = names.iter().map(SignalName::as_str).collect();
    format!("{}: accepted, and never taken by its code", named.join(", "))
}
