//! Time skipping: when a virtual clock may move, and whom it wakes (E40).
//!
//! ```text
//!   locked ◄──► unlocked: somebody waits for time to pass ([`UnlockedTime`])
//!                  └── and nothing is under way ──► the clock moves to the next deadline, or to the moment a caller sleeps for
//! ```
//!
//! Invariant: time moves only while it is unlocked and nothing is under way; an attempt that runs may be held for as long
//! as a test likes, and holds time with it, but for a caller that sleeps until a moment and no further. With the system's
//! clock only the count of what is under way is kept. The clock itself is not moved here: one thread of the worker does.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::vocabulary::Timestamp;

/// Up to this much is under way in one step of one run: its message, its item, its attempt, and who waits for it.
const ONE_STEP: i64 = 4;

/// A caller that sleeps until a moment, with time unlocked for as long.
struct Sleeper {
    until: Timestamp,
    /// Also waits for the attempts that run then.
    for_attempts: bool,
    reached: oneshot::Sender<()>,
    unlocked: UnlockedTime,
}

/// What is under way, who waits for time, and what is due next.
pub(crate) struct TimeSkipping {
    is_virtual: bool,
    under_way: AtomicI64,
    /// How many of these are attempts that run.
    attempts: AtomicI64,
    /// How many callers have unlocked time.
    unlocked: AtomicUsize,
    /// Counts what may have changed the next moment, so that no change between two looks is missed.
    changes: AtomicU64,
    lock: Mutex<()>,
    changed: Condvar,
    /// When each shard wants to be woken.
    wake_at: Vec<AtomicI64>,
    /// How many run ids were made.
    run_ids: AtomicU64,
    sleepers: Mutex<Vec<Sleeper>>,
}

