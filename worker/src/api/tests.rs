//! The control API as strangers and friends meet it: over a real socket, with a fake backend behind it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bosun_engine::*;
use futures_util::StreamExt;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;

use super::handlers::Api;
use super::routes::{OPEN_PATHS, ROUTES};
use super::*;
use crate::backend::*;
// The engine has a `EngineHealth` of its own.
use crate::backend::EngineHealth;
use crate::fake::{Fake, RUN, run_info};

/// Only what hangs takes longer, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
const TOKEN: &str = "0123456789abcdef0123456789abcdef";

struct Served {
    fake: Arc<Fake>,
    port: u16,
    stop: watch::Sender<bool>,
    task: tokio::task::JoinHandle<()>,
}

async fn serve(fake: Fake, limits: ServerLimits) -> Served {
    let fake = Arc::new(fake);
    let server = Server::bind("127.0.0.1:0".parse().unwrap(), false, limits).await.unwrap();
    let port = server.address().port();
    let (stop, stopping) = watch::channel(false);
    let api = Api {
        backend: fake.clone(),
        version: "0",
        workflows: Default::default(),
        reach: Default::default(),
        links: None,
    };
    let hosts = ["bosun.example".to_owned()];
    let task = tokio::spawn(async move {
        server.serve(api, Default::default(), Tokens::new(&Token::of(TOKEN), None).unwrap(), &hosts, stopping).await
    });
    Served { fake, port, stop, task }
}

impl Served {
    fn client(&self) -> HttpClient {
        HttpClient::new(&format!("http://127.0.0.1:{}", self.port), Token::of(TOKEN), "token").unwrap()
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(("127.0.0.1", self.port)).await.unwrap()
    }

