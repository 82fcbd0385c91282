//! What runs ask people, and their answers: the inbox of the API.
//!
//! Invariant: an answer names the very content that was shown, so that nobody approves what has changed since; it is
//! checked against what waits now and sent as a signal, which is kept also where the run is busy. Supervisors and agents
//! are asked alike. What came before it is told (409), and whether the run has taken it. Whoever waits for something to be asked is told of it by the events of runs, and by the end of the wait.
//! Whether an answer counts is decided by the run.

use std::time::{Duration, Instant};

use axum::Json;
use axum::body::Bytes;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::IntoResponse;
use bosun_engine::*;
use futures_util::{FutureExt, StreamExt};
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::authority::CallerBackend;
use super::super::handlers::{AuthorizedCaller, RequestTarget, query_of};
use super::super::problem::Problem;
use super::body::Members;
use super::handlers::{Answer, request_id, wait_of};
use super::known::unknown_field;
use super::pages::Cursor;
use super::{once, view};
use crate::backend::{Backend, CallError, RunEventStream};
use crate::cli::below::{ChildRun, below};
use crate::deadlines;
use crate::inbox::became::{self, Became, SentAnswer};
use crate::inbox::{self, AnswerMisfit, HumanDecision, HumanMessage, HumanRequest, HumanRequestKind};

/// Of the word by which an answer is known again.
const SEEN_CHARS: usize = 16;
/// Events that come together are one reason to look.
const SETTLE: Duration = Duration::from_millis(50);
/// Where events are not heard.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Whoever waits takes no more than a fifth of the time for looking, where much happens and many runs ask.
const REST: (u32, Duration) = (4, Duration::from_secs(5));

#[derive(Deserialize)]
struct InboxQuery {
    /// A list filter: of the runs that are asked.
    #[serde(default)]
    query: String,
    /// `next_cursor` of the page before.
    cursor: Option<String>,
    /// How long to wait until something is asked.
    wait: Option<String>,
    /// `seen` of an answer before: then until something else is asked.
    seen: Option<String>,
}

/// What the open supervisors and agents ask: those of a page of runs, of which the next one may ask more. With `wait` it is
/// answered when something is asked, and with `seen` when something else is than then; at the end of the wait in any case.
pub async fn approvals(me: AuthorizedCaller, uri: Uri) -> Answer {
    let InboxQuery { query, cursor, wait, seen } = query_of(&uri)?;
    let after = cursor.as_deref().map(Cursor::read).transpose()?;
    if seen.as_deref().is_some_and(|seen| !is_seen(seen)) {
        return Err(Problem::bad_request("seen: it is not what an answer gave: 16 digits and letters from a to f"));
    }
    let unknown = unknown_field(&me.backend, &query).await?;
    if let Some(unknown) = unknown.filter(|unknown| wait.is_none() || unknown.is_misspelt()) {
        return Err(unknown.into());
    }
    let until = wait_of(wait)?.map(|wait| Instant::now() + wait);
    // Watched from before the first look, so that nothing is missed in between.
    let mut events = until.map(|_| me.backend.watch(inbox::of_asking(&query), None));
    let mut heard = events.as_mut().and_then(|events| events.next().now_or_never());
    loop {
        let began = Instant::now();
        let page = page(&me, &query, after).await?;
        let rest = (began.elapsed() * REST.0).clamp(SETTLE, REST.1);
        let is_new = match &seen {
            Some(seen) => page["seen"] != seen.as_str(),
            None => page["approvals"].as_array().is_some_and(|all| !all.is_empty()),
        };
        let left = until.map_or(Duration::ZERO, |until| until.saturating_duration_since(Instant::now()));
        let (false, false, Some(watched)) = (is_new, left.is_zero(), &mut events) else {
            return Ok(Json(page).into_response());
        };
        if heard.take().is_none_or(|event| !matches!(event, Some(Ok(_)))) {
            tokio::time::timeout(left, something(watched, rest)).await.ok();
        }
    }
}

