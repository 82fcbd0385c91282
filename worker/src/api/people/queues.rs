//! Task queues over the API: what waits in each, what runs, what may, and whose turn is next.
//!
//! Invariant: it tells what the worker says of itself, as far as the caller may see it, and decides nothing.

use axum::extract::Path;
use bosun_engine::TaskQueue;
use serde_json::{Value, json};

use super::super::handlers::AuthorizedCaller;
use super::super::problem::Problem;
use super::handlers::{Answer, ok};
use crate::backend::Backend;
use crate::queues as shown;

/// All queues of which something is known.
pub async fn queues(me: AuthorizedCaller) -> Answer {
    let state = me.backend.worker_state().await?;
    ok(json!({ "task_queues": shown::rows(&state), "activities_per_second": state.max_per_second }))
}

/// One queue, and who waits in it.
pub async fn queue(me: AuthorizedCaller, Path(name): Path<String>) -> Answer {
    let queue = TaskQueue::new(name).map_err(|why| Problem::bad_request(format!("name: {why}")))?;
    let state = me.backend.worker_state().await?;
    let shares: Vec<Value> = me.backend.queue_shares(queue.clone(), None).await?.iter().map(shown::share).collect();
    let mut row = shown::row(&state, &queue);
    row["who_waits"] = shares.into();
    ok(row)
}
