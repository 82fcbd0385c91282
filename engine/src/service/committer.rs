//! The committer: takes the turns of all runs that are ready, writes one group, and releases everyone's effects.
//!
//! Invariant: items are released in the order they were submitted, each after its turns are durable; an item without
//! turns (a repeated request, a query) is released no earlier than everything submitted before it. After the first
//! storage error nothing is released any more: every later item is answered with the failure. A full disk is no such error:
//! the group that found no room is kept as it is, and only the committer's own thread tries it again, so that no shard
//! waits for the disk and reads go on (`no_room`).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use super::health;
use super::no_room::{NoRoom, ROOM_LOOKS};
use super::shared::WorkerShared;
use crate::log::StorageError;
use crate::machine::{Durable, SealedEffects};
use crate::seeded::{self, Bug};
use crate::vocabulary::*;

/// What is to be done for a reply once it may be seen.
pub(crate) type Answer = Box<dyn FnOnce(Result<(), &Rejection>) + Send>;

/// A run's turn with everything that waits for it.
pub(crate) struct CommitItem {
    pub(crate) shard: usize,
    pub(crate) generation: u64,
    pub(crate) turns: Vec<Turn>,
    pub(crate) effects: Vec<(RunName, SealedEffects)>,
    pub(crate) answers: Vec<Answer>,
}

/// Names a run to those who act for it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RunName {
    pub(crate) namespace: Namespace,
    pub(crate) workflow_id: WorkflowId,
    pub(crate) run_id: RunId,
}

/// One group holds at most this many turns, so that a group stays a bounded piece of work.
const GROUP_TURNS_MAX: usize = 1_024;
/// Turn threads wait when this many items are ahead of them.
const BACKLOG_MAX: usize = 8_192;

#[derive(Default)]
struct CommitQueue {
    items: VecDeque<CommitItem>,
    /// Which generation of each shard may submit; an abandoned thread may not.
    generations: Vec<u64>,
    stopped: bool,
    /// Whether the committer's thread waits, and how many turn threads do. Waking nobody would still cost a system call.
    committer_waits: bool,
    waiting_for_space: usize,
}

pub(crate) struct Committer {
    queue: Mutex<CommitQueue>,
    arrived: Condvar,
    space: Condvar,
    /// Held by whoever commits and releases; with the group that found no room on the disk.
    role: Mutex<Option<Vec<CommitItem>>>,
    pub(crate) no_room: NoRoom,
    /// The worker leaves: what finds no room from now on is refused.
    leaving: AtomicBool,
    /// Something found no room while the worker left: what comes behind it, and may rest on it, is refused with it.
    gave_up: OnceLock<Rejection>,
    /// How many items of each shard have been released.
    released: Vec<AtomicU64>,
    /// Since when a group is being written, if one is.
    writing: Mutex<Option<Instant>>,
}

