//! Import: Temporal's history JSON from any of its tools, for viewing, statistics and diff.
//!
//! Spellings that are understood: `{"events": […]}`, the same inside `history`, or the bare list · event types as
//! `EVENT_TYPE_TIMER_FIRED`, `TimerFired` or a number · ids as text or number · times as text, seconds and nanos, or
//! nanoseconds · fields in camelCase or snake_case.
//!
//! Invariant: hostile input. Reading is bounded, event ids follow each other, and nothing read here becomes one of our
//! histories. Event types that are newer than this code are kept under their names.

use bosun_engine::{Payload, Timestamp};
use serde::Serialize;
use serde_json::{Map, Value};

use super::protojson::unbase64;
use super::to_temporal;
use crate::strict_json::{self, JsonLimits, JsonRefused};
use crate::{History, rfc3339};

/// A history of Temporal's, as read.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TemporalHistory {
    events: Vec<TemporalEvent>,
}

/// One event of an export of Temporal.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TemporalEvent {
    /// Its number.
    pub id: u64,
    /// When it was recorded.
    pub at: Option<Timestamp>,
    /// As `TimerFired`.
    pub event_type: String,
    /// In camelCase; payloads as they were written.
    pub attributes: Map<String, Value>,
}

/// Why a text is not a history of Temporal's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemporalError {
    /// It is no JSON that is read.
    #[error(transparent)]
    Refused(#[from] JsonRefused),
    /// It is JSON of another kind.
    #[error("not Temporal's history JSON: no `events`, neither at the top nor in `history`")]
    NoEvents,
    /// There is nothing to show.
    #[error("the history has no events")]
    Empty,
    /// An event is no JSON object.
    #[error("event {index} is not an object")]
    NotAnObject {
        /// Its place in the list, from 0.
        index: usize,
    },
    /// An event has no number.
    #[error("event {index} has no usable event id: {found}")]
    BadEventId {
        /// Its place in the list, from 0.
        index: usize,
        /// What stands there.
        found: String,
    },
    /// The numbers do not count up by one.
    #[error("event {found} follows event {before}: events are missing, doubled or out of order")]
    EventIdGap {
        /// The number before.
        before: u64,
        /// The number that follows.
        found: u64,
    },
    /// An event has no name.
    #[error("event {id} has no usable event type: {found}")]
    BadEventType {
        /// The event.
        id: u64,
        /// What stands there.
        found: String,
    },
    /// An event has no time.
    #[error("event {id} has no usable time: {found}")]
    BadTime {
        /// The event.
        id: u64,
        /// What stands there.
        found: String,
    },
    /// An event is of two kinds at once.
    #[error("event {id} has attributes of two kinds: {first} and {second}")]
    TwoAttributes {
        /// The event.
        id: u64,
        /// One kind.
        first: String,
        /// The other.
        second: String,
    },
    /// The attributes of an event cannot be read.
    #[error("the attributes of event {id} are not an object")]
    BadAttributes {
        /// The event.
        id: u64,
    },
}

impl TemporalHistory {
    /// Reads an export.
    pub fn from_json(text: &[u8], limits: JsonLimits) -> Result<Self, TemporalError> {
        Self::from_value(strict_json::read(text, limits)?)
    }

    /// Events that were read elsewhere, each as Temporal's JSON spells it.
    ///
    /// # Errors
    /// As for a text, apart from its length and form.
    pub fn from_events(events: Vec<Value>) -> Result<Self, TemporalError> {
        Self::from_value(Value::Array(events))
    }

    fn from_value(file: Value) -> Result<Self, TemporalError> {
        let listed = match file {
            Value::Array(events) => events,
            Value::Object(mut fields) => match (fields.swap_remove("events"), fields.swap_remove("history")) {
                (Some(Value::Array(events)), _) => events,
                (None, Some(Value::Object(mut history))) => match history.swap_remove("events") {
                    Some(Value::Array(events)) => events,
                    _ => return Err(TemporalError::NoEvents),
                },
                _ => return Err(TemporalError::NoEvents),
            },
            _ => return Err(TemporalError::NoEvents),
        };
        let mut events: Vec<TemporalEvent> = Vec::new();
        for (index, event) in listed.into_iter().enumerate() {
            let event = read_event(index + 1, event)?;
            if let Some(before) = events.last()
                && before.id.checked_add(1) != Some(event.id)
            {
                return Err(TemporalError::EventIdGap { before: before.id, found: event.id });
            }
            events.push(event);
        }
        if events.is_empty() { Err(TemporalError::Empty) } else { Ok(TemporalHistory { events }) }
    }

    /// All events, in order.
    pub fn events(&self) -> &[TemporalEvent] {
        &self.events
    }
    /// The event of an id, for following references.
    pub fn event(&self, id: u64) -> Option<&TemporalEvent> {
        let index = id.checked_sub(self.events.first()?.id)?;
        self.events.get(usize::try_from(index).ok()?)
    }
}

impl From<&History> for TemporalHistory {
    /// One of our histories seen as Temporal would tell it.
    fn from(history: &History) -> Self {
        Self::from_value(to_temporal(history)).expect("an export is an import")
    }
}

