//! What the threads of a worker share, and how a message finds its shard.
//!
//! Invariant: all runs of a workflow id belong to one shard, for as long as the worker lives, so that starts of the same
//! id, continue-as-new and children meet in one order.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use tokio::sync::{broadcast, oneshot};

use super::budget::Budget;
use super::committer::{Committer, RunName};
use super::health::{Health, HealthCell};
use super::mailbox::{Mailbox, Message};
use super::options::WorkerOptions;
use super::quarantine::Quarantine;
use super::retention::{RetentionInfo, SeenTime};
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

/// Who waits for a moment, and lets time pass until then.
pub(crate) struct Sleeper {
    until: Timestamp,
    /// Also waits for the attempts that run then.
    for_attempts: bool,
    reached: oneshot::Sender<()>,
    hurry: Hurry,
}

pub(crate) struct Shared {
    pub(crate) options: WorkerOptions,
    pub(crate) journal: Arc<Journal>,
    pub(crate) clock: Clock,
    pub(crate) build: BuildId,
    pub(crate) mailboxes: Vec<Mailbox>,
    pub(crate) committer: Committer,
    pub(super) budget: Budget,
    pub(crate) queues: Mutex<TaskQueues>,
    pub(crate) runner: Runner,
    pub(crate) waiters: Waiters,
    pub(crate) health: HealthCell,
    pub(crate) idle: Idle,
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
    /// When each shard wants to be woken, for the virtual clock.
    pub(crate) wake_at: Vec<AtomicI64>,
    /// How many run ids were made, for the virtual clock.
    pub(crate) run_ids: AtomicU64,
    /// Who waits for a moment of the virtual clock.
    pub(crate) sleepers: Mutex<Vec<Sleeper>>,
}

