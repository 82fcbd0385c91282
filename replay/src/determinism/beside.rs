//! Runs beside each other: what two runs of a worker share, if they share anything.
//!
//! Invariant: each history is replayed while another run, which was started with something else, is in memory and has not
//! ended; what is seen must be what was seen when it was alone. A life of the search has one run, so nothing else asks this.

use bosun_engine::{EventKind, Payload};

use super::DeterminismTest;
use crate::simulate::{SeenRun, Violation, on_a_fresh_thread, see_beside};

impl DeterminismTest {
    /// Replays each of these beside another. Of a difference, the seed of the life that it was seen in.
    pub(super) fn beside_each_other(&self, runs: &[SeenRun]) -> Result<(), (u64, Violation)> {
        let Some(registry) = self.versions.first() else { return Ok(()) };
        let (doubts, queries) = (&self.doubts, &self.drawn.queries);
        for run in runs {
            let is_other = |other: &&SeenRun| input_of(other) != input_of(run) && other.turns.len() > 1;
            let Some(other) = runs.iter().find(is_other) else { continue };
            on_a_fresh_thread(|| see_beside(doubts, registry, other, run, queries))
                .map_err(|finding| (run.seed, Violation::OtherRun { finding: Box::new(finding) }))?;
        }
        Ok(())
    }
}

/// What the run was started with.
pub(super) fn input_of(run: &SeenRun) -> Option<&Payload> {
    match run.turns.first()?.events.first()? {
        EventKind::WorkflowExecutionStarted(started) => Some(&started.input),
        _ => None,
    }
}
