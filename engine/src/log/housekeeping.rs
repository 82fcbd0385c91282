//! Housekeeping: giving space back, a bounded piece at a time, beside running commits.
//!
//! One call takes a checkpoint, trims the log (see `trim`), deletes closed runs past the retention of their namespace,
//! and removes blobs nobody refers to.
//!
//! Invariant: a `Deleted` record is durable before anything of the run is removed, so that neither a crash nor a
//! rebuild of the index brings it back. A blob goes only when no run that exists refers to it and no commit is about to.

use std::collections::BTreeSet;
use std::time::Duration;

use super::archive::Segment;
use super::blob::BlobHash;
use super::chain::SetHash;
use super::group::{Deleted, GroupWriter};
use super::index::Removed;
use super::journal::{Journal, Writer};
use super::shelf::{blob_key, damaged, parse_start_key, unseal};
use super::{ScanFrom, Shelf, ShelfChange, StorageError};
use crate::vocabulary::{GroupSeq, Namespace, RunId, RunInfo, Timestamp, WorkflowStatus};

/// Closed runs looked at for retention per call.
const RETENTION_LOOK: usize = 1_024;
/// Runs deleted per call.
const RETENTION_DELETE: usize = 128;
/// Blobs looked at per call.
const BLOB_LOOK: usize = 256;

/// What one call did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HousekeepingReport {
    /// Archive segments written.
    pub archived: u64,
    /// Runs deleted because their retention is over.
    pub deleted: u64,
    /// Groups removed from the log because the archive holds their turns, or nobody needs them.
    pub groups_removed: u64,
    /// Blobs removed because no run refers to them.
    pub blobs_removed: u64,
}

/// Where the last call stopped.
#[derive(Debug, Default)]
pub(crate) struct Maintenance {
    retention_after: Option<Vec<u8>>,
    blob_byte: u8,
    blob_after: Option<BlobHash>,
}

impl Journal {
    /// Does a bounded piece of work: checkpoint, archive and remove the oldest groups, delete closed runs past the
    /// retention of their namespace (`None` keeps them for ever), collect blobs. Call it now and then.
    pub fn housekeep(
        &self,
        now: Timestamp,
        retention: &dyn Fn(&Namespace) -> Option<Duration>,
    ) -> Result<HousekeepingReport, StorageError> {
        self.housekeep_until(&|namespace| retention(namespace).map(|keep| now.minus(keep)))
    }

    /// The same, deleting runs of a namespace that closed at a moment or before.
    pub fn housekeep_until(
        &self,
        closed_until: &dyn Fn(&Namespace) -> Option<Timestamp>,
    ) -> Result<HousekeepingReport, StorageError> {
        let mut maintenance = self.maintenance();
        self.checkpoint_now()?;
        let mut done = HousekeepingReport::default();
        let trimmed = self.trim(&mut done);
        if trimmed.as_ref().is_err_and(|why| !why.is_damage()) {
            return trimmed.map(|()| done);
        }
        // What has nothing to do with a damaged group goes on.
        self.retire(&mut maintenance, closed_until, &mut done)?;
        self.collect_blobs(&mut maintenance, &mut done)?;
        trimmed.map(|()| done)
    }

    /// What gives space back and takes hardly any, for a disk that is full: deletes runs as `housekeep_until` does, and
    /// collects blobs.
    pub fn give_back_until(
        &self,
        closed_until: &dyn Fn(&Namespace) -> Option<Timestamp>,
    ) -> Result<HousekeepingReport, StorageError> {
        let mut maintenance = self.maintenance();
        let mut done = HousekeepingReport::default();
        self.retire(&mut maintenance, closed_until, &mut done)?;
        self.collect_blobs(&mut maintenance, &mut done)?;
        Ok(done)
    }

    /// Deletes a closed run for good. `false`, and nothing is deleted, if there is no such run, it is open, or messages
    /// that it sent at its end have not arrived. Durable on return.
    pub fn delete_run(&self, run: RunId) -> Result<bool, StorageError> {
        let _maintenance = self.maintenance();
        self.writer().check()?;
        Ok(self.delete_runs(&[run])? == 1)
    }

