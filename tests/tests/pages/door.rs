//! Requests to pages and API written by hand, with exactly the header lines that are given: what a hostile page, a proxy or a
//! script could send.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use bosun_tests::harness::http::escape;
use bosun_tests::harness::process::REQUEST_MAX;
use serde_json::json;

use super::{Pages, gated};

/// The run that is asked about.
pub(super) const RUN: &str = "story";

/// The pages that are looked at.
pub(super) const LOOKED_AT: [&str; 17] = [
    "/",
    "/inbox",
    "/agents",
    "/schedules",
    "/schedule",
    "/system",
    "/system?doctor=look",
    "/docs",
    "/docs/operating",
    "/start",
    "/live?query=",
    "/runs/story",
    "/runs/story?tab=history&view=raw",
    "/runs/story?tab=moment",
    "/runs/story/fork",
    "/runs/story/export?as=json",
    "/nowhere",
];

/// The forms of pages, with fields that would do something.
pub(super) const FORMS: [(&str, &str); 11] = [
    ("/start", "type=kitchen-sink&id=made&input=%7B%22steps%22%3A%5B%5D%7D"),
    ("/runs/story/act", "verb=cancel"),
    ("/runs/story/act", "verb=signal&name=any&input=1"),
    ("/runs/story/act", "verb=update&name=report_incident&input=%7B%22severity%22%3A%22minor%22%7D"),
    ("/runs/story/act", "verb=pause_activity&activity=1"),
    ("/runs/story/act", "verb=update_activity&activity=1&retry_now=yes"),
    ("/schedule", "id=made&type=kitchen-sink&every=1h"),
    ("/batch", "verb=terminate&of=all&sure=yes"),
    ("/runs/story/answer", "id=x&do=approve"),
    ("/runs/story/fork", "do=fork&kind=none&id=forked"),
    ("/logout", ""),
];

/// An answer, read to its end unless it is a stream.
#[derive(Debug)]
pub(super) struct Heard {
    pub(super) status: u16,
    headers: Vec<(String, String)>,
    pub(super) body: String,
}

impl Heard {
    /// All values of a header.
    pub(super) fn all(&self, name: &str) -> Vec<&str> {
        self.headers.iter().filter(|(given, _)| given == name).map(|(_, value)| value.as_str()).collect()
    }
    pub(super) fn header(&self, name: &str) -> &str {
        self.all(name).first().copied().unwrap_or_default()
    }
}

/// A worker with one run that asks a person, and somebody who is signed in as its owner.
pub(super) struct Door {
    pub(super) pages: Pages,
    /// `NAME=VALUE`.
    pub(super) cookie: String,
    pub(super) seal: String,
}

impl Door {
    pub(super) fn open() -> Door {
        let pages = Pages::serve();
        pages.supervisor(RUN, &gated("a publication", "publish it"));
        pages.asked(RUN);
        Door::to(pages)
    }

    /// Somebody who is signed in as the owner of what is there.
    pub(super) fn to(pages: Pages) -> Door {
        let token = pages.http.endpoint.token.clone();
        let mut door = Door { pages, cookie: String::new(), seal: String::new() };
        (door.cookie, door.seal) = door.signed_in(&token);
        door
    }

    /// The cookie and the seal of somebody who signs in with a token.
    pub(super) fn signed_in(&self, token: &str) -> (String, String) {
        let heard = self.post("/login", &[], &format!("token={token}"));
        assert_eq!(heard.status, 303, "{heard:?}");
        let cookie = heard.header("set-cookie").split(';').next().unwrap().to_owned();
        let page = self.get("/start", &[format!("Cookie: {cookie}")]).body;
        let (_, rest) = page.split_once("name=\"seal\" value=\"").unwrap_or_else(|| panic!("no seal: {page}"));
        (cookie, rest.split_once('"').unwrap().0.to_owned())
    }

    pub(super) fn host(&self) -> String {
        format!("Host: {}", self.pages.http.endpoint.address)
    }
    pub(super) fn cookie_line(&self) -> String {
        format!("Cookie: {}", self.cookie)
    }
    pub(super) fn bearer(&self) -> String {
        format!("Authorization: Bearer {}", self.pages.http.endpoint.token)
    }

    /// A request with these lines and no other.
    pub(super) fn send(&self, method: &str, path: &str, lines: &[String], body: &str) -> Heard {
        let mut stream = TcpStream::connect(&self.pages.http.endpoint.address).unwrap();
        stream.set_read_timeout(Some(REQUEST_MAX)).unwrap();
        let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
        let head = format!("{method} {path} HTTP/1.1\r\n{lines}Connection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        // Whoever refuses may stop to listen in the middle.
        let _ = stream.write_all(body.as_bytes());
        read(stream, &head)
    }

    pub(super) fn get(&self, path: &str, more: &[String]) -> Heard {
        let mut lines = vec![self.host()];
        lines.extend_from_slice(more);
        self.send("GET", path, &lines, "")
    }

    /// A form as a browser sends it.
    pub(super) fn post(&self, path: &str, more: &[String], form: &str) -> Heard {
        let mut lines = vec![self.host(), "Content-Type: application/x-www-form-urlencoded".to_owned()];
        lines.push(format!("Content-Length: {}", form.len()));
        lines.extend_from_slice(more);
        self.send("POST", path, &lines, form)
    }

    /// How much is in the store: no request that is refused adds to it.
    pub(super) fn grown(&self) -> (u64, usize) {
        (self.pages.http.count("").unwrap(), self.pages.events(RUN).len())
    }

    /// The fields of an answer to what the run asks.
    pub(super) fn answer_form(&self, does: &str) -> String {
        let asked = self.pages.asked(RUN);
        let shown = asked["request"]["hash"].as_str().or(asked["request"]["shown"].as_str()).unwrap_or_default();
        format!("id={}&shown={}&do={does}", escape(asked["id"].as_str().unwrap()), escape(shown))
    }

    /// The fields of this session with its seal.
    pub(super) fn sealed(&self, form: &str) -> String {
        format!("{form}&seal={}", self.seal)
    }

    /// Something of a store with a body that would do it.
    pub(super) fn start_body() -> String {
        json!({ "workflow_type": "kitchen-sink", "workflow_id": "made", "input": { "steps": [] } }).to_string()
    }
}

fn read(stream: TcpStream, asked: &str) -> Heard {
    let mut from = BufReader::new(stream);
    let line = |from: &mut BufReader<TcpStream>| {
        let mut line = Vec::new();
        from.read_until(b'\n', &mut line).unwrap_or_else(|why| panic!("{why} after {asked}"));
        String::from_utf8_lossy(&line).trim_end().to_owned()
    };
    let first = line(&mut from);
    let status = first.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse().ok());
    let status = status.unwrap_or_else(|| panic!("not an answer: {first:?} to {asked}"));
    let mut headers = Vec::new();
    loop {
        let line = line(&mut from);
        let Some((name, value)) = line.split_once(": ") else { break };
        headers.push((name.to_ascii_lowercase(), value.to_owned()));
    }
    let mut heard = Heard { status, headers, body: String::new() };
    if heard.header("content-type") != "text/event-stream" {
        let mut body = Vec::new();
        let _ = from.read_to_end(&mut body);
        heard.body = String::from_utf8_lossy(&body).into_owned();
    }
    heard
}
