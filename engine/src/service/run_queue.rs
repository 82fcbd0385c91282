//! What code has taken of its thread: not the time in which the thread could not run, whatever the clock says.
//!
//! A machine that has too much to do, that swaps, whose disk is slow, or that stops the whole process for a while holds
//! up code that would come back. So time on a core counts, and time that the code sleeps of its own; not the time for
//! which a thread waits for a core, a page or a disk (but for one that gives nothing at all), or is stopped.
//!
//! Invariant: it is read by whoever watches the thread, never by the thread itself, so that a turn pays nothing for it. A
//! kernel that does not count says nothing, and time then counts as it passes.

use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How often a watchdog looks within the time that code may take. One that looks less than half as often was held up itself.
pub const LOOKS: u32 = 10;

/// Where the kernel counts for one thread: its directory under `/proc`.
#[derive(Debug)]
pub struct RunQueue(PathBuf);

/// What the kernel has counted for a thread since it began, and what it is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ThreadTimes {
    on_core: Duration,
    queued: Duration,
    /// Of the time on a core, what was not the kernel's: that makes room when memory is short.
    of_code: Duration,
    /// Pages that had to be read from a disk.
    faults: u64,
    at: ThreadStands,
}

/// Why a thread does not run, if it does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ThreadStands {
    /// It waits for something that is no disk and no page: a lock, a timer, another thread.
    Asleep,
    /// For a disk, or for a page.
    AtDisk,
    /// It runs, waits for a core, or somebody has stopped it.
    Elsewhere,
}

/// A disk that gives nothing for so many times as long as code may take gives nothing at all: then its thread is lost, too.
const DISK_PATIENCE: u32 = 20;

impl RunQueue {
    /// Of the thread that calls; `None` where the kernel does not count.
    pub fn of_this_thread() -> Option<RunQueue> {
        let thread = std::fs::read_link("/proc/thread-self").ok()?;
        Some(RunQueue(PathBuf::from("/proc").join(thread)))
    }

    fn times(&self) -> Option<ThreadTimes> {
        let read = |name: &str| std::fs::read_to_string(self.0.join(name)).ok();
        times_in(&read("schedstat")?, &read("stat")?)
    }
}

/// What a piece of code has taken of its thread, added up by whoever looks again and again.
#[derive(Debug, Default)]
pub struct ChargedTime {
    charged: Duration,
    seen: Option<(Instant, Option<ThreadTimes>)>,
}

impl ChargedTime {
    /// Looks at the thread, and says how much it is since the code began. Of a gap between two looks no more than `gap_max`
    /// counts: who looks too late was held up itself.
    pub fn look(&mut self, began: Instant, thread: Option<&RunQueue>, gap_max: Duration) -> Duration {
        let (now, times) = (Instant::now(), thread.and_then(RunQueue::times));
        let (before, times_before) = self.seen.unwrap_or((began, None));
        let passed = now.saturating_duration_since(before).min(gap_max);
        self.charged += match times {
            Some(times) => charge(times_before, times, passed),
            None => passed,
        };
        self.seen = Some((now, times));
        self.charged
    }
}

/// What counts of the time that passed between two looks.
fn charge(before: Option<ThreadTimes>, now: ThreadTimes, passed: Duration) -> Duration {
    // What the thread had done before the first look was for others.
    let before = before.unwrap_or(now);
    let pages = now.faults > before.faults;
    let did = match pages {
        // It goes on from page to page.
        true => now.of_code.saturating_sub(before.of_code),
        false => now.on_core.saturating_sub(before.on_core),
    };
    match now.at {
        ThreadStands::Asleep if !pages => passed.saturating_sub(now.queued.saturating_sub(before.queued)),
        ThreadStands::AtDisk => did.max(passed / DISK_PATIENCE),
        ThreadStands::Asleep | ThreadStands::Elsewhere => did,
    }
}

