//! Our data in the spelling of Temporal's protocol buffers as JSON.
//!
//! Invariant: field names are lowerCamelCase, 64-bit numbers are text, bytes are base64, durations end in `s`, enum values
//! carry their prefix, and fields with default values are left out, as ProtoJSON prints them. Nothing is decided here.

use std::time::Duration;

use bosun_engine::*;
use serde_json::{Map, Value, json};

/// The fields of a message. What is empty or zero is not written.
#[derive(Debug, Default)]
pub(super) struct ProtoMessage(Map<String, Value>);

impl ProtoMessage {
    pub(super) fn new() -> Self {
        Self::default()
    }
    pub(super) fn set(mut self, field: &str, value: impl Into<Value>) -> Self {
        let value = value.into();
        let default = match &value {
            Value::Null | Value::Bool(false) => true,
            Value::Bool(true) => false,
            Value::Number(number) => number.as_i64() == Some(0),
            Value::String(text) => text.is_empty() || text == "0",
            Value::Array(_) | Value::Object(_) => false,
        };
        if !default {
            self.0.insert(field.to_owned(), value);
        }
        self
    }
    /// Text that may be `"0"`: ids of users.
    pub(super) fn text(mut self, field: &str, value: impl ToString) -> Self {
        self.0.insert(field.to_owned(), Value::String(value.to_string()));
        self
    }
    pub(super) fn maybe<T>(self, field: &str, value: Option<T>, write: impl FnOnce(T) -> Value) -> Self {
        match value {
            Some(value) => self.set(field, write(value)),
            None => self,
        }
    }
    pub(super) fn done(self) -> Value {
        Value::Object(self.0)
    }
}

pub(super) fn duration(duration: Duration) -> Value {
    let (seconds, nanos) = (duration.as_secs(), duration.subsec_nanos());
    let text = match nanos {
        0 => format!("{seconds}s"),
        n if n % 1_000_000 == 0 => format!("{seconds}.{:03}s", n / 1_000_000),
        n if n % 1_000 == 0 => format!("{seconds}.{:06}s", n / 1_000),
        n => format!("{seconds}.{n:09}s"),
    };
    Value::String(text)
}

pub(super) fn named(name: impl ToString) -> Value {
    json!({ "name": name.to_string() })
}

pub(super) fn task_queue(queue: &TaskQueue) -> Value {
    json!({ "name": queue, "kind": "TASK_QUEUE_KIND_NORMAL" })
}

pub(super) fn execution(workflow_id: &WorkflowId, run_id: Option<RunId>) -> Value {
    ProtoMessage::new().text("workflowId", workflow_id).maybe("runId", run_id, |run| json!(run)).done()
}

pub(super) fn payloads(payload: &Payload) -> Value {
    json!({ "payloads": [self::payload(payload)] })
}

/// `json/plain` and `binary/plain` are the encodings all SDKs read; `binary/null` is their null.
pub(super) fn payload(payload: &Payload) -> Value {
    typed_payload(payload, None)
}

fn typed_payload(payload: &Payload, value_type: Option<&str>) -> Value {
    if *payload == Payload::null() {
        return json!({ "metadata": { "encoding": base64(b"binary/null") } });
    }
    let encoding = match payload.encoding.as_ref() {
        ENCODING_JSON => "json/plain".to_owned(),
        ENCODING_BYTES => "binary/plain".to_owned(),
        other => format!("binary/{other}"),
    };
    let mut metadata = json!({ "encoding": base64(encoding.as_bytes()) });
    if let Some(value_type) = value_type {
        metadata["type"] = json!(base64(value_type.as_bytes()));
    }
    json!({ "metadata": metadata, "data": base64(&payload.data) })
}

pub(super) fn memo(memo: &Memo) -> Value {
    let fields: Map<String, Value> = memo.iter().map(|(name, value)| (name.to_string(), payload(value))).collect();
    json!({ "fields": fields })
}

pub(super) fn search_attributes(attributes: &SearchAttributes) -> Value {
    let value = |value: &SearchValue| match value {
        SearchValue::Bool(value) => (json!(value), "Bool"),
        SearchValue::Int(value) => (json!(value), "Int"),
        SearchValue::Float(value) => (json!(value), "Double"),
        SearchValue::Keyword(value) => (json!(value), "Keyword"),
        SearchValue::KeywordList(values) => (json!(values), "KeywordList"),
        SearchValue::Text(value) => (json!(value), "Text"),
        SearchValue::Datetime(at) => (json!(at.to_string()), "Datetime"),
        SearchValue::Unset => (Value::Null, "Keyword"),
    };
    let fields = attributes.iter().map(|(name, attribute)| {
        let (json, value_type) = value(attribute);
        (name.to_string(), typed_payload(&Payload::raw_json(json.to_string()), Some(value_type)))
    });
    json!({ "indexedFields": fields.collect::<Map<String, Value>>() })
}

