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
    /// The news of its start waits in the inbox.
    start_waits: Option<RunId>,
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
        let (waiting_start, mut ended) = from_inbox(run, seq);
        // It is told from the inbox, and not once more.
        if ended {
            continue;
        }
        let mut started = child.run_id.is_some();
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
            let start_waits = waiting_start.filter(|_| !started);
            open.push(OpenChild { seq, workflow_id: child.workflow_id, started, start_waits });
        }
    }
    open
}

/// What waits in the inbox of what is copied about a child: its start, and whether its end is there.
fn from_inbox(run: &Run, seq: Seq) -> (Option<RunId>, bool) {
    let (mut started, mut ended) = (None, false);
    for input in &run.inbox {
        match input {
            Input::ChildStarted { seq: of, result: Ok(run_id) } if *of == seq => started = Some(*run_id),
            Input::ChildStarted { seq: of, result: Err(_) } if *of == seq => ended = true,
            Input::ChildClosed { seq: of, outcome, .. } if *of == seq => {
                ended |= !matches!(outcome, CloseOutcome::ContinuedAsNew { .. });
            }
            _ => {}
        }
    }
    (started, ended)
}

/// Whether what waits in the inbox of what is copied says how an activity or a child ended.
pub(super) fn is_told_from_inbox(run: &Run, seq: Seq) -> bool {
    run.attempts_told_from_inbox().contains(&seq) || from_inbox(run, seq).1
}

/// Whether what waits in the inbox of what is copied says what became of a message.
fn is_delivered(run: &Run, message: Seq) -> bool {
    run.inbox.iter().any(|input| {
        matches!(input, Input::SignalDelivered { seq, .. } | Input::CancelDelivered { seq, .. } if *seq == message)
    })
}

/// How much of what waits in the inbox of what is copied the fork decides: not the news of an attempt that is made again.
pub(super) fn inbox(run: &Run) -> usize {
    let ended = run.attempts_told_from_inbox();
    let decides = |input: &&Input| match input {
        Input::ActivityOutcome { seq, .. } => ended.contains(seq),
        _ => true,
    };
    run.inbox.iter().filter(decides).count()
}

/// Tells that children are the source's alone.
pub(super) fn not_shared(children: Vec<OpenChild>, told: &mut Told) {
    for OpenChild { seq, workflow_id, started, start_waits } in children {
        let why = format!("the child workflow {workflow_id} belongs to the run that was forked");
        if let Some(run_id) = start_waits {
            let event = EventKind::ChildWorkflowExecutionStarted { seq, run_id };
            let what = format!("{} {workflow_id}", event.name());
            let line = ForkTold { event: None, what, why: ForkTelling::AsRecorded };
            told.push((EventId(u64::MAX), event, line));
        }
        let event = if started || start_waits.is_some() {
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
        // It is told from the inbox, and not once more.
        if is_delivered(run, seq) {
            continue;
        }
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
