//! The files of sled 0.34.7, read by us and never written through: sled has no way to look at them without writing.
//!
//! ```text
//! db        segments of 512 KiB, in the order in which room was found for them
//! segment = crc32 ^ !0 u32 | lsn ^ i64::MAX i64 | stable lsn ^ i64::MAX i64 | message*      (little-endian)
//! message = crc32 ^ !0 u32 | kind u8 | body length | segment number | page | body   (numbers of 1 to 9 bytes)
//! snap.LSN = stable lsn | active segment | page*  | length u64 | crc32 u32
//! ```
//!
//! A page is a base (a whole tree node) and the changes after it; where they lie is the [`table`], made from the newest
//! snapshot and the messages behind it (`replay`). What the pages say is read by `tree`.
//!
//! Invariant: nothing here writes, and nothing is guessed: a read error is an error, and a message is used only if its
//! CRC, its segment number and its page are right. What the values mean is not known here.

pub(crate) mod node;
pub(crate) mod pages;
pub(crate) mod replay;
pub(crate) mod source;
pub(crate) mod table;
pub(crate) mod tree;

/// The length of a segment: sled's default, which is what every directory of ours has.
pub(crate) const SEGMENT: u64 = 512 * 1024;
/// The header of a segment.
pub(crate) const HEADER: usize = 20;
/// No message begins in the last bytes of a segment, since its header may need as many.
const RED_ZONE: usize = 32;
/// What sled notes about itself, followed by the CRC of it.
pub(crate) const CONF: &str = "segment_size: 524288\nuse_compression: false\nversion: 0.34\n";

pub(crate) const META_PAGE: u64 = 0;

/// What a message holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SledMessageKind {
    Canceled,
    /// Nothing more in this segment.
    Cap,
    /// A batch follows, up to the LSN in the body: all of it counts, or nothing.
    Manifest,
    Free,
    Counter,
    Meta,
    Node,
    Link,
}

/// A message that proves itself by its CRC.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SledMessage<'a> {
    pub(crate) kind: SledMessageKind,
    /// The body is the number of a file under `blobs/`.
    pub(crate) is_blob: bool,
    pub(crate) segment: u64,
    pub(crate) page: u64,
    pub(crate) body: &'a [u8],
    /// Header and body.
    pub(crate) length: usize,
}

impl SledMessage<'_> {
    /// The number in the body of a manifest or a blob pointer.
    pub(crate) fn lsn(&self) -> Option<i64> {
        self.body.first_chunk().map(|bytes| i64::from_le_bytes(*bytes))
    }
}

fn kind_of(byte: u8) -> Option<(SledMessageKind, bool)> {
    Some(match byte {
        1 => (SledMessageKind::Canceled, false),
        2 => (SledMessageKind::Cap, false),
        3 => (SledMessageKind::Manifest, false),
        4 => (SledMessageKind::Free, false),
        5 => (SledMessageKind::Counter, false),
        6 => (SledMessageKind::Meta, false),
        7 => (SledMessageKind::Meta, true),
        8 => (SledMessageKind::Node, false),
        9 => (SledMessageKind::Node, true),
        10 => (SledMessageKind::Link, false),
        11 => (SledMessageKind::Link, true),
        _ => return None,
    })
}

/// Whether a message can begin there.
pub(crate) fn has_room(at: usize) -> bool {
    at <= SEGMENT as usize - RED_ZONE
}

/// The message at `at` of a segment, if it is whole.
pub(crate) fn message_at(segment: &[u8], at: usize) -> Option<SledMessage<'_>> {
    if !has_room(at) {
        return None;
    }
    let bytes = segment.get(at..)?;
    let (kind, is_blob) = kind_of(*bytes.get(4)?)?;
    let mut rest = bytes.get(5..)?;
    let length = usize::try_from(take_number(&mut rest)?).ok()?;
    let (number, page) = (take_number(&mut rest)?, take_number(&mut rest)?);
    let header = bytes.len() - rest.len();
    let body = rest.get(..length)?;
    let mut crc = crc32fast::Hasher::new();
    crc.update(body);
    crc.update(&bytes[4..header]);
    let stored = u32::from_le_bytes(*bytes.first_chunk()?);
    (crc.finalize() ^ u32::MAX == stored).then_some(SledMessage {
        kind,
        is_blob,
        segment: number,
        page,
        body,
        length: header + length,
    })
}

/// What the header of a segment says, if it is whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub(crate) lsn: u64,
    /// Everything up to here was written when the segment was begun, and none of its room reused since.
    pub(crate) stable: u64,
}

pub(crate) fn segment_header(bytes: &[u8]) -> Option<SegmentHeader> {
    let bytes = bytes.get(..HEADER)?;
    let stored = u32::from_le_bytes(*bytes.first_chunk()?) ^ u32::MAX;
    let number = |at: usize| bytes[at..].first_chunk().map(|bytes| i64::from_le_bytes(*bytes) ^ i64::MAX);
    let lsn = u64::try_from(number(4)?).ok()?;
    let stable = u64::try_from(number(12)?).unwrap_or(0);
    (crc32fast::hash(&bytes[4..]) == stored && lsn.is_multiple_of(SEGMENT)).then_some(SegmentHeader { lsn, stable })
}

/// The segment number of the first whole message from `at` on, wherever it begins.
pub(crate) fn number_behind(segment: &[u8], at: usize) -> Option<u64> {
    let rest = segment.get(at..)?;
    if rest.iter().all(|byte| *byte == 0) {
        return None;
    }
    let begins = |at: &usize| segment.get(at + 4).is_some_and(|kind| kind_of(*kind).is_some());
    (at..segment.len()).filter(begins).find_map(|at| message_at(segment, at)).map(|message| message.segment)
}

/// A number as sled writes it: small ones take less room.
pub(crate) fn take_number(input: &mut &[u8]) -> Option<u64> {
    let (&first, rest) = input.split_first()?;
    let (number, used) = match first {
        0..=240 => (u64::from(first), 0),
        241..=248 => (240 + 256 * (u64::from(first) - 241) + u64::from(*rest.first()?), 1),
        249 => (2_288 + 256 * u64::from(*rest.first()?) + u64::from(*rest.get(1)?), 2),
        _ => {
            let length = usize::from(first) - 247;
            let mut number = [0; 8];
            number[..length].copy_from_slice(rest.get(..length)?);
            (u64::from_le_bytes(number), length)
        }
    };
    *input = &rest[used..];
    Some(number)
}

pub(crate) fn put_number(out: &mut Vec<u8>, number: u64) {
    let bytes = number.to_le_bytes();
    match number {
        0..=240 => out.push(bytes[0]),
        241..=2_287 => out.extend([((number - 240) / 256 + 241) as u8, ((number - 240) % 256) as u8]),
        2_288..=67_823 => out.extend([249, ((number - 2_288) / 256) as u8, ((number - 2_288) % 256) as u8]),
        _ => {
            let length = (8 - number.leading_zeros() as usize / 8).max(3);
            out.push(247 + length as u8);
            out.extend_from_slice(&bytes[..length]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back() {
        for number in
            [0, 1, 240, 241, 2_287, 2_288, 67_823, 67_824, 0x00ff_ffff, 0x0100_0000, u64::from(u32::MAX), u64::MAX]
        {
            let mut bytes = Vec::new();
            put_number(&mut bytes, number);
            let mut input = bytes.as_slice();
            assert_eq!((take_number(&mut input), input.len()), (Some(number), 0));
        }
    }
}