impl TimeSkipping {
    /// Only a virtual clock needs to be told of changes.
    pub(crate) fn new(is_virtual: bool, shards: usize) -> Self {
        TimeSkipping {
            is_virtual,
            under_way: AtomicI64::new(0),
            attempts: AtomicI64::new(0),
            unlocked: AtomicUsize::new(0),
            changes: AtomicU64::new(0),
            lock: Mutex::new(()),
            changed: Condvar::new(),
            wake_at: (0..shards).map(|_| AtomicI64::new(i64::MAX)).collect(),
            run_ids: AtomicU64::new(0),
            sleepers: Mutex::default(),
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
    /// Holds a virtual clock until it is dropped: whoever unlocks time for a request holds it until the request counts.
    pub(crate) fn hold(&self) -> UnderWayGuard<'_> {
        self.begin();
        UnderWayGuard(self)
    }
    pub(crate) fn begin_attempt(&self) {
        self.attempts.fetch_add(1, Ordering::AcqRel);
        self.begin();
    }
    pub(crate) fn end_attempt(&self) {
        self.attempts.fetch_sub(1, Ordering::AcqRel);
        self.end();
    }
    /// Whether no more is under way than one step of one run.
    pub(crate) fn is_one_step(&self) -> bool {
        self.under_way.load(Ordering::Acquire) <= ONE_STEP
    }
    /// Something has changed that the next moment may depend on.
    pub(crate) fn notify(&self) {
        self.changes.fetch_add(1, Ordering::AcqRel);
        drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_all();
    }
    /// The number of the next run id.
    pub(crate) fn next_run_number(&self) -> u64 {
        self.run_ids.fetch_add(1, Ordering::AcqRel)
    }
    /// When a shard wants to be woken; none for never.
    pub(crate) fn wake_shard_at(&self, shard: usize, at: Option<Timestamp>) {
        self.wake_at[shard].store(at.map_or(i64::MAX, |at| at.0), Ordering::Release);
    }
    /// When the first run has something to do.
    pub(crate) fn next_deadline(&self) -> Option<Timestamp> {
        let shards = self.wake_at.iter().map(|at| Timestamp(at.load(Ordering::Acquire)));
        shards.min().filter(|at| *at < Timestamp::MAX)
    }

    /// Waits until nothing is under way and time is unlocked, or `stopped` says so; for somebody whose moment `has_come`,
    /// attempts that run need not have ended. Gives what [`TimeSkipping::wait_for_change`] wants.
    pub(crate) fn wait_quiet(&self, stopped: &dyn Fn() -> bool, has_come: &dyn Fn() -> bool) -> u64 {
        let quiet = || {
            let under_way = self.under_way.load(Ordering::Acquire);
            under_way == 0 || (under_way <= self.attempts.load(Ordering::Acquire) && has_come())
        };
        let mut guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        while !stopped() && (self.unlocked.load(Ordering::Acquire) == 0 || !quiet()) {
            guard = self.changed.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
        self.changes.load(Ordering::Acquire)
    }
    /// Waits for anything to have changed since. Used when there is no deadline to move the clock to.
    pub(crate) fn wait_for_change(&self, seen: u64, stopped: &dyn Fn() -> bool) {
        let mut guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        while !stopped() && self.changes.load(Ordering::Acquire) == seen {
            guard = self.changed.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Lets a virtual clock run until a moment, doing everything that is due before; with `for_attempts`, until the
    /// attempts that run at that moment, and what follows from them, have ended too.
    pub(crate) async fn sleep_until(self: &Arc<Self>, until: Timestamp, for_attempts: bool) {
        let (reached, wait) = oneshot::channel();
        let unlocked = {
            // Time may move only once it is known how far.
            let mut sleepers = self.sleepers();
            let unlocked = UnlockedTime::unannounced(self);
            sleepers.push(Sleeper { until, for_attempts, reached, unlocked: unlocked.clone() });
            unlocked
        };
        // Without the sleepers in hand: who is told looks at them.
        self.notify();
        // The worker may stop first; then there is nothing more to wait for.
        let _ = wait.await;
        unlocked.lock();
    }
    /// When the first of those who wait for a moment is to be woken.
    pub(crate) fn next_sleeper(&self) -> Option<Timestamp> {
        self.sleepers().iter().map(|sleeper| sleeper.until).min()
    }
    /// Whether the moment of somebody has come who does not wait for attempts.
    pub(crate) fn has_come(&self, now: Timestamp) -> bool {
        self.sleepers().iter().any(|sleeper| !sleeper.for_attempts && sleeper.until <= now)
    }
    /// Wakes those whose moment has come.
    pub(crate) fn wake_sleepers(&self, now: Timestamp) {
        let quiet = self.under_way.load(Ordering::Acquire) == 0;
        self.wake_those(|sleeper| sleeper.until <= now && (quiet || !sleeper.for_attempts));
    }
    /// The clock is not moved any more.
    pub(crate) fn wake_all_sleepers(&self) {
        self.wake_those(|_| true);
    }
    fn wake_those(&self, due: impl Fn(&Sleeper) -> bool) {
        let mut sleepers = self.sleepers();
        let (due, rest) = std::mem::take(&mut *sleepers).into_iter().partition(due);
        *sleepers = rest;
        for Sleeper { reached, unlocked, .. } in due as Vec<Sleeper> {
            unlocked.lock();
            // A caller that has gone away needs no waking.
            let _ = reached.send(());
        }
    }
    fn sleepers(&self) -> MutexGuard<'_, Vec<Sleeper>> {
        self.sleepers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// While this and all of its clones live, somebody waits for time to pass: a virtual clock may move.
#[derive(Clone)]
pub(crate) struct UnlockedTime(Arc<Unlocked>);

struct Unlocked {
    time: Arc<TimeSkipping>,
    is_locked: AtomicBool,
}

impl UnlockedTime {
    pub(crate) fn new(time: &Arc<TimeSkipping>) -> Self {
        let unlocked = Self::unannounced(time);
        time.notify();
        unlocked
    }
    /// Counts at once; the caller tells with [`TimeSkipping::notify`] when it holds nothing that others wait for.
    fn unannounced(time: &Arc<TimeSkipping>) -> Self {
        time.unlocked.fetch_add(1, Ordering::AcqRel);
        UnlockedTime(Arc::new(Unlocked { time: time.clone(), is_locked: AtomicBool::new(false) }))
    }
    /// Time stands still again from here on, on behalf of all clones.
    fn lock(&self) {
        if !self.0.is_locked.swap(true, Ordering::AcqRel) {
            self.0.time.unlocked.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

impl Drop for UnlockedTime {
    fn drop(&mut self) {
        self.lock();
    }
}

/// What is under way for as long as this lives.
pub(crate) struct UnderWayGuard<'t>(&'t TimeSkipping);

impl Drop for UnderWayGuard<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}
