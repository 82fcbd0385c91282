//! A worker: opens the log, recovers, runs the threads, drains and stops.
//!
//! Invariant: recovery loads only runs that had something under way; a parked run costs an index entry. A drain ends in
//! bounded time, and whatever it leaves undone is found again by the next start.

mod looks;

pub use looks::WorkerSlots;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::broadcast;

use super::budget::MemoryBudget;
use super::committer::Committer;
use super::fit;
use super::health::{Health, HealthCell};
use super::mailbox::{ShardMailbox, ShardMessage};
use super::options::{DataDirectory, WorkerOptions};
use super::pace::AttemptClock;
use super::quarantine::Quarantine;
use super::retention::SeenTime;
use super::runner::Runner;
use super::shadow::Shadows;
use super::shared::WorkerShared;
use super::starters::tell_of_quarantined;
use super::time_skipping::TimeSkipping;
use super::waiters::Waiters;
use super::watchdog::TurnThreads;
use crate::client::Client;
use crate::log::{DiskLog, Journal, Log, SledOptions, StorageError};
use crate::queue::TaskQueues;
use crate::vocabulary::*;

/// Why a worker cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The log cannot be opened or read.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// There is no tokio runtime on which activities could run.
    #[error("a worker must be started inside of a tokio runtime, on which its activities run: {0}")]
    NoRuntime(#[from] tokio::runtime::TryCurrentError),
    /// The notes of what the worker before was at are out of reach.
    #[error(
        "the file of runs that ended a worker cannot be read or written: {0}; check the permissions of the data directory"
    )]
    Marks(#[source] std::io::Error),
    /// The system gives no thread.
    #[error(
        "the system starts no further thread for the worker: {0}; raise its limit of threads, or end other processes"
    )]
    Thread(#[from] std::io::Error),
}

/// A running worker. Dropping it stops it at once, as a crash would, minus the damage.
pub struct Worker {
    shared: Arc<WorkerShared>,
    turns: Arc<TurnThreads>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    housekeeping: Arc<Housekeeping>,
}

impl Worker {
    /// Opens the log, recovers and begins to work. Must be called within a tokio runtime, on which activities run.
    pub fn start(options: WorkerOptions) -> Result<Worker, StartError> {
        let handle = tokio::runtime::Handle::try_current()?;
        let shared = open(options, handle.clone(), AttemptClock::real())?;
        // What needs a look is put into the mailboxes before the first request can arrive.
        tell_of_quarantined(&shared);
        recover(&shared);
        let turns = TurnThreads::start(&shared)?;
        let housekeeping = Arc::new(Housekeeping::default());
        let mut threads = Vec::new();
        let spawn =
            |name: &str, run: Box<dyn FnOnce() + Send>| std::thread::Builder::new().name(name.into()).spawn(run);
        let committer = shared.clone();
        threads.push(spawn("bosun-commit", Box::new(move || committer.committer.run(&committer)))?);
        let (watched, watching) = (shared.clone(), turns.clone());
        threads.push(spawn("bosun-watchdog", Box::new(move || watching.watch(&watched)))?);
        let (kept, keeping) = (shared.clone(), housekeeping.clone());
        threads.push(spawn("bosun-housekeeping", Box::new(move || keeping.run(&kept)))?);
        if shared.clock.as_virtual().is_some() {
            let (skipped, stopped) = (shared.clone(), housekeeping.clone());
            threads.push(spawn("bosun-time", Box::new(move || skip_time(&skipped, &stopped)))?);
        }
        let worker = Worker { shared, turns, threads: Mutex::new(threads), housekeeping };
        if worker.shared.options.fit_runs_max > 0 && !worker.shared.options.visit && !worker.shared.options.look {
            handle.spawn(fit::look_at_start(worker.client()));
        }
        Ok(worker)
    }

