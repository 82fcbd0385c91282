//! The retry policy: when a failed attempt is followed by another.
//!
//! Invariant: the answer depends on the policy, the attempt and the failure alone, in integers, so that it is the same
//! on every machine (E05). Who waits and who starts the attempt is not decided here.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Attempt, Failure, FailureKind, TimeoutType};

/// Temporal's retry policy with Temporal's defaults.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetryPolicy {
    /// The delay before the second attempt. Default 1 s.
    pub initial_interval: Duration,
    /// Each delay is the one before times this, in thousandths. Default 2 000.
    pub backoff_coefficient_permille: u32,
    /// No delay is longer. `None` is 100 times the initial interval.
    pub maximum_interval: Option<Duration>,
    /// How many attempts there are in all; 0 is unlimited (default).
    pub maximum_attempts: u32,
    /// Application failures of these types end it at once.
    pub non_retryable_error_types: Vec<String>,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        RetryPolicy::attempts(0)
    }
}

/// Why there is no further attempt; Temporal's retry states.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RetryState {
    /// The failure says so itself, or the policy names its type.
    NonRetryableFailure,
    /// The last attempt was the last that the policy allows.
    MaximumAttemptsReached,
    /// The next attempt could not begin before the schedule-to-close timeout.
    Timeout,
    /// There is no policy.
    RetryPolicyNotSet,
    /// It was asked to cancel meanwhile.
    CancelRequested,
}

/// Among [`RetryPolicy::non_retryable_error_types`]: a lost worker is a failed attempt like any other, and the last.
pub const WORKER_LOST: &str = "WorkerLost";
/// Among them: everything but a lost worker is final.
const ALL_BUT_LOST: &str = "*";

