//! Payloads: bytes that belong to user code. The engine carries them and never looks inside.
//!
//! Invariant: a payload says how it is encoded, so that every reader can tell JSON from bytes, and a stored one from
//! one that was moved to a blob or encrypted. Encoding and decoding of user types happens at the authoring and client
//! edges with the helpers here; compression, encryption and blobs happen only between the run and the log.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::FieldName;

/// How the bytes of a payload are to be read. `json` and `bytes` are user encodings; the others are storage wrappers
/// that only the log's codec makes and removes.
pub type Encoding = Cow<'static, str>;

/// The data is JSON text, which [`Payload::decode`] reads.
pub const ENCODING_JSON: &str = "json";
/// The data is whatever the user says it is.
pub const ENCODING_BYTES: &str = "bytes";
/// The data is a blob reference: 32 bytes of blake3 hash and the length as u64, big-endian.
pub const ENCODING_BLOB: &str = "blob";

/// The data is the digest of a payload that was left out of an export. Never data of a run.
pub const ENCODING_REDACTED: &str = "redacted";
/// There is no data: damage to the store took it, and a salvage knows only that there was some. It decodes as nothing, so
/// that no code goes on with what it was never given.
pub const ENCODING_LOST: &str = "lost";

/// Bytes with the name of their encoding.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Payload {
    /// How [`data`](Self::data) is to be read.
    pub encoding: Encoding,
    /// Shared: a clone copies no bytes.
    pub data: Bytes,
}

/// A payload that cannot be read as the type the code expects, or a value that cannot be written as a payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PayloadError {
    /// Whether it was a value that could not be written.
    pub writing: bool,
    /// How the payload says it is encoded, or would be.
    pub encoding: String,
    /// Its length in bytes; 0 where a value could not be written.
    pub length: usize,
    /// The Rust type that was to be read or written.
    pub wanted: &'static str,
    /// What the decoder or encoder said.
    pub why: String,
}

/// How the message about a value that cannot be written begins, now and in histories of before.
const WRITING: [&str; 2] =
    ["cannot write a value as json: it is of the type ", "cannot read a json payload of 0 bytes as "];

impl PayloadError {
    /// The message, without the words that say whether this was about reading or writing: those of a value that could not be
    /// written have changed, and histories hold both.
    pub(crate) fn lasting_part(message: &str) -> &str {
        WRITING.iter().find_map(|begins| message.strip_prefix(begins)).unwrap_or(message)
    }
    /// Whether a message is about a value that could not be written.
    pub(crate) fn is_of_writing(message: &str) -> bool {
        message.starts_with(WRITING[0])
    }
}

impl fmt::Display for PayloadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PayloadError { writing, encoding, length, wanted, why } = self;
        match writing {
            true => write!(f, "{}{wanted}: {why}", WRITING[0]),
            false => write!(f, "cannot read a {encoding} payload of {length} bytes as {wanted}: {why}"),
        }
    }
}

impl std::error::Error for PayloadError {}

