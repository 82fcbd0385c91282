//! Everything in the files of a data directory that proves itself, wherever it lies.
//!
//! Invariant: only what its own CRC and key confirm is taken; nothing depends on a page or a file being whole. Entries of
//! the index are taken from whole pages only, since an old copy of one would say too little.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::tried_again;
use crate::log::Shelf;
use crate::log::archive::{Segment, segment_key};
use crate::log::chain::{ChainHash, SetHash};
use crate::log::error::StorageError;
use crate::log::files::DataDir;
use crate::log::group::Group;
use crate::log::look;
use crate::log::parts::{PARTS_OF, further_parts, is_beside, part_key, place_in, whole_value};
use crate::log::shelf::crc_of;
use crate::log::sled_format::node::Data;
use crate::log::sled_format::source::ReadOnlyFile;
use crate::log::sled_format::{SEGMENT, take_number};
use crate::log::values::ValueFiles;
use crate::log::wal;
use crate::vocabulary::{GroupSeq, RunId};

#[derive(Default)]
pub(super) struct Salvageable {
    pub(super) instance: [u8; 16],
    /// Different groups may say that they have the same place.
    pub(super) groups: BTreeMap<u64, Vec<Group>>,
    /// Those of them that are in the write-ahead files.
    ahead: BTreeSet<u64>,
    /// Where the write-ahead files have one that is not whole.
    pub(super) broken_ahead: BTreeMap<u64, (PathBuf, u64)>,
    /// The runs in groups whose CRC is wrong, where all of them can still be told, and whether they begin there.
    pub(super) torn: BTreeMap<u64, Vec<(RunId, bool)>>,
    pub(super) segments: BTreeMap<Vec<u8>, Vec<FoundSegment>>,
    /// Every page of the database is whole, so what is on no page does not count.
    pub(super) all_pages: bool,
    /// Entries of the shelves, by shelf and key, without the frame of the database.
    pub(super) index: BTreeMap<Vec<u8>, Vec<u8>>,
}

pub(super) struct FoundSegment {
    pub(super) segment: Segment,
    /// Its part of the sum over the archive.
    pub(super) hash: SetHash,
    /// It is on a page of the database, and no copy that lies about.
    pub(super) on_page: bool,
}

/// `durable` is the last group that the tail anchor knows.
pub(super) fn find(
    dir: &DataDir,
    instance: [u8; 16],
    durable: GroupSeq,
    damage: &mut Vec<String>,
) -> Result<Salvageable, StorageError> {
    let mut found = Salvageable { instance, ..Salvageable::default() };
    let db = dir.sled().join("db");
    for path in [vec![db.clone()], files_in(&dir.sled().join("blobs"), damage)?].concat() {
        match ReadOnlyFile::open(&path) {
            Ok(source) => found.scan(&source, damage),
            Err(why) => why.or_damage(damage)?,
        }
    }
    let groups = ValueFiles::look(dir.groups(), instance)?;
    for name in groups.names() {
        for (key, value) in groups.salvage(name, damage)? {
            if let Ok(seq) = <[u8; 8]>::try_from(key.as_slice()) {
                found.group(u64::from_be_bytes(seq), value, &groups.path(name));
            }
        }
    }
    for path in files_in(&dir.wal(), damage)? {
        found.written_ahead(&path, damage).or_else(|why| why.or_damage(damage))?;
    }
    let values = ValueFiles::look(dir.values(), instance)?;
    for name in values.names() {
        for (key, value) in values.salvage(name, damage)? {
            if let Some((shelf, key)) = key.split_first().filter(|(shelf, _)| **shelf == Shelf::Archive as u8) {
                found.sealed_segment(*shelf, key, &value, false);
            }
        }
    }
    found.index(dir, &values, durable, damage)?;
    Ok(found)
}

/// What cannot be listed is damage, and no directory without files.
///
/// # Errors
/// Another user owns it: nothing of it is damaged.
fn files_in(dir: &Path, damage: &mut Vec<String>) -> Result<Vec<PathBuf>, StorageError> {
    let list = || -> std::io::Result<Vec<PathBuf>> {
        match std::fs::read_dir(dir) {
            Ok(entries) => entries.map(|entry| Ok(entry?.path())).collect(),
            Err(why) if why.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(why) => Err(why),
        }
    };
    let listed = tried_again(list).map_err(|why| StorageError::io("list", dir, &why));
    listed.or_else(|why| why.or_damage(damage).map(|()| Vec::new()))
}

impl Salvageable {
    fn group(&mut self, seq: u64, value: Vec<u8>, file: &Path) {
        let Ok(group) = Group::parse(GroupSeq(seq), value, file) else { return };
        let known = self.groups.entry(seq).or_default();
        if !known.iter().any(|other| other.chain() == group.chain()) {
            known.push(group);
        }
    }

