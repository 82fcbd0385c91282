//! The routes, in one table: what the server serves is what the tests enumerate (G32).
//!
//! Invariant: a route of the API exists only by standing here, and only `/healthz` and `/readyz` are open to those without the token. All other
//! paths are pages', which `crate::ui` has in a table of its own.

use axum::Router;
use axum::extract::{Query, Request};
use axum::http::header::ACCEPT;
use axum::http::{HeaderMap, Method};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, delete, get, post};

use super::handlers as h;
use super::handlers::Api;
use super::people as p;
use super::problem::{InvalidField, Problem, plainly};
use super::watch as w;
use crate::supervisor::fields::similar;

/// One method of one path.
pub struct ApiRoute {
    pub method: Method,
    pub path: &'static str,
    pub about: &'static str,
    /// The parameters it takes in its query; another one is refused.
    pub query: &'static [&'static str],
    handler: fn() -> MethodRouter<Api>,
    /// The same in the engine's own words, where it has such a form.
    pub exact: Option<ExactForm>,
}

/// A route as the command line and other copies of Bosun ask it ([`EXACT`]).
#[derive(Clone, Copy)]
pub struct ExactForm {
    /// The parameters it takes in its query.
    pub query: &'static [&'static str],
    handler: fn() -> MethodRouter<Api>,
}

/// The media type of exact values: a payload with its encoding, an event as it is stored, a refusal that can be matched.
/// Whoever accepts it sends its bodies in that form too; all others send and get plain JSON. It changes with the version.
pub const EXACT: &str = "application/vnd.bosun+json";

/// Whether a request is in exact values.
pub fn is_exact(headers: &HeaderMap) -> bool {
    headers.get_all(ACCEPT).iter().any(|value| value.as_bytes() == EXACT.as_bytes())
}

/// What needs no token, so that a supervisor of processes can ask.
pub const OPEN_PATHS: [&str; 2] = ["/healthz", "/readyz"];

/// The page that asks who somebody is.
pub const SIGN_IN_PATH: &str = "/login";

/// The page that a signed link opens: whoever holds the link is let in, and for what it says alone.
pub const DECIDE_PATH: &str = "/decide";

/// What belongs to the pages: all that is not of the API.
pub fn is_page(path: &str) -> bool {
    !(path.starts_with("/api/") || OPEN_PATHS.contains(&path) || path == "/metrics")
}

/// The pages' looks and script, which are in every copy of the program: they are nobody's secret.
pub fn is_asset(path: &str) -> bool {
    path.starts_with("/assets/")
}

/// Where a link that signs in comes from.
pub const CODE_PATH: &str = "/api/v1/sign-in-code";

/// The one path whose body may be a whole history.
pub const FORK_PATH: &str = "/api/v1/forks";

const fn route(
    method: Method,
    path: &'static str,
    query: &'static [&'static str],
    about: &'static str,
    handler: fn() -> MethodRouter<Api>,
) -> ApiRoute {
    ApiRoute { method, path, about, query, handler, exact: None }
}

/// A route that has a form in exact values, with parameters of its own.
const fn both(
    method: Method,
    path: &'static str,
    query: &'static [&'static str],
    about: &'static str,
    handler: fn() -> MethodRouter<Api>,
    exact_query: &'static [&'static str],
    exact_handler: fn() -> MethodRouter<Api>,
) -> ApiRoute {
    let exact = Some(ExactForm { query: exact_query, handler: exact_handler });
    ApiRoute { method, path, about, query, handler, exact }
}

/// The parameters of routes that name a run, and of those that take none.
const RUN: &[&str] = &["run_id", "namespace"];
const NAMESPACE: &[&str] = &["namespace"];
const NONE: &[&str] = &[];

