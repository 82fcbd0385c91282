//! Providers that mean no good: each answer ends in bounded time and memory, as a typed error or an answer, without the
//! key anywhere.
//!
//! The server is a raw socket that plays a list of steps to whoever connects. No time is asserted but that each exchange
//! ends; memory is judged by how much the server got rid of before the connection was closed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bosun_engine::hex;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

use super::super::transport::TransportLimits;
use super::*;

/// With characters that are spelled in other ways in JSON, in URLs and in base64.
const KEY: &str = "sk-hostile/0123+abc=\"xyz\\9";

const RESPONSE_BYTES: usize = 256 * 1024;

/// What is in buffers of both sides when a connection is closed, and more than that.
const SENT_MAX: u64 = 64 << 20;

#[derive(Clone)]
enum Step {
    Send(Vec<u8>),
    /// Again and again, with a pause between.
    Forever(Vec<u8>, Duration),
    Silence,
}

struct Hostile {
    port: u16,
    requests: Arc<AtomicUsize>,
    sent: Arc<AtomicU64>,
    running: AbortHandle,
}

impl Drop for Hostile {
    fn drop(&mut self) {
        self.running.abort();
    }
}

async fn serve(steps: Vec<Step>) -> Hostile {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (requests, sent) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicU64::new(0)));
    let (count, bytes) = (requests.clone(), sent.clone());
    let running = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            count.fetch_add(1, Ordering::Relaxed);
            tokio::spawn(play(stream, steps.clone(), bytes.clone()));
        }
    });
    Hostile { port, requests, sent, running: running.abort_handle() }
}

