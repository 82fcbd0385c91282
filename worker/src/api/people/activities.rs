//! Activities from outside: an attempt that is completed by its task token, and single activities that are held back.
//!
//! Invariant: a completion says one thing: a result, a failure, that it noticed its cancellation, or that it is alive. Whether
//! the attempt still waits for it is the engine's affair.

use std::time::Duration;

use axum::body::Bytes;
use axum::extract::Path;
use axum::http::HeaderMap;
use bosun_engine::*;
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::handlers::{AuthorizedCaller, RequestTarget};
use super::super::problem::Problem;
use super::body::{Members, whole};
use super::handlers::{Answer, because, ok, request_id};
use crate::backend::{ActivityAsked, Attribution, Backend};
use crate::supervisor::spec::Span;

/// A failure as a program writes it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FailureBody {
    message: String,
    #[serde(default, rename = "type")]
    failure_type: Option<String>,
    #[serde(default)]
    non_retryable: Option<bool>,
}

impl From<FailureBody> for Failure {
    fn from(body: FailureBody) -> Failure {
        let failure = Failure::application(body.failure_type.as_deref().unwrap_or("External"), body.message);
        if body.non_retryable == Some(true) { failure.non_retryable() } else { failure }
    }
}

/// `{"result": …}`, `{"failure": {"message": …}}`, `{"canceled": …}` or `{"heartbeat": …}`.
pub async fn complete_activity(me: AuthorizedCaller, Path(token): Path<String>, body: Bytes) -> Answer {
    let token: TaskToken = token.parse()?;
    let completion = completion(&body)?;
    me.backend.complete_activity(token, completion).await?;
    ok(json!({}))
}

fn completion(body: &Bytes) -> Result<ActivityCompletion, Problem> {
    let mut members = Members::read(body)?;
    let payload = |name: &'static str, members: &mut Members| {
        let value = members.any(name)?;
        Payload::encode(&value).map_err(|why| members.wrong(name, why.to_string())).ok()
    };
    // Null is a result, and no details.
    let details = |payload: Payload| Some(payload).filter(|payload| payload.to_json() != Value::Null);
    let result = payload("result", &mut members).map(ActivityCompletion::Complete);
    let failure = members.typed::<FailureBody>("failure").map(|body| ActivityCompletion::Fail(body.into()));
    let canceled = payload("canceled", &mut members).map(|of| ActivityCompletion::Cancel(details(of)));
    let heartbeat = payload("heartbeat", &mut members).map(|of| ActivityCompletion::Heartbeat(details(of)));
    let mut said: Vec<ActivityCompletion> = [result, failure, canceled, heartbeat].into_iter().flatten().collect();
    if said.len() != 1 {
        members.needs("result", false);
    }
    members.done().map_err(|why| Problem {
        message: format!("{}: say one of `result`, `failure`, `canceled`, `heartbeat`", why.message),
        ..why
    })?;
    said.pop().ok_or_else(|| Problem::bad_request("it says nothing"))
}

pub async fn pause_activity(me: AuthorizedCaller, at: RequestTarget, headers: HeaderMap, body: Bytes) -> Answer {
    let (activity, because) = (at.param("activity_id")?, because(&headers, &body)?);
    me.backend.pause_activity(at.target, activity, because).await?;
    ok(json!({}))
}

pub async fn resume_activity(me: AuthorizedCaller, at: RequestTarget, headers: HeaderMap, body: Bytes) -> Answer {
    let (activity, because) = (at.param("activity_id")?, because(&headers, &body)?);
    me.backend.unpause_activity(at.target, activity, because).await?;
    ok(json!({}))
}

/// A length of time as people write it.
pub(super) fn span(members: &mut Members, name: &'static str) -> Option<Duration> {
    members.parsed::<Span>(name).map(Duration::from)
}

#[derive(Deserialize)]
struct WholeNumber(#[serde(deserialize_with = "whole")] Option<u32>);

pub async fn update_activity(me: AuthorizedCaller, at: RequestTarget, headers: HeaderMap, body: Bytes) -> Answer {
    let activity = at.param("activity_id")?;
    let mut members = Members::read(&body)?;
    let update = ActivityUpdate {
        schedule_to_close: span(&mut members, "schedule_to_close"),
        schedule_to_start: span(&mut members, "schedule_to_start"),
        start_to_close: span(&mut members, "start_to_close"),
        heartbeat: span(&mut members, "heartbeat"),
        initial_interval: span(&mut members, "initial_interval"),
        maximum_interval: span(&mut members, "maximum_interval"),
        maximum_attempts: members.typed("maximum_attempts").and_then(|WholeNumber(number)| number),
        reset: members.typed("reset").unwrap_or(false),
        retry_now: members.typed("retry_now").unwrap_or(false),
    };
    let reason = members.text("reason").unwrap_or_default();
    members.done()?;
    let because = Attribution { reason, identity: None, request_id: request_id(&headers)? };
    me.backend.update_activity(at.target, activity, ActivityAsked { update, because }).await?;
    ok(json!({}))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &str) -> Result<ActivityCompletion, String> {
        completion(&Bytes::from(body.to_owned())).map_err(|why| why.message)
    }

    #[test]
    fn a_completion_says_one_thing() {
        assert_eq!(read(r#"{"result": null}"#), Ok(ActivityCompletion::Complete(Payload::null())));
        assert_eq!(read(r#"{"heartbeat": null}"#), Ok(ActivityCompletion::Heartbeat(None)));
        let failed = read(r#"{"failure": {"message": "no", "type": "Declined", "non_retryable": true}}"#).unwrap();
        assert_eq!(failed, ActivityCompletion::Fail(Failure::application("Declined", "no").non_retryable()));
        for wrong in ["{}", "", r#"{"result": 1, "heartbeat": 2}"#, r#"{"resutl": 1}"#, r#"{"failure": {}}"#] {
            let why = read(wrong).unwrap_err();
            assert!(why.contains("say one of `result`"), "{wrong}: {why}");
        }
    }
}
