//! The handlers: each reads its request, makes one call, and writes the answer.
//!
//! Invariant: ids are checked where they enter (length, characters) and never become a path of the file system
//! (G35). No handler decides anything about a run. Here the values are exact (`routes::EXACT`); `people` has the
//! handlers of plain JSON.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{FromRequestParts, Path, Query};
use axum::http::request::Parts;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::{Json, body::Bytes};
use bosun_engine::workflow::WorkflowRegistry;
use bosun_engine::*;
use bosun_replay::{History, HistoryLimits};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::authority::CallerBackend;
use super::caller::Caller;
use super::json_depth::{HISTORY_DEPTH_MAX, JSON_DEPTH_MAX, json_depth};
use super::people::pages::parse;
use super::problem::Problem;
use super::routes::{EXACT, is_exact};
use super::stream::{json_lines, run_event_lines, turn_lines};
use crate::backend::{Attribution, Backend, WorkerState};
use crate::cli::Reach;
use crate::notify::links::Links;
use crate::own_work::may_be_started;
use crate::standing;

/// A page has at most this many rows (G34).
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
    /// How a command that a page shows, or the API tells, reaches this worker's directory.
    pub reach: Reach,
    /// What links decide.
    pub(crate) links: Option<Arc<Links>>,
}

type HandlerResult<T> = Result<Json<T>, Problem>;

/// The backend as the caller has it, whom the guard has let in.
pub struct AuthorizedCaller {
    pub(crate) backend: CallerBackend,
    /// How a command that they are told reaches this worker.
    pub(crate) reach: Reach,
}

impl FromRequestParts<Api> for AuthorizedCaller {
    type Rejection = Problem;
    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<AuthorizedCaller, Problem> {
        let caller = parts.extensions.get::<Caller>().cloned();
        let nobody = || Problem::new(StatusCode::UNAUTHORIZED, "unauthorized", "nobody asks");
        let backend = CallerBackend::new(api.backend.clone(), caller.ok_or_else(nobody)?);
        Ok(AuthorizedCaller { backend, reach: api.reach.clone() })
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
        target.run_id = run.run_id.map(|text| text.parse()).transpose().map_err(|why| not_valid("run_id", &why))?;
        let own = parts.extensions.get::<Caller>().and_then(Caller::only_namespace);
        match (run.namespace, own) {
            (Some(namespace), _) => target.namespace = id_of(&namespace)?,
            // Whoever sees one namespace means that: a list shows its runs, and each is there by its id alone.
            (None, Some(own)) if !is_exact(&parts.headers) => target.namespace = own.clone(),
            (None, _) => {}
        }
        Ok(RequestTarget { target, path })
    }
}

impl RequestTarget {
    pub(super) fn param<T: std::str::FromStr<Err = InvalidId>>(&self, name: &str) -> Result<T, Problem> {
        id_of(self.path.get(name).map_or("", String::as_str))
    }

    /// Refuses a body that is for another message than its path.
    fn names(&self, in_body: &str) -> Result<(), Problem> {
        let in_path = self.path.get("name").map_or("", String::as_str);
        match in_path == in_body {
            true => Ok(()),
            false => Err(Problem::bad_request(format!("the path says {in_path:?}, the body {in_body:?}"))),
        }
    }
}

fn invalid(why: InvalidId) -> Problem {
    not_valid("id", &why)
}

fn not_valid(what: &str, why: &InvalidId) -> Problem {
    Rejection::Invalid { what: what.into(), why: why.to_string() }.into()
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

/// The plain form of what has none: a history is not plain JSON.
pub async fn exact_only(uri: Uri) -> Problem {
    let message = format!("{} takes and gives exact values only: `Accept: {EXACT}`", uri.path());
    Problem::new(StatusCode::NOT_ACCEPTABLE, "exact_only", message)
}

pub async fn no_such_method(uri: Uri) -> Problem {
    let message = format!("{} does not have this method", uri.path());
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "no_such_method", message)
}

// ---- workflows

