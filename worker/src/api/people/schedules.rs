//! All schedules with what each says of itself.
//!
//! Invariant: what is told is what schedules answer to their query `describe`; one that cannot answer is told with what the
//! engine knows. They are changed by the updates of their runs (`workflows/schedule:ID/updates/pause`).

use bosun_engine::*;
use futures_util::{StreamExt, stream};
use serde_json::{Value, json};

use super::super::handlers::AuthorizedCaller;
use super::handlers::{Answer, ok};
use super::queries::ask;
use super::view;
use crate::backend::{Backend, CallError};
use crate::inbox::target_of;
use crate::schedule::shown::ScheduleMood;
use crate::schedule::{ID_PREFIX, SCHEDULE};

/// Schedules that are shown, and asked at once.
const SHOWN: usize = 200;
const ASKED_AT_ONCE: usize = 8;

/// The open schedules, the newest first, with what each says of itself.
pub(crate) async fn all(backend: &dyn Backend) -> Result<Vec<(RunInfo, Value)>, CallError> {
    let query = format!("WorkflowType = '{SCHEDULE}' AND ExecutionStatus IN ('Running', 'Paused')");
    let runs = backend.list(ListRequest { query, limit: SHOWN }).await?;
    let told = |info: RunInfo| async move {
        let described = ask(backend, &target_of(&info), "describe").await;
        (info, described)
    };
    Ok(stream::iter(runs).map(told).buffered(ASKED_AT_ONCE).collect().await)
}

/// The name of a schedule: its workflow id without what all of them begin with.
pub(crate) fn name_of(info: &RunInfo) -> &str {
    let id = info.workflow_id.as_str();
    id.strip_prefix(ID_PREFIX).unwrap_or(id)
}

pub async fn schedules(me: AuthorizedCaller) -> Answer {
    let shown = |(info, described): &(RunInfo, Value)| {
        json!({ "schedule_id": name_of(info), "state": ScheduleMood::of(described).word(), "workflow": view::run(info),
            "description": described })
    };
    ok(json!({ "schedules": all(&me.backend).await?.iter().map(shown).collect::<Vec<Value>>() }))
}
