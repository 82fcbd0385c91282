//! What the threads of a worker share, and how a message finds its shard.
//!
//! Invariant: all runs of a workflow id belong to one shard, for as long as the worker lives, so that starts of the same
//! id, continue-as-new and children meet in one order.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::broadcast;

use super::budget::MemoryBudget;
use super::committer::{Committer, RunName};
use super::fit::FitReport;
use super::health::{Health, HealthCell};
use super::mailbox::{ShardMailbox, ShardMessage};
use super::options::WorkerOptions;
use super::quarantine::Quarantine;
use super::retention::{RetentionInfo, SeenTime};
use super::runner::Runner;
use super::shadow::Shadows;
use super::time_skipping::TimeSkipping;
use super::waiters::Waiters;
use crate::clock::Clock;
use crate::log::Journal;
use crate::queue::{SlotUse, TaskQueues, WaitingAttempt};
use crate::request::Target;
use crate::vocabulary::*;

/// A group as subscribers see it (E33).
#[derive(Debug)]
pub(crate) struct CommittedGroup {
    pub(crate) turns: Vec<Turn>,
}

pub(crate) struct WorkerShared {
    pub(crate) options: WorkerOptions,
    pub(crate) journal: Arc<Journal>,
    pub(crate) clock: Clock,
    pub(crate) build: BuildId,
    pub(crate) mailboxes: Vec<ShardMailbox>,
    pub(crate) committer: Committer,
    pub(super) budget: MemoryBudget,
    pub(crate) queues: Mutex<TaskQueues>,
    /// When somebody who waits there may start by the rates; changed only while they are locked.
    pub(super) next_ready: AtomicI64,
    pub(crate) runner: Runner,
    pub(crate) waiters: Waiters,
    pub(crate) health: HealthCell,
    /// What is under way, and how a virtual clock moves.
    pub(crate) time: Arc<TimeSkipping>,
    pub(crate) committed: broadcast::Sender<Arc<CommittedGroup>>,
    /// Runs that are held, and why. Kept here so that lists and a replaced turn thread know.
    pub(crate) held: Mutex<BTreeMap<RunId, String>>,
    /// Those of them that no release helps: a part of their history is lost.
    pub(super) salvaged: BTreeMap<RunId, String>,
    /// How much time was seen to pass, for retention.
    pub(super) seen: Mutex<SeenTime>,
    /// Which runs have ended workers; none where nothing is noted.
    pub(super) quarantine: Option<Quarantine>,
    /// The runs whose code keeps a thread that was taken from it, and does not come back.
    pub(crate) lost: Mutex<BTreeMap<RunId, usize>>,
    /// How many runs of each shard are still to be looked at after the start. No deadline fires before: it would start an
    /// attempt that the look then takes for one that the worker before has lost.
    pub(crate) recovering: Vec<AtomicUsize>,
    /// Runs that the look after the start is not done with.
    pub(crate) looks_open: AtomicUsize,
    /// Which runs that come back from a snapshot are compared with their history.
    pub(super) shadows: Arc<Shadows>,
    /// What the look at runs of other builds has found, once somebody has asked.
    pub(crate) fit: tokio::sync::OnceCell<FitReport>,
}