impl TemporalEvent {
    /// A number, written as a number or as text. Zero and absence are the same in ProtoJSON.
    pub fn number(&self, field: &str) -> u64 {
        self.attributes.get(field).and_then(number).unwrap_or(0)
    }
    /// The `name` of a type or queue.
    pub fn name_of(&self, field: &str) -> Option<&str> {
        self.attributes.get(field)?.get("name")?.as_str()
    }
    /// The attributes for people: payloads are decoded where they are JSON or text.
    pub fn readable(&self) -> Value {
        let mut attributes = Value::Object(self.attributes.clone());
        decode_payloads(&mut attributes);
        attributes
    }
}

fn number(value: &Value) -> Option<u64> {
    match value {
        Value::Number(number) => number.as_u64(),
        Value::String(text) => text.parse().ok(),
        _ => None,
    }
}

fn short(value: Option<&Value>) -> String {
    value.map_or_else(|| "nothing".into(), |value| value.to_string().chars().take(80).collect())
}

fn read_event(index: usize, event: Value) -> Result<TemporalEvent, TemporalError> {
    let Value::Object(mut fields) = event else { return Err(TemporalError::NotAnObject { index }) };
    let mut take = |camel: &str, snake: &str| fields.swap_remove(camel).or_else(|| fields.swap_remove(snake));
    let (id, event_type, at) =
        (take("eventId", "event_id"), take("eventType", "event_type"), take("eventTime", "event_time"));
    let id = id
        .as_ref()
        .and_then(number)
        .filter(|id| *id != 0)
        .ok_or_else(|| TemporalError::BadEventId { index, found: short(id.as_ref()) })?;
    let event_type = event_type
        .as_ref()
        .and_then(type_name)
        .ok_or_else(|| TemporalError::BadEventType { id, found: short(event_type.as_ref()) })?;
    let at = match at {
        None | Some(Value::Null) => None,
        Some(at) => Some(time(&at).ok_or_else(|| TemporalError::BadTime { id, found: short(Some(&at)) })?),
    };
    let words = take("userMetadata", "user_metadata").filter(Value::is_object);
    let mut found: Option<(String, Value)> = None;
    for (key, value) in fields {
        if !(key == "attributes" || key.ends_with("EventAttributes") || key.ends_with("_event_attributes")) {
            continue;
        }
        if let Some((first, _)) = found {
            return Err(TemporalError::TwoAttributes { id, first, second: key });
        }
        found = Some((key, value));
    }
    let mut attributes = match found {
        None => Map::new(),
        Some((key, Value::Object(attributes))) if key.ends_with("_event_attributes") => camel_keys(attributes),
        Some((_, Value::Object(attributes))) => attributes,
        Some(_) => return Err(TemporalError::BadAttributes { id }),
    };
    // What it is for, in the words of whoever asked.
    words.into_iter().for_each(|words| _ = attributes.insert("userMetadata".to_owned(), words));
    Ok(TemporalEvent { id, at, event_type, attributes })
}

fn time(value: &Value) -> Option<Timestamp> {
    let at = match value {
        Value::String(text) => rfc3339::parse(text)?,
        Value::Number(nanos) => Timestamp(nanos.as_i64()?.div_euclid(1_000)),
        Value::Object(fields) => {
            let seconds = fields.get("seconds").map_or(Some(0), number)?;
            let nanos = fields.get("nanos").map_or(Some(0), number).filter(|nanos| *nanos < 1_000_000_000)?;
            Timestamp(i64::try_from(seconds).ok()?.checked_mul(1_000_000)?.checked_add(nanos as i64 / 1_000)?)
        }
        _ => return None,
    };
    (rfc3339::EARLIEST..=rfc3339::LATEST).contains(&at).then_some(at)
}

/// `EVENT_TYPE_TIMER_FIRED`, `TimerFired` and 18 are the same type. A number that is newer than this code is `Unknown61`.
fn type_name(value: &Value) -> Option<String> {
    match value {
        Value::Number(number) => {
            let number = number.as_u64().filter(|number| i32::try_from(*number).is_ok())?;
            let known = usize::try_from(number.checked_sub(1)?).ok().and_then(|at| EVENT_TYPES.get(at));
            Some(known.map_or_else(|| format!("Unknown{number}"), |known| (*known).to_owned()))
        }
        Value::String(text) if text.is_empty() || text.len() > 100 => None,
        Value::String(text) => match text.strip_prefix("EVENT_TYPE_") {
            Some("UNSPECIFIED" | "") => None,
            Some(long) if long.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_') => {
                Some(long.split('_').map(capitalized).collect())
            }
            None if text.bytes().all(|b| b.is_ascii_alphanumeric()) && text != "Unspecified" => Some(text.clone()),
            Some(_) | None => None,
        },
        _ => None,
    }
}

fn capitalized(word: &str) -> String {
    let mut chars = word.chars();
    chars.next().into_iter().chain(chars.map(|c| c.to_ascii_lowercase())).collect()
}

