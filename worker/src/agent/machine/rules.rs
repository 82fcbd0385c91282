//! By which rules an agent decides.
//!
//! Invariant: a run keeps the rules that it began with, so that its history replays to the same commands for ever. What
//! is decided in another way than before is asked for with [`Rules::are_first`]; nothing else looks at them.

use serde::{Deserialize, Serialize};

/// The rules of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rules {
    /// Of runs that were begun before rules were counted: a pause is not heard, a summary of a summary is asked for, and
    /// failed calls cost nothing. Nothing begins by them any more.
    #[default]
    First,
    Second,
}

impl Rules {
    pub(crate) fn are_first(&self) -> bool {
        *self == Rules::First
    }
}
