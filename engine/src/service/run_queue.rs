//! How long a thread has waited for a core, by the kernel's own count.
//!
//! Invariant: it is read by whoever watches the thread, never by the thread itself, so that a turn pays nothing for it. A
//! kernel that does not count says nothing, and time then counts as it passes.

use std::path::PathBuf;
use std::time::Duration;

/// Where the kernel counts for one thread.
#[derive(Debug)]
pub struct RunQueue(PathBuf);

impl RunQueue {
    /// Of the thread that calls; `None` where the kernel does not count.
    pub fn of_this_thread() -> Option<RunQueue> {
        let thread = std::fs::read_link("/proc/thread-self").ok()?;
        Some(RunQueue(PathBuf::from("/proc").join(thread).join("schedstat")))
    }

    /// The time in which the thread could have run and had no core, since it began.
    pub fn waited(&self) -> Option<Duration> {
        waited_in(&std::fs::read_to_string(&self.0).ok()?)
    }
}

/// `schedstat` of a thread: time on a core and time spent waiting for one, in nanoseconds, and how often it got one.
fn waited_in(text: &str) -> Option<Duration> {
    text.split_whitespace().nth(1)?.parse().ok().map(Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_number_is_the_time_in_the_queue() {
        assert_eq!(waited_in("123 64977 1\n"), Some(Duration::from_nanos(64_977)));
        assert_eq!((waited_in(""), waited_in("1 x 2")), (None, None));
    }

    #[test]
    fn a_thread_that_had_no_core_has_waited() {
        let Some(own) = RunQueue::of_this_thread() else { return };
        let Some(before) = own.waited() else { return };
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let until = std::time::Instant::now() + Duration::from_millis(300);
        let spin = move || while std::time::Instant::now() < until {};
        let others: Vec<_> = (0..2 * cores).map(|_| std::thread::spawn(spin)).collect();
        spin();
        others.into_iter().for_each(|other| other.join().unwrap());
        assert!(own.waited().unwrap() > before, "three threads a core, and none has waited");
    }
}
