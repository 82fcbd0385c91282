//! A tiny HTTP/1.1 client and the calls of the control API the tests make.
//!
//! Invariant: a request is sent at most once. The caller learns whether it was answered, refused, or is unknown (the
//! connection broke after it was sent), which is the difference the crash tests live on. No TLS, no redirects.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use bosun_engine::{Event, EventId, Payload, RequestId, RunResult, SignalName, SignalRequest, StartWorkflow, Started};
use bosun_worker::api::handlers::StartAnswer;
use serde::de::DeserializeOwned;
use serde_json::json;

/// The values of the engine as they are stored, as the command line asks for them.
const EXACTLY: &str = "Accept: application/vnd.bosun+json";

/// The largest answer read, so that a broken worker cannot fill the memory of the tests.
const BODY_MAX: u64 = 64 << 20;
/// The longest that an answer in chunks takes: more than any wait of the API.
const ANSWER_MAX: Duration = Duration::from_secs(120);

/// Where a worker answers, and its token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// `host:port`.
    pub address: String,
    pub token: String,
}

/// One connection to one worker, opened when needed and kept for the next request.
#[derive(Debug)]
pub struct Http {
    pub endpoint: Endpoint,
    timeout: Duration,
    connection: Mutex<Option<BufReader<TcpStream>>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    pub body: Vec<u8>,
}

/// What became of a request.
#[derive(Debug)]
pub enum Reply<T> {
    /// 2xx, read to its end.
    Acknowledged(T),
    /// The worker says that it did not do it.
    Refused(Answer),
    /// It may or may not have been done.
    Unknown(io::Error),
}

impl<T> Reply<T> {
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Reply<U> {
        match self {
            Reply::Acknowledged(value) => Reply::Acknowledged(change(value)),
            Reply::Refused(answer) => Reply::Refused(answer),
            Reply::Unknown(why) => Reply::Unknown(why),
        }
    }
    /// The acknowledged value; anything else is an error that says what happened.
    pub fn acknowledged(self) -> io::Result<T> {
        match self {
            Reply::Acknowledged(value) => Ok(value),
            Reply::Refused(answer) => Err(io::Error::other(format!("refused: {answer:?}"))),
            Reply::Unknown(why) => Err(why),
        }
    }
}

impl Answer {
    pub fn json<T: DeserializeOwned>(&self) -> io::Result<T> {
        serde_json::from_slice(&self.body).map_err(|why| {
            let body = String::from_utf8_lossy(&self.body[..self.body.len().min(300)]).into_owned();
            io::Error::other(format!("status {}, unreadable body ({why}): {body}", self.status))
        })
    }
    fn reply<T: DeserializeOwned>(self) -> Reply<T> {
        if !(200..300).contains(&self.status) {
            return Reply::Refused(self);
        }
        match self.json() {
            Ok(value) => Reply::Acknowledged(value),
            Err(why) => Reply::Unknown(why),
        }
    }
}

impl Http {
    pub fn new(endpoint: Endpoint, timeout: Duration) -> Http {
        Http { endpoint, timeout, connection: Mutex::new(None) }
    }

    /// Sends one request and reads its answer to the end.
    pub fn request(&self, method: &str, path: &str, body: Option<&[u8]>) -> io::Result<Answer> {
        self.request_with(method, path, body, &[])
    }

    /// The same with more header lines.
    pub fn request_with(&self, method: &str, path: &str, body: Option<&[u8]>, headers: &[&str]) -> io::Result<Answer> {
        let mut slot = self.connection.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        // Taken out, so that a connection that fails in the middle is not used again.
        let mut connection = match slot.take() {
            Some(kept) if is_open(&kept) => kept,
            _ => BufReader::new(self.connect()?),
        };
        connection.get_mut().write_all(&self.encode(method, path, body, headers))?;
        let (answer, keep) = read_answer(&mut connection)?;
        if keep {
            *slot = Some(connection);
        }
        Ok(answer)
    }

    fn connect(&self) -> io::Result<TcpStream> {
        let address = self
            .endpoint
            .address
            .parse()
            .map_err(|_| io::Error::other(format!("{:?} is not an address and port", self.endpoint.address)))?;
        let stream = TcpStream::connect_timeout(&address, self.timeout)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(self.timeout))?;
        stream.set_write_timeout(Some(self.timeout))?;
        Ok(stream)
    }

    fn encode(&self, method: &str, path: &str, body: Option<&[u8]>, headers: &[&str]) -> Vec<u8> {
        let Endpoint { address, token } = &self.endpoint;
        let mut head = format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\n");
        if let Some(body) = body {
            head.push_str(&format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len()));
        }
        headers.iter().for_each(|line| head.push_str(&format!("{line}\r\n")));
        head.push_str("\r\n");
        let mut bytes = head.into_bytes();
        bytes.extend_from_slice(body.unwrap_or_default());
        bytes
    }
}

