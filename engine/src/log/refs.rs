//! Where the turns of a run lie: a few bytes a turn, in chunks.
//!
//! Invariant: a run's turns have ordinals 0, 1, 2 …; every turn after the trimmed part of the log has one reference,
//! in order. A chunk stands alone (its first reference is absolute) and ends at a group boundary, so that full chunks
//! are written to the index once and never again, however long the run gets (F08). Reads nothing itself.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::vocabulary::GroupSeq;

/// A full chunk has at least as many references.
const CHUNK_TURNS: u64 = 256;

/// The place of one turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TurnRef {
    pub(crate) ordinal: u64,
    pub(crate) first_event: u64,
    pub(crate) events: u64,
    pub(crate) group: GroupSeq,
    pub(crate) offset: u32,
}

/// References `first_ordinal ..` as deltas: group, offset, number of events.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Chunk {
    first_ordinal: u64,
    first_event: u64,
    next_event: u64,
    turns: u64,
    last_group: u64,
    deltas: Vec<u8>,
}

impl Chunk {
    fn push(&mut self, place: TurnRef) {
        if self.turns == 0 {
            *self = Chunk { first_ordinal: place.ordinal, first_event: place.first_event, ..Chunk::default() };
        }
        put_varint(&mut self.deltas, place.group.0 - self.last_group);
        put_varint(&mut self.deltas, u64::from(place.offset));
        put_varint(&mut self.deltas, place.events);
        self.last_group = place.group.0;
        self.turns += 1;
        self.next_event = place.first_event + place.events;
    }
    pub(crate) fn first_event(&self) -> u64 {
        self.first_event
    }
    /// All references, or nothing if the bytes make no sense.
    pub(crate) fn turns(&self) -> Option<Vec<TurnRef>> {
        let mut input = self.deltas.as_slice();
        let (mut group, mut first_event) = (0u64, self.first_event);
        let mut refs = Vec::new();
        for i in 0..self.turns {
            group = group.checked_add(take_varint(&mut input)?)?;
            let offset = u32::try_from(take_varint(&mut input)?).ok()?;
            let events = take_varint(&mut input)?;
            let ordinal = self.first_ordinal.checked_add(i)?;
            refs.push(TurnRef { ordinal, first_event, events, group: GroupSeq(group), offset });
            first_event = first_event.checked_add(events)?;
        }
        (input.is_empty() && first_event == self.next_event && (self.turns == 0 || group == self.last_group))
            .then_some(refs)
    }
    pub(crate) fn to_bytes(&self) -> Bytes {
        let mut bytes = Vec::with_capacity(self.deltas.len() + 20);
        for number in [self.first_ordinal, self.first_event, self.next_event, self.turns, self.last_group] {
            put_varint(&mut bytes, number);
        }
        bytes.extend_from_slice(&self.deltas);
        bytes.into()
    }
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut input = bytes;
        let mut chunk = Chunk {
            first_ordinal: take_varint(&mut input)?,
            first_event: take_varint(&mut input)?,
            next_event: take_varint(&mut input)?,
            turns: take_varint(&mut input)?,
            last_group: take_varint(&mut input)?,
            deltas: Vec::new(),
        };
        chunk.deltas = input.to_vec();
        Some(chunk)
    }
}

/// All references of a run: the oldest chunks may live on the shelf only, the newest is always here.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Refs {
    /// Chunks `dropped ..on_shelf` are on the shelf and not here; those before are trimmed.
    dropped: u32,
    on_shelf: u32,
    /// Dropped chunks up to here have been removed from the shelf.
    cleaned: u32,
    /// Full chunks `on_shelf ..` that no checkpoint has written yet.
    sealed: Vec<Chunk>,
    tail: Chunk,
}

/// [`Refs`] as the index entry stores them: the sealed chunks are written beside it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct StoredRefs(u32, u32, Bytes);

