//! One request to a provider over HTTP, bounded in memory and time.
//!
//! Invariant: the address is checked as in [`crate::capability::http`] (G36), and no redirect is followed: it would carry
//! key and conversation elsewhere. A body is counted after decompression (G39), and a silence ends the exchange. Of the
//! headers only those are kept that somebody reads; they hold no key.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Response, Url};
use serde::{Deserialize, Serialize};

use super::call::code;
use super::{ErrorClass, ModelError};
use crate::capability::http::{HttpConfig, RefusedAddress, guarded_client, innermost};

/// The most of a refusal that is read.
const REFUSAL_BYTES_MAX: usize = 64 * 1024;

/// As long as `event:`, the longest of what is looked for.
const START_BYTES: usize = 6;

/// How long the rest of a stream is waited for after the answer is whole, so that its connection can be used again.
const DRAIN: Duration = Duration::from_millis(200);

/// What an answer may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TransportLimits {
    /// After decompression.
    pub response_bytes: usize,
    /// The longest silence in an answer that has begun. Its beginning is waited for as long as the call may take.
    pub idle_ms: u64,
}

impl Default for TransportLimits {
    fn default() -> Self {
        TransportLimits { response_bytes: 8 * 1024 * 1024, idle_ms: 120_000 }
    }
}

/// Where requests of one provider go.
#[derive(Clone)]
pub(super) struct Endpoint {
    client: Client,
    guard: Arc<HttpConfig>,
    url: Url,
    limits: TransportLimits,
}

impl Endpoint {
    /// `trusted`: the owner of the worker named this host, wherever it is.
    pub(super) fn new(base: &str, path: &str, trusted: bool, limits: TransportLimits) -> Result<Endpoint, ModelError> {
        let wrong = |why: String| ModelError::needs_human(code::CONFIGURATION, format!("the base URL {why}"));
        let url = Url::parse(&format!("{}/{path}", base.trim_end_matches('/')))
            .map_err(|why| wrong(format!("cannot be read: {why}")))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(wrong("is not one of http or https".into()));
        }
        if !url.username().is_empty() || url.password().is_some() || url.query().is_some() {
            return Err(wrong("has a user, password or query; a key is given by reference".into()));
        }
        let host = url.host_str().ok_or_else(|| wrong("has no host".into()))?.to_owned();
        let allow_hosts = if trusted { vec![host] } else { Vec::new() };
        let guard = Arc::new(HttpConfig { allow_hosts, ..HttpConfig::default() });
        let client = guarded_client(&guard).map_err(|why| wrong(format!("cannot be used: {}", why.without_url())))?;
        Ok(Endpoint { client, guard, url, limits })
    }

    /// Sends the request. The time for the head of the answer is the caller's to limit.
    pub(super) async fn post(&self, headers: &Headers, body: Vec<u8>) -> Result<Incoming, ModelError> {
        let host = self.url.host_str().unwrap_or_default();
        self.guard.check_literal(host).map_err(|why| refused_address(&why))?;
        self.send(self.client.post(self.url.clone()).headers(headers.0.clone()).body(body)).await
    }

    /// As [`Endpoint::post`], without a body.
    pub(super) async fn get(&self, headers: &Headers) -> Result<Incoming, ModelError> {
        let host = self.url.host_str().unwrap_or_default();
        self.guard.check_literal(host).map_err(|why| refused_address(&why))?;
        self.send(self.client.get(self.url.clone()).headers(headers.0.clone())).await
    }

    async fn send(&self, request: reqwest::RequestBuilder) -> Result<Incoming, ModelError> {
        let response = request.send().await.map_err(transport)?;
        let status = response.status().as_u16();
        let kept = kept_headers(response.headers());
        let limit = if response.status().is_success() { self.limits.response_bytes } else { REFUSAL_BYTES_MAX };
        Ok(Incoming {
            status,
            headers: kept,
            response,
            idle: Duration::from_millis(self.limits.idle_ms),
            limit,
            read: 0,
            ahead: Vec::new(),
        })
    }
}

/// The headers of a request. A key among them is marked, so that no library prints it.
#[derive(Debug, Default)]
pub(super) struct Headers(HeaderMap);

impl Headers {
    pub(super) fn add(&mut self, name: &'static str, value: &str, is_secret: bool) -> Result<(), ModelError> {
        let mut value = HeaderValue::from_str(value).map_err(|_| {
            ModelError::needs_human(code::CONFIGURATION, format!("the header {name} cannot have this value"))
        })?;
        value.set_sensitive(is_secret);
        self.0.insert(HeaderName::from_static(name), value);
        Ok(())
    }
}

