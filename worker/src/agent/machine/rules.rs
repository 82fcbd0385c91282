//! By which rules an agent decides.
//!
//! Invariant: a run keeps the rules that it began with, so that its history replays to the same commands for ever. What
//! is decided in another way than before is asked for with [`Rules::are_first`] and [`Rules::tell_waits`]; nothing else looks
//! at them.

use serde::{Deserialize, Serialize};

/// The rules of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rules {
    /// Of runs that were begun before rules were counted: a pause is not heard, a summary of a summary is asked for, and
    /// failed calls cost nothing. Nothing begins by them any more.
    #[default]
    First,
    /// Of runs that were begun before agents told the run above what they wait for.
    Second,
    Third,
}

impl Rules {
    pub(crate) fn are_first(&self) -> bool {
        *self == Rules::First
    }

    /// Whether the run above is told what people are asked.
    pub(crate) fn tell_waits(&self) -> bool {
        *self == Rules::Third
    }
}
