//! What an answer that is no success means: to be asked again, to be seen by somebody, or never to succeed.
//!
//! Invariant: the table of the requirements of operating §3.2 (G41). A delay is what the provider asked for, the longest if it said several,
//! and never more than [`RETRY_AFTER_MAX`]. Pure: the time is given. Secrets are cut out by whoever sent them.

use std::collections::BTreeMap;
use std::time::Duration;

use bosun_engine::Timestamp;
use serde_json::Value;

use super::call::code;
use super::{ErrorClass, ModelError};
use crate::capability::http::{self, RETRY_AFTER_MAX, may_pass, retry_after, seconds};

/// The most of a provider's explanation that goes into a message.
const MESSAGE_CHARS: usize = 400;

/// An answer that is no success. Names of headers are in lower case.
#[derive(Debug, Clone, Copy)]
pub(super) struct ErrorResponse<'a> {
    pub(super) status: u16,
    pub(super) headers: &'a BTreeMap<String, String>,
    pub(super) body: &'a str,
}

/// The error of an answer that is no success.
pub(super) fn classify(refusal: ErrorResponse<'_>, now: Timestamp) -> ModelError {
    let ErrorResponse { status, headers, body } = refusal;
    let parsed: Option<Value> = serde_json::from_str(body).ok();
    let said = parsed.as_ref().map(ErrorBody::of).unwrap_or_default();
    let should_retry = headers.get("x-should-retry").map(|text| text.trim());
    let class = if needs_human(status, &said) {
        ErrorClass::NeedsHuman
    } else if should_retry != Some("false") && (should_retry == Some("true") || may_pass(status)) {
        ErrorClass::Retry { after: delay(headers, parsed.as_ref(), now) }
    } else {
        ErrorClass::Fatal
    };
    let code = if class == ErrorClass::Fatal && is_too_long(status, &said) { Some(too_long()) } else { said.code };
    let explanation = said.message.unwrap_or_else(|| excerpt(body));
    let colon = if explanation.is_empty() { "" } else { ": " };
    let message = format!("the provider answered {status}{colon}{}", excerpt(&explanation));
    ModelError { class, status: Some(status), code, message }
}

/// An error that comes inside an answer with status 200, or as an event of a stream.
pub(super) fn in_band(body: &Value) -> ModelError {
    let said = ErrorBody::of(body);
    let status = said.status.or_else(|| said.code.as_deref().and_then(status_of));
    let class = match status {
        Some(status) if needs_human(status, &said) => ErrorClass::NeedsHuman,
        None if needs_human(0, &said) => ErrorClass::NeedsHuman,
        Some(status) if !may_pass(status) => ErrorClass::Fatal,
        // A provider that begins to answer and then gives up without a known reason may succeed next time.
        _ => ErrorClass::Retry { after: body_delay(body).map(|delay| delay.min(RETRY_AFTER_MAX)) },
    };
    let is_too_long = class == ErrorClass::Fatal && is_too_long(status.unwrap_or(400), &said);
    let code = if is_too_long { Some(too_long()) } else { said.code };
    let message = said.message.unwrap_or_else(|| excerpt(&body.to_string()));
    ModelError { class, status, code, message: format!("the provider gave up: {}", excerpt(&message)) }
}

/// Codes for "the conversation is longer than the model's context": OpenAI's and most gateways', Anthropic's, llama.cpp's.
const TOO_LONG: [&str; 3] = [code::CONTEXT_LENGTH, "request_too_large", "exceed_context_size_error"];
/// The same in words, of those that have no code for it.
const TOO_LONG_WORDS: [&str; 5] = [
    "prompt is too long",
    "maximum context length",
    "exceed context limit",
    "exceeds the available context size",
    "exceeds the context window",
];

fn is_too_long(status: u16, said: &ErrorBody) -> bool {
    let is_word = |word: &String| TOO_LONG.contains(&word.as_str());
    let says = |text: &String| TOO_LONG_WORDS.iter().any(|words| text.contains(words));
    matches!(status, 400 | 413 | 422)
        && (said.code.as_ref().is_some_and(is_word)
            || said.kind.as_ref().is_some_and(is_word)
            || said.message.as_ref().is_some_and(says))
}

/// One code for all of them.
fn too_long() -> String {
    code::CONTEXT_LENGTH.to_owned()
}

