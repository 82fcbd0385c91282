//! Trying again: whether there is another try of what failed, and when. Whoever asked gives how often and after what pause.
//!
//! ```text
//!   failed ──► tries left? ──► no ──► whoever asked has the last word (fail, skip, stop, take it as it is)
//!                 └──► yes ──► at once, or after the pause               a person said no: no
//!   its worker was lost: the same call is delivered again, and that is no try
//! ```
//!
//! Invariant: nothing is tried more often than its rule allows; a person who said no is not asked again; a lost worker does
//! not use up a try of the caller, up to a limit of deliveries. Pure: it counts nothing itself.

use std::time::Duration;

use bosun_engine::Timestamp;

use crate::supervisor::model::Task;
use crate::supervisor::outbox::{CallFailure, CallFailureKind};

/// How often a call is delivered whose worker was lost.
pub const DELIVERIES_MAX: u32 = 10;

/// How often something is tried in all, and how long after a failure the next try begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tries {
    pub most: u32,
    pub pause: Duration,
}

/// What follows on a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextTry {
    Now,
    At(Timestamp),
    /// There are no tries left.
    Never,
}

impl Tries {
    /// So often, without a pause.
    pub fn of(most: u32) -> Tries {
        Tries { most, pause: Duration::ZERO }
    }

    /// Those of a task, which is judged or fails so often.
    pub fn of_task(task: &Task) -> Tries {
        Tries::of(task.max_attempts)
    }

    /// Whether there is a try left after so many.
    pub fn are_left(self, made: u32) -> bool {
        made < self.most
    }

    /// The same after a call that failed: whoever said no is not asked again, nor for what would come out the same.
    pub fn are_left_after(self, made: u32, failure: &CallFailure) -> bool {
        !is_refusal(failure) && !is_hopeless(failure) && self.are_left(made)
    }

    /// The next try, after so many that failed.
    pub fn next(self, made: u32, now: Timestamp) -> NextTry {
        match (self.are_left(made), self.pause.is_zero()) {
            (false, _) => NextTry::Never,
            (true, true) => NextTry::Now,
            (true, false) => NextTry::At(now.plus(self.pause)),
        }
    }
}

/// Whether a call failed because a person said no.
pub fn is_refusal(failure: &CallFailure) -> bool {
    matches!(failure.kind, CallFailureKind::Rejected | CallFailureKind::Denied) || is_of_person(failure.kind)
}

/// Whether it is known that a person, and not silence, said no to what a run below had to do.
pub fn is_of_person(kind: CallFailureKind) -> bool {
    matches!(kind, CallFailureKind::SaidNo | CallFailureKind::SaidNoBeside | CallFailureKind::CancelledBelow)
}

/// Whether the same call would come to the same end.
pub fn is_hopeless(failure: &CallFailure) -> bool {
    matches!(failure.kind, CallFailureKind::Hopeless | CallFailureKind::Final | CallFailureKind::HandedUp)
}

/// The number of the next delivery of a call whose worker was lost, after so many of at most `most`; nothing: it is not
/// delivered again.
/// `counts`: who asked wants that to be a try like any other.
pub fn delivered_again(deliveries: u32, most: u32, counts: bool) -> Option<u32> {
    (!counts && deliveries < most).then_some(deliveries + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_worker_is_no_fault_of_who_asked_but_not_for_ever() {
        let again = [0, 9, 10].map(|deliveries| delivered_again(deliveries, DELIVERIES_MAX, false));
        assert_eq!(again, [Some(1), Some(10), None]);
        assert_eq!(delivered_again(0, DELIVERIES_MAX, true), None, "the spec counts it as a try");
    }

    #[test]
    fn nothing_is_tried_more_often_than_its_rule_says() {
        let (now, pause) = (Timestamp(5_000_000), Duration::from_secs(2));
        let slow = Tries { most: 2, pause };
        assert_eq!([slow.next(1, now), slow.next(2, now)], [NextTry::At(now.plus(pause)), NextTry::Never]);
        assert_eq!([Tries::of(2).next(1, now), Tries::of(0).next(0, now)], [NextTry::Now, NextTry::Never]);
        let failed = |kind| CallFailure { kind, message: String::new() };
        let left = |kind| Tries::of(3).are_left_after(1, &failed(kind));
        assert!(left(CallFailureKind::Error) && left(CallFailureKind::Canceled) && left(CallFailureKind::Timeout));
        assert!(!left(CallFailureKind::Rejected) && !left(CallFailureKind::Denied), "a person said no");
        assert!(
            !left(CallFailureKind::SaidNoBeside) && !left(CallFailureKind::CancelledBelow),
            "a person said no below"
        );
        assert!(!left(CallFailureKind::HandedUp) && !left(CallFailureKind::Hopeless), "it would come out the same");
        assert!(!Tries::of(3).are_left_after(3, &failed(CallFailureKind::Error)));
    }
}
