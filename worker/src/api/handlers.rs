//! The handlers: each reads its request, makes one call, and writes the answer.
//!
//! Invariant: ids are checked where they enter (length, characters) and never become a path of the file system
//! (engine.md G35); the only path a client may name is the target of a backup. No handler decides anything about a run.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{FromRequestParts, Path, Query, State};
use axum::http::request::Parts;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::{Json, body::Bytes};
use bosun_engine::workflow::WorkflowRegistry;
use bosun_engine::*;
use bosun_replay::{History, HistoryLimits};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::authority::CallerBackend;
use super::caller::Caller;
use super::json_depth::{HISTORY_DEPTH_MAX, JSON_DEPTH_MAX, json_depth};
use super::problem::Problem;
use super::stream::{json_lines, run_event_lines, turn_lines};
use crate::backend::{Attribution, Backend, WorkerState};
use crate::cli::Reach;

/// A page has at most this many rows (engine.md G34).
pub const PAGE_MAX: usize = 1_000;
/// A wait is answered after at most this long, with 204, so that no connection looks idle; the client asks again.
pub const WAIT_MAX: Duration = Duration::from_secs(20);

/// What handlers share.
#[derive(Clone)]
pub struct Api {
    pub backend: Arc<dyn Backend>,
    pub version: &'static str,
    /// The workflow code of the program: what replays a run.
    pub workflows: WorkflowRegistry,
    /// How a command that a page shows reaches this worker's directory.
    pub reach: Reach,
}

type Answer<T> = Result<Json<T>, Problem>;

/// The backend as the caller has it, whom the guard has let in.
pub struct AuthorizedCaller {
    pub(crate) backend: CallerBackend,
}

impl FromRequestParts<Api> for AuthorizedCaller {
    type Rejection = Problem;
    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<AuthorizedCaller, Problem> {
        let caller = parts.extensions.get::<Caller>().cloned();
        let nobody = || Problem::new(StatusCode::UNAUTHORIZED, "unauthorized", "nobody asks");
        Ok(AuthorizedCaller { backend: CallerBackend::new(api.backend.clone(), caller.ok_or_else(nobody)?) })
    }
}

/// The run that path and query name, and the other parameters of the path.
pub struct RequestTarget {
    pub(crate) target: Target,
    path: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct RunQuery {
    run_id: Option<String>,
    namespace: Option<String>,
}

impl FromRequestParts<Api> for RequestTarget {
    type Rejection = Problem;
    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<RequestTarget, Problem> {
        let Path(path) = Path::<BTreeMap<String, String>>::from_request_parts(parts, api)
            .await
            .map_err(|why| Problem::bad_request(why.body_text()))?;
        let run: RunQuery = query_of(&parts.uri)?;
        let id = path.get("id").ok_or_else(|| Problem::bad_request("no workflow id in the path"))?;
        let mut target = Target::workflow(id_of(id)?);
        target.run_id = run.run_id.map(|text| text.parse()).transpose().map_err(invalid)?;
        if let Some(namespace) = run.namespace {
            target.namespace = id_of(&namespace)?;
        }
        Ok(RequestTarget { target, path })
    }
}

impl RequestTarget {
    pub(super) fn param<T: std::str::FromStr<Err = InvalidId>>(&self, name: &str) -> Result<T, Problem> {
        id_of(self.path.get(name).map_or("", String::as_str))
    }
}

fn invalid(why: InvalidId) -> Problem {
    Rejection::Invalid { what: "id".into(), why: why.to_string() }.into()
}

fn id_of<T: std::str::FromStr<Err = InvalidId>>(text: &str) -> Result<T, Problem> {
    text.parse().map_err(invalid)
}

pub(super) fn query_of<T: DeserializeOwned>(uri: &Uri) -> Result<T, Problem> {
    Query::try_from_uri(uri).map(|Query(query)| query).map_err(|why| Problem::bad_request(why.body_text()))
}

fn body_of<T: DeserializeOwned>(body: &Bytes) -> Result<T, Problem> {
    body_within(JSON_DEPTH_MAX, body)
}

fn body_within<T: DeserializeOwned>(depth: usize, body: &Bytes) -> Result<T, Problem> {
    if json_depth(body) > depth {
        let message = format!("the JSON is nested more than {depth} levels deep");
        return Err(Problem::new(StatusCode::BAD_REQUEST, "json_too_deep", message));
    }
    let bad = |why: String| Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "bad_json", format!("the body: {why}"));
    let mut unknown = None;
    let mut json = serde_json::Deserializer::from_slice(body);
    let read = serde_ignored::deserialize(&mut json, |path| _ = unknown.get_or_insert_with(|| path.to_string()));
    let read = read.and_then(|read| json.end().map(|()| read)).map_err(|why| bad(why.to_string()))?;
    // Whoever sent it meant something by it, and would be told that it was done.
    unknown.map_or(Ok(read), |path| Err(bad(format!("nobody knows the field `{path}`"))))
}

pub async fn no_such_route(uri: Uri) -> Problem {
    Problem::new(StatusCode::NOT_FOUND, "no_such_route", format!("there is no {}", uri.path()))
}

