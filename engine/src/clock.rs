//! The one place that reads a clock, and the virtual clock of the test environment.
//!
//! Invariant: engine time never goes back while a worker is up, whatever happens to the wall clock: it is the wall time
//! at start plus monotonic time, and never before the newest time in the log (engine.md G14, G15). Pure modules get the
//! time as an argument.
#![expect(clippy::disallowed_methods, clippy::disallowed_types, reason = "this file is the edge where time comes in")]

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::vocabulary::Timestamp;

/// Where the shell gets the time from.
#[derive(Debug, Clone)]
pub enum Clock {
    /// The clock of the machine.
    System(SystemClock),
    /// Moves only when told to (engine.md E40).
    Virtual(VirtualClock),
}

impl Clock {
    /// The clock of the machine.
    pub fn system() -> Clock {
        Clock::System(SystemClock::starting_at(Timestamp::ZERO))
    }
    /// The time, which a run never sees directly: its time is that of its turns.
    pub fn now(&self) -> Timestamp {
        match self {
            Clock::System(clock) => clock.now(),
            Clock::Virtual(clock) => clock.now(),
        }
    }
    /// The same clock, never showing a time before `earliest`.
    pub fn not_before(&self, earliest: Timestamp) -> Clock {
        match self {
            Clock::System(_) => Clock::System(SystemClock::starting_at(earliest)),
            Clock::Virtual(clock) => {
                clock.advance_to(earliest);
                self.clone()
            }
        }
    }
    /// How long a thread may really sleep until `at`; a virtual clock's moments come by being woken.
    pub fn sleep_until(&self, at: Timestamp) -> Option<Duration> {
        match self {
            Clock::System(clock) => Some(at.since(clock.now())),
            Clock::Virtual(_) => None,
        }
    }
    /// The virtual clock, if it is one.
    pub fn as_virtual(&self) -> Option<&VirtualClock> {
        match self {
            Clock::System(_) => None,
            Clock::Virtual(clock) => Some(clock),
        }
    }
}

/// The wall clock at start plus monotonic time.
#[derive(Debug, Clone)]
pub struct SystemClock {
    base: Timestamp,
    since: Instant,
}

impl SystemClock {
    fn starting_at(earliest: Timestamp) -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        SystemClock { base: Timestamp::ZERO.plus(wall).max(earliest), since: Instant::now() }
    }
    fn now(&self) -> Timestamp {
        self.base.plus(self.since.elapsed())
    }
}

/// A clock for tests. Clones show the same time.
#[derive(Debug, Clone)]
pub struct VirtualClock {
    now: Arc<AtomicI64>,
}

impl VirtualClock {
    /// A clock that stands at this moment.
    pub fn at(start: Timestamp) -> Self {
        VirtualClock { now: Arc::new(AtomicI64::new(start.0)) }
    }
    /// What it shows.
    pub fn now(&self) -> Timestamp {
        Timestamp(self.now.load(Ordering::SeqCst))
    }
    /// Never goes back.
    pub fn advance_to(&self, at: Timestamp) {
        self.now.fetch_max(at.0, Ordering::SeqCst);
    }
}
