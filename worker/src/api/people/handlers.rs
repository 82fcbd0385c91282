//! The handlers of runs: each reads what a person wrote, makes one call, and writes the answer for people.
//!
//! Invariant: as for the handlers of the command line, none decides anything about a run; the caller's role is asked by the
//! backend that it gets.

use std::time::Duration;

use axum::Json;
use axum::body::Bytes;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use bosun_engine::*;
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::handlers::{AuthorizedCaller, PAGE_MAX, RequestTarget, WAIT_MAX, query_of};
use super::super::problem::Problem;
use super::super::token::random_hex;
use super::body::{Members, json as json_of};
use super::{start as start_body, view};
use crate::agent::AGENT;
use crate::backend::{Attribution, Backend, CallError};
use crate::supervisor::people::control;
use crate::supervisor::run::SUPERVISOR;
use crate::supervisor::spec::Span;

pub(super) type Answer = Result<Response, Problem>;

fn ok(value: Value) -> Answer {
    Ok(Json(value).into_response())
}

/// What makes a request that is sent twice one request.
fn key(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let Some(key) = headers.get("idempotency-key") else { return Ok(None) };
    match key.to_str().map(str::trim) {
        Ok(key) if !key.is_empty() => Ok(Some(key.to_owned())),
        _ => Err(Problem::bad_request("Idempotency-Key: it must be a text of printable characters")),
    }
}

fn request_id(headers: &HeaderMap) -> Result<Option<RequestId>, Problem> {
    let invalid = |why: InvalidId| Problem::bad_request(format!("Idempotency-Key: {why}"));
    key(headers)?.map(|key| RequestId::new(key).map_err(invalid)).transpose()
}

pub async fn start(me: AuthorizedCaller, headers: HeaderMap, body: Bytes) -> Answer {
    let request = start_body::read(&body, key(&headers)?.as_deref())?;
    let (workflow_type, namespace) = (request.workflow_type.clone(), request.namespace.clone());
    let workflow_id = request.workflow_id.clone();
    let started = me.backend.start(request).await.map_err(|why| match why {
        // What is named is not there.
        why @ CallError::Rejected(Rejection::UnknownWorkflowType { .. }) => {
            Problem { status: StatusCode::NOT_FOUND, ..why.into() }
        }
        why => why.into(),
    })?;
    let status = if started.newly_started { StatusCode::CREATED } else { StatusCode::OK };
    let answer = json!({
        "workflow_id": workflow_id, "run_id": started.run_id, "workflow_type": workflow_type, "namespace": namespace,
        "newly_started": started.newly_started,
    });
    Ok((status, Json(answer)).into_response())
}

#[derive(Deserialize)]
struct ListQuery {
    #[serde(default)]
    query: String,
    limit: Option<usize>,
    cursor: Option<String>,
}

/// A page of runs, the newest first, and where the next one begins.
pub async fn list(me: AuthorizedCaller, uri: Uri) -> Answer {
    let ListQuery { query, limit, cursor } = query_of(&uri)?;
    let limit = limit.unwrap_or(100);
    if !(1..=PAGE_MAX).contains(&limit) {
        return Err(Problem::bad_request(format!("limit: a page has 1 to {PAGE_MAX} runs")));
    }
    let after = cursor.as_deref().map(Cursor::read).transpose()?;
    let query = match &after {
        Some(after) => after.restrict(&query),
        None => query,
    };
    let mut found = me.backend.list(ListRequest { query, limit: PAGE_MAX }).await?;
    if let Some(after) = &after {
        // Runs of one moment stand in one order: those up to the last one of the page before are known.
        let known = found.iter().position(|run| run.run_id == after.run).map_or(0, |at| at + 1);
        found.drain(..known);
    }
    let more = found.len() > limit;
    found.truncate(limit);
    let next = found.last().filter(|_| more).map(|last| Cursor { at: last.started_at, run: last.run_id }.to_string());
    let runs: Vec<Value> = found.iter().map(view::run).collect();
    ok(json!({ "workflows": runs, "next_cursor": next }))
}

