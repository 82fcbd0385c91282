//! Temporal's attributes as our data: the other direction of `protojson`, from its tools and from its servers.
//!
//! Invariant: hostile input. What is absent, empty or of another form is absent here; nothing panics. Enum values are read as
//! names and as numbers, because both are written.

use std::time::Duration;

use bosun_engine::*;
use serde_json::{Map, Value};

use crate::rfc3339;
use crate::temporal::protojson::unbase64;

pub(super) type Fields = Map<String, Value>;

pub(super) fn text<'a>(fields: &'a Fields, field: &str) -> &'a str {
    fields.get(field).and_then(Value::as_str).unwrap_or_default()
}

pub(super) fn object<'a>(fields: &'a Fields, field: &str) -> Option<&'a Fields> {
    fields.get(field)?.as_object()
}

pub(super) fn number(fields: &Fields, field: &str) -> u64 {
    match fields.get(field) {
        Some(Value::Number(number)) => number.as_u64().unwrap_or(0),
        Some(Value::String(text)) => text.parse().unwrap_or(0),
        _ => 0,
    }
}

pub(super) fn named<'a>(fields: &'a Fields, field: &str) -> &'a str {
    object(fields, field).map_or("", |named| text(named, "name"))
}

pub(super) fn run_id(text: &str) -> Option<RunId> {
    text.parse().ok()
}

pub(super) fn period(fields: &Fields, field: &str) -> Option<Duration> {
    let nanos = |text: &str| {
        let (whole, part) = text.split_once('.').unwrap_or((text, ""));
        let part = format!("{part:0<9}");
        Some(Duration::new(whole.parse().ok()?, part.get(..9)?.parse().ok()?))
    };
    let period = match fields.get(field)? {
        Value::String(text) => nanos(text.strip_suffix('s')?)?,
        Value::Object(parts) => Duration::new(number(parts, "seconds"), u32::try_from(number(parts, "nanos")).ok()?),
        Value::Number(nanos) => Duration::from_nanos(nanos.as_u64()?),
        _ => return None,
    };
    // Servers keep nanoseconds, we keep microseconds.
    let micros = u64::try_from(period.as_nanos().saturating_add(499) / 1_000).ok()?;
    Some(Duration::from_micros(micros)).filter(|period| !period.is_zero())
}

pub(super) fn instant(fields: &Fields, field: &str) -> Option<Timestamp> {
    rfc3339::parse(fields.get(field)?.as_str()?)
}

