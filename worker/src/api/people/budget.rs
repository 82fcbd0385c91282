//! More budget for a supervisor or an agent, as a program gives it.
//!
//! Invariant: what is not limited is not raised, and the same request under the same `Idempotency-Key` gives it once. What may
//! be given to whom stands in `crate::top_up`.

use std::time::Duration;

use axum::body::Bytes;
use axum::http::{HeaderMap, StatusCode};
use bosun_engine::*;
use serde::Deserialize;
use serde_json::json;

use super::super::handlers::{AuthorizedCaller, RequestTarget};
use super::super::problem::Problem;
use super::body::{Members, whole};
use super::handlers::{Answer, ok, request_id};
use super::once;
use crate::agent::workflow::SIGNAL_TOP_UP;
use crate::supervisor::spec::Span;
use crate::top_up::{MoreBudget, NoTopUp};

#[derive(Deserialize)]
struct WholeNumber(#[serde(deserialize_with = "whole")] Option<u64>);

/// `{"tokens": 10000}`: as much more as it says; a run that its budget has paused goes on;
/// `too_little`: to find that what is spent is still all that it may.
pub async fn top_up(me: AuthorizedCaller, at: RequestTarget, headers: HeaderMap, body: Bytes) -> Answer {
    let key = request_id(&headers)?;
    let mut members = Members::read(&body)?;
    let mut number = |name: &'static str| members.not_null(name).and_then(|WholeNumber(number)| number);
    let (tokens, cost_micros, calls) = (number("tokens"), number("cost_micros"), number("calls"));
    let wall = members.not_null::<Span>("wall").map(Duration::from);
    let wall_ms = wall.map(|wall| u64::try_from(wall.as_millis()).unwrap_or(u64::MAX));
    let allow_unpriced = members.not_null::<bool>("allow_unpriced");
    if allow_unpriced == Some(false) {
        members.wrong("allow_unpriced", "it is true, or left out: what was allowed is not taken back");
    }
    let more = MoreBudget { tokens, cost_micros, calls, wall_ms, allow_unpriced: allow_unpriced == Some(true) };
    if more == MoreBudget::default() {
        members.wrong(
            "tokens",
            "it is needed, or one of cost_micros, calls, wall and allow_unpriced: what there is more of",
        );
    }
    members.done()?;
    if key.is_some() {
        // Before anything is sent: what lets the run go on has a key of its own.
        let input = Payload::encode(&more.told()).map_err(|why| Problem::bad_request(why.to_string()))?;
        let name = SignalName::of(SIGNAL_TOP_UP);
        let asked = SignalRequest { name, input, identity: None, request_id: key.clone() };
        once::same_signal(&me.backend, &at.target, &asked).await?;
    }
    let done =
        crate::top_up::top_up(&me.backend, &at.target, &more, (None, key.as_ref())).await.map_err(top_up_refused)?;
    ok(json!({ "workflow_id": done.info.workflow_id, "run_id": done.info.run_id, "more": more.told(),
        "resumed": done.resumed, "too_little": done.too_little }))
}

pub(crate) fn top_up_refused(why: NoTopUp) -> Problem {
    match why {
        NoTopUp::Call(why) => why.into(),
        why @ NoTopUp::Nothing => Problem::new(StatusCode::CONFLICT, "nothing_more", why.to_string()),
        // Another run may take it.
        why @ (NoTopUp::HasNone(_) | NoTopUp::ForAgents | NoTopUp::NotLimited(..)) => {
            Problem::new(StatusCode::CONFLICT, "no_such_budget", why.to_string())
        }
    }
}