/// The last run of a page.
struct Cursor {
    at: Timestamp,
    run: RunId,
}

impl Cursor {
    fn read(text: &str) -> Result<Cursor, Problem> {
        let read = || {
            let (at, run) = text.split_once('.')?;
            Some(Cursor { at: Timestamp(at.parse().ok()?), run: run.parse().ok()? })
        };
        read().ok_or_else(|| Problem::bad_request("cursor: take the `next_cursor` of the page before as it stands"))
    }

    fn restrict(&self, query: &str) -> String {
        let before = format!("StartTime <= '{}'", self.at);
        if query.trim().is_empty() { before } else { format!("({query}) AND {before}") }
    }
}

impl std::fmt::Display for Cursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.at.0, self.run)
    }
}

pub async fn describe(me: AuthorizedCaller, at: RequestTarget) -> Answer {
    ok(view::description(&me.backend.describe(at.target).await?))
}

pub async fn delete(me: AuthorizedCaller, at: RequestTarget) -> Answer {
    me.backend.delete(at.target).await?;
    ok(json!({}))
}

#[derive(Deserialize)]
struct HistoryQuery {
    from: Option<u64>,
    limit: Option<usize>,
}

pub async fn history(me: AuthorizedCaller, at: RequestTarget, uri: Uri) -> Answer {
    let HistoryQuery { from, limit } = query_of(&uri)?;
    let limit = limit.unwrap_or(100);
    if !(1..=PAGE_MAX).contains(&limit) {
        return Err(Problem::bad_request(format!("limit: a page has 1 to {PAGE_MAX} events")));
    }
    let from = EventId(from.unwrap_or(1).max(1));
    let events = me.backend.history(at.target, from, limit).await?;
    let next = events.last().filter(|_| events.len() == limit).map(|last| last.id.0 + 1);
    ok(json!({ "events": events.iter().map(view::event).collect::<Vec<Value>>(), "next_from": next }))
}

#[derive(Deserialize)]
struct ResultQuery {
    wait: Option<String>,
}

/// The result; 202 while the run is open. It waits as long as is asked for, but no longer than [`WAIT_MAX`].
pub async fn result(me: AuthorizedCaller, at: RequestTarget, uri: Uri) -> Answer {
    let ResultQuery { wait } = query_of(&uri)?;
    let wait = wait.map(|text| text.parse::<Span>().map_err(|why| Problem::bad_request(format!("wait: {why}"))));
    let wait = wait.transpose()?.map_or(Duration::ZERO, Duration::from).min(WAIT_MAX);
    let request = ResultRequest { follow_runs: at.target.run_id.is_none(), timeout: Some(wait) };
    let Some(found) = me.backend.result(at.target, request).await? else {
        let answer = json!({ "status": WorkflowStatus::Running });
        return Ok((StatusCode::ACCEPTED, Json(answer)).into_response());
    };
    let mut answer = view::outcome(&found.outcome);
    answer["workflow_id"] = json!(found.workflow_id);
    answer["run_id"] = json!(found.run_id);
    ok(answer)
}

fn payload(body: &Bytes) -> Result<Payload, Problem> {
    Payload::encode(&json_of(body)?).map_err(|why| Problem::bad_request(format!("the body: {why}")))
}

/// The body is the signal's input.
pub async fn signal(me: AuthorizedCaller, at: RequestTarget, headers: HeaderMap, body: Bytes) -> Answer {
    let signal = SignalRequest {
        name: at.param("name")?,
        input: payload(&body)?,
        identity: None,
        request_id: request_id(&headers)?,
    };
    me.backend.signal(at.target, signal).await?;
    Ok((StatusCode::ACCEPTED, Json(json!({}))).into_response())
}

