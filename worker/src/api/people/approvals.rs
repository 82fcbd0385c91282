//! What runs ask people, and their answers: the inbox of the API.
//!
//! Invariant: an answer names the very content that was shown, so that nobody approves what has changed since; it is
//! checked against what waits now and sent as a signal, which is kept also where the run is busy. Supervisors and agents
//! are asked alike. Whether it counts is decided by the run.

use axum::Json;
use axum::body::Bytes;
use axum::http::{StatusCode, Uri};
use axum::response::IntoResponse;
use bosun_engine::*;
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::handlers::{AuthorizedCaller, PAGE_MAX, RequestTarget, query_of};
use super::super::problem::Problem;
use super::body::Members;
use super::handlers::Answer;
use crate::agent::AGENT;
use crate::agent::workflow::SIGNAL_APPROVAL;
use crate::backend::{Backend, CallError};
use crate::supervisor::run::SUPERVISOR;

#[derive(Deserialize)]
struct InboxQuery {
    /// A list filter: of the runs that are asked.
    #[serde(default)]
    query: String,
}

/// What the open supervisors and agents ask.
pub async fn approvals(me: AuthorizedCaller, uri: Uri) -> Answer {
    let InboxQuery { query } = query_of(&uri)?;
    let mut asked = Vec::new();
    let mut unheard = Vec::new();
    let mut cut = false;
    for workflow_type in [SUPERVISOR, AGENT] {
        let open = format!("WorkflowType = '{workflow_type}' AND ExecutionStatus = 'Running'");
        let query = if query.trim().is_empty() { open } else { format!("({query}) AND {open}") };
        let runs = me.backend.list(ListRequest { query, limit: PAGE_MAX }).await?;
        cut |= runs.len() == PAGE_MAX;
        for run in runs {
            let target = Target { namespace: run.namespace, ..Target::run(run.workflow_id.clone(), run.run_id) };
            match waiting(&me, &target, workflow_type).await {
                Ok(of_run) => asked.extend(of_run),
                // One of many that cannot answer hides nothing of the others.
                Err(why) => unheard.push(json!({ "workflow_id": run.workflow_id, "why": why.to_string() })),
            }
        }
    }
    Ok(Json(json!({ "approvals": asked, "not_asked": unheard, "incomplete": cut })).into_response())
}

/// What one run asks itself; what runs below it ask, they say themselves.
async fn waiting(me: &AuthorizedCaller, target: &Target, workflow_type: &str) -> Result<Vec<Value>, CallError> {
    let queries: &[(&str, &str)] = match workflow_type {
        AGENT => &[("tool_call", "approvals")],
        _ => &[("approval", "pending_approvals"), ("question", "pending_interrupts")],
    };
    let mut all = Vec::new();
    for (kind, query) in queries {
        let answer = me.backend.query(target.clone(), QueryName::of(*query), Payload::null()).await?.to_json();
        for request in answer.as_array().into_iter().flatten() {
            let id = request["id"].as_str().unwrap_or_default();
            // An agent counts its own approvals: with its run they are ids for all.
            let id = match (*kind, target.run_id) {
                ("tool_call", Some(run)) => format!("{run}/{id}"),
                _ => id.to_owned(),
            };
            all.push(json!({
                "id": id, "kind": kind, "workflow_id": target.workflow_id, "run_id": target.run_id,
                "namespace": target.namespace, "request": request,
            }));
        }
    }
    Ok(all)
}

/// `{"approved": true, …}` to an approval, `{"answer": …}` to a question; of the run that the path names.
pub async fn answer(me: AuthorizedCaller, at: RequestTarget, body: Bytes) -> Answer {
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
    let found = asked(&me, &at.target, &id).await?;
    let (kind, target, request) = found;
    let (signal, input) = match (kind.as_str(), approved, answer) {
        ("question", None, Some(answer)) => ("interrupt_resume_v1", json!({ "interrupt_id": id, "resume": answer })),
        ("question", ..) => return Err(wrong("approved", "this is a question: send its `answer`")),
        (_, None, _) => return Err(wrong("answer", "this is an approval: send `approved`, true or false")),
        ("tool_call", Some(approved), _) => {
            if modified_action.is_some() {
                return Err(wrong("modified_action", "the call of a tool is made as it was shown, or not at all"));
            }
            let own = id.split_once('/').map_or(id.as_str(), |(_, id)| id);
            let reason = feedback.or(comment).unwrap_or_default();
            (SIGNAL_APPROVAL, json!({ "id": own, "hash": request["hash"], "approved": approved, "reason": reason }))
        }
        (_, Some(approved), _) => {
            let mut input = json!({ "approval_id": id, "approved": approved, "comment": comment,
                "modified_action": modified_action, "feedback": feedback, "shown": request["shown"] });
            if let Value::Object(map) = &mut input {
                map.retain(|_, value| !value.is_null());
            }
            (SIGNAL_APPROVAL, input)
        }
    };
    let input = Payload::encode(&input).map_err(|why| Problem::bad_request(why.to_string()))?;
    let signal = SignalRequest { name: SignalName::of(signal), input, identity: None, request_id: None };
    me.backend.signal(target, signal).await?;
    Ok((StatusCode::ACCEPTED, Json(json!({ "id": id }))).into_response())
}

fn wrong(at: &str, why: &str) -> Problem {
    let mut problem = Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid_body", format!("{at}: {why}"));
    problem.errors = vec![super::super::problem::InvalidField { at: at.to_owned(), why: why.to_owned() }];
    problem
}

/// What waits under this id in this run.
async fn asked(me: &AuthorizedCaller, target: &Target, id: &str) -> Result<(String, Target, Value), Problem> {
    let info = me.backend.describe(target.clone()).await?.info;
    let target = Target { namespace: info.namespace, ..Target::run(info.workflow_id, info.run_id) };
    let all = waiting(me, &target, info.workflow_type.as_str()).await?;
    let found = all.into_iter().find(|one| one["id"] == *id).ok_or_else(|| {
        let message =
            format!("nothing of the id {id} waits in {}; GET /api/v1/approvals shows what does", target.workflow_id);
        Problem::new(StatusCode::NOT_FOUND, "nothing_waits", message)
    })?;
    Ok((found["kind"].as_str().unwrap_or_default().to_owned(), target, found["request"].clone()))
}