/// Whether a kept connection is still open: the other side has neither closed it nor said anything unasked.
fn is_open(connection: &BufReader<TcpStream>) -> bool {
    let stream = connection.get_ref();
    if stream.set_nonblocking(true).is_err() {
        return false;
    }
    let quiet = matches!(stream.peek(&mut [0]), Err(why) if why.kind() == io::ErrorKind::WouldBlock);
    stream.set_nonblocking(false).is_ok() && quiet
}

/// Reads an answer; also says whether the connection can be used again.
fn read_answer(from: &mut impl BufRead) -> io::Result<(Answer, bool)> {
    let bad = |what: &str| io::Error::new(io::ErrorKind::InvalidData, format!("not an HTTP answer: {what}"));
    let line = read_line(from)?;
    let status = line.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or_else(|| bad(&line))?;
    let (mut length, mut chunked, mut keep) = (None, false, line.starts_with("HTTP/1.1"));
    loop {
        let line = read_line(from)?;
        if line.is_empty() {
            break;
        }
        let (name, value) = line.split_once(':').ok_or_else(|| bad(&line))?;
        let value = value.trim();
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = Some(value.parse::<u64>().map_err(|_| bad(&line))?),
            "transfer-encoding" => chunked = value.eq_ignore_ascii_case("chunked"),
            "connection" => keep &= !value.eq_ignore_ascii_case("close"),
            _ => {}
        }
    }
    let mut body = Vec::new();
    if chunked {
        read_chunks(from, &mut body, Instant::now() + ANSWER_MAX)?;
    } else if let Some(length) = length {
        read_exactly(from, length, &mut body)?;
    } else if status != 204 && status != 304 {
        keep = false;
        from.take(BODY_MAX).read_to_end(&mut body)?;
    }
    Ok((Answer { status, body }, keep))
}

fn read_chunks(from: &mut impl BufRead, body: &mut Vec<u8>, until: Instant) -> io::Result<()> {
    loop {
        // An event stream that nobody meant to get says something all the time, so that no single read takes too long.
        if Instant::now() > until {
            let had = String::from_utf8_lossy(&body[..body.len().min(300)]).into_owned();
            let why = format!("an answer without an end in {ANSWER_MAX:?}: {had}");
            return Err(io::Error::new(io::ErrorKind::TimedOut, why));
        }
        let line = read_line(from)?;
        let digits = line.split(';').next().unwrap_or_default().trim();
        let length = u64::from_str_radix(digits, 16)
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, format!("not the length of a chunk: {line:?}")))?;
        read_exactly(from, length, body)?;
        // After the last chunk stands the empty line that ends the (unused) trailers.
        read_line(from)?;
        if length == 0 {
            return Ok(());
        }
    }
}

fn read_exactly(from: &mut impl BufRead, length: u64, body: &mut Vec<u8>) -> io::Result<()> {
    if body.len() as u64 + length > BODY_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("an answer of more than {BODY_MAX} bytes")));
    }
    if from.take(length).read_to_end(body)? as u64 != length {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the answer broke off"));
    }
    Ok(())
}

fn read_line(from: &mut impl BufRead) -> io::Result<String> {
    let mut line = Vec::new();
    from.take(16 << 10).read_until(b'\n', &mut line)?;
    match line.strip_suffix(b"\n").map(|line| line.strip_suffix(b"\r").unwrap_or(line)) {
        Some(line) => Ok(String::from_utf8_lossy(line).into_owned()),
        None => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the answer broke off in its head")),
    }
}

