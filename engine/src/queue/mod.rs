//! Task queues, pure: who waits for a slot, and who is next (E25, G26).
//!
//! ```text
//!   a slot ─► the queue whose turn it is, of those within their limits ─► its most urgent priority ─► the fairness key
//!             whose turn it is ─► whoever came first of those
//! ```
//!
//! Invariant: a slot is either free or held by exactly one attempt; never do more attempts of a queue hold one, or start in
//! a second, than its limits allow. Nobody overtakes those who wait and may start. Queues share the slots in equal parts,
//! keys of one priority share a queue by their weights, and a less urgent priority has what the more urgent leave.
//! Attempts that leave the process have fewer slots than there are, and wait apart: they keep nobody else waiting. This
//! module runs nothing and knows no clock: whoever asks says what time it is.

mod rate;
mod shares;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use self::rate::Rate;
use self::shares::{Shares, TURN};
use crate::vocabulary::*;

/// What an attempt needs a slot for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SlotUse {
    pub(crate) queue: TaskQueue,
    /// It leaves the process, and so needs one of the slots that are for this.
    pub(crate) external: bool,
}

/// An attempt that waits for a slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WaitingAttempt {
    pub(crate) namespace: Namespace,
    pub(crate) workflow_id: WorkflowId,
    pub(crate) run_id: RunId,
    pub(crate) seq: Seq,
    pub(crate) attempt: Attempt,
    pub(crate) slot: SlotUse,
}

/// What the owner sets: how many slots, for which queues, and how fast.
#[derive(Debug, Clone, Default)]
pub(crate) struct QueueSettings {
    pub(crate) slots: usize,
    /// How many of them may leave the process.
    pub(crate) external: usize,
    /// `None`: every queue is served.
    pub(crate) served: Option<BTreeSet<TaskQueue>>,
    pub(crate) limits: BTreeMap<TaskQueue, QueueLimits>,
    /// Of all queues together.
    pub(crate) per_second: Option<PerSecond>,
}

/// Queues of one name in two namespaces have nothing in common but their limits, and those who leave the process wait apart.
type QueueName = (Namespace, SlotUse);

/// Who shares a queue.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum FairnessKey {
    Workflow(WorkflowId),
    Named(String),
}

/// The attempts of one priority that wait in a queue.
#[derive(Debug)]
struct Level {
    shares: Shares<FairnessKey>,
    waiting: BTreeMap<FairnessKey, VecDeque<(u64, FairnessWeight, WaitingAttempt)>>,
}

/// The attempts that wait in a queue: the most urgent first.
#[derive(Debug, Default)]
struct WaitingQueue {
    levels: BTreeMap<u8, Level>,
    waiting: usize,
}

/// How far a queue with limits has used them.
#[derive(Debug)]
struct Limited {
    max: usize,
    rate: Option<Rate>,
}

/// The slots of a worker and the attempts that wait for them.
#[derive(Debug)]
pub(crate) struct TaskQueues {
    free: usize,
    free_external: usize,
    served: Option<BTreeSet<TaskQueue>>,
    rate: Option<Rate>,
    limited: BTreeMap<TaskQueue, Limited>,
    running: BTreeMap<TaskQueue, usize>,
    shares: Shares<QueueName>,
    queues: BTreeMap<QueueName, WaitingQueue>,
    arrivals: u64,
}

