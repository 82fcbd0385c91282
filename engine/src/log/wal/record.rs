//! One record of the write-ahead files: a commit group, in whole blocks.
//!
//! ```text
//! "bosunwa1" | body length u32 | seq u64 | crc32 u32 | body | zeros up to the next block
//! ```
//!
//! Invariant: the CRC covers the id of these files, the length, the sequence and the body, so neither a torn record, nor
//! one of other files, nor a payload that imitates one passes for a record. Each begins a block, so one that is damaged
//! hides none behind it, and no write touches a block of an earlier one. Whether it is the log's is for the chain to say.

use crate::vocabulary::GroupSeq;

pub(crate) const BLOCK: usize = 4_096;
const MAGIC: [u8; 8] = *b"bosunwa1";
const HEAD: usize = 8 + 4 + 8 + 4;

/// What the record of a group of this length takes.
pub(super) fn room_for(length: usize) -> u64 {
    (HEAD + length).next_multiple_of(BLOCK) as u64
}

/// The record as it is written, in place of what was in the buffer.
pub(super) fn encode(buffer: &mut Vec<u8>, id: &[u8; 16], seq: GroupSeq, body: &[u8]) {
    buffer.clear();
    buffer.extend_from_slice(&MAGIC);
    buffer.extend_from_slice(&u32::try_from(body.len()).unwrap_or(u32::MAX).to_be_bytes());
    buffer.extend_from_slice(&seq.0.to_be_bytes());
    let crc = crc_of(id, &buffer[MAGIC.len()..], body);
    buffer.extend_from_slice(&crc.to_be_bytes());
    buffer.extend_from_slice(body);
    buffer.resize(buffer.len().next_multiple_of(BLOCK), 0);
}

fn crc_of(id: &[u8; 16], head: &[u8], body: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(id);
    crc.update(head);
    crc.update(body);
    crc.finalize()
}

/// What a block that begins a record says of it, whole or not.
pub(crate) struct RecordClaim<'a> {
    pub(crate) seq: GroupSeq,
    /// As long as it says, or as what there is.
    pub(crate) body: &'a [u8],
    is_cut: bool,
    head: &'a [u8],
    crc: u32,
}

impl<'a> RecordClaim<'a> {
    /// Nothing: no record begins here.
    pub(crate) fn at(bytes: &'a [u8]) -> Option<RecordClaim<'a>> {
        let head = bytes.get(..HEAD).filter(|head| head[..MAGIC.len()] == MAGIC)?;
        let length = u32::from_be_bytes(*head[8..].first_chunk()?) as usize;
        let seq = GroupSeq(u64::from_be_bytes(*head[12..].first_chunk()?));
        let crc = u32::from_be_bytes(*head[20..].first_chunk()?);
        let rest = &bytes[HEAD..];
        let body = &rest[..length.min(rest.len())];
        Some(RecordClaim { seq, body, is_cut: body.len() < length, head: &head[MAGIC.len()..20], crc })
    }
    pub(super) fn is_whole(&self, id: &[u8; 16]) -> bool {
        !self.is_cut && crc_of(id, self.head, self.body) == self.crc
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: [u8; 16] = [7; 16];

    /// G6: a record comes back as it was written, and every flipped bit of what counts is noticed.
    #[test]
    fn every_flipped_bit_is_noticed() {
        let (mut record, body) = (vec![1, 2, 3], vec![0x5a; 300]);
        encode(&mut record, &ID, GroupSeq(9), &body);
        assert_eq!((record.len(), room_for(body.len())), (BLOCK, BLOCK as u64));
        let claim = RecordClaim::at(&record).unwrap();
        assert!(claim.is_whole(&ID) && claim.seq == GroupSeq(9) && claim.body == body);
        assert!(!claim.is_whole(&[8; 16]), "a record of other files");
        for bit in 0..(HEAD + body.len()) * 8 {
            let mut damaged = record.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(RecordClaim::at(&damaged).is_none_or(|claim| !claim.is_whole(&ID)), "bit {bit}");
        }
    }

    /// A torn record: each prefix of it over zeros, or over the record that was there before.
    #[test]
    fn a_torn_record_is_none() {
        let (mut old, mut new) = (Vec::new(), Vec::new());
        encode(&mut old, &ID, GroupSeq(1), &[1; 9_000]);
        encode(&mut new, &ID, GroupSeq(2), &[2; 9_000]);
        assert_eq!(room_for(BLOCK - HEAD), BLOCK as u64);
        assert_eq!(room_for(BLOCK - HEAD + 1), 2 * BLOCK as u64);
        for cut in [8, 12, 20, 24, 512, 4_096, 8_192, 9_000] {
            for below in [vec![0; old.len()], old.clone()] {
                let torn = [&new[..cut], &below[cut..]].concat();
                let is_new = |claim: RecordClaim<'_>| claim.seq == GroupSeq(2) && claim.is_whole(&ID);
                assert!(!RecordClaim::at(&torn).is_some_and(is_new), "cut at {cut}");
            }
        }
        assert!(!RecordClaim::at(&new[..8_192]).unwrap().is_whole(&ID));
    }
}
