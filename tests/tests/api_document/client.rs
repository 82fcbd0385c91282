//! One request on a connection of its own, with all of its parts as they were drawn.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use bosun_tests::harness::http::Http;

/// Generous: the machine is busy, and an update may wait for its answer.
pub(super) const PATIENCE: Duration = Duration::from_secs(120);
/// The largest answer that is read.
const BODY_MAX: u64 = 16 << 20;

/// A request, before its parts are put together.
#[derive(Debug, Clone)]
pub(super) struct Drawn {
    pub(super) method: String,
    /// The path with `{names}`.
    pub(super) template: String,
    pub(super) path: Vec<(String, String)>,
    pub(super) query: Vec<(String, String)>,
    /// The `Idempotency-Key`.
    pub(super) key: Option<String>,
    pub(super) body: Option<String>,
}

/// An answer; of a stream that goes on only the head.
pub(super) struct HttpAnswer {
    pub(super) status: u16,
    pub(super) media: String,
    pub(super) body: Vec<u8>,
}

impl std::fmt::Debug for HttpAnswer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let body: String = String::from_utf8_lossy(&self.body).chars().take(600).collect();
        write!(f, "{} {}: {body}", self.status, self.media)
    }
}

fn escaped(text: &str) -> String {
    let one = |byte: u8| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'~' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(one).collect()
}

impl Drawn {
    fn target(&self) -> String {
        let mut path = self.template.clone();
        for (name, text) in &self.path {
            path = path.replace(&format!("{{{name}}}"), &escaped(text));
        }
        let query: Vec<String> = self.query.iter().map(|(name, text)| format!("{name}={}", escaped(text))).collect();
        if query.is_empty() { path } else { format!("{path}?{}", query.join("&")) }
    }
}

pub(super) fn send(http: &Http, drawn: &Drawn, signed: bool, headers: &[&str]) -> io::Result<HttpAnswer> {
    let mut stream = TcpStream::connect(&http.endpoint.address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut head = format!(
        "{} {} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n",
        drawn.method,
        drawn.target(),
        http.endpoint.address
    );
    if signed {
        head.push_str(&format!("Authorization: Bearer {}\r\n", http.endpoint.token));
    }
    if let Some(key) = &drawn.key {
        head.push_str(&format!("Idempotency-Key: {key}\r\n"));
    }
    if let Some(body) = &drawn.body {
        head.push_str(&format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len()));
    }
    headers.iter().for_each(|line| head.push_str(&format!("{line}\r\n")));
    head.push_str("\r\n");
    head.push_str(drawn.body.as_deref().unwrap_or_default());
    stream.write_all(head.as_bytes())?;
    read(BufReader::new(stream))
}

fn read(mut from: BufReader<TcpStream>) -> io::Result<HttpAnswer> {
    let mut line = String::new();
    from.read_line(&mut line)?;
    let status = line.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.ok_or_else(|| io::Error::other(format!("not an HTTP answer: {line:?}")))?;
    let (mut media, mut chunked) = (String::new(), false);
    loop {
        line.clear();
        from.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        match name.to_ascii_lowercase().as_str() {
            "content-type" => media = value.trim().to_owned(),
            "transfer-encoding" => chunked = value.trim().eq_ignore_ascii_case("chunked"),
            _ => {}
        }
    }
    let mut body = Vec::new();
    // Such a stream may go on for ever.
    if !media.starts_with("text/event-stream") && !media.starts_with("application/x-ndjson") {
        from.take(BODY_MAX).read_to_end(&mut body)?;
    }
    Ok(HttpAnswer { status, media, body: if chunked { unchunked(&body) } else { body } })
}

fn unchunked(mut rest: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(end) = rest.windows(2).position(|two| two == b"\r\n") {
        let digits = String::from_utf8_lossy(&rest[..end]).into_owned();
        let length = usize::from_str_radix(digits.trim(), 16).unwrap_or(0);
        let (from, to) = (end + 2, end + 2 + length);
        if length == 0 || to > rest.len() {
            break;
        }
        body.extend_from_slice(&rest[from..to]);
        rest = rest.get(to + 2..).unwrap_or_default();
    }
    body
}
