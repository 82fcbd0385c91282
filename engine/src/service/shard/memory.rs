//! Which runs of a shard are in memory: read from snapshot or log, kept as long as there is room, put away again.
//!
//! Invariant: a run is put out of memory only when everything it decided is durable, or is waited for before it is read
//! again; so whoever loads it finds all of it. What runs take together is known by estimate at any time.

use std::time::{Duration, Instant};

use super::{LOOKS, LoadedRun, SNAPSHOT_EVENTS, Shard};
use crate::log::{MachineSnapshot, StorageError};
use crate::machine::{Execution, Held, LoadError, Run};
use crate::service::budget::bytes_of_run;
use crate::service::committer::RunName;
use crate::vocabulary::*;

/// How often some of the runs that are too many go while nothing else happens.
const PUT_AWAY_EVERY: Duration = Duration::from_millis(10);

impl Shard {
    /// The loaded run, loading it if need be.
    pub(in crate::service) fn load(&mut self, name: &RunName) -> Result<&mut Execution, Rejection> {
        self.put_away_if_distrusted(name.run_id);
        if !self.loaded.contains_key(&name.run_id) {
            self.wait_until_durable(name.run_id)?;
            // A run that is looked at, and not changed, must not push the memory up either.
            self.evict();
            let (execution, snapshot_at) = self.read(name.run_id, &name.workflow_id)?;
            self.keep(name.run_id, execution, snapshot_at);
        }
        self.touch(name.run_id);
        // Here, because what the run decided before is durable more often than not when it is looked at again.
        self.snapshot(name.run_id, SNAPSHOT_EVENTS);
        match self.loaded.get_mut(&name.run_id) {
            Some(loaded) => Ok(&mut loaded.execution),
            None => Err(Rejection::NotFound { workflow_id: name.workflow_id.clone(), run_id: Some(name.run_id) }),
        }
    }

    pub(in crate::service) fn loaded(&mut self, run: RunId) -> Option<&mut Execution> {
        self.loaded.get_mut(&run).map(|loaded| &mut loaded.execution)
    }

    /// Whether something the run decided is not durable yet.
    pub(in crate::service) fn has_turn_in_flight(&self, run: RunId) -> bool {
        let released = self.shared.committer.released(self.number);
        self.loaded.get(&run).is_some_and(|loaded| loaded.last_item > released)
    }

    /// Everything that a run has decided, as it is on the disk; what is not yet is waited for.
    pub(in crate::service) fn turns_of(&mut self, name: &RunName) -> Result<Vec<Turn>, Rejection> {
        if self.has_turn_in_flight(name.run_id) {
            self.read_again(name.run_id);
        }
        self.wait_until_durable(name.run_id)?;
        let turns = self.shared.journal.turns(name.run_id, EventId(1));
        let turns = turns.map_err(|why| crate::service::health::refusal_of_reading(&why))?;
        if turns.is_empty() {
            return Err(Rejection::NotFound { workflow_id: name.workflow_id.clone(), run_id: Some(name.run_id) });
        }
        Ok(turns)
    }

    /// What was decided of a run that is read again, and is not durable yet, must be before.
    pub(super) fn wait_until_durable(&mut self, run: RunId) -> Result<(), Rejection> {
        let Some(item) = self.unread.remove(&run) else { return Ok(()) };
        let began = std::time::Instant::now();
        while self.shared.committer.released(self.number) < item {
            self.shared.committer.kick(&self.shared, true);
            std::thread::sleep(std::time::Duration::from_micros(100));
            if began.elapsed() > std::time::Duration::from_secs(10) || self.shared.health.storage_failure().is_some() {
                self.unread.insert(run, item);
                return Err(Rejection::Held { why: "what the run decided last is not durable yet; ask again".into() });
            }
        }
        Ok(())
    }

    /// A run as the disk has it, beside the one in memory, which may be ahead.
    pub(in crate::service) fn durable(&self, name: &RunName) -> Result<Execution, Rejection> {
        self.read(name.run_id, &name.workflow_id).map(|(execution, _)| execution)
    }

    /// Brings a run back to life; also gives the event its newest usable snapshot is behind.
    pub(super) fn read(&self, run: RunId, workflow_id: &WorkflowId) -> Result<(Execution, EventId), Rejection> {
        let held = self.shared.held_why(run);
        // Where the snapshot cannot be gone on from, the whole history says why.
        let mut resumed = if held.is_none() { self.resume(run).ok().flatten() } else { None };
        if let Some(resumed) = resumed.take_if(|(execution, _)| !self.shared.shadows.wants(execution.run().info())) {
            return Ok(resumed);
        }
        let (turns, lost) = self.turns_or_gaps(run, held.is_some())?;
        if turns.is_empty() {
            return Err(Rejection::NotFound { workflow_id: workflow_id.clone(), run_id: Some(run) });
        }
        let not_a_history = |error: LoadError| Rejection::Held { why: error.to_string() };
        if held.is_some() || lost.is_some() {
            // The code of a held run is not given another chance to keep this thread.
            let mut execution = Execution::facts(&turns).map_err(not_a_history)?;
            execution.hold(match (held, lost.unwrap_or_default()) {
                (Some(why), _) => Held::Defect { why },
                (None, why) if execution.run().is_closed() => Held::Damaged { why },
                (None, why) => {
                    let why = damaged_why(&why, workflow_id);
                    self.shared.note_held(run, Some(why.clone()));
                    Held::Damaged { why }
                }
            });
            return Ok((execution, EventId(1)));
        }
        let registry = &self.shared.options.workflows;
        let execution = Execution::load(&turns, registry, self.shared.build).map_err(not_a_history)?;
        if let Some(held) = execution.held().filter(|_| !execution.run().is_closed()) {
            // A run that is over needs no code, also where its messages have not arrived yet.
            self.shared.note_held(run, Some(held.to_string()));
        }
        match resumed {
            Some((resumed, at)) => Ok((execution.compared_with(resumed, self.shared.shadows.tell()), at)),
            None => Ok((execution, EventId(1))),
        }
    }

