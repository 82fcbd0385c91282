//! Backup: a copy of the log as it stood at one moment, taken while commits go on (E38, G10).
//!
//! Groups never change and are copied in order up to the tail at the start; archive and blobs are held still by the
//! maintenance lock (new blobs may come, which does no harm). The copy has no index: opening it builds one. Since it is
//! written afresh it is also the compact form of the store.
//!
//! Invariant: the result is a normal data directory of the same instance, durable on return, and holds exactly the
//! groups up to `last_group`. A target that holds anything is refused. The source is not changed.

use std::path::Path;

use super::files::DataDir;
use super::group::Group;
use super::journal::Journal;
use super::shelf::unseal;
use super::sled::{SledLog, SledOptions};
use super::{Anchor, Finding, FindingClass, Log, ScanFrom, Shelf, ShelfChange, StorageError, swap};
use crate::vocabulary::{GroupSeq, RunId};

/// Bytes copied between two syncs.
const BATCH: usize = 4 * 1024 * 1024;

/// What a backup holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackupReport {
    /// The same as the source's: two directories with one instance must not be used side by side.
    pub instance: [u8; 16],
    /// The oldest group of the copied log.
    pub first_group: GroupSeq,
    /// The newest group: what was committed later is not in the backup.
    pub last_group: GroupSeq,
    /// Archive segments copied.
    pub segments: u64,
    /// Blobs copied.
    pub blobs: u64,
    /// Bytes of the backup on its disk.
    pub bytes: u64,
}

impl Journal {
    /// Copies the store to a new data directory, which is there whole or not at all.
    pub fn backup(&self, dir: &Path) -> Result<BackupReport, StorageError> {
        let target = DataDir::new(dir);
        if target.identify()?.is_some() {
            let detail = "it holds a store already; choose a new directory for the backup".into();
            return Err(StorageError::Taken { dir: dir.to_owned(), detail });
        }
        // `log/db` of the store.
        if let Some(source) = self.medium.location().parent().and_then(Path::parent) {
            swap::is_outside(source, dir)?;
        }
        self.has_all_payloads()?;
        swap::arrive(&target, |incoming| self.copy_to(incoming))
    }

    /// A copy without a payload that a run refers to could not be restored: who needs it would learn that too late (G10).
    /// Damage elsewhere stops the copying itself. What runs have lost that are held is known, and is held in every copy.
    fn has_all_payloads(&self) -> Result<(), StorageError> {
        let held = self.medium.held()?;
        let is_held = |run: Option<RunId>| held.iter().any(|(held, _)| Some(*held) == run);
        let is_lost = |finding: &Finding| finding.class == FindingClass::Blob && !is_held(finding.run);
        let lost = self.verify().findings.into_iter().find(is_lost);
        match lost {
            None => Ok(()),
            Some(finding) => {
                let dir = self.medium.location().parent().and_then(Path::parent).unwrap_or(Path::new(".")).to_owned();
                Err(StorageError::NotSound { dir, why: finding.detail })
            }
        }
    }

    /// Copies the store to a directory that nobody takes for one before it is whole.
    pub(crate) fn copy_to(&self, dir: &Path) -> Result<BackupReport, StorageError> {
        let _maintenance = self.maintenance();
        let (tail, trimmed) = {
            let writer = self.writer();
            (writer.tail(), self.index().trimmed)
        };
        let options = SledOptions { instance: Some(self.instance()), ..SledOptions::default() };
        let target = SledLog::open(dir, options)?;
        let mut report = BackupReport {
            instance: self.instance(),
            first_group: trimmed.through.next(),
            last_group: tail.last,
            segments: 0,
            blobs: 0,
            bytes: 0,
        };
        self.copy_blobs(&target, &mut report)?;
        self.copy_archive(&target, trimmed.through, &mut report)?;
        self.copy_groups(&target, trimmed.through, tail, &mut report)?;
        if tail.last.0 > 0 {
            target.sync(tail)?;
        }
        target.settle_anchor()?;
        // A copy that the disk did not take is none, however late it says so (G4).
        target.close()?;
        // What a salvage holds is held in every copy, and where it comes from is known there.
        DataDir::new(dir).write_held(&self.medium.held()?)?;
        DataDir::new(dir).write_origin(self.medium.origin())?;
        Ok(report)
    }

    fn copy_blobs(&self, target: &SledLog, report: &mut BackupReport) -> Result<(), StorageError> {
        for first_byte in 0..=u8::MAX {
            for hash in self.medium.blobs(first_byte)? {
                if let Some(bytes) = self.medium.blob(&hash)? {
                    target.put_blob(&hash, &bytes)?;
                    report.blobs += 1;
                    report.bytes += bytes.len() as u64;
                }
            }
        }
        Ok(())
    }

    fn copy_archive(&self, target: &SledLog, through: GroupSeq, report: &mut BackupReport) -> Result<(), StorageError> {
        let mut after: Option<Vec<u8>> = None;
        loop {
            let from = after.as_deref().map_or(ScanFrom::First, ScanFrom::After);
            let page = self.medium.shelf_scan(Shelf::Archive, &[], from, 16)?;
            let mut changes = Vec::new();
            for (key, value) in &page {
                let content = unseal(&*self.medium, Shelf::Archive, key, value)?;
                let segment = super::archive::Segment::parse(key, content, &self.medium.location())?;
                // Left over from an interrupted trim: its turns are still in the log.
                if segment.through > through {
                    continue;
                }
                report.segments += 1;
                report.bytes += value.len() as u64;
                changes.push(ShelfChange { shelf: Shelf::Archive, key: key.clone(), value: Some(value.clone()) });
            }
            target.change_shelves(&changes)?;
            match page.into_iter().next_back() {
                Some((key, _)) => after = Some(key),
                None => return Ok(()),
            }
        }
    }

    fn copy_groups(
        &self,
        target: &SledLog,
        through: GroupSeq,
        tail: Anchor,
        report: &mut BackupReport,
    ) -> Result<(), StorageError> {
        let file = self.medium.location();
        let mut unsynced = 0;
        for seq in (through.0 + 1..=tail.last.0).map(GroupSeq) {
            let missing = || StorageError::corrupt("commit group", &file, "it is missing").at_group(seq);
            let value = self.medium.group(seq)?.ok_or_else(missing)?;
            target.append_copy(seq, &value)?;
            unsynced += value.len();
            report.bytes += value.len() as u64;
            // A damaged group must not spread into backups unnoticed.
            let group = Group::stored(&*self.medium, seq, value)?;
            if unsynced > BATCH {
                target.sync(Anchor { last: seq, chain: group.chain() })?;
                unsynced = 0;
            }
        }
        Ok(())
    }
}
