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

use super::super::guard::now;
use super::super::handlers::{AuthorizedCaller, RequestTarget, WAIT_MAX, query_of};
use super::super::problem::Problem;
use super::super::token::random_hex;
use super::body::{Members, json as json_of};
use super::known::unknown_field;
use super::pages::{Cursor, RUNS_MAX, page, parse, without_notifications};
use super::start::{StartBody, StartMessage};
use super::{once, start as start_body, view};
use crate::agent::AGENT;
use crate::backend::{Attribution, Backend, CallError};
use crate::cli::stuck::Lookout;
use crate::cli::waiting::{hold_of, waiting};
use crate::notify::notified;
use crate::own_work::{may_be_ended, may_be_started};
use crate::standing;
use crate::supervisor::core::control;
use crate::supervisor::fields::similar;
use crate::supervisor::run::SUPERVISOR;
use crate::supervisor::spec::Span;
use crate::unhandled;

pub(super) type Answer = Result<Response, Problem>;

pub(super) fn ok(value: Value) -> Answer {
    Ok(Json(value).into_response())
}

/// What makes a request that is sent twice one request.
pub(super) fn key(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let Some(key) = headers.get("idempotency-key") else { return Ok(None) };
    match key.to_str().map(str::trim) {
        Ok(key) if !key.is_empty() => Ok(Some(key.to_owned())),
        _ => Err(Problem::bad_request("Idempotency-Key: it must be a text of printable characters")),
    }
}

pub(super) fn request_id(headers: &HeaderMap) -> Result<Option<RequestId>, Problem> {
    let invalid = |why: InvalidId| Problem::bad_request(format!("Idempotency-Key: {why}"));
    key(headers)?.map(|key| RequestId::new(key).map_err(invalid)).transpose()
}

pub async fn start(me: AuthorizedCaller, headers: HeaderMap, body: Bytes) -> Answer {
    let StartBody { start, then } = start_body::read(&body, key(&headers)?.as_deref(), &me.backend)?;
    let (workflow_type, namespace) = (start.workflow_type.clone(), start.namespace.clone());
    let (workflow_id, asked) = (start.workflow_id.clone(), start.clone());
    may_be_started(&me.backend, &asked).await?;
    if let Some(message) = &then {
        once::same_start_with(&me.backend, &asked, message).await?;
    }
    let started = match then {
        None => me.backend.start(start).await.map(|started| (started, None)),
        Some(StartMessage::Signal(signal)) => {
            me.backend.signal_with_start(start, signal).await.map(|started| (started, None))
        }
        Some(StartMessage::Update(update)) => {
            let id = update.update_id.clone();
            let both = me.backend.update_with_start(start, update).await;
            both.map(|(started, outcome)| (started, Some(update_view(&id, &outcome))))
        }
    };
    let (started, update) = started.map_err(|why| match why {
        // What is named is not there.
        CallError::Rejected(why @ Rejection::UnknownWorkflowType { .. }) => {
            let near = near_type(&why).map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
            let problem = Problem::from(why);
            Problem { status: StatusCode::NOT_FOUND, message: format!("{}{near}", problem.message), ..problem }
        }
        CallError::Rejected(why) => start_body::refused(why, &asked.input),
        why => why.into(),
    })?;
    once::same_start(&me.backend, &asked, &started).await?;
    let status = if started.newly_started { StatusCode::CREATED } else { StatusCode::OK };
    let mut answer = json!({
        "workflow_id": workflow_id, "run_id": started.run_id, "workflow_type": workflow_type, "namespace": namespace,
        "newly_started": started.newly_started,
    });
    if let Some(update) = update {
        answer["update"] = update;
    }
    Ok((status, Json(answer)).into_response())
}

/// The type that whoever named an unknown one may have meant.
fn near_type(why: &Rejection) -> Option<String> {
    let Rejection::UnknownWorkflowType { workflow_type, known } = why else { return None };
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    similar(workflow_type.as_str(), &known).map(str::to_owned)
}

#[derive(Deserialize)]
struct ListQuery {
    #[serde(default)]
    query: String,
    limit: Option<usize>,
    cursor: Option<String>,
    #[serde(default)]
    all: bool,
}

