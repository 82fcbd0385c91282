//! The new directory.
//!
//! Groups keep their numbers, so that those who follow the log find their place; a lost one is there without records. The starts
//! that only the index knows, and the ends of runs that have lost turns before them, come last, behind what is left.
//! The list of held runs, and of those of which nothing but the id is left, is durable before the directory says that it is ready.
//!
//! Invariant: the result is a normal data directory, durable on return and read back whole.

use std::collections::BTreeMap;
use std::path::Path;

use super::chain::ChosenGroups;
use super::runs::SavedRuns;
use super::{Analysed, SalvageReport, tried_again};
use crate::log::archive::Segment;
use crate::log::blob::BlobHash;
use crate::log::chain::{ChainHash, SetHash};
use crate::log::error::StorageError;
use crate::log::files::{DataDir, NOTHING_LEFT};
use crate::log::group::{GroupWriter, Record, Trimmed};
use crate::log::look::look;
use crate::log::shelf::seal;
use crate::log::sled::{SledLog, SledOptions};
use crate::log::stored::mark_lost;
use crate::log::{Anchor, Log, Shelf, ShelfChange, blob::BlobFiles};
use crate::vocabulary::{GroupSeq, RunId};

/// Starts and ends in one group, of runs that have lost what was there or between.
const ENDS: usize = 1_024;
/// Groups between two syncs.
const BATCH: u64 = 1_024;

pub(super) fn write(
    from: &DataDir,
    target: &Path,
    found: &Analysed,
    report: &mut SalvageReport,
) -> Result<(), StorageError> {
    let Analysed { chosen, saved, .. } = found;
    let options = SledOptions { instance: Some(report.instance), ..SledOptions::default() };
    let medium = SledLog::open(target, options)?;
    copy_blobs(from, &medium, report)?;
    let archives = write_archive(&medium, saved)?;
    let tail = write_groups(&medium, chosen, saved, archives)?;
    medium.sync(tail)?;
    medium.settle_anchor()?;
    medium.close()?;
    let target = DataDir::new(target);
    let lost = report.runs_lost.iter().map(|run| (*run, NOTHING_LEFT.to_owned()));
    target.write_held(&report.held.iter().cloned().chain(lost).collect::<Vec<_>>())?;
    target.write_origin(Some(found.origin))?;
    match target.identify()? {
        Some(format) => look(&target, format).map(drop),
        None => Err(StorageError::NotADatabase { dir: target.root, detail: "it was not made".into() }),
    }
}

fn copy_blobs(from: &DataDir, medium: &SledLog, report: &mut SalvageReport) -> Result<(), StorageError> {
    let files = BlobFiles::open(from.payloads());
    for first_byte in 0..=u8::MAX {
        for hash in files.list(first_byte)? {
            match read_whole(&files, &hash) {
                Ok(bytes) => {
                    medium.put_blob(&hash, &bytes)?;
                    report.blobs += 1;
                }
                // Those that a run needs are told of already.
                Err(damage) if report.damage.contains(&damage) => {}
                Err(damage) => report.damage.push(damage),
            }
        }
    }
    Ok(())
}

/// A payload, or what is to be said of one that is not there whole.
pub(super) fn read_whole(files: &BlobFiles, hash: &BlobHash) -> Result<Vec<u8>, String> {
    let found = tried_again(|| files.get(hash));
    let path = files.path(hash);
    match found {
        Ok(Some(bytes)) if BlobHash::of(&bytes) == *hash => Ok(bytes),
        Ok(Some(_)) => Err(format!("{}: it has other content", path.display())),
        Ok(None) => Err(format!("{}: it is missing", path.display())),
        Err(why) => Err(why.to_string()),
    }
}

/// Answers the sum over the new archive.
fn write_archive(medium: &SledLog, saved: &SavedRuns) -> Result<SetHash, StorageError> {
    let mut sum = SetHash::default();
    for run in saved.runs.values() {
        let changes: Vec<ShelfChange> = run.archived.iter().filter_map(|segment| change(medium, segment)).collect();
        for change in &changes {
            sum = sum.plus(SetHash::of(&change.key, change.value.as_deref().unwrap_or_default()));
        }
        medium.change_shelves(&changes)?;
    }
    Ok(sum)
}

fn change(medium: &SledLog, segment: &Segment) -> Option<ShelfChange> {
    let (key, content) = segment.to_entry()?;
    let value = seal(medium, Shelf::Archive, &key, &content);
    Some(ShelfChange { shelf: Shelf::Archive, key, value: Some(value) })
}

// long: one kind of group after the other, each behind the chain of the one before.
fn write_groups(
    medium: &SledLog,
    chosen: &ChosenGroups,
    saved: &SavedRuns,
    archives: SetHash,
) -> Result<Anchor, StorageError> {
    let mut left: BTreeMap<RunId, usize> = saved.runs.iter().map(|(run, state)| (*run, state.in_log)).collect();
    let base = ChainHash::origin(&medium.instance());
    let mut chain = base;
    let mut tail = Anchor { last: chosen.through, chain };
    let mut append = |writer: GroupWriter, seq: GroupSeq| {
        let (value, now) = writer.finish();
        medium.append_copy(seq, &value)?;
        (chain, tail) = (now, Anchor { last: seq, chain: now });
        if seq.0.is_multiple_of(BATCH) {
            medium.sync(tail)?;
        }
        Ok::<_, StorageError>(now)
    };
    let mut previous = base;
    for seq in (chosen.through.0 + 1..=chosen.last.0).map(GroupSeq) {
        let mut writer = GroupWriter::new(seq, previous);
        let records = chosen.groups.get(&seq.0).map(|group| group.records(Path::new(""))).transpose()?;
        for (_, record) in records.unwrap_or_default() {
            if let Record::Turn(mut turn) = record
                && let Some(more) = left.get_mut(&turn.run).filter(|more| **more > 0)
            {
                *more -= 1;
                let run = turn.run;
                mark_lost(&mut turn, &saved.lost_blobs);
                writer.turn(&turn).map_err(|detail| StorageError::Invalid { run, detail })?;
            }
        }
        previous = append(writer, seq)?;
    }
    let mut seq = chosen.last;
    let rest: Vec<_> = saved.runs.values().flat_map(|state| state.start.iter().chain(&state.end)).collect();
    for turns in rest.chunks(ENDS) {
        seq = seq.next();
        let mut writer = GroupWriter::new(seq, previous);
        for turn in turns {
            writer.turn(turn).map_err(|detail| StorageError::Invalid { run: turn.run, detail })?;
        }
        previous = append(writer, seq)?;
    }
    if chosen.through.0 > 0 {
        let seq = seq.next();
        let mut writer = GroupWriter::new(seq, previous);
        let trimmed = Trimmed { through: chosen.through, chain: base, archives };
        writer.trimmed(&trimmed).map_err(|why| StorageError::corrupt("salvage", medium.location(), why))?;
        append(writer, seq)?;
    }
    Ok(tail)
}
