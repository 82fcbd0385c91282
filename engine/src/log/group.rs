//! The commit group: the unit of the log, one value that becomes durable as a whole.
//!
//! ```text
//! version u8 | seq u64 | hash of the chain before [32] | crc32 u32 | body
//! body = record*,  record = kind u8 | length u32 | rmp-serde (array form)
//! ```
//!
//! Invariant: a group that parses is exactly the one written: its CRC covers every byte, and its sequence and previous
//! hash tie it to its place. A record kind or event this program does not know is an error, never skipped (
//! G9). Where groups are kept, and splitting large ones, is the medium's business.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::Log;
use super::chain::{ChainHash, SetHash};
use super::error::StorageError;
use crate::vocabulary::{EventId, EventKind, GroupSeq, RunId, Turn};

/// The newest group layout this program reads and the one it writes.
pub const GROUP_VERSION: u8 = 1;
const HEADER: usize = 1 + 8 + 32 + 4;
const FRAME: usize = 1 + 4;

/// One entry of a group. New kinds get new numbers; an unknown number stops the reader.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Record {
    Turn(Turn),
    Deleted(Deleted),
    Trimmed(Trimmed),
}

/// Runs that are gone for good. Logged so that a rebuild of the indexes does not bring them back.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Deleted {
    pub(crate) runs: Vec<RunId>,
    /// The sum over all archive segments that are left.
    pub(crate) archives: SetHash,
}

/// Everything up to and including the group `through` is in the archive, durably, or belongs to deleted runs. Those
/// groups may be gone. Every trim writes a new one at the tail, so the newest is always in the log.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Trimmed {
    pub(crate) through: GroupSeq,
    /// The chain at `through`: what the first remaining group must name as the one before it.
    pub(crate) chain: ChainHash,
    /// The sum over all archive segments, so that a missing one is noticed without asking any index.
    pub(crate) archives: SetHash,
}

const KIND_TURN: u8 = 1;
const KIND_DELETED: u8 = 2;
const KIND_TRIMMED: u8 = 3;

/// Builds one group value.
pub(crate) struct GroupWriter {
    seq: GroupSeq,
    previous: ChainHash,
    buffer: Vec<u8>,
}

/// Where a record lies in its group, for direct reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecordPlace {
    pub(crate) offset: u32,
    pub(crate) length: u32,
}

impl GroupWriter {
    pub(crate) fn new(seq: GroupSeq, previous: ChainHash) -> Self {
        Self::with_room(seq, previous, 512)
    }
    /// With room for about so many bytes, so that a large group does not grow step by step.
    pub(crate) fn with_room(seq: GroupSeq, previous: ChainHash, bytes: usize) -> Self {
        let mut buffer = Vec::with_capacity(bytes);
        buffer.push(GROUP_VERSION);
        buffer.extend_from_slice(&seq.0.to_be_bytes());
        buffer.extend_from_slice(&previous.0);
        buffer.extend_from_slice(&[0; 4]);
        GroupWriter { seq, previous, buffer }
    }
    pub(crate) fn turn(&mut self, turn: &Turn) -> Result<RecordPlace, String> {
        self.record(KIND_TURN, turn)
    }
    pub(crate) fn deleted(&mut self, deleted: &Deleted) -> Result<RecordPlace, String> {
        self.record(KIND_DELETED, deleted)
    }
    pub(crate) fn trimmed(&mut self, trimmed: &Trimmed) -> Result<RecordPlace, String> {
        self.record(KIND_TRIMMED, trimmed)
    }
    /// Takes back the record written last.
    pub(crate) fn undo(&mut self, place: RecordPlace) {
        self.buffer.truncate(place.offset as usize);
    }
    /// The encoded bytes of a record written before.
    pub(crate) fn bytes(&self, place: RecordPlace) -> &[u8] {
        let start = place.offset as usize + FRAME;
        &self.buffer[start..start + place.length as usize]
    }
    /// The length of the longest record.
    pub(crate) fn longest(&self) -> usize {
        let (mut at, mut longest) = (HEADER, 0);
        while let Some(length) = self.buffer.get(at + 1..).and_then(|rest| rest.first_chunk()) {
            let length = u32::from_be_bytes(*length) as usize;
            longest = longest.max(length);
            at += FRAME + length;
        }
        longest
    }
    pub(crate) fn finish(mut self) -> (Vec<u8>, ChainHash) {
        let crc = crc_of(&self.buffer);
        self.buffer[HEADER - 4..HEADER].copy_from_slice(&crc.to_be_bytes());
        let chain = self.previous.then(self.seq, &self.buffer[HEADER..]);
        (self.buffer, chain)
    }
    fn record<T: Serialize>(&mut self, kind: u8, content: &T) -> Result<RecordPlace, String> {
        let offset = self.buffer.len();
        self.buffer.push(kind);
        self.buffer.extend_from_slice(&[0; 4]);
        if let Err(why) = rmp_serde::encode::write(&mut self.buffer, content) {
            self.buffer.truncate(offset);
            return Err(why.to_string());
        }
        let length = self.buffer.len() - offset - FRAME;
        let (Ok(offset32), Ok(length32)) = (u32::try_from(offset), u32::try_from(length)) else {
            self.buffer.truncate(offset);
            return Err("a commit group cannot exceed 4 GiB".into());
        };
        self.buffer[offset + 1..offset + FRAME].copy_from_slice(&length32.to_be_bytes());
        Ok(RecordPlace { offset: offset32, length: length32 })
    }
}

