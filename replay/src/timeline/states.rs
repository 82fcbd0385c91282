//! The state of the code at every event, kept as a chain of changes.
//!
//! Invariant: memory is bounded by the sum of all changes, plus as much again: a whole state is kept only where the
//! changes since the last whole one have grown as large as the state itself. So reading any state applies no more changes
//! than the state is large.

use bosun_engine::EventId;
use serde_json::Value;

use super::change::{PathChange, apply, changes};

#[derive(Debug, Default)]
pub(super) struct States {
    /// In the order of their events; only where the state changed.
    links: Vec<Link>,
    last: Option<Value>,
    since_whole: usize,
}

#[derive(Debug)]
struct Link {
    event: EventId,
    changes: Vec<PathChange>,
    /// The state itself, instead of asking the links before.
    whole: Option<Value>,
}

impl States {
    /// Notes the state after an event.
    pub(super) fn push(&mut self, event: EventId, state: Value) {
        let empty = Value::Null;
        let before = self.last.as_ref().unwrap_or(&empty);
        let changed = changes(before, &state);
        if changed.is_empty() && self.last.is_some() {
            return;
        }
        self.since_whole += changed.iter().map(size_of).sum::<usize>();
        let whole = (self.last.is_none() || self.since_whole >= size(&state)).then(|| state.clone());
        if whole.is_some() {
            self.since_whole = 0;
        }
        self.links.push(Link { event, changes: changed, whole });
        self.last = Some(state);
    }

    fn index(&self, at: EventId) -> Option<usize> {
        self.links.partition_point(|link| link.event <= at).checked_sub(1)
    }

    /// The state after an event.
    pub(super) fn at(&self, at: EventId) -> Option<Value> {
        let index = self.index(at)?;
        let from = self.links[..=index].iter().rposition(|link| link.whole.is_some())?;
        let mut state = self.links[from].whole.clone()?;
        self.links[from + 1..=index].iter().for_each(|link| apply(&mut state, &link.changes));
        Some(state)
    }

    /// What this event changed; nothing for the first state, which has no other before it.
    pub(super) fn changes_of(&self, event: EventId) -> &[PathChange] {
        match self.index(event) {
            Some(index) if index > 0 && self.links[index].event == event => &self.links[index].changes,
            _ => &[],
        }
    }
}

fn size_of(change: &PathChange) -> usize {
    16 + change.before.as_ref().map_or(0, size) + change.after.as_ref().map_or(0, size)
}

/// About how much a value is.
fn size(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 8,
        Value::String(text) => 8 + text.len(),
        Value::Array(items) => 8 + items.iter().map(size).sum::<usize>(),
        Value::Object(fields) => 8 + fields.iter().map(|(key, value)| 8 + key.len() + size(value)).sum::<usize>(),
    }
}
