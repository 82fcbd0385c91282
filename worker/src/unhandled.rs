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
        | EventKind::WorkflowExecutionTerminated { unhandled_signals, .. }
        | EventKind::WorkflowExecutionCanceled { unhandled_signals, .. } => unhandled_signals,
        _ => &[],
    }
}

/// Of a run that has closed. One whose end cannot be read hides nothing else of it. Of a run on a Temporal cluster nothing is
/// said: only a replay of its whole history would tell, at each look anew.
pub(crate) async fn of_run(backend: &dyn Backend, info: &RunInfo) -> Vec<SignalName> {
    if info.status.is_open() || !backend.finds_single_events() {
        return Vec::new();
    }
    let last = backend.history(target_of(info), EventId(info.history.events), 1).await.unwrap_or_default();
    last.last().map(|event| of_event(&event.kind).to_vec()).unwrap_or_default()
}

/// Of the run that a result is of.
pub(crate) async fn of_result(backend: &dyn Backend, namespace: &Namespace, result: &RunResult) -> Vec<SignalName> {
    if !backend.finds_single_events() {
        return Vec::new();
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{Fake, event, run_info};

    /// One event says it; where it costs the whole history, nobody pays that for a look.
    #[tokio::test]
    async fn a_history_is_not_read_whole_for_what_its_end_says() {
        let unhandled_signals = vec![SignalName::of("late")];
        let mut fake = Fake::new();
        fake.events =
            vec![event(3, EventKind::WorkflowExecutionCompleted { result: Payload::null(), unhandled_signals })];
        fake.runs = vec![run_info("order-7", WorkflowStatus::Completed)];
        let info = fake.runs[0].clone();
        assert_eq!(of_run(&fake, &info).await, [SignalName::of("late")]);
        assert_eq!(fake.calls(), ["history order-7/0707 3 1"]);
        fake.reads_whole_histories = true;
        let outcome = CloseOutcome::Completed(Payload::null());
        let result = RunResult { workflow_id: info.workflow_id.clone(), run_id: info.run_id, outcome };
        assert_eq!(of_run(&fake, &info).await, []);
        assert_eq!(of_result(&fake, &info.namespace, &result).await, []);
        assert_eq!(fake.calls().len(), 1, "nothing more was asked: {:?}", fake.calls());
    }
}
