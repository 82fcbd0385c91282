//! Runs, events and results as JSON for people: Temporal's words, moments as text, payloads as they were given.
//!
//! Invariant: a member that means nothing for a run is left out, never null; nothing is shown here that the engine did not
//! tell. It decides nothing.

use bosun_engine::*;
use serde_json::{Map, Value, json};

use crate::cli::stuck::Obstacle;
use crate::cli::waiting::WaitingRow;
use crate::run_json;

/// Without the members that are null.
fn present(value: Value) -> Value {
    match value {
        Value::Object(members) => {
            Value::Object(members.into_iter().filter(|(_, value)| !value.is_null()).collect::<Map<_, _>>())
        }
        other => other,
    }
}

pub(super) fn moment(at: Timestamp) -> Value {
    at.to_string().into()
}

pub(super) fn run(info: &RunInfo) -> Value {
    let (memo, attributes) = (run_json::memo(info), run_json::attributes(info, moment));
    present(json!({
        "workflow_id": info.workflow_id,
        "run_id": info.run_id,
        "namespace": info.namespace,
        "workflow_type": info.workflow_type,
        "task_queue": info.task_queue,
        "status": info.status,
        "is_held": info.held.then_some(true),
        "control": info.hold.map(Hold::name),
        "start_time": moment(info.started_at),
        "close_time": info.closed_at.map(moment),
        "history_length": info.history.events,
        "history_size_bytes": info.history.bytes,
        "attempt": info.attempt,
        "first_run_id": info.first_run,
        "continued_from_run_id": info.continued_from,
        "next_run_id": info.next_run,
        "parent": info.parent.as_ref().map(|parent| json!({ "workflow_id": parent.workflow_id, "run_id": parent.run_id })),
        "forked_from": info.forked_from.as_ref().map(|from| {
            json!({ "workflow_id": from.workflow_id, "run_id": from.run_id, "event_id": from.event,
                "is_reset": from.reset.then_some(true) })
        }),
        "memo": Some(memo).filter(|memo| !memo.is_empty()),
        "search_attributes": Some(attributes).filter(|attributes| !attributes.is_empty()),
        "summary": info.summary,
        "details": info.details,
        "build_id": info.build.to_string(),
    }))
}

/// A failure with its chain of causes.
pub(super) fn failure(failure: &Failure) -> Value {
    without_nulls(run_json::failure(failure))
}

fn without_nulls(failure: Value) -> Value {
    let mut failure = present(failure);
    if let Some(cause) = failure.get_mut("cause") {
        *cause = without_nulls(cause.take());
    }
    failure
}

pub(super) fn outcome(outcome: &CloseOutcome) -> Value {
    let mut view = run_json::outcome(outcome);
    match outcome {
        // A result may be null, and is one all the same.
        CloseOutcome::Completed(_) => view,
        CloseOutcome::Failed(_) => {
            view["failure"] = without_nulls(view["failure"].take());
            view
        }
        _ => present(view),
    }
}

/// A run with what it does and waits for.
pub(super) fn description(seen: &Description) -> Value {
    let mut view = run(&seen.info);
    let activity = |one: &PendingActivity| {
        present(json!({
            "activity_id": one.activity_id,
            "activity_type": one.activity_type,
            "state": one.state,
            "attempt": one.attempt,
            "scheduled_time": moment(one.scheduled_at),
            "next_attempt_time": one.next_attempt_at.map(moment),
            "last_failure": one.last_failure.as_ref().map(failure),
            "heartbeat_details": one.heartbeat_details.as_ref().map(Payload::to_json),
            "task_token": one.task_token,
            "summary": one.summary,
            "options": one.options.as_deref().map(run_json::activity_options).map(present),
        }))
    };
    let activities: Vec<Value> = seen.pending_activities.iter().map(activity).collect();
    let timer = |one: &PendingTimer| {
        present(json!({ "seq": one.seq, "fire_time": moment(one.fire_at), "summary": one.summary }))
    };
    let timers: Vec<Value> = seen.pending_timers.iter().map(timer).collect();
    let awaited: Vec<Value> =
        seen.awaiting.iter().map(|one| present(json!({ "what": one.what, "at": one.location }))).collect();
    let more = json!({
        "pending_activities": activities,
        "pending_timers": timers,
        "pending_children": seen.pending_children,
        "pending_updates": seen.pending_updates,
        "waits_for": awaited,
        "starts_time": seen.starts_at.map(moment),
        "inbox": seen.inbox,
        "held": seen.held,
        "cancel_requested": seen.cancel_requested,
        "warnings": seen.warnings,
        "outcome": seen.result.as_ref().map(outcome),
    });
    if let (Value::Object(view), Value::Object(more)) = (&mut view, present(more)) {
        view.extend(more);
    }
    view
}

/// Whom and what a run waits for, with the command that answers, as it can be run anywhere.
pub(super) fn waiting(row: &WaitingRow, answer: String) -> Value {
    json!({ "id": row.id, "whom": row.whom, "what": row.what, "answer": answer })
}