/// Ends when the steps do, or when the other side has closed.
async fn play(mut stream: TcpStream, steps: Vec<Step>, sent: Arc<AtomicU64>) -> std::io::Result<()> {
    let mut buffer = [0; 8192];
    // The requests of these tests are small and come in one piece or two; what is left unread would reset the connection.
    while stream.read(&mut buffer).await? == buffer.len() {}
    tokio::time::sleep(Duration::from_millis(5)).await;
    while stream.try_read(&mut buffer).is_ok_and(|length| length > 0) {}
    for step in steps {
        match step {
            Step::Send(bytes) => {
                stream.write_all(&bytes).await?;
                sent.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            }
            Step::Forever(bytes, pause) => loop {
                stream.write_all(&bytes).await?;
                sent.fetch_add(bytes.len() as u64, Ordering::Relaxed);
                tokio::time::sleep(pause).await;
            },
            Step::Silence => std::future::pending().await,
        }
    }
    stream.shutdown().await
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Wants {
    /// Of one of these codes.
    Retry(&'static [&'static str]),
    Fatal(&'static str),
    /// Too much, or too long: which limit comes first depends on the machine.
    Bounded,
    Human,
    /// An answer with this text.
    Said(&'static str),
}

struct Case {
    name: &'static str,
    wire: Wire,
    stream: bool,
    steps: Vec<Step>,
    wants: Wants,
}

const BROKEN: Wants = Wants::Retry(&[code::TRANSPORT]);
const MALFORMED: Wants = Wants::Retry(&[code::MALFORMED]);
const SLOW: Wants = Wants::Retry(&[code::TIMEOUT]);
const TOO_LARGE: Wants = Wants::Fatal(code::TOO_LARGE);

fn send(bytes: impl Into<Vec<u8>>) -> Step {
    Step::Send(bytes.into())
}

fn head(status: &str, headers: &[&str]) -> String {
    let headers: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
    format!("HTTP/1.1 {status}\r\nconnection: close\r\n{headers}\r\n")
}

fn body(status: &str, headers: &[&str], body: impl AsRef<[u8]>) -> Vec<Step> {
    let body = body.as_ref();
    let length = format!("content-length: {}", body.len());
    let headers: Vec<&str> = headers.iter().copied().chain([length.as_str()]).collect();
    vec![send(head(status, &headers)), send(body)]
}

const JSON: &str = "content-type: application/json";
const EVENTS: &str = "content-type: text/event-stream";

/// An answer of OpenAI with this message.
fn openai_answer(message: Value, usage: Value) -> String {
    let choice = json!({"message": message, "finish_reason": "stop"});
    json!({"id": "1", "model": "m", "choices": [choice], "usage": usage}).to_string()
}

fn said(text: &str) -> String {
    openai_answer(json!({"content": text}), Value::Null)
}

/// A case that both formats, whole and streamed, end in the same way.
fn everywhere(name: &'static str, steps: Vec<Step>, wants: Wants) -> Vec<Case> {
    ways().map(|(wire, stream)| Case { name, wire, stream, steps: steps.clone(), wants }).into()
}

fn whole(name: &'static str, steps: Vec<Step>, wants: Wants) -> Vec<Case> {
    vec![Case { name, wire: Wire::OpenAi, stream: false, steps, wants }]
}

fn streamed(name: &'static str, wire: Wire, events: &[u8], wants: Wants) -> Vec<Case> {
    let steps = vec![send(head("200 OK", &[EVENTS])), send(events)];
    vec![Case { name, wire, stream: true, steps, wants }]
}

/// Connections and heads.
fn connections() -> Vec<Vec<Case>> {
    let pause = Duration::from_millis(20);
    let now = Duration::ZERO;
    vec![
        everywhere("closes at once", vec![], BROKEN),
        everywhere("closes in the middle of the head", vec![send("HTTP/1.1 200 OK\r\ncontent-ty")], BROKEN),
        everywhere("says nothing", vec![Step::Silence], SLOW),
        everywhere("speaks another protocol", vec![send("SSH-2.0-OpenSSH_9.9\r\n")], BROKEN),
        everywhere(
            "sends headers for ever",
            vec![send("HTTP/1.1 200 OK\r\n"), Step::Forever(format!("x-{}: y\r\n", "h".repeat(900)).into(), now)],
            BROKEN,
        ),
        everywhere(
            "sends the head byte by byte",
            vec![send("HTTP/1.1 200 OK\r\nx: "), Step::Forever(b"y".into(), pause)],
            SLOW,
        ),
        everywhere("says continue for ever", vec![Step::Forever(b"HTTP/1.1 100 Continue\r\n\r\n".into(), pause)], SLOW),
        everywhere(
            "has no content",
            vec![send(head("204 No Content", &[]))],
            Wants::Retry(&[code::MALFORMED, code::CUT]),
        ),
        everywhere("has a status of its own", body("999 What", &[], ""), Wants::Fatal("")),
        everywhere(
            "redirects to itself",
            body("302 Found", &["location: /v1/chat/completions"], ""),
            Wants::Fatal(code::REDIRECT),
        ),
        everywhere(
            "redirects to the metadata of a cloud",
            body("307 Temporary Redirect", &["location: http://169.254.169.254/latest/meta-data/"], ""),
            Wants::Fatal(code::REDIRECT),
        ),
        everywhere(
            "names a redirect of its own",
            body("200 OK", &["location: http://169.254.169.254/", JSON], "[]"),
            MALFORMED,
        ),
    ]
}

/// Bodies that do not end, or not where they say.
fn bodies() -> Vec<Vec<Case>> {
    let endless = |kind: &str, piece: &[u8]| {
        let first = send(head("200 OK", &[kind, "transfer-encoding: chunked"]));
        let mut chunk = format!("{:x}\r\n", piece.len()).into_bytes();
        chunk.extend_from_slice(piece);
        chunk.extend_from_slice(b"\r\n");
        vec![first, Step::Forever(chunk, Duration::ZERO)]
    };
    let one_chunk = vec![
        send(head("200 OK", &[JSON, "transfer-encoding: chunked"])),
        send("fffffffff\r\n"),
        Step::Forever(vec![b' '; 16 * 1024], Duration::ZERO),
    ];
    let drip = |kind: &str, start: &str| {
        let drip = Step::Forever(b" ".into(), Duration::from_millis(20));
        vec![send(head("200 OK", &[kind])), send(start), drip]
    };
    vec![
        everywhere("sends a chunk without an end", one_chunk, TOO_LARGE),
        everywhere("sends chunks without an end", endless(JSON, &[b' '; 4096]), TOO_LARGE),
        everywhere("sends a byte at a time", drip(JSON, "{\"a\":"), SLOW),
        everywhere("sends a line a byte at a time", drip(EVENTS, "data: {"), SLOW),
        everywhere("falls silent", vec![send(head("200 OK", &[JSON])), send("{\"a\":"), Step::Silence], SLOW),
        everywhere(
            "promises more than it sends",
            vec![send(head("200 OK", &[JSON, "content-length: 1000"])), send("{}")],
            BROKEN,
        ),
        everywhere(
            "sends more than it promises",
            vec![send(head("200 OK", &[JSON, "content-length: 4"])), send("{\"a\":1}")],
            MALFORMED,
        ),
        everywhere(
            "promises a body of many exabytes",
            {
                vec![
                    send(head("200 OK", &[JSON, "content-length: 9223372036854775807"])),
                    Step::Forever(vec![b' '; 4096], Duration::ZERO),
                ]
            },
            TOO_LARGE,
        ),
        everywhere(
            "breaks its compression",
            body("200 OK", &[JSON, "content-encoding: gzip"], "no gzip at all"),
            BROKEN,
        ),
        everywhere(
            "compresses in an unknown way",
            body("200 OK", &[JSON, "content-encoding: x-mine"], [0x8b, 0xff, 3]),
            MALFORMED,
        ),
        everywhere(
            "refuses without an end",
            vec![send(head("500 Oops", &[])), Step::Forever(vec![b'x'; 4096], Duration::ZERO)],
            Wants::Retry(&[""]),
        ),
        vec![Case {
            name: "sends a line without an end",
            wire: Wire::OpenAi,
            stream: true,
            wants: Wants::Bounded,
            steps: endless(EVENTS, &[b'x'; 4096]),
        }],
        vec![Case {
            name: "sends comments without an end",
            wire: Wire::Anthropic,
            stream: true,
            wants: Wants::Bounded,
            steps: endless(EVENTS, &b": still here\n\n".repeat(300)),
        }],
        vec![Case {
            name: "sends events without an end",
            wire: Wire::OpenAi,
            stream: true,
            wants: Wants::Bounded,
            steps: endless(EVENTS, b"data: {\"choices\":[{\"delta\":{\"content\":\"again \"}}]}\n\n"),
        }],
    ]
}

/// Answers that are none, or odd ones.
fn answers() -> Vec<Vec<Case>> {
    let whole_json = |name, text: &str, wants| whole(name, body("200 OK", &[JSON], text), wants);
    let deep = format!("{}{}", "[".repeat(1_000), "]".repeat(1_000));
    let broken_call = json!([{"id": "1", "function": {"name": "t", "arguments": "{oops"}}]);
    let twins = json!([{"id": "1", "function": {"name": "t"}}, {"id": "1", "function": {"name": "t"}}]);
    let events =
        |text: &str| text.replace("DATA", "data: {\"choices\":[{\"delta\":{\"content\":\"half\"}}]}\n\n").into_bytes();
    let end = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
    let events = |text: &str| events(&text.replace("END", end));
    let overloaded =
        b"event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"busy\"}}\n\n";
    vec![
        whole_json("is empty", "", MALFORMED),
        everywhere("is a page", body("200 OK", &["content-type: text/html"], "<html>welcome</html>"), Wants::Human),
        whole_json("is a page that says it is data", " <!doctype html>", Wants::Human),
        everywhere(
            "refuses with a page",
            body("502 Bad Gateway", &["content-type: text/html"], "<h1>bad</h1>"),
            Wants::Retry(&[""]),
        ),
        whole(
            "is no text",
            body("200 OK", &[JSON], b"{\"choices\":[{\"message\":{\"content\":\"\xff\xfe\"}}]}"),
            MALFORMED,
        ),
        everywhere("is nested a thousand deep", body("200 OK", &[JSON], &deep), MALFORMED),
        whole_json("has a number that is none", "{\"choices\": NaN}", MALFORMED),
        whole_json("is another thing", "[1, 2, 3]", MALFORMED),
        whole_json("has data behind its end", &format!("{}{{}}", said("x")), MALFORMED),
        whole_json(
            "hides an error",
            r#"{"error": {"message": "no", "type": "invalid_request_error"}}"#,
            Wants::Fatal("invalid_request_error"),
        ),
        whole_json(
            "hides that it wants money",
            r#"{"error": {"message": "no", "code": "insufficient_quota"}}"#,
            Wants::Human,
        ),
        whole_json(
            "has usage below zero",
            &openai_answer(json!({"content": "x"}), json!({"prompt_tokens": -5, "completion_tokens": 1e300})),
            Wants::Said("x"),
        ),
        whole_json(
            "calls a tool with a broken text",
            &openai_answer(json!({"content": "c", "tool_calls": broken_call}), Value::Null),
            Wants::Said("c"),
        ),
        whole_json(
            "gives two calls one id",
            &openai_answer(json!({"content": "c", "tool_calls": twins}), Value::Null),
            Wants::Said("c"),
        ),
        everywhere("is half a stream without a name", body("200 OK", &[], events("DATA")), Wants::Retry(&[code::CUT])),
        whole(
            "is a stream without a name",
            body("200 OK", &["content-type: text/plain"], events("DATAEND")),
            Wants::Said("half"),
        ),
        streamed(
            "stops in the middle of an event",
            Wire::OpenAi,
            &events("DATAdata: {\"cho"),
            Wants::Retry(&[code::CUT]),
        ),
        streamed("stops between events", Wire::OpenAi, &events("DATA"), Wants::Retry(&[code::CUT])),
        streamed(
            "says it is done and is not",
            Wire::OpenAi,
            &events("DATAdata: [DONE]\n\n"),
            Wants::Retry(&[code::CUT]),
        ),
        streamed("has an event that is no data", Wire::OpenAi, b"data: {half\n\n", MALFORMED),
        streamed("is noise", Wire::OpenAi, &[0xff, 0x00, 0x0a, 0x0a, 0x9f], Wants::Retry(&[code::CUT])),
        streamed("gives up", Wire::Anthropic, overloaded, Wants::Retry(&["overloaded_error"])),
        streamed(
            "grows what was never begun",
            Wire::Anthropic,
            b"data: {\"type\":\"content_block_delta\",\"index\":7}\n\n",
            MALFORMED,
        ),
    ]
}

/// The key comes back in every spelling.
fn echoes() -> Vec<Vec<Case>> {
    let basic = "Bearer sk-hostile/0123+abc=\"xyz\\9".bytes();
    let spelled = [
        KEY.to_owned(),
        hex(KEY.as_bytes()),
        basic.map(|byte| format!("%{byte:02X}")).collect(),
        KEY.bytes()
            .map(|byte| {
                if byte.is_ascii_alphanumeric() || b"-".contains(&byte) {
                    char::from(byte).to_string()
                } else {
                    format!("%{byte:02x}")
                }
            })
            .collect(),
        "QmVhcmVyIHNrLWhvc3RpbGUvMDEyMythYmM9Inh5elw5".to_owned(), // base64 of `Bearer` and the key
    ];
    let all = spelled.join(" ");
    let error = json!({"error": {"message": format!("bad key {all}"), "code": KEY}}).to_string();
    let header = format!("x-echo: {}", KEY.replace('"', ""));
    let late = format!("{}{KEY}", "x".repeat(65_536 - 10));
    let long = json!({"error": {"message": format!("{}{KEY}", "x".repeat(400 - 18)), "type": "api_error"}}).to_string();
    let piece = |text: &str| format!("data: {}\n\n", json!({"choices": [{"delta": {"content": text}}]}));
    let pieces: String = KEY.chars().map(|c| piece(&c.to_string())).collect();
    let end = "data: {\"choices\":[{\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
    vec![
        whole(
            "says the key",
            body("200 OK", &[JSON, &header], said(&format!("it is {KEY}"))),
            Wants::Said("it is [redacted]"),
        ),
        everywhere("refuses with the key", body("400 No", &[JSON, &header], &error), Wants::Fatal("[redacted]")),
        everywhere(
            "fails with the key",
            body("500 No", &[&header, &format!("retry-after: {KEY}")], &all),
            Wants::Retry(&[""]),
        ),
        everywhere("has the key in its reason", body(&format!("401 {KEY}"), &[], ""), Wants::Human),
        everywhere(
            "redirects to the key",
            body("302 Found", &[&format!("location: http://x/{}", KEY.replace(['"', '\\'], ""))], ""),
            Wants::Fatal(code::REDIRECT),
        ),
        everywhere("has the key where it is cut off", body("400 No", &[], &late), Wants::Fatal("")),
        everywhere("has the key where its explanation is cut", body("400 No", &[], &long), Wants::Fatal("api_error")),
        everywhere(
            "gives up with the key where it is cut",
            body("200 OK", &[JSON], &long),
            Wants::Retry(&["api_error"]),
        ),
        everywhere("hides the key in an error", body("200 OK", &[JSON], &error), Wants::Retry(&["[redacted]"])),
        streamed(
            "says the key letter by letter",
            Wire::OpenAi,
            format!("{pieces}{end}").as_bytes(),
            Wants::Said("[redacted]"),
        ),
        streamed("cannot be read and has the key", Wire::OpenAi, format!("data: {KEY}\n\n").as_bytes(), MALFORMED),
    ]
}

fn check(case: &Case, answered: &Result<ChatResponse, ModelError>) -> bool {
    let code_of = |error: &ModelError| error.code.clone().unwrap_or_default();
    match (case.wants, answered) {
        (Wants::Said(text), Ok(response)) => response.said.content == text,
        (Wants::Retry(codes), Err(error)) => {
            matches!(error.class, ErrorClass::Retry { .. }) && codes.contains(&code_of(error).as_str())
        }
        (Wants::Fatal(code), Err(error)) => error.class == ErrorClass::Fatal && code_of(error) == code,
        (Wants::Bounded, Err(error)) => [code::TOO_LARGE, code::TIMEOUT].contains(&code_of(error).as_str()),
        (Wants::Human, Err(error)) => error.class == ErrorClass::NeedsHuman,
        _ => false,
    }
}

/// Parts of the key that no text of ours has.
fn shows_key(text: &str) -> bool {
    let text = text.to_lowercase();
    ["hostile/0123", "hostile%2f0123", "%68%6f%73%74%69%6c%65", "686f7374696c65", "bgvpvcwmdey", "lwhvc3rpbguvmd"]
        .iter()
        .any(|part| text.contains(part))
}

/// A case with its server and a client of its own. All are made before the first one is asked: making one takes a busy
/// machine longer than the shortest limit here.
async fn prepare<'a>(case: &'a Case, key: &std::path::Path) -> (&'a Case, Hostile, Provider, Duration) {
    let hostile = serve(case.steps.clone()).await;
    // Short where the end of the time is what must come; else so long that a busy machine does not end an answer.
    let times_out = [SLOW, Wants::Bounded].contains(&case.wants);
    let (idle_ms, whole) = if times_out { (1_000, 5_000) } else { (30_000, 60_000) };
    let limits = TransportLimits { response_bytes: RESPONSE_BYTES, idle_ms };
    let base = format!("http://127.0.0.1:{}/v1", hostile.port);
    let key = Some(SecretRef::File(key.to_owned()));
    let config = ProviderConfig { stream: case.stream, limits, ..ProviderConfig::at(case.wire, base, key) };
    let provider = Provider::new(&config).unwrap();
    (case, hostile, provider, Duration::from_millis(whole))
}

async fn run((case, hostile, provider, timeout): (&Case, Hostile, Provider, Duration)) -> Result<(), String> {
    let mut call = ModelCallContext::alone("k");
    call.timeout = timeout;
    let mut shown = String::new();
    let mut sink = |token: StreamToken<'_>| shown.push_str(&format!("{token:?}"));
    let request = full_request();
    let asking = provider.complete(&request, &call, &mut sink);
    let answered = tokio::time::timeout(Duration::from_secs(120), asking).await;
    let label = format!("{} ({:?}, {})", case.name, case.wire, if case.stream { "streamed" } else { "whole" });
    let Ok(answered) = answered else { return Err(format!("{label} does not end")) };
    if !check(case, &answered) {
        return Err(format!("{label}: wanted {:?}, got {answered:?}", case.wants));
    }
    let seen = format!("{answered:?} {shown}");
    if shows_key(&seen) {
        return Err(format!("{label} shows the key: {seen}"));
    }
    if seen.len() > RESPONSE_BYTES * 4 {
        return Err(format!("{label} has {} bytes to say", seen.len()));
    }
    drop(provider);
    let (requests, sent) = (hostile.requests.load(Ordering::Relaxed), hostile.sent.load(Ordering::Relaxed));
    // A connection that breaks before the head is tried again by the HTTP library, which knows that nothing was handled.
    if requests == 0 || requests > 2 || sent > SENT_MAX {
        return Err(format!("{label}: {requests} connections, {sent} bytes"));
    }
    Ok(())
}

async fn run_all(cases: Vec<Vec<Case>>) {
    let dir = tempfile::tempdir().unwrap();
    let key = dir.path().join("key");
    std::fs::write(&key, KEY).unwrap();
    let cases: Vec<Case> = cases.into_iter().flatten().collect();
    let ready = futures_util::future::join_all(cases.iter().map(|case| prepare(case, &key))).await;
    let wrong: Vec<String> =
        futures_util::future::join_all(ready.into_iter().map(run)).await.into_iter().filter_map(Result::err).collect();
    assert!(wrong.is_empty(), "{} of {} cases:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

#[tokio::test]
async fn connections_that_go_wrong_are_errors() {
    run_all(connections()).await;
}

#[tokio::test]
async fn bodies_without_an_end_end() {
    run_all(bodies()).await;
}

#[tokio::test]
async fn answers_that_are_none_are_errors() {
    run_all(answers()).await;
}

/// A server that keeps the connection open after the answer, also one that never counts: nobody waits for it.
#[tokio::test]
async fn an_answer_that_is_over_is_not_waited_for() {
    let openai =
        "data: {\"choices\":[{\"delta\":{\"content\":\"half\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
    let anthropic = [
        json!({"type": "message_start", "message": {"model": "m"}}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "half"}}),
        json!({"type": "message_stop"}),
    ];
    let anthropic: String = anthropic.iter().map(|event| format!("data: {event}\n\n")).collect();
    let case = |name, wire, kind: &str, events: &str, wants| {
        let steps = vec![send(head("200 OK", &[kind])), send(events), Step::Silence];
        vec![Case { name, wire, stream: true, steps, wants }]
    };
    let said = Wants::Said("half");
    run_all(vec![
        case("stays after [DONE]", Wire::OpenAi, EVENTS, openai, said),
        case("stays after [DONE] of a stream without a name", Wire::OpenAi, JSON, openai, said),
        case("stays after message_stop", Wire::Anthropic, EVENTS, &anthropic, said),
        case("stays after message_stop without a name", Wire::Anthropic, JSON, &anthropic, said),
        case("says more after [DONE]", Wire::OpenAi, EVENTS, &format!("{openai}data: {{\n\n"), said),
        case("is done with nothing", Wire::OpenAi, EVENTS, "data: [DONE]\n\n", Wants::Retry(&[code::CUT])),
        case("is done too early", Wire::Anthropic, EVENTS, "data: [DONE]\n\n", Wants::Retry(&[code::CUT])),
    ])
    .await;
}

#[tokio::test]
async fn the_key_is_shown_by_nothing() {
    run_all(echoes()).await;
}

/// G39: by the tool of the system, since compressing is not our business.
#[tokio::test]
async fn a_compression_bomb_stops_at_the_cap() {
    let bomb =
        std::process::Command::new("sh").args(["-c", "head -c 50000000 /dev/zero | gzip"]).output().unwrap().stdout;
    assert!(bomb.len() < RESPONSE_BYTES);
    for kind in [JSON, EVENTS] {
        run_all(vec![everywhere("is a bomb", body("200 OK", &[kind, "content-encoding: gzip"], &bomb), TOO_LARGE)])
            .await;
    }
}

#[test]
fn there_are_enough_of_them_and_the_key_would_be_seen() {
    let count: usize = [connections(), bodies(), answers(), echoes()].iter().map(Vec::len).sum();
    assert!(count >= 50, "{count}");
    assert!(shows_key(KEY) && shows_key(&hex(KEY.as_bytes())) && shows_key("QmVhcmVyIHNrLWhvc3RpbGUvMDEyMythYmM9"));
}