/// `schedstat` of a thread: time on a core and time spent waiting for one, in nanoseconds. `stat`: behind its name, which may
/// hold anything, its state, and as the tenth and twelfth number the pages it waited for and its own time in hundredths.
fn times_in(schedstat: &str, stat: &str) -> Option<ThreadTimes> {
    let mut counts = schedstat.split_whitespace().map(|count| count.parse().map(Duration::from_nanos));
    let (on_core, queued) = (counts.next()?.ok()?, counts.next()?.ok()?);
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok());
    let of_code = Duration::from_millis(number(11)?.saturating_mul(10));
    let at = match *fields.first()? {
        "S" => ThreadStands::Asleep,
        "D" => ThreadStands::AtDisk,
        _ => ThreadStands::Elsewhere,
    };
    Some(ThreadTimes { on_core, queued, of_code, faults: number(9)?, at })
}

#[cfg(test)]
mod tests {
    use super::ThreadStands::*;
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn at(on_core: u64, queued: u64, of_code: u64, faults: u64, at: ThreadStands) -> ThreadTimes {
        ThreadTimes { on_core: ms(on_core), queued: ms(queued), of_code: ms(of_code), faults, at }
    }

    #[test]
    fn the_counts_of_the_kernel_are_read() {
        let stat = "77 (a) name (x) D 1 2 3 4 5 6 7 8 9 10 11 12 13 14";
        let times = ThreadTimes {
            on_core: Duration::from_nanos(123),
            queued: Duration::from_nanos(64_977),
            of_code: ms(110),
            faults: 9,
            at: AtDisk,
        };
        assert_eq!(times_in("123 64977 1\n", stat), Some(times));
        assert_eq!(times_in("1 2 3\n", &stat.replace(" D ", " S ")).map(|times| times.at), Some(Asleep));
        assert_eq!((times_in("", stat), times_in("1 x 2", stat), times_in("1 2 3", "77 (x)")), (None, None, None));
        assert!(RunQueue::of_this_thread().is_none_or(|own| own.times().is_some()));
    }

    /// G23: what holds up the thread is not the code's: a core that others have, pages, a disk, a stop of the process.
    #[test]
    fn code_is_charged_for_what_it_does() {
        let before = Some(at(100, 50, 90, 7, Elsewhere));
        for (now, counts, why) in [
            (at(600, 50, 590, 7, Elsewhere), 500, "it ran"),
            (at(100, 50, 90, 7, Asleep), 500, "it sleeps"),
            (at(100, 450, 90, 7, Asleep), 100, "it sleeps, and waited for a core before"),
            (at(150, 500, 140, 7, Elsewhere), 50, "others had the core"),
            (at(100, 50, 90, 7, Elsewhere), 0, "stopped"),
            (at(100, 50, 90, 7, AtDisk), 25, "the disk gives nothing"),
            (at(200, 50, 190, 7, AtDisk), 100, "it read, and worked"),
            (at(500, 50, 110, 900, Elsewhere), 20, "from page to page, and the kernel looked for room"),
            (at(130, 50, 120, 900, Asleep), 30, "from page to page, caught between two"),
        ] {
            assert_eq!(charge(before, now, ms(500)), ms(counts), "{why}");
        }
        assert_eq!(charge(None, at(600, 0, 600, 0, Elsewhere), ms(500)), ms(0), "done for others");
        assert_eq!(charge(None, at(600, 0, 600, 0, Asleep), ms(500)), ms(500));
    }

    /// A watchdog that comes late was held up with all the rest.
    #[test]
    fn of_a_long_gap_only_a_part_counts() {
        let began = Instant::now().checked_sub(Duration::from_secs(60)).expect("a minute ago");
        let mut time = ChargedTime::default();
        assert_eq!(time.look(began, None, ms(100)), ms(100));
        assert!(time.look(began, None, ms(100)) < ms(200), "no time has passed since");
    }

    #[test]
    fn a_thread_that_had_no_core_has_waited() {
        let Some(own) = RunQueue::of_this_thread() else { return };
        let Some(before) = own.times() else { return };
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let until = Instant::now() + ms(300);
        let spin = move || while Instant::now() < until {};
        let others: Vec<_> = (0..2 * cores).map(|_| std::thread::spawn(spin)).collect();
        spin();
        others.into_iter().for_each(|other| other.join().unwrap());
        assert!(own.times().unwrap().queued > before.queued, "three threads a core, and none has waited");
    }
}