impl Payload {
    /// The JSON `null`: what a missing input or result is.
    pub fn null() -> Self {
        Payload { encoding: Cow::Borrowed(ENCODING_JSON), data: Bytes::from_static(b"null") }
    }
    /// Bytes that are not JSON. [`Payload::decode`] reads them only if they happen to be.
    pub fn bytes(data: impl Into<Bytes>) -> Self {
        Payload { encoding: Cow::Borrowed(ENCODING_BYTES), data: data.into() }
    }
    /// Text that is already JSON. The caller vouches for it.
    pub fn raw_json(text: impl Into<Bytes>) -> Self {
        Payload { encoding: Cow::Borrowed(ENCODING_JSON), data: text.into() }
    }
    /// Encodes a value as JSON.
    ///
    /// Fails when the value cannot be JSON, for example a map whose keys are neither text nor numbers. JSON has no `NaN` and no
    /// infinity: as serde_json writes them, they become `null`, which reads as `None` where an `Option` is wanted and as
    /// nothing else. To carry one, write it as text.
    pub fn encode<T: Serialize + ?Sized>(value: &T) -> Result<Self, PayloadError> {
        match serde_json::to_vec(value) {
            Ok(data) => Ok(Self::raw_json(data)),
            Err(why) => Err(PayloadError {
                writing: true,
                encoding: ENCODING_JSON.into(),
                length: 0,
                wanted: std::any::type_name::<T>(),
                why: why.to_string(),
            }),
        }
    }
    /// Reads the payload as a user type. `bytes` payloads are readable as JSON text too.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, PayloadError> {
        let wrong = |why: String| PayloadError {
            writing: false,
            encoding: self.encoding.clone().into_owned(),
            length: self.data.len(),
            wanted: std::any::type_name::<T>(),
            why,
        };
        if self.is_lost() {
            return Err(wrong("damage to the store took it; a backup may have it".into()));
        }
        serde_json::from_slice(&self.data).map_err(|why| wrong(why.to_string()))
    }
    /// A payload that damage to the store took.
    pub fn lost() -> Self {
        Payload { encoding: Cow::Borrowed(ENCODING_LOST), data: Bytes::new() }
    }
    /// The same, of which the hash of the blob that held it is known: a backup that has the blob has the payload.
    pub fn lost_blob(hash: impl fmt::Display) -> Self {
        Payload { encoding: Cow::Borrowed(ENCODING_LOST), data: hash.to_string().into() }
    }
    /// Whether damage to the store took what it was.
    pub fn is_lost(&self) -> bool {
        self.encoding == ENCODING_LOST
    }
    /// Bytes of data, without the encoding's name.
    pub fn len(&self) -> usize {
        self.data.len()
    }
    /// Whether there is no data. The JSON `null` has four bytes.
    pub fn is_empty(&self) -> bool {
        self.data.is_empty()
    }
    /// The hash that replay compares: over encoding and bytes.
    pub fn digest(&self) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new();
        hasher.update(self.encoding.as_bytes()).update(&[0]).update(&self.data);
        *hasher.finalize().as_bytes()
    }
    /// The payload as a JSON value for people to read; bytes that are not JSON become `{"encoding", "base16"}`.
    pub fn to_json(&self) -> serde_json::Value {
        if self.encoding == ENCODING_JSON
            && let Ok(value) = serde_json::from_slice(&self.data)
        {
            return value;
        }
        if self.is_lost() && !self.is_empty() {
            return serde_json::json!({ "encoding": ENCODING_LOST, "lost": String::from_utf8_lossy(&self.data) });
        }
        serde_json::json!({ "encoding": self.encoding, "base16": hex(&self.data) })
    }
}

impl Default for Payload {
    fn default() -> Self {
        Self::null()
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match std::str::from_utf8(&self.data) {
            Ok(text) if text.len() <= 120 => write!(f, "{}:{}", self.encoding, text),
            _ => write!(f, "{}:{} bytes", self.encoding, self.data.len()),
        }
    }
}

/// Lower-case hexadecimal digits of some bytes.
pub fn hex(bytes: &[u8]) -> String {
    use fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The bytes of a text of hexadecimal digits, or nothing if it is not one.
pub fn unhex(text: &str) -> Option<Vec<u8>> {
    if !text.is_ascii() || !text.len().is_multiple_of(2) {
        return None;
    }
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).ok()).collect()
}

/// On disk a payload is a pair. In JSON a `json` payload is `{"json": value}`, one that is lost `{"encoding": "lost", "lost"}`
/// with its hash, and every other `{"encoding", "base16"}`, so that exported histories are readable and still exact: JSON
/// whose text would not survive a round trip, or that is nested so deep that a reader of the whole history could refuse it, is
/// written as base16 too.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum ReadablePayload {
    Json { json: serde_json::Value },
    Raw { encoding: String, base16: String },
    Lost { encoding: LostEncoding, lost: String },
}

/// The encoding of what damage to the store took.
#[derive(Serialize, Deserialize)]
enum LostEncoding {
    #[serde(rename = "lost")]
    Lost,
}

#[derive(Serialize, Deserialize)]
struct StoredPayload(Encoding, Bytes);

impl Serialize for Payload {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if !serializer.is_human_readable() {
            return StoredPayload(self.encoding.clone(), self.data.clone()).serialize(serializer);
        }
        if self.encoding == ENCODING_JSON
            && let Ok(json) = serde_json::from_slice::<serde_json::Value>(&self.data)
            && serde_json::to_vec(&json).is_ok_and(|again| again == self.data)
            && !deeper_than(&json, READABLE_DEPTH)
        {
            return ReadablePayload::Json { json }.serialize(serializer);
        }
        if self.is_lost() {
            let lost = String::from_utf8_lossy(&self.data).into_owned();
            return ReadablePayload::Lost { encoding: LostEncoding::Lost, lost }.serialize(serializer);
        }
        ReadablePayload::Raw { encoding: self.encoding.clone().into_owned(), base16: hex(&self.data) }
            .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Payload {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error;
        if !deserializer.is_human_readable() {
            let StoredPayload(encoding, data) = StoredPayload::deserialize(deserializer)?;
            return Ok(Payload { encoding: intern(encoding), data });
        }
        match ReadablePayload::deserialize(deserializer)? {
            ReadablePayload::Json { json } => {
                Ok(Payload::raw_json(serde_json::to_vec(&json).map_err(D::Error::custom)?))
            }
            ReadablePayload::Raw { encoding, base16 } => {
                let data = unhex(&base16).ok_or_else(|| D::Error::custom("base16 text with other characters"))?;
                Ok(Payload { encoding: intern(Cow::Owned(encoding)), data: data.into() })
            }
            ReadablePayload::Lost { encoding: LostEncoding::Lost, lost } => Ok(Payload::lost_blob(lost)),
        }
    }
}