impl Committer {
    pub(crate) fn new(shards: usize) -> Self {
        Committer {
            queue: Mutex::new(CommitQueue { generations: vec![0; shards], ..CommitQueue::default() }),
            arrived: Condvar::new(),
            space: Condvar::new(),
            role: Mutex::new(None),
            no_room: NoRoom::new(),
            leaving: AtomicBool::new(false),
            gave_up: OnceLock::new(),
            released: (0..shards).map(|_| AtomicU64::new(0)).collect(),
            writing: Mutex::new(None),
        }
    }
    fn lock(&self) -> MutexGuard<'_, CommitQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Hands an item over. Says whether it was taken: the thread of an abandoned generation has nothing to say.
    pub(crate) fn submit(&self, item: CommitItem) -> bool {
        let mut queue = self.lock();
        while queue.items.len() >= BACKLOG_MAX && !queue.stopped {
            if queue.committer_waits {
                // Nobody may have kicked yet for what is there already.
                self.arrived.notify_one();
            }
            queue.waiting_for_space += 1;
            queue = self.space.wait(queue).unwrap_or_else(PoisonError::into_inner);
            queue.waiting_for_space -= 1;
        }
        if queue.generations[item.shard] != item.generation {
            return false;
        }
        queue.items.push_back(item);
        true
    }
    /// Sees to it that what was submitted is committed: by this thread if it has nothing better to do and nobody else
    /// is at it, which saves a lone step two changes of thread; otherwise by the committer's own.
    pub(crate) fn kick(&self, shared: &Arc<WorkerShared>, has_time: bool) {
        let waits = {
            let queue = self.lock();
            if queue.items.is_empty() {
                return;
            }
            queue.committer_waits
        };
        // A turn thread has other things to do than to look whether there is room.
        match (has_time && !self.no_room.waits()).then(|| self.role.try_lock()) {
            Some(Ok(role)) => self.commit_all(shared, role),
            Some(Err(_)) | None if waits => self.arrived.notify_one(),
            // It looks at the queue once more before it waits.
            Some(Err(_)) | None => {}
        }
    }
    /// From now on only the next generation of the shard may submit.
    pub(crate) fn next_generation(&self, shard: usize) -> u64 {
        let mut queue = self.lock();
        queue.generations[shard] += 1;
        queue.generations[shard]
    }
    pub(crate) fn released(&self, shard: usize) -> u64 {
        self.released[shard].load(Ordering::Acquire)
    }
    /// The worker leaves: nobody waits for room any more, in particular not whoever waits for the threads to end.
    pub(crate) fn leave(&self) {
        self.leaving.store(true, Ordering::Release);
        self.arrived.notify_all();
    }
    /// Whether something was refused that had been decided, for want of room while the worker left.
    pub(crate) fn has_given_up(&self) -> bool {
        self.gave_up.get().is_some()
    }
    pub(crate) fn stop(&self) {
        self.leave();
        self.lock().stopped = true;
        self.arrived.notify_all();
        self.space.notify_all();
    }

