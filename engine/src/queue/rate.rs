//! A rate, pure: when the next attempt may start.
//!
//! Invariant: in any time, no more start than the rate allows for it, and a tenth of a second's worth (at least one) beside.
//! A clock that steps back delays nobody for longer than one that stands still would.

use crate::vocabulary::*;

/// Nanoseconds, so that a million a second can be told from a million and one.
const SECOND: i128 = 1_000_000_000;

/// What has started, as the moment for which it would have been time.
#[derive(Debug)]
pub(super) struct Rate {
    step: i128,
    slack: i128,
    next: i128,
}

impl Rate {
    pub(super) fn new(limit: PerSecond) -> Self {
        let thousandths = i128::from(limit.thousandths()).max(1);
        let step = (SECOND * 1_000 + thousandths - 1) / thousandths;
        let at_once = (thousandths / 10_000).max(1);
        Rate { step, slack: step * (at_once - 1), next: i128::MIN / 2 }
    }
    fn next(&self, now: Timestamp) -> i128 {
        self.next.min(nanos(now) + self.slack + self.step)
    }
    /// When one may start; in the past if now.
    pub(super) fn at(&self, now: Timestamp) -> Timestamp {
        let micros = (self.next(now) - self.slack + 999).div_euclid(1_000);
        Timestamp(i64::try_from(micros).unwrap_or(i64::MIN))
    }
    pub(super) fn take(&mut self, now: Timestamp) {
        self.next = self.next(now).max(nanos(now)) + self.step;
    }
    /// One that was taken has not started after all. Where others have started long after it was taken, one more may.
    pub(super) fn give_back(&mut self) {
        self.next -= self.step;
    }
}

fn nanos(at: Timestamp) -> i128 {
    i128::from(at.0) * 1_000
}
