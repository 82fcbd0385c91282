//! Runs, events and results as JSON for people: Temporal's words, moments as text, payloads as they were given.
//!
//! Invariant: a member that means nothing for a run is left out, never null; nothing is shown here that the engine did not
//! tell. It decides nothing.

use bosun_engine::*;
use serde_json::{Map, Value, json};

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
    let awaited: Vec<Value> =
        seen.awaiting.iter().map(|one| present(json!({ "what": one.what, "at": one.location }))).collect();
    let more = json!({
        "pending_activities": activities,
        "pending_timers": seen.pending_timers,
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

/// An event: what happened, with its attributes as the history keeps them, payloads as they were given.
pub(super) fn event(event: &Event) -> Value {
    let mut attributes = match serde_json::to_value(&event.kind) {
        // One member, named after the kind.
        Ok(Value::Object(kind)) => kind.into_iter().next().map_or(Value::Null, |(_, attributes)| attributes),
        _ => Value::Null,
    };
    unwrap_payloads(&mut attributes);
    json!({
        "event_id": event.id, "event_time": moment(event.at), "event_type": event.kind.name(), "attributes": attributes,
    })
}

/// Data as people read it, with payloads as they were given.
pub(crate) fn plain(mut value: Value) -> Value {
    unwrap_payloads(&mut value);
    value
}

/// A payload is kept as `{"json": …}` or `{"encoding": …, "base16": …}`: where one can stand, what it holds stands there.
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
