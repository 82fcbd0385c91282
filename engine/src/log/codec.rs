//! Payload codecs: what happens to user bytes between the run and the disk (E31).
//!
//! A chain of [`PayloadCodec`]s is applied in order on the way in and undone by name on the way out. Each stage wraps
//! the payload before it, encoding name included, so that the original comes back bit for bit.
//!
//! Invariant: what is on disk says which codecs made it, so a changed configuration reads old data; a missing or wrong
//! key is a typed error, never other bytes. Encryption is bound to run and event: a payload copied elsewhere does not
//! decrypt. Identifiers, names and search attributes stay readable. Blobs come after the chain and are not its business.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use chacha20poly1305::aead::{Aead, Payload as Sealed};
use chacha20poly1305::{KeyInit, XChaCha20Poly1305, XNonce};

use crate::vocabulary::{ENCODING_BLOB, EventId, Payload, RunId};

pub(crate) const ENCODING_LZ4: &str = "lz4";
pub(crate) const ENCODING_ENCRYPTED: &str = "xchacha20poly1305";
/// Around a user payload whose own encoding has the name of a wrapper.
pub(crate) const ENCODING_ESCAPED: &str = "escaped";

/// The place a payload belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PayloadPlace {
    /// The run whose history holds it.
    pub run: RunId,
    /// Its event; with the run it is authenticated, so that ciphertext cannot be moved.
    pub event: EventId,
}

/// Why a payload cannot be written or read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// The key ring of this worker lacks the key.
    #[error("it is encrypted with the key {key:?}, which is not in the key ring")]
    MissingKey {
        /// The name of the key.
        key: String,
    },
    /// The key does not open it.
    #[error("it does not decrypt with the key {key:?}: wrong key, damaged, or moved from another place")]
    NotAuthentic {
        /// The name of the key.
        key: String,
    },
    /// No codec of the chain reads it.
    #[error("it is encoded as {encoding:?} and no codec of this program reads that")]
    UnknownEncoding {
        /// The encoding that it names.
        encoding: String,
    },
    /// The codec cannot read its own format.
    #[error("its {encoding} data is damaged: {detail}")]
    Malformed {
        /// The codec's encoding.
        encoding: &'static str,
        /// What is wrong with the data.
        detail: String,
    },
    /// A codec could not write it.
    #[error("it names the codec {codec} and could not be encoded: {detail}")]
    Encode {
        /// The codec's encoding.
        codec: &'static str,
        /// What it said.
        detail: String,
    },
}

/// One transformation of payloads. `decode` must undo `encode` exactly.
pub trait PayloadCodec: Send + Sync + std::fmt::Debug {
    /// The encoding name this codec writes; one that is its alone.
    fn encoding(&self) -> &'static str;
    /// The wrapped payload, or nothing to leave it as it is.
    fn encode(&self, place: PayloadPlace, payload: &Payload) -> Result<Option<Payload>, CodecError>;
    /// Undoes [`encode`](Self::encode) of a payload that has this codec's encoding.
    fn decode(&self, place: PayloadPlace, payload: &Payload) -> Result<Payload, CodecError>;
}

/// The codecs in the order in which they are applied. Compression is always readable, whether it is applied or not.
#[derive(Debug, Clone, Default)]
pub struct CodecChain {
    codecs: Vec<Arc<dyn PayloadCodec>>,
}