/// A page of runs, the newest first, and where the next one begins.
pub async fn list(me: AuthorizedCaller, uri: Uri) -> Answer {
    let ListQuery { query, limit, cursor, all } = query_of(&uri)?;
    let limit = limit.unwrap_or(100);
    if !(1..=RUNS_MAX).contains(&limit) {
        return Err(Problem::bad_request(format!("limit: a page has 1 to {RUNS_MAX} runs")));
    }
    let after = cursor.as_deref().map(Cursor::read).transpose()?;
    if let Some(unknown) = unknown_field(&me.backend, &query).await? {
        return Err(unknown.into());
    }
    let (found, next) = page(&me.backend, &query, all, limit, after).await?;
    let runs: Vec<Value> = standing::with_holds(&me.backend, found).await.iter().map(view::run).collect();
    ok(json!({ "workflows": runs, "next_cursor": next.map(|next| next.to_string()) }))
}

#[derive(Deserialize)]
struct CountQuery {
    #[serde(default)]
    query: String,
    #[serde(default)]
    all: bool,
}

pub async fn count(me: AuthorizedCaller, uri: Uri) -> Answer {
    let CountQuery { query, all } = query_of(&uri)?;
    if let Some(unknown) = unknown_field(&me.backend, &query).await? {
        return Err(unknown.into());
    }
    let filter = if all { parse(&query)? } else { without_notifications(parse(&query)?)? };
    ok(json!({ "count": standing::count(&me.backend, &filter).await? }))
}

/// Of people, and of the runs below it: the engine knows only what the code of this one awaits.
async fn what_it_waits_for(me: &AuthorizedCaller, seen: &Description, view: &mut Value) {
    let command = |text: &str| me.reach.complete_in(&seen.info.namespace, text);
    let waits = waiting(&me.backend, &seen.info).await;
    if let Some(hold) = hold_of(&seen.info, &waits) {
        view["control"] = hold.name().into();
    }
    view["waiting"] = waits.iter().map(|one| view::waiting(one, command(&one.answer))).collect();
    let stuck = Lookout::new(&me.backend, now()).below_described(seen).await;
    view["obstacles"] = stuck.iter().map(|one| view::obstacle(one, command(&one.help))).collect();
}

pub async fn describe(me: AuthorizedCaller, at: RequestTarget) -> Answer {
    let seen = me.backend.describe(at.target).await?;
    let mut view = view::description(&seen);
    what_it_waits_for(&me, &seen, &mut view).await;
    tell_unhandled(&mut view, &unhandled::of_run(&me.backend, &seen.info).await);
    let told = notified::of_run(&me.backend, &seen.info).await;
    if !told.is_empty() {
        view["notified"] = told.iter().map(|one| notified::with_moments(one, view::moment)).collect();
    }
    ok(view)
}

pub async fn delete(me: AuthorizedCaller, at: RequestTarget) -> Answer {
    match me.backend.delete(at.target).await {
        // It may be asked for again, when the run has ended.
        Err(CallError::Rejected(why @ Rejection::Invalid { .. })) => {
            Err(Problem::new(StatusCode::CONFLICT, "still_open", why.to_string()))
        }
        deleted => {
            deleted?;
            ok(json!({}))
        }
    }
}

/// How long somebody waits: no longer than [`WAIT_MAX`].
pub(super) fn wait_of(said: Option<String>) -> Result<Option<Duration>, Problem> {
    let read = said.map(|text| text.parse::<Span>().map_err(|why| Problem::bad_request(format!("wait: {why}"))));
    Ok(read.transpose()?.map(|span| Duration::from(span).min(WAIT_MAX)))
}

#[derive(Deserialize)]
struct ResultQuery {
    wait: Option<String>,
}

