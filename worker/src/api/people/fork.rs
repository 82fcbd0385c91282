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
use crate::cli::fork::subject;

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

/// A new run that begins with the history of the one that the path names.
pub async fn fork(me: AuthorizedCaller, at: RequestTarget, headers: HeaderMap, body: Bytes) -> Answer {
    let mut members = Members::read(&body)?;
    let workflow_id: Option<WorkflowId> = members.parsed("workflow_id");
    let event = members.typed("at").and_then(|WholeNumber(number)| number);
    let given: Vec<ChangeBody> = members.typed("changes").unwrap_or_default();
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
        match change.change() {
            Ok(change) => changes.push(change),
            Err(why) => members.wrong(&format!("changes.{nth}"), why),
        }
    }
    members.done()?;
    let workflow_id = match workflow_id {
        Some(id) => id,
        None => fresh_id(&at.target.workflow_id)?,
    };
    let request = ForkRequest {
        namespace: at.target.namespace.clone(),
        at: event.map(EventId),
        changes,
        reapply,
        request_id: request_id(&headers)?,
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

fn fresh_id(source: &WorkflowId) -> Result<WorkflowId, Problem> {
    let suffix = random_hex(4).map_err(|why| Problem::bad_request(format!("no random numbers for an id: {why}")))?;
    WorkflowId::new(format!("{source}-fork-{suffix}"))
        .map_err(|why| Problem::bad_request(format!("workflow_id: {why}; name one")))
}
