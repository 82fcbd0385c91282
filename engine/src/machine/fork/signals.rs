//! Signals and updates that reached the source after the fork: told again, or named as dropped.
//!
//! Invariant: a signal reaches the fork once. One that was accepted before the fork and decided after it waits in the
//! inbox of what is copied, and is not told besides; one that the source never decided is told last.

use super::change::{ResolvedChange, Told, short};
use super::source::ForkHistory;
use crate::machine::run::Run;
use crate::request::{ForkTelling, ForkTold};
use crate::vocabulary::*;

/// Tells the signals after an event, or gives those that are dropped. `whole` is the source at its end, unless what it had not
/// decided by then is another run's to decide; `kept` is what is copied.
pub(super) fn later<'s>(
    (source, whole): (&ForkHistory<'s>, Option<&'s Run>),
    (kept, at): (Option<&Run>, EventId),
    changes: &[ResolvedChange],
    reapplies: impl Fn(Option<EventId>) -> bool,
    told: &mut Told,
) -> Vec<&'s WorkflowExecutionSignaled> {
    let mut waiting: Vec<&WorkflowExecutionSignaled> = kept.into_iter().flat_map(in_inbox).collect();
    let decided = source.after(at).iter().filter_map(|event| match event.kind {
        EventKind::WorkflowExecutionSignaled(signal) => Some((Some(event.id), signal)),
        _ => None,
    });
    let mut dropped = Vec::new();
    let undecided = whole.into_iter().flat_map(in_inbox).map(|signal| (None, signal));
    for (event, signal) in decided.chain(undecided) {
        let waits = waiting.iter().position(|one| *one == signal);
        if let Some(place) = waits {
            waiting.remove(place);
        }
        let changed = event.is_some_and(|id| changes.iter().any(|change| change.is_signal(id)));
        if changed || waits.is_some() {
            continue;
        }
        if reapplies(event) {
            told.push(again(event, signal));
        } else {
            dropped.push(signal);
        }
    }
    dropped
}

fn again(event: Option<EventId>, signal: &WorkflowExecutionSignaled) -> (EventId, EventKind, ForkTold) {
    let what = format!("signal {} = {}", signal.name, short(&signal.input));
    let line = ForkTold { event, what, why: ForkTelling::Reapplied };
    (event.unwrap_or(EventId(u64::MAX)), EventKind::WorkflowExecutionSignaled(signal.clone()), line)
}

/// As [`later`], for the signals of a run that came after the source. `last`: nobody decided since what it had not decided.
pub(super) fn of_later_run<'s>(
    (events, last): (&'s [Turn], Option<&'s Run>),
    reapplies: bool,
    told: &mut Told,
) -> Vec<&'s WorkflowExecutionSignaled> {
    let decided = events.iter().flat_map(|turn| &turn.events).filter_map(|event| match event {
        EventKind::WorkflowExecutionSignaled(signal) => Some(signal),
        _ => None,
    });
    let signals: Vec<_> = decided.chain(last.into_iter().flat_map(in_inbox)).collect();
    if !reapplies {
        return signals;
    }
    told.extend(signals.into_iter().map(|signal| again(None, signal)));
    Vec::new()
}

/// Tells an accepted update again, or gives its name.
pub(super) fn update(event: Option<EventId>, kind: &EventKind, reapplies: bool, told: &mut Told) -> Option<UpdateName> {
    let EventKind::WorkflowExecutionUpdateAccepted { name, input, .. } = kind else { return None };
    if !reapplies {
        return Some(name.clone());
    }
    let line = ForkTold { event, what: format!("update {name} = {}", short(input)), why: ForkTelling::Reapplied };
    told.push((event.unwrap_or(EventId(u64::MAX)), kind.clone(), line));
    None
}

pub(super) fn in_inbox(run: &Run) -> impl Iterator<Item = &WorkflowExecutionSignaled> {
    run.inbox.iter().filter_map(|input| match input {
        Input::Signal(signal) => Some(signal),
        _ => None,
    })
}