    /// The turns of a run, and what of their payloads is lost: then no code hears of them, and the run can be shown and ended.
    fn turns_or_gaps(&self, run: RunId, is_held: bool) -> Result<(Vec<Turn>, Option<String>), Rejection> {
        let journal = &self.shared.journal;
        let with_gaps = || journal.turns_with_gaps(run, EventId(1), EventId(u64::MAX));
        let read = if is_held { with_gaps() } else { journal.turns(run, EventId(1)) };
        let lost_in = |turns: &[Turn]| turns.iter().find_map(Turn::lost_payload);
        match read {
            Ok(turns) => {
                // What a salvage has marked is no longer an error.
                let lost = lost_in(&turns);
                let lost = lost.map(|lost| format!("payload {} is lost", String::from_utf8_lossy(&lost.data)));
                Ok((turns, lost))
            }
            Err(error) => match with_gaps() {
                // A read that failed once is no loss: then nothing is missing now.
                Ok(turns) => {
                    let lost = lost_in(&turns).map(|_| error.to_string());
                    Ok((turns, lost))
                }
                Err(_) => {
                    self.shared.note_held(run, Some(error.to_string()));
                    Err(Rejection::Held { why: error.to_string() })
                }
            },
        }
    }

    /// A run that may have come from a snapshot of a type whose snapshots lose something is brought back from its history.
    fn put_away_if_distrusted(&mut self, run: RunId) {
        let Some(loaded) = self.loaded.get(&run).filter(|loaded| loaded.snapshot_at > 1) else { return };
        if !self.shared.shadows.trusts(&loaded.execution.run().info().workflow_type) {
            self.read_again(run);
        }
    }

    /// Resumes a state-machine run from its snapshot, if there is one of this build that can be read.
    pub(super) fn resume(&self, run: RunId) -> Result<Option<(Execution, EventId)>, StorageError> {
        let Some(snapshot) = self.shared.journal.snapshot(run).filter(|found| found.build == self.shared.build) else {
            return Ok(None);
        };
        let Ok((facts, code)) = rmp_serde::from_slice::<(Run, Vec<u8>)>(&snapshot.state) else { return Ok(None) };
        let workflow_type = facts.info().workflow_type.clone();
        if !self.shared.shadows.trusts(&workflow_type) {
            return Ok(None);
        }
        let Ok(driver) = self.shared.options.workflows.restore(&workflow_type, run, &code) else { return Ok(None) };
        let at = facts.next_event();
        let turns = self.shared.journal.turns(run, at)?;
        Ok(Execution::resume(facts, driver, &turns, self.shared.build).ok().map(|execution| (execution, at)))
    }

    pub(in crate::service) fn keep(&mut self, run: RunId, execution: Execution, snapshot_at: EventId) {
        let snapshot_at = snapshot_at.0;
        let loaded = LoadedRun {
            execution,
            last_use: 0,
            used_at: Instant::now(),
            last_item: self.submitted,
            snapshot_at,
            bytes: 0,
        };
        if let Some(before) = self.loaded.insert(run, loaded) {
            self.bytes -= before.bytes;
            self.uses.remove(&before.last_use);
        }
        self.weigh(run);
        self.touch(run);
    }

    /// Brings up to date what the run takes.
    pub(super) fn weigh(&mut self, run: RunId) {
        if let Some(loaded) = self.loaded.get_mut(&run) {
            let bytes = bytes_of_run(loaded.execution.run().info().history.bytes);
            self.bytes = self.bytes - loaded.bytes + bytes;
            loaded.bytes = bytes;
        }
    }

    pub(super) fn touch(&mut self, run: RunId) {
        self.clock_of_use += 1;
        if let Some(loaded) = self.loaded.get_mut(&run) {
            self.uses.remove(&loaded.last_use);
            loaded.last_use = self.clock_of_use;
            loaded.used_at = Instant::now();
            self.uses.insert(self.clock_of_use, run);
        }
    }

