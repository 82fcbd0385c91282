//! Large values as several entries, because of the blob trap of the database (see `sled.rs`).
//!
//! A value is stored under its key as `number of further parts u16, first part`; the further parts lie under keys that
//! sort behind all others. Invariant: parts are written and removed in one batch with the first, so a value is there
//! whole or not at all.

use super::StorageError;

/// Parts have this size. sled writes a leaf of up to 17 entries as one item, and items above 128 KiB leave its log file.
pub(crate) const PART: usize = 6 * 1024;
/// Groups up to this size stay whole: their keys only grow, and sled splits such a leaf before it writes it, with at
/// most nine entries (measured). Batches of many parts fill leaves further.
pub(crate) const WHOLE_GROUP: usize = 12 * 1024;
/// The first bytes of a shelf key: whole entries, or parts of large ones.
pub(crate) const PARTS_OF: u8 = 0xff;

pub(crate) fn part_key(key: &[u8], part: u16) -> Vec<u8> {
    [&[PARTS_OF], key, &part.to_be_bytes()].concat()
}

/// A value as entries, one if it is no longer than `whole`: its first part under the key, with the number of further ones, and those under part keys.
pub(crate) fn split(key: &[u8], value: &[u8], whole: usize) -> Result<Vec<(Vec<u8>, Vec<u8>)>, StorageError> {
    let (first, rest) = if value.len() <= whole { (value, &value[..0]) } else { value.split_at(PART.min(value.len())) };
    let count = u16::try_from(rest.len().div_ceil(PART));
    let count = count.map_err(|_| StorageError::corrupt("database entry", "", "a value exceeds 384 MiB"))?;
    let mut entries = vec![(key.to_vec(), [count.to_be_bytes().as_slice(), first].concat())];
    entries.extend((1u16..).zip(rest.chunks(PART)).map(|(part, bytes)| (part_key(key, part), bytes.to_vec())));
    Ok(entries)
}

/// How many further parts the value has that begins with `first`.
pub(crate) fn further_parts(first: &[u8]) -> u16 {
    first.first_chunk::<2>().map_or(0, |count| u16::from_be_bytes(*count))
}

/// The first key behind all that begin with `prefix`.
pub(crate) fn end_of(prefix: &[u8]) -> Option<Vec<u8>> {
    let mut end = prefix.to_vec();
    while let Some(byte) = end.pop() {
        if byte < 0xff {
            end.push(byte + 1);
            return Some(end);
        }
    }
    None
}