/// Every route there is.
#[rustfmt::skip]
pub const ROUTES: &[ApiRoute] = &[
    route(Method::GET, "/healthz", NONE, "200 while the log works, else 503", || get(w::healthz)),
    route(Method::GET, "/readyz", NONE, "200 while new work is taken, else 503", || get(w::readyz)),
    route(Method::GET, "/metrics", NONE, "what the worker measures of itself, as OpenMetrics text", || get(w::metrics)),
    route(Method::GET, "/api/v1", NONE, "where the document of this API is", || get(p::about)),
    route(Method::GET, "/api/v1/openapi.json", NONE, "this document", || get(p::openapi)),
    both(Method::POST, "/api/v1/workflows", NONE, "start a workflow execution", || post(p::start), NONE, || post(h::start)),
    both(Method::GET, "/api/v1/workflows", &["query", "limit", "cursor", "all"], "list workflow executions, the newest first", || get(p::list), &["query", "limit"], || get(h::list)),
    route(Method::GET, "/api/v1/workflow-count", &["query", "all"], "how many workflow executions fit a filter", || get(p::count)),
    both(Method::GET, "/api/v1/workflows/{id}", RUN, "describe a workflow execution, with what it waits for", || get(p::describe), RUN, || get(h::describe)),
    both(Method::DELETE, "/api/v1/workflows/{id}", RUN, "delete a closed run", || delete(p::delete), RUN, || delete(h::delete)),
    both(Method::GET, "/api/v1/workflows/{id}/history", &["run_id", "namespace", "from", "limit"], "a page of events", || get(p::history), &["run_id", "namespace", "from", "limit"], || get(h::history)),
    both(Method::GET, "/api/v1/workflows/{id}/events", &["run_id", "namespace", "from"], "the events of a run as they happen, as server-sent events", || get(p::run_events), &["run_id", "namespace", "from", "follow"], || get(h::events)),
    route(Method::GET, "/api/v1/workflows/{id}/state", &["run_id", "namespace", "at"], "the state of a run after any of its events, and whether the code still fits", || get(p::state)),
    both(Method::GET, "/api/v1/workflows/{id}/export", &["run_id", "namespace", "as"], "a run as a file: json, html, mermaid, perfetto", || get(p::export), RUN, || get(h::turns)),
    both(Method::GET, "/api/v1/workflows/{id}/result", &["run_id", "namespace", "wait"], "the result; 202 while the run is open", || get(p::result), &["run_id", "namespace", "follow_runs", "timeout_ms"], || get(h::result)),
    both(Method::POST, "/api/v1/workflows/{id}/signals/{name}", RUN, "signal", || post(p::signal), RUN, || post(h::signal)),
    both(Method::POST, "/api/v1/workflows/{id}/queries/{name}", RUN, "query", || post(p::query), RUN, || post(h::query)),
    both(Method::POST, "/api/v1/workflows/{id}/updates/{name}", RUN, "update, and wait for its answer", || post(p::update), RUN, || post(h::update)),
    both(Method::GET, "/api/v1/workflows/{id}/updates/{update_id}/result", RUN, "what has become of an update; 202 while it is under way", || get(p::update_result), RUN, || get(h::update_result)),
    route(Method::POST, "/api/v1/workflows/{id}/forks", RUN, "fork: a new run that begins with the history of this one", || post(p::fork)),
    both(Method::POST, "/api/v1/workflows/{id}/reset", RUN, "reset: go back to an earlier point of the history, under the same workflow id", || post(p::reset), RUN, || post(h::reset)),
    both(Method::POST, FORK_PATH, NONE, "fork a run of this or of another worker, whose history is sent; in exact values only", || post(h::exact_only), NONE, || post(h::fork)),
    both(Method::POST, "/api/v1/workflows/{id}/cancel", RUN, "request cancellation", || post(p::cancel), RUN, || post(h::cancel)),
    both(Method::POST, "/api/v1/workflows/{id}/terminate", RUN, "terminate", || post(p::terminate), RUN, || post(h::terminate)),
    route(Method::POST, "/api/v1/workflows/{id}/pause", RUN, "pause: a supervisor and an agent pause themselves and what is below them", || post(p::pause)),
    route(Method::POST, "/api/v1/workflows/{id}/resume", RUN, "let a paused run go on", || post(p::resume)),
    both(Method::POST, "/api/v1/workflows/{id}/execution/pause", RUN, "give the code of a run nothing, whatever workflow it is", || post(p::pause_execution), RUN, || post(h::pause)),
    both(Method::POST, "/api/v1/workflows/{id}/execution/resume", RUN, "end that pause", || post(p::resume_execution), RUN, || post(h::unpause)),
    route(Method::POST, "/api/v1/workflows/{id}/budget/top-up", RUN, "give a supervisor or an agent more budget; one that its own budget has paused goes on", || post(p::top_up)),
    both(Method::POST, "/api/v1/workflows/{id}/activities/{activity_id}/pause", RUN, "start no further attempt of an activity", || post(p::pause_activity), RUN, || post(h::pause_activity)),
    both(Method::POST, "/api/v1/workflows/{id}/activities/{activity_id}/resume", RUN, "let a paused activity go on", || post(p::resume_activity), RUN, || post(h::unpause_activity)),
    both(Method::POST, "/api/v1/workflows/{id}/activities/{activity_id}/update", RUN, "change a pending activity: its timeouts and policy, what its attempts count from, when it is tried next", || post(p::update_activity), RUN, || post(h::update_activity)),
    both(Method::POST, "/api/v1/activities/{token}", NONE, "complete, fail or cancel an attempt from outside, or say that it is alive", || post(p::complete_activity), NONE, || post(h::complete_activity)),
    route(Method::POST, "/api/v1/standalone-activities", NONE, "start an activity without a workflow, as a durable job of its own", || post(p::start_activity)),
    route(Method::GET, "/api/v1/standalone-activities/{id}", RUN, "describe an activity without a workflow", || get(p::standalone_activity)),
    route(Method::GET, "/api/v1/standalone-activities/{id}/result", &["run_id", "namespace", "wait"], "its result; 202 while it runs", || get(p::standalone_result)),
    route(Method::POST, "/api/v1/standalone-activities/{id}/cancel", RUN, "request its cancellation", || post(p::cancel_standalone)),
    both(Method::GET, "/api/v1/events", &["query"], "the events of all runs that fit, from now on, as server-sent events", || get(p::events), &["query", "after"], || get(h::watch)),
    route(Method::GET, "/api/v1/approvals", &["query", "cursor", "wait", "seen"], "what open runs ask people; it waits for it as long as is asked for", || get(p::approvals)),
    route(Method::POST, "/api/v1/workflows/{id}/answers", RUN, "answer what the run asks a person", || post(p::answer)),
    route(Method::GET, "/api/v1/agents", NONE, "who works in the runs, how it goes, what it costs, what keeps it", || get(p::agents)),
    route(Method::GET, "/api/v1/schedules", &["limit", "cursor"], "open schedules, the newest first, with what each says of itself", || get(p::schedules)),
    route(Method::POST, "/api/v1/schedules", NONE, "start a workflow at set times", || post(p::create_schedule)),
    route(Method::GET, "/api/v1/schedules/{id}", NAMESPACE, "one schedule, with what it says of itself", || get(p::schedule)),
    route(Method::DELETE, "/api/v1/schedules/{id}", NAMESPACE, "remove a schedule; what it has started goes on", || delete(p::delete_schedule)),
    route(Method::POST, "/api/v1/schedules/{id}/update", NAMESPACE, "another schedule in its place, unless it was changed since the version that was looked at", || post(p::update_schedule)),
    route(Method::POST, "/api/v1/schedules/{id}/pause", NAMESPACE, "start nothing by itself", || post(p::pause_schedule)),
    route(Method::POST, "/api/v1/schedules/{id}/unpause", NAMESPACE, "let a paused schedule go on", || post(p::unpause_schedule)),
    route(Method::POST, "/api/v1/schedules/{id}/trigger", NAMESPACE, "start once now, also while it is paused; `became` says whether it has `started`, `waits` for the run before it, or is `left_out` by the overlap policy", || post(p::trigger_schedule)),
    route(Method::POST, "/api/v1/schedules/{id}/backfill", NAMESPACE, "start the times of a range in the past, also while it is paused", || post(p::backfill_schedule)),
    route(Method::POST, "/api/v1/batches", NONE, "do one thing to every run that fits a filter, durably", || post(p::start_batch)),
    route(Method::GET, "/api/v1/batches", NONE, "the newest batches, with what each has counted", || get(p::batches)),
    route(Method::GET, "/api/v1/batches/{id}", RUN, "what a batch does, and what it has counted", || get(p::batch)),
    route(Method::POST, "/api/v1/batches/{id}/stop", RUN, "touch no further run", || post(p::stop_batch)),
    both(Method::GET, "/api/v1/queues", NONE, "the task queues: what waits in each, what runs, and what may", || get(p::queues), NONE, || get(h::worker_state)),
    both(Method::GET, "/api/v1/queues/{name}", NONE, "one task queue, with who waits in it, in the order of their turns", || get(p::queue), NONE, || get(h::queue_shares)),
    route(Method::GET, "/api/v1/worker", NONE, "the worker: health, slots, queues, workflow types, build", || get(p::worker)),
    route(Method::GET, "/api/v1/store", NONE, "what the store holds", || get(p::store)),
    route(Method::POST, "/api/v1/store/verify", NONE, "check the whole store", || post(p::verify)),
    route(Method::POST, "/api/v1/store/backup", NONE, "copy the store while it runs", || post(p::backup)),
    route(Method::POST, CODE_PATH, NONE, "a code by which a browser signs in, once, as whoever asks", || post(super::guard::sign_in_code)),
];

