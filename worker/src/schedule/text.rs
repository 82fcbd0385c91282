//! Times and durations as people write them: RFC 3339, and `1h 30m`.
//!
//! Invariant: what is written is read back as the same value. No clock is read, and nothing here knows a time zone but UTC.

use std::time::Duration;

use bosun_engine::Timestamp;

const MICROS: u64 = 1_000_000;
/// Largest first.
const UNITS: [(&str, u64); 6] = [
    ("w", 7 * 86_400 * MICROS),
    ("d", 86_400 * MICROS),
    ("h", 3_600 * MICROS),
    ("m", 60 * MICROS),
    ("s", MICROS),
    ("ms", 1_000),
];

/// RFC 3339 in UTC, with a fraction of a second only where there is one: `2026-03-29T01:00:00Z`.
pub fn moment(at: Timestamp) -> String {
    jiff::Timestamp::from_microsecond(at.0).map_or_else(|_| at.to_string(), |at| at.to_string())
}

/// Reads RFC 3339, with any offset.
pub fn parse_moment(text: &str) -> Result<Timestamp, String> {
    let at: jiff::Timestamp =
        text.trim().parse().map_err(|_| format!("{text:?} is not a time like 2026-03-29T01:00:00Z"))?;
    Ok(Timestamp(at.as_microsecond()))
}

/// `1h 30m`, exactly.
pub fn duration(of: Duration) -> String {
    let mut left = u64::try_from(of.as_micros()).unwrap_or(u64::MAX);
    let mut parts = Vec::new();
    // No weeks: a year is 365d, and not 52w 1d.
    for (unit, micros) in UNITS.into_iter().skip(1) {
        if left >= micros {
            parts.push(format!("{}{unit}", left / micros));
            left %= micros;
        }
    }
    if parts.is_empty() { "0s".to_owned() } else { parts.join(" ") }
}

/// Reads `10m`, `1h 30m`, `1h30m`, `7d`; a number alone is no duration, apart from 0.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is not a duration like 30s, 5m, 1h 30m, 7d");
    let mut rest = text.trim();
    if rest == "0" {
        return Ok(Duration::ZERO);
    }
    if rest.is_empty() {
        return Err(wrong());
    }
    let mut micros: u64 = 0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
        let number: u64 = rest[..digits].parse().map_err(|_| wrong())?;
        rest = &rest[digits..];
        let letters = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
        let unit = UNITS.iter().find(|(unit, _)| *unit == &rest[..letters]).ok_or_else(wrong)?;
        micros = number.checked_mul(unit.1).and_then(|part| micros.checked_add(part)).ok_or_else(wrong)?;
        rest = rest[letters..].trim_start();
    }
    Ok(Duration::from_micros(micros))
}

/// For `#[serde(with)]`: a time as text.
pub mod at {
    use super::*;
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(at: &Timestamp, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&moment(*at))
    }
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Timestamp, D::Error> {
        parse_moment(&String::deserialize(from)?).map_err(serde::de::Error::custom)
    }
}

/// For `#[serde(with)]`: a time as text, or none.
pub mod at_option {
    use super::*;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer>(at: &Option<Timestamp>, to: S) -> Result<S::Ok, S::Error> {
        at.map(moment).serialize(to)
    }
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Timestamp>, D::Error> {
        let text = Option::<String>::deserialize(from)?;
        text.map(|text| parse_moment(&text)).transpose().map_err(serde::de::Error::custom)
    }
}

/// For `#[serde(with)]`: a duration as text.
pub mod span {
    use super::*;
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(of: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&duration(*of))
    }
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        parse_duration(&String::deserialize(from)?).map_err(serde::de::Error::custom)
    }
}

/// For `#[serde(with)]`: a duration as text, or none.
pub mod span_option {
    use super::*;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer>(of: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
        of.map(duration).serialize(to)
    }
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
        let text = Option::<String>::deserialize(from)?;
        text.map(|text| parse_duration(&text)).transpose().map_err(serde::de::Error::custom)
    }
}
