//! What runs ask people, and their answers: the inbox of the API.
//!
//! Invariant: an answer names the very content that was shown, so that nobody approves what has changed since; it is
//! checked against what waits now and sent as a signal, which is kept also where the run is busy. Supervisors and agents
//! are asked alike. Whether it counts is decided by the run.

use axum::Json;
use axum::body::Bytes;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::IntoResponse;
use bosun_engine::*;
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::handlers::{AuthorizedCaller, PAGE_MAX, RequestTarget, query_of};
use super::super::problem::Problem;
use super::body::Members;
use super::handlers::{Answer, request_id};
use super::pages::Cursor;
use crate::backend::{Backend, CallError};
use crate::inbox::{self, AnswerMisfit, HumanDecision, HumanRequest};

#[derive(Deserialize)]
struct InboxQuery {
    /// A list filter: of the runs that are asked.
    #[serde(default)]
    query: String,
    /// `next_cursor` of the page before.
    cursor: Option<String>,
}

/// What the open supervisors and agents ask: those of a page of runs, of which the next one may ask more.
pub async fn approvals(me: AuthorizedCaller, uri: Uri) -> Answer {
    let InboxQuery { query, cursor } = query_of(&uri)?;
    let after = cursor.as_deref().map(Cursor::read).transpose()?;
    let found = inbox::asking_runs(&me.backend, &query, after).await?;
    let (asked, silent) = inbox::asked_by(&me.backend, &found.runs).await;
    let asked: Vec<Value> = asked.iter().map(view).collect();
    let silent: Vec<Value> = silent.iter().map(|(id, why)| json!({ "workflow_id": id, "why": why })).collect();
    let next = found.next.map(|next| next.to_string());
    let answer = json!({ "approvals": asked, "not_asked": silent, "incomplete": next.is_some(), "next_cursor": next });
    Ok(Json(answer).into_response())
}

fn view(one: &HumanRequest) -> Value {
    let Target { workflow_id, run_id, namespace } = &one.target;
    json!({
        "id": one.id(), "kind": one.word(), "workflow_id": workflow_id, "run_id": run_id, "namespace": namespace,
        "request": one.request,
    })
}

/// `{"approved": true, …}` to an approval, `{"answer": …}` to a question; of the run that the path names. One that was given
/// under this key already is given, although nothing waits for it any more.
pub async fn answer(me: AuthorizedCaller, at: RequestTarget, headers: HeaderMap, body: Bytes) -> Answer {
    let request_id = request_id(&headers)?;
    let mut members = Members::read(&body)?;
    let id = members.text("id");
    members.needs("id", id.is_some());
    let approved: Option<bool> = members.typed("approved");
    let answer = members.any("answer");
    let comment = members.text("comment");
    let feedback = members.text("feedback");
    let modified_action = members.text("modified_action");
    match (approved, &answer) {
        (Some(_), Some(_)) => members.wrong("answer", "an approval is approved or not; a question is answered"),
        (None, None) => members.wrong("approved", "say `approved`, or `answer` where a question was asked"),
        _ => {}
    }
    members.done()?;
    let id = id.unwrap_or_default();
    let accepted = || Ok((StatusCode::ACCEPTED, Json(json!({ "id": id }))).into_response());
    let info = me.backend.describe(at.target).await?.info;
    let target = inbox::target_of(&info);
    let all = match inbox::requests(&me.backend, &target, &info.workflow_type).await {
        // Other workflows ask nobody, and say so by having no such query.
        Err(CallError::Rejected(Rejection::Query(QueryError::Unknown { .. }))) => Vec::new(),
        all => all?,
    };
    let Some(found) = all.into_iter().find(|one| one.id() == id) else {
        return match &request_id {
            Some(key) if was_heard(&me.backend, &target, key).await? => accepted(),
            _ => Err(nothing_waits(&target, &id)),
        };
    };
    let message = match (approved, &answer) {
        (Some(approved), _) => found.decided(&HumanDecision {
            approved,
            by: None,
            comment: comment.as_deref(),
            modified_action: modified_action.as_deref(),
            feedback: feedback.as_deref(),
        }),
        (None, answer) => found.answered(answer.as_ref().unwrap_or(&Value::Null)),
    };
    let message = message.map_err(misfit)?;
    let input = Payload::encode(&message.input).map_err(|why| Problem::bad_request(why.to_string()))?;
    let signal = SignalRequest { name: SignalName::of(message.signal), input, identity: None, request_id };
    me.backend.signal(found.target, signal).await?;
    accepted()
}

/// An answer that is none to what waits, with the member that says it.
fn misfit(why: AnswerMisfit) -> Problem {
    let (at, why) = match why {
        AnswerMisfit::IsQuestion => ("approved", "this is a question: send its `answer`".to_owned()),
        AnswerMisfit::IsApproval => ("answer", "this is an approval: send `approved`, true or false".to_owned()),
        AnswerMisfit::ToolCallIsAsShown => ("modified_action", why.to_string()),
        AnswerMisfit::IsElsewhere => ("id", why.to_string()),
    };
    let mut problem = Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid_body", format!("{at}: {why}"));
    problem.errors = vec![super::super::problem::InvalidField { at: at.to_owned(), why }];
    problem
}

fn nothing_waits(target: &Target, id: &str) -> Problem {
    let message =
        format!("nothing of the id {id} waits in {}; GET /api/v1/approvals shows what does", target.workflow_id);
    Problem::new(StatusCode::NOT_FOUND, "nothing_waits", message)
}

/// Whether the run has a signal that was sent under this key.
async fn was_heard(backend: &dyn Backend, run: &Target, key: &RequestId) -> Result<bool, CallError> {
    let mut from = EventId(1);
    loop {
        let events = backend.history(run.clone(), from, PAGE_MAX).await?;
        let of_key = |event: &Event| matches!(&event.kind, EventKind::WorkflowExecutionSignaled(signal) if signal.request_id.as_ref() == Some(key));
        if events.iter().any(of_key) {
            return Ok(true);
        }
        match events.last() {
            Some(last) if events.len() == PAGE_MAX => from = last.id.next(),
            _ => return Ok(false),
        }
    }
}
