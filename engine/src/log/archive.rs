//! The archive: turns that were moved out of the log, by run, contiguous and compressed.
//!
//! A *segment* is a range of one run's turns: `[run][ordinal of the first turn]` → header and lz4 of the stored turns.
//! A run that closes soon has one; a long-lived run gets a further one whenever the oldest part of the log is trimmed.
//!
//! Invariant: a segment counts once a `Trimmed` record at or behind its last group is in the log; one left over from an
//! interrupted trim counts for nothing and is overwritten by the next, which begins at the same ordinal. This module
//! only encodes and checks; when to archive is decided in `housekeeping`.

use std::collections::BTreeSet;
use std::path::Path;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::blob::BlobHash;
use super::codec::decompress;
use super::error::StorageError;
use super::group::decode_turn;
use super::refs::{put_varint, take_varint};
use super::stored::mark_lost;
use crate::vocabulary::{GroupSeq, RunId, Turn};

/// A segment is closed when it holds this many bytes; a read of a few events of a long run decompresses no more.
pub(crate) const SEGMENT_BYTES: usize = 512 * 1024;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Segment {
    pub(crate) run: RunId,
    pub(crate) first_ordinal: u64,
    pub(crate) turns: u64,
    pub(crate) first_event: u64,
    pub(crate) next_event: u64,
    /// The group of its last turn.
    pub(crate) through: GroupSeq,
    /// blake3 of the uncompressed turns.
    digest: Bytes,
    packed: Bytes,
}

/// Collects the turns of one segment.
#[derive(Debug)]
pub(crate) struct SegmentBuilder {
    run: RunId,
    first_ordinal: u64,
    turns: u64,
    first_event: u64,
    next_event: u64,
    through: GroupSeq,
    raw: Vec<u8>,
}

pub(crate) fn segment_key(run: RunId, first_ordinal: u64) -> Vec<u8> {
    [run.0.as_slice(), &first_ordinal.to_be_bytes()].concat()
}

impl SegmentBuilder {
    pub(crate) fn new(run: RunId, first_ordinal: u64, first_event: u64) -> Self {
        let through = GroupSeq(0);
        SegmentBuilder { run, first_ordinal, turns: 0, first_event, next_event: first_event, through, raw: Vec::new() }
    }
    /// Adds a turn in its stored form.
    pub(crate) fn push(&mut self, group: GroupSeq, next_event: u64, bytes: &[u8]) {
        put_varint(&mut self.raw, bytes.len() as u64);
        self.raw.extend_from_slice(bytes);
        self.turns += 1;
        self.next_event = next_event;
        self.through = group;
    }
    pub(crate) fn is_full(&self) -> bool {
        self.raw.len() >= SEGMENT_BYTES
    }
    pub(crate) fn next_ordinal(&self) -> u64 {
        self.first_ordinal + self.turns
    }
    pub(crate) fn next_event(&self) -> u64 {
        self.next_event
    }
    pub(crate) fn is_empty(&self) -> bool {
        self.turns == 0
    }
    /// Key and value for the archive shelf.
    pub(crate) fn finish(self) -> Result<(Vec<u8>, Vec<u8>), String> {
        let segment = Segment {
            run: self.run,
            first_ordinal: self.first_ordinal,
            turns: self.turns,
            first_event: self.first_event,
            next_event: self.next_event,
            through: self.through,
            digest: Bytes::copy_from_slice(blake3::hash(&self.raw).as_bytes()),
            packed: lz4_flex::compress_prepend_size(&self.raw).into(),
        };
        let value = rmp_serde::to_vec(&segment).map_err(|why| why.to_string())?;
        Ok((segment_key(self.run, self.first_ordinal), value))
    }
}

