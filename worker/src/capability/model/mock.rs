//! A provider for tests: a server on loopback that speaks the real wire formats and answers by a function.
//!
//! Invariant: what arrives is read back into the neutral words, and what the function gives is written as the provider
//! would write it, whole or as a stream, as was asked. Every request is kept. It ends when it is dropped. It is for tests
//! and demonstrations: it checks no key.
//!
//! ```
//! # use bosun_worker::capability::model::{Wire, mock::{self, MockProvider}};
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! let mock = MockProvider::start(|request| mock::says(&format!("{} messages", request.messages.len()))).await.unwrap();
//! let config = bosun_worker::capability::model::ModelConfig::default().with_provider("mock", mock.config(Wire::OpenAi));
//! # let _ = config;
//! assert_eq!(mock.count(), 0);
//! # });
//! ```

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, Uri};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::AbortHandle;

use super::{AssistantMessage, ChatRequest, ChatResponse, ProviderConfig, StopReason, ToolCall, Usage, Wire};

mod anthropic;
mod openai;

/// What the provider does with a request.
#[derive(Debug, Clone, PartialEq)]
pub enum MockAnswer {
    Say(ChatResponse),
    Refuse {
        status: u16,
        headers: Vec<(String, String)>,
        body: Value,
    },
    /// The connection ends in the middle of the answer.
    Cut(ChatResponse),
    Later(Duration, Box<MockAnswer>),
}

impl From<ChatResponse> for MockAnswer {
    fn from(response: ChatResponse) -> Self {
        MockAnswer::Say(response)
    }
}

impl MockAnswer {
    /// As providers refuse: an error with a code and a message.
    pub fn refuse(status: u16, code: &str, message: &str) -> MockAnswer {
        let body = json!({"type": "error", "error": {"type": code, "code": code, "message": message}});
        MockAnswer::Refuse { status, headers: Vec::new(), body }
    }
    /// Status 429 with a time to come back.
    pub fn rate_limited(after_seconds: u32) -> MockAnswer {
        let headers = vec![("retry-after".to_owned(), after_seconds.to_string())];
        let body = json!({"error": {"code": "rate_limit_exceeded", "message": "slow down"}});
        MockAnswer::Refuse { status: 429, headers, body }
    }
    pub fn later(self, delay: Duration) -> MockAnswer {
        MockAnswer::Later(delay, Box::new(self))
    }
}

/// An answer of text, with a usage of 10 and 5 tokens.
pub fn says(text: &str) -> ChatResponse {
    ChatResponse {
        said: AssistantMessage { content: text.to_owned(), tool_calls: Vec::new() },
        stop: StopReason::End,
        usage: Usage { input: Some(10), output: Some(5), ..Usage::default() },
        model: "mock-1".into(),
        id: Some("mock-answer".into()),
    }
}

/// An answer of data.
pub fn gives(value: &Value) -> ChatResponse {
    says(&value.to_string())
}

/// An answer that calls a tool; the id is made of the name.
pub fn calls(name: &str, arguments: Value) -> ChatResponse {
    let call = ToolCall { id: format!("call_{name}"), name: name.to_owned(), arguments };
    let mut response = says("");
    response.said.tool_calls.push(call);
    response.stop = StopReason::ToolCalls;
    response
}

/// A request as it arrived.
#[derive(Debug, Clone, PartialEq)]
pub struct ReceivedRequest {
    pub wire: Wire,
    /// Names in lower case.
    pub headers: BTreeMap<String, String>,
    pub body: Value,
    pub stream: bool,
    /// The body in neutral words.
    pub request: ChatRequest,
}

type MockHandler = dyn Fn(&ChatRequest) -> MockAnswer + Send + Sync;

struct MockServer {
    handler: Box<MockHandler>,
    asked: Mutex<Vec<ReceivedRequest>>,
}

/// A running provider.
pub struct MockProvider {
    address: SocketAddr,
    server: Arc<MockServer>,
    running: AbortHandle,
}

impl Drop for MockProvider {
    fn drop(&mut self) {
        self.running.abort();
    }
}

