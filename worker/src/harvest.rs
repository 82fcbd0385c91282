//! From the histories of runs to a cassette: whatever a model has answered there can be played, without a provider.
//!
//! Invariant: a history holds every answer, and every request or what it is made of; nothing else is read, and nobody is
//! asked. A call that failed has no answer and is left out; its request counts only when it was answered. Pure.
//!
//! It stands above capabilities and agents, since it knows both: the activity `model` has its request as its input, and
//! the request of an `agent_model` is read out of its run, as it was when it was sent.

use std::collections::BTreeMap;

use bosun_engine::{Event, EventKind, Payload, RunId, Seq, Timestamp};

use crate::agent::AGENT_MODEL;
use crate::agent::resolve::{Conversation, ResolveError};
use crate::capability::model::{ChatRequest, ChatResponse, MODEL, ModelInput, Tape};

/// Why a history is no source of a cassette. `seq` is the number of the activity.
#[derive(Debug, thiserror::Error)]
pub enum HarvestError {
    #[error(
        "the input of the model call {seq} cannot be read: {why}; another program than bosun may have made the call"
    )]
    Input { seq: u64, why: String },
    #[error(
        "the answer of the model call {seq} cannot be read: {why}; another program than bosun may have made the call"
    )]
    Answer { seq: u64, why: String },
    #[error("the request of the model call {seq} cannot be rebuilt: {why}; the history may be incomplete")]
    Request { seq: u64, why: ResolveError },
}

/// A call of a model that was answered.
struct Answered {
    /// When it was asked for, the place of its run, and its number there.
    order: (Timestamp, usize, u64),
    provider: String,
    request: ChatRequest,
    response: ChatResponse,
}

/// The cassette of one run, from all of its events, the first one included. What its children were answered is in their
/// own histories: [`children`] and [`from_histories`].
///
/// # Errors
/// The history is cut, or activities of these names are not those in the box.
pub fn from_history(events: &[Event]) -> Result<Tape, HarvestError> {
    from_histories([events])
}

/// The cassette of several runs: one and those below it, or the runs of one chain. Answers to equal requests stand in the
/// order in which they were asked for; of those that were asked for in one moment, in the order of the runs given. Without
/// any model call it is empty.
///
/// # Errors
/// As [`from_history`].
pub fn from_histories<'a>(runs: impl IntoIterator<Item = &'a [Event]>) -> Result<Tape, HarvestError> {
    let mut all = Vec::new();
    for (place, events) in runs.into_iter().enumerate() {
        all.extend(answered(place, events)?);
    }
    all.sort_by_key(|answered| answered.order);
    let mut tape = Tape::default();
    for Answered { provider, request, response, .. } in all {
        tape.record(&provider, &request, response);
    }
    Ok(tape)
}

/// The runs that this one has started as its children, in the order of their starts.
pub fn children(events: &[Event]) -> Vec<RunId> {
    let started = events.iter().filter_map(|event| match &event.kind {
        EventKind::ChildWorkflowExecutionStarted { run_id, .. } => Some(*run_id),
        _ => None,
    });
    started.collect()
}

fn answered(place: usize, events: &[Event]) -> Result<Vec<Answered>, HarvestError> {
    let mut conversation = Conversation::default();
    events.iter().for_each(|event| conversation.hear(event.id, &event.kind));
    let mut asked: BTreeMap<Seq, (Timestamp, Option<&Payload>)> = BTreeMap::new();
    let mut all = Vec::new();
    for event in events {
        match &event.kind {
            EventKind::ActivityTaskScheduled(task) if task.activity_type.as_str() == MODEL => {
                asked.insert(task.seq, (event.at, Some(&task.input)));
            }
            EventKind::ActivityTaskScheduled(task) if task.activity_type.as_str() == AGENT_MODEL => {
                asked.insert(task.seq, (event.at, None));
            }
            EventKind::ActivityTaskCompleted { seq, result, .. } => {
                let Some((at, input)) = asked.remove(seq) else { continue };
                let input = match input {
                    Some(input) => {
                        let read = input.decode::<ModelInput>();
                        read.map_err(|why| HarvestError::Input { seq: seq.0, why: why.to_string() })?
                    }
                    None => conversation.request(seq.0).map_err(|why| HarvestError::Request { seq: seq.0, why })?,
                };
                let (provider, request) = (input.provider, input.request);
                let response = result.to_json()["response"].take();
                let response = serde_json::from_value(response)
                    .map_err(|why| HarvestError::Answer { seq: seq.0, why: why.to_string() })?;
                all.push(Answered { order: (at, place, seq.0), provider, request, response });
            }
            _ => {} // says nothing about an answer
        }
    }
    Ok(all)
}