/// Whether an answer can have given this word.
fn is_seen(text: &str) -> bool {
    text.len() == SEEN_CHARS && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Waits for the next event, and for those that come within `rest`.
async fn something(events: &mut RunEventStream, rest: Duration) {
    let Some(Ok(_)) = events.next().await else {
        // Nothing more is heard: it is looked at now and then.
        return tokio::time::sleep(LOOK_EVERY).await;
    };
    let settle = tokio::time::sleep(rest);
    tokio::pin!(settle);
    loop {
        tokio::select! {
            () = &mut settle => return,
            more = events.next() => if !matches!(more, Some(Ok(_))) { return settle.await },
        }
    }
}

/// What a page of runs asks, and a word by which it is known again.
async fn page(me: &AuthorizedCaller, query: &str, after: Option<Cursor>) -> Result<Value, CallError> {
    let backend = &me.backend;
    let found = inbox::asking_runs(backend, query, after).await?;
    let (asked, silent) = inbox::asked_by(backend, &found.runs).await;
    let asked = deadlines::as_timers_have_them(backend, asked).await;
    let mut seen = blake3::Hasher::new();
    for one in &asked {
        for part in [one.id(), one.shown()] {
            seen.update(&(part.len() as u64).to_be_bytes()).update(part.as_bytes());
        }
    }
    let asked: Vec<Value> = asked.iter().map(|one| told(me, one)).collect();
    let silent: Vec<Value> = silent.iter().map(|(id, why)| json!({ "workflow_id": id, "why": why })).collect();
    let next = found.next.map(|next| next.to_string());
    Ok(json!({ "approvals": asked, "not_asked": silent, "incomplete": next.is_some(), "next_cursor": next,
        "seen": &seen.finalize().to_hex()[..SEEN_CHARS] }))
}

/// As lists tell it, with the command that answers what is answered elsewhere, as it can be run anywhere.
fn told(me: &AuthorizedCaller, one: &HumanRequest) -> Value {
    let mut told = one.told(view::moment);
    if one.kind == HumanRequestKind::Elsewhere {
        told["request"]["answer"] = me.reach.complete_in(&one.target.namespace, &one.answer()).into();
    }
    told
}

/// `{"approved": true, …}` to an approval, `{"answer": …}` to a question; of the run that the path names. One that was given
/// under this key already is given, although nothing waits for it any more.
// long: what is asked, what is said, and what became of it, one after the other
pub async fn answer(me: AuthorizedCaller, at: RequestTarget, headers: HeaderMap, body: Bytes) -> Answer {
    let request_id = request_id(&headers)?;
    let mut members = Members::read(&body)?;
    let id = members.text("id");
    members.needs("id", id.is_some());
    let approved: Option<bool> = members.typed("approved");
    let answer = members.any("answer");
    let comment = members.text("comment");
    let feedback = members.text("feedback");
    let modified_action = members.text("modified_action");
    match (approved, &answer) {
        (Some(_), Some(_)) => members.wrong("answer", "an approval is approved or not; a question is answered"),
        (None, None) => members.wrong("approved", "say `approved`, or `answer` where a question was asked"),
        _ => {}
    }
    members.done()?;
    let id = id.unwrap_or_default();
    let said = GivenAnswer {
        id: &id,
        approved,
        answer: answer.as_ref(),
        comment: comment.as_deref(),
        feedback: feedback.as_deref(),
        modified_action: modified_action.as_deref(),
    };
    let accepted = |state: &str| Ok((StatusCode::ACCEPTED, Json(json!({ "id": id, "state": state }))).into_response());
    let info = inbox::going_on(&me.backend, at.target).await?;
    let target = inbox::target_of(&info);
    let all = match inbox::requests(&me.backend, &target, &info.workflow_type).await {
        // Other workflows ask nobody, and say so by having no such query.
        Err(CallError::Rejected(Rejection::Query(QueryError::Unknown { .. }))) => Vec::new(),
        all => all?,
    };
    let own = all.into_iter().find(|one| one.id() == id);
    let (mut found, mut of_below) = (own, Vec::new());
    if found.is_none() {
        // What `waiting` of a run shows is asked by runs below it, too.
        of_below = asking_below(&me.backend, &info).await?;
        found = asked_below(&me.backend, &of_below, &id).await;
    }
    let Some(found) = found else {
        if let Some(key) = &request_id {
            // Also where the run that heard it is over.
            for run in std::iter::once(&target).chain(of_below.iter().map(|run| &run.target)) {
                if was_heard(&me.backend, run, key, &said).await? {
                    return accepted("taken");
                }
            }
        }
        return Err(nothing_waits(&target, &id));
    };
    let message = said.message(&found).map_err(misfit)?;
    let input = Payload::encode(&message.input).map_err(|why| Problem::bad_request(why.to_string()))?;
    // Without a key of its caller it has one of its own, by which the run's history says whether it came first.
    let key = request_id.map_or_else(became::fresh_key, Ok);
    let key =
        key.map_err(|why| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "no_random_numbers", why.to_string()))?;
    let name = SignalName::of(message.signal);
    let signal = SignalRequest { name, input, identity: None, request_id: Some(key.clone()) };
    let to = inbox::send_on(&me.backend, &found.target, signal.clone()).await?;
    once::same_signal(&me.backend, &to, &signal).await?;
    let sent = SentAnswer { to: &to, signal: message.signal, input: &message.input, key: &key };
    match sent.became(&me.backend).await {
        Became::Taken => accepted("taken"),
        Became::Waits => accepted("sent"),
        Became::Refused(why) => Err(Problem::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "answer_refused",
            format!("{id} does not take this answer: {why}"),
        )),
        Became::Before(why) => Err(Problem::new(
            StatusCode::CONFLICT,
            "decided_before",
            format!("{id} is not decided by this answer: {why}"),
        )),
    }
}

