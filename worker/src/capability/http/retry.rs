//! Which answers may be better next time, and when that is.
//!
//! Invariant: a client error that repeats itself is not retried; what the server says about the time to come back is
//! honoured up to an hour. Pure: the time is given.

use std::time::Duration;

use bosun_engine::{Failure, Timestamp};

/// A server that names a later time is asked again after this long.
pub(in crate::capability) const RETRY_AFTER_MAX: Duration = Duration::from_secs(3_600);

/// Whether the same request may succeed later, by status alone.
pub(in crate::capability) fn may_pass(status: u16) -> bool {
    matches!(status, 408 | 409 | 425 | 429 | 500..=599)
}

/// The failure of an answer that is no success.
pub(super) fn failure_of(status: u16, message: String, retry_after: Option<&str>, now: Timestamp) -> Failure {
    let failure = Failure::application(format!("Http{status}"), message);
    if !may_pass(status) {
        return failure.non_retryable();
    }
    match retry_after.and_then(|text| self::retry_after(text, now)) {
        Some(delay) => failure.retry_after(delay),
        None => failure,
    }
}

/// `Retry-After`: seconds, also a part of one, or an HTTP date. At most [`RETRY_AFTER_MAX`]; none for what is neither.
pub(crate) fn retry_after(text: &str, now: Timestamp) -> Option<Duration> {
    let text = text.trim();
    let delay = match text.parse() {
        Ok(number) => seconds(number)?,
        Err(_) => {
            let at = jiff::fmt::rfc2822::DateTimeParser::new().parse_zoned(text).ok()?;
            Timestamp(at.timestamp().as_microsecond()).since(now)
        }
    };
    Some(delay.min(RETRY_AFTER_MAX))
}

/// None for what is no length of time: negative, not a number, endless.
pub(in crate::capability) fn seconds(number: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(number).ok()
}

#[cfg(test)]
mod tests {
    use bosun_engine::FailureKind;

    use super::*;

    #[test]
    fn only_what_may_pass_is_retried() {
        let retried: Vec<u16> = (300..600).filter(|status| may_pass(*status) && *status < 500).collect();
        assert_eq!(retried, [408, 409, 425, 429]);
        assert!((500..600).all(may_pass), "529 included");
    }

    #[test]
    fn retry_after_is_read_as_seconds_or_as_a_date() {
        let now = Timestamp(784_111_777_000_000); // Sun, 06 Nov 1994 08:49:37 GMT
        let cases = [
            ("120", Some(120)),
            (" 0 ", Some(0)),
            ("Sun, 06 Nov 1994 08:50:37 GMT", Some(60)),
            ("Sun, 06 Nov 1994 08:00:00 GMT", Some(0)),
            ("999999", Some(3_600)),
            ("soon", None),
            ("-5", None),
            ("NaN", None),
            ("inf", None),
        ];
        for (text, seconds) in cases {
            assert_eq!(retry_after(text, now), seconds.map(Duration::from_secs), "{text}");
        }
        assert_eq!(retry_after("1.5", now), Some(Duration::from_millis(1_500)));
    }

    #[test]
    fn the_delay_goes_along_with_a_failure_that_may_pass_only() {
        let delay = |status| match failure_of(status, String::new(), Some("7"), Timestamp::ZERO).kind {
            FailureKind::Application { next_retry_delay, non_retryable, .. } => (next_retry_delay, non_retryable),
            other => panic!("{other:?}"),
        };
        assert_eq!(delay(429), (Some(Duration::from_secs(7)), false));
        assert_eq!(delay(404), (None, true));
    }
}
