//! What the threads of a worker share, and how a message finds its shard.
//!
//! Invariant: all runs of a workflow id belong to one shard, for as long as the worker lives, so that starts of the same
//! id, continue-as-new and children meet in one order.
#![expect(clippy::disallowed_types, reason = "edge: counts work with atomics and waits on real threads")]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use tokio::sync::{broadcast, oneshot};

use super::committer::{Committer, RunName};
use super::health::HealthCell;
use super::mailbox::{Mailbox, Message};
use super::options::WorkerOptions;
use super::runner::Runner;
use super::waiters::Waiters;
use crate::clock::Clock;
use crate::log::Journal;
use crate::queue::{TaskQueues, Waiting};
use crate::request::Target;
use crate::vocabulary::*;

/// A group as subscribers see it (engine.md E33).
#[derive(Debug)]
pub(crate) struct CommittedGroup {
    pub(crate) turns: Vec<Turn>,
}

pub(crate) struct Shared {
    pub(crate) options: WorkerOptions,
    pub(crate) journal: Arc<Journal>,
    pub(crate) clock: Clock,
    pub(crate) build: BuildId,
    pub(crate) mailboxes: Vec<Mailbox>,
    pub(crate) committer: Committer,
    pub(crate) queues: Mutex<TaskQueues>,
    pub(crate) runner: Runner,
    pub(crate) waiters: Waiters,
    pub(crate) health: HealthCell,
    pub(crate) idle: Idle,
    pub(crate) committed: broadcast::Sender<Arc<CommittedGroup>>,
    /// Runs that are held, and why. Kept here so that lists and a replaced turn thread know.
    pub(crate) held: Mutex<BTreeMap<RunId, String>>,
    /// When each shard wants to be woken, for the virtual clock.
    pub(crate) wake_at: Vec<AtomicI64>,
    /// Who waits for a moment of the virtual clock.
    pub(crate) sleepers: Mutex<Vec<(Timestamp, oneshot::Sender<()>)>>,
}

