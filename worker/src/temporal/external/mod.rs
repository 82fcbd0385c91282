//! Payloads that are too large for a cluster: kept in a directory, with a reference in the message instead.
//!
//! ```text
//!   message ──► sizes ──► too large? ──► file, on the disk ──► reference in its place ──► cluster
//!   cluster ──► reference ──► file, checked against its hash ──► payload in its place ──► code, client
//! ```
//!
//! Invariant: a payload is out of the message before the message is sent, and its file is on the disk before that. What comes
//! back is what was sent, or an error that names the file. References have the form of the official SDKs. Search attributes stay
//! where they are: the cluster reads them. Where no directory is named, what no cluster takes is refused by name.

mod files;
mod reference;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bosun_engine::log::CodecError;
use bosun_engine::{EventId, FAILURE_PAYLOAD_TOO_LARGE, Failure, RunId};
use futures_util::future::BoxFuture;
use prost::Message;
use temporalio_common::data_converters::PayloadConversionError;
use temporalio_common::payload_visitor::{AsyncPayloadVisitor, PayloadField, PayloadFieldData, PayloadVisitable};
use temporalio_common::protos::temporal::api::common::v1::Payload;

use super::convert::{payload_in, payload_out};
use super::{MESSAGE_MAX, PAYLOAD_MAX};
use crate::backend::PayloadStore;
use crate::capability::at_rest::{AtRest, AtRestError};
use files::PayloadFiles;
pub(crate) use files::StoreCount;
use reference::Reference;

/// The largest payload that is kept in a file.
const STORED_MAX: usize = 128 * 1024 * 1024;
/// What a message has beside its payloads, and what Core adds to it.
const MESSAGE_REST: usize = 256 * 1024;
/// About what a reference takes; what is not larger stays where it is.
const REFERENCE: usize = 1024;
/// The type of the failure of an attempt whose payloads cannot be had.
pub(super) const FAILURE_PAYLOAD_STORE: &str = "PayloadStore";
/// The same payload is the same file, whatever run it belongs to.
const PLACE: bosun_engine::log::PayloadPlace =
    bosun_engine::log::PayloadPlace { run: RunId([0; 16]), event: EventId(0) };

/// Why a payload cannot be kept, or be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ExternalError {
    #[error(
        "a payload is in the file {}, which is not there: mount the directory that the worker wrote to, or put the file back \
         from a copy; what waits for it goes on by itself", path.display()
    )]
    Missing { path: PathBuf },
    #[error(
        "the file {} has been changed: it was {length} bytes of SHA-256 {hash}, and is not; put it back from a copy, and what \
         waits for it goes on by itself", path.display()
    )]
    Altered { path: PathBuf, hash: String, length: u64 },
    #[error(
        "a payload is kept in a directory of Bosun's (SHA-256 {hash}), and none is named here: name it with --payload-store or \
         BOSUN_PAYLOAD_STORE"
    )]
    NotNamed { hash: String },
    #[error(
        "a payload is kept by the storage driver {driver:?} of another SDK, which Bosun cannot read; a worker of that SDK can"
    )]
    OtherDriver { driver: String },
    #[error("the reference to a payload that is kept elsewhere cannot be read: {why}")]
    Malformed { why: String },
    #[error("the file {}: {why}", path.display())]
    Codec { path: PathBuf, why: CodecError },
    #[error("{}: {why}; see whether the directory is mounted, has room, and belongs to this user", path.display())]
    Io { path: PathBuf, why: String },
    #[error(transparent)]
    Keys(AtRestError),
    /// No cluster takes it, and it is not to be kept elsewhere.
    #[error(
        "a payload has {length} bytes, and a cluster takes {limit} at most; name a directory for large payloads with \
         --payload-store, or keep the data elsewhere and give a reference to it"
    )]
    TooLarge { length: usize, limit: usize },
    #[error(
        "the payloads of one message have {length} bytes, and a cluster takes {limit} at most; name a directory for large \
         payloads with --payload-store, or keep the data elsewhere and give references to it"
    )]
    MessageTooLarge { length: usize, limit: usize },
}

impl ExternalError {
    /// As the end of an attempt. What is missing may come back; what is too large does not shrink.
    pub(super) fn failure(&self) -> Failure {
        match self {
            ExternalError::TooLarge { .. } | ExternalError::MessageTooLarge { .. } => {
                Failure::application(FAILURE_PAYLOAD_TOO_LARGE, self.to_string()).non_retryable()
            }
            _ => Failure::application(FAILURE_PAYLOAD_STORE, self.to_string()),
        }
    }
}

/// What becomes of large payloads of a connection. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct External {
    store: Option<Arc<Store>>,
}

struct Store {
    files: PayloadFiles,
    above: usize,
    at_rest: AtRest,
    /// The directory says which key it is written with.
    noted: AtomicBool,
}

