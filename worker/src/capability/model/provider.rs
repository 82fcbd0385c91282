//! A model behind a provider's interface: pace, key, request, answer.
//!
//! Invariant: one call is at most one request. The key is read for it, goes into one header, and is cut out of whatever
//! comes back, tokens and errors included. Whether requests may be made at all is asked first.

use std::collections::BTreeMap;
use std::time::Duration;

use reqwest::Url;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::call::code;
use super::errors::{self, ErrorResponse};
use super::function::show;
use super::pace::{Pace, PaceConfig};
use super::scrub::{ScrubbedSink, of_key};
use super::secret::{Secret, SecretRef};
use super::sse::{Parser, SseError, SseEvent, SseLimits};
use super::transport::{Endpoint, Headers, Incoming, TransportLimits};
use super::wire::{Assembler, cut, feed, malformed};
use super::{
    Answering, ChaosConfig, ChatRequest, ChatResponse, Message, Model, ModelCallContext, ModelError, OutputSchema,
    TokenSink, Wire, limits, probe,
};
use crate::capability::http::now;
use crate::capability::scrub::Scrubber;

/// How long the last count of an answer is waited for that is whole and was counted before its end.
const LAST_COUNT: Duration = Duration::from_secs(1);

/// What the worker's owner says about a provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProviderConfig {
    /// Which API the server speaks.
    pub wire: Wire,
    /// Where its API begins: `http://localhost:11434/v1`.
    pub base_url: String,
    /// Where the key is; none for local servers.
    #[serde(default)]
    pub key: Option<SecretRef>,
    /// The owner named this host, so it may be anywhere: on this machine, in a private network.
    #[serde(default)]
    pub trusted: bool,
    /// Whether answers are asked for as streams.
    #[serde(default = "yes")]
    pub stream: bool,
    /// How an answer under a schema is asked for.
    #[serde(default)]
    pub schemas: SchemaSupport,
    /// How many requests go out at once, and how fast.
    #[serde(default)]
    pub pace: PaceConfig,
    /// How long and how large an answer may be.
    #[serde(default)]
    pub limits: TransportLimits,
    /// Trouble on purpose, around the provider and around what is played of it.
    #[serde(default)]
    pub chaos: Option<ChaosConfig>,
}

fn yes() -> bool {
    true
}

/// What a server makes of a schema. Whatever it is, the answer is checked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SchemaSupport {
    /// It holds the model to it.
    #[default]
    Native,
    /// It knows no schema: the model is asked in words.
    Prompt,
}

impl ProviderConfig {
    /// A provider at a place that the owner names.
    pub fn at(wire: Wire, base_url: impl Into<String>, key: Option<SecretRef>) -> ProviderConfig {
        ProviderConfig {
            wire,
            base_url: base_url.into(),
            key,
            trusted: true,
            stream: true,
            schemas: SchemaSupport::default(),
            pace: PaceConfig::default(),
            limits: TransportLimits::default(),
            chaos: None,
        }
    }
}

impl ProviderConfig {
    /// Where it is, for whoever looks: without what may be a secret there, a user, a password or a query.
    pub fn place(&self) -> String {
        let Ok(mut url) = Url::parse(&self.base_url) else { return "an address that cannot be read".to_owned() };
        if !url.has_host() {
            return format!("{}:…", url.scheme());
        }
        if url.username().is_empty() && url.password().is_none() && url.query().is_none() && url.fragment().is_none() {
            return self.base_url.clone();
        }
        // What has a host can have these taken away.
        let _ = url.set_username("");
        let _ = url.set_password(None);
        url.set_query(None);
        url.set_fragment(None);
        url.into()
    }

    /// Why every call of it is refused, if it is: its address is none that is asked.
    pub fn problem(&self) -> Option<String> {
        self.endpoint(self.wire.path()).err().map(|why| why.message)
    }

    /// A path of the provider's API.
    fn endpoint(&self, path: &str) -> Result<Endpoint, ModelError> {
        // By custom the base of this format has no version; many give one all the same.
        let base = self.base_url.trim_end_matches('/');
        let base = if self.wire == Wire::Anthropic { base.strip_suffix("/v1").unwrap_or(base) } else { base };
        Endpoint::new(base, path, self.trusted, self.limits)
    }
}

/// A provider that can be asked.
pub(super) struct Provider {
    wire: Wire,
    key: Option<SecretRef>,
    stream: bool,
    schemas: SchemaSupport,
    endpoint: Endpoint,
    pace: Pace,
}

