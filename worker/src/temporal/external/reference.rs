//! What stands in a message for a payload that is kept in a file, in the form that the official SDKs have for it.
//!
//! Invariant: it names the driver, the hash and the length of what is in the file, and says whether a codec made that. Both forms
//! that the SDKs write are read; one of theirs that names another driver is theirs to read.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};
use temporalio_common::protos::temporal::api::common::v1::Payload;
use temporalio_common::protos::temporal::api::common::v1::payload::ExternalPayloadDetails;

use super::ExternalError;

/// The name of our driver.
pub(super) const DRIVER: &str = "bosun.directory";
const ENCODING: &str = "encoding";
const PROTOBUF: &[u8] = b"json/protobuf";
const MESSAGE_TYPE: &str = "messageType";
const REFERENCE_TYPE: &[u8] = b"temporal.api.sdk.v1.ExternalStorageReference";
/// What SDKs wrote before there was a message for it.
const EARLIER: &[u8] = b"json/external-storage-reference";
const SHA256: &str = "sha256";

/// Which file, and what it has to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reference {
    /// In hexadecimal digits.
    pub(super) hash: String,
    pub(super) length: u64,
    /// Compressed and encrypted.
    pub(super) coded: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Written {
    #[serde(alias = "driver_name")]
    driver_name: String,
    #[serde(alias = "claim_data", default)]
    claim_data: BTreeMap<String, String>,
    #[serde(alias = "driver_claim", default, skip_serializing)]
    driver_claim: Option<EarlierClaim>,
}

#[derive(Deserialize)]
struct EarlierClaim {
    #[serde(default)]
    claim_data: BTreeMap<String, String>,
}

impl Reference {
    pub(super) fn of(hash: String, length: usize, coded: bool) -> Reference {
        Reference { hash, length: length as u64, coded }
    }

    /// As it goes into the message; `size` is what the payload has there.
    pub(super) fn payload(&self, size: usize) -> Payload {
        let mut claim_data = BTreeMap::from([
            ("hash_algorithm".to_owned(), SHA256.to_owned()),
            ("hash_value".to_owned(), self.hash.clone()),
            ("length".to_owned(), self.length.to_string()),
        ]);
        if self.coded {
            claim_data.insert("coded".to_owned(), true.to_string());
        }
        let written = Written { driver_name: DRIVER.to_owned(), claim_data, driver_claim: None };
        let size_bytes = i64::try_from(size).unwrap_or(i64::MAX);
        Payload {
            metadata: HashMap::from([
                (ENCODING.to_owned(), PROTOBUF.to_vec()),
                (MESSAGE_TYPE.to_owned(), REFERENCE_TYPE.to_vec()),
            ]),
            data: serde_json::to_vec(&written).unwrap_or_default(),
            external_payloads: vec![ExternalPayloadDetails { size_bytes }],
        }
    }

    /// The reference that a payload is, if it is one.
    pub(super) fn read(payload: &Payload) -> Option<Result<Reference, ExternalError>> {
        let encoding = payload.metadata.get(ENCODING)?.as_slice();
        let is_reference = encoding == EARLIER
            || (encoding == PROTOBUF && payload.metadata.get(MESSAGE_TYPE).is_some_and(|name| name == REFERENCE_TYPE));
        is_reference.then(|| Reference::parse(&payload.data))
    }

    fn parse(data: &[u8]) -> Result<Reference, ExternalError> {
        let malformed = |why: String| ExternalError::Malformed { why };
        let written: Written = serde_json::from_slice(data).map_err(|why| malformed(why.to_string()))?;
        if written.driver_name != DRIVER {
            return Err(ExternalError::OtherDriver { driver: written.driver_name });
        }
        let claims = written.driver_claim.map_or(written.claim_data, |claim| claim.claim_data);
        let claim = |name: &str| claims.get(name).map(String::as_str).unwrap_or_default();
        let hash = claim("hash_value");
        if claim("hash_algorithm") != SHA256 || hash.len() != 64 || !hash.bytes().all(|c| c.is_ascii_hexdigit()) {
            return Err(malformed("it has no SHA-256 of what was kept".to_owned()));
        }
        let length = claim("length").parse().map_err(|_| malformed("it has no length of what was kept".to_owned()))?;
        Ok(Reference { hash: hash.to_ascii_lowercase(), length, coded: claim("coded") == true.to_string() })
    }
}
