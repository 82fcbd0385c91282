//! The http activity against a small server on loopback that answers by script.

use std::io::Write as _;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bosun_engine::{ActivityError, Failure, FailureKind, hex};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;
use crate::capability::testing::{failure, is_non_retryable, probe};

/// Answers each request, in order of the path `/<n>`, and remembers what it was asked.
struct Server {
    port: u16,
    requests: Arc<Mutex<Vec<String>>>,
}

async fn serve(answers: Vec<Vec<u8>>) -> Server {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let requests = Arc::new(Mutex::new(Vec::new()));
    let seen = requests.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = Vec::new();
            let mut buffer = [0; 4096];
            loop {
                let length = stream.read(&mut buffer).await.unwrap_or(0);
                request.extend_from_slice(&buffer[..length]);
                if length == 0 || is_whole(&request) {
                    break;
                }
            }
            let text = String::from_utf8_lossy(&request).into_owned();
            let path = text.split(' ').nth(1).and_then(|path| path.get(1..)).unwrap_or_default();
            let number: usize = path.split('?').next().unwrap_or_default().parse().unwrap_or(0);
            seen.lock().unwrap().push(text);
            if let Some(answer) = answers.get(number) {
                let _ = stream.write_all(answer).await;
            } else {
                std::future::pending::<()>().await; // never answers
            }
        }
    });
    Server { port, requests }
}

/// Only hangs take longer.
const PATIENCE: Duration = Duration::from_secs(60);

fn is_whole(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length =
        head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ").map(str::to_owned));
    length.is_none_or(|length| body.len() >= length.parse().unwrap_or(0))
}

fn answer(status: &str, headers: &[&str], body: &str) -> Vec<u8> {
    raw_answer(status, headers, body.as_bytes())
}

fn raw_answer(status: &str, headers: &[&str], body: &[u8]) -> Vec<u8> {
    let mut text = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n", body.len());
    headers.iter().for_each(|header| text += &format!("{header}\r\n"));
    let mut bytes = format!("{text}\r\n").into_bytes();
    bytes.extend_from_slice(body);
    bytes
}

impl Server {
    fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}/{path}", self.port)
    }
    fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

fn loopback() -> HttpConfig {
    HttpConfig { allow_hosts: vec!["127.0.0.1".into()], ..Default::default() }
}

async fn run_with(config: HttpConfig, input: HttpInput) -> Result<HttpOutput, ActivityError> {
    let client = GuardedClient::new(config).unwrap();
    let running = client.run(probe(3).context, input);
    tokio::time::timeout(PATIENCE, running).await.expect("the activity ends in time")
}

async fn get(url: String) -> Result<HttpOutput, ActivityError> {
    run_with(loopback(), HttpInput::get(url)).await
}

