//! What is done with a whole directory that nobody uses: a backup is restored, a store made compact, garbage collected.
//!
//! Invariant: a copy is made from what was read and found sound, all of it, and counts only when it has been opened; until
//! then the source is only read. Nothing is ever overwritten. Whoever needs keys gives them in the options; what a
//! damaged directory still holds is the business of `salvage`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::backup::BackupReport;
use super::files::{DataDir, tree_bytes};
use super::journal::{Journal, JournalOptions, StoreInfo};
use super::reader::StoreReader;
use super::sled::{SledLog, SledOptions};
use super::{StorageError, swap};

/// What a store takes before and after it was made compact, or was swept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpaceReport {
    /// Bytes on the disk before.
    pub bytes_before: u64,
    /// Bytes on the disk after.
    pub bytes_after: u64,
    /// Blobs that no run referred to.
    pub blobs_removed: u64,
    /// Files that a crash had left half made.
    pub leftovers_removed: u64,
    /// Damaged files that an isolation put aside, with their bytes. They stay until their owner removes them.
    pub set_aside: Vec<(PathBuf, u64)>,
}

/// Brings a backup back, in a new directory. The backup is read and found sound first, and stays as it is.
pub fn restore(backup: &Path, target: &Path, options: &JournalOptions) -> Result<BackupReport, StorageError> {
    swap::is_outside(backup, target)?;
    let source = sound(backup, options)?;
    arrive(&source, target, options)
}

/// A copy of a store without holes, in a new directory.
pub fn compact_to(dir: &Path, target: &Path, options: &JournalOptions) -> Result<SpaceReport, StorageError> {
    swap::is_outside(dir, target)?;
    let source = sound(dir, options)?;
    arrive(&source, target, options)?;
    Ok(space(tree_bytes(dir), target))
}

/// The same, and the copy takes the place of the store. What was there before is removed once the copy is in its place.
pub fn compact(dir: &Path, options: &JournalOptions) -> Result<SpaceReport, StorageError> {
    let data = DataDir::new(dir);
    settle(&data)?;
    // A copied directory may be without its lock file. Only a store gets one.
    drop(data.visit()?);
    drop(data.lock()?);
    // Holds the directory until all is done.
    let source = sound(dir, options)?;
    let before = tree_bytes(dir);
    swap::is_movable(&data)?;
    let _database = swap::hold_database(&data)?;
    swap::clear(&data)?;
    copy(&source, &swap::incoming(&data), options).inspect_err(|_| {
        // Half a copy is of no use, and takes room.
        let _ = swap::clear(&data);
    })?;
    swap::swap(&data, "compacted")?;
    swap::clear_compacted(&data)?;
    Ok(space(before, dir))
}

/// Removes what nothing refers to: payloads and long values without a run, and what crashes left half made.
pub fn collect_garbage(dir: &Path, options: &JournalOptions) -> Result<SpaceReport, StorageError> {
    let data = DataDir::new(dir);
    settle(&data)?;
    // Only a store; opening would make one.
    drop(data.visit()?);
    let before = tree_bytes(dir);
    let medium = Arc::new(SledLog::open(dir, SledOptions::default())?);
    let journal = Journal::open(medium.clone(), options.clone())?;
    let blobs_removed = journal.collect_all_blobs()?;
    journal.checkpoint()?;
    for _ in 0..=medium.value_files() {
        journal.sweep_values()?;
    }
    journal.close()?;
    swap::clear(&data)?;
    let leftovers_removed = data.remove_leftovers()? + swap::clear_compacted(&data)?;
    drop(journal);
    drop(medium);
    Ok(SpaceReport { blobs_removed, leftovers_removed, ..space(before, dir) })
}

/// Whoever changes the store anyway completes what was cut short, as a worker does that starts there.
fn settle(data: &DataDir) -> Result<(), StorageError> {
    if !swap::is_under_way(data) {
        return Ok(());
    }
    let _lock = data.lock()?;
    swap::finish(data)
}

fn space(bytes_before: u64, dir: &Path) -> SpaceReport {
    let aside = swap::aside(&DataDir::new(dir), "damaged").into_iter();
    let mut set_aside: Vec<(PathBuf, u64)> = aside
        .map(|path| {
            let bytes = tree_bytes(&path);
            (path, bytes)
        })
        .collect();
    set_aside.sort();
    SpaceReport { bytes_before, bytes_after: tree_bytes(dir), blobs_removed: 0, leftovers_removed: 0, set_aside }
}

/// A store of which every group, archive and payload is what was written: a copy has an index and files of its own.
fn sound(dir: &Path, options: &JournalOptions) -> Result<Journal, StorageError> {
    let journal = Journal::open(Arc::new(StoreReader::open(dir)?), options.clone())?;
    for finding in journal.verify().findings {
        if !finding.class.is_of_no_copy() && !journal.is_known_loss(&finding)? {
            return Err(StorageError::NotSound { dir: dir.to_owned(), why: finding.detail });
        }
    }
    Ok(journal)
}

/// Copies to a new directory, which is a store when all of it is there and was opened.
fn arrive(source: &Journal, target: &Path, options: &JournalOptions) -> Result<BackupReport, StorageError> {
    swap::arrive(&DataDir::new(target), |incoming| copy(source, incoming, options))
}

/// Copies, and opens the copy once: it has an index then, and holds what the source holds.
fn copy(source: &Journal, target: &Path, options: &JournalOptions) -> Result<BackupReport, StorageError> {
    let report = source.copy_to(target)?;
    let medium = Arc::new(SledLog::open(target, SledOptions::default())?);
    let journal = Journal::open(medium.clone(), options.clone())?;
    let count = |info: &StoreInfo| (info.runs_open, info.runs_closed, info.last_group);
    let (was, is) = (source.info(), journal.info());
    if count(&was) != count(&is) {
        let detail = format!("the copy holds {:?} (open, closed, last group), not {:?}", count(&is), count(&was));
        return Err(StorageError::corrupt("copy", target, detail));
    }
    journal.close()?;
    drop(journal);
    Arc::into_inner(medium).map_or(Ok(()), SledLog::close)?;
    Ok(report)
}
