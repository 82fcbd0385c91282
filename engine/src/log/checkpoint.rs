//! Checkpoints: the index on shelves, so that opening reads the tail of the log only.
//!
//! Only what changed is written, in batches; commits go on between them. Each batch is atomic and carries a [`Meta`]
//! with sums over all entries, so a lost, doubled or stale entry does not fit and the index is rebuilt. An entry may be
//! newer than the place in the log the meta names, since it says itself through which group it is true.
//!
//! Invariant: nothing waits for a checkpoint and nothing is lost with one. Every shelf value carries a CRC over
//! instance, shelf, key and content, so an entry in another's place is noticed.

use std::path::PathBuf;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::blob::BlobHash;
use super::chain::SetHash;
use super::index::{Index, Meta, RunState};
use super::journal::{Journal, JournalOptions};
use super::refs::{Chunk, Refs, StoredRefs};
use super::shelf::{blob_key, chunk_key, damaged, decode, encode, id_key, seal, start_key, unseal};
use super::{Anchor, Log, ScanFrom, Shelf, ShelfChange, StorageError};
use crate::vocabulary::{ENCODING_BYTES, ENCODING_JSON, EventId, GroupSeq, Outlook, RunId, RunInfo};

/// Runs per batch: what commits wait for at most while entries are encoded.
const BATCH_RUNS: usize = 128;
const META_VERSION: u32 = 1;

/// A run as the shelves keep it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct StoredRun {
    info: RunInfo,
    next_event: EventId,
    outlook: Outlook,
    through: GroupSeq,
    turns: u64,
    refs: StoredRefs,
}

impl StoredRun {
    fn encode(
        medium: &dyn Log,
        options: &JournalOptions,
        shelf: Shelf,
        state: &RunState,
    ) -> Result<Vec<u8>, StorageError> {
        let mut info = state.info.clone();
        for payload in info.memo.values_mut() {
            options.seal(info.run_id, payload)?;
        }
        let RunState { next_event, outlook, through, turns, ref refs, .. } = *state;
        encode(medium, shelf, &StoredRun { info, next_event, outlook, through, turns, refs: refs.stored() })
    }
    /// Up to which event and how many turns the entry knows a run, and through which group. Needs no key.
    pub(crate) fn reach(content: &[u8]) -> Option<(EventId, u64, GroupSeq)> {
        let stored: StoredRun = rmp_serde::from_slice(content).ok()?;
        Some((stored.next_event, stored.turns, stored.through))
    }
    /// What the entry says of its run. Needs no key: of the memo stays what no codec has changed. What one made is bound to
    /// its place, and read from another one it would keep the whole store from being opened.
    pub(crate) fn salvaged_info(content: &[u8]) -> Option<RunInfo> {
        let StoredRun { mut info, .. } = rmp_serde::from_slice(content).ok()?;
        info.memo.retain(|_, payload| [ENCODING_JSON, ENCODING_BYTES].contains(&payload.encoding.as_ref()));
        Some(info)
    }
    pub(crate) fn decode(
        medium: &dyn Log,
        options: &JournalOptions,
        shelf: Shelf,
        run: RunId,
        value: &[u8],
    ) -> Result<RunState, StorageError> {
        let content = unseal(medium, shelf, &run.0, value)?;
        let stored: StoredRun = decode(medium, shelf, content)?;
        let StoredRun { mut info, next_event, outlook, through, turns, refs } = stored;
        for payload in info.memo.values_mut() {
            options.unseal(run, payload)?;
        }
        let refs = Refs::from_stored(&refs).ok_or_else(|| damaged(medium, shelf, "turn references".into()))?;
        let saved = (shelf == Shelf::Open).then(|| SetHash::of(&run.0, value));
        Ok(RunState { info, next_event, outlook, through, turns, refs, saved })
    }
}

/// Changes of one batch, and what they mean for the meta.
pub(crate) struct CheckpointBatch<'a> {
    medium: &'a dyn Log,
    changes: Vec<ShelfChange>,
    meta: Meta,
}

