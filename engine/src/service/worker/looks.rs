//! What a worker tells of single things, for people and for whoever watches it.
//!
//! Invariant: it only looks, and waits for nothing but a lock.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Worker;
use crate::activity::ActivityRegistry;
use crate::service::options::WorkerOptions;
use crate::vocabulary::*;
use crate::workflow::WorkflowRegistry;

/// The slots of a worker: each carries one attempt at a time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WorkerSlots {
    /// How many attempts may run at once.
    pub all: usize,
    /// How many run.
    pub busy: usize,
    /// How many of them may leave the process, see [`ActivityRegistry::external`](crate::ActivityRegistry::external).
    pub external: usize,
    /// How many do; where all may, how many run.
    pub external_busy: usize,
    /// How many attempts of a namespace wait in a queue for a slot, or for a worker that serves it; queues in which none waits
    /// are left out.
    pub waiting: BTreeMap<Namespace, BTreeMap<TaskQueue, usize>>,
    /// The queues that are served; `None`: every one.
    pub task_queues: Option<BTreeSet<TaskQueue>>,
    /// How many attempts of each queue run; queues in which none does are left out.
    pub running: BTreeMap<TaskQueue, usize>,
    /// What the owner allows of queues.
    pub limits: BTreeMap<TaskQueue, QueueLimits>,
    /// How many attempts may start in a second, over all queues.
    pub max_per_second: Option<PerSecond>,
}

impl Worker {
    /// The workflows and activities it has.
    pub fn code(&self) -> (&WorkflowRegistry, &ActivityRegistry) {
        (&self.shared.options.workflows, &self.shared.options.activities)
    }

    /// What its slots do, and which queues it serves.
    pub fn slots(&self) -> WorkerSlots {
        let WorkerOptions { slots, external_slots, task_queues, queue_limits, max_activities_per_second, .. } =
            &self.shared.options;
        let queues = self.shared.queues.lock().unwrap_or_else(PoisonError::into_inner);
        WorkerSlots {
            all: *slots,
            busy: slots.saturating_sub(queues.free()),
            external: *external_slots,
            external_busy: match external_slots < slots {
                true => external_slots.saturating_sub(queues.free_external()),
                false => slots.saturating_sub(queues.free()),
            },
            waiting: queues.waiting_by_queue(),
            task_queues: task_queues.clone(),
            running: queues.running_by_queue(),
            limits: queue_limits.clone(),
            max_per_second: *max_activities_per_second,
        }
    }

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
