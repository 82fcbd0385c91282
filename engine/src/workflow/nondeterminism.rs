//! Non-determinism as data: what history holds, what the code asked, and how the two line up.
//!
//! Invariant: nothing of this is ever told by a text that somebody has to parse; the text is made at the end, and shows
//! hashes of inputs instead of inputs, so that it may be logged. It does not judge who is right: history is.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::asked::{Hint, Request};
use crate::vocabulary::*;

/// Workflow code that no longer matches its history. The run is held until code that fits is deployed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NonDeterminism {
    /// The run.
    pub run_id: RunId,
    /// Its workflow id.
    pub workflow_id: WorkflowId,
    /// Its type.
    pub workflow_type: WorkflowType,
    /// The first event that does not match; the event after the last one if history holds none.
    pub event_id: EventId,
    /// The event to which the code was answering.
    pub activating: ActivatingEvent,
    /// What history holds there.
    pub expected: Option<Request>,
    /// What the code asked for there.
    pub produced: Option<Request>,
    /// Where in the code.
    pub location: Option<CodeLocation>,
    /// The event of this activation that comes nearest to what the code asked for.
    pub nearest: Option<NearestMatch>,
    /// The whole activation, history and code side by side.
    pub alignment: Vec<AlignedLine>,
    /// What to do about it.
    pub hint: Hint,
    /// The code that wrote the event.
    pub recorded_build: BuildId,
    /// The code that does not match it.
    pub current_build: BuildId,
}

/// An event that looks like what the code asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NearestMatch {
    /// Its place in the history.
    pub event_id: EventId,
    /// What it holds.
    pub what: Request,
}

/// The event that an activation answers to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActivatingEvent {
    /// Its place in the history.
    pub event_id: EventId,
    /// The name of its kind.
    pub name: String,
}

/// One line of the comparison.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum AlignedLine {
    /// Both hold it.
    Same {
        /// Where history holds it.
        event_id: EventId,
        /// What it is.
        what: Request,
    },
    /// History holds it, the code did not ask for it.
    Missing {
        /// Where history holds it.
        event_id: EventId,
        /// What history holds.
        what: Request,
    },
    /// The code asked for it, history does not hold it.
    Extra {
        /// What the code asked for.
        what: Request,
        /// Where in the code.
        location: Option<CodeLocation>,
    },
    /// The same request with other content: input, fire time, result.
    Changed {
        /// Where history holds it.
        event_id: EventId,
        /// As history holds it.
        recorded: Request,
        /// As the code asked for it.
        produced: Request,
        /// Where in the code.
        location: Option<CodeLocation>,
        /// What it carried, where it carries a payload.
        recorded_input: Option<Payload>,
        /// What it carries now.
        produced_input: Option<Payload>,
    },
    /// The same request in another place of the order.
    Reordered {
        /// Where history holds it.
        event_id: EventId,
        /// What it is.
        what: Request,
        /// Where in the code.
        location: Option<CodeLocation>,
    },
}

impl NonDeterminism {
    /// The code of the card, for `explain`.
    pub const CODE: &'static str = "BOSUN0101";
}

impl fmt::Display for NonDeterminism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nothing = || "nothing".to_owned();
        writeln!(f, "error[{}]: workflow code no longer matches history", Self::CODE)?;
        writeln!(
            f,
            "  run   {} ({}, type {}, code {} -> {}) at event {}, in answer to {}",
            self.workflow_id,
            self.run_id,
            self.workflow_type,
            self.recorded_build,
            self.current_build,
            self.event_id,
            self.activating
        )?;
        writeln!(f, "  history expects   {}", self.expected.as_ref().map_or_else(nothing, Request::to_string))?;
        let location = self.location.as_ref().map_or_else(String::new, |at| format!("    {at}"));
        writeln!(
            f,
            "  code produced     {}{location}",
            self.produced.as_ref().map_or_else(nothing, Request::to_string)
        )?;
        self.alignment.iter().try_for_each(|line| writeln!(f, "{line}"))?;
        if let Some(nearest) = &self.nearest {
            writeln!(f, "note: event {} is the nearest match: {}", nearest.event_id, nearest.what)?;
        }
        write!(f, "help: {}", self.hint)
    }
}

impl fmt::Display for ActivatingEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (event {})", self.name, self.event_id)
    }
}

impl fmt::Display for AlignedLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = |location: &Option<CodeLocation>| location.as_ref().map_or_else(String::new, |at| format!("    {at}"));
        match self {
            AlignedLine::Same { event_id, what } => write!(f, "   {:>5}    {what}", event_id.0),
            AlignedLine::Missing { event_id, what } => write!(f, " > {:>5}  - {what}", event_id.0),
            AlignedLine::Extra { what, location } => write!(f, " >        + {what}{}", at(location)),
            AlignedLine::Changed { event_id, recorded, produced, location, .. } => {
                writeln!(f, " > {:>5}  - {recorded}", event_id.0)?;
                write!(f, " >        + {produced}{}   (changed)", at(location))
            }
            AlignedLine::Reordered { event_id, what, location } => {
                write!(f, " > {:>5}  ~ {what}{}   (same request, moved)", event_id.0, at(location))
            }
        }
    }
}

impl std::error::Error for NonDeterminism {}