impl Shared {
    pub(crate) fn shard_of(&self, namespace: &Namespace, workflow_id: &WorkflowId) -> usize {
        let mut hasher = blake3::Hasher::new();
        hasher.update(namespace.as_str().as_bytes()).update(&[0]).update(workflow_id.as_str().as_bytes());
        let hash = hasher.finalize();
        let mut first = [0u8; 8];
        first.copy_from_slice(&hash.as_bytes()[..8]);
        (u64::from_be_bytes(first) % self.mailboxes.len() as u64) as usize
    }
    /// A client's request: refused when the worker is leaving or has too much to do.
    pub(crate) fn request(
        &self,
        namespace: &Namespace,
        workflow_id: &WorkflowId,
        message: Message,
    ) -> Result<(), Rejection> {
        self.idle.begin();
        let taken = self.mailboxes[self.shard_of(namespace, workflow_id)].request(message);
        if taken.is_err() {
            self.idle.end();
        }
        taken
    }
    /// Something the worker caused itself: never refused.
    pub(crate) fn deliver(&self, namespace: &Namespace, workflow_id: &WorkflowId, message: Message) {
        self.deliver_to(self.shard_of(namespace, workflow_id), message);
    }
    pub(crate) fn deliver_to(&self, shard: usize, message: Message) {
        self.idle.begin();
        self.mailboxes[shard].deliver(message);
    }
    /// As [`Shared::deliver`], to a named run, with nobody waiting for the answer.
    pub(crate) fn deliver_input(&self, to: &RunName, input: Input) {
        let target =
            Target { namespace: to.namespace.clone(), workflow_id: to.workflow_id.clone(), run_id: Some(to.run_id) };
        let message = Message::Input { run: super::mailbox::RunRef::Target(target), input, reply: None };
        self.deliver(&to.namespace, &to.workflow_id, message);
    }
    pub(crate) fn take_slot(&self, queue: &TaskQueue) -> bool {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner).take(queue)
    }
    pub(crate) fn release_slot(&self) {
        let next = self.queues.lock().unwrap_or_else(PoisonError::into_inner).release();
        self.grant(next);
    }
    pub(crate) fn enqueue(&self, queue: TaskQueue, waiting: Waiting) {
        let next = self.queues.lock().unwrap_or_else(PoisonError::into_inner).enqueue(queue, waiting);
        self.grant(next);
    }
    fn grant(&self, waiting: Option<Waiting>) {
        if let Some(waiting) = waiting {
            let shard = self.shard_of(&waiting.namespace, &waiting.workflow_id);
            self.deliver_to(shard, Message::SlotGranted(waiting));
        }
    }
    /// Tells subscribers of a group that is durable.
    pub(crate) fn publish(&self, turns: Vec<Turn>) {
        if self.committed.receiver_count() > 0 {
            // Without receivers since the check there is nobody to tell.
            let _ = self.committed.send(Arc::new(CommittedGroup { turns }));
        }
    }
    /// Lets a virtual clock run until a moment, doing everything that is due before.
    pub(crate) async fn run_virtual_until(&self, until: Timestamp) {
        let (reached, wait) = oneshot::channel();
        self.sleepers.lock().unwrap_or_else(PoisonError::into_inner).push((until, reached));
        self.idle.hurry();
        // The worker may stop first; then there is nothing more to wait for.
        let _ = wait.await;
        self.idle.stop_hurrying();
    }
    /// The next moment a virtual clock can move to.
    pub(crate) fn next_moment(&self) -> Option<Timestamp> {
        let shards = self.wake_at.iter().map(|at| Timestamp(at.load(Ordering::Acquire)));
        let sleepers = self.sleepers.lock().unwrap_or_else(PoisonError::into_inner);
        shards.chain(sleepers.iter().map(|(at, _)| *at)).min().filter(|at| *at < Timestamp::MAX)
    }
    /// Wakes those whose moment has come.
    pub(crate) fn wake_sleepers(&self, now: Timestamp) {
        let mut sleepers = self.sleepers.lock().unwrap_or_else(PoisonError::into_inner);
        let (due, rest) = std::mem::take(&mut *sleepers).into_iter().partition(|(at, _)| *at <= now);
        *sleepers = rest;
        for (_, reached) in due as Vec<(Timestamp, oneshot::Sender<()>)> {
            // A caller that has gone away needs no waking.
            let _ = reached.send(());
        }
    }
    pub(crate) fn turn_begins(&self, run: &RunInfo) {
        for interceptor in &self.options.interceptors {
            interceptor.turn_begins(run);
        }
    }
    pub(crate) fn turn_ends(&self, run: &RunInfo, events: usize) {
        for interceptor in self.options.interceptors.iter().rev() {
            interceptor.turn_ends(run, events);
        }
    }
    pub(crate) fn note_held(&self, run: RunId, why: Option<String>) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        match why {
            Some(why) => {
                if held.insert(run, why.clone()).is_none() {
                    tracing::error!(%run, %why, "the run is held: its inputs are kept, nothing is decided");
                }
            }
            None => drop(held.remove(&run)),
        }
    }
    pub(crate) fn held_why(&self, run: RunId) -> Option<String> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).get(&run).cloned()
    }
}

/// Counts what is under way, so that a virtual clock moves only when nothing is.
pub(crate) struct Idle {
    under_way: AtomicI64,
    /// How many callers want time to pass.
    hurried: AtomicUsize,
    lock: Mutex<()>,
    changed: Condvar,
}

impl Idle {
    pub(crate) fn new() -> Self {
        Idle {
            under_way: AtomicI64::new(0),
            hurried: AtomicUsize::new(0),
            lock: Mutex::new(()),
            changed: Condvar::new(),
        }
    }
    pub(crate) fn begin(&self) {
        self.under_way.fetch_add(1, Ordering::AcqRel);
    }
    pub(crate) fn end(&self) {
        if self.under_way.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.notify();
        }
    }
    pub(crate) fn notify(&self) {
        drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_all();
    }
    pub(crate) fn hurry(&self) {
        self.hurried.fetch_add(1, Ordering::AcqRel);
        self.notify();
    }
    pub(crate) fn stop_hurrying(&self) {
        self.hurried.fetch_sub(1, Ordering::AcqRel);
    }
    /// Waits until nothing is under way and somebody wants time to pass, or `stopped` says so.
    pub(crate) fn wait_quiet(&self, stopped: &dyn Fn() -> bool) {
        let mut guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        while !stopped() && (self.under_way.load(Ordering::Acquire) != 0 || self.hurried.load(Ordering::Acquire) == 0) {
            guard = self.changed.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
    }
    /// Waits for the next change. Used when there is no deadline to move the clock to.
    pub(crate) fn wait_change(&self, seen: i64, stopped: &dyn Fn() -> bool) {
        let mut guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        while !stopped() && self.under_way.load(Ordering::Acquire) == seen {
            guard = self.changed.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
    }
}