    /// Leaves out the groups of another directory, whose chain begins elsewhere. Answers how many there were.
    pub(super) fn leave_out_foreign(&mut self) -> usize {
        let (origin, mut foreign) = (ChainHash::origin(&self.instance), BTreeSet::new());
        for (seq, groups) in &mut self.groups {
            groups.retain(|group| {
                let is_foreign = *seq == 1 && group.previous() != origin || foreign.contains(&group.previous().0);
                if is_foreign {
                    foreign.insert(group.chain().0);
                }
                !is_foreign
            });
        }
        foreign.len()
    }

    /// Groups in the write-ahead files, of former laps too.
    fn written_ahead(&mut self, path: &Path, damage: &mut Vec<String>) -> Result<(), StorageError> {
        wal::blocks_around(path, damage, &mut |at, claim| {
            let seq = claim.seq.0;
            match Group::parse(claim.seq, claim.body.to_vec(), path) {
                Ok(_) => {
                    self.ahead.insert(seq);
                    self.group(seq, claim.body.to_vec(), path);
                }
                Err(_) => {
                    self.broken_ahead.entry(seq).or_insert((path.to_owned(), at));
                    if let Some(runs) = Group::runs_at(claim.body) {
                        self.torn.entry(seq).or_default().extend(runs);
                    }
                }
            }
            wal::BLOCK as u64
        })
    }

    /// Looks for groups and segments of the archive at every byte.
    fn scan(&mut self, source: &ReadOnlyFile, damage: &mut Vec<String>) {
        let mut bytes = Vec::new();
        for start in (0..source.length()).step_by(SEGMENT as usize) {
            let failed = source.read_around(&mut bytes, start, SEGMENT as usize);
            damage.extend(failed.iter().map(ToString::to_string));
            for at in 2..bytes.len() {
                match bytes[at..] {
                    // Before a group lies the mark of a whole value; its number has fewer than 40 bits.
                    [1, 0, 0, 0, ..] if bytes[at - 2..at] == [0, 0] => self.group_at(&bytes, at, source.path()),
                    [0x98, 0xc4, 0x10, ..] => self.segment_at(&bytes, at),
                    _ => {}
                }
            }
        }
    }

    fn group_at(&mut self, bytes: &[u8], at: usize, file: &Path) {
        let Some(seq) = bytes.get(at + 1..at + 9).and_then(|seq| seq.try_into().ok()).map(u64::from_be_bytes) else {
            return;
        };
        match Group::length_at(&bytes[at..]) {
            Some(length) => self.group(seq, bytes[at..at + length].to_vec(), file),
            None => {
                // The length of the value stands before the mark.
                let length = (1..=4).filter_map(|digits| length_before(bytes, at - 2, digits));
                let mut runs = length.filter_map(|length| Group::runs_at(bytes.get(at..at - 2 + length)?));
                if let Some(runs) = runs.next() {
                    self.torn.entry(seq).or_default().extend(runs);
                }
            }
        }
    }

    fn segment_at(&mut self, bytes: &[u8], at: usize) {
        let mut input = std::io::Cursor::new(&bytes[at..]);
        let Ok(segment) = rmp_serde::from_read::<_, Segment>(&mut input) else { return };
        let length = usize::try_from(input.position()).unwrap_or(0);
        let key = segment_key(segment.run, segment.first_ordinal);
        let sealed = at.checked_sub(4).and_then(|from| bytes.get(from..at + length));
        if let Some(sealed) = sealed {
            self.sealed_segment(Shelf::Archive as u8, &key, sealed, false);
        }
    }

    fn sealed_segment(&mut self, shelf: u8, key: &[u8], sealed: &[u8], on_page: bool) {
        let Some((stored, content)) = sealed.split_at_checked(4) else { return };
        if stored != crc_of(&self.instance, shelf, key, content).to_be_bytes() {
            return;
        }
        let Ok(segment) = Segment::parse(key, content, Path::new("")) else { return };
        if segment.turns(Path::new("")).is_ok() {
            let known = self.segments.entry(key.to_vec()).or_default();
            match known.iter_mut().find(|other| other.segment.turns == segment.turns) {
                Some(known) => known.on_page |= on_page,
                None => known.push(FoundSegment { segment, hash: SetHash::of(key, sealed), on_page }),
            }
        }
    }

