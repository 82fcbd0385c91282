//! Times in filter texts: RFC 3339, and a bare date for its first moment in UTC.
//!
//! Invariant: what [`Timestamp`] prints reads back as the same timestamp, for years 0000 to 9999; more than six digits
//! of a second are cut off. No time zone names, no clock ("now", "today").

use crate::vocabulary::Timestamp;

/// `2026-11-20T18:12:00[.123456](Z|+01:00)`, also with a space or in lower case, or `2026-11-20`.
pub(super) fn parse(text: &str) -> Option<Timestamp> {
    let mut rest = Digits(text.as_bytes());
    let year = rest.number(4)?;
    rest.expect(b"-")?;
    let month = rest.number(2)?;
    rest.expect(b"-")?;
    let day = rest.number(2)?;
    if !(1..=12).contains(&month) || day < 1 || day > days_in(year, month) {
        return None;
    }
    let days = days_from_civil(year, month, day);
    if rest.0.is_empty() {
        return micros(days, 0, 0);
    }
    rest.expect(b"Tt ")?;
    let hour = rest.number(2)?;
    rest.expect(b":")?;
    let minute = rest.number(2)?;
    rest.expect(b":")?;
    let second = rest.number(2)?;
    // 60 is a leap second; it is counted as the first second of the next minute.
    if hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let fraction = if rest.expect(b".").is_some() { rest.fraction()? } else { 0 };
    let offset = rest.offset()?;
    rest.0.is_empty().then_some(())?;
    micros(days, hour * 3_600 + minute * 60 + second - offset, fraction)
}

fn micros(days: i64, seconds: i64, fraction: i64) -> Option<Timestamp> {
    let seconds = days.checked_mul(86_400)?.checked_add(seconds)?;
    seconds.checked_mul(1_000_000)?.checked_add(fraction).map(Timestamp)
}

struct Digits<'a>(&'a [u8]);

impl Digits<'_> {
    fn expect(&mut self, one_of: &[u8]) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        one_of.contains(first).then(|| {
            self.0 = rest;
            *first
        })
    }
    /// Exactly `count` digits.
    fn number(&mut self, count: usize) -> Option<i64> {
        let digits = self.0.get(..count)?;
        let value = digits.iter().try_fold(0i64, |n, d| d.is_ascii_digit().then(|| n * 10 + i64::from(d - b'0')))?;
        self.0 = &self.0[count..];
        Some(value)
    }
    /// At least one digit after the point, as microseconds.
    fn fraction(&mut self) -> Option<i64> {
        let count = self.0.iter().take_while(|b| b.is_ascii_digit()).count();
        let (digits, rest) = self.0.split_at(count);
        self.0 = rest;
        (count > 0).then_some(())?;
        Some((0..6).fold(0, |n, i| n * 10 + digits.get(i).map_or(0, |d| i64::from(d - b'0'))))
    }
    /// `Z` or `+hh:mm`, in seconds east of UTC.
    fn offset(&mut self) -> Option<i64> {
        match self.expect(b"Zz+-")? {
            sign @ (b'+' | b'-') => {
                let hours = self.number(2)?;
                self.expect(b":")?;
                let minutes = self.number(2)?;
                (hours < 24 && minutes < 60).then_some(())?;
                let seconds = hours * 3_600 + minutes * 60;
                Some(if sign == b'-' { -seconds } else { seconds })
            }
            _ => Some(0),
        }
    }
}

fn days_in(year: i64, month: i64) -> i64 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        _ => 31,
    }
}

/// Days since 1970-01-01 in the proleptic Gregorian calendar; the year is shifted to begin in March, so that the leap
/// day comes last.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * month + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_read_as_rfc_3339_says() {
        for (text, micros) in [
            ("1970-01-01T00:00:00Z", 0),
            ("1970-01-01", 0),
            ("1970-01-01T01:00:00+01:00", 0),
            ("1969-12-31T23:59:59.999999z", -1),
            ("2000-02-29 00:00:00.000001999Z", 951_782_400_000_001),
            ("2106-02-07T06:28:16.5-00:30", 4_294_969_096_500_000),
            ("2016-12-31T23:59:60Z", 1_483_228_800_000_000),
        ] {
            assert_eq!(parse(text), Some(Timestamp(micros)), "{text}");
        }
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in [
            "",
            "now",
            "2026",
            "2026-13-01",
            "2026-02-29",
            "2026-00-10",
            "2026-01-00",
            "2026-01-01T",
            "2026-01-01T10:00Z",
            "2026-01-01T10:00:00",
            "2026-01-01T24:00:00Z",
            "2026-01-01T10:60:00Z",
            "2026-01-01T10:00:00.Z",
            "2026-01-01T10:00:00+1:00",
            "2026-01-01T10:00:00Zx",
            "+2026-01-01",
            "20２6-01-01",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn every_printed_timestamp_of_four_digit_years_reads_back(micros in -62_167_219_200_000_000i64..253_402_300_800_000_000) {
            proptest::prop_assert_eq!(parse(&Timestamp(micros).to_string()), Some(Timestamp(micros)));
        }
    }
}
