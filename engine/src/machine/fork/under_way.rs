//! What was under way at the fork, and what becomes of it. The rules stand in the parent module.
//!
//! Invariant: after what is told, no child and no message of the source is pending in the fork. Until then, and if the
//! fork ends before it has heard all of it, `Run::of_source` keeps them from being started, watched, canceled, ended or
//! delivered by it.

use super::change::Told;
use super::source::{ForkHistory, ends};
use crate::machine::run::Run;
use crate::request::{ForkEffect, ForkTelling, ForkTold, PlannedTimer};
use crate::vocabulary::*;

/// A child of which no end is recorded.
pub(super) struct OpenChild {
    pub(super) seq: Seq,
    pub(super) workflow_id: WorkflowId,
    started: bool,
}

/// Tells children as the source recorded, and gives those without a recorded end.
pub(super) fn children(
    source: &ForkHistory<'_>,
    run: &Run,
    at: EventId,
    decided: &[Seq],
    told: &mut Told,
) -> Vec<OpenChild> {
    let mut open = Vec::new();
    for child in run.pending_children() {
        let seq = child.seq;
        if decided.contains(&seq) {
            continue;
        }
        let mut started = child.run_id.is_some();
        let mut ended = false;
        for event in source.after(at) {
            let about = match event.kind {
                EventKind::ChildWorkflowExecutionStarted { seq, .. } => Some(*seq),
                other => ends(other),
            };
            if about == Some(seq) {
                let what = format!("{} {}", event.kind.name(), child.workflow_id);
                let line = ForkTold { event: Some(event.id), what, why: ForkTelling::AsRecorded };
                told.push((event.id, event.kind.clone(), line));
                started |= matches!(event.kind, EventKind::ChildWorkflowExecutionStarted { .. });
                ended |= ends(event.kind).is_some();
            }
        }
        if !ended {
            open.push(OpenChild { seq, workflow_id: child.workflow_id, started });
        }
    }
    open
}

/// Tells that children are the source's alone.
pub(super) fn not_shared(children: Vec<OpenChild>, told: &mut Told) {
    for OpenChild { seq, workflow_id, started } in children {
        let why = format!("the child workflow {workflow_id} belongs to the run that was forked");
        let event = if started {
            EventKind::ChildWorkflowExecutionTerminated { seq, reason: why }
        } else {
            let failure = Failure::application(FAILURE_CHILD_OF_SOURCE, why).non_retryable();
            EventKind::StartChildWorkflowExecutionFailed { seq, failure }
        };
        let what = format!("{} {workflow_id}", event.name());
        told.push((EventId(u64::MAX), event, ForkTold { event: None, what, why: ForkTelling::NotShared }));
    }
}

/// Tells what became of messages to other runs; the source sends them, the fork does not.
pub(super) fn messages(source: &ForkHistory<'_>, run: &Run, at: EventId, told: &mut Told) {
    for (seq, is_signal, target) in run.pending_messages() {
        let ends_it = |event: &&super::source::Placed<'_>| match event.kind {
            EventKind::ExternalWorkflowExecutionCancelRequested { seq: other } => *other == seq,
            other => ends(other) == Some(seq),
        };
        if let Some(event) = source.after(at).iter().find(ends_it) {
            let what = format!("{} {target}", event.kind.name());
            let line = ForkTold { event: Some(event.id), what, why: ForkTelling::AsRecorded };
            told.push((event.id, event.kind.clone(), line));
            continue;
        }
        let event = if is_signal {
            EventKind::ExternalWorkflowExecutionSignaled { seq }
        } else {
            EventKind::ExternalWorkflowExecutionCancelRequested { seq }
        };
        let what = format!("{} {target}", event.name());
        told.push((EventId(u64::MAX), event, ForkTold { event: None, what, why: ForkTelling::SentBySource }));
    }
}

/// The activities that run again.
pub(super) fn activities(source: &ForkHistory<'_>, run: &Run, ended: &[Seq]) -> Vec<ForkEffect> {
    run.activities_to_repeat()
        .into_iter()
        .filter(|seq| !ended.contains(seq))
        .filter_map(|seq| source.subjects.get(&seq))
        .map(super::source::ForkedOperation::effect)
        .collect()
}

pub(super) fn timers(run: &Run) -> Vec<PlannedTimer> {
    let left = |fire_at: Timestamp| fire_at.since(run.last_at());
    let planned = |timer: crate::request::PendingTimer| PlannedTimer {
        seq: timer.seq,
        left: left(timer.fire_at),
        summary: timer.summary,
    };
    run.pending_timers().into_iter().map(planned).collect()
}