    /// Deletes those of the runs that are closed; answers how many.
    fn delete_runs(&self, runs: &[RunId]) -> Result<u64, StorageError> {
        let medium = &*self.medium;
        let trimmed = self.index().trimmed.through;
        let mut archives = self.index().trimmed.archives;
        let mut gone: Vec<(RunId, bool)> = Vec::new();
        for run in runs {
            let Some(state) = self.state(*run)?.filter(|state| !state.is_live()) else { continue };
            if state.info.status == WorkflowStatus::Terminated
                && let Some(heir) = state.info.next_run.map(|next| self.state(next)).transpose()?.flatten()
                && heir.info.status.is_open()
            {
                // It was reset, and children that it started find the run that goes on through it.
                continue;
            }
            for (key, value) in medium.shelf_scan(Shelf::Archive, &run.0, ScanFrom::First, usize::MAX)? {
                let content = unseal(medium, Shelf::Archive, &key, &value).map_err(|why| why.of_run(*run))?;
                if Segment::parse(&key, content, &medium.location())?.through <= trimmed {
                    archives = archives.minus(SetHash::of(&key, &value));
                }
            }
            gone.push((state.info.run_id, medium.shelf_has(Shelf::Closed, &run.0)?));
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

    /// Appends a group of one record that is not a turn.
    pub(crate) fn append_record(
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
        closed_until: &dyn Fn(&Namespace) -> Option<Timestamp>,
        done: &mut HousekeepingReport,
    ) -> Result<(), StorageError> {
        let medium = &*self.medium;
        let after = maintenance.retention_after.take();
        let from = after.as_deref().map_or(ScanFrom::First, ScanFrom::After);
        let page = medium.shelf_scan(Shelf::ByStart, &[], from, RETENTION_LOOK)?;
        let more = page.len() == RETENTION_LOOK;
        let (mut due, mut last, mut wrong) = (Vec::new(), None, None);
        for (key, value) in page {
            let content = unseal(medium, Shelf::ByStart, &key, &value);
            let entry = content.and_then(|content| {
                let entry = content.split_first_chunk::<8>().and_then(|(closed_at, namespace)| {
                    let namespace = Namespace::new(std::str::from_utf8(namespace).ok()?).ok()?;
                    Some((Timestamp(i64::from_be_bytes(*closed_at)), namespace, parse_start_key(&key)?.1))
                });
                entry.ok_or_else(|| damaged(medium, Shelf::ByStart, "an entry makes no sense".into()))
            });
            match entry {
                Ok((closed_at, namespace, run)) if closed_until(&namespace).is_some_and(|until| closed_at <= until) => {
                    due.push(run);
                }
                Ok(_) => {}
                // The run of a damaged entry stays; all others are looked at.
                Err(why) => wrong = Some(why),
            }
            last = Some(key);
            if due.len() == RETENTION_DELETE {
                break;
            }
        }
        if more || due.len() == RETENTION_DELETE {
            maintenance.retention_after = last;
        }
        let deleted = self.delete_runs(&due)?;
        if deleted > 0 {
            let first: Vec<String> = due.iter().take(8).map(ToString::to_string).collect();
            tracing::info!(deleted, runs = first.join(" "), "closed runs past their retention were deleted");
        }
        done.deleted += deleted;
        wrong.map_or(Ok(()), Err)
    }

    /// Looks at the next blobs in order of their hash and removes those without a run.
    fn collect_blobs(&self, maintenance: &mut Maintenance, done: &mut HousekeepingReport) -> Result<(), StorageError> {
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

    /// Looks at every blob, and removes those without a run. Answers how many those were.
    pub(crate) fn collect_all_blobs(&self) -> Result<u64, StorageError> {
        let _maintenance = self.maintenance();
        let mut removed = 0;
        for first_byte in 0..=u8::MAX {
            for hash in self.medium.blobs(first_byte)? {
                removed += u64::from(self.collect_blob(&hash)?);
            }
        }
        Ok(removed)
    }

    /// Gives the medium an occasion to empty files of values of which little counts.
    pub(crate) fn sweep_values(&self) -> Result<(), StorageError> {
        let _maintenance = self.maintenance();
        let mut writer = self.writer();
        writer.check()?;
        let tail = writer.tail();
        let swept = self.medium.change_shelves(&[]).and_then(|()| self.medium.sync(tail));
        swept.map_err(|why| writer.poison_unless_no_room(why))
    }

    /// Removes a blob if no run refers to it. Holds the writer, so that no commit is about to.
    fn collect_blob(&self, hash: &BlobHash) -> Result<bool, StorageError> {
        let mut writer = self.writer();
        writer.check()?;
        let medium = &*self.medium;
        let mut used =
            self.index().blob_refs.range((*hash, RunId([0; 16]))..=(*hash, RunId([0xff; 16]))).next().is_some();
        let mut stale = Vec::new();
        for key in medium.shelf_keys(Shelf::BlobRefs, &hash.0, ScanFrom::First, usize::MAX)? {
            let run = key.get(32..).and_then(|run| run.try_into().ok()).map(RunId);
            let run = run.ok_or_else(|| damaged(medium, Shelf::BlobRefs, "a key makes no sense".into()))?;
            if self.is_known(run)? {
                used = true;
            } else {
                stale.push(ShelfChange { shelf: Shelf::BlobRefs, key: blob_key(hash, run), value: None });
            }
        }
        if !stale.is_empty() {
            medium.change_shelves(&stale).map_err(|why| writer.poison_unless_no_room(why))?;
        }
        if used {
            return Ok(false);
        }
        medium.remove_blob(hash).map_err(|why| writer.poison(why))?;
        Ok(true)
    }

    /// The open runs that refer to blobs, the newest first.
    pub(crate) fn open_with_blobs(&self) -> Result<Vec<RunInfo>, StorageError> {
        let mut runs: BTreeSet<RunId> = self.index().blob_refs.iter().map(|(_, run)| *run).collect();
        let mut after: Option<Vec<u8>> = None;
        loop {
            let from = after.as_deref().map_or(ScanFrom::First, ScanFrom::After);
            let page = self.medium.shelf_keys(Shelf::BlobRefs, &[], from, 256)?;
            runs.extend(page.iter().filter_map(|key| key.get(32..)?.try_into().ok()).map(RunId));
            match page.into_iter().next_back() {
                Some(key) => after = Some(key),
                None => break,
            }
        }
        let index = self.index();
        let open = |run: &RunId| index.get(*run).map(|state| &state.info).filter(|info| info.status.is_open()).cloned();
        let mut open: Vec<RunInfo> = runs.iter().filter_map(open).collect();
        open.sort_by_key(|info| std::cmp::Reverse((info.started_at, info.run_id)));
        Ok(open)
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
        self.medium.shelf_has(Shelf::Closed, &run.0)
    }
}