impl TaskQueues {
    pub(crate) fn new(settings: QueueSettings) -> Self {
        let limited = settings.limits.into_iter().map(|(queue, limits)| {
            let max = limits.max_concurrent_activities.unwrap_or(usize::MAX);
            (queue, Limited { max, rate: limits.max_activities_per_second.map(Rate::new) })
        });
        TaskQueues {
            free: settings.slots,
            free_external: settings.external,
            served: settings.served,
            rate: settings.per_second.map(Rate::new),
            limited: limited.collect(),
            running: BTreeMap::new(),
            shares: Shares::new(),
            queues: BTreeMap::new(),
            arrivals: 0,
        }
    }
    /// When an attempt of this queue may start, by the rates; `None`: not before one that runs has ended, or never.
    fn may_start_at(&self, slot: &SlotUse, now: Timestamp) -> Option<Timestamp> {
        let SlotUse { queue, external } = slot;
        let served = self.served.as_ref().is_none_or(|served| served.contains(queue));
        let limited = self.limited.get(queue);
        let running = self.running.get(queue).copied().unwrap_or(0);
        let free = self.free > 0 && (!external || self.free_external > 0);
        if !free || !served || limited.is_some_and(|limited| running >= limited.max) {
            return None;
        }
        let rates = [self.rate.as_ref(), limited.and_then(|limited| limited.rate.as_ref())];
        Some(rates.into_iter().flatten().map(|rate| rate.at(now)).max().unwrap_or(now))
    }
    fn may_start(&self, slot: &SlotUse, now: Timestamp) -> bool {
        self.may_start_at(slot, now).is_some_and(|at| at <= now)
    }
    fn occupy(&mut self, SlotUse { queue, external }: &SlotUse, now: Timestamp) {
        self.free -= 1;
        self.free_external -= usize::from(*external);
        *self.running.entry(queue.clone()).or_default() += 1;
        self.rate.iter_mut().for_each(|rate| rate.take(now));
        let limited = self.limited.get_mut(queue).and_then(|limited| limited.rate.as_mut());
        limited.into_iter().for_each(|rate| rate.take(now));
    }
    fn vacate(&mut self, SlotUse { queue, external }: &SlotUse) {
        self.free += 1;
        self.free_external += usize::from(*external);
        if let Some(running) = self.running.get_mut(queue) {
            *running -= 1;
            if *running == 0 {
                self.running.remove(queue);
            }
        }
    }
    /// Takes a slot for an attempt that has not waited, unless others wait that may start.
    pub(crate) fn take(&mut self, slot: &SlotUse, now: Timestamp) -> bool {
        let can = self.may_start(slot, now) && self.next_queue(now).is_none();
        if can {
            self.occupy(slot, now);
        }
        can
    }
    /// Lets an attempt wait. Returns who can start now, with the slots taken for them.
    pub(crate) fn enqueue(
        &mut self,
        waiting: WaitingAttempt,
        priority: Option<Priority>,
        now: Timestamp,
    ) -> Vec<WaitingAttempt> {
        self.arrivals += 1;
        let Priority { priority_key, fairness_key, fairness_weight } = priority.unwrap_or_default();
        let key = fairness_key.map_or_else(|| FairnessKey::Workflow(waiting.workflow_id.clone()), FairnessKey::Named);
        let name = (waiting.namespace.clone(), waiting.slot.clone());
        self.shares.join(&name, self.arrivals);
        self.queues.entry(name).or_default().push(priority_key, key, (self.arrivals, fairness_weight, waiting));
        self.ready(now)
    }
    /// Gives a slot back. Returns who can start now, with the slots taken for them.
    pub(crate) fn release(&mut self, slot: &SlotUse, now: Timestamp) -> Vec<WaitingAttempt> {
        self.vacate(slot);
        self.ready(now)
    }
    /// As [`TaskQueues::release`], of a slot with which nothing was started: it counts for no rate.
    pub(crate) fn give_back(&mut self, slot: &SlotUse, now: Timestamp) -> Vec<WaitingAttempt> {
        self.rate.iter_mut().for_each(Rate::give_back);
        let limited = self.limited.get_mut(&slot.queue).and_then(|limited| limited.rate.as_mut());
        limited.into_iter().for_each(Rate::give_back);
        self.release(slot, now)
    }
    /// Who can start now, with the slots taken for them.
    pub(crate) fn ready(&mut self, now: Timestamp) -> Vec<WaitingAttempt> {
        let mut ready = Vec::new();
        while let Some(name) = self.next_queue(now).cloned() {
            let Some(queue) = self.queues.get_mut(&name) else { break };
            let next = queue.pop();
            self.shares.served(&name, TURN, queue.first_arrival());
            if queue.waiting == 0 {
                self.queues.remove(&name);
            }
            let Some(next) = next else { break };
            self.occupy(&next.slot, now);
            ready.push(next);
        }
        ready
    }
    /// When somebody who waits may start though nothing else happens until then.
    pub(crate) fn next_at(&self, now: Timestamp) -> Option<Timestamp> {
        if self.free == 0 || (self.rate.is_none() && self.limited.is_empty()) {
            return None;
        }
        self.queues.keys().filter_map(|(_, slot)| self.may_start_at(slot, now)).min()
    }
    /// No attempt starts any more: the worker is leaving.
    pub(crate) fn close(&mut self) {
        self.served = Some(BTreeSet::new());
    }
    fn next_queue(&self, now: Timestamp) -> Option<&QueueName> {
        if self.free == 0 || self.shares.is_empty() {
            return None;
        }
        self.shares.in_order().find(|(_, slot)| self.may_start(slot, now))
    }
    pub(crate) fn free(&self) -> usize {
        self.free
    }
    /// Of the free ones, those for who leaves the process.
    pub(crate) fn free_external(&self) -> usize {
        self.free_external
    }
    pub(crate) fn waiting(&self) -> usize {
        self.queues.values().map(|queue| queue.waiting).sum()
    }
    /// How many attempts of each queue run; queues in which none does are left out.
    pub(crate) fn running_by_queue(&self) -> BTreeMap<TaskQueue, usize> {
        self.running.clone()
    }
    /// Who waits in a queue, of the namespaces that are `seen`: those whose turn is first, first. A namespace has a turn of its
    /// own for each attempt, so that the second of one comes behind the first of the others.
    pub(crate) fn waiting_in(
        &self,
        queue: &TaskQueue,
        seen: impl Fn(&Namespace) -> bool,
        most: usize,
    ) -> Vec<WaitingShare> {
        let mut all = Vec::new();
        for (name, waiting) in self.queues.iter().filter(|((of, slot), _)| slot.queue == *queue && seen(of)) {
            let Some((at, since)) = self.shares.place(name) else { continue };
            // No more of one namespace can be among the first.
            for (turns_before, arrival, share) in waiting.shown(&name.0, most) {
                let turn = at.saturating_add(TURN.saturating_mul(turns_before));
                // A queue waits since whoever came first, also where somebody more urgent has its first turn.
                all.push(((turn, if turns_before == 0 { since } else { arrival }), share));
            }
        }
        all.sort_by_key(|(turn, _)| *turn);
        let mut places: BTreeMap<ShareKey, usize> = BTreeMap::new();
        let mut shares: Vec<WaitingShare> = Vec::new();
        for (_, share) in all {
            // A key of which some leave the process and others do not is one all the same.
            let next = shares.len();
            match *places.entry(key_of(&share)).or_insert(next) {
                place if place < next => shares[place].waiting += share.waiting,
                _ if next < most => shares.push(share),
                _ => break,
            }
        }
        shares
    }
    /// How many attempts of each namespace wait in each queue in which some do.
    pub(crate) fn waiting_by_queue(&self) -> BTreeMap<Namespace, BTreeMap<TaskQueue, usize>> {
        let mut found: BTreeMap<Namespace, BTreeMap<TaskQueue, usize>> = BTreeMap::new();
        for ((namespace, slot), queue) in &self.queues {
            *found.entry(namespace.clone()).or_default().entry(slot.queue.clone()).or_default() += queue.waiting;
        }
        found
    }
}