/// The result; 202 while the run is open. It waits as long as is asked for, but no longer than [`WAIT_MAX`].
pub async fn result(me: AuthorizedCaller, at: RequestTarget, uri: Uri) -> Answer {
    let ResultQuery { wait } = query_of(&uri)?;
    let wait = wait_of(wait)?.unwrap_or_default();
    let request = ResultRequest { follow_runs: at.target.run_id.is_none(), timeout: Some(wait) };
    let Some(found) = me.backend.result(at.target.clone(), request).await? else {
        let seen = me.backend.describe(at.target).await?;
        let mut answer = json!({ "status": seen.info.status });
        what_it_waits_for(&me, &seen, &mut answer).await;
        return Ok((StatusCode::ACCEPTED, Json(answer)).into_response());
    };
    let mut answer = view::outcome(&found.outcome);
    answer["workflow_id"] = json!(found.workflow_id);
    answer["run_id"] = json!(found.run_id);
    tell_unhandled(&mut answer, &unhandled::of_result(&me.backend, &at.target.namespace, &found).await);
    ok(answer)
}

/// The signals that nobody took, where there are any.
fn tell_unhandled(view: &mut Value, names: &[SignalName]) {
    if !names.is_empty() {
        view["unhandled_signals"] = json!(names);
    }
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
    once::signal(&me.backend, at.target, signal).await?;
    Ok((StatusCode::ACCEPTED, Json(json!({}))).into_response())
}

/// The body is the query's input.
pub async fn query(me: AuthorizedCaller, at: RequestTarget, body: Bytes) -> Answer {
    let answer = me.backend.query(at.target.clone(), at.param("name")?, payload(&body)?).await?;
    ok(json!({ "result": answer.to_json() }))
}

/// An update as it stands: its result, its failure, or neither while it is under way.
fn update_view(id: &UpdateId, outcome: &UpdateOutcome) -> Value {
    match outcome {
        UpdateOutcome::Completed(Ok(answer)) => json!({ "update_id": id, "result": answer.to_json() }),
        UpdateOutcome::Completed(Err(why)) => json!({ "update_id": id, "failure": view::failure(why) }),
        UpdateOutcome::Accepted => json!({ "update_id": id }),
    }
}

/// The body is the update's input. An update that the code refuses has changed nothing.
pub async fn update(me: AuthorizedCaller, at: RequestTarget, headers: HeaderMap, body: Bytes) -> Answer {
    let update_id = update_id(key(&headers)?)?;
    let request = UpdateRequest {
        update_id: update_id.clone(),
        name: at.param("name")?,
        input: payload(&body)?,
        identity: None,
        wait: UpdateWait::Completed,
    };
    let outcome = once::update(&me.backend, at.target, request, key(&headers)?.is_some()).await?;
    let mut told = update_view(&update_id, &outcome);
    Ok(match outcome {
        UpdateOutcome::Completed(Ok(_)) => Json(told).into_response(),
        UpdateOutcome::Completed(Err(why)) => {
            (told["code"], told["message"]) = ("update_failed".into(), why.to_string().into());
            (StatusCode::UNPROCESSABLE_ENTITY, Json(told)).into_response()
        }
        UpdateOutcome::Accepted => (StatusCode::ACCEPTED, Json(told)).into_response(),
    })
}

/// The id that makes an update that is sent twice one update.
pub(super) fn update_id(key: Option<String>) -> Result<UpdateId, Problem> {
    let id = match key {
        Some(key) => key,
        None => random_hex(8).map_err(|why| Problem::bad_request(format!("no random numbers for an id: {why}")))?,
    };
    UpdateId::new(id).map_err(|why| Problem::bad_request(format!("Idempotency-Key: {why}")))
}

/// What has become of an update; 202 while it is under way.
pub async fn update_result(me: AuthorizedCaller, at: RequestTarget) -> Answer {
    let id: UpdateId = at.param("update_id")?;
    let outcome = match me.backend.update_result(at.target, id.clone()).await {
        Err(CallError::Rejected(why @ Rejection::Invalid { .. })) => {
            return Err(Problem::new(StatusCode::NOT_FOUND, "unknown_update", why.to_string()));
        }
        outcome => outcome?,
    };
    let status = if outcome == UpdateOutcome::Accepted { StatusCode::ACCEPTED } else { StatusCode::OK };
    Ok((status, Json(update_view(&id, &outcome))).into_response())
}

/// `{"reason": …}`, or nothing.
pub(super) fn because(headers: &HeaderMap, body: &Bytes) -> Result<Attribution, Problem> {
    let mut members = Members::read(body)?;
    let reason = members.text("reason").unwrap_or_default();
    members.done()?;
    Ok(Attribution { reason, identity: None, request_id: request_id(headers)? })
}

