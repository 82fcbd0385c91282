//! The part of what the run waits for that belongs to its plan.
//!
//! Invariant: nothing is kept here; the order is that of the keys.

use crate::supervisor::core::key::{GraphKey, Key};
use crate::supervisor::outbox::Outbox;

/// The calls of the plan whose answers are waited for.
pub(super) fn calls(out: &Outbox) -> impl Iterator<Item = &GraphKey> {
    of_plan(out.awaited().calls())
}

/// The times that the plan waits for: retries, and waits for dependencies.
pub(super) fn times(out: &Outbox) -> impl Iterator<Item = &GraphKey> {
    of_plan(out.awaited().times())
}

/// Keys of plans come first.
fn of_plan<'k>(keys: impl Iterator<Item = &'k Key>) -> impl Iterator<Item = &'k GraphKey> {
    keys.map_while(|key| match key {
        Key::Graph(key) => Some(key),
        _ => None,
    })
}

/// Whether the plan waits for an answer, or for a time.
pub(super) fn waits_for_any(out: &Outbox) -> bool {
    calls(out).next().is_some() || times(out).next().is_some()
}
