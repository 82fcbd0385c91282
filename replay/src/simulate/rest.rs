//! The rest at the end: faults stop, and everything must end or wait for something named.
//!
//! Invariant: a world that heals gives every success it can; so what does not come to rest then never does (G16).
//! Whether what happened on the way was right is not asked here.

use bosun_engine::*;

use super::finding::Violation;
use super::plan::Boundary;
use super::world::World;

/// A heal that needs more commits than this does not come to rest.
const HEAL_COMMITS: u32 = 2_000;
/// Deliveries in a row that change nothing.
const IDLE_MAX: u32 = 500;

impl World<'_> {
    /// Faults stop. Everything under way arrives and time passes until the world is at rest (the requirements of the engine §3, liveness).
    pub(super) fn heal(&mut self) -> Result<(), Violation> {
        self.healing = true;
        if let Some(boundary) = self.armed.take() {
            // No commit came for it to strike at.
            self.crash(match boundary {
                _ if boundary.releases() => boundary,
                _ => Boundary::AfterRelease,
            })?;
        }
        self.crash_at.clear();
        self.main_input(Input::Unpause { reason: "healed".into(), identity: None })?;
        let until = self.commits + self.doubts.heal_commits.unwrap_or(HEAL_COMMITS);
        let mut idle = 0;
        while self.commits < until {
            let before = (self.commits, self.now);
            let moved = self.deliver_any()? || self.tick_to_deadline()?;
            if !moved {
                return self.at_rest();
            }
            // Messages that change nothing may follow each other, though not for ever.
            idle = if before == (self.commits, self.now) { idle + 1 } else { 0 };
            if idle > IDLE_MAX {
                let why = "nothing moves although something is under way".into();
                return Err(Violation::Guarantee { id: "G16", why });
            }
        }
        if self.doubts.runs_for_ever {
            return Ok(());
        }
        Err(Violation::Stuck { why: "faults have stopped, and after 2000 commits the run has neither ended nor come to rest; say `runs_for_ever` if it should not".into() })
    }

    fn at_rest(&mut self) -> Result<(), Violation> {
        let Some(run_id) = self.main_run() else { return Ok(()) };
        let execution = self.load(run_id)?;
        let (closed, awaiting) = (execution.run().is_closed(), execution.awaiting());
        self.keep(run_id, execution);
        let can_be_told = !self.plan.signals.is_empty() || !self.plan.updates.is_empty();
        let machine = self.registry().supports_snapshot(&self.plan.workflow_type);
        if closed || !awaiting.is_empty() || (machine && can_be_told) {
            return Ok(());
        }
        Err(Violation::Stuck {
            why: "faults have stopped, and the run is open and waits for nothing that has a name".into(),
        })
    }
}
