//! Batches as a program writes them: one thing done to every run that fits a filter.
//!
//! Invariant: a batch does what its caller may do (`authority` writes that into its order); a dry run starts nothing. What a
//! batch does is `crate::batch`'s affair.

use axum::Json;
use axum::body::Bytes;
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse;
use bosun_engine::*;
use serde_json::{Value, json};

use super::super::handlers::{AuthorizedCaller, RequestTarget};
use super::super::problem::Problem;
use super::super::token::random_hex;
use super::body::{Members, whole};
use super::handlers::{Answer, because, ok, request_id};
use super::known::unknown_field;
use super::queries::ask;
use crate::api::TokenRole;
use crate::backend::{Backend, CallError};
use crate::batch::order::DEFAULT_RPS;
use crate::batch::run::{BATCH, DESCRIBE, STOP};
use crate::batch::{self, BatchAction, BatchOrder};
use crate::inbox::target_of;
use crate::standing;

/// Batches that are shown, and ids of what fits.
const SHOWN: usize = 50;
const IDS_SHOWN: usize = 5;
/// No machine does more runs a second.
const RPS_MAX: u32 = 100_000;

#[derive(serde::Deserialize)]
struct WholeNumber(#[serde(deserialize_with = "whole")] Option<u32>);

/// A batch is started, or only says what it would do.
// long: all that is wrong with a body is told at once, and then one step follows the other.
pub async fn start_batch(me: AuthorizedCaller, headers: HeaderMap, body: Bytes) -> Answer {
    let mut members = Members::read(&body)?;
    let query = members.text("query");
    members.needs("query", query.is_some());
    let action = action(&mut members);
    members.needs("action", action.is_some());
    let reason = members.text("reason").unwrap_or_default();
    let rps = members.typed("rps").and_then(|WholeNumber(number)| number).unwrap_or(DEFAULT_RPS);
    if rps > RPS_MAX {
        members.wrong("rps", format!("at most {RPS_MAX} runs a second; 0 is as many as can be"));
    }
    let id = members.text("batch_id");
    if id.as_ref().is_some_and(String::is_empty) {
        members.wrong("batch_id", "it is empty: leave it out, and the batch gets an id");
    }
    let namespace = me.backend.namespace_of_new(members.parsed("namespace"));
    let dry_run = members.typed("dry_run").unwrap_or(false);
    // Alone it is refused as every list filter is.
    if let Some(query) = query.as_deref().filter(|_| members.is_wrong())
        && let Err(why) = Filter::parse(query)
    {
        members.wrong("query", why.to_string());
    }
    members.done()?;
    let (Some(query), Some(action)) = (query, action) else {
        return Err(Problem::bad_request("query and action are needed"));
    };
    let (by, role) = (String::new(), TokenRole::Owner);
    let order = BatchOrder { query, action, reason, rps, by, role, token: None, carried: None };
    order.check_says_which()?;
    if let Some(unknown) = unknown_field(&me.backend, &order.query).await? {
        return Err(unknown.into());
    }
    let filter = order.filter(&namespace, None)?;
    let found = standing::count(&me.backend, &filter).await?;
    let filter = order.to_touch(filter)?;
    let count = standing::count(&me.backend, &filter).await?;
    if dry_run {
        let first = standing::list(&me.backend, &filter, IDS_SHOWN).await?;
        let first: Vec<WorkflowId> = first.into_iter().map(|info| info.workflow_id).collect();
        return ok(json!({ "dry_run": true, "found": found, "count": count, "first": first }));
    }
    let id = match id {
        Some(id) => id,
        None => fresh_id(&order)?,
    };
    let once = match request_id(&headers)? {
        Some(key) => key,
        None => {
            RequestId::new(format!("batch:{id}")).map_err(|why| Problem::bad_request(format!("batch_id: {why}")))?
        }
    };
    let start = StartWorkflow { namespace, request_id: Some(once), ..batch::run::start(&id, &order)? };
    let of_id = Target { namespace: start.namespace.clone(), ..Target::workflow(start.workflow_id.clone()) };
    let started = me.backend.start(start).await?;
    if !started.newly_started {
        same_batch(&me, Target { run_id: Some(started.run_id), ..of_id }, &order, &id).await?;
    }
    let status = if started.newly_started { StatusCode::CREATED } else { StatusCode::OK };
    let answer = json!({
        "batch_id": id, "workflow_id": started.workflow_id, "run_id": started.run_id, "count": count, "dry_run": false,
        "newly_started": started.newly_started,
    });
    Ok((status, Json(answer)).into_response())
}

/// What is to be done. A key that the action has no use for is refused: serde lets it pass beside `do`.
fn action(members: &mut Members) -> Option<BatchAction> {
    let given = members.value("action")?;
    let whole = given.clone();
    members.within("action", given, |action| {
        let verb = action.text("do");
        action.needs("do", verb.is_some());
        let takes: &[&'static str] = match verb.as_deref() {
            Some("signal") => &["name", "input"],
            Some("reset") => &["to", "reapply"],
            _ => &[],
        };
        for name in takes {
            action.any(name);
        }
        verb.and_then(|_| {
            let known = whole.as_object().into_iter().flatten();
            let known = known.filter(|(name, _)| *name == "do" || takes.contains(&name.as_str()));
            let known: serde_json::Map<String, Value> =
                known.map(|(name, value)| (name.clone(), value.clone())).collect();
            serde_json::from_value(Value::Object(known)).map_err(|why| action.wrong("", why.to_string())).ok()
        })
    })?
}

/// Refuses an order whose id another batch has.
async fn same_batch(me: &AuthorizedCaller, batch: Target, order: &BatchOrder, id: &str) -> Result<(), Problem> {
    match batch::begun::another(&me.backend, batch, order).await? {
        None => Ok(()),
        Some(other) => {
            let message = format!("the batch id {id} is taken: that batch is to {other}; nothing has begun");
            Err(Problem::new(StatusCode::CONFLICT, "batch_id_taken", message))
        }
    }
}

fn fresh_id(order: &BatchOrder) -> Result<String, Problem> {
    let suffix = random_hex(4).map_err(|why| Problem::bad_request(format!("no random numbers for an id: {why}")))?;
    Ok(format!("{}-{suffix}", order.action.word()))
}

/// The batch that a path names by its id alone.
fn named(at: RequestTarget) -> Result<Target, CallError> {
    let id = at.target.workflow_id.as_str();
    let id = id.strip_prefix(batch::ID_PREFIX).unwrap_or(id);
    let workflow_id = WorkflowId::new(format!("{}{id}", batch::ID_PREFIX))
        .map_err(|why| Rejection::Invalid { what: "id".into(), why: why.to_string() })?;
    Ok(Target { workflow_id, ..at.target })
}

async fn told(backend: &dyn Backend, target: &Target) -> Result<Value, CallError> {
    let name = QueryName::of(DESCRIBE);
    let described = backend.query(target.clone(), name, Payload::null()).await?.to_json();
    let status = backend.describe(target.clone()).await?.info.status;
    Ok(batch::as_it_stands(status, described))
}

/// The newest batches.
pub async fn batches(me: AuthorizedCaller) -> Answer {
    let query = format!("WorkflowType = '{BATCH}'");
    let mut shown = Vec::new();
    for info in me.backend.list(ListRequest { query, limit: SHOWN }).await? {
        let id = info.workflow_id.as_str();
        let id = id.strip_prefix(batch::ID_PREFIX).unwrap_or(id);
        let described = ask(&me.backend, &target_of(&info), DESCRIBE).await;
        let described = batch::as_it_stands(info.status, described);
        shown.push(json!({ "batch_id": id, "status": info.status, "description": described }));
    }
    ok(json!({ "batches": shown }))
}

/// What one batch is at.
pub async fn batch(me: AuthorizedCaller, at: RequestTarget) -> Answer {
    ok(told(&me.backend, &named(at)?).await?)
}

/// The batch touches no further run.
pub async fn stop_batch(me: AuthorizedCaller, at: RequestTarget, headers: HeaderMap, body: Bytes) -> Answer {
    let because = because(&headers, &body)?;
    let target = named(at)?;
    let input = Payload::encode(&json!({ "reason": because.reason }));
    let update_id = match because.request_id {
        Some(key) => UpdateId::new(key.as_str()),
        None => UpdateId::new(STOP),
    };
    let request = UpdateRequest {
        update_id: update_id.map_err(|why| Problem::bad_request(why.to_string()))?,
        name: UpdateName::of(STOP),
        input: input.map_err(|why| Problem::bad_request(why.to_string()))?,
        identity: None,
        wait: UpdateWait::Completed,
    };
    me.backend.update(target.clone(), request).await?;
    ok(told(&me.backend, &target).await?)
}
