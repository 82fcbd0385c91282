//! Who waits for the end of a run or of an update.
//!
//! Invariant: a waiter is registered by the turn thread before the decision that would answer it is submitted, and
//! answered after that decision is durable; so none is missed and none hears too early. Whoever comes after the storage
//! has failed, when nothing will be answered any more, is told so.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use super::health::HealthCell;
use super::mailbox::{ClosedRun, ReplySender};
use crate::request::UpdateOutcome;
use crate::vocabulary::*;

#[derive(Default)]
pub(crate) struct Waiters {
    closes: Mutex<BTreeMap<RunId, Vec<ReplySender<ClosedRun>>>>,
    updates: Mutex<BTreeMap<(RunId, UpdateId), Vec<ReplySender<UpdateOutcome>>>>,
}

impl Waiters {
    pub(crate) fn await_close(&self, health: &HealthCell, run: RunId, reply: ReplySender<ClosedRun>) {
        let mut closes = self.closes.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting = closes.entry(run).or_default();
        waiting.retain(|reply| !reply.is_closed());
        waiting.push(reply);
        drop(closes);
        self.abandon_if_failed(health);
    }
    pub(crate) fn closed(&self, closed: &ClosedRun) {
        let waiting = self.closes.lock().unwrap_or_else(PoisonError::into_inner).remove(&closed.run_id);
        for reply in waiting.into_iter().flatten() {
            reply.send(Ok(closed.clone()));
        }
    }
    /// Nobody can say how this run has ended.
    pub(crate) fn refuse_close(&self, run: RunId, why: &Rejection) {
        let waiting = self.closes.lock().unwrap_or_else(PoisonError::into_inner).remove(&run);
        for reply in waiting.into_iter().flatten() {
            reply.send(Err(why.clone()));
        }
    }
    pub(crate) fn await_update(
        &self,
        health: &HealthCell,
        run: RunId,
        update_id: UpdateId,
        reply: ReplySender<UpdateOutcome>,
    ) {
        let mut updates = self.updates.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting = updates.entry((run, update_id)).or_default();
        waiting.retain(|reply| !reply.is_closed());
        waiting.push(reply);
        drop(updates);
        self.abandon_if_failed(health);
    }
    /// After registering: the failure is noted before the waiters of that moment are abandoned, so none is left behind.
    fn abandon_if_failed(&self, health: &HealthCell) {
        if let Some(why) = health.storage_failure().and_then(|failed| failed.refusal()) {
            self.abandon(&why);
        }
    }
    pub(crate) fn update_completed(&self, run: RunId, update_id: UpdateId, result: &Result<Payload, Failure>) {
        let waiting = self.updates.lock().unwrap_or_else(PoisonError::into_inner).remove(&(run, update_id));
        for reply in waiting.into_iter().flatten() {
            reply.send(Ok(UpdateOutcome::Completed(result.clone())));
        }
    }
    pub(crate) fn refuse_update(&self, run: RunId, update_id: UpdateId, why: &Rejection) {
        let waiting = self.updates.lock().unwrap_or_else(PoisonError::into_inner).remove(&(run, update_id));
        for reply in waiting.into_iter().flatten() {
            reply.send(Err(why.clone()));
        }
    }
    /// The worker leaves: nobody will be answered any more.
    pub(crate) fn abandon(&self, why: &Rejection) {
        let closes = std::mem::take(&mut *self.closes.lock().unwrap_or_else(PoisonError::into_inner));
        for reply in closes.into_values().flatten() {
            reply.send(Err(why.clone()));
        }
        let updates = std::mem::take(&mut *self.updates.lock().unwrap_or_else(PoisonError::into_inner));
        for reply in updates.into_values().flatten() {
            reply.send(Err(why.clone()));
        }
    }
}