/// The deepest JSON payload that is written readably. JSON readers stop at 128 levels, and a history adds its own around
/// a payload (turns, events, chains of causes).
const READABLE_DEPTH: usize = 48;

fn deeper_than(json: &serde_json::Value, levels: usize) -> bool {
    use serde_json::Value;
    match json {
        Value::Array(items) => levels == 0 || items.iter().any(|item| deeper_than(item, levels - 1)),
        Value::Object(fields) => levels == 0 || fields.values().any(|field| deeper_than(field, levels - 1)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// The common encodings cost no allocation.
fn intern(encoding: Encoding) -> Encoding {
    match encoding.as_ref() {
        ENCODING_JSON => Cow::Borrowed(ENCODING_JSON),
        ENCODING_BYTES => Cow::Borrowed(ENCODING_BYTES),
        ENCODING_BLOB => Cow::Borrowed(ENCODING_BLOB),
        _ => encoding,
    }
}

/// Typed values by name, for filters (`list --query`).
pub type SearchAttributes = BTreeMap<FieldName, SearchValue>;
/// Payloads by name that are shown but not searched.
pub type Memo = BTreeMap<FieldName, Payload>;

/// The value of a search attribute. Floats are compared in filters only, never in decisions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum SearchValue {
    /// `true` or `false`.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A number with a fraction.
    Float(f64),
    /// A text that is compared as a whole.
    Keyword(String),
    /// Several keywords; a filter holds if one of them fits.
    KeywordList(Vec<String>),
    /// A text that filters look for words in.
    Text(String),
    /// A moment; filters write it as RFC 3339.
    Datetime(super::Timestamp),
    /// Removes the attribute when upserted.
    Unset,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_survive_both_formats() {
        for payload in [
            Payload::null(),
            Payload::bytes(vec![0, 255, 7]),
            Payload::raw_json(r#"{ "spaced": 1 }"#),
            Payload::encode(&serde_json::json!({"b": 1, "a": [1.5, null]})).unwrap(),
            Payload::raw_json(format!("{}1{}", "[".repeat(100), "]".repeat(100))),
            Payload { encoding: Cow::Borrowed("lz4"), data: Bytes::from_static(b"xx") },
        ] {
            let json = serde_json::to_string(&payload).unwrap();
            assert_eq!(serde_json::from_str::<Payload>(&json).unwrap(), payload, "{json}");
            let packed = rmp_serde::to_vec(&payload).unwrap();
            assert_eq!(rmp_serde::from_slice::<Payload>(&packed).unwrap(), payload);
        }
    }

    #[test]
    fn a_value_that_cannot_be_written_is_told_as_such() {
        let why = Payload::encode(&BTreeMap::from([((1, 2), 3)])).unwrap_err();
        assert!(why.writing && PayloadError::is_of_writing(&why.to_string()));
        let text = why.to_string();
        assert!(text.starts_with("cannot write a value as json: it is of the type "), "{text}");
        assert!(text.contains("BTreeMap<(i32, i32), i32>: key must be a string"), "{text}");
        // Histories of before say it in other words.
        let before = format!("cannot read a json payload of 0 bytes as {}: {}", why.wanted, why.why);
        assert_eq!(PayloadError::lasting_part(&before), PayloadError::lasting_part(&text));
        // What JSON does not have is null.
        assert_eq!(Payload::encode(&f64::NAN).unwrap(), Payload::null());
    }

    #[test]
    fn a_wrong_type_is_named() {
        let why = Payload::raw_json("\"seven\"").decode::<u32>().unwrap_err();
        assert_eq!(why.wanted, "u32");
        assert!(why.to_string().contains("invalid type: string"), "{why}");
    }
}
