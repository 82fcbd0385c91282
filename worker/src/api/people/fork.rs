//! A fork as a program writes it: from which event, and what is to be different.
//!
//! Invariant: as on the command line, of which activity, child, signal or side effect a change is, is said by its type, its
//! id or its event; a dry run writes nothing and says what the fork would. What a fork means is the engine's affair.

use axum::Json;
use axum::body::Bytes;
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse;
use bosun_engine::*;
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::handlers::{AuthorizedCaller, RequestTarget};
use super::super::problem::Problem;
use super::super::token::random_hex;
use super::body::{Members, whole};
use super::handlers::{Answer, request_id};
use crate::backend::Backend;
use crate::cli::fork::{id_of_request, subject};

/// One thing that is to be different.
#[derive(Debug, Deserialize)]
#[serde(tag = "set", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum ChangeBody {
    Result {
        of: String,
        value: Value,
    },
    Failure {
        of: String,
        message: String,
        #[serde(default = "set_by_fork")]
        failure_type: String,
    },
    Signal {
        name: String,
        #[serde(default, deserialize_with = "whole")]
        nth: Option<usize>,
        value: Value,
    },
    Input {
        value: Value,
    },
}

#[derive(Deserialize)]
struct WholeNumber(#[serde(deserialize_with = "whole")] Option<u64>);

pub(crate) fn set_by_fork() -> String {
    "SetByFork".to_owned()
}

impl ChangeBody {
    pub(crate) fn change(self) -> Result<ForkChange, String> {
        let payload = |value: &Value| Payload::encode(value).map_err(|why| why.to_string());
        let of = |which: &str| subject(which).map_err(|why| why.to_string());
        Ok(match self {
            ChangeBody::Result { of: which, value } => {
                ForkChange::Outcome { of: of(&which)?, outcome: Ok(payload(&value)?) }
            }
            ChangeBody::Failure { of: which, message, failure_type } => {
                let failure = Failure::application(&failure_type, message);
                ForkChange::Outcome { of: of(&which)?, outcome: Err(failure) }
            }
            ChangeBody::Signal { name, nth, value } => {
                let name = SignalName::new(name).map_err(|why| why.to_string())?;
                ForkChange::Signal { name, nth, input: payload(&value)? }
            }
            ChangeBody::Input { value } => ForkChange::Input(payload(&value)?),
        })
    }
}

/// A change, member by member, so that all that is wrong with it is told; what it means is [`ChangeBody`]'s.
fn read_change(members: &mut Members, whole: &Value) -> Option<ForkChange> {
    let set = members.text("set");
    members.needs("set", set.is_some());
    let (needs, takes): (&[&'static str], &[&'static str]) = match set.as_deref()? {
        "result" => (&["of", "value"], &[]),
        "failure" => (&["of", "message"], &["failure_type"]),
        "signal" => (&["name", "value"], &["nth"]),
        "input" => (&["value"], &[]),
        other => {
            members.wrong("set", format!("{other:?} is not one of `result`, `failure`, `signal`, `input`"));
            return None;
        }
    };
    let mut is_well = true;
    for name in needs {
        let is_there = members.any(name).is_some();
        members.needs(name, is_there);
        is_well &= is_there;
    }
    for name in takes {
        members.any(name);
    }
    if let Some(Err(why)) = needs.contains(&"of").then(|| whole["of"].as_str().map(subject)).flatten() {
        members.wrong("of", why.to_string());
        return None;
    }
    // A key too many is told with its path, and would hide the rest here.
    let known = |name: &str| name == "set" || needs.contains(&name) || takes.contains(&name);
    let kept: serde_json::Map<String, Value> = whole
        .as_object()?
        .iter()
        .filter(|(name, _)| known(name))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    let body =
        is_well.then(|| serde_json::from_value::<ChangeBody>(Value::Object(kept)).map_err(|why| why.to_string()))?;
    body.and_then(ChangeBody::change).map_err(|why| members.wrong("", why)).ok()
}

/// A new run that begins with the history of the one that the path names.
pub async fn fork(me: AuthorizedCaller, at: RequestTarget, headers: HeaderMap, body: Bytes) -> Answer {
    let mut members = Members::read(&body)?;
    let workflow_id: Option<WorkflowId> = members.parsed("workflow_id");
    let event = members.typed("at").and_then(|WholeNumber(number)| number);
    if event == Some(0) {
        members.wrong("at", "events are counted from 1; leave it out to keep as much as the changes allow");
    }
    let given: Vec<Value> = members.typed("changes").unwrap_or_default();
    let reapply = match members.text("reapply").as_deref() {
        None | Some("signals") => ForkReapply::Signals,
        Some("none") => ForkReapply::None,
        Some(_) => {
            members.wrong("reapply", "it is `signals` or `none`");
            ForkReapply::None
        }
    };
    let dry_run = members.typed("dry_run").unwrap_or(false);
    let reason = members.text("reason").unwrap_or_default();
    let mut changes = Vec::new();
    for (nth, change) in given.into_iter().enumerate() {
        let read = members.within(&format!("changes[{nth}]"), change.clone(), |members| read_change(members, &change));
        changes.extend(read.flatten());
    }
    members.done()?;
    let request_id = request_id(&headers)?;
    let workflow_id = id_for(workflow_id, &at.target.workflow_id, request_id.as_ref())?;
    let request = ForkRequest {
        namespace: at.target.namespace.clone(),
        at: event.map(EventId),
        changes,
        reapply,
        request_id,
        reason,
        dry_run,
        ..ForkRequest::new(ForkSource::Run(at.target), workflow_id)
    };
    let forked = me.backend.fork(request).await?;
    let status = if forked.newly_started { StatusCode::CREATED } else { StatusCode::OK };
    let answer = json!({
        "workflow_id": forked.workflow_id, "run_id": forked.run_id, "workflow_type": forked.workflow_type,
        "newly_started": forked.newly_started, "dry_run": dry_run,
        "forked_from": { "workflow_id": forked.from.workflow_id, "run_id": forked.from.run_id, "event_id": forked.from.event },
        "plan": forked.plan,
    });
    Ok((status, Json(answer)).into_response())
}

/// The id that was asked for, or one of its own. Sent again, a request without one is the same fork.
fn id_for(asked: Option<WorkflowId>, of: &WorkflowId, request: Option<&RequestId>) -> Result<WorkflowId, Problem> {
    match (asked, request) {
        (Some(id), _) => Ok(id),
        (None, Some(request)) => named(id_of_request(of, request.as_str())),
        (None, None) => fresh_id(of),
    }
}

fn fresh_id(source: &WorkflowId) -> Result<WorkflowId, Problem> {
    let suffix = random_hex(4).map_err(|why| Problem::bad_request(format!("no random numbers for an id: {why}")))?;
    named(format!("{source}-fork-{suffix}"))
}

fn named(id: String) -> Result<WorkflowId, Problem> {
    WorkflowId::new(id).map_err(|why| Problem::bad_request(format!("workflow_id: {why}; name one")))
}
