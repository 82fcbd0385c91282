//! Attempts of a call of a run whose time is limited: the one that is under way when the time is over ends as it ends, and none
//! begins after it.
//!
//! Invariant: the time is counted from when the call was asked for, so that it is the same in a fork that asks again. Who waits
//! for a provider waits no longer than to the end of the time, and hears there that it is over. Pure: the moment is given.

use std::time::Duration;

use bosun_engine::{Attempt, Failure, FailureKind, Payload, RetryPolicy, Timestamp};

/// The failure of a call that may not be made any more, because the time of its run is over. It was not sent.
pub(crate) const OUT_OF_TIME: &str = "OutOfTime";

/// Whether an attempt may begin now.
pub(crate) fn begins(within_ms: Option<u64>, asked: Timestamp, now: Timestamp) -> Result<(), Failure> {
    match left(within_ms, asked, now) {
        Some(left) if left.is_zero() => {
            let failure = Failure::application(OUT_OF_TIME, "the time of the run is over").non_retryable();
            // Room for what was cut before.
            Err(match Payload::encode(&serde_json::json!({})) {
                Ok(details) => failure.with_details(details),
                Err(_) => failure,
            })
        }
        _ => Ok(()),
    }
}

/// A failure that another attempt may follow on follows no later than at the end of the time.
pub(crate) fn waits(
    failure: Failure,
    attempt: Attempt,
    within_ms: Option<u64>,
    asked: Timestamp,
    now: Timestamp,
) -> Failure {
    let Some(left) = left(within_ms, asked, now) else { return failure };
    let delay = match &failure.kind {
        FailureKind::Application { non_retryable: false, next_retry_delay, .. } => *next_retry_delay,
        _ => return failure,
    };
    let own = RetryPolicy::default().delay_after(attempt);
    if delay.unwrap_or(own) > left { failure.retry_after(left) } else { failure }
}

fn left(within_ms: Option<u64>, asked: Timestamp, now: Timestamp) -> Option<Duration> {
    within_ms.map(|ms| asked.plus(Duration::from_millis(ms)).since(now))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// G41: when the time of a run is over no call begins, however long a provider wants to be left alone.
    #[test]
    fn no_attempt_begins_when_the_time_is_over() {
        let at = |seconds: u64| Timestamp::ZERO.plus(Duration::from_secs(seconds));
        assert!(begins(None, at(0), at(9_999)).is_ok() && begins(Some(3_000), at(0), at(2)).is_ok());
        let over = begins(Some(3_000), at(0), at(3)).unwrap_err();
        assert_eq!(over.type_name(), OUT_OF_TIME);
        assert!(matches!(over.kind, FailureKind::Application { non_retryable: true, details: Some(_), .. }));
        let busy = |delay: Option<u64>| {
            let failure = Failure::application("Busy", "not now");
            match delay {
                Some(delay) => failure.retry_after(Duration::from_secs(delay)),
                None => failure,
            }
        };
        let delay = |failure: Failure, within_ms| match waits(failure, Attempt(3), within_ms, at(0), at(1)).kind {
            FailureKind::Application { next_retry_delay, .. } => next_retry_delay.map(|delay| delay.as_secs()),
            _ => None,
        };
        assert_eq!(delay(busy(Some(7)), None), Some(7), "nobody limits it");
        assert_eq!((delay(busy(Some(7)), Some(3_000)), delay(busy(Some(1)), Some(3_000))), (Some(2), Some(1)));
        assert_eq!((delay(busy(None), Some(3_000)), delay(busy(None), Some(60_000))), (Some(2), None));
        assert_eq!(delay(busy(Some(7)).non_retryable(), Some(3_000)), Some(7), "nothing follows");
    }
}
