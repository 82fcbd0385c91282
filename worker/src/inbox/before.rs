//! What bears on an approval besides the request: the results of the tasks before.
//!
//! Invariant: it is what the run itself says of its plan; a run that cannot say it now shows nothing. It decides nothing.

use bosun_engine::{Payload, QueryName};
use serde_json::Value;

use super::{HumanRequest, HumanRequestKind};
use crate::backend::Backend;

/// What the tasks have given on which the one depends that is asked about: whoever approves it decides with that.
pub(crate) async fn given_before(backend: &dyn Backend, asked: &HumanRequest) -> Vec<(String, Value)> {
    let Some(task) = asked.request["task_id"].as_str().filter(|_| asked.kind == HumanRequestKind::Approval) else {
        return Vec::new();
    };
    let plan = backend.query(asked.target.clone(), QueryName::of("get_plan"), Payload::null()).await;
    let tasks = plan.map(|plan| plan.to_json()["tasks"].take()).unwrap_or_default();
    let before = tasks[task]["edges"].as_array().into_iter().flatten().filter_map(|edge| edge["on"].as_str());
    let given = before.map(|id| (id.to_owned(), tasks[id]["result"].clone()));
    given.filter(|(_, result)| !result.is_null()).collect()
}