/// A start, and what the run is told with it: a signal or an update.
#[derive(Debug, Serialize, Deserialize)]
pub struct StartRequestBody {
    pub start: StartWorkflow,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<SignalRequest>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update: Option<UpdateRequest>,
}

/// The answer to a start: of an update only if one was asked for.
#[derive(Debug, Serialize, Deserialize)]
pub struct StartAnswer {
    pub started: Started,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update: Option<UpdateOutcome>,
}

pub async fn start(me: AuthorizedCaller, body: Bytes) -> Result<(StatusCode, Json<StartAnswer>), Problem> {
    let StartRequestBody { start, signal, update } = body_of(&body)?;
    may_be_started(&me.backend, &start).await?;
    let (started, update) = match (signal, update) {
        (None, None) => (me.backend.start(start).await?, None),
        (Some(signal), None) => (me.backend.signal_with_start(start, signal).await?, None),
        (None, Some(update)) => {
            let (started, outcome) = me.backend.update_with_start(start, update).await?;
            (started, Some(outcome))
        }
        (Some(_), Some(_)) => {
            let why = "a start takes a signal or an update, not both".to_owned();
            return Err(Rejection::Invalid { what: "start".into(), why }.into());
        }
    };
    let status = if started.newly_started { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(StartAnswer { started, update })))
}

