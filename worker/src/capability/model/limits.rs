//! What providers say about how much is left before they refuse.
//!
//! Invariant: a window that is not wholly understood is left out; a guess would stop a worker for nothing. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use bosun_engine::Timestamp;

use super::errors::span;
use crate::capability::http::{RETRY_AFTER_MAX, seconds};

/// What is left of one limit, and when there is more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) counts: Counted,
    pub(super) remaining: u64,
    pub(super) limit: Option<u64>,
    pub(super) reset: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Counted {
    Requests,
    Tokens,
}

/// The windows in the headers of an answer, whose names are in lower case.
pub(super) fn windows(headers: &BTreeMap<String, String>, now: Timestamp) -> Vec<Window> {
    let header = |name: String| headers.get(&name).map(|text| text.trim());
    let window = |counts: Counted, name: &dyn Fn(&str) -> String| {
        let number = |field: &str| header(name(field)).and_then(|text| text.parse::<u64>().ok());
        let reset = header(name("reset")).and_then(|text| reset(text, now))?;
        Some(Window {
            counts,
            remaining: number("remaining")?,
            limit: number("limit"),
            reset: reset.min(RETRY_AFTER_MAX),
        })
    };
    let mut windows = Vec::new();
    windows.extend(window(Counted::Requests, &|field| format!("x-ratelimit-{field}")));
    for (of, counts) in [
        ("requests", Counted::Requests),
        ("tokens", Counted::Tokens),
        ("input-tokens", Counted::Tokens),
        ("output-tokens", Counted::Tokens),
    ] {
        windows.extend(window(counts, &|field| format!("x-ratelimit-{field}-{of}")));
        windows.extend(window(counts, &|field| format!("anthropic-ratelimit-{of}-{field}")));
    }
    windows
}

/// `6m0s`, seconds, a time in seconds or milliseconds since 1970, or RFC 3339.
fn reset(text: &str, now: Timestamp) -> Option<Duration> {
    if let Ok(number) = text.parse::<f64>() {
        return match number {
            n if n >= 1e11 => Some(at(n * 1e3)?.since(now)),
            n if n >= 1e9 => Some(at(n * 1e6)?.since(now)),
            n => seconds(n),
        };
    }
    span(text).or_else(|| {
        let at: jiff::Timestamp = text.parse().ok()?;
        Some(Timestamp(at.as_microsecond()).since(now))
    })
}

fn at(micros: f64) -> Option<Timestamp> {
    (micros < 9e18).then_some(Timestamp(micros as i64))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-20T12:00:00Z
    const NOW: Timestamp = Timestamp(1_795_176_000_000_000);

    fn of(headers: &[(&str, &str)]) -> Vec<Window> {
        windows(&headers.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect(), NOW)
    }

    fn window(counts: Counted, remaining: u64, limit: Option<u64>, reset_ms: u64) -> Window {
        Window { counts, remaining, limit, reset: Duration::from_millis(reset_ms) }
    }

    #[test]
    fn the_headers_of_both_families_are_read() {
        assert_eq!(NOW.as_micros() / 1_000_000, "2026-11-20T12:00:00Z".parse::<jiff::Timestamp>().unwrap().as_second());
        let openai = [
            ("x-ratelimit-limit-requests", "60"),
            ("x-ratelimit-remaining-requests", "59"),
            ("x-ratelimit-reset-requests", "1s"),
            ("x-ratelimit-remaining-tokens", "149984"),
            ("x-ratelimit-reset-tokens", "6m0s"),
        ];
        let wanted = [window(Counted::Requests, 59, Some(60), 1_000), window(Counted::Tokens, 149_984, None, 360_000)];
        assert_eq!(of(&openai), wanted);
        let anthropic = [
            ("anthropic-ratelimit-requests-limit", "50"),
            ("anthropic-ratelimit-requests-remaining", "0"),
            ("anthropic-ratelimit-requests-reset", "2026-11-20T12:00:07Z"),
            ("anthropic-ratelimit-output-tokens-remaining", "10"),
            ("anthropic-ratelimit-output-tokens-reset", "2026-11-20T11:00:00Z"),
        ];
        let wanted = [window(Counted::Requests, 0, Some(50), 7_000), window(Counted::Tokens, 10, None, 0)];
        assert_eq!(of(&anthropic), wanted);
    }

    #[test]
    fn resets_have_many_forms() {
        for (text, wanted) in [
            ("20ms", Some(20)),
            ("1.5", Some(1_500)),
            ("1795176002", Some(2_000)),
            ("1795176002500", Some(2_500)),
            ("99999999999999999999", None),
            ("99999999999", Some(3_600_000)),
            ("-1", None),
            ("NaN", None),
            ("later", None),
        ] {
            let windows = of(&[("x-ratelimit-remaining", "1"), ("x-ratelimit-reset", text)]);
            let wanted: Vec<Window> = wanted.map(|ms| window(Counted::Requests, 1, None, ms)).into_iter().collect();
            assert_eq!(windows, wanted, "{text}");
        }
    }

    #[test]
    fn half_a_window_is_none() {
        assert_eq!(of(&[("x-ratelimit-remaining-requests", "0")]), []);
        assert_eq!(of(&[("x-ratelimit-reset-requests", "1s")]), []);
        assert_eq!(of(&[("x-ratelimit-remaining-requests", "-1"), ("x-ratelimit-reset-requests", "1s")]), []);
    }
}