impl<'a> CheckpointBatch<'a> {
    pub(crate) fn new(medium: &'a dyn Log, meta: Meta) -> Self {
        CheckpointBatch { medium, changes: Vec::new(), meta }
    }
    pub(crate) fn put(&mut self, shelf: Shelf, key: Vec<u8>, content: &[u8]) -> SetHash {
        let value = seal(self.medium, shelf, &key, content);
        let hash = SetHash::of(&key, &value);
        self.changes.push(ShelfChange { shelf, key, value: Some(value) });
        hash
    }
    fn remove(&mut self, shelf: Shelf, key: Vec<u8>) {
        self.changes.push(ShelfChange { shelf, key, value: None });
    }
    pub(crate) fn write(mut self) -> Result<Meta, StorageError> {
        let content = encode(self.medium, Shelf::Meta, &(META_VERSION, self.meta))?;
        self.put(Shelf::Meta, b"meta".to_vec(), &content);
        self.medium.change_shelves(&self.changes)?;
        Ok(self.meta)
    }
}

/// The meta on the shelf, if there is one.
pub(crate) fn load_meta(medium: &dyn Log) -> Result<Option<Meta>, StorageError> {
    let Some(value) = medium.shelf_get(Shelf::Meta, b"meta")? else {
        return Ok(None);
    };
    let content = unseal(medium, Shelf::Meta, b"meta", &value)?;
    // The version stands first, so that it can be read whatever follows.
    let mut reader = rmp_serde::Deserializer::new(content.get(1..).unwrap_or_default());
    let version = u32::deserialize(&mut reader).map_err(|why| damaged(medium, Shelf::Meta, why.to_string()))?;
    if version > META_VERSION {
        let (file, found, supported): (PathBuf, u32, u32) = (medium.location(), version, META_VERSION);
        return Err(StorageError::FormatTooNew { file, found, supported });
    }
    let (_, meta): (u32, Meta) = decode(medium, Shelf::Meta, content)?;
    Ok(Some(meta))
}

/// The meta in the content of its entry; one of a newer program is none.
pub(crate) fn meta_in(content: &[u8]) -> Option<Meta> {
    let (version, meta): (u32, Meta) = rmp_serde::from_slice(content).ok()?;
    (version <= META_VERSION).then_some(meta)
}

/// The index as of the checkpoint: all open runs. An error of kind `Corrupt` that names the index means: rebuild.
pub(crate) fn load(medium: &dyn Log, options: &JournalOptions, meta: Meta) -> Result<Index, StorageError> {
    let mut index = Index::new(meta);
    let (mut sum, mut count) = (SetHash::default(), 0);
    let mut after: Option<Vec<u8>> = None;
    loop {
        let from = after.as_deref().map_or(ScanFrom::First, ScanFrom::After);
        let page = medium.shelf_scan(Shelf::Open, &[], from, 1_024)?;
        for (key, value) in &page {
            let run = key.as_slice().try_into().map(RunId);
            let run = run.map_err(|_| damaged(medium, Shelf::Open, "a key is no run id".into()))?;
            let state = StoredRun::decode(medium, options, Shelf::Open, run, value)?;
            sum = sum.plus(state.saved.unwrap_or_default());
            count += 1;
            index.insert(run, state);
        }
        match page.into_iter().next_back() {
            Some((key, _)) => after = Some(key),
            None => break,
        }
    }
    if (sum, count) != (meta.open_hash, meta.open) {
        return Err(damaged(
            medium,
            Shelf::Open,
            format!("{count} entries do not add up to the {} recorded", meta.open),
        ));
    }
    Ok(index)
}

impl Journal {
    /// Writes what changed in the index since the last checkpoint. Commits go on meanwhile. What it writes is durable
    /// with the next commit; nothing depends on it.
    pub fn checkpoint(&self) -> Result<(), StorageError> {
        let _maintenance = self.maintenance();
        self.checkpoint_now()
    }

    /// As [`Journal::checkpoint`], for callers that hold the maintenance lock.
    pub(crate) fn checkpoint_now(&self) -> Result<(), StorageError> {
        let durable = self.write_checkpoint()?;
        self.note_epoch(durable);
        Ok(())
    }

