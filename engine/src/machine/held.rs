//! Held runs: why the code of a run is given nothing.
//!
//! Invariant: a reason says what happened and what it is about, for the card that `describe` shows; it decides nothing.

use super::replay::LoadError;
use super::run::Run;
use crate::vocabulary::*;

/// Why a run's code cannot be given anything now. Inputs are accepted durably all the same.
#[derive(Debug, Clone, PartialEq)]
pub enum Held {
    /// Its code does not fit its history, or is missing.
    Load(LoadError),
    /// The code has a defect: nothing of the turn was written.
    Code(Box<HeldCode>),
    /// A turn of the code took longer than the deadline.
    Busy {
        /// The limit.
        after: std::time::Duration,
    },
    /// A turn failed inside the engine, or an earlier hold of this worker stands.
    Defect {
        /// What happened.
        why: String,
    },
    /// Damage to the store took something that its code heard. Of a run that is over only what it was asked is lacking.
    Damaged {
        /// What is lost.
        why: String,
    },
    /// One turn of the code asked for more than a turn may hold.
    Overrun {
        /// What it asked for, in words.
        what: String,
    },
}

impl Held {
    /// The refusal of a start by a client, if the code cannot read its input. A child is held instead: code of the same
    /// deploy has sent it.
    pub(crate) fn refuses_start(&self) -> Option<Rejection> {
        match self {
            Held::Code(card) => match &card.defect {
                WorkflowDefect::UnreadableInput { workflow_type, why } => {
                    let what = format!("the input of the workflow {workflow_type}");
                    Some(Rejection::Invalid { what, why: why.clone() })
                }
                WorkflowDefect::Undecodable { .. }
                | WorkflowDefect::Unencodable { .. }
                | WorkflowDefect::Panic { .. }
                | WorkflowDefect::ForeignFuture { .. }
                | WorkflowDefect::ConditionMutated { .. } => None,
            },
            Held::Load(_) | Held::Busy { .. } | Held::Defect { .. } | Held::Damaged { .. } | Held::Overrun { .. } => {
                None
            }
        }
    }

    /// What the sender of an update hears that the code could not carry out.
    pub(crate) fn as_failure(&self) -> Failure {
        match self {
            Held::Code(card) => card.defect.failure(),
            held => Failure::application("Held", held.to_string()).non_retryable(),
        }
    }
}

impl std::fmt::Display for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Held::Load(error) => error.fmt(f),
            Held::Code(card) => card.fmt(f),
            Held::Defect { why } | Held::Damaged { why } => f.write_str(why),
            Held::Overrun { what } => {
                write!(
                    f,
                    "one turn of the workflow code asked for {what}; a loop without end? Nothing of that turn was done"
                )
            }
            Held::Busy { after } => {
                write!(f, "the workflow code did not come back within {after:?}; a busy loop or a blocking call?")
            }
        }
    }
}

/// A defect of workflow code: in which run, and what the code heard of when it showed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldCode {
    /// What is wrong.
    pub defect: WorkflowDefect,
    /// The workflow id of the run.
    pub workflow_id: WorkflowId,
    /// The run.
    pub run_id: RunId,
    /// Its type.
    pub workflow_type: WorkflowType,
    /// The code that has the defect.
    pub build: BuildId,
    /// When it showed.
    pub moment: DefectMoment,
}

/// When a defect showed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DefectMoment {
    /// In a turn that would have followed this event.
    Live {
        /// The last event in the log.
        after: EventId,
        /// What the code was told, in words.
        hears: String,
    },
    /// While the history was replayed, in answer to this event.
    Replayed {
        /// The event that the code was answering.
        event_id: EventId,
        /// The name of its kind.
        name: &'static str,
    },
}

impl HeldCode {
    pub(super) fn live(defect: WorkflowDefect, run: &Run, build: BuildId, hears: String) -> HeldCode {
        Self::of(defect, run, build, DefectMoment::Live { after: EventId(run.next_event().0.saturating_sub(1)), hears })
    }
    pub(super) fn replayed(defect: WorkflowDefect, run: &Run, build: BuildId, event: &Event) -> HeldCode {
        Self::of(defect, run, build, DefectMoment::Replayed { event_id: event.id, name: event.kind.name() })
    }
    fn of(defect: WorkflowDefect, run: &Run, build: BuildId, moment: DefectMoment) -> HeldCode {
        let info = run.info();
        HeldCode {
            defect,
            workflow_id: info.workflow_id.clone(),
            run_id: info.run_id,
            workflow_type: info.workflow_type.clone(),
            build,
            moment,
        }
    }
}

impl std::fmt::Display for HeldCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let HeldCode { defect, workflow_id, run_id, workflow_type, build, moment } = self;
        writeln!(f, "error[{}]: {}", WorkflowDefect::CODE, defect.title())?;
        write!(f, "  run   {workflow_id} ({run_id}, type {workflow_type}, code {build}) ")?;
        match moment {
            DefectMoment::Live { hears, .. } => writeln!(f, "in answer to {hears}")?,
            DefectMoment::Replayed { event_id, name } => {
                writeln!(f, "at event {event_id} ({name}), while its history was replayed")?;
            }
        }
        writeln!(f, "  code  {defect}")?;
        writeln!(f, "note: nothing of this turn was written; what comes for the run is kept")?;
        write!(
            f,
            "help: {} and start the worker with it: the run goes on from where it is. `bosun unpause` tries the same code \
             again, `bosun terminate` ends the run",
            defect.help()
        )
    }
}