impl External {
    /// With the directory, if one is named, and the keys of what is in it.
    ///
    /// # Errors
    /// It was written with a key that is not there.
    pub(super) fn new(place: Option<&PayloadStore>, at_rest: AtRest) -> Result<External, AtRestError> {
        let Some(PayloadStore { directory, above }) = place else { return Ok(External::default()) };
        at_rest.fits(directory)?;
        let files = PayloadFiles::new(directory.clone());
        let store = Store { files, above: *above, at_rest, noted: AtomicBool::new(false) };
        Ok(External { store: Some(Arc::new(store)) })
    }

    /// Whether large payloads have a place.
    pub(super) fn has_store(&self) -> bool {
        self.store.is_some()
    }

    /// The message as it can be sent: what is too large is in files, and they are on the disk.
    ///
    /// # Errors
    /// A file cannot be written; without a directory, a payload or the whole is too large.
    pub(super) async fn seal<M: PayloadVisitable + Message>(&self, mut message: M) -> Result<M, ExternalError> {
        let mut sizes = Sizes::default();
        visit(&mut message, &mut sizes).await?;
        let Some(store) = &self.store else {
            let whole = message.encoded_len();
            return match sizes.data.into_iter().max() {
                Some(length) if length > PAYLOAD_MAX => Err(ExternalError::TooLarge { length, limit: PAYLOAD_MAX }),
                _ if whole > MESSAGE_MAX => Err(ExternalError::MessageTooLarge { length: whole, limit: MESSAGE_MAX }),
                _ => Ok(message),
            };
        };
        let bound = bound_of(sizes.encoded, message.encoded_len(), store.above);
        if let Some(bound) = bound {
            visit(&mut message, &mut Sealing { store: store.clone(), bound, failed: None }).await?;
        }
        Ok(message)
    }

    /// One payload, on this thread.
    ///
    /// # Errors
    /// As [`seal`](Self::seal).
    pub(super) fn seal_now(&self, payload: Payload) -> Result<Payload, ExternalError> {
        match &self.store {
            Some(store) if payload.encoded_len() > store.above => store.seal(&payload),
            _ => Ok(payload),
        }
    }

    /// Puts what is kept in files back in its place.
    ///
    /// # Errors
    /// One of them cannot be had.
    pub(super) async fn open<M: PayloadVisitable>(&self, message: &mut M) -> Result<(), ExternalError> {
        visit(message, &mut Opening { store: self.store.clone(), strict: true, failed: None }).await
    }

    /// The same; what cannot be had stays a reference. The first reason, if there is one.
    pub(super) async fn open_some<M: PayloadVisitable>(&self, message: &mut M) -> Option<ExternalError> {
        let mut opening = Opening { store: self.store.clone(), strict: false, failed: None };
        let stopped = visit(message, &mut opening).await.err();
        opening.failed.or(stopped)
    }
}

/// What is longer goes into files, so that the message can be sent; nothing, if it can as it is.
fn bound_of(mut sizes: Vec<usize>, whole: usize, above: usize) -> Option<usize> {
    sizes.sort_unstable_by_key(|size| std::cmp::Reverse(*size));
    let (mut left, mut bound) = (whole, None);
    for size in sizes {
        if size <= above && (left <= MESSAGE_MAX - MESSAGE_REST || size <= REFERENCE) {
            break;
        }
        left = left.saturating_sub(size.saturating_sub(REFERENCE));
        bound = Some(size - 1);
    }
    bound
}

impl Store {
    fn seal(&self, payload: &Payload) -> Result<Payload, ExternalError> {
        let length = payload.encoded_len();
        if length > STORED_MAX {
            return Err(ExternalError::TooLarge { length, limit: STORED_MAX });
        }
        let (bytes, coded) = self.encoded(payload)?;
        if coded && !self.noted.load(Ordering::Acquire) {
            self.note()?;
        }
        let hash = self.files.put(&bytes)?;
        Ok(Reference::of(hash, bytes.len(), coded).payload(length))
    }

    /// Before the first byte that needs the key.
    fn note(&self) -> Result<(), ExternalError> {
        self.files.make()?;
        self.at_rest.note(self.files.root()).map_err(ExternalError::Keys)?;
        self.noted.store(true, Ordering::Release);
        Ok(())
    }

    /// What is in the file, and whether a codec made it.
    fn encoded(&self, payload: &Payload) -> Result<(Vec<u8>, bool), ExternalError> {
        let plain = payload.encode_to_vec();
        if self.at_rest.codec.is_empty() {
            return Ok((plain, false));
        }
        let mut coded = bosun_engine::Payload::bytes(plain);
        let failed = |why| ExternalError::Codec { path: self.files.root().to_owned(), why };
        self.at_rest.codec.encode(PLACE, &mut coded).map_err(failed)?;
        Ok((payload_out(&coded).encode_to_vec(), true))
    }