impl WorkerShared {
    /// Run ids sort by the time of their start. With a virtual clock they follow from what happened before, so that the
    /// same test gives the same ids, and the same random numbers (E40).
    pub(crate) fn new_run_id(&self) -> RunId {
        let Some(clock) = self.clock.as_virtual() else { return RunId(*uuid::Uuid::now_v7().as_bytes()) };
        let millis = (clock.now().as_micros() / 1_000).to_be_bytes();
        let mut origin = [0; 16];
        origin[..6].copy_from_slice(&millis[2..]);
        origin[6..14].copy_from_slice(&self.journal.last_group().0.to_be_bytes());
        RunId(origin).derive("start", self.time.next_run_number())
    }
    pub(crate) fn shard_of(&self, namespace: &Namespace, workflow_id: &WorkflowId) -> usize {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(namespace.as_str().as_bytes());
        hasher.update(&[0]);
        hasher.update(workflow_id.as_str().as_bytes());
        hasher.finalize() as usize % self.mailboxes.len()
    }
    /// What the worker says of itself. A disk that is full is told for as long as it is.
    pub(crate) fn health(&self) -> Health {
        let why = || match self.committer.no_room.refusal() {
            Some(Rejection::StorageFull { why }) => Some(why),
            _ => self.journal.low_on_space(),
        };
        match self.health.get() {
            Health::Ready => why().map_or(Health::Ready, |why| Health::StorageFull { why }),
            health => health,
        }
    }
    pub(crate) fn retention(&self) -> RetentionInfo {
        let now = self.clock.now();
        self.seen_time().info(&self.options.retention, now)
    }
    /// The time that was seen to pass, without what the clock was set forward by until now.
    pub(super) fn seen_time(&self) -> MutexGuard<'_, SeenTime> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.pass_over(&self.clock.steps());
        seen
    }
    /// A client's request: refused when the worker is leaving or has too much to do, and a change when what was decided before
    /// it cannot be written.
    pub(crate) fn request(
        &self,
        namespace: &Namespace,
        workflow_id: &WorkflowId,
        message: ShardMessage,
    ) -> Result<(), Rejection> {
        if let Some(full) = self.committer.no_room.refusal().filter(|_| !message.is_reading()) {
            return Err(full);
        }
        self.time.begin();
        let taken = self.mailboxes[self.shard_of(namespace, workflow_id)].request(message);
        if taken.is_err() {
            self.time.end();
        }
        taken
    }
    /// Something the worker caused itself: never refused.
    pub(crate) fn deliver(&self, namespace: &Namespace, workflow_id: &WorkflowId, message: ShardMessage) {
        self.deliver_to(self.shard_of(namespace, workflow_id), message);
    }
    pub(crate) fn deliver_to(&self, shard: usize, message: ShardMessage) {
        self.time.begin();
        self.mailboxes[shard].deliver(message);
    }
    /// As [`WorkerShared::deliver`], to a named run, with nobody waiting for the answer.
    pub(crate) fn deliver_input(&self, to: &RunName, input: Input) {
        let target =
            Target { namespace: to.namespace.clone(), workflow_id: to.workflow_id.clone(), run_id: Some(to.run_id) };
        let message = ShardMessage::Input { run: super::mailbox::RunRef::Target(target), input, reply: None };
        self.deliver(&to.namespace, &to.workflow_id, message);
    }
    /// Asks for a look at a run, before anything else is done with it.
    pub(crate) fn recover(&self, namespace: Namespace, workflow_id: WorkflowId, run: RunId) {
        let shard = self.shard_of(&namespace, &workflow_id);
        self.recovering[shard].fetch_add(1, Ordering::AcqRel);
        self.looks_open.fetch_add(1, Ordering::AcqRel);
        self.deliver_to(shard, ShardMessage::Recover { target: Target { namespace, workflow_id, run_id: Some(run) } });
    }
    /// What an attempt of this type in this queue needs.
    pub(crate) fn slot_use(&self, activity_type: &ActivityType, queue: &TaskQueue) -> SlotUse {
        // Where all slots are for everything, nothing waits apart, and priorities hold for all that waits.
        let apart = self.options.external_slots < self.options.slots;
        SlotUse { queue: queue.clone(), external: apart && self.options.activities.is_external(activity_type) }
    }
    pub(crate) fn take_slot(&self, slot: &SlotUse) -> bool {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner).take(slot, self.clock.now())
    }
    /// An attempt has ended.
    pub(crate) fn release_slot(&self, slot: &SlotUse) {
        self.grant(|queues, now| queues.release(slot, now));
    }
    /// Nothing was started with these slots.
    pub(crate) fn give_back_slots(&self, slots: Vec<SlotUse>) {
        for slot in slots {
            self.grant(|queues, now| queues.give_back(&slot, now));
        }
    }
    pub(crate) fn enqueue(&self, waiting: WaitingAttempt, priority: Option<Priority>) {
        self.grant(|queues, now| queues.enqueue(waiting, priority, now));
    }
    /// Time has passed: who waited for nothing else starts.
    pub(crate) fn grant_ready(&self) {
        self.grant(TaskQueues::ready);
    }
    /// When somebody may start who waits for time to pass.
    pub(crate) fn next_ready(&self) -> Option<Timestamp> {
        let at = Timestamp(self.next_ready.load(Ordering::Acquire));
        (at < Timestamp::MAX).then_some(at)
    }
    fn grant(&self, ask: impl FnOnce(&mut TaskQueues, Timestamp) -> Vec<WaitingAttempt>) {
        let now = self.clock.now();
        let (granted, sooner) = {
            let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
            let granted = ask(&mut queues, now);
            let next = queues.next_at(now).unwrap_or(Timestamp::MAX).0;
            (granted, next < self.next_ready.swap(next, Ordering::AcqRel))
        };
        for waiting in granted {
            let shard = self.shard_of(&waiting.namespace, &waiting.workflow_id);
            self.deliver_to(shard, ShardMessage::SlotGranted(waiting));
        }
        if sooner {
            // The first shard waits for the queues too, and now has another moment to wait for.
            self.deliver_to(0, ShardMessage::Wake);
        }
    }
    /// Tells subscribers of a group that is durable.
    pub(crate) fn publish(&self, turns: Vec<Turn>) {
        if self.committed.receiver_count() > 0 {
            // Without receivers since the check there is nobody to tell.
            let _ = self.committed.send(Arc::new(CommittedGroup { turns }));
        }
    }
    pub(crate) fn is_intercepted(&self) -> bool {
        !self.options.interceptors.is_empty()
    }
    pub(crate) fn group_committed(&self, turns: usize, began: Instant) {
        for interceptor in &self.options.interceptors {
            interceptor.group_committed(turns, began.elapsed());
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
                    // The whole card stands in the description of the run, and a command that only visits shows it there.
                    let why = why.lines().next().unwrap_or_default();
                    match self.options.visit || self.options.look {
                        true => tracing::debug!(%run, why, "the run is held: its inputs are kept, nothing is decided"),
                        false => tracing::error!(%run, why, "the run is held: its inputs are kept, nothing is decided"),
                    }
                }
            }
            None => drop(held.remove(&run)),
        }
    }
    /// Why a run is held, and whether its code keeps a thread all the same.
    pub(crate) fn held_why(&self, run: RunId) -> Option<String> {
        let why = self.held.lock().unwrap_or_else(PoisonError::into_inner).get(&run).cloned()?;
        match self.lost.lock().unwrap_or_else(PoisonError::into_inner).get(&run) {
            Some(_) => {
                Some(format!("{why}; its thread is lost: it takes a core until it comes back or the worker ends"))
            }
            None => Some(why),
        }
    }
    /// The runs that are known to be held.
    pub(crate) fn held_runs(&self) -> BTreeSet<RunId> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).keys().copied().collect()
    }
    /// How many threads do not come back from workflow code.
    pub(crate) fn lost_threads(&self) -> usize {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner).values().sum()
    }
    /// The owner lets a held run try again: from here on its code runs as that of any other.
    pub(crate) fn release(&self, run: RunId) {
        tracing::warn!(%run, "a held run is let go again");
        self.quarantine.iter().for_each(|quarantine| quarantine.release(run));
        self.note_held(run, None);
    }
}
