//! By which rules an agent decides.
//!
//! Invariant: a run keeps the rules that it began with, so that its history replays to the same commands for ever. What
//! is decided in another way than before is asked for with [`Rules::are_first`], [`Rules::tell_waits`] and
//! [`Rules::price_by_spec`]; nothing else looks at them.

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
    /// Of runs whose spec names a price: a call that reports no money costs what its tokens cost by it.
    Fourth,
}

impl Rules {
    pub(crate) fn are_first(&self) -> bool {
        *self == Rules::First
    }

    /// Whether the run above is told what people are asked.
    pub(crate) fn tell_waits(&self) -> bool {
        matches!(self, Rules::Third | Rules::Fourth)
    }

    /// Whether the price of the spec says what a call cost that says nothing of it itself.
    pub(crate) fn price_by_spec(&self) -> bool {
        *self == Rules::Fourth
    }
}
