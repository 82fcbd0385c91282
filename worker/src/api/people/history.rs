//! A run as it was, and as a file: its state after any event, and its history for other tools.
//!
//! Invariant: the state is made by replay with the code of this worker, in a process of its own, and calls nothing. Where the
//! code does not fit the history any more, that is told, with the event and the reason.

use axum::http::{HeaderValue, Uri, header};
use axum::response::{IntoResponse, Response};
use bosun_engine::EventId;
use bosun_replay::History;
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::handlers::{AuthorizedCaller, PAGE_MAX, RequestTarget, query_of};
use super::super::problem::Problem;
use super::handlers::{Answer, ok};
use super::view;
use crate::backend::Backend;
use crate::cli::PastFit;
use crate::past::past;
use crate::ui::export::{FORMS, file_of};

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
struct StateQuery {
    at: Option<u64>,
}

/// The run after an event, or after its last one; what that event changed, and whether the code still fits.
pub async fn state(me: AuthorizedCaller, at: RequestTarget, uri: Uri) -> Answer {
    let StateQuery { at: event } = query_of(&uri)?;
    let turns = me.backend.turns(at.target).await?;
    let seen = past(turns, event, false).await?;
    let moment = seen.moment;
    let fit = match &seen.fit {
        PastFit::Fits => json!({ "fits": true }),
        PastFit::Mismatch { event, card } => json!({ "fits": false, "event_id": event, "why": card }),
        PastFit::NotRun { why } => json!({ "fits": false, "why": why }),
    };
    let pending: Vec<Value> = moment.pending.iter().map(|(what, text)| json!({ "what": what, "text": text })).collect();
    let failed = moment.last_failure.as_ref();
    ok(json!({
        "event_id": moment.event, "event_type": moment.kind, "event_time": view::moment(moment.at),
        "last_event_id": seen.last, "at": moment.location, "changes": moment.changes, "pending": pending,
        "last_failure": failed.map(|(event, why)| json!({ "event_id": event, "failure": view::failure(why) })),
        "state": moment.state, "replay": fit,
    }))
}

#[derive(Deserialize)]
struct ExportQuery {
    #[serde(rename = "as")]
    form: Option<String>,
}

/// The run as a file: `json` to replay it, `html` to read it, `mermaid` and `perfetto` for other tools.
pub async fn export(me: AuthorizedCaller, at: RequestTarget, uri: Uri) -> Answer {
    let ExportQuery { form } = query_of(&uri)?;
    let form = form.as_deref().unwrap_or("json");
    // Said before anything is read.
    if !FORMS.contains(&form) {
        return Err(Problem::bad_request(format!("as: {form:?} is not one of {}", FORMS.join(", "))));
    }
    let turns = me.backend.turns(at.target).await?;
    file(&History::new(turns).map_err(|why| Problem::bad_request(why.to_string()))?, form).await
}

/// A file to keep: a browser saves it and shows none of it.
pub(crate) async fn file(history: &History, form: &str) -> Result<Response, Problem> {
    let (text, kind, ending) = file_of(history, form).await?;
    let mut response = text.into_response();
    let set = response.headers_mut();
    set.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    if let Ok(name) = HeaderValue::from_str(&format!("attachment; filename=\"{}.{ending}\"", history.run_id())) {
        set.insert(header::CONTENT_DISPOSITION, name);
    }
    Ok(response)
}