impl Shared {
    /// Run ids sort by the time of their start. With a virtual clock they follow from what happened before, so that the
    /// same test gives the same ids, and the same random numbers (engine.md E40).
    pub(crate) fn new_run_id(&self) -> RunId {
        let Some(clock) = self.clock.as_virtual() else { return RunId(*uuid::Uuid::now_v7().as_bytes()) };
        let millis = (clock.now().as_micros() / 1_000).to_be_bytes();
        let mut origin = [0; 16];
        origin[..6].copy_from_slice(&millis[2..]);
        origin[6..14].copy_from_slice(&self.journal.last_group().0.to_be_bytes());
        RunId(origin).derive("start", self.run_ids.fetch_add(1, Ordering::AcqRel))
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
        match (self.health.get(), self.journal.low_on_space()) {
            (Health::Ready, Some(why)) => Health::StorageFull { why },
            (health, _) => health,
        }
    }
    pub(crate) fn retention(&self) -> RetentionInfo {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.info(&self.options.retention, self.clock.now())
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
    /// Asks for a look at a run, before anything else is done with it.
    pub(crate) fn recover(&self, namespace: Namespace, workflow_id: WorkflowId, run: RunId) {
        let shard = self.shard_of(&namespace, &workflow_id);
        self.recovering[shard].fetch_add(1, Ordering::AcqRel);
        self.deliver_to(shard, Message::Recover { target: Target { namespace, workflow_id, run_id: Some(run) } });
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
    /// Lets a virtual clock run until a moment, doing everything that is due before; with `for_attempts`, until the
    /// attempts that run at that moment, and what follows from them, have ended too.
    pub(crate) async fn run_virtual_until(self: &Arc<Self>, until: Timestamp, for_attempts: bool) {
        let (reached, wait) = oneshot::channel();
        let hurry = {
            // Time may move only once it is known how far.
            let mut sleepers = self.sleepers.lock().unwrap_or_else(PoisonError::into_inner);
            let hurry = Hurry::unannounced(self);
            sleepers.push(Sleeper { until, for_attempts, reached, hurry: hurry.clone() });
            hurry
        };
        // Without the sleepers in hand: who is told looks at them.
        self.idle.notify();
        // The worker may stop first; then there is nothing more to wait for.
        let _ = wait.await;
        hurry.over();
    }
    /// When the first run has something to do.
    pub(crate) fn next_deadline(&self) -> Option<Timestamp> {
        let shards = self.wake_at.iter().map(|at| Timestamp(at.load(Ordering::Acquire)));
        shards.min().filter(|at| *at < Timestamp::MAX)
    }
    /// When the first of those who wait for a moment is to be woken.
    pub(crate) fn next_sleeper(&self) -> Option<Timestamp> {
        self.sleepers.lock().unwrap_or_else(PoisonError::into_inner).iter().map(|sleeper| sleeper.until).min()
    }
    /// Whether the moment of somebody has come who does not wait for attempts.
    pub(crate) fn has_come(&self, now: Timestamp) -> bool {
        let sleepers = self.sleepers.lock().unwrap_or_else(PoisonError::into_inner);
        sleepers.iter().any(|sleeper| !sleeper.for_attempts && sleeper.until <= now)
    }
    /// Wakes those whose moment has come.
    pub(crate) fn wake_sleepers(&self, now: Timestamp) {
        let quiet = self.idle.is_quiet();
        let due = |sleeper: &Sleeper| sleeper.until <= now && (quiet || !sleeper.for_attempts);
        self.wake_those(due);
    }
    /// The clock is not moved any more.
    pub(crate) fn wake_all_sleepers(&self) {
        self.wake_those(|_| true);
    }
    fn wake_those(&self, due: impl Fn(&Sleeper) -> bool) {
        let mut sleepers = self.sleepers.lock().unwrap_or_else(PoisonError::into_inner);
        let (due, rest) = std::mem::take(&mut *sleepers).into_iter().partition(due);
        *sleepers = rest;
        for Sleeper { reached, hurry, .. } in due as Vec<Sleeper> {
            hurry.over();
            // A caller that has gone away needs no waking.
            let _ = reached.send(());
        }
    }
    pub(crate) fn is_intercepted(&self) -> bool {
        !self.options.interceptors.is_empty()
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

/// While one of these lives, and nobody has called it over, somebody waits for time to pass: a virtual clock may move.
#[derive(Clone)]
pub(crate) struct Hurry(Arc<Hurried>);

struct Hurried {
    shared: Arc<Shared>,
    over: AtomicBool,
}

impl Hurry {
    pub(crate) fn new(shared: &Arc<Shared>) -> Self {
        let hurry = Self::unannounced(shared);
        shared.idle.notify();
        hurry
    }
    /// Counts at once; the caller tells with [`Idle::notify`] when it holds nothing that others wait for.
    fn unannounced(shared: &Arc<Shared>) -> Self {
        shared.idle.hurry();
        Hurry(Arc::new(Hurried { shared: shared.clone(), over: AtomicBool::new(false) }))
    }
    /// Time stands still again from here on, on behalf of all clones.
    pub(crate) fn over(&self) {
        if !self.0.over.swap(true, Ordering::AcqRel) {
            self.0.shared.idle.stop_hurrying();
        }
    }
}

impl Drop for Hurry {
    fn drop(&mut self) {
        self.over();
    }
}

/// Counts what is under way, so that a virtual clock moves only when nothing is.
pub(crate) struct Idle {
    is_virtual: bool,
    under_way: AtomicI64,
    /// How many of these are attempts that run; a test may hold one for as long as it likes.
    attempts: AtomicI64,
    /// How many callers want time to pass.
    hurried: AtomicUsize,
    /// Counts what may have changed the next moment, so that no change between two looks is missed.
    news: AtomicU64,
    lock: Mutex<()>,
    changed: Condvar,
}

impl Idle {
    /// Only a virtual clock needs to be told.
    pub(crate) fn new(is_virtual: bool) -> Self {
        Idle {
            is_virtual,
            under_way: AtomicI64::new(0),
            attempts: AtomicI64::new(0),
            hurried: AtomicUsize::new(0),
            news: AtomicU64::new(0),
            lock: Mutex::new(()),
            changed: Condvar::new(),
        }
    }
    pub(crate) fn begin(&self) {
        self.under_way.fetch_add(1, Ordering::AcqRel);
    }
    pub(crate) fn end(&self) {
        let left = self.under_way.fetch_sub(1, Ordering::AcqRel) - 1;
        if self.is_virtual && left <= self.attempts.load(Ordering::Acquire) {
            self.notify();
        }
    }
    pub(crate) fn begin_attempt(&self) {
        self.attempts.fetch_add(1, Ordering::AcqRel);
        self.begin();
    }
    pub(crate) fn end_attempt(&self) {
        self.attempts.fetch_sub(1, Ordering::AcqRel);
        self.end();
    }
    pub(crate) fn is_quiet(&self) -> bool {
        self.under_way.load(Ordering::Acquire) == 0
    }
    /// Whether no more is under way than one step of one run: its message, its item, its attempt.
    pub(crate) fn is_nearly(&self) -> bool {
        self.under_way.load(Ordering::Acquire) <= 4
    }
    pub(crate) fn notify(&self) {
        self.news.fetch_add(1, Ordering::AcqRel);
        drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_all();
    }
    fn hurry(&self) {
        self.hurried.fetch_add(1, Ordering::AcqRel);
    }
    pub(crate) fn stop_hurrying(&self) {
        self.hurried.fetch_sub(1, Ordering::AcqRel);
    }
    /// Waits until nothing is under way and somebody wants time to pass, or `stopped` says so; for somebody whose moment
    /// `has_come`, attempts that run need not have ended. Gives what [`Idle::wait_news`] wants.
    pub(crate) fn wait_quiet(&self, stopped: &dyn Fn() -> bool, has_come: &dyn Fn() -> bool) -> u64 {
        let quiet = || {
            let under_way = self.under_way.load(Ordering::Acquire);
            under_way == 0 || (under_way <= self.attempts.load(Ordering::Acquire) && has_come())
        };
        let mut guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        while !stopped() && (self.hurried.load(Ordering::Acquire) == 0 || !quiet()) {
            guard = self.changed.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
        self.news.load(Ordering::Acquire)
    }
    /// Waits for anything to have happened since. Used when there is no deadline to move the clock to.
    pub(crate) fn wait_news(&self, seen: u64, stopped: &dyn Fn() -> bool) {
        let mut guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        while !stopped() && self.news.load(Ordering::Acquire) == seen {
            guard = self.changed.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
    }
}