/// A fork. Turns that the client sends are hostile input and are checked as a history file is; they may be as many and as
/// deep as in a file (the guard lets this route have larger bodies).
pub async fn fork(me: AuthorizedCaller, body: Bytes) -> HandlerResult<Forked> {
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

/// A reset of the run that the path names, under its workflow id.
pub async fn reset(me: AuthorizedCaller, at: RequestTarget, body: Bytes) -> HandlerResult<ResetDone> {
    let request: ResetRequest = body_of(&body)?;
    Ok(Json(me.backend.reset(ResetRequest { target: at.target, ..request }).await?))
}

#[derive(Deserialize)]
struct ProtocolListQuery {
    #[serde(default)]
    query: String,
    limit: Option<usize>,
    /// Of `watch`: the last group the caller has seen.
    after: Option<u64>,
}

pub async fn list(me: AuthorizedCaller, uri: Uri) -> HandlerResult<Vec<RunInfo>> {
    let ProtocolListQuery { query, limit, after: _ } = query_of(&uri)?;
    // And one, by which a caller knows whether there are more.
    let limit = limit.unwrap_or(100).min(PAGE_MAX + 1);
    Ok(Json(standing::list(&me.backend, &parse(&query)?, limit).await?))
}

pub async fn worker_state(me: AuthorizedCaller) -> HandlerResult<WorkerState> {
    Ok(Json(me.backend.worker_state().await?))
}

pub async fn queue_shares(me: AuthorizedCaller, Path(name): Path<String>) -> HandlerResult<Vec<WaitingShare>> {
    Ok(Json(me.backend.queue_shares(id_of(&name)?, None).await?))
}

pub async fn watch(me: AuthorizedCaller, uri: Uri) -> Result<Response, Problem> {
    let query: ProtocolListQuery = query_of(&uri)?;
    super::people::filter_of(&query.query)?;
    Ok(run_event_lines(me.backend.watch(query.query, query.after.map(GroupSeq))))
}

pub async fn describe(me: AuthorizedCaller, at: RequestTarget) -> HandlerResult<Description> {
    Ok(Json(me.backend.describe(at.target).await?))
}

pub async fn delete(me: AuthorizedCaller, at: RequestTarget) -> HandlerResult<()> {
    Ok(Json(me.backend.delete(at.target).await?))
}

#[derive(Deserialize)]
struct ProtocolHistoryQuery {
    from: Option<u64>,
    limit: Option<usize>,
    #[serde(default)]
    follow: bool,
}

impl ProtocolHistoryQuery {
    fn from(&self) -> EventId {
        EventId(self.from.unwrap_or(1).max(1))
    }
}

pub async fn history(me: AuthorizedCaller, at: RequestTarget, uri: Uri) -> HandlerResult<Vec<Event>> {
    let query: ProtocolHistoryQuery = query_of(&uri)?;
    let limit = query.limit.unwrap_or(PAGE_MAX).min(PAGE_MAX);
    Ok(Json(me.backend.history(at.target, query.from(), limit).await?))
}

pub async fn turns(me: AuthorizedCaller, at: RequestTarget) -> Result<Response, Problem> {
    Ok(turn_lines(me.backend.turns(at.target).await?))
}

pub async fn events(me: AuthorizedCaller, at: RequestTarget, uri: Uri) -> Result<Response, Problem> {
    let query: ProtocolHistoryQuery = query_of(&uri)?;
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

pub async fn signal(me: AuthorizedCaller, at: RequestTarget, body: Bytes) -> HandlerResult<()> {
    let request: SignalRequest = body_of(&body)?;
    at.names(request.name.as_str())?;
    Ok(Json(me.backend.signal(at.target, request).await?))
}

/// The body is the query's input.
pub async fn query(me: AuthorizedCaller, at: RequestTarget, body: Bytes) -> HandlerResult<Payload> {
    let (name, input) = (at.param("name")?, body_of(&body)?);
    Ok(Json(me.backend.query(at.target, name, input).await?))
}

pub async fn update(me: AuthorizedCaller, at: RequestTarget, body: Bytes) -> HandlerResult<UpdateOutcome> {
    let request: UpdateRequest = body_of(&body)?;
    at.names(request.name.as_str())?;
    Ok(Json(me.backend.update(at.target, request).await?))
}

pub async fn update_result(me: AuthorizedCaller, at: RequestTarget) -> HandlerResult<UpdateOutcome> {
    let update: UpdateId = at.param("update_id")?;
    Ok(Json(me.backend.update_result(at.target, update).await?))
}

pub async fn cancel(me: AuthorizedCaller, at: RequestTarget, body: Bytes) -> HandlerResult<()> {
    let because: Attribution = body_of(&body)?;
    Ok(Json(me.backend.cancel(at.target, because).await?))
}

pub async fn terminate(me: AuthorizedCaller, at: RequestTarget, body: Bytes) -> HandlerResult<()> {
    let because: Attribution = body_of(&body)?;
    Ok(Json(me.backend.terminate(at.target, because).await?))
}

pub async fn pause(me: AuthorizedCaller, at: RequestTarget, body: Bytes) -> HandlerResult<()> {
    let because: Attribution = body_of(&body)?;
    Ok(Json(me.backend.pause(at.target, because).await?))
}

pub async fn unpause(me: AuthorizedCaller, at: RequestTarget, body: Bytes) -> HandlerResult<()> {
    let because: Attribution = body_of(&body)?;
    Ok(Json(me.backend.unpause(at.target, because).await?))
}

// ---- activities

pub async fn pause_activity(me: AuthorizedCaller, at: RequestTarget, body: Bytes) -> HandlerResult<()> {
    let (activity, because) = (at.param("activity_id")?, body_of(&body)?);
    Ok(Json(me.backend.pause_activity(at.target, activity, because).await?))
}

pub async fn unpause_activity(me: AuthorizedCaller, at: RequestTarget, body: Bytes) -> HandlerResult<()> {
    let (activity, because) = (at.param("activity_id")?, body_of(&body)?);
    Ok(Json(me.backend.unpause_activity(at.target, activity, because).await?))
}

pub async fn update_activity(me: AuthorizedCaller, at: RequestTarget, body: Bytes) -> HandlerResult<()> {
    let (activity, asked) = (at.param("activity_id")?, body_of(&body)?);
    Ok(Json(me.backend.update_activity(at.target, activity, asked).await?))
}

pub async fn complete_activity(me: AuthorizedCaller, Path(token): Path<String>, body: Bytes) -> HandlerResult<()> {
    let token: TaskToken = token.parse()?;
    let completion: ActivityCompletion = body_of(&body)?;
    Ok(Json(me.backend.complete_activity(token, completion).await?))
}
