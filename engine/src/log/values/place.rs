//! Where a value is: what the database keeps of it, and what a file says when it is read from its start.
//!
//! Invariant: what is printed reads back, and nothing else does. No file is touched.

use super::HEAD;
use crate::log::refs::{put_varint, take_varint};

/// Where a value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ValuePlace {
    pub(crate) file: u64,
    pub(super) offset: u64,
    pub(super) length: u32,
}

impl ValuePlace {
    #[cfg(test)]
    pub(crate) fn at(file: u64, offset: u64, length: u32) -> ValuePlace {
        ValuePlace { file, offset, length }
    }
    /// Which bytes of the file are its frame.
    #[cfg(test)]
    pub(crate) fn frame(self, key: &[u8]) -> std::ops::Range<u64> {
        self.offset..self.offset + (HEAD + key.len()) as u64 + u64::from(self.length)
    }
    /// About what it takes.
    pub(crate) fn bytes(self) -> u64 {
        HEAD as u64 + u64::from(self.length)
    }
    pub(crate) fn to_bytes(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(12);
        for number in [self.file, self.offset, u64::from(self.length)] {
            put_varint(&mut bytes, number);
        }
        bytes
    }
    pub(crate) fn from_bytes(mut bytes: &[u8]) -> Option<ValuePlace> {
        let file = take_varint(&mut bytes)?;
        let offset = take_varint(&mut bytes)?;
        let length = u32::try_from(take_varint(&mut bytes)?).ok()?;
        bytes.is_empty().then_some(ValuePlace { file, offset, length })
    }
}

/// A frame as its head tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ValueFrame {
    pub(crate) key: Vec<u8>,
    pub(crate) place: ValuePlace,
    /// Where the next one begins.
    pub(super) end: u64,
}

impl ValueFrame {
    pub(crate) fn length(&self) -> u64 {
        self.end - self.place.offset
    }
}
