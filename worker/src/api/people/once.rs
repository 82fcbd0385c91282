//! One key, one request: what an `Idempotency-Key` did before is compared with what is asked for under it now.
//!
//! The engine carries a request out once, however often it comes, and answers a repetition like the first. It looks at the key
//! alone; here the rest is looked at, as the draft of the IETF asks: another request under a used key is refused (422,
//! `idempotency_key_reused`) rather than answered with what the first one did.
//!
//! Invariant: what was asked for is read from the history of the run, where the engine has written it anyway, so it counts over
//! restarts and needs no memory of its own; it is compared as it reaches the engine, with who signs it. A request that is refused here has changed nothing: the engine has passed it over.
//! What the history does not hold any more (a run that was deleted, an earlier run of a chain) refuses nothing.

use axum::http::StatusCode;
use bosun_engine::*;

use super::super::authority::CallerBackend;
use super::super::problem::{InvalidField, Problem};
use super::start::StartMessage;
use crate::backend::{Attribution, Backend, CallError};

/// Events that are looked at first, from the end: a request that is new is there.
const NEWEST: usize = 50;
/// And then, so many at a time, up to so many.
const AT_ONCE: usize = 1_000;
const LOOKED_AT: u64 = 5_000;

/// Starts a run, or finds the one that the same request started before.
pub(super) async fn start(backend: &CallerBackend, start: StartWorkflow) -> Result<Started, Problem> {
    let asked = start.clone();
    let started = backend.start(start).await.map_err(|why| not_there(why.into()))?;
    same_start(backend, &asked, &started).await?;
    Ok(started)
}

/// What is named is not there: a workflow or an activity of a type that the worker does not have.
pub(super) fn not_there(why: Problem) -> Problem {
    match &why.rejection {
        Some(Rejection::UnknownWorkflowType { .. }) => Problem { status: StatusCode::NOT_FOUND, ..why },
        Some(Rejection::Invalid { what, .. }) if what == "activity_type" => {
            Problem { status: StatusCode::NOT_FOUND, ..why }
        }
        _ => why,
    }
}

/// Refuses a start whose key has started a run with something else in it.
pub(super) async fn same_start(
    backend: &CallerBackend,
    asked: &StartWorkflow,
    started: &Started,
) -> Result<(), Problem> {
    let Some(key) = asked.request_id.as_ref().filter(|_| !started.newly_started) else { return Ok(()) };
    let sent = backend.start_as_sent(asked.clone())?;
    refused_if(other_than_first(backend, &sent, started).await, key.as_str(), "a start")
}

/// The members of a start that are not what they were when its request id started the run that was found.
pub(crate) async fn other_than_first(
    backend: &dyn Backend,
    sent: &StartWorkflow,
    started: &Started,
) -> Vec<&'static str> {
    let Some(key) = sent.request_id.as_ref().filter(|_| !started.newly_started) else { return Vec::new() };
    match begun_by(backend, sent, key, started.run_id).await {
        Some((at, first)) => other_parts(&first, at, sent),
        None => Vec::new(),
    }
}

/// Refuses a start with a message, before it is sent, whose key has started a run with another one, or with none: that run
/// would hear this one now.
pub(super) async fn same_start_with(
    backend: &CallerBackend,
    asked: &StartWorkflow,
    message: &StartMessage,
) -> Result<(), Problem> {
    let Some(key) = &asked.request_id else { return Ok(()) };
    let of_id = Target { namespace: asked.namespace.clone(), ..Target::workflow(asked.workflow_id.clone()) };
    let Ok(found) = backend.describe(of_id).await else { return Ok(()) };
    let run = crate::inbox::target_of(&found.info);
    let Some((at, first)) = begun_by(backend, asked, key, found.info.run_id).await else { return Ok(()) };
    let sent = backend.start_as_sent(asked.clone())?;
    let mut other = other_parts(&first, at, &sent);
    // Where the chain has gone on, the message stands in an earlier run, and the engine knows its key.
    let is_first = first.first_run == found.info.run_id;
    match message {
        StartMessage::Signal(signal) => {
            other.extend((is_first && left_by(backend, &run, key).await?.is_none()).then_some("signal"));
            refused_if(other, key.as_str(), "a start")?;
            same_signal(backend, &run, signal).await
        }
        StartMessage::Update(update) => {
            let known = !is_first || accepted(backend, &run, &update.update_id).await?.is_some();
            other.extend((!known).then_some("update"));
            refused_if(other, key.as_str(), "a start")?;
            same_update(backend, &run, update).await
        }
    }
}