pub(super) fn retry_policy(policy: &RetryPolicy) -> Value {
    ProtoMessage::new()
        .set("initialInterval", duration(policy.initial_interval))
        .set("backoffCoefficient", f64::from(policy.backoff_coefficient_permille) / 1_000.0)
        .maybe("maximumInterval", policy.maximum_interval, duration)
        .set("maximumAttempts", policy.maximum_attempts)
        .maybe("nonRetryableErrorTypes", none_if_empty(&policy.non_retryable_error_types), |types| json!(types))
        .done()
}

fn none_if_empty<T>(items: &[T]) -> Option<&[T]> {
    (!items.is_empty()).then_some(items)
}

pub(super) fn retry_state(state: RetryState) -> Value {
    json!(match state {
        RetryState::NonRetryableFailure => "RETRY_STATE_NON_RETRYABLE_FAILURE",
        RetryState::MaximumAttemptsReached => "RETRY_STATE_MAXIMUM_ATTEMPTS_REACHED",
        RetryState::Timeout => "RETRY_STATE_TIMEOUT",
        RetryState::RetryPolicyNotSet => "RETRY_STATE_RETRY_POLICY_NOT_SET",
        RetryState::CancelRequested => "RETRY_STATE_CANCEL_REQUESTED",
    })
}

fn timeout_type(timeout: TimeoutType) -> &'static str {
    match timeout {
        TimeoutType::ScheduleToClose => "TIMEOUT_TYPE_SCHEDULE_TO_CLOSE",
        TimeoutType::ScheduleToStart => "TIMEOUT_TYPE_SCHEDULE_TO_START",
        TimeoutType::StartToClose => "TIMEOUT_TYPE_START_TO_CLOSE",
        TimeoutType::Heartbeat => "TIMEOUT_TYPE_HEARTBEAT",
    }
}

/// A failure with its causes. The chain is at most `HistoryLimits::CAUSES_MAX` long in a checked history.
pub(super) fn failure(failure: &Failure) -> Value {
    let message = ProtoMessage::new().set("message", failure.message.as_str()).set("source", "Bosun").maybe(
        "cause",
        failure.cause.as_deref(),
        self::failure,
    );
    let (info, attributes) = match &failure.kind {
        FailureKind::Application { failure_type, non_retryable, details, next_retry_delay } => (
            "applicationFailureInfo",
            ProtoMessage::new()
                .set("type", failure_type.as_str())
                .set("nonRetryable", *non_retryable)
                .maybe("details", details.as_ref(), payloads)
                .maybe("nextRetryDelay", *next_retry_delay, duration),
        ),
        FailureKind::Timeout { timeout, last_heartbeat } => (
            "timeoutFailureInfo",
            ProtoMessage::new().set("timeoutType", timeout_type(*timeout)).maybe(
                "lastHeartbeatDetails",
                last_heartbeat.as_ref(),
                payloads,
            ),
        ),
        FailureKind::Canceled { details } => {
            ("canceledFailureInfo", ProtoMessage::new().maybe("details", details.as_ref(), payloads))
        }
        FailureKind::Terminated => ("terminatedFailureInfo", ProtoMessage::new()),
        FailureKind::Activity { activity_type, activity_id, retry_state } => (
            "activityFailureInfo",
            ProtoMessage::new()
                .set("activityType", named(activity_type))
                .text("activityId", activity_id)
                .set("retryState", self::retry_state(*retry_state)),
        ),
        FailureKind::ChildWorkflow { workflow_type, workflow_id, run_id, retry_state } => (
            "childWorkflowExecutionFailureInfo",
            ProtoMessage::new()
                .set("workflowExecution", execution(workflow_id, *run_id))
                .set("workflowType", named(workflow_type))
                .maybe("retryState", *retry_state, self::retry_state),
        ),
        // Temporal knows a lost worker only as a timeout; the type says what it was here.
        FailureKind::WorkerLost => ("applicationFailureInfo", ProtoMessage::new().set("type", "WorkerLost")),
    };
    message.set(info, attributes.done()).done()
}

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

pub(super) fn base64(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let group = chunk.iter().fold(0u32, |group, byte| group << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for place in 0..4 {
            if place <= chunk.len() {
                text.push(char::from(ALPHABET[(group >> (18 - 6 * place)) as usize & 63]));
            } else {
                text.push('=');
            }
        }
    }
    text
}

/// The bytes of base64 in either alphabet, padded or not, as ProtoJSON readers accept it.
pub(super) fn unbase64(text: &str) -> Option<Vec<u8>> {
    let digits = text.trim_end_matches('=');
    if text.len() - digits.len() > 2 || digits.len() % 4 == 1 {
        return None;
    }
    let mut bytes = Vec::with_capacity(digits.len() * 3 / 4);
    let (mut group, mut bits) = (0u32, 0);
    for digit in digits.bytes() {
        let digit = match digit {
            b'-' => 62,
            b'_' => 63,
            other => ALPHABET.iter().position(|known| *known == other)?,
        };
        group = group << 6 | u32::try_from(digit).ok()?;
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push((group >> bits) as u8);
            group &= (1 << bits) - 1;
        }
    }
    Some(bytes)
}