/// The value of an enum without its prefix.
pub(super) fn choice<'a>(fields: &'a Fields, field: &str, prefix: &str, values: &[&'a str]) -> &'a str {
    match fields.get(field) {
        Some(Value::String(name)) => name.strip_prefix(prefix).unwrap_or(name),
        Some(Value::Number(number)) => {
            let at = number.as_u64().and_then(|number| usize::try_from(number).ok());
            at.and_then(|at| values.get(at)).copied().unwrap_or_default()
        }
        _ => "",
    }
}

pub(super) fn payload(value: &Value) -> Payload {
    let encoding = value.get("metadata").and_then(|metadata| metadata.get("encoding")).and_then(Value::as_str);
    let encoding = encoding.and_then(unbase64).and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default();
    let data = value.get("data").and_then(Value::as_str).and_then(unbase64).unwrap_or_default();
    match encoding.as_str() {
        "json/plain" | "json/protobuf" => Payload::raw_json(data),
        "binary/null" => Payload::null(),
        "" | "binary/plain" => Payload::bytes(data),
        other => Payload { encoding: other.to_owned().into(), data: data.into() },
    }
}

/// Whether a payload here, or further in, is kept elsewhere: what stands for it has the form that the official SDKs have for it.
pub(super) fn is_reference(value: &Value) -> bool {
    const MESSAGE: &str = "temporal.api.sdk.v1.ExternalStorageReference";
    const EARLIER: &str = "json/external-storage-reference";
    let Value::Object(fields) = value else {
        return value.as_array().is_some_and(|listed| listed.iter().any(is_reference));
    };
    let says = |name: &str, what: &str| {
        let said = fields.get("metadata").and_then(|metadata| metadata.get(name)).and_then(Value::as_str);
        said.and_then(unbase64).is_some_and(|said| said == what.as_bytes())
    };
    says("messageType", MESSAGE) || says("encoding", EARLIER) || fields.values().any(is_reference)
}

/// Several are one array, as the worker gives them to the code.
pub(super) fn payloads_in(value: Option<&Value>) -> Option<Payload> {
    let listed = value?.get("payloads")?.as_array()?;
    match listed.as_slice() {
        [] => None,
        [one] => Some(payload(one)),
        many => Payload::encode(&many.iter().map(|one| payload(one).to_json()).collect::<Vec<_>>()).ok(),
    }
}

pub(super) fn payloads(fields: &Fields, field: &str) -> Option<Payload> {
    payloads_in(fields.get(field))
}

/// What it is for, in a few words.
pub(super) fn summary(fields: &Fields) -> Option<String> {
    payload(object(fields, "userMetadata")?.get("summary")?).decode().ok()
}

pub(super) fn memo(fields: &Fields, field: &str) -> Memo {
    let fields = object(fields, field).and_then(|memo| object(memo, "fields"));
    fields
        .into_iter()
        .flatten()
        .filter_map(|(name, value)| Some((FieldName::new(name).ok()?, payload(value))))
        .collect()
}

pub(super) fn attributes(fields: &Fields, field: &str) -> SearchAttributes {
    let fields = object(fields, field).and_then(|attributes| object(attributes, "indexedFields"));
    let own = |name: &str| !name.starts_with("Temporal") && !matches!(name, "BuildIds" | "BinaryChecksums");
    let fields = fields.into_iter().flatten().filter(|(name, _)| own(name));
    fields.filter_map(|(name, value)| Some((FieldName::new(name).ok()?, attribute(value)?))).collect()
}

fn attribute(value: &Value) -> Option<SearchValue> {
    let kind = value.get("metadata").and_then(|metadata| metadata.get("type")).and_then(Value::as_str);
    let kind = kind.and_then(unbase64).and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default();
    let json = payload(value).to_json();
    let keyword = || json.as_str().map_or_else(|| json.to_string(), str::to_owned);
    Some(match kind.as_str() {
        _ if json.is_null() => SearchValue::Unset,
        "Bool" => SearchValue::Bool(json.as_bool()?),
        "Int" => SearchValue::Int(json.as_i64()?),
        "Double" => SearchValue::Float(json.as_f64()?),
        "Text" => SearchValue::Text(keyword()),
        "Datetime" => SearchValue::Datetime(rfc3339::parse(json.as_str()?)?),
        "KeywordList" => {
            let items = json.as_array()?.iter();
            SearchValue::KeywordList(items.filter_map(|item| Some(item.as_str()?.to_owned())).collect())
        }
        _ => SearchValue::Keyword(keyword()),
    })
}

pub(super) fn retry_policy(fields: &Fields, field: &str) -> Option<RetryPolicy> {
    let policy = object(fields, field)?;
    let first = RetryPolicy::default();
    let coefficient = policy.get("backoffCoefficient").and_then(Value::as_f64).unwrap_or(2.0);
    let types = policy.get("nonRetryableErrorTypes").and_then(Value::as_array);
    Some(RetryPolicy {
        initial_interval: period(policy, "initialInterval").unwrap_or(first.initial_interval),
        backoff_coefficient_permille: ((coefficient * 1_000.0).round() as u32).max(1_000),
        maximum_interval: period(policy, "maximumInterval"),
        maximum_attempts: u32::try_from(number(policy, "maximumAttempts")).unwrap_or(0),
        non_retryable_error_types: types
            .into_iter()
            .flatten()
            .filter_map(|name| Some(name.as_str()?.to_owned()))
            .collect(),
    })
}

const RETRY_STATES: [&str; 8] = [
    "UNSPECIFIED",
    "IN_PROGRESS",
    "NON_RETRYABLE_FAILURE",
    "TIMEOUT",
    "MAXIMUM_ATTEMPTS_REACHED",
    "RETRY_POLICY_NOT_SET",
    "INTERNAL_SERVER_ERROR",
    "CANCEL_REQUESTED",
];

pub(super) fn retry_state(fields: &Fields, field: &str) -> Option<RetryState> {
    Some(match choice(fields, field, "RETRY_STATE_", &RETRY_STATES) {
        "NON_RETRYABLE_FAILURE" => RetryState::NonRetryableFailure,
        "TIMEOUT" => RetryState::Timeout,
        "MAXIMUM_ATTEMPTS_REACHED" => RetryState::MaximumAttemptsReached,
        "RETRY_POLICY_NOT_SET" => RetryState::RetryPolicyNotSet,
        "CANCEL_REQUESTED" => RetryState::CancelRequested,
        _ => return None,
    })
}

/// How deep causes are followed.
const CAUSES_MAX: usize = 64;

pub(super) fn failure(fields: &Fields, field: &str) -> Option<Failure> {
    Some(failure_at(object(fields, field)?, 0))
}

fn failure_at(fields: &Fields, depth: usize) -> Failure {
    let cause = object(fields, "cause").filter(|_| depth < CAUSES_MAX);
    let cause = cause.map(|cause| Box::new(failure_at(cause, depth + 1)));
    let (message, kind) = kind_of(fields, text(fields, "message"));
    Failure { message, kind, cause }
}

// long: one arm a kind.
fn kind_of(fields: &Fields, message: &str) -> (String, FailureKind) {
    let message = message.to_owned();
    if let Some(info) = object(fields, "applicationFailureInfo") {
        let kind = FailureKind::Application {
            failure_type: text(info, "type").to_owned(),
            non_retryable: info.get("nonRetryable").and_then(Value::as_bool).unwrap_or(false),
            details: payloads(info, "details"),
            next_retry_delay: period(info, "nextRetryDelay"),
        };
        return (message, kind);
    }
    if let Some(info) = object(fields, "timeoutFailureInfo") {
        const TYPES: [&str; 5] =
            ["UNSPECIFIED", "START_TO_CLOSE", "SCHEDULE_TO_START", "SCHEDULE_TO_CLOSE", "HEARTBEAT"];
        let timeout = match choice(info, "timeoutType", "TIMEOUT_TYPE_", &TYPES) {
            "SCHEDULE_TO_START" => TimeoutType::ScheduleToStart,
            "SCHEDULE_TO_CLOSE" => TimeoutType::ScheduleToClose,
            "HEARTBEAT" => TimeoutType::Heartbeat,
            _ => TimeoutType::StartToClose,
        };
        let failure = Failure::timeout(timeout, payloads(info, "lastHeartbeatDetails"));
        return (failure.message, failure.kind);
    }
    if let Some(info) = object(fields, "canceledFailureInfo") {
        return (message, FailureKind::Canceled { details: payloads(info, "details") });
    }
    if object(fields, "terminatedFailureInfo").is_some() {
        return (message, FailureKind::Terminated);
    }
    if let Some(info) = object(fields, "activityFailureInfo")
        && let Ok(activity_type) = ActivityType::new(named(info, "activityType"))
        && let Ok(activity_id) = ActivityId::new(text(info, "activityId"))
    {
        let retry_state = retry_state(info, "retryState").unwrap_or(RetryState::RetryPolicyNotSet);
        let text = format!("activity {activity_type} failed");
        return (text, FailureKind::Activity { activity_type, activity_id, retry_state });
    }
    if let Some(info) = object(fields, "childWorkflowExecutionFailureInfo")
        && let Some(child) = object(info, "workflowExecution")
        && let Ok(workflow_id) = WorkflowId::new(text(child, "workflowId"))
        && let Ok(workflow_type) = WorkflowType::new(named(info, "workflowType"))
    {
        let run_id = run_id(text(child, "runId"));
        let text = format!("child workflow {workflow_id} failed");
        return (text, FailureKind::ChildWorkflow { workflow_type, workflow_id, run_id, retry_state: None });
    }
    (message, Failure::application("ServerFailure", "").kind)
}
