//! Clues: which lines of the code a difference points at, and what may have caused it.
//!
//! Invariant: a clue explains a finding that stands without it; none is a finding of its own. Files are read only once
//! something is wrong, and only to name a field; what cannot be read gives no clue.

use std::fmt;

use bosun_engine::*;

use super::skipped::{SkippedField, skipped_fields};
use super::watch::WatchedActivation;
use crate::determinism::{CallSite, Trip, suspects};

/// What is known about the cause of a difference.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Clues {
    /// Where the code asked for the command that differs, when the run lived.
    pub lived_at: Option<CodeLocation>,
    /// Where it asked for something else the second time.
    pub again_at: Option<CodeLocation>,
    /// The functions of the code that led to that command, in either run, the one that asked for it first.
    pub callers: Vec<CallSite>,
    /// Calls that are no mistake by themselves, and may be the cause: maps without an order.
    pub suspects: Vec<Trip>,
    /// Whether it differs after the state came back from a snapshot.
    pub from_snapshot: bool,
    /// Fields of the state that serde leaves out, so that snapshots lose them.
    pub skipped: Vec<SkippedField>,
}

impl Clues {
    /// From the activations of a life and those of another run over the same history.
    pub(super) fn of(lived: &[WatchedActivation], again: &[WatchedActivation]) -> Clues {
        let differing = lived.iter().zip(again).find(|(lived, again)| lived.commands != again.commands);
        differing.map_or_else(Clues::suspected, |(lived, again)| Clues::between(lived, again))
    }
    /// From two activations that differ.
    pub(crate) fn between(lived: &WatchedActivation, again: &WatchedActivation) -> Clues {
        let at = first_difference(&lived.commands, &again.commands);
        let place = |seen: &WatchedActivation| seen.places.get(at).cloned().flatten();
        let callers =
            [again, lived].map(|seen| seen.stacks.callers(at)).into_iter().find(|callers| !callers.is_empty());
        let callers = callers.unwrap_or_default();
        Clues { lived_at: place(lived), again_at: place(again), callers, ..Clues::suspected() }
    }
    /// What was noted on this thread, and no more.
    pub(crate) fn suspected() -> Clues {
        Clues { suspects: suspects(), ..Clues::default() }
    }
    /// With the fields that snapshots of this code lose, as far as its source tells.
    pub(super) fn with_skipped(mut self, workflow_type: &WorkflowType, seen: &[WatchedActivation]) -> Clues {
        let places = seen.iter().flat_map(|seen| &seen.places).flatten();
        let mut files: Vec<&str> = places.map(|place| place.file.as_str()).collect();
        files.sort_unstable();
        files.dedup();
        self.from_snapshot = true;
        self.skipped = files.into_iter().flat_map(|file| skipped_fields(file, workflow_type)).collect();
        self
    }
}

/// So many functions on the way to a request are printed.
const CALLERS_MAX: usize = 3;

/// The number of the first command in which two activations differ.
pub(crate) fn first_difference<T: PartialEq>(one: &[T], two: &[T]) -> usize {
    one.iter().zip(two).position(|(one, two)| one != two).unwrap_or(one.len().min(two.len()))
}

impl fmt::Display for Clues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.from_snapshot {
            f.write_str(
                "\n  it differs after the state came back from a snapshot: see what serde does not write, or not read, as it was \
                 (a skipped field, an `Rc` that two fields share, an `Option` within an `Option`)",
            )?;
        }
        if let Some(place) = &self.lived_at {
            write!(f, "\n  asked for at {place} when the run lived")?;
        }
        if let Some(place) = &self.again_at {
            write!(f, "\n  asked for at {place} when its history was replayed")?;
        }
        for site in self.callers.iter().skip(1).take(CALLERS_MAX) {
            write!(f, "\n  called at {} in {}", site.place, site.function)?;
        }
        for suspect in &self.suspects {
            write!(f, "\n  suspect: {suspect}")?;
        }
        self.skipped.iter().try_for_each(|field| write!(f, "\n  hint: {field}"))
    }
}
