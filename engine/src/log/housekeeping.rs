//! Housekeeping: giving space back, a bounded piece at a time, beside running commits.
//!
//! The log is a queue. Its oldest groups are *trimmed*: the turns in them go to the archive, by run, contiguous and
//! compressed, and the groups are removed as one range. So the log stays contiguous and bounded however long single
//! runs live, and each turn is moved at most once. Runs past retention are deleted; blobs nobody refers to are removed.
//!
//! Invariant: archive durable, then a `Trimmed` record durable, then groups removed; a `Deleted` record durable, then
//! entries removed. A crash between any two steps loses nothing and repeats nothing that matters. Nothing is deleted
//! because an index does not know it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use super::archive::{Segment, SegmentBuilder};
use super::blob::BlobHash;
use super::chain::{ChainHash, SetHash};
use super::checkpoint::{blob_key, damaged, parse_start_key, seal, unseal};
use super::group::{Deleted, Group, GroupWriter, Record, Trimmed};
use super::index::Removed;
use super::journal::{Journal, Writer};
use super::{ScanFrom, Shelf, ShelfChange, StorageError};
use crate::vocabulary::{GroupSeq, Namespace, RunId, Timestamp};

/// Closed runs looked at for retention per call.
const RETENTION_LOOK: usize = 1_024;
/// Runs deleted per call.
const RETENTION_DELETE: usize = 128;
/// Blobs looked at per call.
const BLOB_LOOK: usize = 256;
/// Bytes of archive segments per write.
const ARCHIVE_BATCH: usize = 1024 * 1024;

/// What one call did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Housekeeping {
    /// Archive segments written.
    pub archived: u64,
    /// Runs deleted because their retention is over.
    pub deleted: u64,
    pub groups_removed: u64,
    pub blobs_removed: u64,
}

/// Where the last call stopped.
#[derive(Debug, Default)]
pub(crate) struct Maintenance {
    retention_after: Option<Vec<u8>>,
    blob_byte: u8,
    blob_after: Option<BlobHash>,
}

/// The oldest groups of the log, sorted by run.
struct Window {
    through: GroupSeq,
    chain: ChainHash,
    bytes: u64,
    segments: BTreeMap<RunId, Option<SegmentBuilder>>,
    full: Vec<SegmentBuilder>,
}

impl Journal {
    /// Does a bounded piece of work: checkpoint, archive and remove the oldest groups, delete closed runs past the
    /// retention of their namespace (`None` keeps them for ever), collect blobs. Call it now and then.
    pub fn housekeep(
        &self,
        now: Timestamp,
        retention: &dyn Fn(&Namespace) -> Option<Duration>,
    ) -> Result<Housekeeping, StorageError> {
        let mut maintenance = self.maintenance();
        self.checkpoint_now()?;
        let mut done = Housekeeping::default();
        self.trim(&mut done)?;
        self.retire(&mut maintenance, now, retention, &mut done)?;
        self.collect_blobs(&mut maintenance, &mut done)?;
        Ok(done)
    }

    /// Deletes a closed run for good; `false` if there is no such closed run. Durable on return.
    pub fn delete_run(&self, run: RunId) -> Result<bool, StorageError> {
        let _maintenance = self.maintenance();
        self.writer().check()?;
        Ok(self.delete_runs(&[run])? == 1)
    }

    fn trim(&self, done: &mut Housekeeping) -> Result<(), StorageError> {
        let Some(window) = self.oldest_groups()? else {
            return Ok(());
        };
        let (first, through) = (self.index().trimmed.through.next(), window.through);
        let Window { chain, bytes, segments, full, .. } = window;
        let runs: Vec<RunId> = segments.keys().copied().collect();
        let builders = full.into_iter().chain(segments.into_values().flatten());
        let archives = self.write_archive(builders, done)?;
        let mut writer = self.writer();
        writer.check()?;
        // The segments, and the checkpoint before, must be there before the record that relies on them.
        self.medium.sync(writer.tail()).map_err(|why| writer.poison(why))?;
        let trimmed = Trimmed { through, chain, archives };
        self.append_record(&mut writer, |group| group.trimmed(&trimmed).map(drop))?;
        writer.log_bytes = writer.log_bytes.saturating_sub(bytes);
        {
            let mut index = self.index_mut();
            index.trimmed = trimmed;
            for run in runs {
                if let Some(state) = index.get_mut(run) {
                    state.refs.forget(through);
                    index.dirty.insert(run);
                }
            }
        }
        drop(writer);
        self.medium.settle_anchor().map_err(|why| self.poison(why))?;
        self.medium.remove_groups(first.0..=through.0).map_err(|why| self.poison(why))?;
        done.groups_removed += through.0 + 1 - first.0;
        self.forget_deletions(through)
    }

