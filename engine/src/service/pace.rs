//! How time passes for attempts: grace periods and the throttling of heartbeats.
//!
//! Invariant: a worker measures with the monotonic clock of the machine, a stepped worker with its virtual clock, where a
//! sleeper wakes only when it is told that its moment has come. This says nothing about deadlines of runs; those are
//! events.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::oneshot;

use crate::clock::VirtualClock;
use crate::vocabulary::Timestamp;

/// See the module.
pub(crate) enum AttemptClock {
    /// Since when time is measured.
    Real(Instant),
    Stepped(Arc<Alarms>),
}

/// Who sleeps on a virtual clock, in the order of waking.
pub(crate) struct Alarms {
    clock: VirtualClock,
    sleepers: Mutex<BTreeMap<(Timestamp, u64), oneshot::Sender<()>>>,
    made: AtomicU64,
}

impl Alarms {
    pub(crate) fn new(clock: VirtualClock) -> Arc<Self> {
        Arc::new(Alarms { clock, sleepers: Mutex::default(), made: AtomicU64::new(0) })
    }
    fn lock(&self) -> MutexGuard<'_, BTreeMap<(Timestamp, u64), oneshot::Sender<()>>> {
        self.sleepers.lock().unwrap_or_else(PoisonError::into_inner)
    }
    fn sleep(&self, duration: Duration) -> oneshot::Receiver<()> {
        let (wake, woken) = oneshot::channel();
        let key = (self.clock.now().plus(duration), self.made.fetch_add(1, Ordering::AcqRel));
        self.lock().insert(key, wake);
        woken
    }
    /// When the first sleeper that still waits is to be woken.
    pub(crate) fn next(&self) -> Option<Timestamp> {
        let mut sleepers = self.lock();
        sleepers.retain(|_, wake| !wake.is_closed());
        sleepers.first_key_value().map(|((at, _), _)| *at)
    }
    /// Wakes everybody whose moment has come.
    pub(crate) fn wake(&self) {
        let later = (self.clock.now().plus(Duration::from_micros(1)), 0);
        let mut sleepers = self.lock();
        let rest = sleepers.split_off(&later);
        for wake in std::mem::replace(&mut *sleepers, rest).into_values() {
            // Who does not sleep any more needs no waking.
            let _ = wake.send(());
        }
    }
}

impl AttemptClock {
    pub(crate) fn real() -> Self {
        AttemptClock::Real(Instant::now())
    }
    /// How much time has passed, from a beginning that is the same for all.
    pub(crate) fn now(&self) -> Duration {
        match self {
            AttemptClock::Real(begin) => begin.elapsed(),
            AttemptClock::Stepped(alarms) => alarms.clock.now().since(Timestamp::ZERO),
        }
    }
    pub(crate) fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        match self {
            AttemptClock::Real(_) => tokio::time::sleep(duration).boxed(),
            AttemptClock::Stepped(alarms) => {
                let woken = alarms.sleep(duration);
                // Alarms that are gone wake nobody.
                async move {
                    if woken.await.is_err() {
                        std::future::pending::<()>().await;
                    }
                }
                .boxed()
            }
        }
    }
}
