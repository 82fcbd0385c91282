//! Until when a request waits: as the run's own timer has it.
//!
//! Invariant: a run tells the deadline that it reckoned when it asked; in a fork or after a reset that timer waits anew for what
//! was left then, and it is the timer that decides. What has no timer of its own stays as it was told. It changes nothing of a run.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use bosun_engine::{PendingTimer, RunId};
use serde_json::json;

use crate::backend::Backend;
use crate::inbox::{HumanRequest, HumanRequestKind};

/// The requests, with the deadlines of the timers that are under way for them.
pub(crate) async fn as_timers_have_them(backend: &dyn Backend, mut requests: Vec<HumanRequest>) -> Vec<HumanRequest> {
    let mut timers: BTreeMap<Option<RunId>, Vec<PendingTimer>> = BTreeMap::new();
    for one in &mut requests {
        if !one.request["deadline"].is_i64() && !one.request["until"].is_i64() {
            continue;
        }
        if let Entry::Vacant(place) = timers.entry(one.target.run_id) {
            let described = backend.describe(one.target.clone()).await;
            place.insert(described.map(|described| described.pending_timers).unwrap_or_default());
        }
        put_in(one, timers.get(&one.target.run_id).map(Vec::as_slice).unwrap_or_default());
    }
    requests
}

/// How the timer of a deadline is named.
fn timer_of(request: &HumanRequest) -> Option<String> {
    match (request.kind, request.word()) {
        (HumanRequestKind::Approval, _) => Some(format!("approval {}", request.id())),
        (HumanRequestKind::Question, _) => Some(format!("interrupt {}", request.id())),
        (HumanRequestKind::Elsewhere, "plan") => Some("plan review".to_owned()),
        (HumanRequestKind::Elsewhere, "takeover") => Some("human control".to_owned()),
        (HumanRequestKind::Elsewhere | HumanRequestKind::ToolCall, _) => None,
    }
}

fn put_in(request: &mut HumanRequest, timers: &[PendingTimer]) {
    let Some(name) = timer_of(request) else { return };
    let Some(timer) = timers.iter().find(|timer| timer.summary.as_ref() == Some(&name)) else { return };
    for key in ["deadline", "until"] {
        if request.request[key].is_i64() {
            request.request[key] = json!(timer.fire_at.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use bosun_engine::{Seq, Target, Timestamp, WorkflowId};
    use serde_json::Value;

    use super::*;

    /// A fork tells the deadline of its source: it waits until its own timer fires.
    #[test]
    fn the_timer_of_a_request_says_until_when_it_waits() {
        let timer = PendingTimer { seq: Seq(1), fire_at: Timestamp(900), summary: Some("approval run/ap-1".into()) };
        let of = |kind, id: &str, told: Value| {
            let mut request = HumanRequest { kind, target: Target::workflow(WorkflowId::of("w")), request: told };
            request.request["id"] = id.into();
            put_in(&mut request, std::slice::from_ref(&timer));
            request.request["deadline"].clone()
        };
        let approval = HumanRequestKind::Approval;
        assert_eq!(of(approval, "run/ap-1", json!({ "deadline": 5 })), 900);
        assert_eq!(of(approval, "run/ap-2", json!({ "deadline": 5 })), 5);
        assert_eq!(of(approval, "run/ap-1", json!({})), Value::Null, "it has none");
        assert_eq!(of(HumanRequestKind::Question, "run/ap-1", json!({ "deadline": 5 })), 5);
    }
}
