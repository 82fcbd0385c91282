//! Refusals on the wire: one JSON body for every status but 2xx, which a client turns back into the same value.
//!
//! Invariant: a [`Rejection`] survives the trip through HTTP unchanged; the status code is for other programs.

use std::time::Duration;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bosun_engine::{QueryError, Rejection};
use serde::{Deserialize, Serialize};

use crate::backend::CallError;
use crate::schedule::{ID_PREFIX, IsSchedule};

/// The body of every refusal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Problem {
    /// For programs, for example `not_found`.
    pub code: String,
    /// For people.
    pub message: String,
    /// The engine's refusal, exactly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rejection: Option<Rejection>,
    /// All that is wrong with a body, each with its place.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<InvalidField>,
    #[serde(skip)]
    pub status: StatusCode,
}

/// What is wrong with a part of a body.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InvalidField {
    pub at: String,
    pub why: String,
}

impl Problem {
    pub fn new(status: StatusCode, code: &str, message: impl Into<String>) -> Self {
        Problem { code: code.into(), message: message.into(), rejection: None, errors: Vec::new(), status }
    }
    pub fn bad_request(message: impl Into<String>) -> Self {
        Problem::new(StatusCode::BAD_REQUEST, "bad_request", message)
    }
}

impl From<IsSchedule> for Problem {
    fn from(why: IsSchedule) -> Self {
        let instead = "`bosun schedule delete`, DELETE /api/v1/schedules/{id} or its page delete it; pausing it has it start nothing";
        Problem::new(StatusCode::CONFLICT, "is_schedule", format!("{why}; {instead}"))
    }
}

/// The status and the code of a refusal.
pub fn status_of(rejection: &Rejection) -> (StatusCode, &'static str) {
    use StatusCode as S;
    match rejection {
        Rejection::NotFound { .. } => (S::NOT_FOUND, "not_found"),
        Rejection::UnknownActivity { .. } => (S::NOT_FOUND, "unknown_activity"),
        Rejection::Closed { .. } => (S::CONFLICT, "closed"),
        Rejection::AlreadyOpen { .. } => (S::CONFLICT, "already_open"),
        Rejection::IdReused { .. } => (S::CONFLICT, "id_reused"),
        Rejection::StaleAttempt { .. } => (S::CONFLICT, "stale_epoch"),
        Rejection::AlreadyPaused => (S::CONFLICT, "already_paused"),
        Rejection::NotPaused => (S::CONFLICT, "not_paused"),
        Rejection::Held { .. } => (S::CONFLICT, "held"),
        Rejection::DoesNotFit { .. } => (S::CONFLICT, "does_not_fit"),
        Rejection::UnknownWorkflowType { .. } => (S::UNPROCESSABLE_ENTITY, "unknown_workflow_type"),
        Rejection::UpdateRefused { .. } => (S::UNPROCESSABLE_ENTITY, "update_refused"),
        Rejection::Query(QueryError::Unknown { .. }) => (S::UNPROCESSABLE_ENTITY, "unknown_query"),
        Rejection::Query(QueryError::Failed { .. }) => (S::UNPROCESSABLE_ENTITY, "query_failed"),
        Rejection::Query(QueryError::Mutated { .. }) => (S::UNPROCESSABLE_ENTITY, "query_mutated"),
        Rejection::InboxFull { .. } => (S::TOO_MANY_REQUESTS, "inbox_full"),
        Rejection::Overloaded { .. } => (S::SERVICE_UNAVAILABLE, "overloaded"),
        Rejection::PayloadTooLarge { .. } => (S::PAYLOAD_TOO_LARGE, "payload_too_large"),
        Rejection::Invalid { .. } => (S::BAD_REQUEST, "invalid"),
        Rejection::ShuttingDown => (S::SERVICE_UNAVAILABLE, "shutting_down"),
        Rejection::StorageFailed { .. } => (S::SERVICE_UNAVAILABLE, "storage_failed"),
        Rejection::StorageFull { .. } => (S::INSUFFICIENT_STORAGE, "storage_full"),
        Rejection::Damaged { .. } => (S::INTERNAL_SERVER_ERROR, "damaged"),
        Rejection::StorageError { .. } => (S::INTERNAL_SERVER_ERROR, "storage_error"),
    }
}

/// When it makes sense to ask again; `None`: not at all, or not soon.
fn retry_after(rejection: &Rejection) -> Option<Duration> {
    match rejection {
        Rejection::Overloaded { retry_after, .. } => Some(*retry_after),
        Rejection::InboxFull { .. } | Rejection::ShuttingDown => Some(Duration::from_secs(1)),
        Rejection::StorageFull { .. } => Some(Duration::from_secs(5)),
        _ => None,
    }
}

impl From<Rejection> for Problem {
    fn from(rejection: Rejection) -> Self {
        let (status, code) = status_of(&rejection);
        let schedule = match &rejection {
            Rejection::AlreadyOpen { workflow_id, .. } => workflow_id.as_str().strip_prefix(ID_PREFIX),
            _ => None,
        };
        let exists = |id: &str| {
            format!(
                "there is a schedule {id} already: `bosun schedule update` or its page changes it, DELETE /api/v1/schedules/{id} \
                 removes it"
            )
        };
        Problem {
            code: code.into(),
            message: schedule.map_or_else(|| rejection.to_string(), exists),
            rejection: Some(rejection),
            errors: Vec::new(),
            status,
        }
    }
}

impl From<CallError> for Problem {
    fn from(why: CallError) -> Self {
        match why {
            CallError::Rejected(rejection) => rejection.into(),
            CallError::Refused { status: 403, code, message } => Problem::new(StatusCode::FORBIDDEN, &code, message),
            CallError::Refused { status: 409, code, message } => Problem::new(StatusCode::CONFLICT, &code, message),
            // Only when a worker serves a backend that is itself attached to another worker.
            other @ (CallError::Unreachable { .. }
            | CallError::Unproven { .. }
            | CallError::Unauthorized { .. }
            | CallError::Refused { .. }) => Problem::new(StatusCode::BAD_GATEWAY, "bad_gateway", other.to_string()),
        }
    }
}

/// The same refusal without the engine's value, whose form changes with the version: for whoever asks in plain JSON.
pub(super) async fn plainly(mut response: Response) -> Response {
    let Some(problem) = response.extensions_mut().remove::<Problem>() else { return response };
    let (mut parts, _) = response.into_parts();
    parts.headers.remove(header::CONTENT_LENGTH);
    let body = axum::Json(Problem { rejection: None, ..problem }).into_response().into_body();
    Response::from_parts(parts, body)
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let wait = match &self.rejection {
            Some(rejection) => retry_after(rejection),
            None => (self.status == StatusCode::SERVICE_UNAVAILABLE).then_some(Duration::from_secs(1)),
        };
        let mut response = (self.status, axum::Json(&self)).into_response();
        if let Some(wait) = wait {
            // Whole seconds, rounded up: a client that waits this long has waited long enough.
            let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds.max(1)));
        }
        if self.rejection.is_some() {
            // For `plainly`, which alone knows in which form it was asked.
            response.extensions_mut().insert(self.clone());
        }
        if self.status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