/// The first event of the chain of a run, where this key has started it; otherwise it is an open one of the id, which is used.
async fn begun_by(
    backend: &dyn Backend,
    asked: &StartWorkflow,
    key: &RequestId,
    run: RunId,
) -> Option<(Timestamp, Box<WorkflowExecutionStarted>)> {
    let of = |run| Target { namespace: asked.namespace.clone(), ..Target::run(asked.workflow_id.clone(), run) };
    let newest = begun(backend, of(run)).await?;
    // Where the chain has gone on, what was asked for stands in its first run.
    let (at, first) = if newest.1.first_run == run { newest } else { begun(backend, of(newest.1.first_run)).await? };
    (first.request_id.as_ref() == Some(key)).then_some((at, first))
}

/// The first event of a run.
async fn begun(backend: &dyn Backend, run: Target) -> Option<(Timestamp, Box<WorkflowExecutionStarted>)> {
    let event = backend.history(run, EventId(1), 1).await.ok()?.pop()?;
    match event.kind {
        EventKind::WorkflowExecutionStarted(started) => Some((event.at, started)),
        _ => None,
    }
}

/// The members of a start that are not what they were.
fn other_parts(was: &WorkflowExecutionStarted, at: Timestamp, asked: &StartWorkflow) -> Vec<&'static str> {
    let now = asked.clone().first_event(was.first_run, at);
    let json = |memo: &Memo| memo.iter().map(|(name, value)| (name.clone(), value.to_json())).collect::<Vec<_>>();
    let same = [
        ("workflow_type", was.workflow_type == now.workflow_type),
        ("task_queue", was.task_queue == now.task_queue),
        ("input", was.input.to_json() == now.input.to_json()),
        ("start_delay", was.start_at == now.start_at),
        ("execution_timeout", was.execution_deadline == now.execution_deadline),
        ("run_timeout", was.run_timeout == now.run_timeout),
        ("retry_policy", was.retry_policy == now.retry_policy),
        ("memo", json(&was.memo) == json(&now.memo)),
        ("search_attributes", was.search_attributes == now.search_attributes),
        ("summary", was.summary == now.summary),
        ("details", was.details == now.details),
        ("priority", was.priority == now.priority),
    ];
    same.into_iter().filter(|(_, same)| !same).map(|(name, _)| name).collect()
}

/// Sends a signal, unless its key has sent another one to this run.
pub(super) async fn signal(backend: &CallerBackend, to: Target, signal: SignalRequest) -> Result<(), Problem> {
    let asked = signal.clone();
    backend.signal(to.clone(), signal).await?;
    same_signal(backend, &to, &asked).await
}

/// Refuses a signal whose key has told this run something else.
pub(super) async fn same_signal(backend: &CallerBackend, to: &Target, asked: &SignalRequest) -> Result<(), Problem> {
    let Some(key) = &asked.request_id else { return Ok(()) };
    let asked = backend.signal_as_sent(asked.clone())?;
    let other = match left_by(backend, to, key).await? {
        Some(EventKind::WorkflowExecutionSignaled(was)) => {
            let same = [("name", was.name == asked.name), ("input", was.input.to_json() == asked.input.to_json())];
            same.into_iter().filter(|(_, same)| !same).map(|(name, _)| name).collect()
        }
        Some(_) => return Err(of_another_kind(key.as_str(), "a signal")),
        None => Vec::new(),
    };
    refused_if(other, key.as_str(), "a signal")
}

/// Requests cancellation, unless the key has told this run something else.
pub(super) async fn cancel(backend: &CallerBackend, of: Target, because: Attribution) -> Result<(), Problem> {
    let (key, reason) = (because.request_id.clone(), because.reason.clone());
    backend.cancel(of.clone(), because).await?;
    let Some(key) = key else { return Ok(()) };
    let other = match left_by(backend, &of, &key).await? {
        Some(EventKind::WorkflowExecutionCancelRequested { reason: was, .. }) if was != reason => vec!["reason"],
        Some(EventKind::WorkflowExecutionCancelRequested { .. }) | None => Vec::new(),
        Some(_) => return Err(of_another_kind(key.as_str(), "a cancellation")),
    };
    refused_if(other, key.as_str(), "a cancellation")
}

/// Sends an update; one that has a key of its own is no other update than the one that the key has sent.
pub(super) async fn update(
    backend: &CallerBackend,
    to: Target,
    request: UpdateRequest,
    has_key: bool,
) -> Result<UpdateOutcome, Problem> {
    let asked = request.clone();
    let outcome = backend.update(to.clone(), request).await.map_err(|why| not_there(why.into()))?;
    if has_key {
        same_update(backend, &to, &asked).await?;
    }
    Ok(outcome)
}