impl MockProvider {
    /// Starts on a free port of loopback. Needs a runtime of tokio.
    pub async fn start<A: Into<MockAnswer>>(
        handler: impl Fn(&ChatRequest) -> A + Send + Sync + 'static,
    ) -> io::Result<MockProvider> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let handler: Box<MockHandler> = Box::new(move |request| handler(request).into());
        let server = Arc::new(MockServer { handler, asked: Mutex::default() });
        let router = Router::new().fallback(answer).with_state(server.clone());
        let running = tokio::spawn(async move {
            // Ends with an error only when the listener breaks, upon which requests fail and so does their test.
            let _ = axum::serve(listener, router).await;
        });
        Ok(MockProvider { address, server, running: running.abort_handle() })
    }

    /// The base URL for a wire format, as `OPENAI_BASE_URL` or `ANTHROPIC_BASE_URL` have it.
    pub fn base_url(&self, wire: Wire) -> String {
        match wire {
            Wire::OpenAi => format!("http://{}/v1", self.address),
            Wire::Anthropic => format!("http://{}", self.address),
        }
    }

    /// The configuration of a provider that is this one.
    pub fn config(&self, wire: Wire) -> ProviderConfig {
        ProviderConfig::at(wire, self.base_url(wire), None)
    }

    /// How many requests arrived.
    pub fn count(&self) -> usize {
        self.server.asked().len()
    }

    /// The requests that arrived.
    pub fn asked(&self) -> Vec<ReceivedRequest> {
        self.server.asked().clone()
    }
}

impl MockServer {
    fn asked(&self) -> std::sync::MutexGuard<'_, Vec<ReceivedRequest>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn answer(State(server): State<Arc<MockServer>>, uri: Uri, headers: HeaderMap, body: Bytes) -> Response<Body> {
    let wire = match uri.path() {
        "/v1/chat/completions" => Wire::OpenAi,
        "/v1/messages" => Wire::Anthropic,
        path => return refuse(404, &[], &json!({"error": {"message": format!("there is no {path}")}})),
    };
    let read = serde_json::from_slice(&body).map_err(|why| why.to_string()).and_then(|body: Value| {
        let request = match wire {
            Wire::OpenAi => openai::read(&body),
            Wire::Anthropic => anthropic::read(&body),
        };
        Ok((request?, body))
    });
    let (request, body) = match read {
        Ok(read) => read,
        Err(why) => return refuse(400, &[], &json!({"error": {"type": "invalid_request_error", "message": why}})),
    };
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let headers = headers.iter().map(|(name, value)| (name.as_str().to_owned(), text(value))).collect();
    let asked = ReceivedRequest { wire, headers, stream: body["stream"] == true, body, request };
    server.asked().push(asked.clone());
    let mut answer = (server.handler)(&asked.request);
    while let MockAnswer::Later(delay, then) = answer {
        tokio::time::sleep(delay).await;
        answer = *then;
    }
    match answer {
        MockAnswer::Say(response) => write(&asked, &response, false),
        MockAnswer::Cut(response) => write(&asked, &response, true),
        MockAnswer::Refuse { status, headers, body } => refuse(status, &headers, &body),
        MockAnswer::Later(..) => unreachable!("waited for above"),
    }
}

fn refuse(status: u16, headers: &[(String, String)], body: &Value) -> Response<Body> {
    let mut response = Response::new(Body::from(body.to_string()));
    *response.status_mut() = StatusCode::from_u16(status).expect("the test gives a status of HTTP");
    for (name, value) in headers {
        let name: HeaderName = name.parse().expect("the test gives the name of a header");
        response.headers_mut().insert(name, value.parse().expect("the test gives the value of a header"));
    }
    response
}

fn write(asked: &ReceivedRequest, response: &ChatResponse, cut: bool) -> Response<Body> {
    let (content_type, mut pieces) = match (asked.stream, asked.wire) {
        (true, Wire::OpenAi) => ("text/event-stream", openai::events(&asked.body, response)),
        (true, Wire::Anthropic) => ("text/event-stream", anthropic::events(&asked.body, response)),
        (false, Wire::OpenAi) => ("application/json", vec![openai::whole(response).to_string()]),
        (false, Wire::Anthropic) => ("application/json", vec![anthropic::whole(&asked.body, response).to_string()]),
    };
    if cut {
        let all = pieces.concat();
        pieces = all.chars().take(all.chars().count() / 2).map(String::from).collect();
    }
    let end = cut.then(|| Err(io::Error::other("the test cuts the answer")));
    let pieces: Vec<io::Result<String>> = pieces.into_iter().map(Ok).chain(end).collect();
    let mut written = Response::new(Body::from_stream(futures_util::stream::iter(pieces)));
    written.headers_mut().insert("content-type", HeaderValue::from_static(content_type));
    written
}

/// A text in pieces, as it comes in a stream.
fn pieces(text: &str) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    chars.chunks(7).map(|piece| piece.iter().collect()).collect()
}

fn text(value: &Value, name: &str) -> String {
    value.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value.get(name).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The name of the tool that was called with this id, which results do not repeat.
fn called(messages: &[super::Message], id: &str) -> Result<String, String> {
    let calls = messages.iter().filter_map(|message| match message {
        super::Message::Assistant(said) => Some(&said.tool_calls),
        _ => None,
    });
    let call = calls.flatten().find(|call| call.id == id);
    call.map(|call| call.name.clone()).ok_or_else(|| format!("the result of {id:?} answers no call"))
}
