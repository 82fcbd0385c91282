//! A server behind a URL: the streamable HTTP of the protocol, over the guarded client of the capability `http`.
//!
//! Invariant: only allowed addresses are connected to (G36), no redirect is followed and no proxy used; one message from
//! the server is bounded, and so are all of an answer. No request is repeated by the library: a lost session is opened
//! anew by whoever calls next. A server is heard only in its answers, for as long as a call takes: no stream is open
//! between calls, to be flooded.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use reqwest::header::{AUTHORIZATION, HeaderName, HeaderValue};
use reqwest::{Error, Url};
use rmcp::model::ClientJsonRpcMessage;
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::{
    SseError, StreamableHttpClient, StreamableHttpClientTransportConfig, StreamableHttpError,
    StreamableHttpPostResponse,
};
use sse_stream::Sse;

use super::super::*;
use super::secrets::Secrets;
use super::stdio::{FLOOD_BYTES, FLOOD_LINES};
use super::trouble::{Trouble, refused_address};
use crate::capability::http::{HttpConfig, guarded_client};

pub(super) type Wire = StreamableHttpClientTransport<PostOnlyClient>;

/// Makes the client; nothing is sent yet.
pub(super) async fn reach(http: &McpHttp, message_bytes: usize, secrets: &mut Secrets) -> Result<Wire, Trouble> {
    let wrong = |why: String| Trouble::never(MCP_CONFIGURATION, why);
    let url = Url::parse(&http.url).map_err(|why| wrong(format!("the url cannot be read: {why}")))?;
    let guard = Arc::new(HttpConfig { allow_private: http.allow_private, ..HttpConfig::default() });
    guard.check_literal(url.host_str().unwrap_or_default()).map_err(|why| refused_address(&why))?;
    let client = guarded_client(&guard).map_err(|why| wrong(format!("the HTTP client: {}", why.without_url())))?;
    let mut headers = HashMap::new();
    for (name, value) in secrets.values(&http.headers).await? {
        add(&mut headers, &name, &value)?;
    }
    if let Some(bearer) = &http.bearer {
        let key = secrets.resolve(bearer).await?;
        add(&mut headers, AUTHORIZATION.as_str(), &format!("Bearer {key}"))?;
    }
    let config = StreamableHttpClientTransportConfig::with_uri(http.url.as_str())
        .custom_headers(headers)
        .max_sse_event_size(message_bytes)
        .reinit_on_expired_session(false);
    Ok(StreamableHttpClientTransport::with_client(PostOnlyClient(client), config))
}

/// The library's own client without its streams of the server's own messages, and so without its reconnecting.
#[derive(Clone)]
pub(super) struct PostOnlyClient(reqwest::Client);

type HeaderTable = HashMap<HeaderName, HeaderValue>;
type HttpAnswer<T> = Result<T, StreamableHttpError<Error>>;

impl StreamableHttpClient for PostOnlyClient {
    type Error = Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        auth: Option<String>,
        headers: HeaderTable,
    ) -> HttpAnswer<StreamableHttpPostResponse> {
        self.0.post_message(uri, message, session, auth, headers).await
    }

    async fn post_message_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        auth: Option<String>,
        headers: HeaderTable,
        most: usize,
    ) -> HttpAnswer<StreamableHttpPostResponse> {
        let sent = self.0.post_message_with_max_sse_event_size(uri, message, session, auth, headers, most);
        Ok(match sent.await? {
            StreamableHttpPostResponse::Sse(events, id) => StreamableHttpPostResponse::Sse(bounded(events), id),
            other => other,
        })
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session: Arc<str>,
        auth: Option<String>,
        headers: HeaderTable,
    ) -> HttpAnswer<()> {
        self.0.delete_session(uri, session, auth, headers).await
    }

    async fn get_stream(
        &self,
        _: Arc<str>,
        _: Option<Arc<str>>,
        _: Option<String>,
        _: Option<String>,
        _: HeaderTable,
    ) -> HttpAnswer<BoxStream<'static, Result<Sse, SseError>>> {
        Err(StreamableHttpError::ServerDoesNotSupportSse)
    }
}

/// Ends an answer that goes on and on; an end without the answer is a connection that broke.
fn bounded(events: BoxStream<'static, Result<Sse, SseError>>) -> BoxStream<'static, Result<Sse, SseError>> {
    let mut bytes = 0;
    let is_within = move |event: &Result<Sse, SseError>| {
        let length = event.as_ref().ok().and_then(|event| event.data.as_ref()).map_or(0, String::len);
        bytes += length as u64;
        std::future::ready(bytes <= FLOOD_BYTES)
    };
    events.take(usize::try_from(FLOOD_LINES).unwrap_or(usize::MAX)).take_while(is_within).boxed()
}

/// Every value is marked, so that no library prints it.
fn add(headers: &mut HashMap<HeaderName, HeaderValue>, name: &str, value: &str) -> Result<(), Trouble> {
    let wrong = || Trouble::never(MCP_CONFIGURATION, format!("the header {name:?} cannot have this name or value"));
    let mut value = HeaderValue::from_str(value).map_err(|_| wrong())?;
    value.set_sensitive(true);
    headers.insert(HeaderName::from_bytes(name.as_bytes()).map_err(|_| wrong())?, value);
    Ok(())
}
