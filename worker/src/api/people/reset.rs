//! A reset as a program writes it: how far back, and what is reapplied.
//!
//! Invariant: the words are those of the command line; a dry run writes nothing and says what the reset would. What a reset
//! means is the engine's affair.

use axum::Json;
use axum::body::Bytes;
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse;
use bosun_engine::*;
use serde::Deserialize;
use serde_json::json;

use super::super::handlers::{AuthorizedCaller, RequestTarget};
use super::body::{Members, whole};
use super::handlers::{Answer, request_id};
use crate::backend::Backend;

/// A point of a history: a number, or words.
#[derive(Deserialize)]
#[serde(untagged, expecting = "expected the number of an event, or words as the command line takes them")]
enum Point {
    Event(#[serde(deserialize_with = "whole")] Option<u64>),
    Words(String),
}

/// The run that the path names goes back to an earlier point, and goes on under its workflow id.
pub async fn reset(me: AuthorizedCaller, at: RequestTarget, headers: HeaderMap, body: Bytes) -> Answer {
    let mut members = Members::read(&body)?;
    let to = match members.typed("to") {
        Some(Point::Event(event)) => event.map(|event| ResetTo::Event(EventId(event))),
        Some(Point::Words(words)) => {
            words.parse().map_err(|why: NoResetPoint| members.wrong("to", why.to_string())).ok()
        }
        None => None,
    };
    members.needs("to", to.is_some());
    let reapply = members.typed("reapply").unwrap_or_default();
    let dry_run = members.typed("dry_run").unwrap_or(false);
    let reason = members.text("reason").unwrap_or_default();
    members.done()?;
    // Without one it would have been said above.
    let to = to.unwrap_or(ResetTo::LastTurn);
    let request = ResetRequest {
        reapply,
        request_id: request_id(&headers)?,
        reason,
        dry_run,
        ..ResetRequest::new(at.target, to)
    };
    let done = me.backend.reset(request).await?;
    let status = if done.newly_started { StatusCode::CREATED } else { StatusCode::OK };
    let answer = json!({
        "workflow_id": done.workflow_id, "run_id": done.run_id, "workflow_type": done.workflow_type,
        "newly_started": done.newly_started, "dry_run": dry_run, "terminated_run_id": done.terminated,
        "reset_from": { "run_id": done.from.run_id, "event_id": done.from.event },
        "plan": done.plan,
    });
    Ok((status, Json(answer)).into_response())
}
