//! What is left of the index in a damaged directory: which runs it knows, and how far.
//!
//! Invariant: an entry counts only where it proved itself, and the index is called whole only where all entries are there that it
//! counted. It judges no run.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::chain::ChosenGroups;
use super::find::Salvageable;
use crate::log::Shelf;
use crate::log::chain::SetHash;
use crate::log::checkpoint::StoredRun;
use crate::log::group::Record;
use crate::vocabulary::{EventId, GroupSeq, RunId, RunInfo};

/// What the index says of a run, in the entry of its shelf.
pub(super) fn known_info(found: &Salvageable, run: RunId) -> Option<RunInfo> {
    let entry = |shelf: Shelf| found.index.get([[shelf as u8].as_slice(), &run.0].concat().as_slice());
    let info =
        [Shelf::Open, Shelf::Closed].into_iter().find_map(|shelf| StoredRun::salvaged_info(entry(shelf)?.get(4..)?));
    info.filter(|info| info.run_id == run)
}

pub(super) fn removed(found: &Salvageable) -> impl Iterator<Item = RunId> {
    shelf(found, Shelf::Deleted).filter_map(|(key, _)| key.try_into().ok().map(RunId))
}

fn shelf(found: &Salvageable, shelf: Shelf) -> impl Iterator<Item = (&[u8], &[u8])> {
    let (from, to) = (vec![shelf as u8], vec![shelf as u8 + 1]);
    found.index.range(from..to).map(|(key, value)| (&key[1..], value.as_slice()))
}

/// What the index says of each run, and whether all of it is there.
#[derive(Default)]
pub(super) struct SalvagedIndex {
    pub(super) at: GroupSeq,
    /// The next event, the turns, and the last group that its entry knows: one may be newer than `at`.
    pub(super) runs: BTreeMap<RunId, (EventId, u64, GroupSeq)>,
    pub(super) is_whole: bool,
    /// How many runs it had, and of which it still has an entry.
    pub(super) counted: u64,
    pub(super) entries: BTreeSet<RunId>,
}

impl SalvagedIndex {
    pub(super) fn of(found: &Salvageable, chosen: &ChosenGroups) -> SalvagedIndex {
        let mut index = SalvagedIndex::default();
        let Some(meta) = chosen.meta else { return index };
        index.counted = if meta.complete { meta.open + meta.closed } else { 0 };
        let mut sums = [(SetHash::default(), 0); 2];
        for (sum, which) in sums.iter_mut().zip([Shelf::Open, Shelf::Closed]) {
            for (key, value) in shelf(found, which) {
                let Some(run) = key.try_into().ok().map(RunId) else { continue };
                *sum = (sum.0.plus(SetHash::of(key, value)), sum.1 + 1);
                index.entries.insert(run);
                if let Some(reach) = StoredRun::reach(&value[4..]) {
                    index.runs.insert(run, reach);
                }
            }
        }
        index.at = meta.at;
        index.is_whole = meta.complete && sums == [(meta.open_hash, meta.open), (meta.closed_hash, meta.closed)];
        if index.is_whole {
            index.go_on(chosen);
        }
        index
    }

    /// Takes up what happened since, as far as every group is there.
    fn go_on(&mut self, chosen: &ChosenGroups) {
        while let Some(group) = [&chosen.trimmed, &chosen.groups].iter().find_map(|all| all.get(&self.at.next().0)) {
            let seq = self.at.next();
            for (_, record) in group.records(Path::new("")).unwrap_or_default() {
                match record {
                    Record::Turn(turn) => {
                        let reach = self.runs.entry(turn.run).or_insert((EventId(1), 0, GroupSeq(0)));
                        if seq > reach.2 {
                            (reach.0, reach.1) = (turn.next_event(), reach.1 + 1);
                        }
                    }
                    Record::Deleted(deleted) => self.runs.retain(|run, _| !deleted.runs.contains(run)),
                    Record::Trimmed(_) => {}
                }
            }
            self.at = seq;
        }
    }
}