fn retry_delay(failure: &Failure) -> Option<Duration> {
    match &failure.kind {
        FailureKind::Application { next_retry_delay, .. } => *next_retry_delay,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn an_answer_comes_with_status_headers_body_and_data() {
    let headers = ["content-type: application/json; charset=utf-8", "x-a: 1", "x-a: 2", "set-cookie: session=secret"];
    let server = serve(vec![answer("201 Created", &headers, "{\"n\": [1]}")]).await;
    let mut input = HttpInput::get(server.url("0"));
    input.method = "post".into();
    input.json = Some(json!({ "q": 1 }));
    input.headers.insert("X-Mine".into(), HeaderText::Text("yes".into()));
    let output = run_with(loopback(), input).await.unwrap();
    assert_eq!((output.status, output.body.as_str(), output.truncated), (201, "{\"n\": [1]}", false));
    assert_eq!(output.json, Some(json!({ "n": [1] })));
    assert_eq!(output.headers["x-a"], "1, 2");
    assert!(!output.headers.contains_key("set-cookie"), "cookies stay out of history");
    let request = &server.requests()[0];
    let key = probe(3).context.idempotency_key();
    for part in
        ["POST /0 ", "x-mine: yes", "content-type: application/json", "{\"q\":1}", &format!("idempotency-key: {key}")]
    {
        assert!(request.contains(part), "{part} is not in {request}");
    }
}

#[tokio::test]
async fn the_idempotency_key_can_be_switched_off() {
    let server = serve(vec![answer("200 OK", &[], "")]).await;
    let mut input = HttpInput::get(server.url("0"));
    input.idempotency_key = false;
    run_with(loopback(), input).await.unwrap();
    assert!(!server.requests()[0].contains("idempotency-key"));
}

#[tokio::test]
async fn a_body_that_is_no_text_is_given_as_digits() {
    let server = serve(vec![raw_answer("200 OK", &[], &[0xff, 0x00, 0x10])]).await;
    let output = get(server.url("0")).await.unwrap();
    assert_eq!((output.body.as_str(), output.encoding), ("ff0010", BodyEncoding::Base16));
}

#[tokio::test]
async fn statuses_fall_into_retry_classes() {
    let statuses = [400, 401, 403, 404, 408, 409, 410, 422, 425, 429, 500, 502, 503, 529];
    let server = serve(statuses.iter().map(|status| answer(&format!("{status} X"), &[], "why  not")).collect()).await;
    for (i, status) in statuses.iter().enumerate() {
        let failure = failure(get(server.url(&i.to_string())).await);
        assert_eq!(failure.type_name(), format!("Http{status}"));
        let retryable = matches!(status, 408 | 409 | 425 | 429 | 500 | 502 | 503 | 529);
        assert_eq!(is_non_retryable(&failure), !retryable, "{status}");
        assert!(failure.message.ends_with(": why not"), "{failure}");
    }
}

#[tokio::test]
async fn retry_after_becomes_the_delay_of_the_next_attempt() {
    let server =
        serve(vec![answer("503 Busy", &["retry-after: 17"], ""), answer("404 No", &["retry-after: 17"], "")]).await;
    assert_eq!(retry_delay(&failure(get(server.url("0")).await)), Some(Duration::from_secs(17)));
    assert_eq!(retry_delay(&failure(get(server.url("1")).await)), None);
}

#[tokio::test]
async fn accepted_statuses_can_be_named() {
    let server = serve(vec![answer("404 No", &[], "gone"), answer("500 No", &[], "")]).await;
    let mut input = HttpInput::get(server.url("0"));
    input.success = vec![404];
    assert_eq!(run_with(loopback(), input).await.unwrap().body, "gone");
    let mut input = HttpInput::get(server.url("1"));
    input.any_status = true;
    assert_eq!(run_with(loopback(), input).await.unwrap().status, 500);
}

#[tokio::test]
async fn a_silent_server_is_given_up_after_the_timeout() {
    let server = serve(vec![]).await;
    let mut input = HttpInput::get(server.url("0?secret=in-query"));
    input.timeout_ms = 300;
    let started = Instant::now();
    let failure = failure(run_with(loopback(), input).await);
    assert_eq!(failure.type_name(), HTTP_TIMEOUT);
    assert!(!is_non_retryable(&failure));
    assert!(!failure.message.contains("in-query"), "{failure}");
    assert!(started.elapsed() < PATIENCE);
}

#[tokio::test]
async fn nobody_listening_is_a_retryable_transport_failure() {
    let port = TcpListener::bind(("127.0.0.1", 0)).await.unwrap().local_addr().unwrap().port();
    let failure = failure(get(format!("http://127.0.0.1:{port}/")).await);
    assert_eq!(failure.type_name(), HTTP_TRANSPORT);
    assert!(!is_non_retryable(&failure));
}

#[tokio::test]
async fn an_answer_over_the_cap_is_refused_or_cut() {
    let server = serve(vec![answer("200 OK", &[], &"\u{e4}".repeat(1_000))]).await;
    let mut input = HttpInput::get(server.url("0"));
    input.response_max = 101;
    let refused = failure(run_with(loopback(), input.clone()).await);
    assert_eq!((refused.type_name(), is_non_retryable(&refused)), (HTTP_TOO_LARGE, true));
    input.too_large = TooLarge::Truncate;
    let output = run_with(loopback(), input).await.unwrap();
    assert_eq!((output.body, output.truncated), ("\u{e4}".repeat(50), true));
}

/// G39: the cap holds for what a small compressed body becomes.
#[tokio::test]
async fn a_compression_bomb_stops_at_the_cap() {
    let server = serve(vec![raw_answer("200 OK", &["content-encoding: gzip"], &gzip_of_zeros(50 << 20).await)]).await;
    let started = Instant::now();
    let failure = failure(get(server.url("0")).await);
    assert_eq!(failure.type_name(), HTTP_TOO_LARGE);
    assert!(started.elapsed() < PATIENCE);
}

/// By the tool of the system: compressing is not our business.
async fn gzip_of_zeros(length: usize) -> Vec<u8> {
    use std::process::{Command, Stdio};
    let mut child = Command::new("gzip").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let feeding = std::thread::spawn(move || stdin.write_all(&vec![0; length]));
    let output = child.wait_with_output().unwrap();
    feeding.join().unwrap().unwrap();
    output.stdout
}

#[tokio::test]
async fn redirects_are_followed_up_to_the_limit() {
    let server = serve(vec![
        answer("302 Found", &["location: /1"], ""),
        answer("307 Again", &["location: 2"], ""),
        answer("200 OK", &[], "here"),
        answer("301 Loop", &["location: /3"], ""),
    ])
    .await;
    let output = get(server.url("0")).await.unwrap();
    assert_eq!((output.body.as_str(), output.url), ("here", server.url("2")));
    let failure = failure(get(server.url("3")).await);
    assert_eq!((failure.type_name(), is_non_retryable(&failure)), (HTTP_REDIRECTS, true));
    assert_eq!(server.requests().len(), 3 + 6);
}

#[tokio::test]
async fn a_redirected_post_becomes_a_get_except_for_307() {
    let server = serve(vec![
        answer("303 Other", &["location: /2"], ""),
        answer("307 Same", &["location: /2"], ""),
        answer("200 OK", &[], ""),
    ])
    .await;
    for path in ["0", "1"] {
        let mut input = HttpInput::get(server.url(path));
        (input.method, input.body) = ("POST".into(), Some("data".into()));
        run_with(loopback(), input).await.unwrap();
    }
    let requests = server.requests();
    assert!(requests[1].starts_with("GET /2") && !requests[1].contains("data"), "{}", requests[1]);
    assert!(requests[3].starts_with("POST /2") && requests[3].ends_with("data"), "{}", requests[3]);
}

/// G36: credentials stay with the origin they were given for; another port is another origin.
#[tokio::test]
async fn credentials_are_not_forwarded_to_another_origin() {
    let other = serve(vec![answer("200 OK", &[], "")]).await;
    let away = format!("location: {}", other.url("0"));
    let server = serve(vec![
        answer("302 Found", &[&away], ""),
        answer("302 Found", &["location: /2"], ""),
        answer("200 OK", &[], ""),
    ])
    .await;
    for path in ["0", "1"] {
        let mut input = HttpInput::get(server.url(path));
        for name in ["Authorization", "Cookie", "X-Api-Key"] {
            input.headers.insert(name.into(), HeaderText::Text("credential".into()));
        }
        input.headers.insert("Accept".into(), HeaderText::Text("text/plain".into()));
        run_with(loopback(), input).await.unwrap();
    }
    let forwarded = &other.requests()[0];
    assert!(!forwarded.contains("credential"), "{forwarded}");
    assert!(forwarded.contains("accept: text/plain"));
    assert_eq!(server.requests()[2].matches("credential").count(), 3, "the same origin gets them");
}

/// G36: a canary on loopback hears nothing, directly, by name, or behind a redirect.
#[tokio::test]
async fn a_forbidden_target_is_never_connected_to() {
    let canary = serve(vec![answer("200 OK", &[], "")]).await;
    let port = canary.port;
    let hosts = ["127.0.0.1", "localhost", "2130706433", "0x7f.1", "0177.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "0"];
    for host in hosts {
        let failure = failure(run_with(HttpConfig::default(), HttpInput::get(format!("http://{host}:{port}/0"))).await);
        assert_eq!((failure.type_name(), is_non_retryable(&failure)), (HTTP_REFUSED_ADDRESS, true), "{host}");
    }
    let redirects = hosts.iter().skip(1).map(|host| format!("location: http://{host}:{port}/0"));
    let server = serve(redirects.map(|location| answer("302 Found", &[&location], "")).collect()).await;
    for i in 0..hosts.len() - 1 {
        // `localhost` is allowed for the first hop only in so far as it is 127.0.0.1, which is listed.
        let result = get(server.url(&i.to_string())).await;
        let host = hosts[i + 1];
        if matches!(host, "2130706433" | "0x7f.1" | "0177.0.0.1") {
            assert!(result.is_ok(), "{host} is 127.0.0.1, which this worker allows");
        } else {
            assert_eq!(failure(result).type_name(), HTTP_REFUSED_ADDRESS, "{host}");
        }
    }
    assert_eq!(canary.requests().len(), 3, "only the allowed spellings of 127.0.0.1 arrived");
}

#[tokio::test]
async fn other_schemes_and_credentials_in_urls_are_refused() {
    for url in
        ["file:///etc/passwd", "ftp://example.com/", "gopher://example.com/", "http://user:pw@example.com/", "nonsense"]
    {
        let failure = failure(get(url.into()).await);
        assert_eq!((failure.type_name(), is_non_retryable(&failure)), (HTTP_REQUEST, true), "{url}");
        assert!(!failure.message.contains("pw"), "{failure}");
    }
    let server = serve(vec![answer("302 Found", &["location: file:///etc/passwd"], "")]).await;
    assert_eq!(failure(get(server.url("0")).await).type_name(), HTTP_REQUEST);
}

#[tokio::test]
async fn secrets_are_sent_and_never_seen_again() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("token");
    std::fs::write(&file, "file-secret\n").unwrap();
    let echo = "you sent file-secret";
    let server = serve(vec![
        answer("200 OK", &["x-echo: file-secret"], echo),
        answer("500 No", &[], echo),
        answer("400 No", &[], echo),
    ])
    .await;
    for path in ["0", "1", "2"] {
        let mut input = HttpInput::get(server.url(path));
        let secret = HeaderText::File(FromFile { file: file.clone(), prefix: "Bearer ".into() });
        input.headers.insert("Authorization".into(), secret);
        let shown = format!("{:?}", run_with(loopback(), input).await);
        assert!(!shown.contains("file-secret") && shown.contains("you sent [redacted]"), "{shown}");
    }
    assert!(server.requests().iter().all(|request| request.contains("authorization: Bearer file-secret\r\n")));
}

/// Servers echo what they were sent in spellings of their own, and answers are cut anywhere.
#[tokio::test]
async fn a_secret_in_another_spelling_is_not_seen_either() {
    const SECRET: &str = "file/secret+0123456789";
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("token");
    std::fs::write(&file, SECRET).unwrap();
    let base64 = "QmVhcmVyIGZpbGUvc2VjcmV0KzAxMjM0NTY3ODk="; // of `Bearer` and the secret
    let spelled = format!("{base64} file%2Fsecret%2B0123456789 {}", hex(SECRET.as_bytes()));
    let no_text = [b"\xff\xfe".as_slice(), SECRET.as_bytes(), b"\xff file/secret"].concat();
    let server = serve(vec![
        answer("200 OK", &[&format!("x-echo: {base64}")], &spelled),
        answer("500 No", &[], &spelled),
        answer("200 OK", &[], &format!("{} file/secret+01234", "x".repeat(180))),
        answer("500 No", &[], &format!("{} file/secret+01234", "x".repeat(180))),
        raw_answer("200 OK", &[], &[no_text, vec![b'+'; 200]].concat()),
    ])
    .await;
    for (path, response_max) in [("0", 1_000), ("1", 1_000), ("2", 192), ("3", 192), ("4", 37)] {
        let mut input = HttpInput { response_max, too_large: TooLarge::Truncate, ..HttpInput::get(server.url(path)) };
        let secret = HeaderText::File(FromFile { file: file.clone(), prefix: "Bearer ".into() });
        input.headers.insert("Authorization".into(), secret);
        let result = run_with(loopback(), input).await;
        let shown = format!("{result:?}");
        let is_redacted = shown.contains("[redacted]") || shown.contains(&hex(b"[redacted]"));
        let parts = ["file/secret", "file%2F", &hex(b"file/secret"), "ZpbGUvc2VjcmV0"];
        assert!(is_redacted && !parts.iter().any(|part| shown.contains(part)), "{path}: {shown}");
    }
}

#[tokio::test]
async fn secrets_come_only_from_where_the_owner_allows() {
    let mut input = HttpInput::get("http://127.0.0.1:1/");
    input.headers.insert("X".into(), HeaderText::Env(FromEnv { env: "PATH".into(), prefix: String::new() }));
    let config = HttpConfig { secret_env: Some(vec!["MY_TOKEN".into()]), ..loopback() };
    let refused = failure(run_with(config, input).await);
    assert_eq!(refused.message, "headers may not be taken from the environment variable PATH");
    let mut input = HttpInput::get("http://127.0.0.1:1/");
    input
        .headers
        .insert("X".into(), HeaderText::File(FromFile { file: "/etc/hostname".into(), prefix: String::new() }));
    let config = HttpConfig { secret_dirs: Some(vec!["/run/secrets".into()]), ..loopback() };
    let refused = failure(run_with(config, input.clone()).await);
    assert_eq!(refused.message, "headers may not be taken from the file /etc/hostname");
    // A directory is where it really lies, as the file is.
    let place = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink("/etc", place.path().join("secrets")).unwrap();
    let config = HttpConfig { secret_dirs: Some(vec![place.path().join("secrets")]), ..loopback() };
    let allowed = failure(run_with(config, input.clone()).await);
    assert!(!allowed.message.contains("may not be taken"), "{}", allowed.message);
    let config = HttpConfig { own: Some("/etc".into()), ..loopback() };
    let refused = failure(run_with(config, input).await);
    assert!(refused.message.contains("the worker's data directory"), "{}", refused.message);
}

#[tokio::test]
async fn a_cancellation_ends_the_wait() {
    let server = serve(vec![]).await;
    let probe = probe(9);
    let client = GuardedClient::new(loopback()).unwrap();
    let running = tokio::spawn(client.run(probe.context, HttpInput::get(server.url("0"))));
    probe.cancel.send(true).unwrap();
    let ended = tokio::time::timeout(PATIENCE, running).await.unwrap().unwrap();
    assert_eq!(ended, Err(ActivityError::Canceled(None)));
}