pub async fn no_such_method(uri: Uri) -> Problem {
    let message = format!("{} does not have this method", uri.path());
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "no_such_method", message)
}

// ---- the worker

pub async fn worker(State(api): State<Api>) -> Answer<serde_json::Value> {
    let health = api.backend.health().await?;
    let WorkerState { lost_threads, memory, .. } = api.backend.worker_state().await?;
    Ok(Json(json!({
        "pid": std::process::id(),
        "version": api.version,
        "health": health,
        "lost_threads": lost_threads,
        "memory": memory,
        "process_trees": crate::capability::process::guard::strategy(),
    })))
}

// ---- workflows

pub async fn start(me: AuthorizedCaller, body: Bytes) -> Result<(StatusCode, Json<Started>), Problem> {
    let started = me.backend.start(body_of(&body)?).await?;
    let status = if started.newly_started { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(started)))
}

/// A fork. Turns that the client sends are hostile input and are checked as a history file is; they may be as many and as
/// deep as in a file (the guard lets this route have larger bodies).
pub async fn fork(me: AuthorizedCaller, body: Bytes) -> Answer<Forked> {
    let mut request: ForkRequest = body_within(HISTORY_DEPTH_MAX, &body)?;
    drop(body);
    if let ForkSource::History(turns) = request.source {
        let history = History::from_turns(turns, &HistoryLimits::default());
        let history =
            history.map_err(|why| Rejection::Invalid { what: "the history to fork".into(), why: why.to_string() })?;
        request.source = ForkSource::History(history.into_turns());
    }
    Ok(Json(me.backend.fork(request).await?))
}

/// A reset of a run, under its workflow id.
pub async fn reset(me: AuthorizedCaller, body: Bytes) -> Answer<ResetDone> {
    Ok(Json(me.backend.reset(body_of(&body)?).await?))
}

/// A start with a signal or an update.
#[derive(Debug, Serialize, Deserialize)]
pub struct WithStart<T> {
    pub start: StartWorkflow,
    pub then: T,
}

pub async fn signal_with_start(me: AuthorizedCaller, body: Bytes) -> Answer<Started> {
    let WithStart { start, then } = body_of(&body)?;
    Ok(Json(me.backend.signal_with_start(start, then).await?))
}

pub async fn update_with_start(me: AuthorizedCaller, body: Bytes) -> Answer<(Started, UpdateOutcome)> {
    let WithStart { start, then } = body_of(&body)?;
    Ok(Json(me.backend.update_with_start(start, then).await?))
}

#[derive(Deserialize)]
struct ListQuery {
    #[serde(default)]
    query: String,
    limit: Option<usize>,
    /// Of `watch`: the last group the caller has seen.
    after: Option<u64>,
}

pub async fn list(me: AuthorizedCaller, uri: Uri) -> Answer<Vec<RunInfo>> {
    let ListQuery { query, limit, after: _ } = query_of(&uri)?;
    // And one, by which a caller knows whether there are more.
    let limit = limit.unwrap_or(100).min(PAGE_MAX + 1);
    Ok(Json(me.backend.list(ListRequest { query, limit }).await?))
}

pub async fn count(me: AuthorizedCaller, uri: Uri) -> Answer<serde_json::Value> {
    let query: ListQuery = query_of(&uri)?;
    Ok(Json(json!({ "count": me.backend.count(query.query).await? })))
}

pub async fn watch(me: AuthorizedCaller, uri: Uri) -> Result<Response, Problem> {
    let query: ListQuery = query_of(&uri)?;
    Ok(run_event_lines(me.backend.watch(query.query, query.after.map(GroupSeq))))
}

pub async fn describe(me: AuthorizedCaller, at: RequestTarget) -> Answer<Description> {
    Ok(Json(me.backend.describe(at.target).await?))
}

pub async fn delete(me: AuthorizedCaller, at: RequestTarget) -> Answer<()> {
    Ok(Json(me.backend.delete(at.target).await?))
}

#[derive(Deserialize)]
struct HistoryQuery {
    from: Option<u64>,
    limit: Option<usize>,
    #[serde(default)]
    follow: bool,
}

impl HistoryQuery {
    fn from(&self) -> EventId {
        EventId(self.from.unwrap_or(1).max(1))
    }
}

pub async fn history(me: AuthorizedCaller, at: RequestTarget, uri: Uri) -> Answer<Vec<Event>> {
    let query: HistoryQuery = query_of(&uri)?;
    let limit = query.limit.unwrap_or(PAGE_MAX).min(PAGE_MAX);
    Ok(Json(me.backend.history(at.target, query.from(), limit).await?))
}

pub async fn turns(me: AuthorizedCaller, at: RequestTarget) -> Result<Response, Problem> {
    Ok(turn_lines(me.backend.turns(at.target).await?))
}

pub async fn events(me: AuthorizedCaller, at: RequestTarget, uri: Uri) -> Result<Response, Problem> {
    let query: HistoryQuery = query_of(&uri)?;
    // A missing run must be a 404, and once the stream has begun it is too late for a status.
    me.backend.history(at.target.clone(), EventId(1), 1).await?;
    Ok(json_lines(me.backend.events(at.target, query.from(), query.follow)))
}