/// The calls of the control API.
impl Http {
    /// A call in plain JSON.
    pub fn call<T: DeserializeOwned>(
        &self,
        method: &str,
        path: &str,
        body: Option<&impl serde::Serialize>,
    ) -> Reply<T> {
        self.call_with(method, path, body, &[])
    }
    /// A call in exact values, as the command line makes it.
    fn exactly<T: DeserializeOwned>(&self, method: &str, path: &str, body: Option<&impl serde::Serialize>) -> Reply<T> {
        self.call_with(method, path, body, &[EXACTLY])
    }
    fn call_with<T: DeserializeOwned>(
        &self,
        method: &str,
        path: &str,
        body: Option<&impl serde::Serialize>,
        headers: &[&str],
    ) -> Reply<T> {
        let body = body.map(serde_json::to_vec).transpose();
        let answer =
            body.map_err(io::Error::other).and_then(|body| self.request_with(method, path, body.as_deref(), headers));
        match answer {
            Ok(answer) => answer.reply(),
            Err(why) => Reply::Unknown(why),
        }
    }
    fn get<T: DeserializeOwned>(&self, path: &str) -> io::Result<T> {
        self.call::<T>("GET", path, None::<&()>).acknowledged()
    }
    /// The status of `/healthz`.
    pub fn healthz(&self) -> io::Result<u16> {
        self.request("GET", "/healthz", None).map(|answer| answer.status)
    }
    /// The status of `/readyz`.
    pub fn readyz(&self) -> io::Result<u16> {
        self.request("GET", "/readyz", None).map(|answer| answer.status)
    }
    pub fn start(&self, request: &StartWorkflow) -> Reply<Started> {
        self.exactly::<StartAnswer>("POST", "/api/v1/workflows", Some(&json!({ "start": request })))
            .map(|told| told.started)
    }
    pub fn signal(&self, workflow_id: &str, name: &str, input: &serde_json::Value, request_id: &str) -> Reply<()> {
        let request = SignalRequest {
            name: SignalName::of(name),
            input: Payload::raw_json(input.to_string()),
            identity: None,
            request_id: Some(RequestId::of(request_id)),
        };
        self.exactly("POST", &format!("/api/v1/workflows/{workflow_id}/signals/{name}"), Some(&request))
    }
    /// The whole history of the newest run of a workflow; empty if there is no such workflow.
    pub fn history(&self, workflow_id: &str) -> io::Result<Vec<Event>> {
        let mut events: Vec<Event> = Vec::new();
        loop {
            let from = events.last().map_or(EventId(1), |event| event.id.next());
            let path = format!("/api/v1/workflows/{workflow_id}/history?from={from}&limit=1000");
            let page: Vec<Event> = match self.exactly("GET", &path, None::<&()>) {
                Reply::Refused(Answer { status: 404, .. }) => Vec::new(),
                reply => reply.acknowledged()?,
            };
            if page.is_empty() {
                return Ok(events);
            }
            events.extend(page);
        }
    }
    /// How many runs match a list filter, whose text must need no escaping beyond spaces, quotes and signs.
    pub fn count(&self, query: &str) -> io::Result<u64> {
        let answer: serde_json::Value = self.get(&format!("/api/v1/workflow-count?query={}", escape(query)))?;
        answer["count"].as_u64().ok_or_else(|| io::Error::other(format!("no count in {answer}")))
    }
    /// Asks until the run has closed, at most for `patience`.
    pub fn result(&self, workflow_id: &str, patience: Duration) -> io::Result<Option<RunResult>> {
        let wait = patience.min(self.timeout / 2).as_millis();
        let path = format!("/api/v1/workflows/{workflow_id}/result?follow_runs=true&timeout_ms={wait}");
        let until = std::time::Instant::now() + patience;
        loop {
            let answer = self.request_with("GET", &path, None, &[EXACTLY])?;
            match answer.status {
                204 if std::time::Instant::now() >= until => return Ok(None),
                204 => {}
                200 => return answer.json().map(Some),
                _ => return Err(io::Error::other(format!("refused: {answer:?}"))),
            }
        }
    }
}

/// A query parameter: everything but unreserved characters is escaped.
pub fn escape(text: &str) -> String {
    text.bytes().fold(String::new(), |mut escaped, byte| {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
        escaped
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> io::Result<(Answer, bool)> {
        read_answer(&mut text.as_bytes())
    }

    #[test]
    fn answers_are_read_by_length_by_chunks_and_to_the_end() {
        let (answer, keep) = read("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokrest").unwrap();
        assert_eq!((answer.status, answer.body.as_slice(), keep), (200, b"ok".as_slice(), true));
        let chunked =
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3;x=y\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\n";
        let (answer, keep) = read(chunked).unwrap();
        assert_eq!((answer.body.as_slice(), keep), (b"abc0123456789".as_slice(), true));
        let (answer, keep) = read("HTTP/1.1 503 No\r\nConnection: close\r\n\r\ntail").unwrap();
        assert_eq!((answer.status, answer.body.as_slice(), keep), (503, b"tail".as_slice(), false));
        assert_eq!(read("HTTP/1.1 204 No Content\r\n\r\n").unwrap().0.status, 204);
    }

    #[test]
    fn an_answer_that_breaks_off_is_no_answer() {
        for text in [
            "",
            "HTTP/1.1 200",
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfour",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n",
            "nonsense\r\n\r\n",
        ] {
            assert!(read(text).is_err(), "{text:?}");
        }
    }
}
