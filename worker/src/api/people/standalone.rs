//! Standalone activities as a program asks for them: a durable job without a workflow (E36).
//!
//! Invariant: what is asked for is checked before anything is started; the same id asked for again while it runs, or the same
//! `Idempotency-Key`, starts no second one. Such an activity is the run `activity:ID`, so all else that is done to runs is
//! done to it by the routes of runs. What it is stands in `crate::standalone`.

use axum::Json;
use axum::body::Bytes;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::IntoResponse;
use bosun_engine::*;
use serde_json::{Value, json};

use super::super::handlers::{AuthorizedCaller, RequestTarget};
use super::super::problem::Problem;
use super::activities::span;
use super::body::Members;
use super::handlers::{self, Answer, request_id};
use super::once;
use super::start::{fresh_id, priority, retry_policy};
use crate::standalone::{ActivityOrder, DEFAULT_START_TO_CLOSE, ID_PREFIX};

/// Every member that a start may have, for the document of the API.
pub(super) const MEMBERS: &[&str] = &[
    "activity_type",
    "activity_id",
    "input",
    "namespace",
    "task_queue",
    "schedule_to_close",
    "schedule_to_start",
    "start_to_close",
    "heartbeat",
    "retry_policy",
    "summary",
    "priority",
];

fn options(members: &mut Members) -> ActivityOptions {
    let schedule_to_close = span(members, "schedule_to_close");
    let default = schedule_to_close.is_none().then_some(DEFAULT_START_TO_CLOSE);
    ActivityOptions {
        task_queue: members.parsed("task_queue"),
        schedule_to_close,
        schedule_to_start: span(members, "schedule_to_start"),
        start_to_close: span(members, "start_to_close").or(default),
        heartbeat: span(members, "heartbeat"),
        retry_policy: retry_policy(members),
        summary: members.text("summary"),
        priority: priority(members),
        ..ActivityOptions::default()
    }
}

/// An activity is started; 200 where one of the id runs already.
pub async fn start_activity(me: AuthorizedCaller, headers: HeaderMap, body: Bytes) -> Answer {
    let key = request_id(&headers)?;
    let mut members = Members::read(&body)?;
    let activity_type: Option<ActivityType> = members.parsed("activity_type");
    members.needs("activity_type", activity_type.is_some());
    let id = members.text("activity_id");
    let input = members.any("input").unwrap_or(Value::Null);
    let namespace = me.backend.namespace_of_new(members.parsed("namespace"));
    let options = options(&mut members);
    members.done()?;
    let activity_type = activity_type.ok_or_else(|| Problem::bad_request("activity_type: it is needed"))?;
    let id = match id {
        Some(id) => id.strip_prefix(ID_PREFIX).unwrap_or(&id).to_owned(),
        None => fresh_id(activity_type.as_str(), key.as_ref().map(RequestId::as_str))?.to_string(),
    };
    let task_queue = options.task_queue.clone();
    let order = ActivityOrder { activity_type, input, options };
    let start = order.start(&id)?;
    let start = StartWorkflow {
        namespace,
        task_queue: task_queue.unwrap_or(start.task_queue),
        id_conflict_policy: IdConflictPolicy::UseExisting,
        request_id: key,
        ..start
    };
    let started = once::start(&me.backend, start).await?;
    let status = if started.newly_started { StatusCode::CREATED } else { StatusCode::OK };
    let answer = json!({
        "activity_id": id, "workflow_id": started.workflow_id, "run_id": started.run_id,
        "newly_started": started.newly_started,
    });
    Ok((status, Json(answer)).into_response())
}

/// The run of the activity that a path names by its id alone.
fn named(mut at: RequestTarget) -> Result<RequestTarget, Problem> {
    let id = at.target.workflow_id.as_str();
    let id = id.strip_prefix(ID_PREFIX).unwrap_or(id);
    let workflow_id = WorkflowId::new(format!("{ID_PREFIX}{id}"));
    at.target.workflow_id = workflow_id.map_err(|why| Problem::bad_request(format!("id: {why}")))?;
    Ok(at)
}

/// How the activity is getting on: its run, with the attempt that is under way or comes next.
pub async fn standalone_activity(me: AuthorizedCaller, at: RequestTarget) -> Answer {
    handlers::describe(me, named(at)?).await
}

/// Its result or failure; 202 while it runs.
pub async fn standalone_result(me: AuthorizedCaller, at: RequestTarget, uri: Uri) -> Answer {
    handlers::result(me, named(at)?, uri).await
}

/// It is asked to cancel; how it takes it is its result.
pub async fn cancel_standalone(me: AuthorizedCaller, at: RequestTarget, headers: HeaderMap, body: Bytes) -> Answer {
    handlers::cancel(me, named(at)?, headers, body).await
}
