//! Deploys: the next version of the code goes on with the runs of the one before (engine.md G22).
//!
//! Invariant: a deploy loses nothing, and code that does not fit what a run has done is found wherever a worker could have
//! been stopped: at the plan's own step, and afterwards at every turn of a life that had no such step. Whether the run
//! then comes to rest is asked elsewhere.

use bosun_engine::machine::{Execution, Held, LoadError};
use bosun_engine::*;

use super::finding::Violation;
use super::plan::Boundary;
use super::watch;
use super::world::{World, broken, run_is_closed};
use crate::warnings::renamed_signal;

impl World<'_> {
    /// The step of a plan: the worker is stopped, and one with the next version starts.
    pub(super) fn deploy(&mut self) -> Result<(), Violation> {
        self.version = (self.version + 1).min(self.versions.len() - 1);
        self.rare.hit("deployed");
        let before = self.awaiting()?;
        self.crash(Boundary::AfterRelease)?;
        let after = self.awaiting()?;
        self.warnings.extend(renamed_signal(&before, &after));
        Ok(())
    }

    /// What the run waits for, with the code as it is now.
    fn awaiting(&mut self) -> Result<Vec<Awaited>, Violation> {
        let Some(run_id) = self.main_run() else { return Ok(Vec::new()) };
        let execution = self.load(run_id)?;
        let awaiting = execution.awaiting();
        self.keep(run_id, execution);
        Ok(awaiting)
    }

    /// Loads every open beginning of what was lived with the first version into the second. A life seldom has its deploy
    /// late enough for the last steps of the code.
    pub(super) fn deploys_at_every_turn(&self) -> Result<(), Violation> {
        let Some(next) = self.versions.get(1).filter(|_| self.version == 0) else { return Ok(()) };
        for run in self.runs.values() {
            let open = run.turns.len() - usize::from(run_is_closed(run) && !run.turns.is_empty());
            for end in (1..=open).filter(|end| self.doubts.wants(&run.turns[..*end])) {
                let loaded = Execution::load(&run.turns[..end], next, next.build_id()).map_err(broken)?;
                watch::take();
                if let Some(Held::Load(LoadError::NonDeterminism(card))) = loaded.held() {
                    return Err(Violation::DeployMismatch(card.clone()));
                }
            }
        }
        self.doubts.calls()
    }
}
