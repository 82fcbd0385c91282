//! Turns as they are on the disk: payloads through the codec chain, large ones replaced by references to blobs.
//!
//! Invariant: this is the only boundary where payloads change. `plain` undoes `stored` exactly; in memory everything
//! is plain. What is in the blob file is what the codecs made, so blobs are encrypted too.

use std::borrow::Cow;
use std::collections::BTreeSet;

use super::blob::BlobHash;
use super::codec::{CodecError, ENCODING_ENCRYPTED, ENCODING_ESCAPED, ENCODING_LZ4, PayloadPlace, pack, unpack};
use super::journal::JournalOptions;
use super::{Log, StorageError};
use crate::vocabulary::{ENCODING_BLOB, EventId, EventKind, Memo, Payload, RunId, Turn};

/// A blob that a turn refers to, with its content.
pub(crate) type NewBlob = (BlobHash, Vec<u8>);
/// What a reference to a blob stands for.
type ReadBlob<'a> = dyn Fn(&Payload) -> Result<Payload, StorageError> + 'a;

impl JournalOptions {
    /// Whether a turn whose encoding has this length may hold a payload that must be transformed.
    pub(crate) fn transforms(&self, encoded_length: usize) -> bool {
        !self.codec.is_empty() || encoded_length > self.blob_above
    }
    /// The turn for the disk, and the blobs it needs.
    pub(crate) fn stored(&self, turn: &Turn) -> Result<(Turn, Vec<NewBlob>), StorageError> {
        let (mut stored, mut blobs, mut failed) = (turn.clone(), Vec::new(), None);
        stored.payloads_mut(&mut |event, payload| {
            if let Err(why) = self.store_payload(PayloadPlace { run: turn.run, event }, payload, &mut blobs) {
                failed.get_or_insert(StorageError::PayloadCodec { run: turn.run, event, why });
            }
        });
        failed.map_or(Ok((stored, blobs)), Err)
    }

    fn store_payload(
        &self,
        place: PayloadPlace,
        payload: &mut Payload,
        blobs: &mut Vec<NewBlob>,
    ) -> Result<(), CodecError> {
        self.codec.encode(place, payload)?;
        if payload.len() > self.blob_above {
            let content = pack(payload);
            let hash = BlobHash::of(&content);
            let reference = [hash.0.as_slice(), &(content.len() as u64).to_be_bytes()].concat();
            *payload = Payload { encoding: Cow::Borrowed(ENCODING_BLOB), data: reference.into() };
            blobs.push((hash, content));
        }
        Ok(())
    }

    /// The turn as it was committed, from the disk.
    pub(crate) fn plain(&self, medium: &dyn Log, turn: Turn) -> Result<Turn, StorageError> {
        self.plain_by(&|reference| read_blob(medium, reference), turn)
    }

    /// The same, with a mark in the place of each payload whose blob is lost or cannot be read: to be shown, and never to be
    /// decided on.
    pub(crate) fn plain_with_gaps(&self, medium: &dyn Log, turn: Turn) -> Result<Turn, StorageError> {
        let marked = |why, reference: &Payload| blob_of(reference).map(Payload::lost_blob).ok_or(why);
        self.plain_by(&|reference| read_blob(medium, reference).or_else(|why| marked(why, reference)), turn)
    }

    fn plain_by(&self, blob: &ReadBlob<'_>, mut turn: Turn) -> Result<Turn, StorageError> {
        let (run, mut failed) = (turn.run, None);
        turn.payloads_mut(&mut |event, payload| {
            if failed.is_none() {
                failed = self.plain_payload(blob, PayloadPlace { run, event }, payload).err();
            }
        });
        failed.map_or(Ok(turn), Err)
    }

    fn plain_payload(
        &self,
        blob: &ReadBlob<'_>,
        place: PayloadPlace,
        payload: &mut Payload,
    ) -> Result<(), StorageError> {
        if payload.encoding == ENCODING_BLOB {
            *payload = blob(payload).map_err(|why| why.of_run(place.run))?;
        }
        let PayloadPlace { run, event } = place;
        self.codec.decode(place, payload).map_err(|why| StorageError::PayloadCodec { run, event, why })
    }