impl CodecChain {
    /// These codecs in this order; reading goes the other way.
    pub fn new(codecs: Vec<Arc<dyn PayloadCodec>>) -> Self {
        CodecChain { codecs }
    }
    /// These codecs, and then those of this chain.
    pub fn after(&self, first: &[Arc<dyn PayloadCodec>]) -> CodecChain {
        CodecChain { codecs: first.iter().chain(&self.codecs).cloned().collect() }
    }
    /// Whether payloads are stored as they come.
    pub fn is_empty(&self) -> bool {
        self.codecs.is_empty()
    }
    /// The payload as the chain makes it; [`decode`](Self::decode) at the same place brings it back.
    ///
    /// # Errors
    /// A codec could not write it.
    pub fn encode(&self, place: PayloadPlace, payload: &mut Payload) -> Result<(), CodecError> {
        if self.is_wrapper(&payload.encoding) {
            *payload = wrapped(ENCODING_ESCAPED, payload);
        }
        for codec in &self.codecs {
            if let Some(encoded) = codec.encode(place, payload)? {
                *payload = encoded;
            }
        }
        Ok(())
    }
    /// The payload that [`encode`](Self::encode) was given, whichever codecs of the chain made this one.
    ///
    /// # Errors
    /// A codec or a key is missing, or the data is not what it was.
    pub fn decode(&self, place: PayloadPlace, payload: &mut Payload) -> Result<(), CodecError> {
        while self.is_wrapper(&payload.encoding) {
            if payload.encoding == ENCODING_ESCAPED {
                *payload = unwrapped(ENCODING_ESCAPED, &payload.data)?;
                return Ok(());
            }
            let codec = self.codecs.iter().find(|codec| payload.encoding == codec.encoding());
            *payload = match codec {
                Some(codec) => codec.decode(place, payload)?,
                None if payload.encoding == ENCODING_LZ4 => Compression::default().decode(place, payload)?,
                None if payload.encoding == ENCODING_ENCRYPTED => {
                    Err(CodecError::MissingKey { key: key_name(payload) })?
                }
                None => Err(CodecError::UnknownEncoding { encoding: payload.encoding.clone().into_owned() })?,
            };
        }
        Ok(())
    }
    pub(crate) fn is_wrapper(&self, encoding: &str) -> bool {
        matches!(encoding, ENCODING_LZ4 | ENCODING_ENCRYPTED | ENCODING_ESCAPED | ENCODING_BLOB)
            || self.codecs.iter().any(|codec| codec.encoding() == encoding)
    }
}

/// A payload as the data of another: length of the encoding name, the name, the data.
fn wrapped(encoding: &'static str, inner: &Payload) -> Payload {
    Payload { encoding: Cow::Borrowed(encoding), data: pack(inner).into() }
}

pub(crate) fn pack(inner: &Payload) -> Vec<u8> {
    let mut data = Vec::with_capacity(inner.data.len() + inner.encoding.len() + 2);
    super::refs::put_varint(&mut data, inner.encoding.len() as u64);
    data.extend_from_slice(inner.encoding.as_bytes());
    data.extend_from_slice(&inner.data);
    data
}

fn unwrapped(encoding: &'static str, data: &[u8]) -> Result<Payload, CodecError> {
    unpack(data).ok_or(CodecError::Malformed { encoding, detail: "no payload is inside".into() })
}

pub(crate) fn unpack(data: &[u8]) -> Option<Payload> {
    let mut rest = data;
    let length = usize::try_from(super::refs::take_varint(&mut rest)?).ok()?;
    if length > rest.len() {
        return None;
    }
    let (name, data) = rest.split_at(length);
    let name = std::str::from_utf8(name).ok()?;
    let encoding = match name {
        crate::vocabulary::ENCODING_JSON => Cow::Borrowed(crate::vocabulary::ENCODING_JSON),
        crate::vocabulary::ENCODING_BYTES => Cow::Borrowed(crate::vocabulary::ENCODING_BYTES),
        name => Cow::Owned(name.to_owned()),
    };
    Some(Payload { encoding, data: Bytes::copy_from_slice(data) })
}

/// lz4 above a size, where it makes the payload smaller.
#[derive(Debug, Clone)]
pub struct Compression {
    /// Payloads that are not longer than this, in bytes, are left as they are.
    pub above: usize,
}

/// No payload grows beyond this when it is decompressed; damaged length fields must not exhaust memory.
const DECOMPRESSED_MAX: usize = 256 * 1024 * 1024;

impl Default for Compression {
    fn default() -> Self {
        Compression { above: 1_024 }
    }
}

impl PayloadCodec for Compression {
    fn encoding(&self) -> &'static str {
        ENCODING_LZ4
    }
    fn encode(&self, _place: PayloadPlace, payload: &Payload) -> Result<Option<Payload>, CodecError> {
        if payload.len() <= self.above || payload.len() >= DECOMPRESSED_MAX - 1_024 {
            return Ok(None);
        }
        let data = lz4_flex::compress_prepend_size(&pack(payload));
        let smaller = data.len() < payload.len();
        Ok(smaller.then(|| Payload { encoding: Cow::Borrowed(ENCODING_LZ4), data: data.into() }))
    }
    fn decode(&self, _place: PayloadPlace, payload: &Payload) -> Result<Payload, CodecError> {
        let data =
            decompress(&payload.data).map_err(|detail| CodecError::Malformed { encoding: ENCODING_LZ4, detail })?;
        unwrapped(ENCODING_LZ4, &data)
    }
}

