//! Whom and what runs wait for, as `describe`, `list` and the live tree show it.
//!
//! Invariant: it is what the run itself answers to `waiting` (supervisors) or `approvals` (agents); a run that cannot
//! answer now says nothing, and nothing else of it is hidden for that. It answers nothing.

use bosun_engine::*;
use serde_json::Value;

use super::reach::Reach;
use super::result::value_text;
use crate::agent::AGENT;
use crate::backend::Backend;
use crate::inbox::{target_of, tool_call_id};
use crate::supervisor::PLAN_RUN;
use crate::supervisor::run::SUPERVISOR;

/// One thing that a run waits for.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub(crate) struct WaitingRow {
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
        let id = tool_call_id(*run, value);
        let what = format!("the approval of the tool {} {}", value_text(&value["tool"]), value["arguments"]);
        WaitingRow { whom: "a person".into(), what, answer: format!("bosun approval approve {id}"), id }
    }

    pub(super) fn text(&self, reach: &Reach) -> String {
        format!("waits for {}: {} (`{}`)", self.whom, self.what, reach.complete(&self.answer))
    }
}

/// What an open run waits for.
pub(crate) async fn waiting(backend: &dyn Backend, info: &RunInfo) -> Vec<WaitingRow> {
    let query = match info.workflow_type.as_str() {
        SUPERVISOR | PLAN_RUN if info.status.is_open() => "waiting",
        AGENT if info.status.is_open() => "approvals",
        _ => return Vec::new(),
    };
    let answer = backend.query(target_of(info), QueryName::of(query), Payload::null()).await;
    let answer = answer.map(|payload| payload.to_json()).unwrap_or_default();
    let row = |one: &Value| match query {
        "approvals" => WaitingRow::of_tool_call(&info.run_id, one),
        _ => WaitingRow::of(one),
    };
    answer.as_array().into_iter().flatten().map(row).collect()
}
