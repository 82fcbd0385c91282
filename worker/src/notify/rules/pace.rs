//! When the next attempt of a notification is made.
//!
//! Invariant: the wait doubles up to a bound; whoever says when to come back is heeded, within a bound; after some days nobody
//! is asked any more, which is told as a failure and never silently.

use std::time::Duration;

use bosun_engine::Timestamp;

use super::quiet::QuietHours;

const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(15 * 60);
/// Whoever asks for longer is asked again then.
const HEEDED: Duration = Duration::from_secs(3_600);
/// After so long it is given up.
pub const LASTS: Duration = Duration::from_secs(3 * 24 * 3_600);

/// What follows on a failed attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextAttempt {
    At(Timestamp),
    GivenUp,
}

/// The first attempt: at once, or when quiet hours end.
pub fn first_attempt(made: Timestamp, quiet: Option<&QuietHours>) -> Timestamp {
    quiet.map_or(made, |quiet| quiet.open_at(made))
}

/// The attempt after so many that failed, the first of which was made at `began`.
pub fn next_attempt(
    failed: u32,
    retry_after: Option<Duration>,
    (began, now): (Timestamp, Timestamp),
    quiet: Option<&QuietHours>,
) -> NextAttempt {
    if now.since(began) >= LASTS {
        return NextAttempt::GivenUp;
    }
    let doubled = FIRST.saturating_mul(1 << failed.saturating_sub(1).min(16)).min(LONGEST);
    let wait = retry_after.map_or(doubled, |asked| asked.min(HEEDED).max(doubled));
    NextAttempt::At(first_attempt(now.plus(wait), quiet))
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: Timestamp = Timestamp(1_000_000_000_000_000);

    #[test]
    fn the_wait_doubles_and_is_bounded() {
        let waits =
            |failed, asked: Option<u64>| match next_attempt(failed, asked.map(Duration::from_secs), (T, T), None) {
                NextAttempt::At(at) => at.since(T).as_secs(),
                NextAttempt::GivenUp => panic!("given up"),
            };
        assert_eq!(
            [1, 2, 3, 4, 10, 11, 40, u32::MAX].map(|failed| waits(failed, None)),
            [1, 2, 4, 8, 512, 900, 900, 900]
        );
        assert_eq!([Some(30), Some(7_200), Some(0)].map(|asked| waits(3, asked)), [30, 3_600, 4]);
    }

    #[test]
    fn after_some_days_it_is_given_up() {
        let at = |after: Duration| next_attempt(5, None, (T, T.plus(after)), None);
        assert!(matches!(at(LASTS - Duration::from_secs(1)), NextAttempt::At(_)));
        assert_eq!(at(LASTS), NextAttempt::GivenUp);
    }

    #[test]
    fn no_attempt_falls_into_quiet_hours() {
        let night = QuietHours::read("22:00-07:00", None).unwrap();
        let at = |text: &str| Timestamp(text.parse::<jiff::Timestamp>().unwrap().as_microsecond());
        let (late, morning) = (at("2026-01-15T21:59:58Z"), at("2026-01-16T07:00:00Z"));
        assert_eq!(first_attempt(late, Some(&night)), late);
        assert_eq!(next_attempt(4, None, (late, late), Some(&night)), NextAttempt::At(morning));
        assert_eq!(next_attempt(1, None, (late, late), Some(&night)), NextAttempt::At(at("2026-01-15T21:59:59Z")));
    }
}
