//! Times for people and programs: relative, ISO 8601 or raw microseconds.
//!
//! Invariant: JSON output is ISO (or raw when asked), never relative, so that it means the same later. The clock is
//! read once per command, by the caller.

use std::time::Duration;

use bosun_engine::Timestamp;
use clap::ValueEnum;
use serde_json::{Value, json};

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TimeFormat {
    Relative,
    Iso,
    Raw,
}

impl TimeFormat {
    pub fn text(self, at: Timestamp, now: Timestamp) -> String {
        match self {
            TimeFormat::Relative if at > now => format!("in {}", short(at.since(now))),
            TimeFormat::Relative => format!("{} ago", short(now.since(at))),
            TimeFormat::Iso => at.to_string(),
            TimeFormat::Raw => at.as_micros().to_string(),
        }
    }
    pub fn json(self, at: Timestamp) -> Value {
        match self {
            TimeFormat::Relative | TimeFormat::Iso => json!(at.to_string()),
            TimeFormat::Raw => json!(at.as_micros()),
        }
    }
}

/// A duration in its two largest units at most: `850ms`, `4s`, `3m 20s`, `2h 5m`, `9d`.
pub(crate) fn short(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    match () {
        () if seconds == 0 => format!("{}ms", duration.as_millis()),
        () if seconds < 60 => format!("{seconds}s"),
        () if seconds < 3_600 => format!("{minutes}m {}s", seconds % 60),
        () if days == 0 => format!("{hours}h {minutes}m"),
        () if days < 7 => format!("{days}d {hours}h"),
        () => format!("{days}d"),
    }
}

/// The clock, for the edge of the program.
pub(super) fn now() -> Timestamp {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}

/// Reads `30s`, `5m`, `1h 30m`, `250ms`; also `7d` and `2w`, of 24 hours a day.
pub(super) fn parse_duration(text: &str) -> Result<Duration, String> {
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let Ok(span) = text.parse::<jiff::SignedDuration>() else { return crate::schedule::text::parse_duration(text) };
    Duration::try_from(span).map_err(|_| format!("{text:?} is negative"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_shown_in_three_ways() {
        let (at, now) = (Timestamp(1_000_000_000_000), Timestamp(1_000_065_000_000));
        assert_eq!(TimeFormat::Relative.text(at, now), "1m 5s ago");
        assert_eq!(TimeFormat::Relative.text(now, at), "in 1m 5s");
        assert_eq!(TimeFormat::Iso.text(at, now), "1970-01-12T13:46:40.000000Z");
        assert_eq!(TimeFormat::Raw.text(at, now), "1000000000000");
        assert_eq!(TimeFormat::Relative.json(at), json!("1970-01-12T13:46:40.000000Z"));
    }

    #[test]
    fn durations_are_short() {
        for (ms, text) in [(0, "0ms"), (850, "850ms"), (4_000, "4s"), (7_500_000, "2h 5m"), (90_000_000, "1d 1h")] {
            assert_eq!(short(Duration::from_millis(ms)), text);
        }
    }

    #[test]
    fn durations_are_read() {
        assert_eq!(parse_duration("30s"), Ok(Duration::from_secs(30)));
        assert_eq!(parse_duration("1h 30m"), Ok(Duration::from_secs(5_400)));
        assert_eq!(parse_duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(parse_duration("0"), Ok(Duration::ZERO));
        assert_eq!(parse_duration("1d 1h"), Ok(Duration::from_secs(90_000)));
        assert!(parse_duration("soon").is_err());
        assert!(parse_duration("-5s").is_err());
    }
}