/// Words for "there is no money", which come with 429 or 402 and sometimes with 400 or 403.
const MONEY: [&str; 8] = [
    "insufficient_quota",
    "credit_balance_exhausted",
    "enforced_spend_limit_reached",
    "billing_hard_limit_reached",
    "billing_not_active",
    "billing_error",
    "insufficient_credits",
    "insufficient_balance",
];

fn needs_human(status: u16, said: &ErrorBody) -> bool {
    let is_money = |word: &String| MONEY.contains(&word.as_str());
    // Anthropic says this one with 400 and no code of its own.
    let no_credit = said.message.as_deref().is_some_and(|text| text.contains("credit balance is too low"));
    matches!(status, 401..=403)
        || said.code.as_ref().is_some_and(is_money)
        || said.kind.as_ref().is_some_and(is_money)
        || no_credit
}

/// What the body of an error says, in the forms that are about.
#[derive(Debug, Default)]
struct ErrorBody {
    /// The most telling word.
    code: Option<String>,
    kind: Option<String>,
    status: Option<u16>,
    message: Option<String>,
}

impl ErrorBody {
    fn of(body: &Value) -> ErrorBody {
        // Some gateways wrap the error in a list, Ollama gives a text.
        let body = body.get(0).unwrap_or(body);
        let error = body.get("error").unwrap_or(body);
        let text = |name: &str| error.get(name).and_then(Value::as_str).map(excerpt).filter(|text| !text.is_empty());
        let kind = text("type");
        let number = |name: &str| error.get(name).and_then(Value::as_u64).and_then(|n| u16::try_from(n).ok());
        ErrorBody {
            code: text("code").or_else(|| kind.clone()).or_else(|| text("status")),
            kind,
            status: number("code").or_else(|| number("status")).filter(|n| (400..600).contains(n)),
            message: error.as_str().map(excerpt).or_else(|| text("message")).or_else(|| text("detail")),
        }
    }
}

/// The status that an error inside a stream would have had.
fn status_of(code: &str) -> Option<u16> {
    Some(match code {
        "invalid_request_error" | "exceed_context_size_error" | code::CONTEXT_LENGTH => 400,
        "authentication_error" | "invalid_api_key" => 401,
        "billing_error" => 402,
        "permission_error" => 403,
        "not_found_error" | "model_not_found" => 404,
        "request_too_large" => 413,
        "rate_limit_error" | "rate_limit_exceeded" => 429,
        "api_error" | "server_error" | "internal_error" => 500,
        "timeout_error" => 504,
        "overloaded_error" => 529,
        _ => return None,
    })
}

/// How long the provider wants to be left alone.
fn delay(headers: &BTreeMap<String, String>, body: Option<&Value>, now: Timestamp) -> Option<Duration> {
    let header = |name: &str| headers.get(name).map(|text| text.trim());
    let millis = header("retry-after-ms").and_then(|text| text.parse().ok()).and_then(|ms: f64| seconds(ms / 1_000.0));
    let after = header("retry-after").and_then(|text| retry_after(text, now));
    let longest = [millis, after, body.and_then(body_delay)].into_iter().flatten().max()?;
    Some(longest.min(RETRY_AFTER_MAX))
}

/// `retry_after` in seconds, beside or inside the error; or "try again in 1m2.5s" in its words.
fn body_delay(body: &Value) -> Option<Duration> {
    let number = |value: &Value| value.get("retry_after").and_then(Value::as_f64).and_then(seconds);
    let error = body.get("error");
    let said = || {
        let message = error?.get("message")?.as_str()?;
        let (_, rest) = message.split_once("try again in ").or_else(|| message.split_once("retry after "))?;
        span(rest.split_whitespace().next()?.trim_end_matches(['.', ',']))
    };
    number(body).or_else(|| error.and_then(number)).or_else(said)
}

/// `1m2.5s`, `20ms`, `6m0s`, `1h`.
pub(super) fn span(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut sum = Duration::ZERO;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..digits].parse().ok()?;
        let unit = &rest[digits..];
        let end = unit.find(|c: char| c.is_ascii_digit()).unwrap_or(unit.len());
        let scale = match &unit[..end] {
            "ms" => 0.001,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3_600.0,
            "d" => 86_400.0,
            _ => return None,
        };
        sum = sum.checked_add(seconds(number * scale)?)?;
        rest = &unit[end..];
    }
    (!text.is_empty()).then_some(sum)
}

/// One line, not too long.
pub(super) fn excerpt(text: &str) -> String {
    http::excerpt(text, MESSAGE_CHARS)
}

#[cfg(test)]
mod tests;
