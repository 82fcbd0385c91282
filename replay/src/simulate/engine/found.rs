//! Where the requests of clients are found in histories.
//!
//! Invariant: only what the log holds counts, an inbox included; nothing here judges.

use std::collections::{BTreeMap, BTreeSet};

use bosun_engine::*;

use super::super::guarantees;

/// Where requests are found in the log.
#[derive(Default)]
pub(super) struct FoundRequests<'a> {
    /// How often each was applied, by chain.
    pub(super) requests: BTreeMap<&'a RequestId, BTreeMap<RunId, u32>>,
    /// Those that wait, or waited, in an inbox.
    pub(super) kept: BTreeSet<&'a RequestId>,
    /// The workflow id, the start of the run and the event of each signal.
    pub(super) places: BTreeMap<&'a RequestId, (&'a WorkflowId, Timestamp, EventId)>,
    /// Updates that were accepted, with their answers.
    pub(super) updates: BTreeMap<&'a UpdateId, Vec<&'a Result<Payload, Failure>>>,
}

impl<'a> FoundRequests<'a> {
    pub(super) fn of(all: &'a BTreeMap<RunId, Vec<Turn>>) -> Self {
        let mut found = FoundRequests::default();
        for turns in all.values() {
            let Some(started) = guarantees::start_of(turns) else { continue };
            let (begun, chain) = (turns.first().map_or(Timestamp::ZERO, |turn| turn.at), started.first_run);
            for turn in turns {
                found.kept.extend(turn.inbox_added.iter().filter_map(id_of));
                for (index, event) in turn.events.iter().enumerate() {
                    let place = (&started.workflow_id, begun, EventId(turn.first_event.0 + index as u64));
                    found.note(event, chain, place);
                }
            }
        }
        found
    }

    fn note(&mut self, event: &'a EventKind, chain: RunId, place: (&'a WorkflowId, Timestamp, EventId)) {
        let id = match event {
            EventKind::WorkflowExecutionSignaled(signal) => signal.request_id.as_ref(),
            EventKind::WorkflowExecutionCancelRequested { request_id, .. } => request_id.as_ref(),
            EventKind::WorkflowExecutionUpdateAccepted { update_id, .. } => {
                self.updates.entry(update_id).or_default();
                None
            }
            EventKind::WorkflowExecutionUpdateCompleted { update_id, result } => {
                self.updates.entry(update_id).or_default().push(result);
                None
            }
            _ => None,
        };
        if let Some(id) = id {
            *self.requests.entry(id).or_default().entry(chain).or_default() += 1;
            self.places.insert(id, place);
        }
    }
}

fn id_of(input: &Input) -> Option<&RequestId> {
    match input {
        Input::Signal(signal) => signal.request_id.as_ref(),
        Input::RequestCancel { request_id, .. } => request_id.as_ref(),
        _ => None,
    }
}
