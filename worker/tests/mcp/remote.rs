//! Calls over HTTP: a server on loopback that speaks the wire by hand.

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use bosun_worker::capability::mcp::*;
use bosun_worker::capability::model::SecretRef;
use futures_util::{StreamExt, stream};
use serde_json::{Value, json};

use super::kit::{SECRET, Worker, judged};
use super::stub;

/// What was asked, and with which credentials; and the number of the session that counts.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<Vec<(String, HeaderMap)>>>, Arc<AtomicUsize>);

impl Seen {
    fn calls(&self) -> usize {
        self.0.lock().unwrap().iter().filter(|(method, _)| method == "tools/call").count()
    }
    /// The session is the one that was begun last.
    fn knows(&self, headers: &HeaderMap) -> bool {
        headers.get("mcp-session-id").is_none_or(|id| *id == self.session())
    }
    fn session(&self) -> String {
        format!("session-{}", self.1.load(Ordering::Relaxed))
    }
    fn forgets(&self) {
        self.1.fetch_add(10, Ordering::Relaxed);
    }
}

/// A worker whose server `s` is reached at this place.
async fn worker(change: impl FnOnce(&mut McpHttp)) -> (Worker, Seen) {
    let seen = Seen::default();
    let router = Router::new().route("/mcp", post(answer).get(none).delete(none)).with_state(seen.clone());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("key"), SECRET).unwrap();
    let mut http = McpHttp { url, allow_private: true, ..McpHttp::default() };
    http.bearer = Some(SecretRef::File(dir.path().join("key")));
    http.headers.insert("X-Team".to_owned(), McpValue::Text(PlainText { text: "blue".to_owned() }));
    change(&mut http);
    let server = McpServer { message_bytes: 256 * 1024, ..McpServer::new(McpReach::Http(http)) };
    (Worker::of(dir, server), seen)
}

async fn none() -> StatusCode {
    StatusCode::METHOD_NOT_ALLOWED
}

async fn answer(State(seen): State<Seen>, headers: HeaderMap, body: Bytes) -> Response {
    let message: Value = serde_json::from_slice(&body).unwrap();
    seen.0.lock().unwrap().push((message["method"].as_str().unwrap().to_owned(), headers.clone()));
    if !seen.knows(&headers) {
        return StatusCode::NOT_FOUND.into_response();
    }
    if message.get("id").is_none() {
        return StatusCode::ACCEPTED.into_response();
    }
    match message["params"]["name"].as_str().unwrap_or_default() {
        "hang" => std::future::pending().await,
        "die" => return broken_off(&message),
        "endless" => return endless(),
        "flood" => return (StatusCode::FOUND, [("location", "http://169.254.169.254/")]).into_response(),
        "garbage" => return ([("content-type", "application/json")], "{\"jsonrpc\"").into_response(),
        "picky" => return (StatusCode::TOO_MANY_REQUESTS, [("retry-after", "7")]).into_response(),
        "error" => return (StatusCode::BAD_GATEWAY, format!("no {SECRET}")).into_response(),
        "late" => return (StatusCode::REQUEST_TIMEOUT, "too late").into_response(),
        "left" => return (StatusCode::from_u16(499).unwrap(), "nobody waits").into_response(),
        "chatter" => return chatter(),
        "names" => return (StatusCode::FORBIDDEN, format!("not with {SECRET}")).into_response(),
        _ => {}
    }
    let mut answer = stub::answer(&message);
    answer["jsonrpc"] = json!("2.0");
    answer["id"] = message["id"].clone();
    let mut response = match message["method"].as_str() {
        // Both forms of an answer.
        Some("tools/call") => {
            let note = json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": { "level": "info", "data": 1 } });
            let text = format!("event: message\ndata: {note}\n\nevent: message\ndata: {answer}\n\n");
            ([("content-type", "text/event-stream")], text).into_response()
        }
        _ => ([("content-type", "application/json")], answer.to_string()).into_response(),
    };
    if message["method"] == "initialize" {
        seen.1.fetch_add(1, Ordering::Relaxed);
        response.headers_mut().insert("mcp-session-id", HeaderValue::from_str(&seen.session()).unwrap());
    }
    response
}

/// An answer that ends in the middle of its only event.
fn broken_off(message: &Value) -> Response {
    let text = format!("event: message\ndata: {{\"jsonrpc\":\"2.0\",\"id\":{},\"res", message["id"]);
    ([("content-type", "text/event-stream")], text).into_response()
}

/// Small messages without end, and no answer.
fn chatter() -> Response {
    let note = json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": { "level": "info", "data": 1 } });
    let piece = Bytes::from(format!("event: message\ndata: {note}\n\n").repeat(100));
    let pieces = stream::repeat_with(move || Ok::<_, Infallible>(piece.clone()));
    ([("content-type", "text/event-stream")], Body::from_stream(pieces)).into_response()
}

fn endless() -> Response {
    let piece = Bytes::from(vec![b'x'; 16 * 1024]);
    let pieces = stream::once(async { Ok::<_, Infallible>(Bytes::from_static(b"data: ")) })
        .chain(stream::repeat_with(move || Ok(piece.clone())));
    ([("content-type", "text/event-stream")], Body::from_stream(pieces)).into_response()
}

