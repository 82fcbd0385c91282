//! Which of the archive segments that were found are the archive's.
//!
//! Copies of segments that were replaced, and of those of deleted runs, lie about for long. The log records the sum over
//! the archive: those on the pages of the database count if they add up to it. Else a page is older than the log, and
//! all that was found is taken, but for the runs whose parts make up the difference.
//!
//! Invariant: an archive that adds up has no segment too many and none too few.

use std::collections::{BTreeMap, BTreeSet};

use super::chain::ChosenGroups;
use super::find::{FoundSegment, Salvageable};
use crate::log::archive::Segment;
use crate::log::chain::SetHash;
use crate::log::group::Record;
use crate::vocabulary::RunId;

/// Of so many runs that may have been deleted every choice is tried, in two halves.
const TRIED: usize = 32;

pub(super) struct Archive<'a> {
    /// By run and ordinal.
    pub(super) segments: Vec<&'a Segment>,
    /// They are what the newest record of the log says.
    pub(super) adds_up: bool,
}

impl<'a> Archive<'a> {
    /// Adds to the deleted runs those that only the sum tells.
    pub(super) fn of(found: &'a Salvageable, chosen: &ChosenGroups, deleted: &mut BTreeSet<RunId>) -> Self {
        // A lost group may have held a newer record: then the index may know more.
        let by_index = chosen.meta.filter(|_| !chosen.archives_newest).map(|meta| meta.trimmed.archives);
        let expected: Vec<SetHash> = chosen.archives.into_iter().chain(by_index).collect();
        let on_pages = select(found, chosen, deleted, |it| it.on_page);
        let adds_up = expected.contains(&sum(&on_pages));
        if adds_up || expected.is_empty() && found.all_pages {
            return Archive { segments: on_pages.into_iter().map(|it| &it.segment).collect(), adds_up };
        }
        let mut kept = select(found, chosen, deleted, |_| true);
        let mut adds_up = expected.contains(&sum(&kept));
        if let Some(newest) = chosen.archives.filter(|_| !adds_up && chosen.archives_newest)
            && let Some(runs) = too_many(&kept, chosen, sum(&kept).minus(newest))
        {
            kept.retain(|it| !runs.contains(&it.segment.run));
            deleted.extend(runs);
            adds_up = true;
        }
        Archive { segments: kept.into_iter().map(|it| &it.segment).collect(), adds_up }
    }
}

fn select<'a>(
    found: &'a Salvageable,
    chosen: &ChosenGroups,
    deleted: &BTreeSet<RunId>,
    which: impl Fn(&FoundSegment) -> bool,
) -> Vec<&'a FoundSegment> {
    let longest = |candidates: &'a Vec<FoundSegment>| {
        // Copies of one segment that a trim began again: the longer holds all of the shorter.
        let counts = candidates.iter().filter(|it| which(it) && it.segment.through <= chosen.through);
        counts.max_by_key(|it| it.segment.turns).filter(|it| !deleted.contains(&it.segment.run))
    };
    found.segments.values().filter_map(longest).collect()
}

fn sum(segments: &[&FoundSegment]) -> SetHash {
    segments.iter().fold(SetHash::default(), |sum, it| sum.plus(it.hash))
}

/// The runs whose segments make up the difference. A deleted run has no turn in the log without the record of its end.
fn too_many(kept: &[&FoundSegment], chosen: &ChosenGroups, difference: SetHash) -> Option<BTreeSet<RunId>> {
    let groups = chosen.groups.range(chosen.through.0 + 1..).map(|(_, group)| group);
    let records = groups.flat_map(|group| group.records(std::path::Path::new("")).unwrap_or_default());
    let live: BTreeSet<RunId> = records
        .filter_map(|(_, record)| match record {
            Record::Turn(turn) => Some(turn.run),
            _ => None,
        })
        .collect();
    let mut parts: BTreeMap<RunId, SetHash> = BTreeMap::new();
    for it in kept.iter().filter(|it| !live.contains(&it.segment.run)) {
        let part = parts.entry(it.segment.run).or_default();
        *part = part.plus(it.hash);
    }
    let parts: Vec<(RunId, SetHash)> = parts.into_iter().collect();
    if parts.len() <= TRIED { any_of(&parts, difference) } else { one_or_two_of(&parts, difference) }
}

fn one_or_two_of(parts: &[(RunId, SetHash)], difference: SetHash) -> Option<BTreeSet<RunId>> {
    let by_part: BTreeMap<SetHash, RunId> = parts.iter().map(|(run, part)| (*part, *run)).collect();
    if let Some(run) = by_part.get(&difference) {
        return Some([*run].into());
    }
    parts.iter().find_map(|(run, part)| {
        let other = by_part.get(&difference.minus(*part)).filter(|other| *other != run)?;
        Some([*run, *other].into())
    })
}

fn any_of(parts: &[(RunId, SetHash)], difference: SetHash) -> Option<BTreeSet<RunId>> {
    let (left, right) = parts.split_at(parts.len() / 2);
    let right_sums: BTreeMap<SetHash, u32> = sums(right).into_iter().zip(0..).collect();
    let (of_left, of_right) = sums(left).into_iter().zip(0u32..).find_map(|(sum, of_left)| {
        let of_right = right_sums.get(&difference.minus(sum))?;
        Some((of_left, *of_right))
    })?;
    let picked = |parts: &[(RunId, SetHash)], which: u32| -> Vec<RunId> {
        parts.iter().enumerate().filter(|(n, _)| which >> n & 1 == 1).map(|(_, (run, _))| *run).collect()
    };
    Some(picked(left, of_left).into_iter().chain(picked(right, of_right)).collect())
}

/// The sum of each choice of the parts; the bits of its place say which.
fn sums(parts: &[(RunId, SetHash)]) -> Vec<SetHash> {
    let mut sums = vec![SetHash::default()];
    for (_, part) in parts {
        let with: Vec<SetHash> = sums.iter().map(|sum| sum.plus(*part)).collect();
        sums.extend(with);
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::tests::samples::run_id;

    fn parts(count: u8) -> Vec<(RunId, SetHash)> {
        (0..count).map(|n| (run_id(u64::from(n)), SetHash::of(&[n], b"a segment"))).collect()
    }

    fn sum_of(parts: &[(RunId, SetHash)], which: &[usize]) -> (SetHash, BTreeSet<RunId>) {
        let sum = which.iter().fold(SetHash::default(), |sum, n| sum.plus(parts[*n].1));
        (sum, which.iter().map(|n| parts[*n].0).collect())
    }

    /// Of a few runs any number may be too many; of many, one or two.
    #[test]
    fn the_difference_names_the_runs() {
        let few = parts(20);
        for which in [vec![3], vec![0, 19], vec![1, 2, 5, 7, 11, 13, 17], (0..20).collect()] {
            let (sum, runs) = sum_of(&few, &which);
            assert_eq!(any_of(&few, sum), Some(runs));
        }
        let many = parts(200);
        for which in [vec![150], vec![4, 199]] {
            let (sum, runs) = sum_of(&many, &which);
            assert_eq!(one_or_two_of(&many, sum), Some(runs));
        }
        let stranger = SetHash::of(b"x", b"is none of them");
        assert_eq!((any_of(&few, stranger), one_or_two_of(&many, stranger)), (None, None));
    }
}
