//! Fair shares, pure: which of several keys that wait is served next (start-time fair queueing).
//!
//! Invariant: over any time in which two keys wait without a break, what each has been given, divided by its weight, differs by
//! no more than one turn of each. A key that comes back after a pause has saved up nothing, and one that was served ahead
//! of the others waits until they have caught up. Ties go to whoever came first.

use std::collections::{BTreeMap, BTreeSet};

/// What one turn costs a key of weight 1.
pub(super) const TURN: u64 = 1_000_000;

/// The keys that wait, in the order in which they are served. A place is the cost until the turn, then the arrival.
#[derive(Debug)]
pub(super) struct Shares<K> {
    /// The cost that has been paid for the latest turn.
    paid: u64,
    order: BTreeSet<(u64, u64, K)>,
    places: BTreeMap<K, (u64, u64)>,
    /// Keys that do not wait now, and are ahead of those that do.
    ahead: BTreeMap<K, u64>,
    ahead_until: BTreeSet<(u64, K)>,
}

impl<K: Ord + Clone> Shares<K> {
    pub(super) fn new() -> Self {
        Shares {
            paid: 0,
            order: BTreeSet::new(),
            places: BTreeMap::new(),
            ahead: BTreeMap::new(),
            ahead_until: BTreeSet::new(),
        }
    }
    pub(super) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }
    /// A key has something that waits since then. Nothing changes if it had already.
    pub(super) fn join(&mut self, key: &K, arrival: u64) {
        if self.places.contains_key(key) {
            return;
        }
        let mut at = self.paid;
        if let Some(until) = self.ahead.remove(key) {
            self.ahead_until.remove(&(until, key.clone()));
            at = at.max(until);
        }
        self.put(key, (at, arrival));
    }
    fn put(&mut self, key: &K, (at, arrival): (u64, u64)) {
        self.places.insert(key.clone(), (at, arrival));
        self.order.insert((at, arrival, key.clone()));
    }
    pub(super) fn in_order(&self) -> impl Iterator<Item = &K> {
        self.order.iter().map(|(_, _, key)| key)
    }
    /// Where a key stands that waits: the cost until its turn, then the arrival.
    pub(super) fn place(&self, key: &K) -> Option<(u64, u64)> {
        self.places.get(key).copied()
    }
    /// A key had its turn, which costs so much; `next` is when what it waits with now arrived.
    pub(super) fn served(&mut self, key: &K, cost: u64, next: Option<u64>) {
        let Some((at, arrival)) = self.places.remove(key) else { return };
        self.order.remove(&(at, arrival, key.clone()));
        self.paid = self.paid.max(at);
        let until = self.paid.saturating_add(cost);
        match next {
            Some(arrival) => self.put(key, (until, arrival)),
            None => {
                self.ahead.insert(key.clone(), until);
                self.ahead_until.insert((until, key.clone()));
            }
        }
        while self.ahead_until.first().is_some_and(|(until, _)| *until <= self.paid) {
            let Some((_, key)) = self.ahead_until.pop_first() else { break };
            self.ahead.remove(&key);
        }
        if self.places.is_empty() {
            *self = Shares::new();
        }
    }
}
