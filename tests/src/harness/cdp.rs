//! The Chrome DevTools protocol over the pipes of a browser that was started here: a call with its answer, and what pages
//! said meanwhile.
//!
//! Invariant: every call has a bound, and a browser that has ended fails it at once. Of what pages say, only complaints are
//! kept: exceptions, errors on the console and in the log. It knows no page of ours.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{ChildStdin, ChildStdout};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};

/// How long anything in a browser may take.
pub const BROWSER_MAX: Duration = Duration::from_secs(60);
/// The largest message read: a screenshot has a few megabytes.
const MESSAGE_MAX: u64 = 128 << 20;

/// The connection to a browser.
#[derive(Debug)]
pub struct Cdp {
    into: Mutex<ChildStdin>,
    heard: Arc<Mutex<Heard>>,
    next: AtomicU64,
}

#[derive(Debug, Default)]
struct Heard {
    waiting: BTreeMap<u64, Sender<Value>>,
    /// By session.
    complaints: BTreeMap<String, Vec<String>>,
    ended: bool,
}

impl Cdp {
    pub fn new(into: ChildStdin, from: ChildStdout) -> Cdp {
        let heard: Arc<Mutex<Heard>> = Arc::default();
        let hearing = heard.clone();
        std::thread::spawn(move || {
            let mut from = BufReader::new(from);
            loop {
                let mut bytes = Vec::new();
                let read = from.by_ref().take(MESSAGE_MAX).read_until(0, &mut bytes);
                let message = match read {
                    Ok(1..) => serde_json::from_slice(bytes.strip_suffix(b"\0").unwrap_or(&bytes)),
                    _ => break,
                };
                lock(&hearing).hear(message.unwrap_or_default());
            }
            let mut heard = lock(&hearing);
            heard.ended = true;
            heard.waiting.clear();
        });
        Cdp { into: Mutex::new(into), heard, next: AtomicU64::new(1) }
    }

    /// Calls a method of the browser, or of a page by its session.
    pub fn call(&self, session: Option<&str>, method: &str, parameters: Value) -> io::Result<Value> {
        let (id, answer) = self.send(session, method, parameters)?;
        let answer = answer.recv_timeout(BROWSER_MAX);
        lock(&self.heard).waiting.remove(&id);
        let answer = answer.map_err(|why| match why {
            RecvTimeoutError::Timeout => io::Error::other(format!("{method}: no answer in {BROWSER_MAX:?}")),
            RecvTimeoutError::Disconnected => io::Error::other(format!("{method}: the browser has ended")),
        })?;
        match &answer["error"] {
            Value::Null => Ok(answer["result"].clone()),
            why => Err(io::Error::other(format!("{method}: {}", why["message"].as_str().unwrap_or("refused")))),
        }
    }

    fn send(&self, session: Option<&str>, method: &str, parameters: Value) -> io::Result<(u64, Receiver<Value>)> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let mut message = json!({ "id": id, "method": method, "params": parameters });
        if let Some(session) = session {
            message["sessionId"] = session.into();
        }
        let (answers, answer) = channel();
        {
            let mut heard = lock(&self.heard);
            if heard.ended {
                return Err(io::Error::other(format!("{method}: the browser has ended")));
            }
            heard.waiting.insert(id, answers);
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        let mut into = self.into.lock().unwrap_or_else(PoisonError::into_inner);
        into.write_all(&bytes).and_then(|()| into.flush())?;
        Ok((id, answer))
    }

    /// What a page has complained about since it was asked last.
    pub fn complaints(&self, session: &str) -> Vec<String> {
        lock(&self.heard).complaints.remove(session).unwrap_or_default()
    }
}

fn lock(heard: &Mutex<Heard>) -> MutexGuard<'_, Heard> {
    heard.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Heard {
    fn hear(&mut self, message: Value) {
        if let Some(id) = message["id"].as_u64() {
            if let Some(waiting) = self.waiting.remove(&id) {
                // Whoever asked may have stopped to wait.
                let _ = waiting.send(message);
            }
            return;
        }
        let about = &message["params"];
        let complaint = match message["method"].as_str() {
            Some("Runtime.exceptionThrown") => about["exceptionDetails"].to_string(),
            Some("Runtime.consoleAPICalled") if about["type"] == "error" => about["args"].to_string(),
            Some("Log.entryAdded") if about["entry"]["level"] == "error" => {
                let part = |name: &str| about["entry"][name].as_str().unwrap_or_default().to_owned();
                format!("{}: {} {}", part("source"), part("text"), part("url"))
            }
            _ => return,
        };
        let session = message["sessionId"].as_str().unwrap_or_default().to_owned();
        self.complaints.entry(session).or_default().push(complaint);
    }
}
