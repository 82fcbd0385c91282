//! Starts that may be sent again: a request id starts one run, and is refused for another one.
//!
//! Invariant: what is refused here has changed nothing: the engine has passed it over, and what was asked for is read from the
//! history of the run that the id began.

use bosun_engine::*;

use super::context::Context;
use super::control::is_schedule;
use super::error::CliError;
use super::list::run_word;
use crate::api::people::{left_by, other_than_first};
use crate::own_work::may_be_started;

/// Starts it, or finds what the same request id has started; with something else in it that id is refused.
pub(super) async fn start_once(cx: &Context, request: StartWorkflow) -> Result<Started, CliError> {
    let sent = request.clone();
    may_be_started(&*cx.backend, &sent).await.map_err(|why| is_schedule(&why))?;
    let started = cx.backend.start(request).await.map_err(|why| without_input(why.into(), &sent))?;
    let other = other_than_first(&*cx.backend, &sent, &started).await;
    refuse_other(&sent, &started, &other)?;
    Ok(started)
}

/// As [`start_once`], with a signal that is part of the request: told again, neither happens again.
pub(super) async fn signal_with_start_once(
    cx: &Context,
    request: StartWorkflow,
    signal: SignalRequest,
) -> Result<Started, CliError> {
    let (sent, told) = (request.clone(), signal.clone());
    may_be_started(&*cx.backend, &request).await.map_err(|why| is_schedule(&why))?;
    let of_id = Target { namespace: cx.namespace.clone(), ..Target::workflow(sent.workflow_id.clone()) };
    if sent.request_id.is_some()
        && let Ok(found) = cx.backend.describe(of_id).await
    {
        let run_id = found.info.run_id;
        let there = Started { workflow_id: sent.workflow_id.clone(), run_id, newly_started: false };
        refuse_other(&sent, &there, &other_than_first(&*cx.backend, &sent, &there).await)?;
    }
    let started = cx.backend.signal_with_start(request, signal).await?;
    let mut other = other_than_first(&*cx.backend, &sent, &started).await;
    if !started.newly_started && !is_same_signal(cx, &started, &told).await {
        other.push("signal");
    }
    refuse_other(&sent, &started, &other)?;
    Ok(started)
}

/// Refuses a request whose id has started a run with something else in it.
fn refuse_other(sent: &StartWorkflow, started: &Started, other: &[&str]) -> Result<(), CliError> {
    match &sent.request_id {
        Some(key) if !other.is_empty() => {
            let id = run_word(started.workflow_id.as_str());
            let why = format!(
                "the request id {key} has started {} with another {}: nothing has begun",
                started.workflow_id,
                other.join(", ")
            );
            Err(CliError::usage(why)
                .help(format!("take another --request-id; `bosun describe {id}` shows what it began")))
        }
        _ => Ok(()),
    }
}

/// Whether the signal is the one that its request id has told this run. One that the history does not hold refuses nothing.
async fn is_same_signal(cx: &Context, started: &Started, signal: &SignalRequest) -> bool {
    let Some(key) = &signal.request_id else { return true };
    let run = Target::run(started.workflow_id.clone(), started.run_id);
    let run = Target { namespace: cx.namespace.clone(), ..run };
    match left_by(&*cx.backend, &run, key).await {
        Ok(Some(EventKind::WorkflowExecutionSignaled(was))) => {
            was.name == signal.name && was.input.to_json() == signal.input.to_json()
        }
        Ok(_) | Err(_) => true,
    }
}

/// What cannot be read is no value at all, where none was given.
fn without_input(why: CliError, sent: &StartWorkflow) -> CliError {
    if sent.input == Payload::null() && why.message.contains("cannot read a json payload of 4 bytes") {
        return why.help("it was given no input: `-i JSON` or `-i @FILE` gives it one");
    }
    why
}
