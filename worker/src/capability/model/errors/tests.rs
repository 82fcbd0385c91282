//! The table of the requirements of operating §3.2, row by row.

use serde_json::json;

use super::*;

/// Sun, 06 Nov 1994 08:49:37 GMT
const NOW: Timestamp = Timestamp(784_111_777_000_000);

fn of(status: u16, headers: &[(&str, &str)], body: &str) -> ModelError {
    let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    classify(ErrorResponse { status, headers: &headers, body }, NOW)
}

fn retry(after: Option<f64>) -> ErrorClass {
    ErrorClass::Retry { after: after.map(Duration::from_secs_f64) }
}

#[test]
fn statuses_fall_into_their_classes() {
    for status in [408, 409, 425, 429, 500, 501, 502, 503, 504, 520, 529, 599] {
        assert_eq!(of(status, &[], "").class, retry(None), "{status}");
    }
    for status in [400, 404, 405, 410, 413, 415, 422, 301, 302, 418] {
        assert_eq!(of(status, &[], "").class, ErrorClass::Fatal, "{status}");
    }
    for status in [401, 402, 403] {
        assert_eq!(of(status, &[], "").class, ErrorClass::NeedsHuman, "{status}");
    }
}

/// One rule for both: whoever adds a status there has added it here.
#[test]
fn what_the_http_capability_retries_is_retried_here() {
    for status in (300..600).filter(|status| !(401..=403).contains(status)) {
        assert_eq!(of(status, &[], "").class == retry(None), may_pass(status), "{status}");
        let in_stream = in_band(&json!({"error": {"code": status, "message": "m"}})).class;
        assert!(status < 400 || (in_stream == retry(None)) == may_pass(status), "{status}");
    }
}

#[test]
fn money_is_for_somebody_to_see_and_never_retried() {
    let bodies = [
        (429, json!({"error": {"message": "m", "type": "insufficient_quota", "code": "insufficient_quota"}})),
        (429, json!({"error": {"type": "insufficient_quota", "code": null}})),
        (429, json!({"error": {"code": "credit_balance_exhausted"}})),
        (429, json!({"type": "error", "error": {"type": "enforced_spend_limit_reached"}})),
        (402, json!({"error": "pay"})),
        (
            400,
            json!({"type": "error", "error": {"type": "invalid_request_error",
            "message": "Your credit balance is too low to access the API."}}),
        ),
    ];
    for (status, body) in bodies {
        let error = of(status, &[("retry-after", "1"), ("x-should-retry", "true")], &body.to_string());
        assert_eq!(error.class, ErrorClass::NeedsHuman, "{body}");
    }
    let ordinary = json!({"error": {"type": "requests", "code": "rate_limit_exceeded"}});
    assert_eq!(of(429, &[], &ordinary.to_string()).class, retry(None));
}

#[test]
fn the_provider_may_overrule_the_status() {
    assert_eq!(of(500, &[("x-should-retry", "false")], "").class, ErrorClass::Fatal);
    assert_eq!(of(400, &[("x-should-retry", "true")], "").class, retry(None));
    assert_eq!(of(401, &[("x-should-retry", "true")], "").class, ErrorClass::NeedsHuman);
    assert_eq!(of(503, &[("x-should-retry", "perhaps")], "").class, retry(None));
}

