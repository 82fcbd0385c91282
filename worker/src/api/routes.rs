//! The routes, in one table: what the server serves is what the tests enumerate (engine.md G32).
//!
//! Invariant: a route exists only by standing here, and only `/healthz` is open to those without the token.

use axum::Router;
use axum::http::Method;
use axum::routing::{MethodRouter, delete, get, post};

use super::handlers as h;
use super::handlers::Api;

/// One method of one path.
pub struct Route {
    pub method: Method,
    pub path: &'static str,
    pub about: &'static str,
    handler: fn() -> MethodRouter<Api>,
}

/// The one path that needs no token.
pub const OPEN_PATH: &str = "/healthz";

/// The one path whose body may be a whole history.
pub const FORK_PATH: &str = "/api/v1/fork";

const fn route(method: Method, path: &'static str, about: &'static str, handler: fn() -> MethodRouter<Api>) -> Route {
    Route { method, path, about, handler }
}

/// Every route there is.
#[rustfmt::skip]
pub const ROUTES: &[Route] = &[
    route(Method::GET, "/healthz", "200 while the log works, else 503", || get(h::healthz)),
    route(Method::GET, "/readyz", "200 while new work is taken, else 503", || get(h::readyz)),
    route(Method::GET, "/api/v1/worker", "pid, version, health", || get(h::worker)),
    route(Method::POST, "/api/v1/workflows", "start", || post(h::start)),
    route(Method::GET, "/api/v1/workflows", "list", || get(h::list)),
    route(Method::GET, "/api/v1/workflow-count", "count", || get(h::count)),
    route(Method::POST, FORK_PATH, "a new run that begins with the history of another one", || post(h::fork)),
    route(Method::POST, "/api/v1/signal-with-start", "signal, starting the run if none is open", || post(h::signal_with_start)),
    route(Method::POST, "/api/v1/update-with-start", "update, starting the run if none is open", || post(h::update_with_start)),
    route(Method::GET, "/api/v1/watch", "events of all runs that match, as JSON lines", || get(h::watch)),
    route(Method::GET, "/api/v1/workflows/{id}", "describe", || get(h::describe)),
    route(Method::DELETE, "/api/v1/workflows/{id}", "delete a closed run", || delete(h::delete)),
    route(Method::GET, "/api/v1/workflows/{id}/history", "a page of events", || get(h::history)),
    route(Method::GET, "/api/v1/workflows/{id}/turns", "the whole history as JSON lines, a turn each, for replay and export", || get(h::turns)),
    route(Method::GET, "/api/v1/workflows/{id}/events", "events as JSON lines", || get(h::events)),
    route(Method::GET, "/api/v1/workflows/{id}/result", "wait for the result; 204: ask again", || get(h::result)),
    route(Method::POST, "/api/v1/workflows/{id}/signal", "signal", || post(h::signal)),
    route(Method::POST, "/api/v1/workflows/{id}/query", "query", || post(h::query)),
    route(Method::POST, "/api/v1/workflows/{id}/update", "update", || post(h::update)),
    route(Method::GET, "/api/v1/workflows/{id}/updates/{update_id}", "the state of an update", || get(h::update_result)),
    route(Method::POST, "/api/v1/workflows/{id}/cancel", "request cancellation", || post(h::cancel)),
    route(Method::POST, "/api/v1/workflows/{id}/terminate", "terminate", || post(h::terminate)),
    route(Method::POST, "/api/v1/workflows/{id}/pause", "pause", || post(h::pause)),
    route(Method::POST, "/api/v1/workflows/{id}/unpause", "unpause", || post(h::unpause)),
    route(Method::POST, "/api/v1/workflows/{id}/activities/{activity_id}/pause", "pause an activity", || post(h::pause_activity)),
    route(Method::POST, "/api/v1/workflows/{id}/activities/{activity_id}/unpause", "unpause an activity", || post(h::unpause_activity)),
    route(Method::POST, "/api/v1/activities/{token}", "complete, fail, cancel or heartbeat an attempt", || post(h::complete_activity)),
    route(Method::GET, "/api/v1/store", "what the store holds", || get(h::store_info)),
    route(Method::POST, "/api/v1/store/verify", "check the whole store", || post(h::verify)),
    route(Method::POST, "/api/v1/store/backup", "copy the store while it runs", || post(h::backup)),
];

/// The router of the table.
pub fn router() -> Router<Api> {
    ROUTES
        .iter()
        .fold(Router::new(), |router, route| router.route(route.path, (route.handler)()))
        .fallback(h::no_such_route)
        .method_not_allowed_fallback(h::no_such_method)
}
