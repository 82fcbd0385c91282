//! The groups of a directory that is only looked at: each whole, and in one chain up to the tail anchor. Those of the
//! write-ahead files that the database does not have continue it.
//!
//! Invariant: every group behind the trimmed part is there and whole, but for a torn one right behind the anchor, which was
//! never acknowledged; if not, the error names the groups. Changes nothing.

use std::path::{Path, PathBuf};

use super::anchor::Anchor;
use super::chain::ChainHash;
use super::error::StorageError;
use super::group::Group;
use super::parts::{PARTS_OF, further_parts, is_beside, part_key, place_in};
use super::sled_format::tree::Tree;
use super::values::ValueFiles;
use super::wal::AheadGroup;
use crate::vocabulary::GroupSeq;

struct ChainWalk<'a> {
    db: &'a Path,
    anchor: Anchor,
    /// The newest record of a trim names the last group that may be gone.
    through: GroupSeq,
    first: Option<GroupSeq>,
    last: GroupSeq,
    /// The chain behind the group before, if that one is known to be whole.
    chain: Option<ChainHash>,
    at_anchor: Option<ChainHash>,
    wrong: Vec<StorageError>,
}

/// Where a log ends that was found whole.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FoundTail {
    pub(crate) last: GroupSeq,
    /// Nothing: the last group is a torn one, which does not count.
    pub(crate) chain: Option<ChainHash>,
}

/// Answers those groups of `ahead` that the database does not have, and where the log ends.
pub(crate) fn check_groups(
    groups: &Tree,
    files: &ValueFiles,
    db: &Path,
    (origin, anchor): (ChainHash, Anchor),
    ahead: Vec<AheadGroup>,
) -> Result<(Vec<AheadGroup>, FoundTail), StorageError> {
    let none = GroupSeq(0);
    let (chain, at_anchor, wrong) = (Some(origin), None, Vec::new());
    let mut walk = ChainWalk { db, anchor, through: none, first: None, last: none, chain, at_anchor, wrong };
    groups.upwards(&[], &mut |key, entry| {
        let Ok(seq) = <[u8; 8]>::try_from(key).map(u64::from_be_bytes).map(GroupSeq) else {
            return Ok(key.first() != Some(&PARTS_OF));
        };
        let value = entry_value(groups, files, db, key, entry).map_err(|why| why.at_group(seq));
        walk.group(seq, value.and_then(|(value, file)| Group::parse(seq, value, &file)))?;
        Ok(true)
    })?;
    let behind = walk.last;
    let ahead: Vec<AheadGroup> = ahead.into_iter().filter(|group| group.seq > behind).collect();
    for AheadGroup { seq, value, file } in &ahead {
        walk.group(*seq, Group::parse(*seq, value.clone(), file))?;
    }
    let tail = FoundTail { last: walk.last, chain: walk.chain };
    walk.end().map(|()| (ahead, tail))
}

impl ChainWalk<'_> {
    fn missing(&self, seq: GroupSeq) -> StorageError {
        StorageError::corrupt("commit group", self.db, "it is missing").at_group(seq)
    }

    fn group(&mut self, seq: GroupSeq, group: Result<Group, StorageError>) -> Result<(), StorageError> {
        let expected = self.first.map_or(GroupSeq(1), |_| self.last.next());
        if seq > expected {
            self.chain = None;
            // How the log may begin is known at its end.
            if self.first.is_some() {
                self.wrong.push(self.missing(expected));
                // Of a hole only its end may count.
                let end = GroupSeq(seq.0 - 1);
                self.wrong.extend((end > expected).then(|| self.missing(end)));
            }
        }
        self.first.get_or_insert(seq);
        self.last = seq;
        let group = match group {
            Ok(group) => group,
            Err(why @ StorageError::Corrupt { .. }) => {
                self.chain = None;
                self.wrong.push(why);
                return Ok(());
            }
            Err(why) => return Err(why),
        };
        if self.chain.is_some_and(|chain| chain != group.previous()) {
            let detail = "it does not continue the chain of the group before";
            self.wrong.push(StorageError::corrupt("commit group", self.db, detail).at_group(seq));
        }
        if seq == self.anchor.last {
            self.at_anchor = Some(group.chain());
        } else if seq == self.anchor.last.next() && self.anchor.last.0 > 0 {
            self.at_anchor.get_or_insert(group.previous());
        }
        self.through = group.trimmed(self.db)?.map_or(self.through, |trimmed| trimmed.through);
        self.chain = Some(group.chain());
        Ok(())
    }

    fn end(mut self) -> Result<(), StorageError> {
        if let Some(first) = self.first.filter(|first| *first > self.through.next()) {
            let gap = self.missing(self.through.next());
            self.wrong.insert(0, gap.also_groups(&[format!("up to the one before {first}")]));
        }
        let (through, torn) = (self.through, self.anchor.last.next());
        // A group that others follow was acknowledged, whatever the anchor knew of it.
        let is_torn = |seq| seq == torn && self.last <= torn;
        self.wrong.retain(|why| why.group().is_none_or(|seq| seq > through && !is_torn(seq)));
        if let Some((first, more)) = self.wrong.split_first() {
            let seqs: Vec<String> = more.iter().filter_map(|why| why.group()).map(|seq| seq.to_string()).collect();
            return Err(first.clone().also_groups(&seqs));
        }
        let Anchor { last: durable, chain } = self.anchor;
        let tail = |detail: String| Err(StorageError::corrupt("log tail", self.db, detail).at_group(durable));
        match self.at_anchor {
            _ if durable.0 == 0 => Ok(()),
            Some(found) if found == chain => Ok(()),
            Some(_) => {
                tail("its chain is not the anchor's: the log or the anchor comes from elsewhere or is older".into())
            }
            None if self.last.0 == 0 => tail(format!("the log is empty, but group {durable} was durable")),
            None => tail(format!("it ends at group {}, but group {durable} was durable", self.last)),
        }
    }
}

/// The value of an entry, and the file it lies in.
pub(crate) fn entry_value(
    tree: &Tree,
    files: &ValueFiles,
    db: &Path,
    key: &[u8],
    entry: &[u8],
) -> Result<(Vec<u8>, PathBuf), StorageError> {
    let cut = |detail: &str| StorageError::corrupt("database entry", db, detail);
    if is_beside(entry) {
        let place = place_in(entry).ok_or_else(|| cut("it names no place"))?;
        let path = files.path(place.file);
        let missing = || StorageError::corrupt("values", &path, "it is missing");
        let value = files.read(key, place)?.ok_or_else(missing)?;
        return Ok((value, path));
    }
    let mut value = entry.get(2..).ok_or_else(|| cut("a value has no part count"))?.to_vec();
    for part in 1..=further_parts(entry) {
        let bytes = tree.get(&part_key(key, part))?;
        value.extend_from_slice(&bytes.ok_or_else(|| cut("a part of a large value is missing"))?);
    }
    Ok((value, db.to_owned()))
}
