//! Signals and updates that reached the source after the fork: told again, or named as dropped.
//!
//! Invariant: a signal reaches the fork once. One that was accepted before the fork and decided after it waits in the
//! inbox of what is copied, and is not told besides; one that the source never decided is told last.

use super::change::{ResolvedChange, Told, short};
use super::source::ForkHistory;
use crate::machine::run::Run;
use crate::request::{ForkTelling, ForkTold, ResetReapply};
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

/// What is not told again.
#[derive(Default)]
pub(super) struct Dropped {
    pub(super) signals: Vec<WorkflowExecutionSignaled>,
    pub(super) updates: Vec<UpdateName>,
}

/// As [`of_later_run`], for all of them: their turns, and what they add up to.
pub(super) fn of_later_runs(
    (turns, runs): (&[Vec<Turn>], &[Run]),
    reapply: ResetReapply,
    dropped: &mut Dropped,
    told: &mut Told,
) {
    // What a reset told a run that went on before it heard all of it, the next one of its chain hears.
    let mut carried = Vec::new();
    for (nth, turns) in turns.iter().enumerate() {
        let is_last = nth + 1 == runs.len() || ended_by_reset(turns);
        let last = runs.get(nth).filter(|_| is_last);
        carried = of_later_run((turns, last), carried, reapply, (dropped, told));
        // One that is reset in its turn gives to the run that goes on all that it had.
        if ended_by_reset(turns) {
            carried.clear();
        }
    }
}

/// As [`later`], for the signals and updates of a run that came after the source, as they came. `last`: nobody decided since
/// what it had not decided.
///
/// A run that began by a reset began with what had reached those before it: that is told as theirs, and not once more.
/// `waiting` is what is left of that in a later run of the same chain; what this one leaves is given back.
fn of_later_run(
    (turns, last): (&[Turn], Option<&Run>),
    mut waiting: Vec<EventKind>,
    reapply: ResetReapply,
    (dropped, told): (&mut Dropped, &mut Told),
) -> Vec<EventKind> {
    let (begun_with, own) = turns.split_at(begun_with(turns));
    waiting.extend(begun_with.iter().flat_map(|turn| &turn.inbox_added).filter_map(message_of));
    let mut leaves = |message: &EventKind| match waiting.iter().position(|one| one == message) {
        Some(place) => {
            waiting.remove(place);
            true
        }
        None => false,
    };
    for event in begun_with.iter().flat_map(|turn| &turn.events) {
        leaves(event);
    }
    let undecided: Vec<EventKind> = last.into_iter().flat_map(|run| &run.inbox).filter_map(message_of).collect();
    for event in own.iter().flat_map(|turn| &turn.events).chain(&undecided) {
        match event {
            known if leaves(known) => {}
            EventKind::WorkflowExecutionSignaled(signal) if is_told(told, signal) => {}
            EventKind::WorkflowExecutionSignaled(signal) if reapply.signals() => told.push(again(None, signal)),
            EventKind::WorkflowExecutionSignaled(signal) => dropped.signals.push(signal.clone()),
            other => dropped.updates.extend(update(None, other, reapply.updates(), told)),
        }
    }
    waiting
}

/// A signal or an update that waits, as the event that it becomes.
pub(super) fn message_of(input: &Input) -> Option<EventKind> {
    match input {
        Input::Signal(signal) => Some(EventKind::WorkflowExecutionSignaled(signal.clone())),
        Input::Update { update_id, name, input, identity } => Some(EventKind::WorkflowExecutionUpdateAccepted {
            update_id: update_id.clone(),
            name: name.clone(),
            input: input.clone(),
            identity: identity.clone(),
        }),
        _ => None,
    }
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
    run.inbox.iter().filter_map(signal_of)
}

/// How many turns of a run are what a reset began it with; 0: it was begun by none.
pub(super) fn begun_with(turns: &[Turn]) -> usize {
    let started = turns.first().and_then(|turn| turn.events.first());
    let is_reset = matches!(started, Some(EventKind::WorkflowExecutionStarted(started))
        if started.forked_from.as_ref().is_some_and(|from| from.point.reset));
    let is_own = |turn: &Turn| {
        turn.events
            .iter()
            .any(|event| matches!(event, EventKind::WorkflowExecutionForked { run_id, .. } if *run_id == turn.run))
    };
    // One that began anew has no such event: it was told everything in its first turn.
    if is_reset { turns.iter().position(is_own).unwrap_or(0) + 1 } else { 0 }
}

/// Whether a run was ended by a reset: what it had not decided was told to the run that goes on, and not carried over.
pub(super) fn ended_by_reset(turns: &[Turn]) -> bool {
    let end = turns.iter().rev().flat_map(|turn| turn.events.iter().rev()).find(|event| event.closes().is_some());
    matches!(end, Some(EventKind::WorkflowExecutionTerminated { reset: Some(_), .. }))
}

/// Whether this very request is told already.
fn is_told(told: &Told, signal: &WorkflowExecutionSignaled) -> bool {
    signal.request_id.is_some()
        && told.iter().any(|(_, event, _)| {
            matches!(event, EventKind::WorkflowExecutionSignaled(other) if other.request_id == signal.request_id)
        })
}

fn signal_of(input: &Input) -> Option<&WorkflowExecutionSignaled> {
    match input {
        Input::Signal(signal) => Some(signal),
        _ => None,
    }
}
