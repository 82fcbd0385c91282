//! Counterfactual replay: what would changed code, or a changed input, have decided, had the same things happened to it?
//!
//! The recorded outcomes are served to the code: results of activities and child workflows, deliveries, signals, updates,
//! cancel requests, values of side effects (in order). What the code asks for is matched with what was asked for then:
//! by type, id and input, else by type and input, else by type and order. What has no recorded outcome stays unknown, and
//! so does every branch that waits for it. Timers are never unknown: time passes.
//!
//! Invariant: no activity, side effect, model or clock is called, and nothing is written. The same code with the same
//! input gives the recorded history again, whatever it is. It guesses nothing: where the record says nothing, it says so.

mod event_of;
mod recorded;
#[cfg(test)]
mod tests;
mod world;

use std::fmt;

use bosun_engine::workflow::WorkflowRegistry;
use bosun_engine::*;
use serde::Serialize;

use self::world::CounterfactualWorld;
use crate::{DiffLine, History, HistoryDiff, Redaction, diff_events};

/// What is different from then.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct WhatIf {
    /// The run is started with this input.
    pub input: Option<Payload>,
}

/// What would have been decided.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Counterfactual {
    /// The recorded history on the left, the hypothetical one on the right.
    pub diff: HistoryDiff,
    /// The first decision that is not the recorded one.
    pub first: Option<DiffLine>,
    /// How many decisions are the same.
    pub same: usize,
    /// Decisions that are only in the hypothetical history.
    pub new: Vec<Decided>,
    /// Decisions that only the record has.
    pub gone: Vec<Decided>,
    /// The same decision with other contents.
    pub changed: Vec<Decided>,
    /// What was asked for and has no recorded outcome: from here on nothing is known.
    pub unknown: Vec<Unknown>,
    /// Recorded outcomes that nobody asked for.
    pub unused: Vec<Unused>,
    /// How the hypothetical run ends, if that is known.
    pub status: WorkflowStatus,
    /// The code panicked, which the code of then did not: what it said. How the run would have ended is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub panicked: Option<String>,
}

/// A decision: an event that the code asked for, of the record (`gone`) or of the hypothetical history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Decided {
    /// Its place in that history.
    pub event: u64,
    /// Its kind and what it is about.
    pub what: String,
}

/// Something without a recorded outcome.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Unknown {
    /// In the hypothetical history.
    pub event: u64,
    /// Its kind and what it is about.
    pub what: String,
    /// It was asked for then too, and its end is not recorded.
    pub pending_then: bool,
}

/// A recorded outcome that nobody asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Unused {
    /// In the record.
    pub event: u64,
    /// Its kind and what it is about.
    pub what: String,
}

/// Why a history cannot be served to code.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum CounterfactualError {
    /// An export has left the outcomes out.
    #[error("the history is redacted: the recorded outcomes are not in it")]
    Redacted,
    /// The registry has no code of the run's type.
    #[error(transparent)]
    NoCode(#[from] Rejection),
}

/// Serves a recorded history to the code of this registry.
pub fn what_if(
    registry: &WorkflowRegistry,
    history: &History,
    change: &WhatIf,
) -> Result<Counterfactual, CounterfactualError> {
    if history.redaction() != Redaction::None {
        return Err(CounterfactualError::Redacted);
    }
    let recorded: Vec<Event> = history.events().collect();
    let mut started = history.started().clone();
    if let Some(input) = &change.input {
        started.input = input.clone();
    }
    let driver = registry.create(&started, history.run_id())?;
    let lived = CounterfactualWorld::new(history, &recorded, driver, started).live();
    let name = format!("{} ({})", history.started().workflow_id, history.run_id());
    let diff = diff_events((name, "what if".into()), &recorded, &lived.events);
    Ok(judge(diff, &recorded, lived))
}

fn judge(diff: HistoryDiff, recorded: &[Event], lived: world::Lived) -> Counterfactual {
    let is_decision = |events: &[Event], id: u64| {
        let place = usize::try_from(id).unwrap_or(usize::MAX).wrapping_sub(1);
        events.get(place).is_some_and(|event| event.kind.origin() == Origin::Command)
    };
    let (mut new, mut gone, mut changed) = (Vec::new(), Vec::new(), Vec::new());
    let mut first = None;
    for line in &diff.lines {
        let before = new.len() + gone.len() + changed.len();
        match line {
            DiffLine::OnlyLeft { left, what } if is_decision(recorded, *left) => {
                gone.push(Decided { event: *left, what: what.clone() });
            }
            DiffLine::OnlyRight { right, what } if is_decision(&lived.events, *right) => {
                new.push(Decided { event: *right, what: what.clone() });
            }
            DiffLine::Changed { right, what, .. } if is_decision(&lived.events, *right) => {
                changed.push(Decided { event: *right, what: what.clone() });
            }
            DiffLine::OnlyLeft { .. }
            | DiffLine::OnlyRight { .. }
            | DiffLine::Changed { .. }
            | DiffLine::Same { .. } => {}
        }
        if before == 0 && new.len() + gone.len() + changed.len() > 0 {
            first = Some(line.clone());
        }
    }
    let decisions = lived.events.iter().filter(|event| event.kind.origin() == Origin::Command).count();
    let same = decisions.saturating_sub(new.len() + changed.len());
    let world::Lived { unknown, unused, status, panicked, events: _ } = lived;
    Counterfactual { diff, first, same, new, gone, changed, unknown, unused, status, panicked }
}

impl Counterfactual {
    /// Every decision is the one that was recorded.
    pub fn is_same(&self) -> bool {
        self.new.is_empty() && self.gone.is_empty() && self.changed.is_empty() && self.panicked.is_none()
    }

    /// How the hypothetical run stands, for people.
    pub fn standing(&self) -> String {
        match &self.panicked {
            Some(message) => format!("stuck, and how it ends is not known: its code panics: {message}"),
            None => self.status.to_string(),
        }
    }
}

impl fmt::Display for Counterfactual {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (same, new, gone, changed) = (self.same, self.new.len(), self.gone.len(), self.changed.len());
        writeln!(
            f,
            "decisions: {same} same, {changed} changed, {new} new, {gone} gone; the run is {}",
            self.standing()
        )?;
        if let Some(first) = &self.first {
            writeln!(f, "first decision that differs:\n{first}")?;
        }
        match &self.diff.divergence {
            None => writeln!(f, "no difference")?,
            Some(cause) => {
                writeln!(f, "first difference: {}", cause.cause)?;
                self.diff.lines.iter().try_for_each(|line| writeln!(f, "{line}"))?;
            }
        }
        for one in &self.unknown {
            let then = if one.pending_then { "; its end was not recorded then either" } else { "" };
            writeln!(f, "unknown from here: event {} {}{then}", one.event, one.what)?;
        }
        self.unused.iter().try_for_each(|one| writeln!(f, "not asked for: event {} {}", one.event, one.what))
    }
}
