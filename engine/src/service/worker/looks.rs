//! What a worker tells of single things, for people and for whoever watches it.
//!
//! Invariant: it only looks, and waits for nothing but a lock.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Worker;
use crate::vocabulary::*;

impl Worker {
    /// For how long the group that is being written has been; `None` where none is. A disk that hangs shows here and nowhere
    /// else: nothing fails, and nothing is acknowledged.
    pub fn writing_for(&self) -> Option<Duration> {
        self.shared.committer.writing_for()
    }

    /// Whether a run that had something under way has still to be looked at since the start: until then not all that waits in a
    /// queue is there.
    pub fn is_recovering(&self) -> bool {
        self.shared.looks_open.load(Ordering::Acquire) > 0
    }

    /// Bytes that loaded runs and waiting requests may take together.
    pub fn memory(&self) -> usize {
        self.shared.options.memory
    }

    /// Who waits in a queue for a slot, of the namespaces that are `seen`: those whose turn is first, first, and no more than
    /// `most` of them.
    pub fn waiting_in(&self, queue: &TaskQueue, seen: impl Fn(&Namespace) -> bool, most: usize) -> Vec<WaitingShare> {
        self.shared.queues.lock().unwrap_or_else(PoisonError::into_inner).waiting_in(queue, seen, most)
    }
}