    /// A client of this worker.
    pub fn client(&self) -> Client {
        Client::new(self.shared.clone())
    }
    /// Whether it works, drains, has stopped, or why it cannot go on.
    pub fn health(&self) -> Health {
        self.shared.health()
    }
    /// How many threads workflow code keeps that did not come back: each takes a core until the worker ends.
    pub fn lost_threads(&self) -> usize {
        self.shared.lost_threads()
    }
    /// How many open runs are held: their code does not fit, or does not come back, or they are damaged.
    pub fn held_runs(&self) -> usize {
        self.shared.held.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
    /// How many workflow types have snapshots that lose something, so that their runs come back from history alone until the
    /// worker is started again (E37).
    pub fn untrusted_snapshots(&self) -> usize {
        self.shared.shadows.untrusted()
    }
    /// Waits until the worker cannot go on: its storage has failed, or it was stopped.
    pub async fn stopped(&self) -> Health {
        let mut health = self.shared.health.watch();
        let ended = health
            .wait_for(|health| !matches!(health, Health::Ready | Health::Draining))
            .await
            .map_or(Health::Stopped, |health| health.clone());
        self.shared.health.storage_failure().unwrap_or(ended)
    }

    /// Stops in order: no new requests, running attempts may finish until `patience` is over, then they are told to
    /// stop; everything decided is durable when this returns.
    pub async fn drain(&self, patience: Duration) -> Result<(), StorageError> {
        self.shared.health.worsen(Health::Draining);
        self.shared.queues.lock().unwrap_or_else(PoisonError::into_inner).close();
        let mut ended = self.shared.runner.watch();
        let all_ended = async {
            while self.shared.runner.running() > 0 {
                if ended.changed().await.is_err() {
                    break;
                }
            }
        };
        if tokio::time::timeout(patience, all_ended).await.is_err() {
            self.shared.runner.cancel_all();
            let grace = self.shared.options.cancel_grace.min(Duration::from_secs(2));
            let stopped = async { while self.shared.runner.running() > 0 && ended.changed().await.is_ok() {} };
            // Attempts that do not stop are lost, and known to be: they were recorded as started.
            let _ = tokio::time::timeout(grace, stopped).await;
        }
        self.stop()
    }

    /// Stops without waiting for attempts. Everything decided so far becomes durable; attempts that run are lost, and
    /// found again by the next start.
    pub fn stop(&self) -> Result<(), StorageError> {
        self.shared.health.worsen(Health::Draining);
        // What is still decided starts nothing that would be lost at once.
        self.shared.queues.lock().unwrap_or_else(PoisonError::into_inner).close();
        for mailbox in &self.shared.mailboxes {
            mailbox.stop();
        }
        // Whoever replaces a thread waits for what that thread decided.
        self.shared.committer.leave();
        self.turns.join(Duration::from_secs(1));
        self.shared.committer.stop();
        self.housekeeping.stop();
        self.shared.time.notify();
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        let first = !threads.is_empty();
        for thread in threads {
            // A thread that panicked has said so.
            let _ = thread.join();
        }
        self.shared.runner.cancel_all();
        self.shared.waiters.abandon(&Rejection::ShuttingDown);
        self.shared.time.wake_all_sleepers();
        let failed = self.shared.health.storage_failure();
        if first {
            let now = self.shared.clock.now();
            self.shared.seen_time().note(now, true);
        }
        self.shared.health.worsen(Health::Stopped);
        if first && failed.is_none() { self.shared.journal.close() } else { Ok(()) }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if let Err(error) = self.stop() {
            tracing::warn!(%error, "the log could not be closed in order");
        }
    }
}

/// Opens the log and makes what the threads of a worker share. Nothing runs yet.
// long: one part after the other, each made of those before.
pub(super) fn open(
    options: WorkerOptions,
    handle: tokio::runtime::Handle,
    pace: AttemptClock,
) -> Result<Arc<WorkerShared>, StartError> {
    let medium: Arc<dyn Log> = match &options.data {
        DataDirectory::Path(path) => Arc::new(DiskLog::open(path, SledOptions::default())?),
        DataDirectory::Log(log) => log.clone(),
    };
    let journal = Arc::new(Journal::open(medium, options.journal.clone())?);
    let shards = options.shards.max(1);
    let budget = MemoryBudget::of(options.memory, shards);
    let clock = options.clock.not_before(journal.last_at());
    let build = options.workflows.build_id();
    let is_open = |run| journal.run(run).is_some_and(|entry| entry.info.status.is_open());
    let quarantine =
        options.marks_directory().map(|path| Quarantine::open(path, build, clock.now(), options.look, is_open));
    let quarantine = quarantine.transpose().map_err(StartError::Marks)?;
    let salvaged: BTreeMap<RunId, String> = journal.held_runs()?.into_iter().collect();
    let quarantined = quarantine.iter().flat_map(|quarantine| quarantine.held(options.visit));
    let open_id = |run| Some(journal.run(run).filter(|entry| entry.info.status.is_open())?.info.workflow_id.clone());
    let salvaged_why = |(run, why): (&RunId, &String)| (*run, salvaged_why(why, open_id(*run)));
    let held = quarantined.chain(salvaged.iter().map(salvaged_why)).collect();
    // Begins the reserve for a full disk, where there is space for it.
    let _ = journal.low_on_space();
    let seen = Mutex::new(SeenTime::begin(options.marks_directory().filter(|_| !options.look), clock.now()));
    Ok(Arc::new(WorkerShared {
        clock,
        build,
        mailboxes: (0..shards).map(|_| ShardMailbox::new(options.mailbox_max, budget.requests)).collect(),
        committer: Committer::new(shards),
        budget,
        queues: Mutex::new(TaskQueues::new(options.queue_settings())),
        next_ready: AtomicI64::new(Timestamp::MAX.0),
        runner: Runner::new(options.activities.clone(), handle, pace),
        waiters: Waiters::default(),
        health: HealthCell::new(),
        time: Arc::new(TimeSkipping::new(options.clock.as_virtual().is_some(), shards)),
        committed: broadcast::Sender::new(1_024),
        held: Mutex::new(held),
        salvaged,
        seen,
        quarantine,
        lost: Mutex::default(),
        recovering: (0..shards).map(|_| AtomicUsize::new(0)).collect(),
        looks_open: AtomicUsize::new(0),
        shadows: Shadows::new(options.shadow_replay_every),
        fit: tokio::sync::OnceCell::new(),
        journal,
        options,
    }))
}

/// The reason on the card of a run that a salvage could not save whole.
fn salvaged_why(why: &str, open: Option<WorkflowId>) -> String {
    let ends = open.map(|id| format!(", `bosun terminate {id}` ends the run")).unwrap_or_default();
    format!(
        "damage to the store hit it: {why}; what is left of its history is kept, and nothing is decided on it. `bosun store \
         restore BACKUP --to NEW` brings a backup back, in a new directory{ends}"
    )
}

/// Asks the shards to look at runs that had something under way, at closed ones whose messages have not arrived, and at
/// children whose parent may have closed.
pub(super) fn recover(shared: &Arc<WorkerShared>) {
    let mut looked_at = 0;
    let open = shared.journal.open_runs();
    let known = open.len();
    for (run, namespace, workflow_id, outlook) in open {
        let has_parent = || shared.journal.run(run).is_some_and(|entry| entry.info.parent.is_some());
        if outlook.attention || has_parent() {
            shared.recover(namespace, workflow_id, run);
            looked_at += 1;
        }
    }
    for (run, namespace, workflow_id) in shared.journal.closed_with_messages() {
        shared.recover(namespace, workflow_id, run);
        looked_at += 1;
    }
    tracing::info!(open_runs = known, looked_at, "recovered");
}

/// How often an idle worker looks for runs whose retention is over.
const RETENTION_LOOKS: Duration = Duration::from_secs(3_600);

/// Checkpoints and archives, in the background, only after something was written.
#[derive(Default)]
struct Housekeeping {
    stopped: AtomicBool,
    lock: Mutex<()>,
    changed: Condvar,
}

impl Housekeeping {
    fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_all();
    }
    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }
    fn run(&self, shared: &Arc<WorkerShared>) {
        let (mut done_at, mut looked_at) = (GroupSeq(0), shared.clock.now());
        let mut guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        // Looked at under the lock before every wait: a stop that comes before the first one is not missed.
        while !self.is_stopped() {
            let every = shared.options.housekeeping_every;
            guard = self.changed.wait_timeout(guard, every).unwrap_or_else(PoisonError::into_inner).0;
            if self.is_stopped() || shared.health.storage_failure().is_some() {
                return;
            }
            let (last, now) = (shared.journal.last_group(), shared.clock.now());
            // Nothing new; but time alone ends the retention of runs.
            if last == done_at && now.since(looked_at) < RETENTION_LOOKS {
                continue;
            }
            (done_at, looked_at) = (last, now);
            if !housekeep_or_fail(shared) {
                return;
            }
        }
    }
}