    /// Answers the tail as it was at the beginning.
    fn write_checkpoint(&self) -> Result<Anchor, StorageError> {
        let (tail, log_bytes, dirty, removed) = {
            // Under the writer's lock the index is exactly at the tail.
            let writer = self.writer();
            writer.check()?;
            let index = self.index();
            let dirty: Vec<RunId> = index.dirty.iter().copied().collect();
            let removed: Vec<RunId> = index.removed.keys().copied().collect();
            (writer.tail(), writer.log_bytes, dirty, removed)
        };
        let nothing = dirty.is_empty() && removed.is_empty();
        let mut meta = self.index().meta;
        for runs in dirty.chunks(BATCH_RUNS) {
            meta = self.save_runs(meta, runs)?;
        }
        for run in removed {
            meta = self.save_removal(meta, run)?;
        }
        self.save_blob_refs(meta)?;
        self.save_snapshots(meta)?;
        let trimmed = self.index().trimmed;
        let finished = Meta { at: tail.last, chain: tail.chain, log_bytes, trimmed, complete: true, ..meta };
        if nothing && finished == self.index().meta {
            return Ok(tail);
        }
        {
            // The meta says that the groups up to here need not be read again: what it relies on must be there first.
            let mut writer = self.writer();
            let tail = writer.tail();
            self.medium.sync(tail).map_err(|why| writer.poison_unless_no_room(why))?;
        }
        let written = CheckpointBatch::new(&*self.medium, finished).write();
        self.index_mut().meta = written.map_err(|why| self.poison(why))?;
        Ok(tail)
    }

    fn save_runs(&self, meta: Meta, runs: &[RunId]) -> Result<Meta, StorageError> {
        let mut batch = CheckpointBatch::new(&*self.medium, meta);
        let mut saved = Vec::new();
        {
            let mut index = self.index_mut();
            for run in runs {
                if let Some(state) = index.get(*run) {
                    let hash = self.save_run(&mut batch, state)?;
                    saved.push((*run, hash, state.refs.chunk_count(), state.refs.to_clean().end));
                }
            }
            // A turn that comes while the batch is being written marks its run again.
            for run in runs {
                index.dirty.remove(run);
            }
        }
        let written = batch.write().map_err(|why| self.poison(why));
        let mut index = self.index_mut();
        // What was not written is written another time.
        let meta = written.inspect_err(|_| index.dirty.extend(saved.iter().map(|(run, ..)| *run)))?;
        for (run, hash, chunks, cleaned) in saved {
            let Some(state) = index.get_mut(run) else { continue };
            match hash {
                Some(hash) => {
                    state.saved = Some(hash);
                    state.refs.saved_to(chunks);
                    state.refs.cleaned_to(cleaned);
                }
                None => drop(index.remove(run)),
            }
        }
        index.meta = meta;
        Ok(meta)
    }

    /// Adds a run to a batch. Answers the hash of its open entry, or nothing if it is closed.
    fn save_run(&self, batch: &mut CheckpointBatch<'_>, state: &RunState) -> Result<Option<SetHash>, StorageError> {
        let run = state.info.run_id;
        for (number, chunk) in state.refs.unsaved() {
            batch.put(Shelf::Refs, chunk_key(run, number), &chunk.to_bytes());
        }
        for number in state.refs.to_clean() {
            batch.remove(Shelf::Refs, chunk_key(run, number));
        }
        if let Some(before) = state.saved {
            batch.meta.open_hash = batch.meta.open_hash.minus(before);
            batch.meta.open -= 1;
        }
        if state.is_live() {
            let content = StoredRun::encode(batch.medium, &self.options, Shelf::Open, state)?;
            let hash = batch.put(Shelf::Open, run.0.to_vec(), &content);
            batch.meta.open_hash = batch.meta.open_hash.plus(hash);
            batch.meta.open += 1;
            return Ok(Some(hash));
        }
        let content = StoredRun::encode(batch.medium, &self.options, Shelf::Closed, state)?;
        let hash = batch.put(Shelf::Closed, run.0.to_vec(), &content);
        batch.meta.closed_hash = batch.meta.closed_hash.plus(hash);
        batch.meta.closed += 1;
        let closed_at = state.info.closed_at.unwrap_or(state.info.started_at).0.to_be_bytes();
        let retention = [closed_at.as_slice(), state.info.namespace.as_str().as_bytes()].concat();
        batch.put(Shelf::ByStart, start_key(state.info.started_at, run), &retention);
        batch.put(Shelf::ById, id_key(&state.info), &[]);
        if state.saved.is_some() {
            batch.remove(Shelf::Open, run.0.to_vec());
        }
        Ok(None)
    }