    /// The groups to trim now, if the log holds more than it should.
    fn oldest_groups(&self) -> Result<Option<Window>, StorageError> {
        let log_bytes = self.writer().log_bytes;
        let (trimmed, checkpoint) = {
            let index = self.index();
            (index.trimmed, index.meta.at)
        };
        let excess = log_bytes.saturating_sub(self.options.log_keep_bytes).min(self.options.trim_bytes);
        // The checkpoint must not need the groups that go, and the newest group stays.
        if excess == 0 || checkpoint <= trimmed.through.next() {
            return Ok(None);
        }
        let file = self.medium.location();
        let Trimmed { through, chain, .. } = trimmed;
        let mut window = Window { through, chain, bytes: 0, segments: BTreeMap::new(), full: Vec::new() };
        self.medium.groups_from(through.next(), &mut |seq, value| {
            if seq != window.through.next() {
                return Err(
                    StorageError::corrupt("commit group", &file, "it is missing").at_group(window.through.next())
                );
            }
            let group = Group::parse(seq, value, &file)?;
            if group.previous() != window.chain {
                return Err(
                    StorageError::corrupt("commit group", &file, "it does not continue the chain").at_group(seq)
                );
            }
            self.sort_group(&mut window, seq, &group, &file)?;
            window.through = seq;
            window.chain = group.chain();
            window.bytes += group.len() as u64;
            Ok(window.bytes < excess && seq.next() < checkpoint)
        })?;
        Ok((window.bytes > 0).then_some(window))
    }

    fn sort_group(
        &self,
        window: &mut Window,
        seq: GroupSeq,
        group: &Group,
        file: &PathBuf,
    ) -> Result<(), StorageError> {
        for (place, record) in group.records(file)? {
            // Other records have done their work once everything before them is trimmed.
            let Record::Turn(turn) = record else { continue };
            let run = turn.run;
            if !window.segments.contains_key(&run) {
                let builder = self.next_segment(run, seq).map_err(|why| why.of_run(run).at_group(seq))?;
                window.segments.insert(run, builder);
            }
            let Some(Some(builder)) = window.segments.get_mut(&run) else { continue };
            if builder.next_event() != turn.first_event.0 {
                let detail = format!("event {} follows event {}", turn.first_event, builder.next_event());
                return Err(StorageError::corrupt("history", file, detail).of_run(run).at_group(seq));
            }
            builder.push(seq, turn.next_event().0, group.bytes(place));
            if builder.is_full() {
                let next = SegmentBuilder::new(run, builder.next_ordinal(), builder.next_event());
                window.full.push(std::mem::replace(builder, next));
            }
        }
        Ok(())
    }

    /// The segment that continues a run's archive, or nothing if the run was deleted.
    fn next_segment(&self, run: RunId, seq: GroupSeq) -> Result<Option<SegmentBuilder>, StorageError> {
        let (medium, file) = (&*self.medium, self.medium.location());
        let (known, trimmed) = {
            let index = self.index();
            (index.get(run).is_some(), index.trimmed.through)
        };
        if self.is_deleted(run)? {
            return Ok(None);
        }
        if !known && medium.shelf_get(Shelf::Closed, &run.0)?.is_none() {
            let detail = "the index does not know a run that has turns in the log and was not deleted".into();
            return Err(damaged(medium, Shelf::Closed, detail).of_run(run).at_group(seq));
        }
        let mut before: Option<Vec<u8>> = None;
        loop {
            let from = before.as_deref().map_or(ScanFrom::Last, ScanFrom::Before);
            let Some((key, value)) = medium.shelf_scan(Shelf::Archive, &run.0, from, 1)?.pop() else {
                return Ok(Some(SegmentBuilder::new(run, 0, 1)));
            };
            let segment = Segment::parse(&key, unseal(medium, Shelf::Archive, &key, &value)?, &file)?;
            if segment.through <= trimmed {
                let next = segment.first_ordinal + segment.turns;
                return Ok(Some(SegmentBuilder::new(run, next, segment.next_event)));
            }
            // Left over from an interrupted trim.
            before = Some(key);
        }
    }

