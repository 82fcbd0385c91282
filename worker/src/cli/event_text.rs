//! Events as one line of text and as JSON.
//!
//! Invariant: made from what every event has (its name and its fields as data), so that a new kind of event is shown
//! without a change here. Long values are cut; `-o json` shows them whole.

use std::time::Duration;

use bosun_engine::{Event, EventKind, Failure, Payload, Timestamp, WorkflowStatus};
use serde_json::{Map, Value, json};

use super::output::{Screen, TextStyle};
use super::time_format::short;

/// Longest value shown on a line, in characters.
const VALUE_MAX: usize = 60;

/// An event as `show -o json` and `-o jsonl` print it.
pub(super) fn event_json(screen: &Screen, event: &Event) -> Value {
    json!({
        "id": event.id,
        "at": screen.time.json(event.at),
        "type": event.kind.name(),
        "attributes": attributes(&event.kind),
        "build": event.build.to_string(),
    })
}

/// The fields of an event, without its name.
pub(crate) fn attributes(kind: &EventKind) -> Value {
    match serde_json::to_value(kind) {
        Ok(Value::Object(tagged)) => tagged.into_iter().next().map_or_else(|| json!({}), |(_, fields)| fields),
        _ => json!({}),
    }
}

/// `seq=3 activity_type=charge input={"a":1}`.
pub(crate) fn details(kind: &EventKind) -> String {
    let Value::Object(fields) = attributes(kind) else { return String::new() };
    let mut parts = Vec::new();
    parts_of(&fields, &mut parts);
    parts.join(" ")
}

fn parts_of(fields: &Map<String, Value>, parts: &mut Vec<String>) {
    for (name, value) in fields {
        // The run's own coordinates stand above the table, and a start carries many empty fields.
        if matches!(name.as_str(), "namespace" | "first_run" | "close_policy") || is_empty(value) {
            continue;
        }
        match value {
            Value::Object(inner) if name == "options" => parts_of(inner, parts),
            value => match moment(name, value) {
                Some(at) => parts.push(format!("{name}={at}")),
                None => parts.push(format!("{name}={}", cut(&text_of(value)))),
            },
        }
    }
}

/// Moments are microseconds as data; a reader wants a date.
fn moment(name: &str, value: &Value) -> Option<Timestamp> {
    let is_moment = name.ends_with("_at") || name.ends_with("_deadline");
    value.as_i64().filter(|_| is_moment).map(Timestamp)
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => {
            fields.is_empty() || fields.get("json").is_some_and(Value::is_null) && fields.len() == 1
        }
        Value::String(text) => text.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Payloads as their JSON, failures as their message, text without quotes.
fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Object(fields) if fields.len() == 1 && fields.contains_key("json") => fields["json"].to_string(),
        Value::Object(fields) if fields.contains_key("message") && fields.contains_key("kind") => {
            serde_json::from_value::<Failure>(value.clone()).map_or_else(|_| value.to_string(), |why| why.to_string())
        }
        Value::Object(fields) if fields.len() == 2 && fields.contains_key("secs") && fields.contains_key("nanos") => {
            serde_json::from_value::<Duration>(value.clone()).map_or_else(|_| value.to_string(), short)
        }
        Value::Object(fields) if fields.len() == 1 && fields.contains_key("Ok") => text_of(&fields["Ok"]),
        Value::Object(fields) if fields.len() == 1 && fields.contains_key("Err") => text_of(&fields["Err"]),
        other => other.to_string(),
    }
}

/// At most [`VALUE_MAX`] characters of a text.
pub(super) fn cut(text: &str) -> String {
    match text.char_indices().nth(VALUE_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// A payload as one would read it, cut.
pub(super) fn brief(payload: &Payload) -> String {
    cut(&payload.to_json().to_string())
}

pub(super) fn paint(kind: &EventKind) -> TextStyle {
    match kind.closes() {
        Some(WorkflowStatus::Completed) => return TextStyle::Green,
        Some(WorkflowStatus::Canceled | WorkflowStatus::ContinuedAsNew) => return TextStyle::Yellow,
        Some(_) => return TextStyle::Red,
        None => {}
    }
    let name = kind.name();
    if name.ends_with("Failed") || name.ends_with("TimedOut") {
        TextStyle::Red
    } else if name.ends_with("Completed") || name.ends_with("Fired") {
        TextStyle::Green
    } else {
        TextStyle::Plain
    }
}

#[cfg(test)]
mod tests {
    use bosun_engine::*;

    use super::*;

    #[test]
    fn events_are_one_line() {
        let failure = Failure::application("Declined", "no funds");
        let line = details(&EventKind::ActivityTaskFailed {
            seq: Seq(3),
            failure: failure.clone(),
            retry_state: RetryState::MaximumAttemptsReached,
        });
        assert_eq!(line, "seq=3 failure=Declined: no funds retry_state=MaximumAttemptsReached");
        let scheduled = ActivityTaskScheduled {
            seq: Seq(1),
            activity_id: "a1".into(),
            activity_type: "charge".into(),
            input: Payload::null(),
            options: ActivityOptions { start_to_close: Some(Duration::from_secs(90)), ..ActivityOptions::default() },
        };
        assert_eq!(
            details(&EventKind::ActivityTaskScheduled(Box::new(scheduled))),
            "seq=1 activity_id=a1 activity_type=charge start_to_close=1m 30s cancellation=TryCancel"
        );
        let signal = WorkflowExecutionSignaled {
            name: SignalName::of("approve"),
            input: Payload::raw_json(r#"{"by":"Ada"}"#),
            identity: None,
            request_id: None,
        };
        assert_eq!(details(&EventKind::WorkflowExecutionSignaled(signal)), r#"name=approve input={"by":"Ada"}"#);
        assert_eq!(details(&EventKind::FirstWorkflowTaskScheduled), "");
        let timer = EventKind::TimerStarted { seq: Seq(2), fire_at: Timestamp(1_500_000), summary: None };
        assert_eq!(details(&timer), "seq=2 fire_at=1970-01-01T00:00:01.500000Z");
        let update = EventKind::WorkflowExecutionUpdateCompleted { update_id: UpdateId::of("u"), result: Err(failure) };
        assert_eq!(details(&update), "update_id=u result=Declined: no funds");
    }

    #[test]
    fn long_values_are_cut_between_characters() {
        assert_eq!(cut(&"é".repeat(61)), format!("{}…", "é".repeat(60)));
    }
}