#[derive(Deserialize)]
struct WaitQuery {
    #[serde(default)]
    follow_runs: bool,
    timeout_ms: Option<u64>,
}

pub async fn result(me: AuthorizedCaller, at: RequestTarget, uri: Uri) -> Result<Response, Problem> {
    let query: WaitQuery = query_of(&uri)?;
    let wait = query.timeout_ms.map_or(WAIT_MAX, Duration::from_millis).min(WAIT_MAX);
    let request = ResultRequest { follow_runs: query.follow_runs, timeout: Some(wait) };
    Ok(match me.backend.result(at.target, request).await? {
        Some(result) => Json(result).into_response(),
        None => StatusCode::NO_CONTENT.into_response(),
    })
}

pub async fn signal(me: AuthorizedCaller, at: RequestTarget, body: Bytes) -> Answer<()> {
    Ok(Json(me.backend.signal(at.target, body_of(&body)?).await?))
}

/// The body of a query.
#[derive(Debug, Serialize, Deserialize)]
pub struct QueryBody {
    pub name: QueryName,
    #[serde(default)]
    pub input: Payload,
}

pub async fn query(me: AuthorizedCaller, at: RequestTarget, body: Bytes) -> Answer<Payload> {
    let QueryBody { name, input } = body_of(&body)?;
    Ok(Json(me.backend.query(at.target, name, input).await?))
}

pub async fn update(me: AuthorizedCaller, at: RequestTarget, body: Bytes) -> Answer<UpdateOutcome> {
    Ok(Json(me.backend.update(at.target, body_of(&body)?).await?))
}

pub async fn update_result(me: AuthorizedCaller, at: RequestTarget) -> Answer<UpdateOutcome> {
    let update: UpdateId = at.param("update_id")?;
    Ok(Json(me.backend.update_result(at.target, update).await?))
}

pub async fn cancel(me: AuthorizedCaller, at: RequestTarget, body: Bytes) -> Answer<()> {
    let because: Attribution = body_of(&body)?;
    Ok(Json(me.backend.cancel(at.target, because).await?))
}

pub async fn terminate(me: AuthorizedCaller, at: RequestTarget, body: Bytes) -> Answer<()> {
    let because: Attribution = body_of(&body)?;
    Ok(Json(me.backend.terminate(at.target, because).await?))
}

pub async fn pause(me: AuthorizedCaller, at: RequestTarget, body: Bytes) -> Answer<()> {
    let because: Attribution = body_of(&body)?;
    Ok(Json(me.backend.pause(at.target, because).await?))
}

pub async fn unpause(me: AuthorizedCaller, at: RequestTarget, body: Bytes) -> Answer<()> {
    let because: Attribution = body_of(&body)?;
    Ok(Json(me.backend.unpause(at.target, because).await?))
}

// ---- activities

pub async fn pause_activity(me: AuthorizedCaller, at: RequestTarget, body: Bytes) -> Answer<()> {
    let (activity, because) = (at.param("activity_id")?, body_of(&body)?);
    Ok(Json(me.backend.pause_activity(at.target, activity, because).await?))
}

pub async fn unpause_activity(me: AuthorizedCaller, at: RequestTarget, body: Bytes) -> Answer<()> {
    let (activity, because) = (at.param("activity_id")?, body_of(&body)?);
    Ok(Json(me.backend.unpause_activity(at.target, activity, because).await?))
}

pub async fn update_activity(me: AuthorizedCaller, at: RequestTarget, body: Bytes) -> Answer<()> {
    let (activity, asked) = (at.param("activity_id")?, body_of(&body)?);
    Ok(Json(me.backend.update_activity(at.target, activity, asked).await?))
}

pub async fn complete_activity(me: AuthorizedCaller, Path(token): Path<String>, body: Bytes) -> Answer<()> {
    let token: TaskToken = token.parse()?;
    let completion: ActivityCompletion = body_of(&body)?;
    Ok(Json(me.backend.complete_activity(token, completion).await?))
}

// ---- the store

pub async fn store_info(me: AuthorizedCaller) -> Answer<serde_json::Value> {
    Ok(Json(me.backend.store_info().await?))
}

/// A body that says nothing.
#[derive(Deserialize)]
struct EmptyBody {}

pub async fn verify(me: AuthorizedCaller, body: Bytes) -> Answer<serde_json::Value> {
    let EmptyBody {} = body_of(&body)?;
    Ok(Json(me.backend.verify().await?))
}

/// The body of a backup request: an absolute path on the worker's machine.
#[derive(Debug, Serialize, Deserialize)]
pub struct BackupBody {
    pub to: PathBuf,
}

pub async fn backup(me: AuthorizedCaller, body: Bytes) -> Answer<serde_json::Value> {
    let BackupBody { to } = body_of(&body)?;
    if !to.is_absolute() {
        let why = "an absolute path is needed: the worker's working directory is not yours".to_owned();
        return Err(Rejection::Invalid { what: format!("backup target {}", to.display()), why }.into());
    }
    Ok(Json(me.backend.backup(to).await?))
}