    /// The committer's thread. Ends when stopped and everything submitted is released.
    pub(crate) fn run(&self, shared: &Arc<WorkerShared>) {
        while self.wait_for_items() {
            self.commit_all(shared, self.role.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// Until there is something to commit, or it is time to look for room again. False: there will be nothing any more.
    fn wait_for_items(&self) -> bool {
        let mut queue = self.lock();
        if self.no_room.waits() {
            let until = Instant::now() + ROOM_LOOKS;
            while !queue.stopped {
                let left = until.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    break;
                }
                queue = self.arrived.wait_timeout(queue, left).unwrap_or_else(PoisonError::into_inner).0;
            }
            return true;
        }
        while queue.items.is_empty() {
            if queue.stopped {
                return false;
            }
            queue.committer_waits = true;
            queue = self.arrived.wait(queue).unwrap_or_else(PoisonError::into_inner);
            queue.committer_waits = false;
            if self.no_room.waits() {
                return true;
            }
        }
        true
    }

    /// Commits and releases batch after batch. Whoever holds the role does both, so that the order holds.
    fn commit_all(&self, shared: &Arc<WorkerShared>, mut role: MutexGuard<'_, Option<Vec<CommitItem>>>) {
        while let Some(mut batch) = role.take().or_else(|| self.take_batch()) {
            match self.commit(shared, &mut batch) {
                Some(outcome) => self.release(shared, batch, &outcome),
                None => {
                    *role = Some(batch);
                    drop(role);
                    // Its own thread looks for room, whoever has found none. It either waits by now or looks first.
                    drop(self.lock());
                    self.arrived.notify_one();
                    return;
                }
            }
        }
    }

    /// The first of three steps that only one at a time may take, in this order: what belongs into one group.
    pub(super) fn take_batch(&self) -> Option<Vec<CommitItem>> {
        let mut queue = self.lock();
        if queue.items.is_empty() {
            return None;
        }
        let mut turns = 0;
        let take = queue
            .items
            .iter()
            .take_while(|item| {
                turns += item.turns.len();
                turns <= GROUP_TURNS_MAX
            })
            .count()
            .max(1);
        let batch = queue.items.drain(..take).collect();
        if queue.waiting_for_space > 0 {
            self.space.notify_all();
        }
        Some(batch)
    }

    /// The second step: the group becomes durable, or the worker has failed. Nothing: there is no room on the disk, and the
    /// batch is as it was.
    pub(super) fn commit(&self, shared: &WorkerShared, batch: &mut [CommitItem]) -> Option<Result<Durable, Rejection>> {
        if let Some(why) = self.is_over(shared) {
            return Some(Err(why));
        }
        let counts: Vec<usize> = batch.iter().map(|item| item.turns.len()).collect();
        let mut turns: Vec<Turn> = batch.iter_mut().flat_map(|item| std::mem::take(&mut item.turns)).collect();
        if turns.is_empty() {
            return Some(Ok(Durable::nothing_to_write()));
        }
        let _span = tracing::debug_span!("commit", turns = turns.len()).entered();
        let began = Instant::now();
        self.note_writing(Some(began));
        let written = shared.journal.commit(&turns);
        self.note_writing(None);
        match written {
            Ok(committed) => {
                if self.no_room.is_over() {
                    tracing::warn!("there is room on the disk again");
                }
                shared.group_committed(turns.len(), began);
                shared.publish(turns);
                Some(Ok(Durable::committed(committed.group)))
            }
            Err(error) if error.is_no_room() => {
                if self.no_room.looked(&error.to_string()) {
                    tracing::error!(%error, "what was decided waits for room on the disk");
                }
                if self.leaving.load(Ordering::Acquire) {
                    return Some(Err(self.give_up(&error)));
                }
                let mut turns = turns.drain(..);
                for (item, count) in batch.iter_mut().zip(counts) {
                    item.turns.extend(turns.by_ref().take(count));
                }
                None
            }
            Err(error) => {
                self.no_room.is_over();
                tracing::error!(%error, "the log has failed; nothing is acknowledged any more");
                if !seeded::on(Bug::CacheNotEvicted) {
                    shared.health.worsen(health::of_storage(&error));
                }
                Some(Err(health::rejection_of(&error)))
            }
        }
    }

    /// Why nothing is written any more, if so.
    fn is_over(&self, shared: &WorkerShared) -> Option<Rejection> {
        match shared.health.storage_failure() {
            Some(failed) => {
                // Nothing waits for room any more: it is refused.
                self.no_room.is_over();
                Some(failed.refusal().unwrap_or(Rejection::ShuttingDown))
            }
            None => self.gave_up.get().cloned(),
        }
    }

    /// There is no room for what was decided, and nobody is left to wait for it: nothing was written, and nothing is acknowledged.
    fn give_up(&self, error: &StorageError) -> Rejection {
        let why = health::rejection_of(error);
        let _ = self.gave_up.set(why.clone());
        self.no_room.is_over();
        why
    }

    fn note_writing(&self, since: Option<Instant>) {
        *self.writing.lock().unwrap_or_else(PoisonError::into_inner) = since;
    }

    /// For how long the group that is being written has been, if one is. Waiting for room on the disk is not writing.
    pub(crate) fn writing_for(&self) -> Option<Duration> {
        self.writing.lock().unwrap_or_else(PoisonError::into_inner).map(|since| since.elapsed())
    }

    /// The third step: effects and answers go out.
    pub(super) fn release(
        &self,
        shared: &Arc<WorkerShared>,
        batch: Vec<CommitItem>,
        outcome: &Result<Durable, Rejection>,
    ) {
        for item in batch {
            // Durable, hence readable: that is what eviction waits for.
            self.released[item.shard].fetch_add(1, Ordering::AcqRel);
            release_item(shared, item, outcome);
            shared.time.end();
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lock().items.is_empty()
    }
}

fn release_item(shared: &Arc<WorkerShared>, item: CommitItem, outcome: &Result<Durable, Rejection>) {
    match outcome {
        Ok(durable) => {
            for (name, sealed) in item.effects {
                for effect in sealed.open(*durable) {
                    super::release::release(shared, &name, effect);
                }
            }
            for answer in item.answers {
                answer(Ok(()));
            }
        }
        Err(why) => {
            for answer in item.answers {
                answer(Err(why));
            }
            shared.waiters.abandon(why);
        }
    }
}
