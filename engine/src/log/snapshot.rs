//! Snapshots: states to resume a run from, instead of replaying its whole history (E37).
//!
//! Invariant: a snapshot is derived. It is written with the next checkpoint, may be lost in a crash, and one that is
//! damaged or ahead of the history counts as none. Its bytes go through the payload codecs, like all user data.

use serde::{Deserialize, Serialize};

use super::checkpoint::CheckpointBatch;
use super::index::Meta;
use super::journal::{Journal, MachineSnapshot};
use super::shelf::{decode, encode, unseal};
use super::{Shelf, StorageError};
use crate::vocabulary::{BuildId, EventId, Payload, RunId};

/// Bytes of snapshots per write.
const BATCH: usize = 1024 * 1024;

#[derive(Serialize, Deserialize)]
struct StoredSnapshot(EventId, BuildId, Payload);

impl Journal {
    /// Writes the snapshots that came since the last checkpoint.
    pub(crate) fn save_snapshots(&self, meta: Meta) -> Result<(), StorageError> {
        let mut runs: Vec<RunId> = self.index().snapshots.keys().copied().collect();
        while !runs.is_empty() {
            let (mut batch, mut saved, mut bytes) = (CheckpointBatch::new(&*self.medium, meta), Vec::new(), 0);
            while bytes < BATCH
                && let Some(run) = runs.pop()
            {
                let Some(snapshot) = self.index().snapshots.get(&run).cloned() else { continue };
                let mut state = Payload::bytes(snapshot.state.clone());
                self.options.seal(run, &mut state)?;
                let stored = StoredSnapshot(snapshot.event, snapshot.build, state);
                let content = encode(&*self.medium, Shelf::Snapshots, &stored)?;
                bytes += content.len();
                batch.put(Shelf::Snapshots, run.0.to_vec(), &content);
                saved.push((run, snapshot));
            }
            batch.write().map_err(|why| self.poison(why))?;
            let mut index = self.index_mut();
            for (run, snapshot) in saved {
                if index.snapshots.get(&run) == Some(&snapshot) {
                    index.snapshots.remove(&run);
                }
            }
        }
        Ok(())
    }

    /// Keeps a state to resume from. It becomes durable some time after the next checkpoint; a crash may lose it.
    pub fn put_snapshot(&self, run: RunId, snapshot: MachineSnapshot) -> Result<(), StorageError> {
        self.writer().check()?;
        let mut index = self.index_mut();
        if index.get(run).is_some_and(|state| snapshot.event <= state.next_event) {
            index.snapshots.insert(run, snapshot);
        }
        Ok(())
    }

    /// The newest snapshot of a run. One that is damaged, or ahead of the log, is none.
    pub fn snapshot(&self, run: RunId) -> Option<MachineSnapshot> {
        let next_event = self.run(run)?.next_event;
        if let Some(snapshot) = self.index().snapshots.get(&run) {
            return Some(snapshot.clone());
        }
        let medium = &*self.medium;
        let read = || -> Result<Option<MachineSnapshot>, StorageError> {
            let Some(value) = medium.shelf_get(Shelf::Snapshots, &run.0)? else {
                return Ok(None);
            };
            let content = unseal(medium, Shelf::Snapshots, &run.0, &value)?;
            let StoredSnapshot(event, build, mut state) = decode(medium, Shelf::Snapshots, content)?;
            self.options.unseal(run, &mut state)?;
            Ok(Some(MachineSnapshot { event, build, state: state.data.to_vec() }))
        };
        match read() {
            Ok(snapshot) => snapshot.filter(|snapshot| snapshot.event <= next_event),
            Err(why) => {
                tracing::warn!(%run, %why, "a snapshot cannot be used; the run will be replayed from its history");
                None
            }
        }
    }
}
