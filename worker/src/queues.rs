//! Task queues as people see them: what waits in each, what runs, what may, and whose turn is next.
//!
//! Invariant: it shows what the worker says of itself and decides nothing. A queue that nobody serves is told as such: what
//! waits there waits for another worker.

use std::collections::BTreeSet;

use bosun_engine::{DEFAULT_NAMESPACE, Priority, TaskQueue, WaitingShare};
use serde_json::{Value, json};

use crate::backend::WorkerState;
use crate::priority::priority_text;

/// Every queue that something is known of, by its name.
pub(crate) fn names(state: &WorkerState) -> BTreeSet<TaskQueue> {
    let waiting = state.waiting_by_queue().into_keys();
    let known = waiting.chain(state.queues.keys()).chain(state.task_queues.iter().flatten());
    known.cloned().collect()
}

/// One queue.
pub(crate) fn row(state: &WorkerState, queue: &TaskQueue) -> Value {
    let waiting = state.waiting_by_queue().get(queue).copied().unwrap_or_default();
    let of = state.queues.get(queue).cloned().unwrap_or_default();
    let among = state.task_queues.as_ref().is_none_or(|served| served.contains(queue));
    let served = match (state.slots > 0 && among, state.partial && state.slots > 0 && waiting == 0) {
        (true, _) => Some(true),
        // The names of queues in which others wait are not told: it may be one of those.
        (false, true) => None,
        (false, false) => Some(false),
    };
    json!({
        "task_queue": queue,
        "served": served,
        "waiting": waiting,
        "running": of.running,
        "max_concurrent_activities": of.max_concurrent,
        "max_activities_per_second": of.max_per_second,
    })
}

/// All queues.
pub(crate) fn rows(state: &WorkerState) -> Vec<Value> {
    names(state).iter().map(|queue| row(state, queue)).collect()
}

/// Who waits, as one row.
pub(crate) fn share(share: &WaitingShare) -> Value {
    json!({
        "namespace": share.namespace,
        "priority_key": share.priority_key,
        "fairness_key": share.fairness_key,
        "fairness_weight": share.fairness_weight.to_string(),
        "workflow_id": share.workflow_id,
        "waiting": share.waiting,
    })
}

/// Who waits, in one line: `priority 1, acme x 2`, and in which namespace, if it is another than the usual one.
pub(crate) fn share_text(share: &WaitingShare) -> String {
    let fairness_weight = share.fairness_weight;
    let (priority_key, fairness_key) = (share.priority_key, share.fairness_key.clone());
    let priority = priority_text(&Priority { priority_key, fairness_key, fairness_weight });
    let of = share.workflow_id.as_ref().map(|id| format!(", {id}")).unwrap_or_default();
    let place = match share.namespace.as_str() {
        DEFAULT_NAMESPACE => String::new(),
        other => format!(", in {other}"),
    };
    format!("priority {priority}{of}{place}")
}
