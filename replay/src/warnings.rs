//! Warnings of a replay: what fits history and may still be a mistake of a deploy.
//!
//! Invariant: a warning never refuses a history. Labels of timers are no part of what is matched, and a name that code waits
//! for is in no event: both can only be warned of.

use std::collections::{BTreeMap, BTreeSet};

use bosun_engine::*;

use crate::History;
use crate::replayer::HistoryCommands;

/// What is odd about a history that fits.
pub(crate) fn warnings(history: &History, asked: &HistoryCommands) -> Vec<String> {
    let mut warnings = other_labels(history, &asked.activations);
    if history.status() == WorkflowStatus::Running {
        warnings.extend(unheard_signals(history, &asked.activations, &asked.awaiting));
        warnings.extend(ignored_signals(history, asked));
    }
    warnings
}

/// Timers that start at the same place of the order with the same duration, and are called otherwise.
fn other_labels(history: &History, activations: &[Vec<Command>]) -> Vec<String> {
    let label = |label: &Option<String>| label.clone().unwrap_or_else(|| "no label".to_owned());
    let started = activations.iter().flatten().filter_map(|command| match command {
        Command::StartTimer { seq, summary, .. } => Some((*seq, summary)),
        _ => None,
    });
    let asked: Vec<(Seq, &Option<String>)> = started.collect();
    let mut warnings = Vec::new();
    for event in history.events() {
        if let EventKind::TimerStarted { seq, summary, .. } = &event.kind
            && let Some((_, now)) = asked.iter().find(|(asked, _)| asked == seq)
            && *now != summary
        {
            warnings.push(format!(
                "event {}: the timer `{}` is `{}` in this code, with the same duration: if two timers changed places, old \
                 runs take one for the other",
                event.id,
                label(summary),
                label(now)
            ));
        }
    }
    warnings
}

/// Signals that led to nothing, while the code waits for one of a name that never came.
fn unheard_signals(history: &History, activations: &[Vec<Command>], awaiting: &[Awaited]) -> Vec<String> {
    let activating: Vec<Event> = history.events().filter(|event| event.kind.origin() == Origin::Activating).collect();
    let signals: Vec<(EventId, &SignalName, bool)> = activating
        .iter()
        .zip(activations)
        .filter_map(|(event, asked)| match &event.kind {
            EventKind::WorkflowExecutionSignaled(signal) => Some((event.id, &signal.name, asked.is_empty())),
            _ => None,
        })
        .collect();
    let came: BTreeSet<&str> = signals.iter().map(|(_, name, _)| name.as_str()).collect();
    let waited = awaiting.iter().filter_map(|one| one.what.strip_prefix("signal "));
    let Some(waited) = waited.into_iter().find(|name| !came.contains(name)) else { return Vec::new() };
    let unheard = signals.iter().filter(|(_, _, led_to_nothing)| *led_to_nothing);
    unheard
        .map(|(event_id, name, _)| {
            format!(
                "event {event_id}: the signal `{name}` led to nothing, and this code waits for the signal `{waited}`: if it \
                 was renamed, the run waits for ever"
            )
        })
        .collect()
}

/// Signals of which none moved the machine: it has no list of names that it waits for.
fn ignored_signals(history: &History, asked: &HistoryCommands) -> Vec<String> {
    let activating = history.events().filter(|event| event.kind.origin() == Origin::Activating);
    let mut came: BTreeMap<SignalName, (EventId, bool)> = BTreeMap::new();
    for (number, event) in activating.enumerate() {
        let EventKind::WorkflowExecutionSignaled(signal) = event.kind else { continue };
        let silent = asked.activations.get(number).is_some_and(Vec::is_empty);
        let moved = !(silent && asked.unmoved.contains(&number));
        came.entry(signal.name).or_insert((event.id, false)).1 |= moved;
    }
    came.into_iter()
        .filter(|(_, (_, moved))| !moved)
        .map(|(name, (event_id, _))| {
            format!(
                "event {event_id}: the signal `{name}` led to nothing and left the state as it was: if this code calls it \
                 otherwise, the run never hears it"
            )
        })
        .collect()
}

/// What a run waits for by name, before and after a deploy: a signal that nobody waits for any more.
pub(crate) fn renamed_signal(before: &[Awaited], after: &[Awaited]) -> Option<String> {
    let signals = |awaited: &[Awaited]| -> BTreeSet<String> {
        awaited.iter().filter_map(|one| one.what.strip_prefix("signal ").map(str::to_owned)).collect()
    };
    let (before, after) = (signals(before), signals(after));
    let (gone, new) = (before.difference(&after).next()?, after.difference(&before).next()?);
    Some(format!(
        "a run that waited for the signal `{gone}` waits for `{new}` in the next version: if it was renamed, senders of the \
         old name are not heard"
    ))
}