impl Segment {
    /// Key and content as they were.
    pub(crate) fn to_entry(&self) -> Option<(Vec<u8>, Vec<u8>)> {
        Some((segment_key(self.run, self.first_ordinal), rmp_serde::to_vec(self).ok()?))
    }
    /// Reads the header and checks that the segment lies under its own key.
    pub(crate) fn parse(key: &[u8], value: &[u8], file: &Path) -> Result<Self, StorageError> {
        let corrupt = |detail: String| {
            let error = StorageError::corrupt("archive segment", file, detail);
            match key.get(..16).and_then(|run| run.try_into().ok()) {
                Some(run) => error.of_run(RunId(run)),
                None => error,
            }
        };
        let segment: Segment = rmp_serde::from_slice(value).map_err(|why| corrupt(why.to_string()))?;
        if segment_key(segment.run, segment.first_ordinal) != key {
            return Err(corrupt(format!("it is of run {}, turn {}", segment.run, segment.first_ordinal)));
        }
        Ok(segment)
    }
    /// The same segment with a mark in the place of each of these blobs.
    pub(crate) fn marked(&self, lost: &BTreeSet<BlobHash>) -> Result<Segment, String> {
        let mut builder = SegmentBuilder::new(self.run, self.first_ordinal, self.first_event);
        let mut found = false;
        for (_, mut turn) in self.turns(Path::new("")).map_err(|why| why.to_string())? {
            found |= mark_lost(&mut turn, lost);
            let bytes = rmp_serde::to_vec(&turn).map_err(|why| why.to_string())?;
            builder.push(self.through, turn.next_event().0, &bytes);
        }
        if !found {
            return Ok(self.clone());
        }
        let (_, value) = builder.finish()?;
        rmp_serde::from_slice(&value).map_err(|why| why.to_string())
    }
    /// The stored form of each turn, checked against the digest, and the turn itself.
    pub(crate) fn turns(&self, file: &Path) -> Result<Vec<(usize, Turn)>, StorageError> {
        let corrupt = |detail: String| StorageError::corrupt("archive segment", file, detail).of_run(self.run);
        let raw = decompress(&self.packed).map_err(corrupt)?;
        if blake3::hash(&raw).as_bytes().as_slice() != self.digest {
            return Err(corrupt("its turns do not have the recorded hash".into()));
        }
        let mut input = raw.as_slice();
        let mut turns = Vec::new();
        while !input.is_empty() {
            let length = take_varint(&mut input).and_then(|n| usize::try_from(n).ok()).filter(|n| *n <= input.len());
            let length = length.ok_or_else(|| corrupt("a turn is cut off".into()))?;
            let (bytes, rest) = input.split_at(length);
            let turn = decode_turn(bytes).map_err(corrupt)?;
            if turn.run != self.run {
                return Err(corrupt(format!("it holds a turn of run {}", turn.run)));
            }
            turns.push((length, turn));
            input = rest;
        }
        if turns.len() as u64 != self.turns {
            return Err(corrupt(format!("it holds {} turns instead of {}", turns.len(), self.turns)));
        }
        Ok(turns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::tests::samples;

    /// F10: a segment is smaller than what it holds, and gives it back.
    #[test]
    fn a_segment_gives_back_its_turns_in_less_space() {
        let mut builder = SegmentBuilder::new(samples::run_id(1), 0, 1);
        let turns: Vec<Turn> =
            std::iter::once(samples::start(1, "w")).chain((0..50).map(|i| samples::step(1, 4 + 2 * i, 200))).collect();
        let mut raw = 0;
        for (i, turn) in turns.iter().enumerate() {
            let bytes = rmp_serde::to_vec(turn).unwrap();
            raw += bytes.len();
            builder.push(GroupSeq(i as u64 + 1), turn.next_event().0, &bytes);
        }
        let (key, value) = builder.finish().unwrap();
        assert!(value.len() * 2 < raw, "{} bytes for {raw}", value.len());
        let segment = Segment::parse(&key, &value, Path::new("a")).unwrap();
        let read: Vec<Turn> = segment.turns(Path::new("a")).unwrap().into_iter().map(|(_, turn)| turn).collect();
        assert_eq!(read, turns);
        assert!(Segment::parse(&segment_key(RunId([2; 16]), 0), &value, Path::new("a")).is_err());
    }
}