/// The body is the query's input.
pub async fn query(me: AuthorizedCaller, at: RequestTarget, body: Bytes) -> Answer {
    let answer = me.backend.query(at.target.clone(), at.param("name")?, payload(&body)?).await?;
    ok(json!({ "result": answer.to_json() }))
}

/// The body is the update's input. An update that the code refuses has changed nothing.
pub async fn update(me: AuthorizedCaller, at: RequestTarget, headers: HeaderMap, body: Bytes) -> Answer {
    let id = match key(&headers)? {
        Some(key) => key,
        None => random_hex(8).map_err(|why| Problem::bad_request(format!("no random numbers for an id: {why}")))?,
    };
    let update_id = UpdateId::new(id).map_err(|why| Problem::bad_request(format!("Idempotency-Key: {why}")))?;
    let request = UpdateRequest {
        update_id: update_id.clone(),
        name: at.param("name")?,
        input: payload(&body)?,
        identity: None,
        wait: UpdateWait::Completed,
    };
    match me.backend.update(at.target, request).await? {
        UpdateOutcome::Completed(Ok(answer)) => ok(json!({ "update_id": update_id, "result": answer.to_json() })),
        UpdateOutcome::Completed(Err(why)) => {
            let problem = Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "update_failed", why.to_string());
            Ok((
                problem.status,
                Json(json!({ "code": problem.code, "message": problem.message, "failure": view::failure(&why) })),
            )
                .into_response())
        }
        UpdateOutcome::Accepted => Ok((StatusCode::ACCEPTED, Json(json!({ "update_id": update_id }))).into_response()),
    }
}

/// `{"reason": …}`, or nothing.
fn because(headers: &HeaderMap, body: &Bytes) -> Result<Attribution, Problem> {
    let mut members = Members::read(body)?;
    let reason = members.text("reason").unwrap_or_default();
    members.done()?;
    Ok(Attribution { reason, identity: None, request_id: request_id(headers)? })
}

pub async fn cancel(me: AuthorizedCaller, at: RequestTarget, headers: HeaderMap, body: Bytes) -> Answer {
    me.backend.cancel(at.target, because(&headers, &body)?).await?;
    Ok((StatusCode::ACCEPTED, Json(json!({}))).into_response())
}

pub async fn terminate(me: AuthorizedCaller, at: RequestTarget, headers: HeaderMap, body: Bytes) -> Answer {
    me.backend.terminate(at.target, because(&headers, &body)?).await?;
    ok(json!({}))
}

pub async fn pause(me: AuthorizedCaller, at: RequestTarget, headers: HeaderMap, body: Bytes) -> Answer {
    let because = because(&headers, &body)?;
    match holds_itself(&me, &at.target).await? {
        true => hold(&me, at.target, control::PAUSE, because).await?,
        false => me.backend.pause(at.target, because).await?,
    }
    ok(json!({}))
}

pub async fn resume(me: AuthorizedCaller, at: RequestTarget, headers: HeaderMap, body: Bytes) -> Answer {
    let because = because(&headers, &body)?;
    match holds_itself(&me, &at.target).await? {
        true => hold(&me, at.target, control::RESUME, because).await?,
        false => me.backend.unpause(at.target, because).await?,
    }
    ok(json!({}))
}

/// Supervisors and agents pause themselves, and what is below them; any other run is paused by the engine.
async fn holds_itself(me: &AuthorizedCaller, target: &Target) -> Result<bool, Problem> {
    let info = me.backend.describe(target.clone()).await?.info;
    Ok(info.status != WorkflowStatus::Paused && [SUPERVISOR, AGENT].contains(&info.workflow_type.as_str()))
}

async fn hold(me: &AuthorizedCaller, target: Target, signal: &str, because: Attribution) -> Result<(), Problem> {
    let input =
        Payload::encode(&json!({ "reason": because.reason })).map_err(|why| Problem::bad_request(why.to_string()))?;
    let name = SignalName::of(signal);
    Ok(me.backend.signal(target, SignalRequest { name, input, identity: None, request_id: because.request_id }).await?)
}