impl Provider {
    pub(super) fn new(config: &ProviderConfig) -> Result<Provider, ModelError> {
        let ProviderConfig { wire, base_url: _, key, trusted: _, stream, schemas, pace, limits: _, chaos: _ } = config;
        let endpoint = config.endpoint(wire.path())?;
        let (wire, stream, schemas) = (*wire, *stream, *schemas);
        Ok(Provider { wire, key: key.clone(), stream, schemas, endpoint, pace: Pace::new(*pace) })
    }

    /// The provider's own list of its models.
    pub(super) async fn list(&self, config: &ProviderConfig, timeout: Duration) -> Result<Value, ModelError> {
        let endpoint = config.endpoint(self.wire.models_path())?;
        let key = match &self.key {
            Some(reference) => Some(reference.resolve().await?),
            None => None,
        };
        let scrubber = of_key(key.as_ref().map(Secret::expose));
        let headers = self.headers(&ModelCallContext::alone("list"), key.as_ref())?;
        let exchange = async {
            let mut incoming = endpoint.get(&headers).await?;
            if !(200..300).contains(&incoming.status) {
                return Err(refusal(incoming, &scrubber).await);
            }
            let listed: Option<Value> = serde_json::from_slice(&incoming.body().await?).ok();
            listed.filter(probe::is_list).ok_or_else(no_api)
        };
        match tokio::time::timeout(timeout, exchange).await {
            Ok(listed) => listed.map_err(|error| scrubber.error(error)),
            Err(_) => Err(out_of_time(timeout)),
        }
    }

    async fn ask(
        &self,
        request: &ChatRequest,
        call: &ModelCallContext,
        sink: &mut dyn TokenSink,
    ) -> Result<ChatResponse, ModelError> {
        let _slot = self.pace.admit(&call.idempotency_key).await?;
        let key = match &self.key {
            Some(reference) => Some(reference.resolve().await?),
            None => None,
        };
        let scrubber = of_key(key.as_ref().map(Secret::expose));
        let mut windows = Vec::new();
        let exchange = self.exchange(request, call, key.as_ref(), &scrubber, sink, &mut windows);
        let answered = match tokio::time::timeout(call.timeout, exchange).await {
            Ok(answered) => answered.map_err(|error| scrubber.error(error)),
            Err(_) => Err(out_of_time(call.timeout)),
        };
        self.pace.heard(&windows, answered.as_ref().map(|_| ()));
        answered.map(|response| scrubber.response(response))
    }

    async fn exchange(
        &self,
        request: &ChatRequest,
        call: &ModelCallContext,
        key: Option<&Secret>,
        scrubber: &Scrubber,
        sink: &mut dyn TokenSink,
        windows: &mut Vec<limits::Window>,
    ) -> Result<ChatResponse, ModelError> {
        let body = self.wire.body(request, self.stream).to_string().into_bytes();
        let mut incoming = self.endpoint.post(&self.headers(call, key)?, body).await?;
        *windows = limits::windows(&incoming.headers, now());
        if !(200..300).contains(&incoming.status) {
            return Err(refusal(incoming, scrubber).await);
        }
        if incoming.says("html") {
            return Err(no_api());
        }
        let start = incoming.start().await?;
        if start.starts_with(b"<") {
            return Err(no_api());
        }
        // Not every stream says that it is one.
        let is_stream = [b"data:".as_slice(), b"event:", b": "].iter().any(|field| start.starts_with(field));
        if is_stream || incoming.says("event-stream") {
            let mut sink = ScrubbedSink::new(scrubber, sink);
            let response = self.streamed(request, incoming, &mut sink).await?;
            sink.flush();
            return Ok(response);
        }
        let body = serde_json::from_slice(&incoming.body().await?);
        let body = body.map_err(|why| malformed(format!("the answer is no JSON: {why}")))?;
        let response = scrubber.response(self.wire.read(request, &body)?);
        show(&response, sink);
        Ok(response)
    }

    fn headers(&self, call: &ModelCallContext, key: Option<&Secret>) -> Result<Headers, ModelError> {
        let mut headers = Headers::default();
        headers.add("content-type", "application/json", false)?;
        headers.add("idempotency-key", &call.idempotency_key, false)?;
        for (name, value) in self.wire.headers() {
            headers.add(name, value, false)?;
        }
        if let Some(key) = key {
            let (name, prefix) = self.wire.key_header();
            headers.add(name, &format!("{prefix}{}", key.expose()), true)?;
        }
        Ok(headers)
    }

