//! Where the requests of clients are found in histories.
//!
//! Invariant: only what the log holds counts, an inbox included; nothing here judges.

use std::collections::{BTreeMap, BTreeSet};

use bosun_engine::*;

use super::super::guarantees;

/// Where requests are found in the log.
#[derive(Default)]
pub(super) struct FoundRequests<'a> {
    /// How often each was applied, by chain: the runs that follow a reset are one of their own, since its first run repeats
    /// what it was made of.
    pub(super) requests: BTreeMap<&'a RequestId, BTreeMap<RunId, u32>>,
    /// Those that wait, or waited, in an inbox.
    pub(super) kept: BTreeSet<&'a RequestId>,
    /// The chain, the start of the run and the event of each signal, wherever it was applied.
    pub(super) places: BTreeMap<&'a RequestId, Vec<(RunId, Timestamp, EventId)>>,
    /// Updates that were accepted, with their answers.
    pub(super) updates: BTreeMap<&'a UpdateId, Vec<&'a Result<Payload, Failure>>>,
}

impl<'a> FoundRequests<'a> {
    pub(super) fn of(all: &'a BTreeMap<RunId, Vec<Turn>>) -> Self {
        let mut found = FoundRequests::default();
        for (run, turns) in all {
            let (begun, chain) = (turns.first().map_or(Timestamp::ZERO, |turn| turn.at), chain_of(all, *run));
            for turn in turns {
                found.kept.extend(turn.inbox_added.iter().filter_map(id_of));
                for (index, event) in turn.events.iter().enumerate() {
                    let place = (chain, begun, EventId(turn.first_event.0 + index as u64));
                    found.note(event, place);
                }
            }
        }
        found
    }

    fn note(&mut self, event: &'a EventKind, place: (RunId, Timestamp, EventId)) {
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
            *self.requests.entry(id).or_default().entry(place.0).or_default() += 1;
            self.places.entry(id).or_default().push(place);
        }
    }
}

/// The first run of the chain that a run is in, or the run of the last reset in it.
pub(super) fn chain_of(all: &BTreeMap<RunId, Vec<Turn>>, run: RunId) -> RunId {
    let mut first = run;
    while let Some(started) = all.get(&first).and_then(|turns| guarantees::start_of(turns)) {
        let is_reset = started.forked_from.as_ref().is_some_and(|from| from.point.reset);
        match started.continued_from.filter(|_| !is_reset) {
            Some(before) => first = before,
            None => break,
        }
    }
    first
}

fn id_of(input: &Input) -> Option<&RequestId> {
    match input {
        Input::Signal(signal) => signal.request_id.as_ref(),
        Input::RequestCancel { request_id, .. } => request_id.as_ref(),
        _ => None,
    }
}
