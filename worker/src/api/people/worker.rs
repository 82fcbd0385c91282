//! The worker and its store, as the page of the same name shows them.
//!
//! Invariant: what is told is what the worker and the store say of themselves; a token that may not see the store is refused
//! it. The one path that a client may name is the directory of a backup.

use std::path::PathBuf;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use bosun_engine::Rejection;
use serde_json::json;

use super::super::handlers::{Api, AuthorizedCaller};
use super::super::problem::Problem;
use super::body::Members;
use super::handlers::{Answer, ok};
use crate::backend::{Backend, CallError, WorkerState};

pub async fn worker(me: AuthorizedCaller, State(api): State<Api>) -> Answer {
    let health = me.backend.health().await?;
    let state = me.backend.worker_state().await?;
    let waiting = state.waiting_by_queue();
    let WorkerState { lost_threads, memory, slots, busy, external_slots, external_busy, .. } = &state;
    let WorkerState { task_queues, queues, max_per_second, .. } = &state;
    let types: Vec<String> = api.workflows.types().map(ToString::to_string).collect();
    ok(json!({
        "pid": std::process::id(),
        "version": api.version,
        "build_id": api.workflows.build_id().to_string(),
        "health": health,
        "slots": { "all": slots, "busy": busy, "external": { "all": external_slots, "busy": external_busy } },
        "waiting_by_queue": waiting,
        "task_queues": task_queues,
        "queues": queues,
        "activities_per_second": max_per_second,
        "lost_threads": lost_threads,
        "memory_bytes": memory,
        "process_trees": crate::capability::process::guard::strategy(),
        "workflow_types": types,
        "role": me.backend.role(),
        "sees_all": me.backend.sees_all(),
        "only_namespace": me.backend.only_namespace(),
    }))
}

pub async fn store(me: AuthorizedCaller) -> Answer {
    ok(me.backend.store_info().await?)
}

pub async fn verify(me: AuthorizedCaller, body: Bytes) -> Answer {
    Members::read(&body)?.done()?;
    ok(me.backend.verify().await?)
}

/// `{"to": an absolute path on the worker's machine}`.
pub async fn backup(me: AuthorizedCaller, body: Bytes) -> Answer {
    let mut members = Members::read(&body)?;
    let to = members.text("to").map(PathBuf::from);
    members.needs("to", to.is_some());
    if to.as_ref().is_some_and(|to| !to.is_absolute()) {
        members.wrong("to", "an absolute path is needed: the worker's working directory is not yours");
    }
    if to.as_ref().is_some_and(|to| to.as_os_str().as_encoded_bytes().contains(&0)) {
        members.wrong("to", "a path has no NUL character");
    }
    members.done()?;
    let to = to.ok_or_else(|| Problem::bad_request("to: it is needed"))?;
    let done = me.backend.backup(to).await.map_err(|why| match why {
        // What is wrong with an absolute path is that something is there already.
        CallError::Rejected(taken @ Rejection::Invalid { .. }) => {
            Problem { status: StatusCode::CONFLICT, ..Problem::from(taken) }
        }
        other => Problem::from(other),
    });
    ok(done?)
}
