//! Lost groups that the chain proves: what a deletion of one run would have written is known, and so is the hash that the
//! next group names.
//!
//! Invariant: a group is taken only if its hash is the one that the chain has there. Groups with turns cannot be told.

use std::collections::BTreeMap;
use std::path::Path;

use super::chain::ChosenGroups;
use super::find::Salvageable;
use crate::log::chain::{ChainHash, SetHash};
use crate::log::group::{Deleted, Group, GroupWriter, Record};
use crate::vocabulary::{GroupSeq, RunId};

/// Puts deletions of single runs back in their places, from the oldest lost group on.
pub(super) fn find_deletions(found: &Salvageable, chosen: &mut ChosenGroups) {
    let mut runs = None;
    for seq in chosen.lost.clone() {
        let before = seq.0.checked_sub(1).and_then(|seq| chosen.groups.get(&seq).or(chosen.trimmed.get(&seq)));
        let after = chosen.groups.get(&seq.next().0).map(Group::previous);
        let after = after.or(chosen.tail.filter(|_| seq == chosen.last));
        let (Some(before), Some(after)) = (before.map(Group::chain), after) else { continue };
        let runs = runs.get_or_insert_with(|| candidates(found, chosen));
        let Some((run, group)) = deletion(chosen, runs, seq, (before, after)) else { continue };
        runs.remove(&run);
        chosen.deleted.push(run);
        chosen.lost.retain(|lost| *lost != seq);
        chosen.groups.insert(seq.0, group);
        chosen.look_at_records_again();
    }
}

fn deletion(
    chosen: &ChosenGroups,
    runs: &BTreeMap<RunId, SetHash>,
    seq: GroupSeq,
    (before, after): (ChainHash, ChainHash),
) -> Option<(RunId, Group)> {
    let archives = archives_before(chosen, seq);
    runs.iter().find_map(|(&run, &part)| {
        let mut writer = GroupWriter::new(seq, before);
        writer.deleted(&Deleted { runs: vec![run], archives: archives.minus(part) }).ok()?;
        let (value, chain) = writer.finish();
        let group = Group::parse(seq, value, Path::new("")).ok().filter(|_| chain == after)?;
        Some((run, group))
    })
}

/// Every run that is known at all, with its part of the archive.
fn candidates(found: &Salvageable, chosen: &ChosenGroups) -> BTreeMap<RunId, SetHash> {
    let mut runs: BTreeMap<RunId, SetHash> = BTreeMap::new();
    for group in chosen.groups.values().chain(chosen.trimmed.values()) {
        for (_, record) in group.records(Path::new("")).unwrap_or_default() {
            if let Record::Turn(turn) = record {
                runs.entry(turn.run).or_default();
            }
        }
    }
    for candidates in found.segments.values() {
        let counts = candidates.iter().filter(|it| it.segment.through <= chosen.through);
        if let Some(it) = counts.max_by_key(|it| it.segment.turns) {
            let part = runs.entry(it.segment.run).or_default();
            *part = part.plus(it.hash);
        }
    }
    runs
}

/// The sum over the archive as the newest record below says it.
fn archives_before(chosen: &ChosenGroups, seq: GroupSeq) -> SetHash {
    let below = chosen.groups.range(..seq.0).rev().chain(chosen.trimmed.iter().rev());
    let told = below.flat_map(|(_, group)| group.records(Path::new("")).unwrap_or_default().into_iter().rev());
    let mut told = told.filter_map(|(_, record)| match record {
        Record::Trimmed(trimmed) => Some(trimmed.archives),
        Record::Deleted(deleted) => Some(deleted.archives),
        Record::Turn(_) => None,
    });
    told.next().or(chosen.meta.map(|meta| meta.trimmed.archives)).unwrap_or_default()
}