    /// Writes segments; answers the sum over the whole archive with them.
    fn write_archive(
        &self,
        builders: impl Iterator<Item = SegmentBuilder>,
        done: &mut Housekeeping,
    ) -> Result<SetHash, StorageError> {
        let (medium, mut archives) = (&*self.medium, self.index().trimmed.archives);
        let (mut changes, mut bytes) = (Vec::new(), 0);
        for builder in builders.filter(|builder| !builder.is_empty()) {
            let finished = builder.finish();
            let (key, content) = finished.map_err(|why| damaged(medium, Shelf::Archive, why))?;
            let value = seal(medium, Shelf::Archive, &key, &content);
            archives = archives.plus(SetHash::of(&key, &value));
            bytes += value.len();
            changes.push(ShelfChange { shelf: Shelf::Archive, key, value: Some(value) });
            done.archived += 1;
            if bytes >= ARCHIVE_BATCH {
                medium.change_shelves(&std::mem::take(&mut changes)).map_err(|why| self.poison(why))?;
                bytes = 0;
            }
        }
        if !changes.is_empty() {
            medium.change_shelves(&changes).map_err(|why| self.poison(why))?;
        }
        Ok(archives)
    }

    /// Deletions that nothing in the log needs any more.
    fn forget_deletions(&self, through: GroupSeq) -> Result<(), StorageError> {
        let medium = &*self.medium;
        let entries = medium.shelf_scan(Shelf::Deleted, &[], ScanFrom::First, usize::MAX)?;
        let mut gone = Vec::new();
        for (key, value) in entries {
            let at = unseal(medium, Shelf::Deleted, &key, &value)?;
            if at.try_into().is_ok_and(|at| u64::from_be_bytes(at) <= through.0) {
                gone.push(ShelfChange { shelf: Shelf::Deleted, key, value: None });
            }
        }
        if gone.is_empty() {
            return Ok(());
        }
        medium.change_shelves(&gone).map_err(|why| self.poison(why))
    }

    /// Deletes those of the runs that are closed; answers how many.
    fn delete_runs(&self, runs: &[RunId]) -> Result<u64, StorageError> {
        let medium = &*self.medium;
        let trimmed = self.index().trimmed.through;
        let mut archives = self.index().trimmed.archives;
        let mut gone: Vec<(RunId, bool)> = Vec::new();
        for run in runs {
            let Some(state) = self.state(*run)?.filter(|state| !state.info.status.is_open()) else { continue };
            for (key, value) in medium.shelf_scan(Shelf::Archive, &run.0, ScanFrom::First, usize::MAX)? {
                let content = unseal(medium, Shelf::Archive, &key, &value).map_err(|why| why.of_run(*run))?;
                if Segment::parse(&key, content, &medium.location())?.through <= trimmed {
                    archives = archives.minus(SetHash::of(&key, &value));
                }
            }
            gone.push((state.info.run_id, medium.shelf_get(Shelf::Closed, &run.0)?.is_some()));
        }
        if gone.is_empty() {
            return Ok(0);
        }
        let mut writer = self.writer();
        writer.check()?;
        let deleted = Deleted { runs: gone.iter().map(|(run, _)| *run).collect(), archives };
        let at = self.append_record(&mut writer, |group| group.deleted(&deleted).map(drop))?;
        let mut index = self.index_mut();
        index.trimmed.archives = archives;
        for (run, was_closed_on_shelf) in &gone {
            index.remove(*run);
            index.snapshots.remove(run);
            index.removed.insert(*run, Removed { at, was_closed_on_shelf: *was_closed_on_shelf });
        }
        Ok(gone.len() as u64)
    }

    fn append_record(
        &self,
        writer: &mut Writer,
        record: impl FnOnce(&mut GroupWriter) -> Result<(), String>,
    ) -> Result<GroupSeq, StorageError> {
        let mut group = GroupWriter::new(writer.last.next(), writer.chain);
        record(&mut group).map_err(|why| damaged(&*self.medium, Shelf::Meta, why))?;
        Ok(self.append(writer, group)?.group)
    }

