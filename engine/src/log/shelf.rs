//! Shelf entries: the keys of each shelf, and the frame around every value.
//!
//! Invariant: a value carries a CRC over instance, shelf, key and content, so that a damaged one, one in another's
//! place and one of another data directory are all noticed. What the entries mean is not known here.

use serde::Serialize;

use super::blob::BlobHash;
use super::{Log, Shelf, StorageError};
use crate::vocabulary::{RunId, RunInfo, Timestamp};

/// A shelf value with its CRC before it.
pub(crate) fn seal(medium: &dyn Log, shelf: Shelf, key: &[u8], content: &[u8]) -> Vec<u8> {
    let mut value = crc(medium, shelf, key, content).to_be_bytes().to_vec();
    value.extend_from_slice(content);
    value
}

/// The content of a shelf value.
pub(crate) fn unseal<'a>(
    medium: &dyn Log,
    shelf: Shelf,
    key: &[u8],
    value: &'a [u8],
) -> Result<&'a [u8], StorageError> {
    let parts = value.split_at_checked(4);
    match parts {
        Some((stored, content)) if stored == crc(medium, shelf, key, content).to_be_bytes() => Ok(content),
        _ => Err(damaged(medium, shelf, "an entry has a wrong CRC".into())),
    }
}

fn crc(medium: &dyn Log, shelf: Shelf, key: &[u8], content: &[u8]) -> u32 {
    crc_of(&medium.instance(), shelf as u8, key, content)
}

/// The CRC that stands before a shelf value.
pub(crate) fn crc_of(instance: &[u8; 16], shelf: u8, key: &[u8], content: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(instance);
    crc.update(&[shelf, key.len() as u8]);
    crc.update(key);
    crc.update(content);
    crc.finalize()
}

pub(crate) fn damaged(medium: &dyn Log, shelf: Shelf, detail: String) -> StorageError {
    StorageError::corrupt("index", medium.location(), format!("shelf {shelf:?}: {detail}"))
}

pub(crate) fn encode<T: Serialize>(medium: &dyn Log, shelf: Shelf, value: &T) -> Result<Vec<u8>, StorageError> {
    rmp_serde::to_vec(value).map_err(|why| damaged(medium, shelf, format!("cannot encode: {why}")))
}

pub(crate) fn decode<T: serde::de::DeserializeOwned>(
    medium: &dyn Log,
    shelf: Shelf,
    bytes: &[u8],
) -> Result<T, StorageError> {
    rmp_serde::from_slice(bytes).map_err(|why| damaged(medium, shelf, why.to_string()))
}

/// `namespace 0 workflow-id 0 start run`: no id holds a control character, so the zeros separate.
pub(crate) fn id_prefix(info_namespace: &str, workflow_id: &str) -> Vec<u8> {
    [info_namespace.as_bytes(), &[0], workflow_id.as_bytes(), &[0]].concat()
}

pub(crate) fn id_key(info: &RunInfo) -> Vec<u8> {
    let mut key = id_prefix(info.namespace.as_str(), info.workflow_id.as_str());
    key.extend_from_slice(&start_key(info.started_at, info.run_id));
    key
}

/// Sorts by start, then by run id; times before 1970 come first.
pub(crate) fn start_key(at: Timestamp, run: RunId) -> Vec<u8> {
    [(at.0 as u64 ^ (1 << 63)).to_be_bytes().as_slice(), &run.0].concat()
}

/// The start and the run of a [`start_key`], or of the end of an [`id_key`].
pub(crate) fn parse_start_key(key: &[u8]) -> Option<(Timestamp, RunId)> {
    let key = key.get(key.len().checked_sub(24)?..)?;
    let at = u64::from_be_bytes(key[..8].try_into().ok()?) ^ (1 << 63);
    Some((Timestamp(at as i64), RunId(key[8..].try_into().ok()?)))
}

pub(crate) fn chunk_key(run: RunId, chunk: u32) -> Vec<u8> {
    [run.0.as_slice(), &chunk.to_be_bytes()].concat()
}

pub(crate) fn blob_key(hash: &BlobHash, run: RunId) -> Vec<u8> {
    [hash.0.as_slice(), &run.0].concat()
}
