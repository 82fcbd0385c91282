//! What is asked by whoever watches the worker: whether it lives, whether it takes work, what it measures.
//!
//! Invariant: whoever has no token learns whether, and never why.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;

use super::handlers::{Api, AuthorizedCaller};
use super::problem::Problem;
use crate::backend::{Backend, EngineHealth};
use crate::telemetry::prometheus_text::prometheus_text;

/// How it is, and how many threads it has lost to code that does not come back.
async fn health_response(api: &Api, health: EngineHealth, ready: bool) -> Response {
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let mut answer = json!(health);
    if let Ok(state) = api.backend.worker_state().await {
        answer["lost_threads"] = json!(state.lost_threads);
    }
    (status, Json(answer)).into_response()
}

/// 503 only when the log has failed: a draining worker is alive.
pub(super) async fn healthz(State(api): State<Api>) -> Response {
    health_told(&api, |health| !matches!(health, EngineHealth::StorageFailed { .. })).await
}

/// 503 whenever new work is refused.
pub(super) async fn readyz(State(api): State<Api>) -> Response {
    health_told(&api, |health| *health == EngineHealth::Ready).await
}

/// What went wrong is not told to strangers.
async fn health_told(api: &Api, is_good: impl Fn(&EngineHealth) -> bool) -> Response {
    match api.backend.health().await {
        Ok(health) => {
            let good = is_good(&health);
            let told = match health {
                EngineHealth::StorageFailed { .. } => EngineHealth::StorageFailed { why: String::new() },
                EngineHealth::StorageFull { .. } => EngineHealth::StorageFull { why: String::new() },
                other => other,
            };
            health_response(api, told, good).await
        }
        Err(why) => Problem::from(why).into_response(),
    }
}

/// What Prometheus reads. It shows the queues of all namespaces: whoever is bound to one is refused.
pub(super) async fn metrics(me: AuthorizedCaller, headers: HeaderMap) -> Result<Response, Problem> {
    let text = me.backend.metrics().await?;
    if wants_plain_text(&headers) {
        let kind = "text/plain; version=0.0.4; charset=utf-8";
        return Ok(([(header::CONTENT_TYPE, kind)], prometheus_text(&text)).into_response());
    }
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(([(header::CONTENT_TYPE, kind)], text).into_response())
}

/// Whether the older format is asked for by name, and OpenMetrics is not.
fn wants_plain_text(headers: &HeaderMap) -> bool {
    let accepts = headers.get_all(header::ACCEPT).into_iter().filter_map(|value| value.to_str().ok());
    let kinds: Vec<&str> =
        accepts.flat_map(|value| value.split(',')).filter_map(|kind| kind.split(';').next()).collect();
    let accepts = |name: &str| kinds.iter().any(|kind| kind.trim().eq_ignore_ascii_case(name));
    accepts("text/plain") && !accepts("application/openmetrics-text")
}