    /// Takes everything of a deleted run off the shelves but what the trim needs to know.
    fn save_removal(&self, meta: Meta, run: RunId) -> Result<Meta, StorageError> {
        let Some(removed) = self.removed(run) else {
            return Ok(meta);
        };
        let mut batch = CheckpointBatch::new(&*self.medium, meta);
        if let Some(value) = self.medium.shelf_get(Shelf::Closed, &run.0)? {
            let state = StoredRun::decode(&*self.medium, &self.options, Shelf::Closed, run, &value)?;
            batch.meta.closed_hash = batch.meta.closed_hash.minus(SetHash::of(&run.0, &value));
            batch.meta.closed -= 1;
            batch.remove(Shelf::Closed, run.0.to_vec());
            batch.remove(Shelf::ByStart, start_key(state.info.started_at, run));
            batch.remove(Shelf::ById, id_key(&state.info));
        }
        if let Some(value) = self.medium.shelf_get(Shelf::Open, &run.0)? {
            // It closed and was deleted between two checkpoints.
            batch.meta.open_hash = batch.meta.open_hash.minus(SetHash::of(&run.0, &value));
            batch.meta.open -= 1;
            batch.remove(Shelf::Open, run.0.to_vec());
        }
        for shelf in [Shelf::Refs, Shelf::Archive] {
            for key in self.medium.shelf_keys(shelf, &run.0, ScanFrom::First, usize::MAX)? {
                batch.remove(shelf, key);
            }
        }
        batch.remove(Shelf::Snapshots, run.0.to_vec());
        batch.put(Shelf::Deleted, run.0.to_vec(), &removed.at.0.to_be_bytes());
        let meta = batch.write().map_err(|why| self.poison(why))?;
        let mut index = self.index_mut();
        index.removed.remove(&run);
        index.meta = meta;
        Ok(meta)
    }

    fn save_blob_refs(&self, meta: Meta) -> Result<(), StorageError> {
        let refs: Vec<(BlobHash, RunId)> = self.index().blob_refs.iter().copied().collect();
        for part in refs.chunks(1_024) {
            let mut batch = CheckpointBatch::new(&*self.medium, meta);
            for (hash, run) in part {
                batch.put(Shelf::BlobRefs, blob_key(hash, *run), &[]);
            }
            batch.write().map_err(|why| self.poison(why))?;
            let mut index = self.index_mut();
            for entry in part {
                index.blob_refs.remove(entry);
            }
        }
        Ok(())
    }

    /// A full chunk of references from the shelf.
    pub(crate) fn chunk(&self, run: RunId, number: u32) -> Result<Option<Chunk>, StorageError> {
        let (medium, key) = (&*self.medium, chunk_key(run, number));
        let Some(value) = medium.shelf_get(Shelf::Refs, &key)? else {
            return Ok(None);
        };
        let content = unseal(medium, Shelf::Refs, &key, &value).map_err(|why| why.of_run(run))?;
        let chunk = Chunk::from_bytes(&Bytes::copy_from_slice(content));
        chunk.map(Some).ok_or_else(|| damaged(medium, Shelf::Refs, "a chunk of references".into()).of_run(run))
    }

    /// A closed run from its shelf.
    pub(crate) fn closed(&self, run: RunId) -> Result<Option<RunState>, StorageError> {
        let Some(value) = self.medium.shelf_get(Shelf::Closed, &run.0)? else {
            return Ok(None);
        };
        let state = StoredRun::decode(&*self.medium, &self.options, Shelf::Closed, run, &value);
        state.map(Some).map_err(|why| why.of_run(run))
    }
}
