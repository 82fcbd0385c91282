//! Failures, outcomes and attributes of runs as JSON, for the command line, the API and the pages alike.
//!
//! Invariant: every member stands in its object, null where there is nothing; payloads stand as they were given. How a
//! moment is written, and whether a null is shown, is the business of whoever shows it.

use std::time::Duration;

use bosun_engine::*;
use serde_json::{Map, Value, json};

use crate::supervisor::spec::Span;

/// A failure with its chain of causes.
pub(crate) fn failure(failure: &Failure) -> Value {
    json!({
        "type": failure.type_name(),
        "message": failure.message,
        "details": failure.details().map(Payload::to_json),
        "cause": failure.cause.as_deref().map(self::failure),
    })
}

/// An outcome: `status`, and `result`, `failure`, `timeout`, `details`, `reason` or `next_run_id`, as it ended.
pub(crate) fn outcome(outcome: &CloseOutcome) -> Value {
    let status = outcome.status();
    match outcome {
        CloseOutcome::Completed(result) => json!({ "status": status, "result": result.to_json() }),
        CloseOutcome::Failed(why) => json!({ "status": status, "failure": failure(why) }),
        CloseOutcome::TimedOut(timeout) => json!({ "status": status, "timeout": timeout }),
        CloseOutcome::Canceled(details) => {
            json!({ "status": status, "details": details.as_ref().map(Payload::to_json) })
        }
        CloseOutcome::Terminated { reason } => json!({ "status": status, "reason": reason }),
        CloseOutcome::ContinuedAsNew { new_run } => json!({ "status": status, "next_run_id": new_run }),
    }
}

/// A length of time as it is asked for (`30s`).
pub(crate) fn span(length: Duration) -> Span {
    Span::from_ms(u64::try_from(length.as_millis()).unwrap_or(u64::MAX))
}

/// The limits of an activity and its retry policy; each length of time as it is asked for (`30s`).
pub(crate) fn activity_options(options: &ActivityOptions) -> Value {
    let policy = options.retry_policy.clone().unwrap_or_default();
    json!({
        "schedule_to_close": options.schedule_to_close.map(span),
        "schedule_to_start": options.schedule_to_start.map(span),
        "start_to_close": options.start_to_close.map(span),
        "heartbeat": options.heartbeat.map(span),
        "initial_interval": span(policy.initial_interval),
        "backoff_coefficient": f64::from(policy.backoff_coefficient_permille) / 1_000.0,
        "maximum_interval": policy.maximum_interval.map(span),
        "maximum_attempts": policy.maximum_attempts,
        "non_retryable_error_types": policy.non_retryable_error_types,
    })
}

pub(crate) fn memo(run: &RunInfo) -> Map<String, Value> {
    run.memo.iter().map(|(name, payload)| (name.to_string(), payload.to_json())).collect()
}

/// The search attributes of a run, moments as `moment` writes them.
pub(crate) fn attributes(run: &RunInfo, moment: impl Fn(Timestamp) -> Value) -> Map<String, Value> {
    let attribute = |value: &SearchValue| match value {
        SearchValue::Bool(truth) => json!(truth),
        SearchValue::Int(number) => json!(number),
        SearchValue::Float(number) => json!(number),
        SearchValue::Keyword(text) | SearchValue::Text(text) => json!(text),
        SearchValue::KeywordList(texts) => json!(texts),
        SearchValue::Datetime(at) => moment(*at),
        SearchValue::Unset => Value::Null,
    };
    run.search_attributes.iter().map(|(name, value)| (name.to_string(), attribute(value))).collect()
}