/// lz4 with the length before it, refusing absurd lengths.
pub(crate) fn decompress(data: &[u8]) -> Result<Vec<u8>, String> {
    let (length, body) = lz4_flex::block::uncompressed_size(data).map_err(|why| why.to_string())?;
    // lz4 cannot shrink by more than a factor of about 255.
    if length > DECOMPRESSED_MAX || length / 255 > body.len() {
        return Err(format!("{} bytes cannot hold {length}", body.len()));
    }
    lz4_flex::block::decompress(body, length).map_err(|why| why.to_string())
}

/// XChaCha20-Poly1305 with a ring of keys: writes with the primary one, reads with the one that is named.
///
/// The nonce is derived from key, place and plain text (as in SIV constructions), so that it needs no random source,
/// cannot repeat for different texts, and the same turn is always the same bytes on disk.
#[derive(Clone)]
pub struct Encryption {
    primary: String,
    keys: BTreeMap<String, [u8; 32]>,
}

impl std::fmt::Debug for Encryption {
    /// Names, never keys.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<&String> = self.keys.keys().collect();
        f.debug_struct("Encryption").field("primary", &self.primary).field("keys", &names).finish()
    }
}

const NONCE: usize = 24;

impl Encryption {
    /// New payloads are encrypted with `key`. The name is stored beside them, at most 255 bytes.
    pub fn new(name: impl Into<String>, key: [u8; 32]) -> Self {
        let primary = name.into();
        Encryption { keys: BTreeMap::from([(primary.clone(), key)]), primary }
    }
    /// Adds a key that only reads: the one in use before a rotation.
    pub fn also_reads(mut self, name: impl Into<String>, key: [u8; 32]) -> Self {
        self.keys.entry(name.into()).or_insert(key);
        self
    }
}

fn bound_to(place: PayloadPlace) -> [u8; 24] {
    let mut data = [0u8; 24];
    data[..16].copy_from_slice(&place.run.0);
    data[16..].copy_from_slice(&place.event.0.to_be_bytes());
    data
}

fn nonce_of(key: &[u8; 32], aad: &[u8], text: &[u8]) -> [u8; NONCE] {
    let mut hasher = blake3::Hasher::new_keyed(&blake3::derive_key("bosun 2026 payload nonce", key));
    hasher.update(aad).update(text);
    let mut nonce = [0u8; NONCE];
    nonce.copy_from_slice(&hasher.finalize().as_bytes()[..NONCE]);
    nonce
}

/// The name of the key, which stands first in the data.
fn key_name(payload: &Payload) -> String {
    unpack(&payload.data).map_or_else(|| "?".into(), |inner| inner.encoding.into_owned())
}