/// Where the frame ends that begins at `at`.
fn frame_end(bytes: &[u8], at: usize) -> Option<usize> {
    let frame = bytes.get(at..at + FRAME)?;
    let length = u32::from_be_bytes([frame[1], frame[2], frame[3], frame[4]]) as usize;
    let end = (at + FRAME).checked_add(length).filter(|end| *end <= bytes.len())?;
    (KIND_TURN..=KIND_TRIMMED).contains(&frame[0]).then_some(end)
}

/// The CRC over all of a group value but the CRC itself.
fn crc_of(value: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(&value[..HEADER - 4]);
    crc.update(&value[HEADER..]);
    crc.finalize()
}

/// A group as read from the medium; parsed and its CRC checked.
#[derive(Debug, Clone)]
pub(crate) struct Group {
    seq: GroupSeq,
    value: Vec<u8>,
}

impl Group {
    /// A group as a log gave it; what is wrong with it names the file that it lies in.
    pub(crate) fn stored(medium: &dyn Log, seq: GroupSeq, value: Vec<u8>) -> Result<Group, StorageError> {
        Self::parse(seq, value, &medium.location()).map_err(|why| why.in_file(medium.file_of(seq)))
    }

    /// Checks version, CRC and sequence. `file` is for the error only.
    pub(crate) fn parse(seq: GroupSeq, value: Vec<u8>, file: &Path) -> Result<Self, StorageError> {
        let corrupt = |detail: String| StorageError::corrupt("commit group", file, detail).at_group(seq);
        if value.len() < HEADER {
            return Err(corrupt(format!("{} bytes are too few", value.len())));
        }
        let stored = u32::from_be_bytes([value[41], value[42], value[43], value[44]]);
        let computed = crc_of(&value);
        if stored != computed {
            return Err(corrupt(format!("CRC {computed:08x} instead of {stored:08x}")));
        }
        // Only a group that is whole can say that it is newer.
        if value[0] > GROUP_VERSION {
            let (found, supported) = (u32::from(value[0]), u32::from(GROUP_VERSION));
            return Err(StorageError::FormatTooNew { file: file.to_owned(), found, supported });
        }
        let mut number = [0u8; 8];
        number.copy_from_slice(&value[1..9]);
        let found = u64::from_be_bytes(number);
        if found != seq.0 {
            return Err(corrupt(format!("it is group {found}")));
        }
        Ok(Group { seq, value })
    }
    /// The length of the group that begins these bytes, whatever follows it.
    pub(crate) fn length_at(bytes: &[u8]) -> Option<usize> {
        let stored = u32::from_be_bytes(*bytes.get(HEADER - 4..HEADER)?.first_chunk()?);
        let (mut crc, mut at) = (crc32fast::Hasher::new(), HEADER);
        crc.update(&bytes[..HEADER - 4]);
        while crc.clone().finalize() != stored {
            let end = frame_end(bytes, at)?;
            crc.update(&bytes[at..end]);
            at = end;
        }
        Some(at)
    }
    /// The runs of a group whose CRC may be wrong, if its frames fill its length, and whether their turn here is their first.
    pub(crate) fn runs_at(bytes: &[u8]) -> Option<Vec<(RunId, bool)>> {
        let (mut runs, mut at) = (Vec::new(), HEADER);
        while at < bytes.len() {
            let end = frame_end(bytes, at)?;
            if bytes[at] == KIND_TURN {
                let record = bytes.get(at + FRAME..end)?;
                // An array of nine or ten, and sixteen bytes first.
                let run = match record {
                    [0x99 | 0x9a, 0xc4, 16, rest @ ..] => rest.first_chunk().copied(),
                    _ => None,
                };
                // Damage makes no start of what was none.
                let starts = |turn: Turn| matches!(turn.events.first(), Some(EventKind::WorkflowExecutionStarted(_)));
                let is_first = decode_turn(record).is_ok_and(|turn| turn.first_event == EventId(1) && starts(turn));
                runs.push((RunId(run?), is_first));
            }
            at = end;
        }
        (at == bytes.len()).then_some(runs)
    }
    pub(crate) fn previous(&self) -> ChainHash {
        let mut hash = [0u8; 32];
        hash.copy_from_slice(&self.value[9..41]);
        ChainHash(hash)
    }
    /// The chain including this group, taking its word for what came before.
    pub(crate) fn chain(&self) -> ChainHash {
        self.previous().then(self.seq, &self.value[HEADER..])
    }
    pub(crate) fn len(&self) -> usize {
        self.value.len()
    }
    /// The newest record of a trim in it. Looks at no turn.
    pub(crate) fn trimmed(&self, file: &Path) -> Result<Option<Trimmed>, StorageError> {
        let (mut offset, mut newest) = (HEADER, None);
        while let Some(frame) = self.value.get(offset..offset + FRAME) {
            let length = u32::from_be_bytes([frame[1], frame[2], frame[3], frame[4]]);
            if frame[0] == KIND_TRIMMED
                && let (_, Record::Trimmed(trimmed)) = self.record_at(offset, file)?
            {
                newest = Some(trimmed);
            }
            offset += FRAME + length as usize;
        }
        Ok(newest)
    }
    /// The records with their places, in order.
    pub(crate) fn records(&self, file: &Path) -> Result<Vec<(RecordPlace, Record)>, StorageError> {
        let mut records = Vec::new();
        let mut offset = HEADER;
        while offset < self.value.len() {
            let (place, record) = self.record_at(offset, file)?;
            offset += FRAME + place.length as usize;
            records.push((place, record));
        }
        Ok(records)
    }
    /// The turn at a place an index remembers.
    pub(crate) fn turn_at(&self, offset: u32, file: &Path) -> Result<(RecordPlace, Turn), StorageError> {
        match self.record_at(offset as usize, file)? {
            (place, Record::Turn(turn)) => Ok((place, turn)),
            (_, Record::Deleted(_) | Record::Trimmed(_)) => {
                Err(self.corrupt(file, offset as usize, "a turn was expected".into()))
            }
        }
    }
    /// The encoded bytes of a record, as they go to the archive.
    pub(crate) fn bytes(&self, place: RecordPlace) -> &[u8] {
        let start = place.offset as usize + FRAME;
        &self.value[start..start + place.length as usize]
    }
    fn record_at(&self, offset: usize, file: &Path) -> Result<(RecordPlace, Record), StorageError> {
        let frame = self.value.get(offset..offset + FRAME);
        let frame = frame.ok_or_else(|| self.corrupt(file, offset, "no record begins here".into()))?;
        let length = u32::from_be_bytes([frame[1], frame[2], frame[3], frame[4]]);
        let start = offset + FRAME;
        let bytes = self.value.get(start..start.saturating_add(length as usize));
        let bytes = bytes.ok_or_else(|| self.corrupt(file, offset, "the record is cut off".into()))?;
        let record = match frame[0] {
            KIND_TURN => decode_turn(bytes).map(Record::Turn),
            KIND_DELETED => decode(bytes).map(Record::Deleted),
            KIND_TRIMMED => decode(bytes).map(Record::Trimmed),
            kind => Err(format!("record kind {kind} is unknown to this program")),
        };
        let record = record.map_err(|why| self.corrupt(file, offset, why))?;
        Ok((RecordPlace { offset: offset as u32, length }, record))
    }
    fn corrupt(&self, file: &Path, offset: usize, detail: String) -> StorageError {
        StorageError::corrupt("commit group", file, format!("at byte {offset}: {detail}")).at_group(self.seq)
    }
}

