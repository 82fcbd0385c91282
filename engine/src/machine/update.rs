//! Updates of a run (E14).
//!
//! ```text
//!   validator says no  ──► refused, no event
//!   validator says yes ──► UpdateAccepted ──► handler ──► UpdateCompleted
//! ```
//!
//! Invariant: one update id is accepted at most once; a second request gets the first one's answer. Whether the
//! validator agrees is asked before this machine sees the update.

use serde::{Deserialize, Serialize};

use super::decision::{Effect, TurnDraft};
use super::family::UpdateEvent;
use super::run::Run;
use crate::request::UpdateOutcome;
use crate::vocabulary::*;

/// An accepted update.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) enum Update {
    Accepted,
    Completed(Result<Payload, Failure>),
}

impl Run {
    pub(super) fn apply_update(&mut self, event: UpdateEvent<'_>) {
        let (id, update) = match event {
            UpdateEvent::Accepted(id) => (id, Update::Accepted),
            UpdateEvent::Completed(id, result) => (id, Update::Completed(result.clone())),
        };
        self.updates.insert(id.clone(), update);
    }

    pub(super) fn complete_update(
        &mut self,
        draft: &mut TurnDraft<'_, '_>,
        update_id: UpdateId,
        result: Result<Payload, Failure>,
    ) {
        if self.updates.get(&update_id) == Some(&Update::Accepted) {
            draft.effect(Effect::ResolveUpdate { update_id: update_id.clone(), result: result.clone() });
            draft.push(self, EventKind::WorkflowExecutionUpdateCompleted { update_id, result });
        }
    }

    /// Where an update is, if it was accepted.
    pub fn update(&self, update_id: &UpdateId) -> Option<UpdateOutcome> {
        self.updates.get(update_id).map(|update| match update {
            Update::Accepted => UpdateOutcome::Accepted,
            Update::Completed(result) => UpdateOutcome::Completed(result.clone()),
        })
    }

    /// Updates that were accepted and not answered.
    pub fn pending_updates(&self) -> Vec<UpdateId> {
        self.updates.iter().filter(|(_, update)| **update == Update::Accepted).map(|(id, _)| id.clone()).collect()
    }
}