#[tokio::test]
async fn a_tool_behind_a_url_is_called_with_its_credentials() {
    let (worker, seen) = worker(|_| {}).await;
    for text in ["one", "two"] {
        let output = worker.call("echo", json!({ "text": text })).await.unwrap();
        assert_eq!((output.text.as_str(), output.structured), (text, Some(json!({ "text": text }))));
    }
    let tools: McpToolsOutput = worker.ask(MCP_TOOLS, json!({ "server": "s", "tools": ["echo"] })).await.unwrap();
    assert_eq!(tools.tools.len(), 1);
    let seen = seen.0.lock().unwrap();
    assert_eq!(seen.iter().filter(|(method, _)| method == "initialize").count(), 1, "the session is kept");
    for (method, headers) in seen.iter() {
        assert!(headers["authorization"] == format!("Bearer {SECRET}") && headers["x-team"] == "blue", "{headers:?}");
        assert!(method == "initialize" || headers["mcp-session-id"] == "session-1", "{method}");
    }
}

#[tokio::test]
async fn the_arguments_are_judged_before_a_request_is_made() {
    let (worker, seen) = worker(|_| {}).await;
    let (name, again, _) = judged(worker.call("echo", json!({ "text": "A" })).await);
    assert_eq!((name.as_str(), again), (MCP_ARGUMENTS, false));
    assert_eq!(seen.calls(), 0);
}

/// G36: the owner's table does not open the network by itself.
#[tokio::test]
async fn a_place_that_is_not_public_is_reached_only_if_the_table_says_so() {
    let (private, seen) = worker(|http| http.allow_private = false).await;
    let (name, again, why) = judged(private.call("echo", json!({ "text": "a" })).await);
    assert_eq!((name.as_str(), again), (MCP_UNREACHABLE, false), "{why}");
    assert!(why.contains("not a public address"), "{why}");
    let by_name = |http: &mut McpHttp| {
        http.url = http.url.replace("127.0.0.1", "localhost");
        http.allow_private = false;
    };
    let (named, _) = worker(by_name).await;
    let (name, again, why) = judged(named.call("echo", json!({ "text": "a" })).await);
    assert_eq!((name.as_str(), again), (MCP_UNREACHABLE, false), "{why}");
    assert!(why.contains("not a public address"), "{why}");
    assert_eq!(seen.0.lock().unwrap().len(), 0);
}

#[tokio::test]
async fn every_bad_answer_is_a_failure_that_says_whether_the_tool_may_have_run() {
    let (worker, seen) = worker(|_| {}).await;
    for (tool, wanted, retried) in [
        ("endless", MCP_LOST, false),
        ("flood", MCP_UNREACHABLE, false),
        ("garbage", MCP_LOST, false),
        ("picky", MCP_UNREACHABLE, true),
        ("error", MCP_LOST, false),
        ("names", MCP_UNREACHABLE, false),
        ("late", MCP_LOST, false),
        ("left", MCP_LOST, false),
        ("chatter", MCP_LOST, false),
    ] {
        let before = seen.calls();
        let (name, again, why) = judged(worker.call(tool, json!({})).await);
        assert_eq!((name.as_str(), again), (wanted, retried), "{tool}: {why}");
        assert_eq!(why.contains("nobody knows"), (wanted == MCP_LOST), "{tool}: {why}");
        assert_eq!(seen.calls(), before + 1, "{tool} is sent once");
    }
}

#[tokio::test]
async fn an_answer_that_breaks_off_or_never_comes_is_not_waited_for_beyond_its_time() {
    let (worker, seen) = worker(|_| {}).await;
    for tool in ["hang", "die"] {
        // The time is for the call alone: the session is begun, and the tools are known.
        worker.call("echo", json!({ "text": "a" })).await.unwrap();
        let input = json!({ "server": "s", "tool": tool, "timeout_ms": 3_000 });
        let (name, again, why) = judged(worker.ask(MCP, input).await);
        assert!([MCP_TIMEOUT, MCP_LOST].contains(&name.as_str()) && !again, "{tool}: {name} {why}");
        assert!(why.contains("nobody knows"), "{why}");
    }
    assert_eq!(seen.calls(), 4, "each is sent once");
    assert_eq!(worker.call("echo", json!({ "text": "a" })).await.unwrap().text, "a", "over a new session");
}

/// What was not delivered over a session that was kept is sent once more over a new one.
#[tokio::test]
async fn a_session_that_the_server_has_forgotten_is_begun_again() {
    let (worker, seen) = worker(|_| {}).await;
    for text in ["one", "two"] {
        assert_eq!(worker.call("echo", json!({ "text": text })).await.unwrap().text, text);
        seen.forgets();
    }
    let hellos = seen.0.lock().unwrap().iter().filter(|(method, _)| method == "initialize").count();
    assert_eq!((hellos, seen.calls()), (2, 3), "the call that was not taken is made again, and no other");
}

#[tokio::test]
async fn a_server_that_is_not_there_may_be_tried_again() {
    let (worker, _) = worker(|http| http.url = "http://127.0.0.1:9/mcp".to_owned()).await;
    let (name, again, why) = judged(worker.call("echo", json!({ "text": "a" })).await);
    assert_eq!((name.as_str(), again), (MCP_UNREACHABLE, true), "{why}");
}
