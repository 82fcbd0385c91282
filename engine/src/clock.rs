//! The one place that reads a clock, and the virtual clock of the test environment.
//!
//! ```text
//!   time = base + what the machine has lived through since (time asleep counts)
//!             ▲
//!             └── the wall clock has stood ahead of it for a while: base is moved forward to it ([`SystemClock`])
//! ```
//!
//! Invariant: engine time never goes back while a worker is up, whatever happens to the wall clock, and is never before the
//! newest time in the log (G14, G15). A wall clock that is set forward is followed, as a restart would, because
//! calendar times are times of the wall clock; one that is set back is not, until a restart. Timers by duration and the timeouts
//! of attempts are moments of this clock too, so a step forward may end them early, as a restart behind it would. Pure modules
//! get the time as an argument.
#![expect(clippy::disallowed_methods, clippy::disallowed_types, reason = "this file is the edge where time comes in")]

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

use crate::vocabulary::Timestamp;

/// A wall clock that is ahead by less is not followed: both are read one after the other, and leap seconds come and go.
const STEP_MIN: Duration = Duration::from_secs(1);
/// How long the wall clock stands ahead before it is believed: one that is set wrong and right again moves nothing.
const STEP_STANDS: Duration = Duration::from_secs(10);
/// A thread that waits for a moment looks at the clock as often: no thread is woken when a clock is set or a machine wakes.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Where the shell gets the time from.
#[derive(Debug, Clone)]
pub enum Clock {
    /// The clock of the machine.
    System(SystemClock),
    /// Moves only when told to (E40).
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
    /// How long a thread may really sleep until `at`, or until it must look again; a virtual clock's moments come by being
    /// woken.
    pub fn sleep_until(&self, at: Timestamp) -> Option<Duration> {
        match self {
            Clock::System(clock) => Some(at.since(clock.now()).min(LOOK_EVERY)),
            Clock::Virtual(_) => None,
        }
    }
    /// The steps in which this clock has gone forward, by the wall clock or asleep, the oldest first: nobody has seen the time
    /// between pass.
    pub(crate) fn steps(&self) -> Vec<Step> {
        match self {
            Clock::System(clock) => clock.following().steps.clone(),
            Clock::Virtual(_) => Vec::new(),
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

/// The wall clock at start plus the time that the machine has lived through, moved forward when the wall clock is. Clones are
/// the same clock.
#[derive(Debug, Clone)]
pub struct SystemClock {
    following: Arc<Mutex<Following>>,
}

impl SystemClock {
    fn starting_at(earliest: Timestamp) -> Self {
        SystemClock { following: Arc::new(Mutex::new(Following::begin(wall(), Life::now(), earliest))) }
    }
    fn following(&self) -> MutexGuard<'_, Following> {
        self.following.lock().unwrap_or_else(PoisonError::into_inner)
    }
    fn now(&self) -> Timestamp {
        let mut following = self.following();
        // Read in here: a reading that is older than another's would seem to go back.
        following.now(wall(), Life::now())
    }
}

fn wall() -> Timestamp {
    Timestamp::ZERO.plus(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// Since the machine was booted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Life {
    /// With the time that it slept, as its hardware clock tells it afterwards; where the system does not say, the wall clock
    /// makes up for it.
    all: Duration,
    awake: Duration,
}

impl Life {
    fn now() -> Life {
        #[cfg(any(target_os = "linux", target_os = "android"))]
        let all = reading(ClockId::Boottime);
        let awake = reading(ClockId::Monotonic);
        #[cfg(not(any(target_os = "linux", target_os = "android")))]
        let all = awake;
        Life { all, awake }
    }
    fn asleep(&self) -> Duration {
        self.all.saturating_sub(self.awake)
    }
}

fn reading(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    let (seconds, nanos) = (u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0));
    Duration::new(seconds, nanos)
}

/// One move forward: time from the first to the second was passed over.
pub(crate) type Step = (Timestamp, Timestamp);

/// The rule by which a clock follows another, with both readings given.
#[derive(Debug)]
struct Following {
    base: Timestamp,
    /// The reading of the machine's clock that belongs to `base`.
    since: Duration,
    /// How long the machine had slept at the last look.
    asleep: Duration,
    /// Since when the wall clock has stood ahead.
    ahead_since: Option<Duration>,
    /// Whether it was told that the wall clock stands behind.
    told_behind: bool,
    steps: Vec<Step>,
}

impl Following {
    fn begin(wall: Timestamp, life: Life, earliest: Timestamp) -> Self {
        let (base, asleep) = (wall.max(earliest), life.asleep());
        Following { base, since: life.all, asleep, ahead_since: None, told_behind: false, steps: Vec::new() }
    }
    fn now(&mut self, wall: Timestamp, life: Life) -> Timestamp {
        let lived = life.all;
        let now = self.base.plus(lived.saturating_sub(self.since));
        let slept = life.asleep().saturating_sub(self.asleep);
        if slept >= STEP_MIN {
            // It counts, and was seen by nobody: a hardware clock may be wrong.
            self.asleep = life.asleep();
            self.steps.push((now.minus(slept), now));
        }
        self.tell_behind(wall, now);
        if wall.since(now) < STEP_MIN {
            self.ahead_since = None;
            return now;
        }
        let ahead_since = *self.ahead_since.get_or_insert(lived);
        if lived.saturating_sub(ahead_since) < STEP_STANDS {
            return now;
        }
        tracing::warn!(from = %now, to = %wall, "the clock of the machine was set forward: timers and schedules follow it");
        (self.base, self.since, self.ahead_since) = (wall, lived, None);
        self.steps.push((now, wall));
        wall
    }
    /// Said once for each time that it is so.
    fn tell_behind(&mut self, wall: Timestamp, now: Timestamp) {
        let behind = now.since(wall) >= STEP_STANDS;
        if behind && !self.told_behind {
            tracing::warn!(machine = %wall, worker = %now, "the clock of the machine is behind the time of this worker, which \
                never goes back: timers and schedules come early by its clock until that has caught up");
        }
        self.told_behind = behind;
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

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const HOUR: Duration = Duration::from_secs(3_600);
    const BOOTED: Duration = Duration::from_secs(77);

    fn noon() -> Timestamp {
        Timestamp::from_millis(1_790_000_000_000)
    }

    /// A machine whose clock is set; each look is at a second of its life.
    struct Machine {
        following: Following,
        lived: Life,
        wall: Timestamp,
    }

    impl Machine {
        fn new() -> Self {
            let lived = Life { all: BOOTED, awake: BOOTED };
            Machine { following: Following::begin(noon(), lived, Timestamp::ZERO), lived, wall: noon() }
        }
        /// So many seconds pass, with a look in each.
        fn live(&mut self, seconds: u32) -> Timestamp {
            for _ in 0..seconds {
                self.lived = Life { all: self.lived.all + SECOND, awake: self.lived.awake + SECOND };
                self.wall = self.wall.plus(SECOND);
                self.look();
            }
            self.look()
        }
        fn look(&mut self) -> Timestamp {
            self.following.now(self.wall, self.lived)
        }
    }

    #[test]
    fn a_clock_that_is_set_forward_is_followed_once_it_stands() {
        let mut machine = Machine::new();
        machine.live(5);
        machine.wall = machine.wall.plus(HOUR);
        assert_eq!(machine.live(9), noon().plus(14 * SECOND), "a look later it might be set right again");
        let step = (noon().plus(16 * SECOND), noon().plus(16 * SECOND + HOUR));
        assert_eq!(machine.live(5), noon().plus(19 * SECOND + HOUR));
        assert_eq!(machine.following.steps, [step], "told to whoever counts the time that has passed");
        assert_eq!(machine.live(100), noon().plus(119 * SECOND + HOUR), "and not again");
        assert_eq!(machine.following.steps.len(), 1);
    }

    #[test]
    fn a_clock_that_is_set_wrong_and_right_again_moves_nothing() {
        let mut machine = Machine::new();
        for _ in 0..20 {
            machine.wall = machine.wall.plus(HOUR);
            machine.live(9);
            machine.wall = machine.wall.minus(HOUR);
            machine.live(1);
        }
        assert_eq!((machine.look(), machine.following.steps.len()), (noon().plus(200 * SECOND), 0));
    }

    /// G15: time goes on and never back, also for what is only a little ahead.
    #[test]
    fn time_never_goes_back() {
        let mut machine = Machine::new();
        let mut last = machine.look();
        for step in [-3_600_i64, 7_300, -1, 1, -86_400, 90_000, 0, -20] {
            let by = Duration::from_secs(step.unsigned_abs());
            machine.wall = if step < 0 { machine.wall.minus(by) } else { machine.wall.plus(by) };
            for _ in 0..30 {
                let now = machine.live(1);
                assert!(now.since(last) >= SECOND, "{last} then {now}");
                last = now;
            }
        }
    }

    #[test]
    fn time_asleep_counts_at_once() {
        let mut machine = Machine::new();
        (machine.lived.all, machine.wall) = (machine.lived.all + 6 * HOUR, machine.wall.plus(6 * HOUR));
        assert_eq!(machine.look(), noon().plus(6 * HOUR));
        let step = (noon(), noon().plus(6 * HOUR));
        assert_eq!(machine.following.steps, [step], "nobody has seen it pass");
        machine.live(5);
        assert_eq!(machine.following.steps, [step], "and that is said once");
    }

    #[test]
    fn many_small_steps_are_one_large_one() {
        let mut machine = Machine::new();
        for _ in 0..40 {
            machine.wall = machine.wall.plus(SECOND / 2);
            machine.live(5);
        }
        let behind = machine.wall.since(machine.look());
        assert!(behind < 4 * SECOND, "{behind:?}");
    }

    #[test]
    fn a_thread_looks_again_before_its_moment() {
        let clock = Clock::system();
        assert_eq!(clock.sleep_until(clock.now().plus(HOUR)), Some(LOOK_EVERY));
        assert!(clock.now() >= wall().minus(SECOND), "the time of the machine");
    }
}