impl Refs {
    pub(crate) fn push(&mut self, place: TurnRef) {
        if self.tail.turns >= CHUNK_TURNS && self.tail.last_group != place.group.0 {
            self.sealed.push(std::mem::take(&mut self.tail));
        }
        self.tail.push(place);
    }
    /// Forgets references up to the group `through`, where a whole chunk holds no others.
    pub(crate) fn forget(&mut self, through: GroupSeq) {
        if self.tail.last_group <= through.0 {
            self.dropped = self.on_shelf + self.sealed.len() as u32;
            self.on_shelf = self.dropped;
            self.sealed.clear();
            self.tail = Chunk::default();
        }
    }
    /// The reference added last, if it was not forgotten.
    pub(crate) fn newest(&self) -> Option<TurnRef> {
        self.tail.turns()?.pop()
    }
    /// The chunks in memory with their numbers, newest first, and the numbers of those on the shelf.
    pub(crate) fn chunks(&self) -> (Vec<Chunk>, std::ops::Range<u32>) {
        let mut chunks = vec![self.tail.clone()];
        chunks.extend(self.sealed.iter().rev().cloned());
        (chunks, self.dropped..self.on_shelf)
    }
    /// The numbers of the trimmed chunks that a checkpoint is to remove from the shelf.
    pub(crate) fn to_clean(&self) -> std::ops::Range<u32> {
        self.cleaned..self.dropped
    }
    pub(crate) fn cleaned_to(&mut self, count: u32) {
        self.cleaned = count.max(self.cleaned);
    }
    /// The full chunks to write, with their numbers.
    pub(crate) fn unsaved(&self) -> impl Iterator<Item = (u32, &Chunk)> {
        (self.on_shelf..).zip(&self.sealed)
    }
    /// How many chunk numbers have ever been given out.
    pub(crate) fn chunk_count(&self) -> u32 {
        self.on_shelf + self.sealed.len() as u32
    }
    /// The chunks up to `count` are on the shelf now.
    pub(crate) fn saved_to(&mut self, count: u32) {
        let now = count.saturating_sub(self.on_shelf).min(self.sealed.len() as u32);
        self.sealed.drain(..now as usize);
        self.on_shelf += now;
    }
    /// As it will be once the unsaved chunks are written.
    pub(crate) fn stored(&self) -> StoredRefs {
        StoredRefs(self.dropped, self.chunk_count(), self.tail.to_bytes())
    }
    pub(crate) fn from_stored(StoredRefs(dropped, on_shelf, tail): &StoredRefs) -> Option<Self> {
        let tail = Chunk::from_bytes(tail)?;
        Some(Refs { dropped: *dropped, on_shelf: *on_shelf, cleaned: *dropped, sealed: Vec::new(), tail })
    }
}

pub(crate) fn put_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push((number as u8) | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

pub(crate) fn take_varint(input: &mut &[u8]) -> Option<u64> {
    let mut number = 0u64;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = input.split_first()?;
        *input = rest;
        number |= u64::from(byte & 0x7f).checked_shl(shift)?;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(i: u64) -> TurnRef {
        TurnRef { ordinal: i, first_event: 1 + 2 * i, events: 2, group: GroupSeq(1 + i / 3), offset: 45 }
    }

    /// F08: what a checkpoint writes for a long run does not grow with the run.
    #[test]
    fn full_chunks_are_written_once_and_the_rest_stays_small() {
        let mut refs = Refs::default();
        let mut written = Vec::new();
        for i in 0..2_000 {
            refs.push(place(i));
            if i % 50 == 0 {
                written.extend(refs.unsaved().map(|(n, chunk)| (n, chunk.clone())));
                refs.saved_to(refs.chunk_count());
                assert!(rmp_serde::to_vec(&refs.stored()).unwrap().len() < 2_000);
            }
        }
        let numbers: Vec<u32> = written.iter().map(|(n, _)| *n).collect();
        assert_eq!(numbers, (0..written.len() as u32).collect::<Vec<_>>());
        let (in_memory, on_shelf) = refs.chunks();
        assert_eq!(on_shelf, 0..written.len() as u32);
        let all: Vec<TurnRef> = written
            .iter()
            .map(|(_, chunk)| chunk)
            .chain(in_memory.iter().rev())
            .flat_map(|chunk| Chunk::from_bytes(&chunk.to_bytes()).unwrap().turns().unwrap())
            .collect();
        assert_eq!(all, (0..2_000).map(place).collect::<Vec<_>>());
    }

    #[test]
    fn trimmed_references_are_forgotten_by_whole_chunks_only() {
        let mut refs = Refs::default();
        (0..9).for_each(|i| refs.push(place(i)));
        refs.forget(GroupSeq(2));
        assert_eq!(refs.chunks().0[0].turns().unwrap().len(), 9, "turns after the trim need their references");
        refs.forget(GroupSeq(3));
        assert_eq!(refs, Refs::default());
    }

    #[test]
    fn senseless_bytes_are_refused() {
        assert_eq!(Chunk::from_bytes(&[0x80]), None);
        assert_eq!(Chunk::from_bytes(&[0, 1, 3, 1, 1]).and_then(|c| c.turns()), None);
    }
}