/// Refuses an update whose key has sent this run another one.
pub(super) async fn same_update(backend: &CallerBackend, to: &Target, asked: &UpdateRequest) -> Result<(), Problem> {
    let asked = backend.update_as_sent(asked.clone())?;
    let other = match accepted(backend, to, &asked.update_id).await? {
        Some(EventKind::WorkflowExecutionUpdateAccepted { name, input, .. }) => {
            let same = [("name", name == asked.name), ("input", input.to_json() == asked.input.to_json())];
            same.into_iter().filter(|(_, same)| !same).map(|(name, _)| name).collect()
        }
        _ => Vec::new(),
    };
    refused_if(other, asked.update_id.as_str(), "an update")
}

/// The update of this id, as the run has accepted it.
async fn accepted(backend: &CallerBackend, run: &Target, id: &UpdateId) -> Result<Option<EventKind>, CallError> {
    let is = |kind: &EventKind| match kind {
        EventKind::WorkflowExecutionUpdateAccepted { update_id, .. } => update_id == id,
        _ => false,
    };
    newest(backend, run, is).await
}

/// What a message under this key has left in the history of a run.
pub(crate) async fn left_by(
    backend: &dyn Backend,
    run: &Target,
    key: &RequestId,
) -> Result<Option<EventKind>, CallError> {
    let is = |kind: &EventKind| match kind {
        EventKind::WorkflowExecutionSignaled(signal) => signal.request_id.as_ref() == Some(key),
        EventKind::WorkflowExecutionCancelRequested { request_id, .. } => request_id.as_ref() == Some(key),
        _ => false,
    };
    newest(backend, run, is).await
}

/// The newest such event, looked for from the end.
async fn newest(
    backend: &dyn Backend,
    run: &Target,
    is: impl Fn(&EventKind) -> bool,
) -> Result<Option<EventKind>, CallError> {
    let Description { info, inbox, .. } = backend.describe(run.clone()).await?;
    // The very run: another one may follow while this is read.
    let run = crate::inbox::target_of(&info);
    // What a run that is paused or held was told waits beside its events.
    if inbox > 0 {
        let turns = backend.turns(run.clone()).await?;
        let waiting = turns.into_iter().rev().flat_map(|turn| turn.inbox_added.into_iter().rev()).filter_map(as_event);
        if let Some(found) = waiting.into_iter().find(&is) {
            return Ok(Some(found));
        }
    }
    let (whole, mut before) = (info.history.events, info.history.events + 1);
    let mut size = NEWEST;
    while before > 1 && whole.saturating_sub(before) < LOOKED_AT {
        let from = before.saturating_sub(size as u64).max(1);
        let most = usize::try_from(before - from).unwrap_or(size);
        let events = backend.history(run.clone(), EventId(from), most).await?;
        if let Some(found) = events.into_iter().rev().find(|event| is(&event.kind)) {
            return Ok(Some(found.kind));
        }
        (before, size) = (from, AT_ONCE);
    }
    Ok(None)
}

/// The event that an input becomes when a run takes it.
fn as_event(input: Input) -> Option<EventKind> {
    match input {
        Input::Signal(signal) => Some(EventKind::WorkflowExecutionSignaled(signal)),
        Input::RequestCancel { reason, identity, request_id } => {
            Some(EventKind::WorkflowExecutionCancelRequested { reason, identity, request_id })
        }
        Input::Update { update_id, name, input, identity } => {
            Some(EventKind::WorkflowExecutionUpdateAccepted { update_id, name, input, identity })
        }
        _ => None,
    }
}

/// A key that was used for a request of another kind.
fn of_another_kind(key: &str, what: &str) -> Problem {
    let message = format!(
        "the Idempotency-Key {key:?} was used for another request than {what}: nothing has changed; use another key with this one"
    );
    Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "idempotency_key_reused", message)
}

/// What is said where something of a request is not what its key was used for first.
pub(super) fn refused_if(other: Vec<&'static str>, key: &str, what: &str) -> Result<(), Problem> {
    if other.is_empty() {
        return Ok(());
    }
    let message = format!(
        "the Idempotency-Key {key:?} was used for {what} with another {}: nothing has changed; send the same request again, \
         or another key with this one",
        other.join(", ")
    );
    let problem = Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "idempotency_key_reused", message);
    let why = "not what was sent under this key first".to_owned();
    let errors = other.into_iter().map(|at| InvalidField { at: at.to_owned(), why: why.clone() }).collect();
    Err(Problem { errors, ..problem })
}
