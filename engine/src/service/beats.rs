//! Heartbeats that come while the disk is full.
//!
//! Invariant: of each attempt the last one is kept, in memory, and is decided when there is room again, or before the attempt
//! ends; so they do not pile up behind what waits for room, however long that takes. Nobody waits for one of these: one with a
//! caller is decided like any other input.

use std::collections::BTreeMap;

use super::mailbox::RunRef;
use crate::activity::TaskToken;
use crate::request::Target;
use crate::vocabulary::Input;

/// The last heartbeat of each attempt, and for which run.
#[derive(Default)]
pub(super) struct KeptBeats(BTreeMap<TaskToken, (RunRef, Input)>);

impl KeptBeats {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    /// Keeps a heartbeat; gives back what is none.
    pub(super) fn keep(&mut self, run: RunRef, input: Input) -> Option<(RunRef, Input)> {
        match attempt_of(&run, &input).filter(|_| matches!(input, Input::Heartbeat { .. })) {
            Some(attempt) => {
                self.0.insert(attempt, (run, input));
                None
            }
            None => Some((run, input)),
        }
    }
    /// What is to be decided before this input: the heartbeat of an attempt that ends.
    pub(super) fn before(&mut self, run: &RunRef, input: &Input) -> Option<(RunRef, Input)> {
        let attempt = attempt_of(run, input).filter(|_| matches!(input, Input::ActivityOutcome { .. }))?;
        self.0.remove(&attempt)
    }
    /// All that are kept.
    pub(super) fn take(&mut self) -> impl Iterator<Item = (RunRef, Input)> + use<> {
        std::mem::take(&mut self.0).into_values()
    }
}

/// The attempt that an input comes from.
fn attempt_of(run: &RunRef, input: &Input) -> Option<TaskToken> {
    let RunRef::Target(Target { run_id: Some(run_id), .. }) = run else { return None };
    match input {
        Input::Heartbeat { seq, attempt, .. } | Input::ActivityOutcome { seq, attempt, .. } => {
            Some(TaskToken { run_id: *run_id, seq: *seq, attempt: *attempt })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vocabulary::{ActivityOutcome, Attempt, Namespace, RunId, Seq, WorkflowId};

    #[test]
    fn the_last_heartbeat_of_each_attempt_is_kept_until_it_ends() {
        let run = |run_id| {
            let (namespace, workflow_id) = (Namespace::of("default"), WorkflowId::of("w"));
            RunRef::Target(Target { namespace, workflow_id, run_id })
        };
        let this = || run(Some(RunId([1; 16])));
        let beat = |seq, details: u64| {
            let details = Some(crate::vocabulary::Payload::raw_json(details.to_string()));
            Input::Heartbeat { seq: Seq(seq), attempt: Attempt(1), details }
        };
        let end = |seq| {
            let outcome = ActivityOutcome::Canceled(None);
            Input::ActivityOutcome { seq: Seq(seq), attempt: Attempt(1), outcome, identity: None }
        };
        let mut beats = KeptBeats::default();
        for details in 1..=1_000 {
            assert!(beats.keep(this(), beat(1, details)).is_none() && beats.keep(this(), beat(2, details)).is_none());
        }
        assert!(beats.keep(this(), end(1)).is_some(), "only heartbeats are");
        assert!(beats.keep(run(None), beat(1, 1)).is_some(), "of whatever run is the newest then");
        assert!(beats.before(&this(), &beat(1, 1_001)).is_none());
        assert!(matches!(beats.before(&this(), &end(1)), Some((_, input)) if input == beat(1, 1_000)));
        assert!(beats.before(&this(), &end(1)).is_none() && !beats.is_empty());
        let rest: Vec<Input> = beats.take().map(|(_, input)| input).collect();
        assert!(rest == [beat(2, 1_000)] && beats.is_empty());
    }
}