/// What keeps a run from going on, with the command that helps, as it can be run anywhere.
pub(super) fn obstacle(one: &Obstacle, help: String) -> Value {
    json!({ "workflow_id": one.run, "what": one.what, "why": one.why, "attempt": one.attempt,
        "next_attempt_time": one.next_attempt_at.map(moment), "help": help })
}

/// An event: what happened, with its attributes in plain forms, payloads as they were given.
pub(super) fn event(event: &Event) -> Value {
    let mut attributes = match serde_json::to_value(&event.kind) {
        // One member, named after the kind.
        Ok(Value::Object(kind)) => kind.into_iter().next().map_or(Value::Null, |(_, attributes)| attributes),
        _ => Value::Null,
    };
    in_plain_forms(&mut attributes);
    json!({
        "event_id": event.id, "event_time": moment(event.at), "event_type": event.kind.name(), "attributes": attributes,
    })
}

/// Data as people read it, with payloads as they were given.
pub(crate) fn plain(mut value: Value) -> Value {
    in_plain_forms(&mut value);
    value
}

/// The state of user code: payloads as they were given, and all else as the code has it.
pub(crate) fn unwrapped(mut value: Value) -> Value {
    unwrap_payloads(&mut value);
    value
}

fn unwrap_payloads(value: &mut Value) {
    match value {
        Value::Object(members) if members.len() == 1 && members.contains_key("json") => {
            // What it holds is the user's and is not looked into.
            *value = members.remove("json").unwrap_or_default();
        }
        Value::Object(members) => members.values_mut().for_each(unwrap_payloads),
        Value::Array(items) => items.iter_mut().for_each(unwrap_payloads),
        _ => {}
    }
}

/// Members that hold a moment.
const MOMENTS: [&str; 4] = ["next_attempt_at", "fire_at", "start_at", "execution_deadline"];
/// How the engine writes the value of a search attribute: by the name of its kind.
const ATTRIBUTES: [&str; 7] = ["Bool", "Int", "Float", "Keyword", "KeywordList", "Text", "Datetime"];

/// Where the engine's form of a value stands, what it means stands there: a payload is kept as `{"json": …}` or
/// `{"encoding": …, "base16": …}`, a length of time as two numbers, a moment as microseconds.
fn in_plain_forms(value: &mut Value) {
    match value {
        Value::Object(members) if members.len() == 1 && members.contains_key("json") => {
            // What it holds is the user's and is not looked into.
            *value = members.remove("json").unwrap_or_default();
        }
        Value::Object(members) => {
            if let Some(plain) = plain_form(members) {
                *value = plain;
                return;
            }
            let coefficient = members.remove("backoff_coefficient_permille");
            if let Some(permille) = coefficient.as_ref().and_then(Value::as_u64) {
                members.insert("backoff_coefficient".to_owned(), json!(permille as f64 / 1_000.0));
            }
            for (name, value) in members {
                match value.as_i64().filter(|_| MOMENTS.contains(&name.as_str())) {
                    Some(at) => *value = moment(Timestamp(at)),
                    None => in_plain_forms(value),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(in_plain_forms),
        _ => {}
    }
}

fn plain_form(members: &Map<String, Value>) -> Option<Value> {
    let has = |name: &str| members.contains_key(name);
    if members.len() == 2 && has("secs") && has("nanos") {
        let length: std::time::Duration = serde_json::from_value(Value::Object(members.clone())).ok()?;
        return Some(json!(run_json::span(length)));
    }
    if has("kind") && has("message") {
        let read: Failure = serde_json::from_value(Value::Object(members.clone())).ok()?;
        return Some(failure(&read));
    }
    let (name, value) = members.iter().next().filter(|_| members.len() == 1)?;
    match (ATTRIBUTES.contains(&name.as_str()), name.as_str(), value.as_i64()) {
        (true, "Datetime", Some(at)) => Some(moment(Timestamp(at))),
        (true, ..) => Some(value.clone()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a program would have to guess is said in the words of the rest of the API; the user's own data stays.
    #[test]
    fn attributes_are_told_in_plain_forms() {
        let policy =
            json!({ "initial_interval": { "secs": 1, "nanos": 500_000_000 }, "backoff_coefficient_permille": 1_500 });
        let cause = Failure::application("Busy", "later");
        let stored = json!({
            "start_to_close": { "secs": 30, "nanos": 0 }, "retry_policy": policy, "next_attempt_at": 1_795_715_302_523_442_i64,
            "failure": cause, "search_attributes": { "city": { "Keyword": "Kyiv" } },
            "input": { "json": { "secs": 1, "nanos": 2, "fire_at": 5 } },
        });
        let told = plain(stored);
        assert_eq!(told["start_to_close"], "30s");
        assert_eq!(told["retry_policy"], json!({ "initial_interval": "1500ms", "backoff_coefficient": 1.5 }));
        assert_eq!(told["next_attempt_at"], moment(Timestamp(1_795_715_302_523_442)));
        assert_eq!(told["failure"], failure(&cause));
        assert_eq!(told["search_attributes"], json!({ "city": "Kyiv" }));
        assert_eq!(told["input"], json!({ "secs": 1, "nanos": 2, "fire_at": 5 }), "the user's own");
    }
}