/// Says whether the worker may go on: like every storage error, one of housekeeping is the last.
pub(super) fn housekeep_or_fail(shared: &WorkerShared) -> bool {
    match housekeep(shared) {
        Ok(done) => tracing::debug!(?done, "housekeeping"),
        // One run cannot be read, or there was no room; nothing was written.
        Err(error) if (error.is_damage() || error.is_no_room()) && shared.journal.is_writable() => {
            tracing::error!(%error, "housekeeping was left undone");
        }
        Err(error) => {
            tracing::error!(%error, "housekeeping failed; nothing is acknowledged any more");
            shared.health.worsen(super::health::of_storage(&error));
            return false;
        }
    }
    true
}

/// Checkpoints, archives, deletes what is past retention: a bounded piece of each (E32).
pub(crate) fn housekeep(shared: &WorkerShared) -> Result<crate::log::HousekeepingReport, StorageError> {
    let retention = &shared.options.retention;
    let now = shared.clock.now();
    // Others ask for it meanwhile.
    let seen = {
        let mut seen = shared.seen_time();
        seen.note(now, false);
        seen.clone()
    };
    let due = |namespace: &Namespace| seen.due(retention, retention.keep(namespace)?, now);
    match shared.journal.low_on_space() {
        // What is left is for the runs that are under way.
        Some(_) => shared.journal.give_back_until(&due),
        None => shared.journal.housekeep_until(&due),
    }
}

/// Moves a virtual clock to the next deadline whenever nothing is under way and somebody waits for time to pass.
fn skip_time(shared: &Arc<WorkerShared>, housekeeping: &Housekeeping) {
    let Some(clock) = shared.clock.as_virtual() else { return };
    let time = &shared.time;
    let stopped = || housekeeping.is_stopped();
    loop {
        let has_come = || time.has_come(clock.now());
        let seen = time.wait_quiet(&stopped, &has_come);
        if stopped() {
            return;
        }
        let due_now = time.next_deadline().is_some_and(|deadline| deadline <= clock.now());
        if has_come() && !due_now {
            time.wake_sleepers(clock.now());
            continue;
        }
        match (time.next_deadline(), time.next_sleeper()) {
            // Who waits for a moment finds everything done that was due by then.
            (deadline, Some(moment)) if deadline.is_none_or(|deadline| deadline > moment) => {
                clock.advance_to(moment);
                time.wake_sleepers(moment);
            }
            (Some(deadline), _) => {
                clock.advance_to(deadline);
                for shard in 0..shared.mailboxes.len() {
                    shared.deliver_to(shard, ShardMessage::Wake);
                }
            }
            (None, _) => time.wait_for_change(seen, &stopped),
        }
    }
}
