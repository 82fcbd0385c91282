//! Times as text: reads RFC 3339, the form in which histories and Temporal's JSON write them.
//!
//! Invariant: what [`Timestamp`]'s `Display` prints for the years 0 to 9999 is read back exactly; digits below a
//! microsecond are cut off. Leap seconds and local times without an offset are refused. No clock is read.

use bosun_engine::Timestamp;

/// The first moment of the year 0 and the last of 9999: the times that RFC 3339 can write.
pub(crate) const EARLIEST: Timestamp = Timestamp(-62_167_219_200_000_000);
pub(crate) const LATEST: Timestamp = Timestamp(253_402_300_799_999_999);

pub(crate) fn parse(text: &str) -> Option<Timestamp> {
    let bytes = text.as_bytes();
    if !text.is_ascii() || bytes.len() < 20 {
        return None;
    }
    let punctuation = [(4, b'-'), (7, b'-'), (13, b':'), (16, b':')];
    if punctuation.iter().any(|(at, mark)| bytes[*at] != *mark) || !matches!(bytes[10], b'T' | b't' | b' ') {
        return None;
    }
    let (year, month, day) = (number(&text[0..4])?, number(&text[5..7])?, number(&text[8..10])?);
    let (hour, minute, second) = (number(&text[11..13])?, number(&text[14..16])?, number(&text[17..19])?);
    if !(1..=12).contains(&month) || !(1..=days_in(year, month)).contains(&day) {
        return None;
    }
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let (micros, rest) = fraction(&text[19..])?;
    let seconds = days_from_civil(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second - offset(rest)?;
    let at = Timestamp(seconds * 1_000_000 + micros);
    (EARLIEST..=LATEST).contains(&at).then_some(at)
}

fn number(digits: &str) -> Option<i64> {
    if !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok()
}

/// The microseconds of `.123…`, and what follows.
fn fraction(text: &str) -> Option<(i64, &str)> {
    let Some(text) = text.strip_prefix('.') else { return Some((0, text)) };
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    if end == 0 || end > 18 {
        return None;
    }
    let micros = (0..6).fold(0, |micros, place| {
        let digit = text.as_bytes()[..end].get(place).map_or(0, |digit| i64::from(digit - b'0'));
        micros * 10 + digit
    });
    Some((micros, &text[end..]))
}

/// Seconds east of UTC.
fn offset(text: &str) -> Option<i64> {
    if matches!(text, "Z" | "z") {
        return Some(0);
    }
    let sign = match text.as_bytes().first()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    if text.len() != 6 || text.as_bytes()[3] != b':' {
        return None;
    }
    let (hours, minutes) = (number(&text[1..3])?, number(&text[4..6])?);
    (hours <= 23 && minutes <= 59).then_some(sign * (hours * 3_600 + minutes * 60))
}

fn days_in(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days since 1970-01-01 in the proleptic Gregorian calendar; years begin in March so that the leap day comes last.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn offsets_and_fractions_are_understood() {
        for (text, micros) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2000-02-29T00:00:00.000001Z", 951_782_400_000_001),
            ("2026-01-01T01:30:00.5+01:30", 1_767_225_600_500_000),
            ("2026-01-01T00:00:00.123456789Z", 1_767_225_600_123_456),
            ("1969-12-31 23:59:59.999999-00:00", -1),
        ] {
            assert_eq!(parse(text), Some(Timestamp(micros)), "{text}");
        }
        for wrong in ["", "2026-02-29T00:00:00Z", "2026-01-01T24:00:00Z", "2026-01-01T00:00:00", "2026-01-01T00:00:0éZ"]
        {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn what_is_printed_is_read_back(micros in EARLIEST.0..=LATEST.0) {
            prop_assert_eq!(parse(&Timestamp(micros).to_string()), Some(Timestamp(micros)));
        }

        #[test]
        fn no_text_makes_the_reader_panic(text in "\\PC{0,40}|[0-9T:.Z+-]{15,40}") {
            let _ = parse(&text);
        }
    }
}