    /// Puts the runs that were not used for longest out of memory, if everything of them is durable: those at rest that are
    /// too many, and any while all of them together are too large.
    pub(in crate::service) fn evict(&mut self) {
        let released = self.shared.committer.released(self.number);
        let options = &self.shared.options;
        let mut surplus = self.loaded.len().saturating_sub(options.loaded_max.max(1));
        let mut heavy = self.bytes.saturating_sub(self.shared.budget.runs);
        if surplus == 0 && heavy == 0 {
            return;
        }
        // The one that was used last is about to be used again.
        let mut candidates = self.uses.iter().take(self.uses.len().saturating_sub(1).min(LOOKS));
        let mut gone = Vec::new();
        while (surplus > 0 || heavy > 0)
            && let Some((_, run)) = candidates.next()
        {
            let Some(loaded) = self.loaded.get(run) else { continue };
            if surplus > 0 && loaded.used_at.elapsed() < options.loaded_for {
                // So is every later one.
                surplus = 0;
                if heavy == 0 {
                    break;
                }
            }
            if loaded.last_item <= released {
                heavy = heavy.saturating_sub(loaded.bytes);
                gone.push(*run);
            }
            surplus = surplus.saturating_sub(1);
        }
        for run in gone {
            self.forget(run);
        }
    }

    /// When there is something to put away if nothing else happens before, at the earliest.
    pub(in crate::service) fn rests_in(&self) -> Option<Duration> {
        let options = &self.shared.options;
        let oldest = self.uses.values().next().filter(|_| self.loaded.len() > options.loaded_max.max(1))?;
        let used = self.loaded.get(oldest).map_or(Duration::ZERO, |loaded| loaded.used_at.elapsed());
        Some(options.loaded_for.saturating_sub(used).max(PUT_AWAY_EVERY))
    }

    /// A closed run that was deleted, by a client or because its retention is over, is not there any more.
    pub(super) fn forget_if_deleted(&mut self, run: RunId) {
        let released = self.shared.committer.released(self.number);
        let ended = |loaded: &LoadedRun| loaded.execution.run().is_closed() && loaded.last_item <= released;
        if self.loaded.get(&run).is_some_and(ended) && self.shared.journal.run(run).is_none() {
            let current_turn = self.current_turn.clone();
            current_turn.marked(run, || self.unload(run));
            self.shared.note_held(run, None);
        }
    }

    /// Puts one run out of memory.
    pub(in crate::service) fn forget(&mut self, run: RunId) {
        // Both run code of the run, and deep state may be too deep for either.
        let current_turn = self.current_turn.clone();
        current_turn.marked(run, || {
            self.snapshot(run, 1);
            self.unload(run);
        });
    }

    /// Puts a run out of memory that is to be read from the log again, whatever is under way.
    pub(in crate::service) fn read_again(&mut self, run: RunId) {
        if let Some(loaded) = self.loaded.get(&run) {
            self.unread.insert(run, loaded.last_item);
            self.unload(run);
        }
    }

    pub(super) fn unload(&mut self, run: RunId) {
        let Some(loaded) = self.loaded.remove(&run) else { return };
        self.uses.remove(&loaded.last_use);
        self.bytes -= loaded.bytes;
        let info = loaded.execution.run().info();
        let key = (info.namespace.clone(), info.workflow_id.clone());
        if loaded.execution.run().is_closed() && self.current.get(&key) == Some(&run) {
            self.current.remove(&key);
        }
    }

    /// Snapshots a run that has grown by this many events (E37). Lost snapshots cost only time.
    pub(super) fn snapshot(&mut self, run: RunId, grown: u64) {
        let Some(loaded) = self.loaded.get_mut(&run) else { return };
        let facts = loaded.execution.run();
        let next = facts.next_event().0;
        if next < loaded.snapshot_at + grown || loaded.last_item > self.shared.committer.released(self.number) {
            return;
        }
        // Released is also what was refused: then what is in memory may be ahead of the log.
        if self.shared.committer.has_given_up() {
            return;
        }
        if !self.shared.shadows.trusts(&loaded.execution.run().info().workflow_type) {
            return;
        }
        let Some(code) = loaded.execution.snapshot() else { return };
        if let Ok(state) = rmp_serde::to_vec(&(loaded.execution.run(), code)) {
            let snapshot = MachineSnapshot { event: EventId(next), build: self.shared.build, state };
            match self.shared.journal.put_snapshot(run, snapshot) {
                Ok(()) => loaded.snapshot_at = next,
                Err(error) => tracing::warn!(%run, %error, "a snapshot could not be kept; the run is replayed instead"),
            }
        }
    }

    /// Puts everything out of memory, with snapshots where they can be, because the worker is leaving.
    pub(in crate::service) fn forget_all(&mut self) {
        for run in self.loaded.keys().copied().collect::<Vec<_>>() {
            self.forget(run);
        }
    }
}

/// The reason on the card of a run of which a payload is lost.
fn damaged_why(why: &str, id: &WorkflowId) -> String {
    format!(
        "damage to the store hit it: {why}; what is left of its history is kept, and nothing is decided on it. Where the file \
         comes back from a backup, `bosun unpause {id}` lets the run go on; `bosun terminate {id}` ends it"
    )
}