/// The open runs below a run that ask people.
async fn asking_below(backend: &CallerBackend, of: &RunInfo) -> Result<Vec<ChildRun>, CallError> {
    let asks = |workflow_type: &WorkflowType| inbox::ASKING.contains(&workflow_type.as_str());
    if !asks(&of.workflow_type) {
        return Ok(Vec::new());
    }
    let below = below(backend, inbox::target_of(of), |_| true).await?.runs.into_iter().skip(1);
    Ok(below.filter(|run| asks(&run.workflow_type)).collect())
}

/// What one of these runs asks under this id. One that cannot be asked hides nothing of the others.
async fn asked_below(backend: &CallerBackend, runs: &[ChildRun], id: &str) -> Option<HumanRequest> {
    for run in runs.iter().filter(|run| run.open) {
        let asked = inbox::requests(backend, &run.target, &run.workflow_type).await.unwrap_or_default();
        if let Some(found) = asked.into_iter().find(|one| one.id() == id) {
            return Some(found);
        }
    }
    None
}

/// An answer that is none to what waits, with the member that says it.
fn misfit(why: AnswerMisfit) -> Problem {
    let (at, why) = match why {
        AnswerMisfit::IsQuestion => ("approved", "this is a question: send its `answer`".to_owned()),
        AnswerMisfit::IsApproval => ("answer", "this is an approval: send `approved`, true or false".to_owned()),
        AnswerMisfit::ToolCallIsAsShown | AnswerMisfit::HasNoAction => ("modified_action", why.to_string()),
        AnswerMisfit::IsElsewhere => {
            ("id", format!("{why}; a plan is approved with POST …/updates/approve_plan and {{\"version\": N}}"))
        }
        AnswerMisfit::NotAsAsked(_) => ("answer", why.to_string()),
    };
    let mut problem = Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid_body", format!("{at}: {why}"));
    problem.errors = vec![super::super::problem::InvalidField { at: at.to_owned(), why }];
    problem
}

fn nothing_waits(target: &Target, id: &str) -> Problem {
    let message =
        format!("nothing of the id {id} waits in {}; GET /api/v1/approvals shows what does", target.workflow_id);
    Problem::new(StatusCode::NOT_FOUND, "nothing_waits", message)
}

/// Whether the same answer was given to this run under this key; another one under it is refused.
async fn was_heard(
    backend: &CallerBackend,
    run: &Target,
    key: &RequestId,
    said: &GivenAnswer<'_>,
) -> Result<bool, Problem> {
    let Some(EventKind::WorkflowExecutionSignaled(signal)) = once::left_by(backend, run, key).await? else {
        return Ok(false);
    };
    once::refused_if(said.other_than(&signal.input.to_json()), key.as_str(), "an answer")?;
    Ok(true)
}

/// What somebody says to what waits.
struct GivenAnswer<'a> {
    id: &'a str,
    approved: Option<bool>,
    answer: Option<&'a Value>,
    comment: Option<&'a str>,
    feedback: Option<&'a str>,
    modified_action: Option<&'a str>,
}

impl GivenAnswer<'_> {
    /// The signal that says it to what waits.
    fn message(&self, to: &HumanRequest) -> Result<HumanMessage, AnswerMisfit> {
        match self.approved {
            Some(approved) => to.decided(&HumanDecision {
                approved,
                by: None,
                comment: self.comment,
                modified_action: self.modified_action,
                feedback: self.feedback,
            }),
            None => to.answered(self.answer.unwrap_or(&Value::Null)),
        }
    }

    /// The members that are not what the signal of an earlier answer says.
    fn other_than(&self, was: &Value) -> Vec<&'static str> {
        let text = |key: &str| was[key].as_str();
        let answer = self.answer.filter(|answer| !answer.is_null()).unwrap_or(&Value::Null);
        // An agent knows its calls by ids of its own, and is told one reason.
        let same = match was["id"].as_str() {
            Some(own) => [
                ("id", self.id.split_once('/').map_or(self.id, |(_, own)| own) == own),
                ("approved", self.approved == was["approved"].as_bool()),
                ("comment", text("reason").unwrap_or_default() == self.feedback.or(self.comment).unwrap_or_default()),
                ("answer", answer.is_null()),
                ("modified_action", self.modified_action.is_none()),
                ("feedback", true),
            ],
            None => [
                ("id", text("approval_id").or(text("interrupt_id")) == Some(self.id)),
                ("approved", self.approved == was["approved"].as_bool()),
                ("comment", text("comment") == self.comment),
                ("answer", *answer == was["resume"]),
                ("modified_action", text("modified_action") == self.modified_action),
                ("feedback", text("feedback") == self.feedback),
            ],
        };
        same.into_iter().filter(|(_, same)| !same).map(|(name, _)| name).collect()
    }
}