impl WaitingQueue {
    fn push(&mut self, priority: u8, key: FairnessKey, waiting: (u64, FairnessWeight, WaitingAttempt)) {
        let new = || Level { shares: Shares::new(), waiting: BTreeMap::new() };
        let level = self.levels.entry(priority).or_insert_with(new);
        level.shares.join(&key, waiting.0);
        level.waiting.entry(key).or_default().push_back(waiting);
        self.waiting += 1;
    }
    fn pop(&mut self) -> Option<WaitingAttempt> {
        let mut level = self.levels.first_entry()?;
        let next = level.get_mut().pop();
        if level.get().shares.is_empty() {
            level.remove();
        }
        self.waiting -= usize::from(next.is_some());
        next
    }
    /// Who waits, in order and no more than `most`, each with how many turns of the queue come before its first, and when that
    /// one arrived.
    fn shown(&self, namespace: &Namespace, most: usize) -> Vec<(u64, u64, WaitingShare)> {
        let (mut all, mut more_urgent) = (Vec::new(), 0_u64);
        for (priority_key, level) in &self.levels {
            for (before, (arrival, weight, _), key) in level.first_turns(most.saturating_sub(all.len())) {
                let (workflow_id, fairness_key) = match key {
                    FairnessKey::Workflow(id) => (Some(id.clone()), None),
                    FairnessKey::Named(name) => (None, Some(name.clone())),
                };
                let share = WaitingShare {
                    namespace: namespace.clone(),
                    priority_key: *priority_key,
                    fairness_key,
                    workflow_id,
                    fairness_weight: *weight,
                    waiting: level.waiting.get(key).map_or(0, VecDeque::len),
                };
                all.push((more_urgent + before, *arrival, share));
            }
            more_urgent += level.waiting.values().map(|waiting| waiting.len() as u64).sum::<u64>();
        }
        all
    }
    /// When the one that comes next arrived.
    fn first_arrival(&self) -> Option<u64> {
        let level = self.levels.values().next()?;
        let key = level.shares.in_order().next()?;
        level.waiting.get(key)?.front().map(|(arrival, _, _)| *arrival)
    }
}

