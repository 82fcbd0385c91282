//! Time as data: a timestamp is a number that somebody else read.
//!
//! Invariant: arithmetic saturates, so that no duration can wrap a deadline into the past. This module reads no clock.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Microseconds since 1970-01-01 00:00 UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// The beginning of 1970, UTC.
    pub const ZERO: Timestamp = Timestamp(0);
    /// The last moment there is, for what has no end.
    pub const MAX: Timestamp = Timestamp(i64::MAX);

    /// From milliseconds since 1970, UTC.
    pub fn from_millis(ms: i64) -> Self {
        Timestamp(ms.saturating_mul(1_000))
    }
    /// Microseconds since 1970, UTC.
    pub fn as_micros(self) -> i64 {
        self.0
    }
    /// The moment `after` later; saturates at the end of time.
    pub fn plus(self, after: Duration) -> Self {
        Timestamp(self.0.saturating_add(i64::try_from(after.as_micros()).unwrap_or(i64::MAX)))
    }
    /// The moment `before` earlier; saturates at the beginning of time.
    pub fn minus(self, before: Duration) -> Self {
        Timestamp(self.0.saturating_sub(i64::try_from(before.as_micros()).unwrap_or(i64::MAX)))
    }
    /// How long after `earlier` this is; zero if it is not later.
    pub fn since(self, earlier: Timestamp) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

impl fmt::Display for Timestamp {
    /// RFC 3339 in UTC with microseconds, for example `2026-11-20T18:12:00.000000Z`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.div_euclid(1_000_000);
        let micros = self.0.rem_euclid(1_000_000);
        let days = seconds.div_euclid(86_400);
        let second = seconds.rem_euclid(86_400);
        let (year, month, day) = civil_from_days(days);
        let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z")
    }
}

/// The proleptic Gregorian date of a day counted from 1970-01-01, by shifting the year to begin in March so that the
/// leap day comes last.
fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let shifted = days.saturating_add(719_468);
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_shifted + 2) / 5 + 1;
    let month = if month_shifted < 10 { month_shifted + 3 } else { month_shifted - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_print_as_rfc_3339() {
        assert_eq!(Timestamp(0).to_string(), "1970-01-01T00:00:00.000000Z");
        assert_eq!(Timestamp(951_782_400_000_001).to_string(), "2000-02-29T00:00:00.000001Z");
        assert_eq!(Timestamp(-1).to_string(), "1969-12-31T23:59:59.999999Z");
        assert_eq!(Timestamp(4_294_967_296_000_000).to_string(), "2106-02-07T06:28:16.000000Z");
    }

    #[test]
    fn arithmetic_saturates() {
        assert_eq!(Timestamp(5).plus(Duration::MAX), Timestamp::MAX);
        assert_eq!(Timestamp(5).since(Timestamp(9)), Duration::ZERO);
    }
}
