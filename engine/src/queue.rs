//! Task queues, pure: who waits for a slot, and who is next.
//!
//! Invariant: a slot is either free or held by exactly one attempt; an attempt that waits is served in the order it
//! came, over all queues this worker serves, and nobody overtakes the waiting ones. This module runs nothing and knows
//! no clock.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::vocabulary::*;

/// An attempt that waits for a slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WaitingAttempt {
    pub(crate) namespace: Namespace,
    pub(crate) workflow_id: WorkflowId,
    pub(crate) run_id: RunId,
    pub(crate) seq: Seq,
    pub(crate) attempt: Attempt,
}

/// The slots of a worker and the attempts that wait for them.
#[derive(Debug)]
pub(crate) struct TaskQueues {
    free: usize,
    /// `None`: every queue is served.
    served: Option<BTreeSet<TaskQueue>>,
    waiting: BTreeMap<TaskQueue, VecDeque<(u64, WaitingAttempt)>>,
    arrivals: u64,
}

impl TaskQueues {
    pub(crate) fn new(slots: usize, served: Option<BTreeSet<TaskQueue>>) -> Self {
        TaskQueues { free: slots, served, waiting: BTreeMap::new(), arrivals: 0 }
    }
    fn serves(&self, queue: &TaskQueue) -> bool {
        self.served.as_ref().is_none_or(|served| served.contains(queue))
    }
    /// Takes a slot for an attempt that has not waited, unless others wait.
    pub(crate) fn take(&mut self, queue: &TaskQueue) -> bool {
        let can = self.free > 0 && self.serves(queue) && self.next_queue().is_none();
        self.free -= usize::from(can);
        can
    }
    /// Lets an attempt wait. Returns whoever can start now, with the slot taken for it.
    pub(crate) fn enqueue(&mut self, queue: TaskQueue, waiting: WaitingAttempt) -> Option<WaitingAttempt> {
        self.arrivals += 1;
        self.waiting.entry(queue).or_default().push_back((self.arrivals, waiting));
        if self.free == 0 {
            return None;
        }
        let next = self.pop();
        self.free -= usize::from(next.is_some());
        next
    }
    /// Gives a slot back. Returns whoever can start now; then the slot stays taken, for it.
    pub(crate) fn release(&mut self) -> Option<WaitingAttempt> {
        let next = self.pop();
        self.free += usize::from(next.is_none());
        next
    }
    /// No attempt starts any more: the worker is leaving.
    pub(crate) fn close(&mut self) {
        self.served = Some(BTreeSet::new());
    }
    fn next_queue(&self) -> Option<&TaskQueue> {
        self.waiting
            .iter()
            .filter(|(queue, _)| self.serves(queue))
            .filter_map(|(queue, waiting)| waiting.front().map(|(arrival, _)| (*arrival, queue)))
            .min()
            .map(|(_, queue)| queue)
    }
    fn pop(&mut self) -> Option<WaitingAttempt> {
        let queue = self.next_queue()?.clone();
        let waiting = self.waiting.get_mut(&queue)?;
        let next = waiting.pop_front().map(|(_, next)| next);
        if waiting.is_empty() {
            self.waiting.remove(&queue);
        }
        next
    }
    pub(crate) fn free(&self) -> usize {
        self.free
    }
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.values().map(VecDeque::len).sum()
    }
    /// How many runs of each namespace wait in each queue in which some do.
    pub(crate) fn waiting_by_queue(&self) -> BTreeMap<Namespace, BTreeMap<TaskQueue, usize>> {
        let mut found: BTreeMap<Namespace, BTreeMap<TaskQueue, usize>> = BTreeMap::new();
        for (queue, waiting) in &self.waiting {
            for (_, attempt) in waiting {
                *found.entry(attempt.namespace.clone()).or_default().entry(queue.clone()).or_default() += 1;
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(n: u64) -> WaitingAttempt {
        WaitingAttempt {
            namespace: Namespace::of("default"),
            workflow_id: WorkflowId::of("w"),
            run_id: RunId([0; 16]),
            seq: Seq(n),
            attempt: Attempt(1),
        }
    }

    #[test]
    fn slots_are_given_in_the_order_of_arrival_over_all_queues() {
        let mut queues = TaskQueues::new(1, None);
        assert!(queues.take(&"a".into()));
        assert_eq!(queues.enqueue("b".into(), waiting(1)), None);
        assert_eq!(queues.enqueue("a".into(), waiting(2)), None);
        assert!(!queues.take(&"a".into()), "nobody overtakes");
        assert_eq!(queues.release(), Some(waiting(1)));
        assert_eq!(queues.release(), Some(waiting(2)));
        assert_eq!(queues.release(), None);
        assert_eq!(queues.free(), 1);
    }

    #[test]
    fn queues_that_are_not_served_wait_and_block_nobody() {
        let mut queues = TaskQueues::new(1, Some([TaskQueue::of("mine")].into()));
        assert!(!queues.take(&"other".into()));
        assert_eq!(queues.enqueue("other".into(), waiting(1)), None);
        assert!(queues.take(&"mine".into()));
        assert_eq!(queues.waiting(), 1);
        let in_other = [(TaskQueue::of("other"), 1)].into();
        assert_eq!(queues.waiting_by_queue(), [(Namespace::of("default"), in_other)].into());
    }
}