impl RetryPolicy {
    /// One attempt and no more.
    pub const fn no_retry() -> Self {
        RetryPolicy::attempts(1)
    }
    /// Another attempt only where the worker that ran one was lost, up to this many in all: its idempotency key stays the same.
    /// Whatever an attempt says itself, and a timeout, is the end.
    pub fn for_lost_workers(maximum: u32) -> Self {
        RetryPolicy { non_retryable_error_types: vec![ALL_BUT_LOST.to_owned()], ..RetryPolicy::attempts(maximum) }
    }
    /// Whether it has another attempt only where a worker was lost.
    pub fn is_for_lost_workers(&self) -> bool {
        self.is_final(ALL_BUT_LOST)
    }
    /// Whether it names this type.
    fn is_final(&self, failure_type: &str) -> bool {
        self.non_retryable_error_types.iter().any(|t| t == failure_type)
    }
    /// At most this many attempts, 0 for no limit, with the default delays.
    pub const fn attempts(maximum: u32) -> Self {
        RetryPolicy {
            initial_interval: Duration::from_secs(1),
            backoff_coefficient_permille: 2_000,
            maximum_interval: None,
            maximum_attempts: maximum,
            non_retryable_error_types: Vec::new(),
        }
    }
    /// The delay after `attempt` failed, before the next one, without any override.
    pub fn delay_after(&self, attempt: Attempt) -> Duration {
        let cap = self.maximum_interval.unwrap_or(self.initial_interval.saturating_mul(100)).as_micros();
        let mut delay = self.initial_interval.as_micros();
        for _ in 1..attempt.0 {
            if delay >= cap {
                break;
            }
            let grown = delay.saturating_mul(u128::from(self.backoff_coefficient_permille)) / 1_000;
            if grown <= delay && self.backoff_coefficient_permille <= 1_000 {
                break;
            }
            delay = grown;
        }
        Duration::from_micros(u64::try_from(delay.min(cap)).unwrap_or(u64::MAX))
    }
    /// After `attempt` ended in `failure`: the delay before the next, or why there is none.
    pub fn next(&self, attempt: Attempt, failure: &Failure) -> Result<Duration, RetryState> {
        let mut asked = None;
        match &failure.kind {
            FailureKind::Application { failure_type, non_retryable, next_retry_delay, .. } => {
                if *non_retryable || self.is_final(failure_type) || self.is_for_lost_workers() {
                    return Err(RetryState::NonRetryableFailure);
                }
                asked = *next_retry_delay;
            }
            FailureKind::Canceled { .. } | FailureKind::Terminated => return Err(RetryState::NonRetryableFailure),
            FailureKind::Timeout { timeout: TimeoutType::ScheduleToClose | TimeoutType::ScheduleToStart, .. } => {
                return Err(RetryState::NonRetryableFailure);
            }
            FailureKind::WorkerLost if self.is_final(WORKER_LOST) => return Err(RetryState::NonRetryableFailure),
            FailureKind::Timeout { .. } | FailureKind::Activity { .. } | FailureKind::ChildWorkflow { .. }
                if self.is_for_lost_workers() =>
            {
                return Err(RetryState::NonRetryableFailure);
            }
            FailureKind::Timeout { .. }
            | FailureKind::Activity { .. }
            | FailureKind::ChildWorkflow { .. }
            | FailureKind::WorkerLost => {}
        }
        if self.maximum_attempts != 0 && attempt.0 >= self.maximum_attempts {
            return Err(RetryState::MaximumAttemptsReached);
        }
        Ok(asked.unwrap_or_else(|| self.delay_after(attempt)))
    }
    /// Says what is wrong with the policy, if anything.
    pub fn check(&self) -> Result<(), String> {
        if self.initial_interval.is_zero() {
            return Err("retry policy: the initial interval must be longer than zero".into());
        }
        if self.backoff_coefficient_permille < 1_000 {
            return Err("retry policy: the backoff coefficient must be at least 1.0".into());
        }
        if self.maximum_interval.is_some_and(|max| max < self.initial_interval) {
            return Err("retry policy: the maximum interval is shorter than the initial one".into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// G12: who asks for it has an attempt of which nobody knows the end made again, and no other; or just not that one.
    #[test]
    fn a_lost_worker_is_a_failure_of_its_own() {
        let lost = Failure { message: "gone".into(), kind: FailureKind::WorkerLost, cause: None };
        let late = TimeoutType::StartToClose;
        let late = Failure { kind: FailureKind::Timeout { timeout: late, last_heartbeat: None }, ..lost.clone() };
        let said = Failure::application("Busy", "not now");
        let policy = RetryPolicy::for_lost_workers(3);
        let outcomes = |policy: &RetryPolicy| [&lost, &late, &said].map(|why| policy.next(Attempt(1), why).is_ok());
        assert_eq!(outcomes(&policy), [true, false, false]);
        assert_eq!(policy.next(Attempt(3), &lost), Err(RetryState::MaximumAttemptsReached));
        let never = RetryPolicy { non_retryable_error_types: vec![WORKER_LOST.to_owned()], ..RetryPolicy::default() };
        assert_eq!(outcomes(&never), [false, true, true]);
    }

    /// E05: initial 1 s, coefficient 2.0, maximum 100 x initial.
    #[test]
    fn delays_double_up_to_a_hundred_times_the_first() {
        let policy = RetryPolicy::default();
        let seconds: Vec<u64> = (1..=9).map(|n| policy.delay_after(Attempt(n)).as_secs()).collect();
        assert_eq!(seconds, [1, 2, 4, 8, 16, 32, 64, 100, 100]);
        assert_eq!(policy.delay_after(Attempt(u32::MAX)).as_secs(), 100);
    }

    /// E05: non-retryable types, attempt limit, and a delay asked for by the error.
    #[test]
    fn the_failure_and_the_attempt_decide() {
        let policy = RetryPolicy {
            maximum_attempts: 3,
            non_retryable_error_types: vec!["BadCard".into()],
            ..RetryPolicy::default()
        };
        assert_eq!(policy.next(Attempt(1), &Failure::application("Busy", "later")), Ok(Duration::from_secs(1)));
        assert_eq!(
            policy.next(Attempt(3), &Failure::application("Busy", "later")),
            Err(RetryState::MaximumAttemptsReached)
        );
        assert_eq!(
            policy.next(Attempt(1), &Failure::application("BadCard", "no")),
            Err(RetryState::NonRetryableFailure)
        );
        let asks = Failure::application("Busy", "later").retry_after(Duration::from_millis(7));
        assert_eq!(policy.next(Attempt(2), &asks), Ok(Duration::from_millis(7)));
        assert_eq!(policy.next(Attempt(1), &asks.non_retryable()), Err(RetryState::NonRetryableFailure));
    }
}
