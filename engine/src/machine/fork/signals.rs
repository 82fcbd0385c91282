//! Signals that reached the source after the fork: told again, or named as dropped.
//!
//! Invariant: a signal reaches the fork once. One that was accepted before the fork and decided after it waits in the
//! inbox of what is copied, and is not told besides; one that the source never decided is told last.

use super::change::{ResolvedChange, Told, short};
use super::source::ForkHistory;
use crate::machine::run::Run;
use crate::request::{ForkReapply, ForkTelling, ForkTold};
use crate::vocabulary::*;

/// Tells the signals after an event, or gives the names of those that are dropped. `whole` is the source at its end,
/// `kept` what is copied.
pub(super) fn later(
    (source, whole): (&ForkHistory<'_>, &Run),
    (kept, at): (Option<&Run>, EventId),
    changes: &[ResolvedChange],
    reapply: ForkReapply,
    told: &mut Told,
) -> Vec<SignalName> {
    let mut waiting: Vec<&WorkflowExecutionSignaled> = kept.into_iter().flat_map(in_inbox).collect();
    let decided = source.after(at).iter().filter_map(|event| match event.kind {
        EventKind::WorkflowExecutionSignaled(signal) => Some((Some(event.id), signal)),
        _ => None,
    });
    let mut dropped = Vec::new();
    for (event, signal) in decided.chain(in_inbox(whole).map(|signal| (None, signal))) {
        let waits = waiting.iter().position(|one| *one == signal);
        if let Some(place) = waits {
            waiting.remove(place);
        }
        let changed = event.is_some_and(|id| changes.iter().any(|change| change.is_signal(id)));
        if changed || waits.is_some() {
            continue;
        }
        match reapply {
            ForkReapply::None => dropped.push(signal.name.clone()),
            ForkReapply::Signals => {
                let what = format!("signal {} = {}", signal.name, short(&signal.input));
                let line = ForkTold { event, what, why: ForkTelling::Reapplied };
                let place = event.unwrap_or(EventId(u64::MAX));
                told.push((place, EventKind::WorkflowExecutionSignaled(signal.clone()), line));
            }
        }
    }
    dropped
}

fn in_inbox(run: &Run) -> impl Iterator<Item = &WorkflowExecutionSignaled> {
    run.inbox.iter().filter_map(|input| match input {
        Input::Signal(signal) => Some(signal),
        _ => None,
    })
}