/// snake_case keys as camelCase, except where keys are names of users.
fn camel_keys(fields: Map<String, Value>) -> Map<String, Value> {
    let camel = |key: &str| {
        let mut words = key.split('_').filter(|word| !word.is_empty());
        let first = words.next().unwrap_or_default().to_owned();
        words.fold(first, |key, word| key + &word[..1].to_ascii_uppercase() + &word[1..])
    };
    let inner = |key: &str, value: Value| match value {
        value
            if matches!(
                key,
                "fields" | "indexed_fields" | "indexedFields" | "metadata" | "details" | "nexus_header"
            ) =>
        {
            value
        }
        Value::Object(fields) => Value::Object(camel_keys(fields)),
        Value::Array(items) => Value::Array(
            items
                .into_iter()
                .map(|item| match item {
                    Value::Object(fields) => Value::Object(camel_keys(fields)),
                    other => other,
                })
                .collect(),
        ),
        other => other,
    };
    fields
        .into_iter()
        .map(|(key, value)| {
            let ascii = key.is_ascii();
            (if ascii { camel(&key) } else { key.clone() }, inner(&key, value))
        })
        .collect()
}

/// Replaces every `{"metadata": {"encoding": …}, "data": …}` by what it says. Depth is bounded by the reader.
fn decode_payloads(value: &mut Value) {
    let encoding = value.get("metadata").and_then(|metadata| metadata.get("encoding")).and_then(Value::as_str);
    if let Some(encoding) = encoding.and_then(unbase64).and_then(|bytes| String::from_utf8(bytes).ok()) {
        let data = value.get("data").and_then(Value::as_str).map_or(Some(Vec::new()), unbase64);
        let decoded = match (encoding.as_str(), data) {
            ("binary/null", _) => Some(Value::Null),
            ("json/plain" | "json/protobuf", Some(data)) => serde_json::from_slice(&data).ok(),
            (_, Some(data)) => Some(Payload::bytes(data).to_json()),
            (_, None) => None,
        };
        if let Some(decoded) = decoded {
            *value = decoded;
            return;
        }
    }
    match value {
        Value::Array(items) => items.iter_mut().for_each(decode_payloads),
        Value::Object(fields) => fields.values_mut().for_each(decode_payloads),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Temporal's event types in the order of their numbers, from 1, which they keep.
const EVENT_TYPES: [&str; 60] = [
    "WorkflowExecutionStarted",
    "WorkflowExecutionCompleted",
    "WorkflowExecutionFailed",
    "WorkflowExecutionTimedOut",
    "WorkflowTaskScheduled",
    "WorkflowTaskStarted",
    "WorkflowTaskCompleted",
    "WorkflowTaskTimedOut",
    "WorkflowTaskFailed",
    "ActivityTaskScheduled",
    "ActivityTaskStarted",
    "ActivityTaskCompleted",
    "ActivityTaskFailed",
    "ActivityTaskTimedOut",
    "ActivityTaskCancelRequested",
    "ActivityTaskCanceled",
    "TimerStarted",
    "TimerFired",
    "TimerCanceled",
    "WorkflowExecutionCancelRequested",
    "WorkflowExecutionCanceled",
    "RequestCancelExternalWorkflowExecutionInitiated",
    "RequestCancelExternalWorkflowExecutionFailed",
    "ExternalWorkflowExecutionCancelRequested",
    "MarkerRecorded",
    "WorkflowExecutionSignaled",
    "WorkflowExecutionTerminated",
    "WorkflowExecutionContinuedAsNew",
    "StartChildWorkflowExecutionInitiated",
    "StartChildWorkflowExecutionFailed",
    "ChildWorkflowExecutionStarted",
    "ChildWorkflowExecutionCompleted",
    "ChildWorkflowExecutionFailed",
    "ChildWorkflowExecutionCanceled",
    "ChildWorkflowExecutionTimedOut",
    "ChildWorkflowExecutionTerminated",
    "SignalExternalWorkflowExecutionInitiated",
    "SignalExternalWorkflowExecutionFailed",
    "ExternalWorkflowExecutionSignaled",
    "UpsertWorkflowSearchAttributes",
    "WorkflowExecutionUpdateAccepted",
    "WorkflowExecutionUpdateRejected",
    "WorkflowExecutionUpdateCompleted",
    "WorkflowPropertiesModifiedExternally",
    "ActivityPropertiesModifiedExternally",
    "WorkflowPropertiesModified",
    "WorkflowExecutionUpdateAdmitted",
    "NexusOperationScheduled",
    "NexusOperationStarted",
    "NexusOperationCompleted",
    "NexusOperationFailed",
    "NexusOperationCanceled",
    "NexusOperationTimedOut",
    "NexusOperationCancelRequested",
    "WorkflowExecutionOptionsUpdated",
    "NexusOperationCancelRequestCompleted",
    "NexusOperationCancelRequestFailed",
    "WorkflowExecutionPaused",
    "WorkflowExecutionUnpaused",
    "WorkflowExecutionTimeSkippingTransitioned",
];
