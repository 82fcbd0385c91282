//! Signals and cancel requests from this run to other runs (E16).
//!
//! ```text
//!   command ──► …Initiated ──► delivered (ExternalWorkflowExecutionSignaled / …CancelRequested)
//!                        └───► failed    (…Failed: no such open run)
//! ```
//!
//! Invariant: each request ends in exactly one event. Until then it is delivered again after every restart; the
//! receiver drops repetitions by the request id derived from this run and the command's number.

use serde::{Deserialize, Serialize};

use super::decision::{Effect, TurnDraft};
use super::family::ExternalEvent;
use super::run::Run;
use crate::vocabulary::*;

/// A request under way.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) enum External {
    Signal(Box<SignalExternalInitiated>),
    Cancel { target: ExternalTarget, reason: String },
}

/// The request id under which a run's request to another run is known there.
fn request_id(run: RunId, seq: Seq) -> RequestId {
    RequestId::of(format!("from:{run}:{seq}"))
}

impl Run {
    pub(super) fn apply_external(&mut self, seq: Seq, event: ExternalEvent<'_>) {
        match event {
            ExternalEvent::SignalInitiated(signal) => {
                self.externals.insert(seq, External::Signal(Box::new(signal.clone())));
            }
            ExternalEvent::CancelInitiated { target, reason } => {
                let cancel = External::Cancel { target: target.clone(), reason: reason.to_owned() };
                self.externals.insert(seq, cancel);
            }
            ExternalEvent::CancelDelivered => match self.children.get_mut(&seq) {
                Some(child) => child.cancel_delivered = true,
                None => drop(self.externals.remove(&seq)),
            },
            ExternalEvent::Ended => drop(self.externals.remove(&seq)),
        }
    }

    pub(super) fn signal_external(&mut self, draft: &mut TurnDraft<'_, '_>, initiated: SignalExternalInitiated) {
        let seq = initiated.seq;
        draft.push(self, EventKind::SignalExternalWorkflowExecutionInitiated(Box::new(initiated)));
        self.redeliver(draft, seq);
    }

    pub(super) fn cancel_external(
        &mut self,
        draft: &mut TurnDraft<'_, '_>,
        seq: Seq,
        target: ExternalTarget,
        reason: String,
    ) {
        draft.push(self, EventKind::RequestCancelExternalWorkflowExecutionInitiated { seq, target, reason });
        self.redeliver(draft, seq);
    }

    /// The messages that are under way: their numbers, whether they are signals, and whom they are for.
    pub(super) fn pending_messages(&self) -> Vec<(Seq, bool, String)> {
        let told = |(seq, external): (&Seq, &External)| match external {
            External::Signal(signal) => (*seq, true, format!("{} to {}", signal.name, signal.target.workflow_id)),
            External::Cancel { target, .. } => (*seq, false, target.workflow_id.to_string()),
        };
        self.externals.iter().map(told).collect()
    }

    /// Asks for the delivery of a request under way, for the first time or after a restart.
    pub(super) fn redeliver(&self, draft: &mut TurnDraft<'_, '_>, seq: Seq) {
        self.deliver(draft, seq, request_id(self.id(), seq));
    }

    pub(super) fn deliver(&self, draft: &mut TurnDraft<'_, '_>, seq: Seq, request_id: RequestId) {
        if self.of_source.contains(&seq) {
            return;
        }
        let effect = match self.externals.get(&seq) {
            Some(External::Signal(signal)) => Effect::SignalExternal {
                seq,
                target: signal.target.clone(),
                signal: WorkflowExecutionSignaled {
                    name: signal.name.clone(),
                    input: signal.input.clone(),
                    identity: None,
                    request_id: Some(request_id),
                },
            },
            Some(External::Cancel { target, reason }) => {
                Effect::CancelExternal { seq, target: target.clone(), reason: reason.clone(), request_id }
            }
            None => return,
        };
        draft.effect(effect);
    }

    pub(super) fn signal_delivered(&mut self, draft: &mut TurnDraft<'_, '_>, seq: Seq, result: Result<(), Failure>) {
        if !matches!(self.externals.get(&seq), Some(External::Signal(_))) {
            return;
        }
        draft.push(
            self,
            match result {
                Ok(()) => EventKind::ExternalWorkflowExecutionSignaled { seq },
                Err(failure) => EventKind::SignalExternalWorkflowExecutionFailed { seq, failure },
            },
        );
    }

    pub(super) fn cancel_delivered(&mut self, draft: &mut TurnDraft<'_, '_>, seq: Seq, result: Result<(), Failure>) {
        if self.children.contains_key(&seq) {
            return self.child_cancel_delivered(draft, seq, &result);
        }
        if !matches!(self.externals.get(&seq), Some(External::Cancel { .. })) {
            return;
        }
        draft.push(
            self,
            match result {
                Ok(()) => EventKind::ExternalWorkflowExecutionCancelRequested { seq },
                Err(failure) => EventKind::RequestCancelExternalWorkflowExecutionFailed { seq, failure },
            },
        );
    }
}
