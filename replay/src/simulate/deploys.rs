//! Deploys: the next version of the code goes on with the runs of the one before (G22).
//!
//! Invariant: a deploy loses nothing, and code that does not fit what a run has done is found wherever a worker could have
//! been stopped: at the plan's own step, and afterwards at every turn of a life that had no such step. Whether the run
//! then comes to rest is asked elsewhere.

use bosun_engine::machine::{Execution, Held, LoadError};
use bosun_engine::*;

use super::finding::Violation;
use super::plan::Boundary;
use super::watch::{self, WatchedActivation};
use super::world::{World, broken, run_is_closed};
use crate::warnings::renamed_signal;

/// What the version before asked for, and the next one for the same history. How activities and children are carried out may
/// change between versions, and no door minds; history tells of all else, or nothing does and it is found here.
pub(super) fn deployed_alike(before: &[WatchedActivation], after: &[WatchedActivation]) -> Result<(), Violation> {
    for (before, after) in before.iter().zip(after) {
        let at = (0..before.commands.len().max(after.commands.len()))
            .find(|at| before.commands.get(*at).map(what_it_is) != after.commands.get(*at).map(what_it_is));
        let Some(at) = at else { continue };
        let told = |seen: &WatchedActivation| {
            let text = seen.commands.get(at).map_or_else(|| "nothing".into(), what_it_is);
            let place = seen.places.get(at).cloned().flatten();
            let text: String = text.chars().take(400).collect();
            place.map_or(text.clone(), |place| format!("{text}\n           at {place}"))
        };
        return Err(Violation::DeployDiffers { before: told(before), after: told(after) });
    }
    Ok(())
}

/// A command without the options that say how it is carried out, and a patch whether it is kept or on its way out. As text: it may hold floats that equal nothing.
fn what_it_is(command: &Command) -> String {
    let mut command = command.clone();
    match &mut command {
        Command::ScheduleActivity { options, .. } => *options = ActivityOptions::default(),
        Command::StartChildWorkflow { options, .. } => *options = ChildWorkflowOptions::default(),
        Command::RecordMarker(Marker::Patch { deprecated, .. }) => *deprecated = false,
        _ => {}
    }
    format!("{command:?}")
}

impl World<'_> {
    /// The step of a plan: the worker is stopped, and one with the next version starts.
    pub(super) fn deploy(&mut self) -> Result<(), Violation> {
        self.version = (self.version + 1).min(self.versions.len() - 1);
        self.rare.hit("deployed");
        for run in self.runs.values_mut() {
            run.lived_before = run.lived.len();
        }
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
