//! From history back to a run: which job an event is, and how a run and its code are rebuilt.
//!
//! Invariant: rebuilding uses the same `apply` and the same driver as living does; there is no second loader. The code
//! is checked against history activation by activation, and a mismatch is a [`NonDeterminism`], never a guess.

use super::execution::{Code, Execution};
use super::held::HeldCode;
use super::run::{Run, RunPhase};
use crate::vocabulary::*;
use crate::workflow::{
    JobSources, NonDeterminism, RunIdentity, ShadowedDriver, TellMismatch, WorkflowRegistry, check_activation, job_of,
    markers_of,
};

/// Why a run cannot be brought back to life.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum LoadError {
    /// The code asks for something else than the history holds (G13).
    #[error("{0}")]
    NonDeterminism(Box<NonDeterminism>),
    /// The worker has no code of the run's type.
    #[error(transparent)]
    UnknownWorkflowType(Rejection),
    /// The code cannot be brought back through its history: it panics, or cannot read what is recorded.
    #[error("{0}")]
    Defect(Box<HeldCode>),
    /// The code asks for more in one turn than a turn may hold.
    #[error("one turn of the workflow code asks for {what}: look for a loop without end")]
    Overrun {
        /// What there is too much of: `more than 50000 commands`.
        what: String,
    },
    /// The turns do not describe a run. The log checks them before, so this is damage or a defect.
    #[error("the history of run {run} is not a history: {why}")]
    NotAHistory {
        /// The run whose turns they are.
        run: RunId,
        /// The first rule that they break.
        why: String,
    },
}

impl JobSources for Run {
    fn started(&self) -> Option<&WorkflowExecutionStarted> {
        Some(&self.started)
    }
    fn is_before_its_code(&self) -> bool {
        self.phase == RunPhase::Backoff
    }
    fn activity(&self, seq: Seq) -> Option<(&ActivityType, &ActivityId)> {
        self.activity_names(seq)
    }
    fn child(&self, seq: Seq) -> Option<(&WorkflowType, &WorkflowId, Option<RunId>)> {
        self.children.get(&seq).map(|child| {
            let run = child.started.then_some(child.run_id);
            (&child.initiated.workflow_type, &child.initiated.workflow_id, run)
        })
    }
}

/// Folds turns into the run they describe, without any code.
pub fn fold_run(turns: &[Turn]) -> Result<Run, LoadError> {
    let mut run = begin(turns)?;
    for turn in turns {
        for event in &turn.events {
            run.apply(turn.at, event);
        }
        run.apply_rest(turn);
    }
    Ok(run)
}

/// The run that the first event of the first turn begins.
fn begin(turns: &[Turn]) -> Result<Run, LoadError> {
    match turns.first().and_then(|turn| turn.events.first().map(|event| (turn, event))) {
        Some((turn, EventKind::WorkflowExecutionStarted(started))) => {
            Ok(Run::new(turn.run, turn.at, turn.build, started))
        }
        Some((turn, other)) => {
            let why = format!("the first event is {}", other.name());
            Err(LoadError::NotAHistory { run: turn.run, why })
        }
        None => {
            let run = turns.first().map_or(RunId([0; 16]), |turn| turn.run);
            Err(LoadError::NotAHistory { run, why: "there is no first event".into() })
        }
    }
}

/// A run and its code, walking through turns together.
pub(super) struct TurnWalk {
    pub(super) run: Run,
    pub(super) driver: Box<dyn Driver>,
}

impl TurnWalk {
    /// Begins at the first of these turns.
    pub(super) fn begin(turns: &[Turn], registry: &WorkflowRegistry) -> Result<TurnWalk, LoadError> {
        let run = begin(turns)?;
        let driver = registry.create(run.started(), run.id()).map_err(LoadError::UnknownWorkflowType)?;
        Ok(TurnWalk { run, driver })
    }

    /// Folds one turn and gives its activating events to the code, whose commands must be the recorded ones.
    pub(super) fn turn(&mut self, turn: &Turn, current_build: BuildId) -> Result<(), LoadError> {
        let events: Vec<Event> = turn.numbered().collect();
        let mut next = 0;
        while let Some(event) = events.get(next) {
            next += 1;
            let activating = event.kind.origin() == Origin::Activating;
            let job = if activating { job_of(&event.kind, &self.run) } else { None };
            self.run.apply(turn.at, &event.kind);
            if let EventKind::WorkflowExecutionForked { run_id, .. } = &event.kind {
                self.driver.forked(*run_id);
            }
            let Some(job) = job else { continue };
            let rest = &events[next..];
            let end = rest.iter().position(|event| event.kind.origin() == Origin::Activating).unwrap_or(rest.len());
            let recorded = &rest[..end];
            let produced = self.driver.activate(Activation {
                at: turn.at,
                run_id: self.run.visible_run_id,
                history: turn.size_told.unwrap_or(self.run.info.history),
                job,
                markers: markers_of(recorded.iter().map(|event| &event.kind)),
            });
            if let Some(what) = self.driver.overrun() {
                return Err(LoadError::Overrun { what });
            }
            let locate = |index: usize| self.driver.command_location(index);
            let identity = RunIdentity {
                run_id: self.run.id(),
                workflow_id: self.run.info.workflow_id.clone(),
                workflow_type: self.run.info.workflow_type.clone(),
                current_build,
            };
            let checked = check_activation(&identity, event, &produced, &locate, recorded);
            if let Err(mismatch) = checked {
                // A defect that did not keep the code from doing as recorded has been dealt with when it was recorded.
                return Err(match self.driver.defect() {
                    Some(defect) => {
                        LoadError::Defect(Box::new(HeldCode::replayed(defect, &self.run, current_build, event)))
                    }
                    None => LoadError::NonDeterminism(Box::new(mismatch)),
                });
            }
        }
        self.run.apply_rest(turn);
        Ok(())
    }
}

impl Execution {
    /// This run, brought back by its history, with its code beside the code that a snapshot has brought back: it goes on as
    /// by itself, and every difference is told (E37).
    pub(crate) fn compared_with(self, resumed: Execution, tell: TellMismatch) -> Execution {
        let info = &self.run.info;
        let names = (info.workflow_id.clone(), info.run_id, info.workflow_type.clone());
        let code = match (self.code, resumed.code) {
            (Code::Live(leads), Code::Live(shadow)) => {
                Code::Live(Box::new(ShadowedDriver::new(leads, shadow, names, tell)))
            }
            (code, _) => code,
        };
        Execution { run: self.run, code }
    }
}
