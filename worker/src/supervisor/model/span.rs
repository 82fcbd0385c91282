//! A length of time in a spec: `500ms`, `30s`, `15m`, `24h`, or a plain number of seconds.
//!
//! Invariant: whole milliseconds; what is written is read back as the same span, in one spelling (the largest unit that
//! has no rest). Zero is a span; who needs more checks it. It knows no clock.

use std::borrow::Cow;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::supervisor::fields::parse_duration;

/// How long something may take or is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Span {
    ms: u64,
}

/// A text or number that is no length of time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected a duration such as 500ms, 30s, 15m or 24h, found {found}")]
pub struct InvalidSpan {
    found: String,
}

const UNITS: [(u64, &str); 4] = [(3_600_000, "h"), (60_000, "m"), (1_000, "s"), (1, "ms")];

impl Span {
    /// No time.
    pub const ZERO: Span = Span { ms: 0 };

    /// From milliseconds.
    pub const fn from_ms(ms: u64) -> Self {
        Span { ms }
    }
    /// Too many seconds are the longest span.
    pub const fn from_secs(secs: u64) -> Self {
        Span { ms: secs.saturating_mul(1_000) }
    }
    /// From minutes; saturates.
    pub const fn from_mins(mins: u64) -> Self {
        Span { ms: mins.saturating_mul(60_000) }
    }
    /// From hours; saturates.
    pub const fn from_hours(hours: u64) -> Self {
        Span { ms: hours.saturating_mul(3_600_000) }
    }
    /// In milliseconds.
    pub const fn as_ms(self) -> u64 {
        self.ms
    }
    /// Whole seconds; the rest is dropped.
    pub const fn as_secs(self) -> u64 {
        self.ms / 1_000
    }
    /// Whether it is no time at all.
    pub const fn is_zero(self) -> bool {
        self.ms == 0
    }
    /// As the standard library has it.
    pub const fn duration(self) -> Duration {
        Duration::from_millis(self.ms)
    }
}

impl From<Span> for Duration {
    fn from(span: Span) -> Self {
        span.duration()
    }
}

impl std::fmt::Display for Span {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.ms == 0 {
            return f.write_str("0s");
        }
        let unit = UNITS.iter().find(|(size, _)| self.ms.is_multiple_of(*size));
        let (size, name) = unit.unwrap_or(&(1, "ms"));
        write!(f, "{}{name}", self.ms / size)
    }
}

impl std::str::FromStr for Span {
    type Err = InvalidSpan;

    fn from_str(text: &str) -> Result<Self, InvalidSpan> {
        let found = parse_duration(text).and_then(|duration| u64::try_from(duration.as_millis()).ok());
        found.map(Span::from_ms).ok_or_else(|| InvalidSpan { found: format!("\"{text}\"") })
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error;

        struct Text;
        impl serde::de::Visitor<'_> for Text {
            type Value = Span;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a duration such as 500ms, 30s, 15m or 24h")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Span, E> {
                text.parse().map_err(E::custom)
            }
            fn visit_u64<E: Error>(self, secs: u64) -> Result<Span, E> {
                let ms = secs.checked_mul(1_000).ok_or_else(|| InvalidSpan { found: secs.to_string() });
                ms.map(Span::from_ms).map_err(E::custom)
            }
            fn visit_i64<E: Error>(self, secs: i64) -> Result<Span, E> {
                let secs = u64::try_from(secs).map_err(|_| E::custom(InvalidSpan { found: secs.to_string() }))?;
                self.visit_u64(secs)
            }
            fn visit_f64<E: Error>(self, secs: f64) -> Result<Span, E> {
                Err(E::custom(InvalidSpan { found: secs.to_string() }))
            }
        }
        deserializer.deserialize_any(Text)
    }
}

impl JsonSchema for Span {
    fn schema_name() -> Cow<'static, str> {
        "Span".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        schemars::json_schema!({
            "description": "A length of time: 500ms, 30s, 15m, 24h, or a whole number of seconds.",
            "anyOf": [
                { "type": "string", "pattern": "^[0-9]+(ms|s|m|h)$" },
                { "type": "integer", "minimum": 0 }
            ]
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_written_in_one_spelling_and_read_back() {
        let cases = [
            ("500ms", 500, "500ms"),
            ("1000ms", 1_000, "1s"),
            ("90s", 90_000, "90s"),
            ("15m", 900_000, "15m"),
            ("1440m", 86_400_000, "24h"),
            ("0s", 0, "0s"),
        ];
        for (text, ms, written) in cases {
            let span: Span = serde_json::from_value(text.into()).unwrap();
            assert_eq!((span.as_ms(), span.to_string().as_str()), (ms, written), "{text}");
            assert_eq!(serde_json::to_value(span).unwrap(), written, "{text}");
            assert_eq!(written.parse::<Span>().unwrap(), span, "{text}");
        }
        assert_eq!(serde_json::from_value::<Span>(300.into()).unwrap(), Span::from_mins(5));
    }

    #[test]
    fn what_is_no_span_is_refused_with_its_value() {
        let bad = [serde_json::json!("1d"), "".into(), "-1s".into(), "soon".into(), (-3).into(), 1.5.into()];
        for value in bad {
            let why = serde_json::from_value::<Span>(value.clone()).unwrap_err().to_string();
            assert!(why.starts_with("expected a duration such as 500ms, 30s, 15m or 24h, found "), "{value}: {why}");
            let found = value.to_string();
            assert!(why.ends_with(&found), "{value}: {why}");
        }
        assert!(serde_json::from_value::<Span>(u64::MAX.into()).is_err());
        let why = serde_json::from_value::<Span>(serde_json::json!(null)).unwrap_err().to_string();
        assert!(why.contains("500ms, 30s, 15m or 24h"), "{why}");
    }

    #[test]
    fn the_schema_pattern_takes_what_the_reader_takes() {
        let schema = serde_json::to_value(schemars::schema_for!(Span)).unwrap();
        let pattern = regex::Regex::new(schema["anyOf"][0]["pattern"].as_str().unwrap()).unwrap();
        for text in ["500ms", "30s", "15m", "24h", "1d", "", "s", "-1s", "1.5s", "1 s"] {
            assert_eq!(pattern.is_match(text), text.parse::<Span>().is_ok(), "{text}");
        }
    }
}
