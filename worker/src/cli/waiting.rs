//! Whom and what runs wait for, as `describe`, `list` and the live tree show it.
//!
//! Invariant: it is what the run itself answers to `waiting` (supervisors) or `approvals` (agents); a run that cannot
//! answer now says nothing, and nothing else of it is hidden for that. It answers nothing.

use bosun_engine::*;
use serde_json::{Value, json};

use super::context::Context;
use super::reach::Reach;
use super::result::value_text;
use super::supervise::ask;
use crate::agent::AGENT;
use crate::supervisor::run::SUPERVISOR;

/// One thing that a run waits for.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub(super) struct WaitingRow {
    pub id: String,
    pub whom: String,
    pub what: String,
    /// The command that answers.
    pub answer: String,
}

impl WaitingRow {
    /// An entry of the query `waiting`, or of `progress`.
    pub(super) fn of(value: &Value) -> WaitingRow {
        let text = |key: &str| value[key].as_str().map(str::to_owned).unwrap_or_default();
        WaitingRow { id: text("id"), whom: text("whom"), what: text("what"), answer: text("answer") }
    }

    fn of_tool_call(run: &RunId, value: &Value) -> WaitingRow {
        let id = format!("{run}/{}", value_text(&value["id"]));
        let what = format!("the approval of the tool {} {}", value_text(&value["tool"]), value["arguments"]);
        WaitingRow { whom: "a person".into(), what, answer: format!("bosun approval approve {id}"), id }
    }

    pub(super) fn text(&self, reach: &Reach) -> String {
        format!("waits for {}: {} (`{}`)", self.whom, self.what, reach.complete(&self.answer))
    }
}

/// What an open run waits for.
pub(super) async fn waiting(cx: &Context, info: &RunInfo) -> Vec<WaitingRow> {
    if !info.status.is_open() {
        return Vec::new();
    }
    let target = Target { namespace: info.namespace.clone(), ..Target::run(info.workflow_id.clone(), info.run_id) };
    match info.workflow_type.as_str() {
        SUPERVISOR => {
            let answer = ask(cx, &target, "waiting", &Value::Null).await.unwrap_or_else(|_| json!([]));
            answer.as_array().into_iter().flatten().map(WaitingRow::of).collect()
        }
        AGENT => {
            let answer = ask(cx, &target, "approvals", &Value::Null).await.unwrap_or_else(|_| json!([]));
            answer.as_array().into_iter().flatten().map(|one| WaitingRow::of_tool_call(&info.run_id, one)).collect()
        }
        _ => Vec::new(),
    }
}