/// A turn from its stored bytes. Used for the archive too.
pub(crate) fn decode_turn(bytes: &[u8]) -> Result<Turn, String> {
    decode(bytes)
}

fn decode<T: serde::de::DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    rmp_serde::from_slice(bytes).map_err(|why| why.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::tests::samples;

    fn sample() -> (Vec<u8>, ChainHash) {
        writer().finish()
    }

    fn writer() -> GroupWriter {
        let mut writer = GroupWriter::new(GroupSeq(3), ChainHash::origin(&[9; 16]));
        writer.turn(&samples::start(1, "w")).unwrap();
        writer.turn(&samples::step(1, 2, 10)).unwrap();
        writer.deleted(&Deleted { runs: vec![RunId([4; 16])], archives: SetHash::default() }).unwrap();
        writer
    }

    #[test]
    fn a_group_gives_back_its_records_and_its_chain() {
        let (value, chain) = sample();
        let group = Group::parse(GroupSeq(3), value, Path::new("x")).unwrap();
        assert_eq!(group.chain(), chain);
        let longest = group.records(Path::new("x")).unwrap().iter().map(|(place, _)| place.length as usize).max();
        assert_eq!(Some(writer().longest()), longest);
        let records = group.records(Path::new("x")).unwrap();
        assert_eq!(records.len(), 3);
        assert_eq!(records[1].1, Record::Turn(samples::step(1, 2, 10)));
        let (_, turn) = group.turn_at(records[1].0.offset, Path::new("x")).unwrap();
        assert_eq!(turn, samples::step(1, 2, 10));
    }

    /// G6: every single flipped bit of a group is noticed.
    #[test]
    fn every_flipped_bit_is_noticed() {
        let (value, _) = sample();
        for bit in 0..value.len() * 8 {
            let mut damaged = value.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(Group::parse(GroupSeq(3), damaged, Path::new("x")).is_err(), "bit {bit} passed");
        }
        assert!(Group::parse(GroupSeq(4), value, Path::new("x")).is_err(), "a group in another's place passed");
    }

    /// G9: what a newer program wrote is refused by name, not skipped.
    #[test]
    fn newer_versions_and_unknown_kinds_are_errors() {
        let (mut value, _) = sample();
        value[0] = GROUP_VERSION + 1;
        let crc = crc_of(&value).to_be_bytes();
        value[HEADER - 4..HEADER].copy_from_slice(&crc);
        let refused = Group::parse(GroupSeq(3), value, Path::new("x"));
        assert!(matches!(refused, Err(StorageError::FormatTooNew { found: 2, supported: 1, .. })), "{refused:?}");

        let mut writer = GroupWriter::new(GroupSeq(1), ChainHash::origin(&[9; 16]));
        writer.record(77, &"news").unwrap();
        let group = Group::parse(GroupSeq(1), writer.finish().0, Path::new("x")).unwrap();
        let why = group.records(Path::new("x")).unwrap_err().to_string();
        assert!(why.contains("record kind 77 is unknown"), "{why}");
    }

    /// G9: an event this program does not know stops the reader.
    #[test]
    fn an_unknown_event_is_an_error() {
        let mut bytes = rmp_serde::to_vec(&samples::step(1, 2, 3)).unwrap();
        let name = b"ActivityTaskCompleted";
        let at = bytes.windows(name.len()).position(|w| w == name).unwrap();
        bytes[at] = b'X';
        let why = decode_turn(&bytes).unwrap_err();
        assert!(why.contains("XctivityTaskCompleted"), "{why}");
    }
}
