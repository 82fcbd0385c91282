//! Which of the groups that were found are the log's.
//!
//! Invariant: below the tail anchor, and below every group that was picked by it, the chain decides, so that an older or
//! foreign group never takes the place of the right one. Behind a hole only a group without a rival is taken.
//!
//! Groups that were trimmed lie about for long: as far as they still continue each other, they tell what happened since
//! an older state of the index.

use std::collections::BTreeMap;

use super::find::Salvageable;
use crate::log::anchor::Anchor;
use crate::log::chain::{ChainHash, SetHash};
use crate::log::checkpoint::meta_in;
use crate::log::group::{Deleted, Group, Record, Trimmed};
use crate::log::index::Meta;
use crate::vocabulary::{GroupSeq, RunId};

pub(super) struct ChosenGroups {
    /// Everything up to here is in the archive.
    pub(super) through: GroupSeq,
    pub(super) last: GroupSeq,
    pub(super) groups: BTreeMap<u64, Group>,
    pub(super) lost: Vec<GroupSeq>,
    /// What is left of the groups that were trimmed, without a hole from `through` down.
    pub(super) trimmed: BTreeMap<u64, Group>,
    pub(super) deleted: Vec<RunId>,
    /// The sum over the archive, by the newest record of it that is left, and whether no lost group can have held a newer.
    pub(super) archives: Option<SetHash>,
    pub(super) archives_newest: bool,
    /// What the index was last true at.
    pub(super) meta: Option<Meta>,
    /// The chain at the tail that the anchor knows.
    pub(super) tail: Option<ChainHash>,
}

pub(super) fn choose(found: &Salvageable, anchor: Option<Anchor>) -> ChosenGroups {
    let meta = found.index.get([[crate::log::Shelf::Meta as u8].as_slice(), b"meta"].concat().as_slice());
    let meta = meta.and_then(|value| meta_in(value.get(4..)?));
    let highest = found.groups.last_key_value().map_or(0, |(seq, _)| *seq);
    let anchor = anchor.filter(|anchor| anchor.last.0 > 0);
    let mut chosen = ChosenGroups {
        through: meta.map_or(GroupSeq(0), |meta| meta.trimmed.through),
        last: anchor.map_or(GroupSeq(highest), |anchor| anchor.last),
        groups: BTreeMap::new(),
        lost: Vec::new(),
        trimmed: BTreeMap::new(),
        deleted: Vec::new(),
        archives: None,
        archives_newest: false,
        meta,
        tail: anchor.map(|anchor| anchor.chain),
    };
    if let Some(anchor) = anchor {
        chosen.take_newer(found, anchor);
    }
    let (mut want, mut seq) = (anchor.map(|anchor| anchor.chain), anchor.map_or(highest, |anchor| anchor.last.0));
    while seq > chosen.through.0 {
        match pick(found, GroupSeq(seq), want) {
            Some(group) => {
                want = Some(group.previous());
                chosen.take_records(&group);
                chosen.groups.insert(seq, group);
            }
            None => {
                want = None;
                chosen.lost.push(GroupSeq(seq));
            }
        }
        seq -= 1;
    }
    if chosen.through.0 == 0 && chosen.archives.is_none() {
        (chosen.archives, chosen.archives_newest) = (Some(SetHash::default()), chosen.lost.is_empty());
    }
    while let Some(group) = want.and_then(|want| candidates(found, GroupSeq(seq)).iter().find(|it| it.chain() == want))
    {
        want = Some(group.previous());
        chosen.take_records(group);
        chosen.trimmed.insert(seq, group.clone());
        seq -= 1;
    }
    chosen.lost.reverse();
    chosen
}

fn candidates(found: &Salvageable, seq: GroupSeq) -> &[Group] {
    found.groups.get(&seq.0).map_or(&[], Vec::as_slice)
}

fn pick(found: &Salvageable, seq: GroupSeq, want: Option<ChainHash>) -> Option<Group> {
    let all = candidates(found, seq);
    match want {
        Some(want) => all.iter().find(|group| group.chain() == want).cloned(),
        // One that continues what lies below is the right one; without that, one that has no rival.
        None => {
            let below: Vec<ChainHash> = candidates(found, GroupSeq(seq.0 - 1)).iter().map(Group::chain).collect();
            let mut fitting = all.iter().filter(|group| below.contains(&group.previous()));
            match (fitting.next(), fitting.next()) {
                (Some(only), None) => Some(only.clone()),
                _ if all.len() == 1 => all.first().cloned(),
                _ => None,
            }
        }
    }
}

impl ChosenGroups {
    /// Groups that the anchor does not know yet count if they are whole: a power cut may have set it back, and one that
    /// was never acknowledged may have been written.
    fn take_newer(&mut self, found: &Salvageable, anchor: Anchor) {
        let (mut chain, mut newer) = (anchor.chain, Vec::new());
        let next =
            |last: GroupSeq, chain| candidates(found, last.next()).iter().find(|group| group.previous() == chain);
        while let Some(group) = next(self.last, chain) {
            (self.last, chain) = (self.last.next(), group.chain());
            newer.push((self.last, group));
        }
        for (seq, group) in newer.into_iter().rev() {
            self.take_records(group);
            self.groups.insert(seq.0, group.clone());
        }
    }

    /// After a lost group was put back: the sum over the archive, as the newest record now says it.
    pub(super) fn look_at_records_again(&mut self) {
        (self.archives, self.archives_newest) = (None, false);
        let lost = std::mem::take(&mut self.lost);
        let groups: Vec<(u64, Group)> = self.groups.iter().rev().map(|(seq, group)| (*seq, group.clone())).collect();
        for (seq, group) in &groups {
            self.lost = lost.iter().copied().filter(|lost| lost.0 > *seq).collect();
            self.take_records(group);
        }
        self.lost = lost;
    }

    /// What a group says beside turns; newer groups come first.
    fn take_records(&mut self, group: &Group) {
        let mut newest = None;
        for (_, record) in group.records(std::path::Path::new("")).unwrap_or_default() {
            match record {
                Record::Turn(_) => {}
                Record::Trimmed(Trimmed { through, archives, .. }) => {
                    self.through = self.through.max(through);
                    newest = Some(archives);
                }
                Record::Deleted(Deleted { runs, archives }) => {
                    self.deleted.extend(runs);
                    newest = Some(archives);
                }
            }
        }
        if self.archives.is_none() && newest.is_some() {
            (self.archives, self.archives_newest) = (newest, self.lost.is_empty());
        }
    }
}