fn kept_headers(headers: &HeaderMap) -> BTreeMap<String, String> {
    let is_kept = |name: &str| {
        matches!(name, "retry-after" | "retry-after-ms" | "x-should-retry" | "content-type")
            || name.contains("ratelimit")
    };
    let text = |value: &HeaderValue| value.to_str().ok().filter(|text| text.len() <= 200).map(str::to_owned);
    let kept = headers.iter().filter(|(name, _)| is_kept(name.as_str()) || **name == CONTENT_TYPE);
    kept.filter_map(|(name, value)| Some((name.as_str().to_owned(), text(value)?))).collect()
}

/// An answer that is being read.
pub(super) struct Incoming {
    pub(super) status: u16,
    pub(super) headers: BTreeMap<String, String>,
    response: Response,
    idle: Duration,
    limit: usize,
    read: usize,
    /// Looked at and not yet handed out.
    ahead: Vec<u8>,
}

impl Incoming {
    pub(super) fn says(&self, content_type: &str) -> bool {
        self.headers.get("content-type").is_some_and(|text| text.to_ascii_lowercase().contains(content_type))
    }

    /// How the body begins, as far as it takes to tell what it is; blanks before that are dropped. It stays to be read.
    pub(super) async fn start(&mut self) -> Result<&[u8], ModelError> {
        while self.ahead.len() < START_BYTES {
            let Some(chunk) = self.receive().await? else { break };
            let is_first = self.ahead.is_empty();
            self.ahead.extend_from_slice(if is_first { chunk.trim_ascii_start() } else { &chunk });
        }
        Ok(&self.ahead)
    }

    /// The next piece; `None` at the end.
    pub(super) async fn chunk(&mut self) -> Result<Option<Bytes>, ModelError> {
        match std::mem::take(&mut self.ahead) {
            none if none.is_empty() => self.receive().await,
            ahead => Ok(Some(ahead.into())),
        }
    }

    async fn receive(&mut self) -> Result<Option<Bytes>, ModelError> {
        let silent = |_| ModelError::retry(code::TIMEOUT, format!("the provider was silent for {:?}", self.idle));
        let chunk = tokio::time::timeout(self.idle, self.response.chunk()).await.map_err(silent)?;
        let Some(chunk) = chunk.map_err(transport)? else { return Ok(None) };
        self.read += chunk.len();
        if self.read > self.limit {
            let message = format!("the answer has more than {} bytes", self.limit);
            return Err(ModelError::fatal(code::TOO_LARGE, message));
        }
        Ok(Some(chunk))
    }

    /// The whole body.
    pub(super) async fn body(&mut self) -> Result<Vec<u8>, ModelError> {
        let mut body = Vec::new();
        while let Some(chunk) = self.chunk().await? {
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }

    /// The body of a refusal as far as it goes: one that is too long, or breaks off, is cut and still says something.
    pub(super) async fn refusal(&mut self) -> String {
        let mut body = Vec::new();
        while let Ok(Some(chunk)) = self.chunk().await {
            body.extend_from_slice(&chunk);
        }
        String::from_utf8_lossy(&body).into_owned()
    }

    /// Reads what is left after the last event, if it comes at once.
    pub(super) async fn drain(mut self) {
        let rest = async { while let Ok(Some(_)) = self.chunk().await {} };
        // Nothing depends on it: the connection is closed instead.
        let _ = tokio::time::timeout(DRAIN, rest).await;
    }
}

fn refused_address(why: &RefusedAddress) -> ModelError {
    ModelError::fatal(
        code::REFUSED_ADDRESS,
        format!(
            "{} is at {}, which is not a public address; only a base URL that the worker's owner sets may be there",
            why.host, why.address
        ),
    )
}

/// The library's message without its URL, of which only the address is ours to show: the rest may hold secrets.
fn transport(why: reqwest::Error) -> ModelError {
    let address = why.url().map(|url| url.origin()).filter(|origin| origin.is_tuple());
    let address = address.map(|origin| format!(" to {}", origin.ascii_serialization())).unwrap_or_default();
    let why = why.without_url();
    let text = match innermost(&why) {
        Ok(text) => text,
        Err(refused) => return refused_address(refused),
    };
    let code = match () {
        () if why.is_connect() => code::UNREACHABLE,
        () if why.is_timeout() => code::TIMEOUT,
        () => code::TRANSPORT,
    };
    let mut error = ModelError::retry(code, format!("the request{address} failed: {text}"));
    if why.is_builder() {
        error.class = ErrorClass::Fatal;
    }
    error
}