    /// Sends bytes and reads until the server hangs up; the whole answer as text.
    async fn raw(&self, request: &str) -> String {
        let mut stream = self.connect().await;
        // The server may refuse and hang up before it has read everything.
        let _ = stream.write_all(request.as_bytes()).await;
        let mut answer = Vec::new();
        let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await.unwrap();
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// A request with these header lines; gives the status.
    async fn status(&self, line: &str, headers: &[&str], body: &str) -> u16 {
        let headers: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
        let length = body.len();
        let request =
            format!("{line} HTTP/1.1\r\n{headers}Connection: close\r\nContent-Length: {length}\r\n\r\n{body}");
        status_of(&self.raw(&request).await)
    }
}

fn status_of(answer: &str) -> u16 {
    answer.split(' ').nth(1).unwrap_or_else(|| panic!("no status in {answer:?}")).parse().unwrap()
}

const HOST: &str = "Host: localhost";
/// The form in which the command line asks.
const EXACTLY: &str = "Accept: application/vnd.bosun+json";
const JSON: &str = "Content-Type: application/json";
const BEARER: &str = "Authorization: Bearer 0123456789abcdef0123456789abcdef";

/// The path of a route with its parameters filled in.
fn path_of(route: &str) -> String {
    route
        .replace("{id}", "order-7")
        .replace("{activity_id}", "a1")
        .replace("{update_id}", "u1")
        .replace("{name}", "n1")
        .replace("{token}", &TaskToken { run_id: RUN, seq: Seq(1), attempt: Attempt(1) }.to_string())
}

/// G32: every route and method but /healthz gives 401 without the token and with a wrong one, also in the query string.
#[tokio::test]
async fn every_route_but_healthz_needs_the_token() {
    let served = serve(Fake::new(), ServerLimits::default()).await;
    for route in ROUTES {
        let path = path_of(route.path);
        for (line, headers) in [
            (format!("{} {path}", route.method), vec![HOST, JSON]),
            (format!("{} {path}", route.method), vec![HOST, JSON, EXACTLY]),
            (format!("{} {path}?token={TOKEN}&access_token={TOKEN}", route.method), vec![HOST, JSON]),
            (format!("{} {path}", route.method), vec![HOST, JSON, "Authorization: Bearer wrong"]),
            (format!("{} {path}", route.method), vec![HOST, JSON, "Authorization: Bearer"]),
            (format!("{} {path}", route.method), vec![HOST, JSON, "Authorization: Basic 0123456789abcdef"]),
            (format!("{} {path}", route.method), vec![HOST, JSON, BEARER, BEARER]),
        ] {
            let status = served.status(&line, &headers, "{}").await;
            // The open path takes no parameter, and no token either.
            let expected = match route.path {
                path if OPEN_PATHS.contains(&path) && line.contains('?') => 400,
                path if OPEN_PATHS.contains(&path) => 200,
                _ => 401,
            };
            assert_eq!(status, expected, "{line} {headers:?}");
        }
    }
    assert_eq!(served.status("GET /api/v1/no/such/route", &[HOST], "").await, 401, "nobody learns what exists");
    // What is no API is pages: whoever is not signed in is asked to, whether there is one or not.
    for page in ["/", "/runs/order-7", "/no/such/route", "/healthz/", "/live"] {
        assert_eq!(served.status(&format!("GET {page}"), &[HOST, BEARER], "").await, 303, "{page}");
    }
    assert_eq!(served.fake.calls(), Vec::<String>::new(), "nothing reached the engine");
}

#[tokio::test]
async fn with_the_token_every_route_exists() {
    // Routes of activities alone, of batches and of schedules name their run by an id of their own.
    let mut fake = Fake::new();
    fake.runs.push(run_info(&format!("{}order-7", crate::batch::ID_PREFIX), WorkflowStatus::Running));
    fake.runs.push(run_info("activity:order-7", WorkflowStatus::Running));
    let mut schedule = run_info("schedule:order-7", WorkflowStatus::Running);
    schedule.workflow_type = WorkflowType::of(crate::schedule::SCHEDULE);
    fake.runs.push(schedule);
    let served = serve(fake, ServerLimits::default()).await;
    for route in ROUTES {
        let line = format!("{} {}", route.method, path_of(route.path));
        for headers in [vec![HOST, JSON, BEARER], vec![HOST, JSON, BEARER, EXACTLY]] {
            let status = served.status(&line, &headers, "{}").await;
            assert!(![401, 404, 405, 500].contains(&status), "{line} {headers:?}: {status}");
        }
    }
    assert_eq!(served.status("GET /api/v1/no/such/route", &[HOST, BEARER], "").await, 404);
    assert_eq!(served.status("PUT /api/v1/workflows", &[HOST, JSON, BEARER], "").await, 405);
}

/// G33: DNS rebinding, other origins and other sites are refused, and no CORS header is ever sent.
#[tokio::test]
async fn requests_from_other_pages_are_refused() {
    let served = serve(Fake::new(), ServerLimits::default()).await;
    let port_host = format!("Host: 127.0.0.1:{}", served.port);
    let same = format!("Origin: http://127.0.0.1:{}", served.port);
    let vectors: Vec<(u16, Vec<&str>)> = vec![
        (200, vec![HOST]),
        (200, vec!["Host: LOCALHOST"]),
        (200, vec!["Host: [::1]"]),
        (403, vec!["Host: LOCALHOST:80"]),
        (403, vec!["Host: [::1]:8233"]),
        (200, vec!["Host: bosun.example"]),
        (200, vec![&port_host, &same]),
        (200, vec![HOST, "Sec-Fetch-Site: none"]),
        (200, vec![HOST, "Sec-Fetch-Site: same-origin"]),
        (403, vec!["Host: evil.example"]),
        (403, vec!["Host: localhost.evil.example"]),
        (403, vec!["Host: evil.example:80"]),
        (403, vec!["Host: 127.0.0.1.nip.io"]),
        (403, vec!["Host: 0.0.0.0"]),
        (403, vec!["Host: localhost:80@evil.example"]),
        (403, vec!["Host: "]),
        (403, vec![]),
        (403, vec![HOST, "Host: evil.example"]),
        (403, vec!["Host: evil.example", "X-Forwarded-Host: localhost"]),
        (403, vec![HOST, "Origin: http://evil.example"]),
        (403, vec![HOST, "Origin: https://localhost"]),
        (200, vec!["Host: bosun.example", "Origin: https://bosun.example"]),
        (403, vec![HOST, "Origin: http://localhost:3000"]),
        (403, vec![HOST, "Origin: null"]),
        (403, vec![HOST, "Origin: http://localhost", "Origin: http://evil.example"]),
        (403, vec![HOST, "Sec-Fetch-Site: cross-site"]),
        (403, vec![HOST, "Sec-Fetch-Site: same-site"]),
    ];
    for (expected, headers) in vectors {
        for path in ["/healthz", "/api/v1/workflows"] {
            let mut headers = headers.clone();
            headers.push(BEARER);
            assert_eq!(served.status(&format!("GET {path}"), &headers, "").await, expected, "{path} {headers:?}");
        }
    }
    let absolute = "GET http://evil.example/healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    assert_eq!(status_of(&served.raw(absolute).await), 403);
    let preflight = "OPTIONS /api/v1/workflows HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil.example\r\n\
                     Access-Control-Request-Method: POST\r\nConnection: close\r\n\r\n";
    let answer = served.raw(preflight).await.to_ascii_lowercase();
    assert_eq!(status_of(&answer), 403);
    assert!(!answer.contains("access-control-"), "{answer}");
}

/// G33: what a form or a script without preflight can send is not JSON by its type, so it is refused.
#[tokio::test]
async fn bodies_must_say_that_they_are_json() {
    let served = serve(Fake::new(), ServerLimits::default()).await;
    for (expected, kind) in [
        (200, "Content-Type: application/json"),
        (200, "Content-Type: application/json; charset=utf-8"),
        (200, "Content-Type: Application/JSON"),
        (415, "Content-Type: text/plain"),
        // Whatever `curl -d` is told to send; no form has the token in its header.
        (200, "Content-Type: application/x-www-form-urlencoded"),
        (415, "Content-Type: multipart/form-data; boundary=application/json"),
        (415, "Content-Type: text/plain; application/json"),
        (415, "Content-Type: application/jsonp"),
        (415, "X-Nothing: 1"),
    ] {
        let body = r#"{"reason":"x"}"#;
        let status = served.status("POST /api/v1/workflows/order-7/execution/pause", &[HOST, BEARER, kind], body).await;
        assert_eq!(status, expected, "{kind}");
    }
    let form = [HOST, BEARER, "Content-Type: application/x-www-form-urlencoded"];
    assert_eq!(served.status("POST /api/v1/workflows/order-7/execution/pause", &form, "reason=x").await, 422);
    let twice = [HOST, BEARER, JSON, "Content-Type: text/plain"];
    assert_eq!(served.status("POST /api/v1/workflows/order-7/execution/pause", &twice, "{}").await, 415);
}

/// What nobody would look at is refused: whoever sent it meant something by it.
#[tokio::test]
async fn fields_and_parameters_that_nobody_knows_are_refused() {
    let served = serve(Fake::new(), ServerLimits::default()).await;
    let all = [HOST, BEARER, JSON, EXACTLY];
    let start = json!({ "start": StartWorkflow::new("t".into(), "a".into()) });
    let mut misspelt = start.clone();
    misspelt["start"]["namespaec"] = "dev".into();
    let signal = |name: &str| {
        let input = Payload::default();
        json!(SignalRequest { name: name.into(), input, identity: None, request_id: None }).to_string()
    };
    for (line, body, expected) in [
        ("POST /api/v1/workflows/order-7/execution/pause", r#"{"reason":"x"}"#.to_owned(), 200),
        ("POST /api/v1/workflows/order-7/execution/pause", r#"{"raeson":"x"}"#.to_owned(), 422),
        ("POST /api/v1/workflows/order-7/signals/s", r#"{"name":"s","inptu":null}"#.to_owned(), 422),
        ("POST /api/v1/workflows/order-7/signals/s", signal("s"), 200),
        ("POST /api/v1/workflows/order-7/signals/s", signal("another"), 400),
        ("POST /api/v1/workflows/order-7/execution/pause?namespace=default", "{}".to_owned(), 200),
        ("POST /api/v1/workflows/order-7/execution/pause?namepsace=dev", "{}".to_owned(), 400),
        ("POST /api/v1/store/verify", r#"{"deep":true}"#.to_owned(), 422),
        ("POST /api/v1/workflows", start.to_string(), 201),
        ("POST /api/v1/workflows", misspelt.to_string(), 422),
    ] {
        assert_eq!(served.status(line, &all, &body).await, expected, "{line} {body}");
    }
    for (path, expected) in [
        ("workflows?limit=1", 200),
        ("workflows?limti=1", 400),
        ("workflows/order-7?follow=true", 400),
        ("workflows/order-7/history?from=1&limit=1", 200),
        ("workflow-count?limit=1", 400),
    ] {
        assert_eq!(
            served.status(&format!("GET /api/v1/{path}"), &[HOST, BEARER, EXACTLY], "").await,
            expected,
            "{path}"
        );
    }
}

/// G32: whatever is wrong with a token, the answer is one.
#[tokio::test]
async fn a_refusal_does_not_say_what_was_wrong() {
    let served = serve(Fake::new(), ServerLimits::default()).await;
    let mut answers = Vec::new();
    for header in ["X-Nothing: 1", "Authorization: Bearer wrong", "Authorization: Basic x", "Authorization: Bearer"] {
        let request = format!("GET /api/v1/workflows HTTP/1.1\r\n{HOST}\r\n{header}\r\nConnection: close\r\n\r\n");
        let answer = served.raw(&request).await;
        answers.push(answer.lines().filter(|line| !line.starts_with("date: ")).collect::<Vec<_>>().join("\n"));
    }
    answers.dedup();
    assert_eq!(answers.len(), 1, "{answers:?}");
}

/// The token goes to nobody who has not proved to know it: not to a stranger on the port, and not to one who passes the
/// question on to the true worker.
#[tokio::test]
async fn a_stranger_on_the_port_gets_no_token() {
    let served = serve(Fake::new(), ServerLimits::default()).await;
    let own = served.client();
    assert_eq!(own.prove().await, Ok(()));
    assert!(own.describe(Target::workflow("order-7".into())).await.is_ok());
    let heard = Arc::new(std::sync::Mutex::new(String::new()));
    for passes_on in [false, true] {
        let stranger = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = stranger.local_addr().unwrap().port();
        let (true_port, noted) = (served.port, heard.clone());
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = stranger.accept().await {
                let mut request = vec![0; 4_096];
                let length = stream.read(&mut request).await.unwrap_or(0);
                let text = String::from_utf8_lossy(&request[..length]).into_owned();
                noted.lock().unwrap().push_str(&text);
                let mut answer = b"HTTP/1.1 200 OK\r\nContent-Length: 18\r\n\r\n{\"status\":\"ready\"}".to_vec();
                if passes_on {
                    let mut worker = TcpStream::connect(("127.0.0.1", true_port)).await.unwrap();
                    let text = text.replace(&format!("127.0.0.1:{port}"), &format!("127.0.0.1:{true_port}"));
                    let text = text.replacen("\r\n", "\r\nConnection: close\r\n", 1);
                    worker.write_all(text.as_bytes()).await.unwrap();
                    answer.clear();
                    worker.read_to_end(&mut answer).await.unwrap();
                }
                let _ = stream.write_all(&answer).await;
            }
        });
        let client = HttpClient::new(&format!("http://127.0.0.1:{port}"), Token::of(TOKEN), "token").unwrap();
        assert!(matches!(client.prove().await, Err(CallError::Unproven { .. })), "passes on: {passes_on}");
        let asked = client.describe(Target::workflow("order-7".into())).await;
        assert!(matches!(asked, Err(CallError::Unproven { .. })), "{asked:?}");
    }
    let heard = heard.lock().unwrap().clone();
    assert!(heard.contains("bosun-challenge") && !heard.contains(TOKEN) && !heard.contains("authorization"), "{heard}");
}

/// G34: the body limit holds exactly, with a length and without one.
#[tokio::test]
async fn the_body_limit_is_exact() {
    let limits = ServerLimits { body: 1_000, ..ServerLimits::default() };
    let served = serve(Fake::new(), limits).await;
    let headers = [HOST, BEARER, JSON];
    for (length, expected) in [(999, 200), (1_000, 200), (1_001, 413), (100_000, 413)] {
        let body = format!(r#"{{"reason":"{}"}}"#, "x".repeat(length - r#"{"reason":""}"#.len()));
        assert_eq!(body.len(), length);
        let line = "POST /api/v1/workflows/order-7/execution/pause";
        assert_eq!(served.status(line, &headers, &body).await, expected, "{length} bytes");
        let chunked = format!(
            "{line} HTTP/1.1\r\n{HOST}\r\n{BEARER}\r\n{JSON}\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n\
             {length:x}\r\n{body}\r\n0\r\n\r\n"
        );
        assert_eq!(status_of(&served.raw(&chunked).await), expected, "{length} bytes in chunks");
    }
}

/// G34: headers, JSON depth, id length and page size at their limits.
#[tokio::test]
async fn headers_depth_ids_and_pages_are_limited() {
    let served = serve(Fake::new(), ServerLimits::default()).await;
    let padding = |n: usize| format!("X-Padding: {}", "x".repeat(n));
    assert_eq!(served.status("GET /healthz", &[HOST, &padding(15_000)], "").await, 200);
    assert_eq!(served.status("GET /healthz", &[HOST, &padding(17_000)], "").await, 431);

    let all = [HOST, BEARER, JSON];
    let line = "POST /api/v1/workflows/order-7/queries/q";
    for (depth, expected) in [(63, 200), (64, 200), (65, 400)] {
        let nested = |own: usize| format!("{}{}", "[".repeat(depth - own), "]".repeat(depth - own));
        assert_eq!(served.status(line, &all, &nested(0)).await, expected, "{depth} levels");
        // The exact body itself is one level.
        let (exact, body) = ([HOST, BEARER, JSON, EXACTLY], format!(r#"{{"json":{}}}"#, nested(1)));
        assert_eq!(served.status(line, &exact, &body).await, expected, "{depth} levels");
    }
    let bomb = "[".repeat(1_000_000);
    let began = Instant::now();
    assert_eq!(served.status(line, &all, &bomb).await, 400);
    assert!(began.elapsed() < PATIENCE);

    for (length, expected) in [(255, 404), (256, 400)] {
        let line = format!("GET /api/v1/workflows/{}", "x".repeat(length));
        assert_eq!(served.status(&line, &[HOST, BEARER], "").await, expected, "an id of {length} bytes");
    }
    // The backend is asked for a page at a time.
    for (asked, given) in [("999", 999), ("1001", 1_000), ("1000000", 1_000)] {
        served.status(&format!("GET /api/v1/workflows?limit={asked}"), &[HOST, BEARER, EXACTLY], "").await;
        assert_eq!(*served.fake.calls().last().unwrap(), format!("list \"\" {given}"));
    }
}

/// G35: ids with path separators stay ids.
#[tokio::test]
async fn ids_are_never_paths() {
    let served = serve(Fake::new(), ServerLimits::default()).await;
    for (sent, id) in [
        ("..%2F..%2Fetc%2Fpasswd", "../../etc/passwd"),
        ("%2Fetc%2Fshadow", "/etc/shadow"),
        ("a%5C..%5Cb", "a\\..\\b"),
        ("%252e%252e", "%2e%2e"),
    ] {
        let status =
            served.status(&format!("POST /api/v1/workflows/{sent}/execution/pause"), &[HOST, BEARER, JSON], "{}").await;
        assert_eq!(status, 200, "{sent}");
        assert_eq!(*served.fake.calls().last().unwrap(), format!("pause {id} \"\" by owner"));
    }
    for bad in ["a%00b", "a%0Ab", "a%1b%5b2J"] {
        assert_eq!(served.status(&format!("GET /api/v1/workflows/{bad}"), &[HOST, BEARER], "").await, 400, "{bad}");
    }
    let relative = served.status("POST /api/v1/store/backup", &[HOST, BEARER, JSON], r#"{"to":"../x"}"#).await;
    assert_eq!(relative, 422, "a backup target must be absolute");
}

/// G34: a socket that sends its headers slowly, or nothing at all, is closed in time, and others are served meanwhile.
#[tokio::test]
async fn slow_sockets_are_closed_and_do_not_block_others() {
    let limits = ServerLimits {
        header_timeout: Duration::from_secs(2),
        body_timeout: Duration::from_secs(2),
        idle_timeout: Duration::from_secs(4),
        ..ServerLimits::default()
    };
    let served = serve(Fake::new(), limits).await;
    let mut slow = Vec::new();
    for i in 0..100 {
        let mut stream = served.connect().await;
        let begin: &[u8] = if i % 2 == 0 { b"" } else { b"GET /healthz HTTP/1.1\r\nHost: loc" };
        stream.write_all(begin).await.unwrap();
        slow.push(stream);
    }
    let began = Instant::now();
    assert_eq!(served.status("GET /healthz", &[HOST], "").await, 200);
    // Before any of them can have been closed.
    assert!(began.elapsed() < Duration::from_secs(2), "served beside slow sockets in {:?}", began.elapsed());
    for mut stream in slow {
        let mut rest = Vec::new();
        let closed = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut rest)).await;
        assert!(closed.is_ok(), "a slow socket was not closed");
    }
    // A body that never comes.
    let request = format!(
        "POST /api/v1/workflows/order-7/execution/pause HTTP/1.1\r\n{HOST}\r\n{BEARER}\r\n{JSON}\r\nContent-Length: 10\r\n\
         Connection: close\r\n\r\n{{"
    );
    assert_eq!(status_of(&served.raw(&request).await), 408);
}

/// G34: connections that say nothing make room for who asks something, and streams leave places to others.
#[tokio::test]
async fn idle_connections_and_streams_keep_nobody_out() {
    let mut fake = Fake::new();
    fake.turns.insert("order-7".into(), long_history(12 << 20));
    let served = serve(fake, ServerLimits { connections: 4, ..ServerLimits::default() }).await;
    let idle = [served.connect().await, served.connect().await, served.connect().await, served.connect().await];
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    for _ in 0..3 {
        assert_eq!(served.status("GET /healthz", &[HOST], "").await, 200);
    }
    drop(idle);
    // Nobody reads what they send.
    let request = format!("GET /api/v1/workflows/order-7/export HTTP/1.1\r\n{HOST}\r\n{BEARER}\r\n{EXACTLY}\r\n\r\n");
    let mut streams = Vec::new();
    for expected in ["200", "200", "503"] {
        let mut stream = served.connect().await;
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut head = [0; 12];
        tokio::time::timeout(PATIENCE, stream.read_exact(&mut head)).await.unwrap().unwrap();
        assert_eq!(&head[9..], expected.as_bytes());
        streams.push(stream);
    }
    assert_eq!(served.status("GET /healthz", &[HOST], "").await, 200);
}

const WAITS: ResultRequest = ResultRequest { follow_runs: true, timeout: Some(PATIENCE) };

/// A server with so many connections, of which so many wait for a run.
async fn served_with_waits(connections: usize, waiting: usize) -> (Served, Vec<tokio::task::JoinHandle<()>>) {
    let fake = Fake::new();
    *fake.outcome.lock().unwrap() = None;
    let served = serve(fake, ServerLimits { connections, ..ServerLimits::default() }).await;
    let client = served.client();
    let wait = |_| {
        let client = client.clone();
        tokio::spawn(async move { _ = client.result(Target::workflow(WorkflowId::of("order-7")), WAITS).await })
    };
    let held: Vec<_> = (0..waiting).map(wait).collect();
    let asked = || served.fake.calls().iter().filter(|call| call.starts_with("result ")).count();
    while asked() < waiting {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    (served, held)
}

/// G34: where all places wait for runs, a reserve still serves what is short; what would wait there is told to come again, and a
/// client does, until there is a place.
#[tokio::test]
async fn a_reserve_of_connections_serves_short_requests() {
    let (served, held) = served_with_waits(32, 30).await;
    let (order, waits) = (|| Target::workflow(WorkflowId::of("order-7")), WAITS);
    let patient = served.client();
    for _ in 0..100 {
        assert_eq!(served.status("GET /api/v1/workflows/order-7", &[HOST, BEARER], "").await, 200);
    }
    let address = format!("http://127.0.0.1:{}", served.port);
    let hasty = HttpClient::with_patience(&address, Token::of(TOKEN), "token", Duration::ZERO).unwrap();
    let refused = hasty.result(order(), waits).await.unwrap_err();
    assert!(matches!(&refused, CallError::Refused { status: 503, code, .. } if code == "busy"), "{refused:?}");
    assert!(refused.to_string().contains("--connections"), "{refused}");
    let comes_again =
        tokio::spawn(async move { patient.result(order(), ResultRequest { timeout: None, ..waits }).await });
    tokio::time::sleep(Duration::from_millis(200)).await;
    *served.fake.outcome.lock().unwrap() = Some(CloseOutcome::Completed(Payload::null()));
    held.into_iter().for_each(|task| task.abort());
    let result = tokio::time::timeout(PATIENCE, comes_again).await.unwrap().unwrap();
    assert!(result.unwrap().is_some());
}

/// G34: a crowd that comes at once is refused word by word, each of it, and what it has sent is read, so that the words arrive.
#[tokio::test]
async fn who_is_refused_is_told_when_to_come_again() {
    let (served, held) = served_with_waits(4, 4).await;
    let request = format!("GET /healthz HTTP/1.1\r\n{HOST}\r\nX: {}\r\n\r\n", "x".repeat(8_000));
    let answers = futures_util::future::join_all((0..100).map(|_| served.raw(&request))).await;
    for answer in answers {
        let told = answer.contains("Retry-After: 1") && answer.contains("all 4 connections are at work");
        assert!(answer.starts_with("HTTP/1.1 503 ") && told, "{answer}");
    }
    let client = served.client();
    let busy = tokio::spawn(async move { client.describe(Target::workflow(WorkflowId::of("order-7"))).await });
    tokio::time::sleep(Duration::from_millis(200)).await;
    held.into_iter().for_each(|task| task.abort());
    assert!(tokio::time::timeout(PATIENCE, busy).await.unwrap().unwrap().is_ok(), "it comes again when it may");
}

/// G34: where all places are taken, sockets that say nothing keep nobody waiting for long, and large bodies hear the refusal.
#[tokio::test]
async fn silent_sockets_before_a_full_server_keep_nobody_out() {
    let (served, held) = served_with_waits(32, 30).await;
    let mut silent = Vec::new();
    for _ in 0..64 {
        silent.push(served.connect().await);
    }
    served.client().prove().await.unwrap();
    drop(silent);
    held.into_iter().for_each(|task| task.abort());

    let (served, _held) = served_with_waits(4, 4).await;
    let body = "x".repeat(3 << 20);
    let head = format!("POST /api/v1/workflows HTTP/1.1\r\n{HOST}\r\nContent-Length: {}\r\n\r\n", body.len());
    let answer = served.raw(&(head + &body)).await;
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
}

/// Whoever answers without a proof is a stranger, whatever it says of when to come again.
#[tokio::test]
async fn a_stranger_cannot_hold_a_client_up() {
    for answer in [
        "Retry-After: 18446744073709551615\r\nContent-Length: 0\r\n\r\n".to_owned(),
        "Retry-After: 1\r\nContent-Length: 2\r\n\r\n{}".to_owned(),
    ] {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let stranger = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut asked = [0; 1_024];
            let _ = stream.read(&mut asked).await.unwrap();
            stream.write_all(format!("HTTP/1.1 503 Busy\r\n{answer}").as_bytes()).await.unwrap();
        });
        let client = HttpClient::new(&address, Token::of(TOKEN), "token").unwrap();
        assert!(matches!(client.prove().await, Err(CallError::Unproven { .. })), "{address}");
        stranger.await.unwrap();
    }
}

/// A worker without a place may answer before it is asked: it is busy, and not out of reach.
#[tokio::test]
async fn who_is_refused_before_asking_comes_again() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let refusing = tokio::spawn(async move {
        let body = r#"{"code":"busy","message":"all connections are at work"}"#;
        let head = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 0\r\nConnection: close";
        for came in 0.. {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream
                .write_all(format!("{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).as_bytes())
                .await
                .unwrap();
            let _ = stream.shutdown().await;
            let _ = stream.read_to_end(&mut Vec::new()).await;
            if came == 2 {
                return;
            }
        }
    });
    let client = HttpClient::with_patience(&address, Token::of(TOKEN), "token", Duration::from_secs(5)).unwrap();
    let asking = tokio::spawn(async move { client.prove().await });
    tokio::time::timeout(PATIENCE, refusing).await.expect("it is asked three times").unwrap();
    // Nobody is there any more.
    assert!(matches!(asking.await.unwrap(), Err(CallError::Unreachable { .. })));
}

/// G34: one connection more than allowed is told so.
#[tokio::test]
async fn connections_are_limited() {
    let served = serve(Fake::new(), ServerLimits { connections: 2, ..ServerLimits::default() }).await;
    let held = [served.connect().await, served.connect().await];
    tokio::time::sleep(Duration::from_millis(50)).await;
    let answer = served.raw("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("Retry-After: 1"), "{answer}");
    drop(held);
    let mut status = 0;
    for _ in 0..1_000 {
        tokio::time::sleep(Duration::from_millis(20)).await;
        status = served.status("GET /healthz", &[HOST], "").await;
        if status == 200 {
            break;
        }
    }
    assert_eq!(status, 200, "places come back");
}

/// G32: beyond loopback only when it was said.
#[tokio::test]
async fn a_public_address_needs_a_word() {
    let refused = Server::bind("0.0.0.0:0".parse().unwrap(), false, ServerLimits::default()).await;
    assert!(matches!(refused, Err(ServeError::NotLoopback { .. })));
    assert!(Server::bind("0.0.0.0:0".parse().unwrap(), true, ServerLimits::default()).await.is_ok());
}

/// Every rejection there is.
pub(crate) fn rejections() -> Vec<Rejection> {
    let (workflow_id, failure) = (WorkflowId::of("order-7"), Failure::application("A", "b"));
    let name = QueryName::of("q");
    vec![
        Rejection::NotFound { workflow_id: workflow_id.clone(), run_id: Some(RUN) },
        Rejection::Closed { workflow_id: workflow_id.clone(), run_id: RUN, status: WorkflowStatus::Failed },
        Rejection::AlreadyOpen { workflow_id: workflow_id.clone(), run_id: RUN },
        Rejection::IdReused {
            workflow_id,
            run_id: RUN,
            status: WorkflowStatus::Completed,
            policy: IdReusePolicy::RejectDuplicate,
        },
        Rejection::UnknownWorkflowType { workflow_type: "x".into(), known: vec!["a".into(), "b".into()] },
        Rejection::UpdateRefused { update_id: "u".into(), failure: failure.clone() },
        Rejection::UnknownActivity { activity: "a1".into() },
        Rejection::StaleAttempt { seq: Seq(1), attempt: Attempt(1), current: Attempt(2) },
        Rejection::AlreadyPaused,
        Rejection::NotPaused,
        Rejection::InboxFull { limit: 10 },
        Rejection::Overloaded { limit: 10, retry_after: Duration::from_millis(1_500) },
        Rejection::PayloadTooLarge { length: 3, limit: 2 },
        Rejection::Invalid { what: "x".into(), why: "y".into() },
        Rejection::Held { why: "z".into() },
        Rejection::DoesNotFit { why: "card".into() },
        Rejection::ShuttingDown,
        Rejection::StorageFailed { why: "EIO".into() },
        Rejection::StorageFull { why: "ENOSPC".into() },
        Rejection::Damaged { why: "values/1 is damaged".into() },
        Rejection::StorageError { why: "EIO".into() },
        Rejection::Query(QueryError::Unknown { name: name.clone(), known: vec![] }),
        Rejection::Query(QueryError::Failed { name: name.clone(), failure }),
        Rejection::Query(QueryError::Mutated { name, what: "w".into() }),
    ]
}

#[tokio::test]
async fn a_rejection_survives_the_trip_through_http() {
    for rejection in rejections() {
        let served = serve(Fake::rejecting(rejection.clone()), ServerLimits::default()).await;
        let signal = SignalRequest { name: "s".into(), input: Payload::null(), identity: None, request_id: None };
        let refused = served.client().signal(Target::workflow("order-7".into()), signal).await;
        assert_eq!(refused, Err(CallError::Rejected(rejection)));
    }
}

/// G25: what to wait for is said where waiting helps.
#[tokio::test]
async fn overload_says_when_to_ask_again() {
    for (rejection, status, retry_after) in [
        (Rejection::InboxFull { limit: 1 }, 429, Some("1")),
        (Rejection::Overloaded { limit: 1, retry_after: Duration::from_millis(1_500) }, 503, Some("2")),
        (Rejection::ShuttingDown, 503, Some("1")),
        (Rejection::StorageFull { why: "x".into() }, 507, Some("5")),
        (Rejection::StorageFailed { why: "x".into() }, 503, None),
        (Rejection::AlreadyPaused, 409, None),
    ] {
        let served = serve(Fake::rejecting(rejection.clone()), ServerLimits::default()).await;
        let request = format!(
            "POST /api/v1/workflows/order-7/execution/pause HTTP/1.1\r\n{HOST}\r\n{BEARER}\r\n{JSON}\r\nContent-Length: 2\r\n\
             Connection: close\r\n\r\n{{}}"
        );
        let answer = served.raw(&request).await.to_ascii_lowercase();
        assert_eq!(status_of(&answer), status, "{rejection}");
        let found = answer.lines().find_map(|line| line.strip_prefix("retry-after: "));
        assert_eq!(found, retry_after, "{rejection}");
    }
}

/// G04: a failed log is 503 on /healthz, without telling strangers why.
#[tokio::test]
async fn healthz_tells_that_the_log_failed() {
    let served = serve(Fake::new(), ServerLimits::default()).await;
    assert_eq!(served.client().prove().await, Ok(()));
    *served.fake.health.lock().unwrap() = EngineHealth::StorageFailed { why: "EIO at /secret/place".into() };
    let answer = served.raw("GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await;
    assert_eq!(status_of(&answer), 503);
    assert!(answer.contains("storage_failed") && !answer.contains("secret"), "{answer}");
    assert_eq!(served.client().prove().await, Ok(()), "a failed worker is still a worker");
    *served.fake.health.lock().unwrap() = EngineHealth::Draining;
    assert_eq!(served.status("GET /healthz", &[HOST], "").await, 200, "a draining worker is alive");
    assert_eq!(served.status("GET /readyz", &[HOST, BEARER], "").await, 503, "and takes no work");
}

#[tokio::test]
async fn an_attached_client_sees_what_an_embedded_one_sees() {
    let mut with_turns = Fake::new();
    let mut told = HistoryBuilder::started("order", "order-7", Payload::bytes(vec![0, 255]));
    told.activity_scheduled("charge", Payload::raw_json(r#"{"a": [1, "ü"]}"#));
    with_turns.turns.insert("order-7".into(), told.turns());
    let served = serve(with_turns, ServerLimits::default()).await;
    let (client, fake) = (served.client(), served.fake.clone());
    let target = || Target::workflow("order/7 ü?&#%".into());
    let because = || Attribution { reason: "r".into(), identity: Some("me@here".into()), request_id: None };
    let token = TaskToken { run_id: RUN, seq: Seq(3), attempt: Attempt(1) };

    let start = || StartWorkflow::new("order".into(), "order-7".into()).input(Payload::bytes(vec![0, 255]));
    assert_eq!(client.start(start()).await, fake.start(start()).await);
    let signal = || SignalRequest { name: "s".into(), input: Payload::null(), identity: None, request_id: None };
    assert_eq!(client.signal_with_start(start(), signal()).await, fake.signal_with_start(start(), signal()).await);
    let update = || UpdateRequest {
        update_id: "u 1".into(),
        name: "n".into(),
        input: Payload::null(),
        identity: None,
        wait: UpdateWait::Completed,
    };
    assert_eq!(client.update(target(), update()).await, fake.update(target(), update()).await);
    assert_eq!(client.update_with_start(start(), update()).await, fake.update_with_start(start(), update()).await);
    assert_eq!(client.update_result(target(), "u/1".into()).await, fake.update_result(target(), "u/1".into()).await);
    assert_eq!(client.query(target(), "q".into(), Payload::null()).await, Ok(Payload::raw_json("\"fine\"")));
    let both: [&dyn Backend; 2] = [&client, &*fake];
    for verb in [<dyn Backend>::cancel, <dyn Backend>::terminate, <dyn Backend>::pause, <dyn Backend>::unpause] {
        for backend in both {
            assert_eq!(verb(backend, target(), because()).await, Ok(()));
        }
    }
    for verb in [<dyn Backend>::pause_activity, <dyn Backend>::unpause_activity] {
        for backend in both {
            assert_eq!(verb(backend, target(), "a 1".into(), because()).await, Ok(()));
        }
    }
    let completion = || ActivityCompletion::Fail(Failure::application("A", "b"));
    assert_eq!(client.complete_activity(token, completion()).await, Ok(()));
    assert_eq!(fake.complete_activity(token, completion()).await, Ok(()));
    let run = Target::run("order-7".into(), RUN);
    assert_eq!(client.describe(run.clone()).await, fake.describe(run.clone()).await);
    let list = || ListRequest { query: "A = 'b & c'".into(), limit: 7 };
    assert_eq!(client.list(list()).await, fake.list(list()).await);
    assert_eq!(client.count("WorkflowType = 'x'".into()).await, fake.count("WorkflowType = 'x'".into()).await);
    let wait = ResultRequest { follow_runs: true, timeout: None };
    assert_eq!(client.result(run.clone(), wait).await, fake.result(run.clone(), wait).await);
    assert_eq!(client.history(run.clone(), EventId(2), 9).await, fake.history(run.clone(), EventId(2), 9).await);
    assert_eq!(client.turns(run.clone()).await, fake.turns(run.clone()).await);
    assert_eq!(client.delete(target()).await, fake.delete(target()).await);
    assert_eq!(client.verify().await, fake.verify().await);
    assert_eq!(client.backup("/tmp/x y".into()).await, fake.backup("/tmp/x y".into()).await);
    assert_eq!(client.store_info().await, fake.store_info().await);
    assert_eq!(client.health().await, fake.health().await);

    // The fake has noted each call twice in a row: once over HTTP, once directly.
    let calls = fake.calls();
    let query = calls.iter().position(|call| call.starts_with("query ")).unwrap();
    let mut pairs = calls.clone();
    pairs.remove(query);
    for pair in pairs.chunks(2) {
        // A result over HTTP has the same target and chain, and its own timeout.
        assert_eq!(pair[0].replace("owner (me@here)", "me@here"), pair[1]);
    }
}

/// A start that takes an id over by ending its run does not end a schedule, with or without a message beside it.
#[tokio::test]
async fn no_start_takes_the_place_of_a_schedule() {
    let mut fake = Fake::new();
    let mut nightly = crate::fake::run_info("schedule:nightly", WorkflowStatus::Running);
    nightly.workflow_type = WorkflowType::of(crate::schedule::SCHEDULE);
    fake.runs.push(nightly);
    let served = serve(fake, ServerLimits::default()).await;
    let client = served.client();
    let start = || {
        let id_conflict_policy = IdConflictPolicy::TerminateExisting;
        StartWorkflow { id_conflict_policy, ..StartWorkflow::new("order".into(), "schedule:nightly".into()) }
    };
    let signal = SignalRequest { name: "s".into(), input: Payload::null(), identity: None, request_id: None };
    let update = UpdateRequest {
        update_id: "u".into(),
        name: "n".into(),
        input: Payload::null(),
        identity: None,
        wait: UpdateWait::Completed,
    };
    let tried = [
        client.start(start()).await.err(),
        client.signal_with_start(start(), signal).await.err(),
        client.update_with_start(start(), update).await.err(),
        // One that goes back starts again what it has started.
        client.reset(ResetRequest::new(Target::workflow("schedule:nightly".into()), ResetTo::FirstTurn)).await.err(),
    ];
    for refused in tried {
        let Some(CallError::Refused { status, code, .. }) = refused else { panic!("{refused:?}") };
        assert_eq!((status, code.as_str()), (409, "is_schedule"));
    }
    let calls = served.fake.calls();
    assert!(calls.iter().all(|call| call.starts_with("describe ")), "nothing is started: {calls:?}");
}

/// What runs tell each other is believed as it stands, also who has approved something: nobody sends it from outside,
/// whatever their role (owners too), and with no run to begin.
#[tokio::test]
async fn the_signals_of_runs_to_each_other_are_nobody_elses() {
    let served = serve(Fake::new(), ServerLimits::default()).await;
    let (client, order) = (served.client(), || Target::workflow("order-7".into()));
    let forged = json!({ "update": "approve_plan", "input": { "of": "plan", "version": 1, "approver": "the boss" } });
    for name in ["plan_answer_v1", "waits_below_v1"] {
        let signal = || SignalRequest {
            name: SignalName::of(name),
            input: Payload::encode(&forged).unwrap(),
            identity: Some(Identity::of("the boss")),
            request_id: None,
        };
        let start = StartWorkflow::new("order".into(), "order-8".into());
        let tried =
            [client.signal(order(), signal()).await.err(), client.signal_with_start(start, signal()).await.err()];
        for refused in tried {
            let Some(CallError::Refused { status, code, message }) = refused else { panic!("{name}: {refused:?}") };
            assert_eq!((status, code.as_str()), (403, "forbidden"));
            assert!(message.contains(name) && message.contains("bosun approval"), "{message}");
        }
    }
    assert_eq!(served.fake.calls(), Vec::<String>::new(), "nothing of it reaches a run");
}

#[tokio::test]
async fn streams_arrive_whole_and_a_missing_run_is_an_error() {
    let served = serve(Fake::new(), ServerLimits::default()).await;
    let (client, fake) = (served.client(), served.fake.clone());
    let target = Target::workflow("order-7".into());
    let events: Vec<_> = client.events(target.clone(), EventId(1), true).collect().await;
    let expected: Vec<_> = fake.events.iter().cloned().map(Ok).collect();
    assert_eq!(events, expected);
    let watched: Vec<_> = client.watch("Status = 'x'".into(), Some(GroupSeq(7))).collect().await;
    assert_eq!(watched.len(), 1);
    assert_eq!(*fake.calls().last().unwrap(), "watch \"Status = 'x'\" Some(GroupSeq(7))");
    assert_eq!(watched[0].as_ref().unwrap().event, fake.events[0]);

    let missing = Rejection::NotFound { workflow_id: "order-7".into(), run_id: None };
    *fake.rejection.lock().unwrap() = Some(missing.clone());
    let events: Vec<_> = client.events(target, EventId(1), true).collect().await;
    assert_eq!(events, [Err(CallError::Rejected(missing.clone()))]);
    let watched: Vec<_> = client.watch(String::new(), None).collect().await;
    assert_eq!(watched, [Err(CallError::Rejected(missing))], "an error in the middle of a stream ends it");
}

#[tokio::test]
async fn waiting_ends_when_the_time_is_up() {
    let fake = Fake::new();
    *fake.outcome.lock().unwrap() = None;
    let served = serve(fake, ServerLimits::default()).await;
    let wait = ResultRequest { follow_runs: false, timeout: Some(Duration::from_millis(150)) };
    let began = Instant::now();
    assert_eq!(served.client().result(Target::workflow("order-7".into()), wait).await, Ok(None));
    assert!(began.elapsed() >= Duration::from_millis(150));
}

#[tokio::test]
async fn a_wrong_token_and_a_silent_address_are_told_apart() {
    let served = serve(Fake::new(), ServerLimits::default()).await;
    let address = format!("http://127.0.0.1:{}", served.port);
    let stranger = HttpClient::new(&address, Token::of("x".repeat(64)), "some/file").unwrap();
    let refused = stranger.store_info().await;
    assert_eq!(refused, Err(CallError::Unproven { address, token_file: "some/file".into() }));
    let nobody = HttpClient::new("http://127.0.0.1:1", Token::of(TOKEN), "token").unwrap();
    assert!(matches!(nobody.store_info().await, Err(CallError::Unreachable { .. })));
    assert!(nobody.prove().await.is_err());
}

/// G27: the server ends in bounded time though clients hold connections open.
#[tokio::test]
async fn the_server_stops_with_connections_open() {
    let served =
        serve(Fake::new(), ServerLimits { header_timeout: Duration::from_secs(2), ..ServerLimits::default() }).await;
    let _held = served.connect().await;
    assert_eq!(served.client().prove().await, Ok(()));
    served.stop.send(true).unwrap();
    tokio::time::timeout(PATIENCE, served.task).await.unwrap().unwrap();
}

/// A history of about so many bytes, with failures as deep as a history may have them.
fn long_history(bytes: usize) -> Vec<Turn> {
    let mut told = HistoryBuilder::started("order", "order-7", Payload::null());
    let deep = (0..50)
        .fold(Failure::application("Busy", "later"), |cause, _| Failure::application("Busy", "later").because(cause));
    let charge = told.activity_scheduled("charge", Payload::null());
    told.activity_started(charge, 1);
    told.activity_attempt_failed(charge, 1, deep, Duration::from_secs(1));
    for _ in 0..bytes.div_ceil(10_000) {
        told.signaled("word", Payload::encode(&"x".repeat(10_000)).unwrap());
    }
    told.turns()
}

/// G34: a fork takes a whole history, as large and as deep as a file may be, and no other request takes so much; so many
/// of them are read at once.
#[tokio::test]
async fn a_fork_may_be_as_large_as_a_history_and_nothing_else_may() {
    let limits = ServerLimits { body: 1_000, history_body: 200_000, history_bodies: 1, ..ServerLimits::default() };
    let served = serve(Fake::new(), limits).await;
    let client = served.client();
    let fork = |bytes| ForkRequest::new(ForkSource::History(long_history(bytes)), "f".into());
    assert_eq!(client.fork(fork(100_000)).await.map(|forked| forked.newly_started), Ok(true));
    let Err(CallError::Refused { status, code, .. }) = client.fork(fork(300_000)).await else {
        panic!("it is too large")
    };
    assert_eq!((status, code.as_str()), (413, "body_too_large"));
    let other = SignalRequest {
        name: "s".into(),
        input: Payload::encode(&"x".repeat(2_000)).unwrap(),
        identity: None,
        request_id: None,
    };
    assert!(matches!(
        client.signal(Target::workflow("o".into()), other).await,
        Err(CallError::Refused { status: 413, .. })
    ));

    // One that is slow to come holds the place.
    let mut slow = served.connect().await;
    let head = format!(
        "POST /api/v1/forks HTTP/1.1\r\n{HOST}\r\n{BEARER}\r\n{JSON}\r\n{EXACTLY}\r\nContent-Length: 100000\r\n\r\n{{"
    );
    slow.write_all(head.as_bytes()).await.unwrap();
    let until = async |busy: bool| {
        let begun = Instant::now();
        loop {
            match client.fork(fork(100_000)).await {
                Err(CallError::Refused { status: 503, code, .. }) if code == "busy" && busy => break,
                Ok(_) if !busy => break,
                other => assert!(begun.elapsed() < PATIENCE, "{other:?}"),
            }
        }
    };
    until(true).await;
    drop(slow);
    until(false).await;
}

/// G34: the turns of a long history come whole to a reader that is slower than the idle timeout.
#[tokio::test]
async fn a_long_history_is_not_cut_while_it_is_read() {
    let mut fake = Fake::new();
    let turns = long_history(12 << 20);
    fake.turns.insert("order-7".into(), turns.clone());
    // Long enough for a reader on a busy machine to come round, and shorter than all the reading.
    let idle_timeout = Duration::from_secs(2);
    let served = serve(fake, ServerLimits { idle_timeout, ..ServerLimits::default() }).await;
    let mut stream = served.connect().await;
    let request = format!(
        "GET /api/v1/workflows/order-7/export HTTP/1.1\r\n{HOST}\r\n{BEARER}\r\n{EXACTLY}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let begun = Instant::now();
    let (mut read, mut buffer) = (0, vec![0; 64 << 10]);
    loop {
        tokio::time::sleep(Duration::from_millis(20)).await;
        let n = stream.read(&mut buffer).await.unwrap();
        read += n;
        if n == 0 {
            break;
        }
    }
    assert!(read > 12 << 20, "{read} bytes");
    assert!(begun.elapsed() > idle_timeout, "the reader was too quick to show anything");
    let got = served.client().turns(Target::workflow("order-7".into())).await;
    assert!(got.as_ref() == Ok(&turns), "{:?}", got.map(|turns| turns.len()));
}
