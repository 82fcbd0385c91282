//! The chain: each commit group carries the hash of everything before it, so that a missing, repeated, foreign or
//! changed group cannot pass for the right one.
//!
//! Invariant: the chain begins with the instance id, so that files of two data directories never fit together. The
//! [`SetHash`] is the same promise for things without an order (archives, index entries): a sum that changes when a
//! member is missing, doubled or altered. Neither keeps anybody out who can write the files; they find accidents.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::vocabulary::{GroupSeq, hex};

/// The hash of a group and of all groups before it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ChainHash(pub [u8; 32]);

impl ChainHash {
    /// What stands before the first group of an instance.
    pub(crate) fn origin(instance: &[u8; 16]) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(b"bosun log").update(instance);
        ChainHash(*hasher.finalize().as_bytes())
    }
    /// The hash of the group `seq` with this body, after this.
    pub(crate) fn then(&self, seq: GroupSeq, body: &[u8]) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.0).update(&seq.0.to_be_bytes()).update(body);
        ChainHash(*hasher.finalize().as_bytes())
    }
}

impl std::fmt::Debug for ChainHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&hex(&self.0[..8]))
    }
}

impl Serialize for ChainHash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for ChainHash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let bytes = bytes::Bytes::deserialize(deserializer)?;
        bytes.as_ref().try_into().map(ChainHash).map_err(|_| serde::de::Error::custom("a chain hash has 32 bytes"))
    }
}

/// The sum of the hashes of a set of key-value pairs; the order of additions does not matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub(crate) struct SetHash {
    high: u64,
    low: u64,
}

impl SetHash {
    pub(crate) fn of(key: &[u8], value: &[u8]) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&(key.len() as u64).to_be_bytes()).update(key).update(value);
        let mut half = [0u8; 16];
        half.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
        Self::from_u128(u128::from_be_bytes(half))
    }
    pub(crate) fn plus(self, other: Self) -> Self {
        Self::from_u128(self.to_u128().wrapping_add(other.to_u128()))
    }
    pub(crate) fn minus(self, other: Self) -> Self {
        Self::from_u128(self.to_u128().wrapping_sub(other.to_u128()))
    }
    fn to_u128(self) -> u128 {
        (u128::from(self.high) << 64) | u128::from(self.low)
    }
    fn from_u128(sum: u128) -> Self {
        SetHash { high: (sum >> 64) as u64, low: sum as u64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_depends_on_instance_order_and_content() {
        let start = ChainHash::origin(&[1; 16]);
        assert_ne!(start, ChainHash::origin(&[2; 16]));
        let forward = start.then(GroupSeq(1), b"a").then(GroupSeq(2), b"b");
        assert_ne!(forward, start.then(GroupSeq(1), b"b").then(GroupSeq(2), b"a"));
        assert_ne!(forward, start.then(GroupSeq(1), b"a").then(GroupSeq(3), b"b"));
    }

    #[test]
    fn a_set_hash_ignores_order_and_notices_missing_and_doubled_members() {
        let (a, b) = (SetHash::of(b"k", b"a"), SetHash::of(b"k", b"b"));
        assert_eq!(a.plus(b), b.plus(a));
        assert_eq!(a.plus(b).minus(a), b);
        assert_ne!(a.plus(a), SetHash::default());
        assert_ne!(SetHash::of(b"ab", b"c"), SetHash::of(b"a", b"bc"));
    }
}
