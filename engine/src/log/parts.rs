//! What an entry of the database holds: a value, its first part, or the place where it lies.
//!
//! An entry begins with a number (u16): 0 before a whole value; [`BESIDE`] before the place of a long one (see `values`);
//! else, in directories of format 1, that many further parts lie under keys that sort behind all others. Invariant: parts
//! are removed in one batch with the first, so a value is there whole or not at all. Only reads are left of parts.

use super::values::ValuePlace;

/// A group with a longer record lies beside the database. Many short records do not pay for a second sync.
pub(crate) const LONG_RECORD: usize = 512;
/// And so does every longer group: sled writes a leaf of up to 17 entries as one item, and items above 128 KiB leave its
/// log file for one that it never syncs. Keys of groups only grow; sled splits such a leaf before it writes it, with at
/// most nine entries (measured). Shelves fill leaves further.
pub(crate) const WHOLE: usize = 12 * 1024;
/// A longer archive segment lies beside the database: it stays as it is, often for years.
pub(crate) const LONG_SEGMENT: usize = 512;
/// A longer group is not packed where a commit waits for it: deflate takes several times as long as the disk.
pub(crate) const PACKED_AT_ONCE: usize = 256 * 1024;
/// The first byte of the keys of further parts.
pub(crate) const PARTS_OF: u8 = 0xff;
const BESIDE: [u8; 2] = [0xff, 0xff];

pub(crate) fn part_key(key: &[u8], part: u16) -> Vec<u8> {
    [&[PARTS_OF], key, &part.to_be_bytes()].concat()
}

/// The entry of a value that lies in it.
pub(crate) fn whole(value: &[u8]) -> Vec<u8> {
    [[0; 2].as_slice(), value].concat()
}

/// The entry of a value that lies beside the database.
pub(crate) fn beside(place: ValuePlace) -> Vec<u8> {
    [BESIDE.as_slice(), &place.to_bytes()].concat()
}

/// The value of an entry that holds all of it.
pub(crate) fn whole_value(entry: &[u8]) -> Option<Vec<u8>> {
    entry.strip_prefix(&[0; 2]).map(<[u8]>::to_vec)
}

pub(crate) fn is_beside(entry: &[u8]) -> bool {
    entry.starts_with(&BESIDE)
}

/// The place in such an entry.
pub(crate) fn place_in(entry: &[u8]) -> Option<ValuePlace> {
    entry.strip_prefix(&BESIDE).and_then(ValuePlace::from_bytes)
}

/// How many further parts the value has that begins with `first`.
pub(crate) fn further_parts(first: &[u8]) -> u16 {
    first.first_chunk::<2>().filter(|count| **count != BESIDE).map_or(0, |count| u16::from_be_bytes(*count))
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