pub async fn cancel(me: AuthorizedCaller, at: RequestTarget, headers: HeaderMap, body: Bytes) -> Answer {
    let because = because(&headers, &body)?;
    may_be_ended(&me.backend, &at.target).await?;
    once::cancel(&me.backend, at.target, because).await?;
    Ok((StatusCode::ACCEPTED, Json(json!({}))).into_response())
}

pub async fn terminate(me: AuthorizedCaller, at: RequestTarget, headers: HeaderMap, body: Bytes) -> Answer {
    let because = because(&headers, &body)?;
    may_be_ended(&me.backend, &at.target).await?;
    me.backend.terminate(at.target, because).await?;
    ok(json!({}))
}

pub async fn pause(me: AuthorizedCaller, at: RequestTarget, headers: HeaderMap, body: Bytes) -> Answer {
    let because = because(&headers, &body)?;
    match holds_itself(&me.backend, &at.target).await? {
        true => once::signal(&me.backend, at.target, of_hold(control::PAUSE, because)?).await?,
        false => me.backend.pause(at.target, because).await?,
    }
    ok(json!({}))
}

/// The engine gives the run's code nothing, be it a supervisor or not.
pub async fn pause_execution(me: AuthorizedCaller, at: RequestTarget, headers: HeaderMap, body: Bytes) -> Answer {
    me.backend.pause(at.target, because(&headers, &body)?).await?;
    ok(json!({}))
}

pub async fn resume_execution(me: AuthorizedCaller, at: RequestTarget, headers: HeaderMap, body: Bytes) -> Answer {
    me.backend.unpause(at.target, because(&headers, &body)?).await?;
    ok(json!({}))
}

/// A pause by whoever can pause the run: itself, or the engine.
pub(crate) async fn pause_run(backend: &dyn Backend, target: Target, because: Attribution) -> Result<(), CallError> {
    match holds_itself(backend, &target).await? {
        true => hold(backend, target, control::PAUSE, because).await,
        false => backend.pause(target, because).await,
    }
}

pub async fn resume(me: AuthorizedCaller, at: RequestTarget, headers: HeaderMap, body: Bytes) -> Answer {
    let because = because(&headers, &body)?;
    match holds_itself(&me.backend, &at.target).await? {
        true => once::signal(&me.backend, at.target, of_hold(control::RESUME, because)?).await?,
        false => me.backend.unpause(at.target, because).await?,
    }
    ok(json!({}))
}

/// Ends a pause by whoever paused the run.
pub(crate) async fn resume_run(backend: &dyn Backend, target: Target, because: Attribution) -> Result<(), CallError> {
    match holds_itself(backend, &target).await? {
        true => hold(backend, target, control::RESUME, because).await,
        false => backend.unpause(target, because).await,
    }
}

/// Gives a supervisor back that a person has taken over.
pub(crate) async fn release_run(backend: &dyn Backend, target: Target, because: Attribution) -> Result<(), CallError> {
    hold(backend, target, control::RELEASE, because).await
}

/// Supervisors and agents pause themselves, and what is below them; any other run is paused by the engine.
async fn holds_itself(backend: &dyn Backend, target: &Target) -> Result<bool, CallError> {
    let info = backend.describe(target.clone()).await?.info;
    Ok(info.status != WorkflowStatus::Paused && [SUPERVISOR, AGENT].contains(&info.workflow_type.as_str()))
}

async fn hold(backend: &dyn Backend, target: Target, signal: &str, because: Attribution) -> Result<(), CallError> {
    backend.signal(target, of_hold(signal, because)?).await
}

fn of_hold(signal: &str, because: Attribution) -> Result<SignalRequest, CallError> {
    let invalid = |why: PayloadError| Rejection::Invalid { what: "reason".into(), why: why.to_string() };
    let input = Payload::encode(&json!({ "reason": because.reason })).map_err(invalid)?;
    let name = SignalName::of(signal);
    Ok(SignalRequest { name, input, identity: None, request_id: because.request_id })
}