impl Level {
    /// The first keys in order, each with how many turns of the level come before its first, and who has that one.
    fn first_turns(&self, most: usize) -> Vec<(u64, &(u64, FairnessWeight, WaitingAttempt), &FairnessKey)> {
        let keys = self.shares.in_order().take(most);
        let waiting = |key| Some((key, self.shares.place(key)?.0, self.waiting.get(key)?));
        let keys: Vec<_> = keys.filter_map(waiting).collect();
        let first = |nth: usize| {
            let (key, at, waiting) = &keys[nth];
            let next = waiting.front()?;
            // Only who comes before may have had more than one turn by then.
            let before: u64 =
                keys[..nth].iter().map(|(_, from, others)| turns_until(*from, others, (*at, next.0))).sum();
            Some((before, next, *key))
        };
        (0..keys.len()).filter_map(first).collect()
    }
    fn pop(&mut self) -> Option<WaitingAttempt> {
        let key = self.shares.in_order().next()?.clone();
        let waiting = self.waiting.get_mut(&key)?;
        let (_, weight, next) = waiting.pop_front()?;
        self.shares.served(&key, cost_of(weight), waiting.front().map(|(arrival, _, _)| *arrival));
        if waiting.is_empty() {
            self.waiting.remove(&key);
        }
        Some(next)
    }
}

/// Whose share it is: namespace, priority, and fairness key or workflow.
type ShareKey = (Namespace, u8, Option<String>, Option<WorkflowId>);

fn key_of(share: &WaitingShare) -> ShareKey {
    (share.namespace.clone(), share.priority_key, share.fairness_key.clone(), share.workflow_id.clone())
}

/// What a turn of this weight costs.
fn cost_of(weight: FairnessWeight) -> u64 {
    TURN * u64::from(FairnessWeight::ONE.0) / u64::from(weight.0.max(1))
}

/// How many turns those of a key have, the first of which costs `from`, before the one of another key at this place.
fn turns_until(from: u64, waiting: &VecDeque<(u64, FairnessWeight, WaitingAttempt)>, place: (u64, u64)) -> u64 {
    let (mut at, mut turns) = (from, 0);
    for (arrival, weight, _) in waiting {
        if (at, *arrival) >= place {
            break;
        }
        turns += 1;
        at = at.saturating_add(cost_of(*weight));
    }
    turns
}
