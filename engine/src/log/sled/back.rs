//! sled behind the write-ahead files: it takes groups that are durable there, many at once, and becomes durable itself.
//!
//! Invariant: when [`Back::flush`] returns, everything written before is on the disk: after sled's own flush, which does not
//! fsync, its file and what it wrote beside it are fsynced. A body is durable before its entry is written.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};

use super::SledLog;
use super::guard::flush;
use crate::log::anchor::Anchor;
use crate::log::parts::{LONG_RECORD, WHOLE, beside, whole};
use crate::log::wal::{Back, PendingGroup};
use crate::log::{Log, StorageError};
use crate::seeded::{self, Bug};
use crate::vocabulary::GroupSeq;

impl Back for SledLog {
    fn wal_dir(&self) -> PathBuf {
        self.dir.wal()
    }

    fn segment_bytes(&self) -> Option<u64> {
        self.room.for_segments(self.wal_bytes)
    }

    fn claim(&self) -> Result<(), StorageError> {
        self.room.claim_ahead(&self.file)
    }

    fn mark(&self, id: Option<[u8; 16]>) -> Result<(), StorageError> {
        if self.failed.load(Ordering::Acquire) {
            return Err(StorageError::Poisoned { first: "an earlier write to the database failed".into() });
        }
        let mut format = self.format.lock().unwrap_or_else(PoisonError::into_inner);
        self.write_format(&mut format, |format| format.wal = id)
    }

    fn note(&self, tail: Anchor) -> Result<(), StorageError> {
        self.file_work(|| self.anchor.note(tail))
    }

    fn feed(&self, groups: &[(GroupSeq, Arc<PendingGroup>)], urgent: &AtomicBool) -> Result<(), StorageError> {
        let long = |group: &PendingGroup| group.longest > LONG_RECORD || group.value.len() > WHOLE;
        let mut places = Vec::with_capacity(groups.len());
        for (seq, group) in groups {
            places.push(match long(group) {
                true => Some(self.file_work(|| {
                    self.upgrade()?;
                    let pack = !urgent.load(Ordering::Relaxed);
                    self.groups.write_as(pack, Some(seq.0), &seq.0.to_be_bytes(), &group.value)
                })?),
                false => None,
            });
        }
        // The bodies are durable before the entries are written, as in `append`; one sync does for all.
        self.file_work(|| self.groups.sync())?;
        for ((seq, group), place) in groups.iter().zip(places) {
            self.room.claim_ahead(&self.file)?;
            let entry = place.map_or_else(|| whole(&group.value), beside);
            self.write("append", || self.handles().groups.insert(seq.0.to_be_bytes(), entry).map(drop))?;
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), StorageError> {
        let changes = self.changes.load(Ordering::Acquire);
        // Removals that were seen here are flushed with the rest.
        let needed = match self.removed_groups.swap(false, Ordering::AcqRel) {
            true => self.needed_groups().unwrap_or_else(|why| {
                tracing::warn!(%why, "files of groups are kept");
                0
            }),
            false => 0,
        };
        self.file_work(|| self.values.sync().and_then(|()| self.groups.sync()))?;
        self.write("flush", || flush(&self.handles().db))?;
        self.sync_sled_blobs()?;
        let file = if seeded::on(Bug::FsyncWrongFile) { &self._lock } else { &self.file };
        file.sync_data().map_err(|why| self.file_failed("fsync", &self.location(), &why))?;
        self.synced_changes.fetch_max(changes, Ordering::AcqRel);
        let mut below = self.groups.finished().into_iter().take_while(|file| *file < needed);
        if let Err(why) = below.try_for_each(|file| self.groups.remove(file)) {
            // Only space is lost, and that not for ever.
            tracing::warn!(%why, "a file of groups cannot be removed");
            self.removed_groups.store(true, Ordering::Release);
        }
        Ok(())
    }

    fn fail(&self) {
        self.failed.store(true, Ordering::Release);
    }
}