    async fn streamed(
        &self,
        request: &ChatRequest,
        mut incoming: Incoming,
        sink: &mut dyn TokenSink,
    ) -> Result<ChatResponse, ModelError> {
        let mut fold = StreamFold::new(self.wire, request);
        while !fold.is_done() {
            // Not every server that has counted already counts again at the end, or closes the stream.
            let next = match fold.is_whole() {
                true => tokio::time::timeout(LAST_COUNT, incoming.chunk()).await.unwrap_or(Ok(None)).or(Ok(None)),
                false => incoming.chunk().await,
            };
            match next? {
                Some(chunk) => fold.push(&chunk, sink)?,
                None => return fold.finish(),
            }
        }
        let response = fold.finish()?;
        incoming.drain().await;
        Ok(response)
    }
}

/// A stream on its way to an answer.
struct StreamFold {
    assembler: Box<dyn Assembler>,
    parser: Parser,
    events: Vec<SseEvent>,
    /// The answer has begun.
    begun: bool,
    /// The stream said that it is over.
    ended: bool,
}

impl StreamFold {
    fn new(wire: Wire, request: &ChatRequest) -> StreamFold {
        let (assembler, parser) = (wire.assembler(request), Parser::new(SseLimits::default()));
        StreamFold { assembler, parser, events: Vec::new(), begun: false, ended: false }
    }

    /// Nothing that belongs to the answer can follow.
    fn is_done(&self) -> bool {
        self.ended || self.assembler.is_done()
    }

    /// It can be taken as it is.
    fn is_whole(&self) -> bool {
        self.ended || self.assembler.is_whole()
    }

    fn push(&mut self, bytes: &[u8], sink: &mut dyn TokenSink) -> Result<(), ModelError> {
        let too_large = |why: SseError| ModelError::fatal(code::TOO_LARGE, why.to_string());
        self.parser.push(bytes, &mut self.events).map_err(too_large)?;
        for event in self.events.drain(..) {
            if !self.ended {
                // An answer that has begun was accepted, whatever breaks it off: it may have to be paid for.
                let broken = |why| if self.begun { ModelError { status: Some(200), ..why } } else { why };
                self.ended = feed(self.assembler.as_mut(), &event, sink).map_err(broken)?;
                self.begun = true;
            }
        }
        Ok(())
    }

    fn finish(self) -> Result<ChatResponse, ModelError> {
        // The end of an answer is an event too; within another one, the rest is lost.
        if !self.is_whole() && !self.parser.is_between_events() {
            return Err(cut());
        }
        self.assembler.finish()
    }
}

impl Model for Provider {
    fn complete<'a>(
        &'a self,
        request: &'a ChatRequest,
        call: &'a ModelCallContext,
        sink: &'a mut dyn TokenSink,
    ) -> Answering<'a> {
        Box::pin(async move {
            match (&request.schema, self.schemas) {
                (Some(output), SchemaSupport::Prompt) => self.ask(&in_words(request, output), call, sink).await,
                _ => self.ask(request, call, sink).await,
            }
        })
    }
}

/// The request with its schema as a sentence.
fn in_words(request: &ChatRequest, output: &OutputSchema) -> ChatRequest {
    let content = format!(
        "Give the final answer as JSON and nothing else. It has to conform to this JSON Schema: {}",
        output.schema
    );
    let mut request = ChatRequest { schema: None, ..request.clone() };
    request.messages.push(Message::System { content });
    request
}

async fn refusal(mut incoming: Incoming, scrubber: &Scrubber) -> ModelError {
    if (300..400).contains(&incoming.status) {
        let message = format!(
            "the provider answered {} with a redirect, and none is followed; correct the base URL",
            incoming.status
        );
        let mut error = ModelError::fatal(code::REDIRECT, message);
        error.status = Some(incoming.status);
        return error;
    }
    // Scrubbed before anything is cut to length: half a key would be found by nobody.
    let body = scrubber.cut_text(&incoming.refusal().await);
    let headers: BTreeMap<String, String> = std::mem::take(&mut incoming.headers);
    errors::classify(ErrorResponse { status: incoming.status, headers: &headers, body: &body }, now())
}

/// A page for people where an answer should be: the base URL is wrong, or something stands before the provider.
fn no_api() -> ModelError {
    ModelError::needs_human(code::CONFIGURATION, "the provider answered with a web page; is the base URL right?")
}

fn out_of_time(after: Duration) -> ModelError {
    ModelError::retry(code::TIMEOUT, format!("the provider had not answered after {after:?}"))
}
