//! Where a history is cut, and the copy of what is before.
//!
//! Invariant: a cut lies between two turns, or right before an event that activates the code; never inside what the code
//! asked for in one activation, and never after the end of the run. A cut that is not where it was asked for says why.

use super::change::ResolvedChange;
use super::refused;
use super::source::{ForkHistory, ends};
use crate::request::{ForkTelling, ForkTold};
use crate::vocabulary::*;

/// Keeps so many turns, and so many events of the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Cut {
    turns: usize,
    part: usize,
}

/// The place of the cut: the earliest that the request and the changes allow.
pub(super) fn place(
    source: &ForkHistory<'_>,
    at: Option<EventId>,
    changes: &[ResolvedChange],
) -> Result<(Cut, Option<String>), Rejection> {
    let last = EventId(source.count() as u64);
    if let Some(at) = at.filter(|at| *at > last) {
        return Err(refused(format!("event {at}"), format!("the history has {last} events")));
    }
    let (cut, moved) = place_of(source, at, last, changes);
    Ok(match cut.splits_start(source) {
        true => (Cut::NOTHING, Some(moved.unwrap_or_else(|| START_IS_WHOLE.to_owned()))),
        false => (cut, moved),
    })
}

/// Why a cut is moved to the beginning.
pub(super) const START_IS_WHOLE: &str = "the start and the signals that came with it are kept or dropped as a whole";

fn place_of(
    source: &ForkHistory<'_>,
    at: Option<EventId>,
    last: EventId,
    changes: &[ResolvedChange],
) -> (Cut, Option<String>) {
    let (mut cut, mut moved) = end_of_turn(source, at.unwrap_or(last));
    let mut replaced = changes.iter().filter_map(ResolvedChange::cuts_before);
    if at.is_none() {
        // As much as there can be was asked for: up to what is replaced, even inside the turn that ends the run.
        let before = replaced.min().map(|before| before_event(source, before));
        return (before.unwrap_or(cut), None);
    }
    if let Some(before) = replaced.by_ref().min()
        && before_event(source, before) < cut
    {
        cut = before_event(source, before);
        let what = source.event(before).map_or("", |event| event.kind.name());
        let kept = before.0.saturating_sub(1);
        moved = Some(format!("event {before} ({what}) is replaced, so nothing after event {kept} is kept"));
    }
    (cut, moved)
}

/// The last end of a turn that is not after the event, and not after the end of the run.
fn end_of_turn(source: &ForkHistory<'_>, at: EventId) -> (Cut, Option<String>) {
    let mut turns = 0;
    let mut moved = None;
    for (place, turn) in source.turns.iter().enumerate() {
        let last = turn.next_event().0.saturating_sub(1);
        if let Some(closing) = turn.events.iter().find(|event| event.closes().is_some()) {
            if at >= turn.first_event {
                moved =
                    Some(format!("the turn that begins with event {} ends with {}", turn.first_event, closing.name()));
            }
            break;
        }
        if last > at.0 {
            if turn.first_event <= at {
                let first = turn.first_event;
                moved = Some(format!("events {first} to {last} are one turn, which is kept or dropped as a whole"));
            }
            break;
        }
        // What was only taken in after the event belongs to a fork at the end alone.
        if !turn.events.is_empty() || at.0 >= source.count() as u64 {
            turns = place + 1;
        }
    }
    (Cut { turns, part: 0 }, moved)
}

pub(super) fn before_event(source: &ForkHistory<'_>, event: EventId) -> Cut {
    let Some(placed) = source.event(event) else { return Cut { turns: 0, part: 0 } };
    let first = source.turns[placed.turn].first_event.0;
    Cut { turns: placed.turn, part: usize::try_from(event.0 - first).unwrap_or(0) }
}

impl Cut {
    /// Keeps nothing: the run begins anew.
    pub(super) const NOTHING: Cut = Cut { turns: 0, part: 0 };

    /// Keeps so many whole turns.
    pub(super) fn after(turns: usize) -> Cut {
        Cut { turns, part: 0 }
    }

    /// Whether it keeps the start, and not all of the signals without which the code does not begin.
    pub(super) fn splits_start(self, source: &ForkHistory<'_>) -> bool {
        let kept = self.event(source.turns).0;
        kept > 0 && kept <= u64::from(source.started.signals_at_start.unwrap_or_default())
    }

    /// The last event that is kept; 0: none.
    pub(super) fn event(self, turns: &[Turn]) -> EventId {
        let whole: usize = turns[..self.turns].iter().map(|turn| turn.events.len()).sum();
        EventId((whole + self.part) as u64)
    }

    /// The kept turns as turns of the new run.
    pub(super) fn copy(self, turns: &[Turn], run: RunId, started: &WorkflowExecutionStarted) -> Vec<Turn> {
        let mut copied: Vec<Turn> = turns[..self.turns].to_vec();
        if self.part > 0 {
            let turn = &turns[self.turns];
            copied.push(Turn {
                events: turn.events[..self.part].to_vec(),
                // Taken from the inbox by this turn, and dropped with its events.
                inbox_taken: turn.inbox_taken,
                inbox_added: Vec::new(),
                heartbeats: Vec::new(),
                delivered: Vec::new(),
                ..turn.clone()
            });
        }
        if self.event(turns) == EventId(0) {
            return Vec::new();
        }
        for turn in &mut copied {
            turn.run = run;
        }
        if let Some(first) = copied.iter_mut().find_map(|turn| turn.events.first_mut()) {
            *first = EventKind::WorkflowExecutionStarted(Box::new(started.clone()));
        }
        copied
    }
}

/// What the engine refused at once (an activity that cannot be, a payload above the limit) failed later in the turn that
/// is cut. It was never under way, and fails again.
pub(super) fn refused_in_the_same_turn(
    source: &ForkHistory<'_>,
    cut: Cut,
    told: &mut Vec<(EventId, EventKind, ForkTold)>,
) {
    if cut.part == 0 {
        return;
    }
    let first = source.turns[cut.turns].first_event;
    let last_kept = EventId(first.0 + cut.part as u64 - 1);
    let later = source.after(last_kept).iter().take_while(|event| event.turn == cut.turns);
    for event in later {
        let refused = matches!(
            event.kind,
            EventKind::ActivityTaskFailed { .. }
                | EventKind::StartChildWorkflowExecutionFailed { .. }
                | EventKind::SignalExternalWorkflowExecutionFailed { .. }
        );
        let Some(subject) = ends(event.kind).and_then(|seq| source.subjects.get(&seq)) else { continue };
        let known = told.iter().any(|(_, told, _)| ends(told) == Some(subject.seq));
        if refused && !known && subject.attempts == 0 && (first..=last_kept).contains(&subject.asked) {
            let what = format!("{} {}", event.kind.name(), subject.type_name);
            let line = ForkTold { event: Some(event.id), what, why: ForkTelling::AsRecorded };
            told.push((event.id, event.kind.clone(), line));
        }
    }
}