    /// Makes the memo of a stored turn plain: all that the index keeps of payloads. Reads no other payload, so that
    /// recovery touches no blobs.
    pub(crate) fn plain_memo(&self, medium: &dyn Log, turn: &mut Turn) -> Result<(), StorageError> {
        let (run, first) = (turn.run, turn.first_event.0);
        // One that is lost costs its run, not the store (G28). A read that fails costs nothing yet: it is tried again.
        let lost = |reference: &Payload| blob_of(reference).map(Payload::lost_blob);
        let blob = |reference: &Payload| match read_blob(medium, reference) {
            Err(why) if why.is_damage() => lost(reference).ok_or(why),
            read => read,
        };
        for (event, id) in turn.events.iter_mut().zip(first..) {
            let memo: Option<&mut Memo> = match event {
                EventKind::WorkflowExecutionStarted(started) => Some(&mut started.memo),
                EventKind::WorkflowPropertiesModified { memo } => Some(memo),
                _ => None,
            };
            for payload in memo.into_iter().flat_map(|memo| memo.values_mut()) {
                self.plain_payload(&blob, PayloadPlace { run, event: EventId(id) }, payload)?;
            }
        }
        Ok(())
    }

    /// Bytes that belong to a run but to no event (snapshots, the memo in the index), through the codecs.
    pub(crate) fn seal(&self, run: RunId, payload: &mut Payload) -> Result<(), StorageError> {
        let place = PayloadPlace { run, event: EventId(0) };
        let failed = |why| StorageError::PayloadCodec { run, event: place.event, why };
        self.codec.encode(place, payload).map_err(failed)
    }
    pub(crate) fn unseal(&self, run: RunId, payload: &mut Payload) -> Result<(), StorageError> {
        let place = PayloadPlace { run, event: EventId(0) };
        let failed = |why| StorageError::PayloadCodec { run, event: place.event, why };
        self.codec.decode(place, payload).map_err(failed)
    }
}

/// Whether an encoded turn may hold a user payload that would be mistaken for a stored one: one whose encoding has the
/// name of a wrapper. Looks for the name as rmp writes a short text; a false alarm only costs a second encoding.
pub(crate) fn may_imitate(encoded: &[u8]) -> bool {
    const NAMES: [&str; 4] = [ENCODING_LZ4, ENCODING_ENCRYPTED, ENCODING_ESCAPED, ENCODING_BLOB];
    encoded.iter().enumerate().any(|(at, byte)| {
        // 0xa0 to 0xbf begin a text of up to 31 bytes.
        (0xa3..=0xb1).contains(byte)
            && NAMES
                .iter()
                .any(|name| usize::from(byte & 0x1f) == name.len() && encoded[at + 1..].starts_with(name.as_bytes()))
    })
}

/// The hash in a blob reference.
pub(crate) fn blob_of(payload: &Payload) -> Option<BlobHash> {
    if payload.encoding != ENCODING_BLOB {
        return None;
    }
    payload.data.get(..32).and_then(|hash| hash.try_into().ok()).map(BlobHash)
}

/// Puts a mark in the place of each reference to a blob that is lost. Says whether there was one.
pub(crate) fn mark_lost(turn: &mut Turn, lost: &BTreeSet<BlobHash>) -> bool {
    let mut found = false;
    turn.payloads_mut(&mut |_, payload| {
        if let Some(hash) = blob_of(payload).filter(|hash| lost.contains(hash)) {
            *payload = Payload::lost_blob(hash);
            found = true;
        }
    });
    found
}

/// The blobs a stored turn refers to.
pub(crate) fn blobs_of(turn: &mut Turn) -> Vec<BlobHash> {
    let mut found = Vec::new();
    turn.payloads_mut(&mut |_, payload| found.extend(blob_of(payload)));
    found
}

/// Reads a blob and checks it against its name.
pub(crate) fn read_blob(medium: &dyn Log, reference: &Payload) -> Result<Payload, StorageError> {
    let cut_off = || StorageError::corrupt("payload blob", medium.location(), "the reference to it is cut off");
    let hash = blob_of(reference).ok_or_else(cut_off)?;
    let corrupt = |detail: &str| StorageError::corrupt("payload blob", medium.file_of_blob(&hash), detail);
    let content = medium.blob(&hash)?.ok_or_else(|| corrupt("it is missing"))?;
    if BlobHash::of(&content) != hash {
        return Err(corrupt("at byte 0: it has other content than its name says"));
    }
    unpack(&content).ok_or_else(|| corrupt("at byte 0: it holds no payload"))
}