impl PayloadCodec for Encryption {
    fn encoding(&self) -> &'static str {
        ENCODING_ENCRYPTED
    }
    fn encode(&self, place: PayloadPlace, payload: &Payload) -> Result<Option<Payload>, CodecError> {
        let failed = |detail: &str| CodecError::Encode { codec: ENCODING_ENCRYPTED, detail: detail.into() };
        let key = self.keys.get(&self.primary).ok_or_else(|| failed("the primary key is not in the ring"))?;
        let (aad, text) = (bound_to(place), pack(payload));
        let nonce = nonce_of(key, &aad, &text);
        let sealed = XChaCha20Poly1305::new(key.into())
            .encrypt(XNonce::from_slice(&nonce), Sealed { msg: &text, aad: &aad })
            .map_err(|_| failed("the cipher refused it"))?;
        let data = [nonce.as_slice(), sealed.as_slice()].concat();
        let named = Payload { encoding: Cow::Owned(self.primary.clone()), data: data.into() };
        Ok(Some(wrapped(ENCODING_ENCRYPTED, &named)))
    }
    fn decode(&self, place: PayloadPlace, payload: &Payload) -> Result<Payload, CodecError> {
        let named = unwrapped(ENCODING_ENCRYPTED, &payload.data)?;
        let name = named.encoding.into_owned();
        let Some(key) = self.keys.get(&name) else {
            return Err(CodecError::MissingKey { key: name });
        };
        if named.data.len() < NONCE {
            return Err(CodecError::NotAuthentic { key: name });
        }
        let (nonce, sealed) = named.data.split_at(NONCE);
        let text = XChaCha20Poly1305::new(key.into())
            .decrypt(XNonce::from_slice(nonce), Sealed { msg: sealed, aad: &bound_to(place) })
            .map_err(|_| CodecError::NotAuthentic { key: name })?;
        unwrapped(ENCODING_ENCRYPTED, &text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: PayloadPlace = PayloadPlace { run: RunId([1; 16]), event: EventId(7) };

    fn round_trip(writer: &CodecChain, reader: &CodecChain, payload: &Payload) -> Result<Payload, CodecError> {
        let mut stored = payload.clone();
        writer.encode(HERE, &mut stored)?;
        reader.decode(HERE, &mut stored)?;
        Ok(stored)
    }
    fn encrypting(codec: Encryption) -> CodecChain {
        CodecChain::new(vec![Arc::new(Compression::default()), Arc::new(codec)])
    }

    /// E31: compression and encryption give back every payload, also one that imitates a stored one.
    #[test]
    fn every_payload_comes_back_bit_for_bit() {
        let chains = [
            CodecChain::default(),
            CodecChain::new(vec![Arc::new(Compression { above: 4 })]),
            encrypting(Encryption::new("k1", [7; 32])),
        ];
        for chain in &chains {
            for encoding in ["json", "bytes", "mine", ENCODING_LZ4, ENCODING_ENCRYPTED, ENCODING_ESCAPED, ENCODING_BLOB]
            {
                for length in [0usize, 5, 5_000] {
                    let payload = Payload { encoding: encoding.to_owned().into(), data: vec![b'x'; length].into() };
                    assert_eq!(round_trip(chain, chain, &payload).as_ref(), Ok(&payload));
                }
            }
        }
    }

    /// E31: after a rotation new payloads use the new key and old ones stay readable while the old key is in the ring.
    #[test]
    fn keys_rotate() {
        let old = encrypting(Encryption::new("k1", [1; 32]));
        let rotated = encrypting(Encryption::new("k2", [2; 32]).also_reads("k1", [1; 32]));
        let retired = encrypting(Encryption::new("k2", [2; 32]));
        let payload = Payload::raw_json("\"secret\"");
        assert_eq!(round_trip(&old, &rotated, &payload).as_ref(), Ok(&payload));
        assert_eq!(round_trip(&rotated, &retired, &payload).as_ref(), Ok(&payload));
        assert_eq!(round_trip(&old, &retired, &payload), Err(CodecError::MissingKey { key: "k1".into() }));
        assert_eq!(
            round_trip(&old, &CodecChain::default(), &payload),
            Err(CodecError::MissingKey { key: "k1".into() })
        );
        let wrong = encrypting(Encryption::new("k1", [9; 32]));
        assert_eq!(round_trip(&old, &wrong, &payload), Err(CodecError::NotAuthentic { key: "k1".into() }));
    }

    /// E31: the cipher text is bound to run and event, and shows nothing of the text.
    #[test]
    fn a_payload_moved_elsewhere_does_not_decrypt() {
        let chain = encrypting(Encryption::new("k1", [1; 32]));
        let mut stored = Payload::raw_json("\"canary-1234567890\"");
        chain.encode(HERE, &mut stored).unwrap();
        assert!(!stored.data.windows(6).any(|w| w == b"canary"));
        for place in [PayloadPlace { event: EventId(8), ..HERE }, PayloadPlace { run: RunId([2; 16]), ..HERE }] {
            let mut moved = stored.clone();
            assert_eq!(chain.decode(place, &mut moved), Err(CodecError::NotAuthentic { key: "k1".into() }));
        }
    }

    #[test]
    fn absurd_lengths_are_refused_before_memory_is_taken() {
        let mut data = lz4_flex::compress_prepend_size(b"hello hello hello");
        data[..4].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(decompress(&data).is_err());
    }
}
