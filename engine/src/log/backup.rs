//! Backup: a copy of the log as it stood at one moment, taken while commits go on (E38, G10).
//!
//! Groups never change and are copied in order up to the tail at the start; archive and blobs are held still by the
//! maintenance lock (new blobs may come, which does no harm). The copy has no index: opening it builds one. Since it is
//! written afresh it is also the compact form of the store. Everything is read once, and checked as it goes by.
//!
//! Invariant: the result is a normal data directory of the same instance, durable on return, and holds exactly the
//! groups up to `last_group`. A target that holds anything is refused. The source is not changed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::archive::Segment;
use super::blob::BlobHash;
use super::files::DataDir;
use super::group::{Group, Record};
use super::journal::Journal;
use super::shelf::unseal;
use super::sled::{SledLog, SledOptions};
use super::stored::blobs_of;
use super::{Anchor, Finding, FindingClass, Log, ScanFrom, Shelf, ShelfChange, StorageError, swap};
use crate::vocabulary::{GroupSeq, RunId, Turn};

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
        swap::arrive(&target, |incoming| self.copy_to(incoming))
    }

    /// What runs have lost that are held is known, and is held in every copy; so a finding that is no more is none.
    pub(crate) fn is_known_loss(&self, finding: &Finding) -> Result<bool, StorageError> {
        let held = self.medium.held()?;
        let is_held = |run: Option<RunId>| held.iter().any(|(held, _)| Some(*held) == run);
        Ok(finding.class == FindingClass::Blob && is_held(finding.run))
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
        let mut needed = NeededBlobs::of(self)?;
        self.copy_archive(&target, trimmed.through, (&mut report, &mut needed))?;
        self.copy_groups(&target, (trimmed.through, tail), (&mut report, &mut needed))?;
        self.copy_blobs(&target, &mut report, needed)?;
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

    /// A copy without a payload that a run refers to could not be restored: who needs it would learn that too late (G10).
    fn copy_blobs(
        &self,
        target: &SledLog,
        report: &mut BackupReport,
        mut needed: NeededBlobs,
    ) -> Result<(), StorageError> {
        let mut lost = None::<(BlobHash, RunId, &str)>;
        for first_byte in 0..=u8::MAX {
            for hash in self.medium.blobs(first_byte)? {
                let Some(bytes) = self.medium.blob(&hash)? else { continue };
                let needs = needed.blobs.remove(&hash);
                // Of no use to anybody, but all there is.
                if BlobHash::of(&bytes) != hash {
                    lost = lost.or(needs.map(|run| (hash, run, "at byte 0: it has other content than its name says")));
                }
                target.put_blob(&hash, &bytes)?;
                report.blobs += 1;
                report.bytes += bytes.len() as u64;
            }
        }
        lost = lost.or(needed.blobs.pop_first().map(|(hash, run)| (hash, run, "it is missing")));
        let Some((hash, run, detail)) = lost else { return Ok(()) };
        let why = StorageError::corrupt("payload blob", self.medium.file_of_blob(&hash), detail).of_run(run);
        let dir = self.medium.location().parent().and_then(Path::parent).unwrap_or(Path::new(".")).to_owned();
        Err(StorageError::NotSound { dir, why: why.to_string() })
    }

    fn copy_archive(
        &self,
        target: &SledLog,
        through: GroupSeq,
        (report, needed): (&mut BackupReport, &mut NeededBlobs),
    ) -> Result<(), StorageError> {
        let location = self.medium.location();
        let mut after: Option<Vec<u8>> = None;
        loop {
            let from = after.as_deref().map_or(ScanFrom::First, ScanFrom::After);
            let page = self.medium.shelf_scan(Shelf::Archive, &[], from, 16)?;
            let mut changes = Vec::new();
            for (key, value) in &page {
                let content = unseal(&*self.medium, Shelf::Archive, key, value)?;
                let segment = Segment::parse(key, content, &location)?;
                // Left over from an interrupted trim: its turns are still in the log.
                if segment.through > through {
                    continue;
                }
                segment.turns(&location)?.into_iter().for_each(|(_, turn)| needed.note(turn));
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
        (through, tail): (GroupSeq, Anchor),
        (report, needed): (&mut BackupReport, &mut NeededBlobs),
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
            for (_, record) in group.records(&file)? {
                if let Record::Turn(turn) = record {
                    needed.note(turn);
                }
            }
            if unsynced > BATCH {
                target.sync(Anchor { last: seq, chain: group.chain() })?;
                unsynced = 0;
            }
        }
        Ok(())
    }
}

/// The blobs that a copy needs, each with a run that refers to it.
struct NeededBlobs {
    blobs: BTreeMap<BlobHash, RunId>,
    /// Runs whose payloads may be gone: those that were deleted, and those that are held for what they lost.
    without: BTreeSet<RunId>,
}

impl NeededBlobs {
    fn of(journal: &Journal) -> Result<NeededBlobs, StorageError> {
        let mut without: BTreeSet<RunId> = journal.index().removed.keys().copied().collect();
        let deleted = journal.medium.shelf_keys(Shelf::Deleted, &[], ScanFrom::First, usize::MAX)?;
        without.extend(deleted.into_iter().filter_map(|key| key.try_into().ok()).map(RunId));
        without.extend(journal.medium.held()?.into_iter().map(|(run, _)| run));
        Ok(NeededBlobs { blobs: BTreeMap::new(), without })
    }

    fn note(&mut self, mut turn: Turn) {
        if !self.without.contains(&turn.run) {
            let run = turn.run;
            self.blobs.extend(blobs_of(&mut turn).into_iter().map(|hash| (hash, run)));
        }
    }
}
