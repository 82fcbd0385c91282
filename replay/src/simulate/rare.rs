//! Rare states: what must be met now and then, or a search has not looked where it matters (the requirements of the engine §3, `sometimes!`).
//!
//! Invariant: a name stands in [`RARE`] or it cannot be counted; so a test over many lives can say which were never met.

use std::collections::BTreeMap;

use bosun_engine::machine::NextRun;
use bosun_engine::*;

use super::plan::Boundary;

/// All rare states.
pub const RARE: &[&str] = &[
    "crash before append",
    "crash with the group unsynced and lost",
    "crash with the group unsynced and kept",
    "crash after sync",
    "crash after release",
    "crash in recovery",
    "crash with a snapshot lost",
    "crash with a snapshot kept",
    "delivered out of order",
    "duplicate completion refused",
    "late completion refused",
    "zombie refused",
    "attempt failed",
    "attempt lost",
    "attempt lost with its worker",
    "activity failed",
    "activity timed out",
    "activity canceled",
    "activity stopped when it was canceled",
    "timer fired",
    "timer canceled",
    "signal arrived",
    "signal waited in the inbox",
    "request repeated after a crash",
    "repeated request recognised",
    "cancel requested",
    "query answered",
    "update completed",
    "paused",
    "deployed",
    "resumed from a snapshot",
    "resumed from a snapshot and turns after it",
    "child completed",
    "child start repeated",
    "child told after a crash that its parent has closed",
    "continued as new",
    "signal carried over continue-as-new",
    "input carried in the inbox to the next run",
    "two ends in one turn",
    "side effect recorded",
    "patch recorded",
    "run failed",
    "run canceled",
];

/// How often each was met.
#[derive(Debug, Clone, Default)]
pub(super) struct Rare(BTreeMap<&'static str, u64>);

impl Rare {
    pub(super) fn hit(&mut self, name: &'static str) {
        *self.0.entry(name).or_default() += 1;
    }
    pub(super) fn met(self) -> BTreeMap<&'static str, u64> {
        self.0
    }

    pub(super) fn note_crash(&mut self, boundary: Boundary) {
        self.hit(match boundary {
            Boundary::BeforeAppend => "crash before append",
            Boundary::Unsynced { kept: false } => "crash with the group unsynced and lost",
            Boundary::Unsynced { kept: true } => "crash with the group unsynced and kept",
            Boundary::AfterSync => "crash after sync",
            Boundary::AfterRelease | Boundary::InRecovery { .. } | Boundary::InSnapshot { .. } => "crash after release",
        });
    }

    pub(super) fn note_next_run(&mut self, next: &NextRun) {
        if !next.started.carried_signals.is_empty() {
            self.hit("signal carried over continue-as-new");
        }
        if !next.inbox.is_empty() {
            self.hit("input carried in the inbox to the next run");
        }
    }

    pub(super) fn note_turn(&mut self, turn: &Turn) {
        let mut ends = 0;
        for event in &turn.events {
            if let Some(name) = named(event) {
                self.hit(name);
            }
            ends += usize::from(event.origin() == Origin::Activating);
        }
        if ends > 1 {
            self.hit("two ends in one turn");
        }
        if turn.inbox_added.iter().any(|input| matches!(input, Input::Signal(_))) {
            self.hit("signal waited in the inbox");
        }
    }
}

fn named(event: &EventKind) -> Option<&'static str> {
    Some(match event {
        EventKind::ActivityTaskFailed { .. } => "activity failed",
        EventKind::ActivityTaskTimedOut { .. } => "activity timed out",
        EventKind::ActivityTaskCanceled { .. } => "activity canceled",
        EventKind::ActivityTaskAttemptFailed { failure, .. } if failure.kind == FailureKind::WorkerLost => {
            "attempt lost with its worker"
        }
        EventKind::TimerFired { .. } => "timer fired",
        EventKind::TimerCanceled { .. } => "timer canceled",
        EventKind::WorkflowExecutionSignaled(_) => "signal arrived",
        EventKind::WorkflowExecutionCancelRequested { .. } => "cancel requested",
        EventKind::WorkflowExecutionUpdateCompleted { .. } => "update completed",
        EventKind::WorkflowExecutionPaused { .. } => "paused",
        EventKind::ChildWorkflowExecutionCompleted { .. } => "child completed",
        EventKind::WorkflowExecutionContinuedAsNew(_) => "continued as new",
        EventKind::MarkerRecorded(Marker::SideEffect { .. }) => "side effect recorded",
        EventKind::MarkerRecorded(Marker::Patch { .. }) => "patch recorded",
        EventKind::WorkflowExecutionFailed { .. } => "run failed",
        EventKind::WorkflowExecutionCanceled { .. } => "run canceled",
        _ => return None,
    })
}
