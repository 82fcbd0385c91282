//! Trimming: moving the oldest groups of the log to the archive.
//!
//! The log is a queue: its oldest groups are read once, their turns sorted by run and written as archive segments, and
//! the groups removed as one range. So the log stays contiguous and bounded however long single runs live.
//!
//! Invariant: segments durable, then the `Trimmed` record durable, then groups removed. The checkpoint must already be
//! past the groups that go. Nothing is dropped because an index does not know it: a run is archived or known deleted.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::Path;

use super::archive::{Segment, SegmentBuilder};
use super::chain::{ChainHash, SetHash};
use super::group::{Group, Record, Trimmed};
use super::housekeeping::HousekeepingReport;
use super::journal::Journal;
use super::shelf::{damaged, seal, unseal};
use super::{ScanFrom, Shelf, ShelfChange, StorageError};
use crate::seeded::{self, Bug};
use crate::vocabulary::{GroupSeq, RunId};

/// Bytes of archive segments per write.
const ARCHIVE_BATCH: usize = 1024 * 1024;

/// The oldest groups of the log, sorted by run.
struct TrimWindow {
    through: GroupSeq,
    chain: ChainHash,
    bytes: u64,
    segments: BTreeMap<RunId, Option<SegmentBuilder>>,
    full: Vec<SegmentBuilder>,
}

impl Journal {
    /// Archives and removes a piece of the log, if it holds more than it should.
    pub(crate) fn trim(&self, done: &mut HousekeepingReport) -> Result<(), StorageError> {
        let Some(window) = self.oldest_groups()? else {
            return Ok(());
        };
        let (first, through) = (self.index().trimmed.through.next(), window.through);
        let TrimWindow { chain, bytes, segments, full, .. } = window;
        let runs: Vec<RunId> = segments.keys().copied().collect();
        let builders = full.into_iter().chain(segments.into_values().flatten());
        let archives = self.write_archive(builders, done)?;
        let mut writer = self.writer();
        writer.check()?;
        // The segments, and the checkpoint before, must be there before the record that relies on them.
        self.medium.sync(writer.tail()).map_err(|why| writer.poison_unless_no_room(why))?;
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
        let last = through.0 + u64::from(seeded::on(Bug::CompactionDeletesLive));
        let removed = self.medium.remove_groups(first.0..=last);
        // Without room they stay where they are, and count for nothing.
        removed.map_err(|why| self.poison(why))?;
        done.groups_removed += through.0 + 1 - first.0;
        self.forget_deletions(through)
    }

    /// The groups to trim now, if the log holds more than it should.
    fn oldest_groups(&self) -> Result<Option<TrimWindow>, StorageError> {
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
        let mut window = TrimWindow { through, chain, bytes: 0, segments: BTreeMap::new(), full: Vec::new() };
        self.medium.groups_from(through.next(), &mut |seq, value| {
            if seq != window.through.next() {
                return Err(
                    StorageError::corrupt("commit group", &file, "it is missing").at_group(window.through.next())
                );
            }
            let group = Group::stored(&*self.medium, seq, value)?;
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
        window: &mut TrimWindow,
        seq: GroupSeq,
        group: &Group,
        file: &Path,
    ) -> Result<(), StorageError> {
        for (place, record) in group.records(file)? {
            // Other records have done their work once everything before them is trimmed.
            let Record::Turn(turn) = record else { continue };
            let run = turn.run;
            let builder = match window.segments.entry(run) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => {
                    let builder = self.next_segment(run, seq).map_err(|why| why.of_run(run).at_group(seq))?;
                    new.insert(builder)
                }
            };
            let Some(builder) = builder else { continue };
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
        if !known && !medium.shelf_has(Shelf::Closed, &run.0)? {
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
        done: &mut HousekeepingReport,
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
}