    fn open(&self, reference: &Reference) -> Result<Payload, ExternalError> {
        let path = self.files.path(&reference.hash);
        let bytes = self.files.get(reference)?;
        let malformed = |why: String| ExternalError::Malformed { why: format!("{}: {why}", path.display()) };
        let payload = Payload::decode(bytes.as_slice()).map_err(|why| malformed(why.to_string()))?;
        if !reference.coded {
            return Ok(payload);
        }
        let mut coded = payload_in(payload);
        let failed = |why| ExternalError::Codec { path: path.clone(), why };
        self.at_rest.codec.decode(PLACE, &mut coded).map_err(failed)?;
        Payload::decode(&coded.data[..]).map_err(|why| malformed(why.to_string()))
    }
}

/// What is in a directory, without a look into its files.
pub(crate) fn count(directory: &Path) -> Result<StoreCount, ExternalError> {
    PayloadFiles::new(directory.to_owned()).count()
}

/// A reader of payloads that may stop with a reason of ours.
trait Visitor: AsyncPayloadVisitor + Send {
    fn stopped(&mut self) -> Option<ExternalError>;
}

async fn visit<M: PayloadVisitable, V: Visitor>(message: &mut M, visitor: &mut V) -> Result<(), ExternalError> {
    match message.visit_payloads_mut(visitor).await {
        Ok(()) => Ok(()),
        Err(why) => Err(visitor.stopped().unwrap_or_else(|| ExternalError::Malformed { why: why.to_string() })),
    }
}

/// The cluster reads them itself.
fn is_indexed(path: &str) -> bool {
    path.ends_with("SearchAttributes.indexed_fields")
}

fn payloads_of(data: PayloadFieldData<'_>) -> &mut [Payload] {
    match data {
        PayloadFieldData::Single(payload) => std::slice::from_mut(payload),
        PayloadFieldData::Repeated(payloads) => payloads,
        PayloadFieldData::Payloads(payloads) => &mut payloads.payloads,
    }
}

type Visited<'a> = BoxFuture<'a, Result<(), PayloadConversionError>>;

#[derive(Default)]
struct Sizes {
    encoded: Vec<usize>,
    data: Vec<usize>,
}

impl Visitor for Sizes {
    fn stopped(&mut self) -> Option<ExternalError> {
        None
    }
}

impl AsyncPayloadVisitor for Sizes {
    fn visit<'a>(&'a mut self, field: PayloadField<'a>) -> Visited<'a> {
        if !is_indexed(field.path) {
            for payload in payloads_of(field.data) {
                self.encoded.push(payload.encoded_len());
                self.data.push(payload.data.len());
            }
        }
        Box::pin(async { Ok(()) })
    }
}

struct Sealing {
    store: Arc<Store>,
    bound: usize,
    failed: Option<ExternalError>,
}

impl Visitor for Sealing {
    fn stopped(&mut self) -> Option<ExternalError> {
        self.failed.take()
    }
}

impl AsyncPayloadVisitor for Sealing {
    fn visit<'a>(&'a mut self, field: PayloadField<'a>) -> Visited<'a> {
        Box::pin(async move {
            if is_indexed(field.path) {
                return Ok(());
            }
            for payload in payloads_of(field.data) {
                if payload.encoded_len() <= self.bound {
                    continue;
                }
                let (store, taken) = (self.store.clone(), std::mem::take(payload));
                *payload = aside(move || store.seal(&taken)).await.map_err(|why| stop(&mut self.failed, why))?;
            }
            Ok(())
        })
    }
}

struct Opening {
    store: Option<Arc<Store>>,
    /// Whether the first that cannot be had ends it.
    strict: bool,
    failed: Option<ExternalError>,
}

impl Visitor for Opening {
    fn stopped(&mut self) -> Option<ExternalError> {
        self.failed.take()
    }
}

impl AsyncPayloadVisitor for Opening {
    fn visit<'a>(&'a mut self, field: PayloadField<'a>) -> Visited<'a> {
        Box::pin(async move {
            for payload in payloads_of(field.data) {
                let opened = match Reference::read(payload) {
                    None => continue,
                    Some(Err(why)) => Err(why),
                    Some(Ok(reference)) => match self.store.clone() {
                        Some(store) => aside(move || store.open(&reference)).await,
                        None => Err(ExternalError::NotNamed { hash: reference.hash }),
                    },
                };
                match opened {
                    Ok(opened) => *payload = opened,
                    Err(why) if self.strict => return Err(stop(&mut self.failed, why)),
                    Err(why) => _ = self.failed.get_or_insert(why),
                }
            }
            Ok(())
        })
    }
}

/// Files are read and written away from the threads that poll.
async fn aside<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ExternalError> + Send + 'static,
) -> Result<T, ExternalError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|why| Err(ExternalError::Malformed { why: why.to_string() }))
}

/// The reason is ours; who visits hears only that it is over.
fn stop(failed: &mut Option<ExternalError>, why: ExternalError) -> PayloadConversionError {
    *failed = Some(why);
    PayloadConversionError::WrongEncoding
}

#[cfg(test)]
mod tests;
