//! Signals to a run and the request ids that make requests idempotent (E11, G13).
//!
//! Invariant: a signal with a request id that was seen before, in this run or in an earlier one of its chain, changes
//! nothing and is answered as accepted. Order of acceptance is order of delivery. The code's own buffers hold what it
//! has not taken; this machine holds no signal except in the inbox of a paused or held run.

use std::collections::{BTreeSet, VecDeque};

use serde::{Deserialize, Serialize};

use super::run::Run;
use crate::vocabulary::*;

/// The request ids a run remembers. Bounded: the newest [`RequestIds::KEPT`] are kept, over continue-as-new too.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct RequestIds {
    known: BTreeSet<RequestId>,
    order: VecDeque<RequestId>,
}

impl RequestIds {
    /// How many request ids are remembered. A retry that arrives after this many other requests is not recognised.
    pub(super) const KEPT: usize = 65_536;

    pub(super) fn insert(&mut self, id: &RequestId) {
        if self.known.insert(id.clone()) {
            self.order.push_back(id.clone());
            if self.order.len() > Self::KEPT
                && let Some(oldest) = self.order.pop_front()
            {
                self.known.remove(&oldest);
            }
        }
    }
    pub(super) fn contains(&self, id: &RequestId) -> bool {
        self.known.contains(id)
    }
    pub(super) fn in_order(&self) -> Vec<RequestId> {
        self.order.iter().cloned().collect()
    }
}

impl Run {
    pub(super) fn apply_signal(&mut self, signal: &WorkflowExecutionSignaled) {
        if let Some(id) = &signal.request_id {
            self.request_ids.insert(id);
        }
    }

    /// Remembers the request id of an input that is kept in the inbox.
    pub(super) fn note_request(&mut self, input: &Input) {
        if let Some(id) = request_id(input) {
            self.request_ids.insert(id);
        }
    }

    /// Whether the input was carried out, or is kept, already.
    pub(super) fn is_repeated(&self, input: &Input) -> bool {
        request_id(input).is_some_and(|id| self.request_ids.contains(id))
    }
}

pub(super) fn request_id(input: &Input) -> Option<&RequestId> {
    match input {
        Input::Signal(signal) => signal.request_id.as_ref(),
        Input::RequestCancel { request_id, .. } => request_id.as_ref(),
        Input::Terminate { .. }
        | Input::Update { .. }
        | Input::Pause { .. }
        | Input::Unpause { .. }
        | Input::PauseActivity { .. }
        | Input::ModifyActivity { .. }
        | Input::UnpauseActivity { .. }
        | Input::StartActivity { .. }
        | Input::ActivityOutcome { .. }
        | Input::Heartbeat { .. }
        | Input::Deadline
        | Input::WorkerRestarted
        | Input::ChildStarted { .. }
        | Input::ChildClosed { .. }
        | Input::SignalDelivered { .. }
        | Input::CancelDelivered { .. } => None,
    }
}