/// The router of the table: of exact values, or of plain JSON. What has no form of its own is the same in both.
pub fn router(exact: bool) -> Router<Api> {
    ROUTES.iter().fold(Router::new(), |router, route| {
        let (query, handler) = match route.exact {
            Some(form) if exact => (form.query, form.handler),
            _ => (route.query, route.handler),
        };
        let known = middleware::from_fn(move |request, next| known(query, request, next));
        let handler = handler().layer(known);
        let handler = if exact { handler } else { handler.layer(middleware::map_response(plainly)) };
        router.route(route.path, handler)
    })
}

/// Lets nothing through that nobody would look at: a parameter that is misspelt changes what is asked for.
async fn known(names: &'static [&'static str], request: Request, next: Next) -> Response {
    let given = Query::<Vec<(String, String)>>::try_from_uri(request.uri());
    let wrong: Vec<InvalidField> = match &given {
        Ok(Query(given)) => {
            let twice = |at: usize, name: &str| given[..at].iter().any(|(earlier, _)| earlier == name);
            let wrong = |(at, (name, value)): (usize, &(String, String))| match twice(at, name) {
                true => Some(InvalidField { at: name.clone(), why: "it is given twice".to_owned() }),
                false => wrong_parameter(name, value, names),
            };
            given.iter().enumerate().filter_map(wrong).collect()
        }
        // The handler says what is wrong with it.
        Err(_) => Vec::new(),
    };
    if wrong.is_empty() {
        return next.run(request).await;
    }
    let told: Vec<String> = wrong.iter().map(|one| format!("{}: {}", one.at, one.why)).collect();
    let problem = Problem::bad_request(told.join("; "));
    Problem { errors: wrong, ..problem }.into_response()
}

/// What is wrong with a parameter, as far as its name tells: so that all that is wrong is told at once.
fn wrong_parameter(name: &str, value: &str, names: &[&str]) -> Option<InvalidField> {
    let why = if !names.contains(&name) {
        let near = similar(name, names).map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
        format!("there is no query parameter {name:?} here{near}")
    } else {
        match name {
            "limit" | "from" | "at" | "after" | "timeout_ms" if value.parse::<u64>().is_err() => {
                format!("{value:?} is not a whole number from 0 on")
            }
            "all" | "follow" | "follow_runs" if value.parse::<bool>().is_err() => {
                format!("{value:?} is neither true nor false")
            }
            _ => return None,
        }
    };
    Some(InvalidField { at: name.to_owned(), why })
}