#[test]
fn delays_are_read_in_every_form_and_the_longest_counts() {
    let cases: &[(&[(&str, &str)], &str, Option<f64>)] = &[
        (&[("retry-after", "17")], "", Some(17.0)),
        (&[("retry-after", " 1.5 ")], "", Some(1.5)),
        (&[("retry-after", "Sun, 06 Nov 1994 08:50:37 GMT")], "", Some(60.0)),
        (&[("retry-after", "Sun, 06 Nov 1994 08:00:00 GMT")], "", Some(0.0)),
        (&[("retry-after-ms", "250")], "", Some(0.25)),
        (&[("retry-after-ms", "250"), ("retry-after", "2")], "", Some(2.0)),
        (&[("retry-after", "2")], r#"{"retry_after": 5}"#, Some(5.0)),
        (&[], r#"{"error": {"retry_after": 0.5}}"#, Some(0.5)),
        (&[], r#"{"error": {"message": "Please try again in 1m2.5s. Visit"}}"#, Some(62.5)),
        (&[], r#"{"error": {"message": "Please try again in 20ms."}}"#, Some(0.02)),
        (&[("retry-after", "86400")], "", Some(3_600.0)),
        (&[("retry-after", "1e300")], "", None),
        (&[("retry-after", "-5")], "", None),
        (&[("retry-after", "NaN")], "", None),
        (&[("retry-after", "soon")], "", None),
        (&[], r#"{"error": {"message": "try again in a while"}}"#, None),
    ];
    for (headers, body, wanted) in cases {
        assert_eq!(of(429, headers, body).class, retry(*wanted), "{headers:?} {body}");
    }
}

#[test]
fn spans_have_units() {
    let cases = [
        ("6m0s", Some(360.0)),
        ("1h", Some(3_600.0)),
        ("1", None),
        ("", None),
        ("1x", None),
        ("s", None),
        ("1..2s", None),
    ];
    for (text, wanted) in cases {
        assert_eq!(span(text), wanted.map(Duration::from_secs_f64), "{text}");
    }
}

#[test]
fn the_message_holds_what_was_said_in_one_short_line() {
    let error = of(404, &[], &json!({"error": {"message": "no\n such  model", "code": "model_not_found"}}).to_string());
    assert_eq!(error.message, "the provider answered 404: no such model");
    assert_eq!((error.status, error.code.as_deref()), (Some(404), Some("model_not_found")));
    assert_eq!(
        of(404, &[], r#"{"error": "model 'x' not found"}"#).message,
        "the provider answered 404: model 'x' not found"
    );
    assert_eq!(of(502, &[], "<html> <b>Bad").message, "the provider answered 502: <html> <b>Bad");
    assert_eq!(of(500, &[], "").message, "the provider answered 500");
    assert!(of(500, &[], &"ä ".repeat(100_000)).message.chars().count() < 500);
    assert!(of(500, &[], &"ä".repeat(100_000)).message.chars().count() < 500);
}

#[test]
fn errors_inside_an_answer_have_the_class_of_their_word() {
    let of = |code: &str| in_band(&json!({"type": "error", "error": {"type": code, "message": "m"}})).class;
    assert_eq!(of("overloaded_error"), retry(None));
    assert_eq!(of("rate_limit_error"), retry(None));
    assert_eq!(of("invalid_request_error"), ErrorClass::Fatal);
    assert_eq!(of("authentication_error"), ErrorClass::NeedsHuman);
    assert_eq!(of("insufficient_quota"), ErrorClass::NeedsHuman);
    assert_eq!(of("something_new"), retry(None));
    assert_eq!(in_band(&json!({"error": {"code": 402, "message": "m"}})).class, ErrorClass::NeedsHuman);
    assert_eq!(in_band(&json!({"error": {"code": 502, "message": "m"}})).status, Some(502));
    assert_eq!(in_band(&json!({"error": "boom"})).message, "the provider gave up: boom");
}

/// Every provider has words of its own for a conversation that is too long; they mean one thing.
#[test]
fn a_conversation_that_is_too_long_is_called_so() {
    for (status, body) in [
        (400, json!({"error": {"message": "m", "type": "invalid_request_error", "code": "context_length_exceeded"}})),
        (
            400,
            json!({"type": "error", "error": {"type": "invalid_request_error",
            "message": "prompt is too long: 213462 tokens > 200000 maximum"}}),
        ),
        (
            400,
            json!({"type": "error", "error": {"type": "invalid_request_error",
            "message": "input length and `max_tokens` exceed context limit: 1 + 2 > 2"}}),
        ),
        (413, json!({"type": "error", "error": {"type": "request_too_large", "message": "m"}})),
        (400, json!({"error": {"code": 400, "type": "exceed_context_size_error", "message": "m"}})),
        (400, json!({"object": "error", "message": "This model's maximum context length is 4096 tokens."})),
    ] {
        let error = of(status, &[], &body.to_string());
        assert_eq!((error.class, error.code.as_deref()), (ErrorClass::Fatal, Some(code::CONTEXT_LENGTH)), "{body}");
    }
    let in_stream = in_band(&json!({"error": {"code": "context_length_exceeded", "message": "m"}}));
    assert_eq!(in_stream.code.as_deref(), Some(code::CONTEXT_LENGTH));
    let other = of(400, &[], &json!({"error": {"message": "max_tokens is too large", "code": "invalid"}}).to_string());
    assert_eq!(other.code.as_deref(), Some("invalid"));
}