    /// The entries of the index on pages that are whole.
    fn index(
        &mut self,
        dir: &DataDir,
        values: &ValueFiles,
        durable: GroupSeq,
        damage: &mut Vec<String>,
    ) -> Result<(), StorageError> {
        let pages = match look::pages(dir) {
            Ok((pages, replayed, _)) => {
                if let Some(at) = replayed.broken {
                    damage.push(format!("{}: at byte {at}: the database is not whole there", pages.path().display()));
                }
                pages
            }
            Err(why) => return why.or_damage(damage),
        };
        let mut bad = BTreeSet::new();
        let checked = pages.check(&mut |page, _, why| {
            bad.insert(page);
            damage.push(why.to_string());
        });
        if let Err(why) = checked {
            // What could not be read may be any page.
            damage.push(why.to_string());
            return Ok(());
        }
        let mut leaves = Vec::new();
        for page in (2..pages.table().pages.len() as u64).filter(|page| !bad.contains(page)) {
            let Ok(Some(node)) = pages.node(page) else { continue };
            if let Data::Leaf(entries) = node.data {
                leaves.extend(entries);
            }
        }
        self.reaches(&leaves, durable, pages.path(), damage);
        self.all_pages = damage.is_empty();
        let mut split = Split::default();
        self.leaf(leaves, values, &mut split);
        for (key, value) in split.whole() {
            match group_of(&key) {
                Some(seq) => self.group(seq.0, value, pages.path()),
                None => self.shelf_value(key, value),
            }
        }
        Ok(())
    }

    /// A damaged end of the database looks like one that was never written: the pages are whole, and older.
    fn reaches(&self, leaves: &[(Vec<u8>, Vec<u8>)], durable: GroupSeq, db: &Path, damage: &mut Vec<String>) {
        let mut newest = leaves.iter().filter_map(|(key, _)| group_of(key)).max().unwrap_or(GroupSeq(0));
        while self.ahead.contains(&newest.next().0) {
            newest = newest.next();
        }
        if newest < durable {
            damage.push(format!("{}: it ends at group {newest}, but group {durable} was durable", db.display()));
        }
    }

    fn leaf(&mut self, entries: Vec<(Vec<u8>, Vec<u8>)>, values: &ValueFiles, split: &mut Split) {
        for (key, entry) in entries {
            if split.take(&key, &entry) {
                continue;
            }
            // Keys of groups begin with a zero.
            let is_shelf = key.first().is_some_and(|shelf| Shelf::ALL.iter().any(|known| *known as u8 == *shelf));
            let value = if !is_shelf {
                None
            } else if is_beside(&entry) {
                place_in(&entry).and_then(|place| values.read(&key, place).ok().flatten())
            } else {
                whole_value(&entry)
            };
            if let Some(value) = value {
                self.shelf_value(key, value);
            }
        }
    }

    /// What an entry of a shelf says, if it proves itself.
    fn shelf_value(&mut self, key: Vec<u8>, value: Vec<u8>) {
        if key[0] == Shelf::Archive as u8 {
            self.sealed_segment(key[0], &key[1..], &value, true);
        } else if let Some((stored, content)) = value.split_at_checked(4)
            && stored == crc_of(&self.instance, key[0], &key[1..], content).to_be_bytes()
        {
            self.index.insert(key, value);
        }
    }
}

/// Values that directories of format 1 split over several entries: the first part says how many follow, and those lie
/// under keys behind all others. Keys of groups are the only ones of eight bytes.
#[derive(Default)]
struct Split {
    first: BTreeMap<Vec<u8>, Vec<u8>>,
    parts: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Split {
    /// Takes an entry that is one of them.
    fn take(&mut self, key: &[u8], entry: &[u8]) -> bool {
        if key.first() == Some(&PARTS_OF) {
            self.parts.insert(key.to_vec(), entry.to_vec());
        } else if further_parts(entry) > 0 {
            self.first.insert(key.to_vec(), entry.to_vec());
        } else {
            return false;
        }
        true
    }

    /// Those of which every part was found.
    fn whole(mut self) -> impl Iterator<Item = (Vec<u8>, Vec<u8>)> {
        self.first.into_iter().filter_map(move |(key, first)| {
            let mut value = first.get(2..)?.to_vec();
            for part in 1..=further_parts(&first) {
                value.extend_from_slice(&self.parts.remove(&part_key(&key, part))?);
            }
            Some((key, value))
        })
    }
}

/// The group that an entry of the log is; keys of eight bytes are those of groups.
fn group_of(key: &[u8]) -> Option<GroupSeq> {
    key.try_into().ok().map(|seq| GroupSeq(u64::from_be_bytes(seq)))
}

/// A number of so many bytes that ends before `end`.
fn length_before(bytes: &[u8], end: usize, digits: usize) -> Option<usize> {
    let mut input = bytes.get(end.checked_sub(digits)?..end)?;
    let number = take_number(&mut input)?;
    input.is_empty().then(|| usize::try_from(number).ok()).flatten()
}