    /// Deletes closed runs whose retention is over, oldest start first, going on where the last call stopped.
    fn retire(
        &self,
        maintenance: &mut Maintenance,
        now: Timestamp,
        retention: &dyn Fn(&Namespace) -> Option<Duration>,
        done: &mut Housekeeping,
    ) -> Result<(), StorageError> {
        let medium = &*self.medium;
        let after = maintenance.retention_after.take();
        let from = after.as_deref().map_or(ScanFrom::First, ScanFrom::After);
        let page = medium.shelf_scan(Shelf::ByStart, &[], from, RETENTION_LOOK)?;
        let more = page.len() == RETENTION_LOOK;
        let mut due = Vec::new();
        let mut last = None;
        for (key, value) in page {
            let content = unseal(medium, Shelf::ByStart, &key, &value)?;
            let entry = content.split_first_chunk::<8>().and_then(|(closed_at, namespace)| {
                let namespace = Namespace::new(std::str::from_utf8(namespace).ok()?).ok()?;
                Some((Timestamp(i64::from_be_bytes(*closed_at)), namespace, parse_start_key(&key)?.1))
            });
            let entry = entry.ok_or_else(|| damaged(medium, Shelf::ByStart, "an entry makes no sense".into()));
            let (closed_at, namespace, run) = entry?;
            if retention(&namespace).is_some_and(|keep| closed_at.plus(keep) <= now) {
                due.push(run);
            }
            last = Some(key);
            if due.len() == RETENTION_DELETE {
                break;
            }
        }
        if more || due.len() == RETENTION_DELETE {
            maintenance.retention_after = last;
        }
        done.deleted += self.delete_runs(&due)?;
        Ok(())
    }

    /// Looks at the next blobs in order of their hash and removes those without a run.
    fn collect_blobs(&self, maintenance: &mut Maintenance, done: &mut Housekeeping) -> Result<(), StorageError> {
        let mut looked = 0;
        for _ in 0..=u8::MAX {
            let after = maintenance.blob_after.take();
            let hashes = self.medium.blobs(maintenance.blob_byte)?;
            for hash in hashes.into_iter().filter(|hash| after.is_none_or(|after| *hash > after)) {
                done.blobs_removed += u64::from(self.collect_blob(&hash)?);
                looked += 1;
                if looked >= BLOB_LOOK {
                    maintenance.blob_after = Some(hash);
                    return Ok(());
                }
            }
            maintenance.blob_byte = maintenance.blob_byte.wrapping_add(1);
        }
        Ok(())
    }

    /// Removes a blob if no run refers to it. Holds the writer, so that no commit is about to.
    fn collect_blob(&self, hash: &BlobHash) -> Result<bool, StorageError> {
        let mut writer = self.writer();
        writer.check()?;
        let medium = &*self.medium;
        let mut used =
            self.index().blob_refs.range((*hash, RunId([0; 16]))..=(*hash, RunId([0xff; 16]))).next().is_some();
        let mut stale = Vec::new();
        for (key, _) in medium.shelf_scan(Shelf::BlobRefs, &hash.0, ScanFrom::First, usize::MAX)? {
            let run = key.get(32..).and_then(|run| run.try_into().ok()).map(RunId);
            let run = run.ok_or_else(|| damaged(medium, Shelf::BlobRefs, "a key makes no sense".into()))?;
            if self.is_known(run)? {
                used = true;
            } else {
                stale.push(ShelfChange { shelf: Shelf::BlobRefs, key: blob_key(hash, run), value: None });
            }
        }
        if !stale.is_empty() {
            medium.change_shelves(&stale).map_err(|why| writer.poison(why))?;
        }
        if used {
            return Ok(false);
        }
        medium.remove_blob(hash).map_err(|why| writer.poison(why))?;
        Ok(true)
    }

    fn is_known(&self, run: RunId) -> Result<bool, StorageError> {
        {
            let index = self.index();
            if index.removed.contains_key(&run) {
                return Ok(false);
            }
            if index.get(run).is_some() {
                return Ok(true);
            }
        }
        Ok(self.medium.shelf_get(Shelf::Closed, &run.0)?.is_some())
    }
}
