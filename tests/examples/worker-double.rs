//! A double of the worker that can be told to lie, so that the crash tests can be tested: do they find what they must?
//!
//! Invariant: it keeps the part of the control API the harness uses (start, signal, history, health) over one file of
//! JSON lines, and acknowledges as `--promise` says: `durable` after fsync, `written` after the write alone (survives a
//! kill, not a power cut), `remembered` before anything is written. It runs no workflows.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::UNIX_EPOCH;

use bosun_engine::{
    BuildId, Event, EventId, EventKind, RunId, SignalRequest, StartWorkflow, Started, Timestamp,
    WorkflowExecutionSignaled,
};
use bosun_tests::harness::workload;
use bosun_worker::api::handlers::StartRequestBody;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

#[derive(Clone, Copy, PartialEq)]
enum Promise {
    Durable,
    Written,
    Remembered,
}

#[derive(Serialize, Deserialize)]
struct Record {
    workflow_id: String,
    at: Timestamp,
    kind: EventKind,
}

struct Store {
    promise: Promise,
    file: File,
    histories: BTreeMap<String, Vec<Event>>,
    last_at: Timestamp,
    /// `remembered` writes only when some have come together.
    unwritten: Vec<u8>,
    failed: bool,
}

impl Store {
    fn open(data: &Path, promise: Promise) -> io::Result<Store> {
        let path = data.join("log.jsonl");
        let mut file = OpenOptions::new().create(true).read(true).append(true).open(&path)?;
        if promise == Promise::Durable {
            file.sync_all()?;
            File::open(data)?.sync_all()?;
            File::open(data.parent().unwrap_or(data))?.sync_all()?;
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        // A last line without its end was being written when the process died.
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        file.set_len(whole as u64)?;
        let (histories, last_at, unwritten) = (BTreeMap::new(), Timestamp(0), Vec::new());
        let mut store = Store { promise, file, histories, last_at, unwritten, failed: false };
        for line in bytes[..whole].split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            store.remember(serde_json::from_slice(line)?);
        }
        Ok(store)
    }

    fn append(&mut self, workflow_id: &str, kind: EventKind) -> io::Result<()> {
        if self.failed {
            return Err(io::Error::other("the log has failed"));
        }
        let now = UNIX_EPOCH.elapsed().map_or(0, |now| now.as_micros() as i64);
        let record = Record { workflow_id: workflow_id.to_owned(), at: self.last_at.max(Timestamp(now)), kind };
        serde_json::to_writer(&mut self.unwritten, &record)?;
        self.unwritten.push(b'\n');
        if self.promise != Promise::Remembered || self.unwritten.len() > 4_096 {
            let bytes = std::mem::take(&mut self.unwritten);
            let mut written = self.file.write_all(&bytes);
            if self.promise == Promise::Durable {
                written = written.and_then(|()| self.file.sync_data());
            }
            if written.is_err() {
                // Not remembered either: else a repetition would be taken for done, and acknowledged.
                self.failed = true;
                return written;
            }
        }
        self.remember(record);
        Ok(())
    }

    fn remember(&mut self, record: Record) {
        let Record { workflow_id, at, kind } = record;
        let history = self.histories.entry(workflow_id).or_default();
        history.push(Event { id: EventId(history.len() as u64 + 1), at, build: BuildId(0), kind });
        self.last_at = at;
    }

    fn history(&self, workflow_id: &str) -> &[Event] {
        self.histories.get(workflow_id).map_or(&[], Vec::as_slice)
    }

    fn start(&mut self, request: &StartWorkflow) -> io::Result<(u16, Value)> {
        let newly_started = self.history(request.workflow_id.as_str()).is_empty();
        if newly_started {
            self.append(request.workflow_id.as_str(), workload::of_start(request))?;
        }
        let started = Started { workflow_id: request.workflow_id.clone(), run_id: RunId([0; 16]), newly_started };
        Ok((201, json!(started)))
    }

    fn signal(&mut self, workflow_id: &str, request: SignalRequest) -> io::Result<(u16, Value)> {
        let history = self.history(workflow_id);
        if history.is_empty() {
            return Ok((404, json!({ "code": "not_found" })));
        }
        let applied: BTreeSet<_> = history
            .iter()
            .filter_map(|event| match &event.kind {
                EventKind::WorkflowExecutionSignaled(signal) => signal.request_id.clone(),
                _ => None,
            })
            .collect();
        let SignalRequest { name, input, identity, request_id } = request;
        if request_id.as_ref().is_none_or(|id| !applied.contains(id)) {
            let signaled = WorkflowExecutionSignaled { name, input, identity, request_id };
            self.append(workflow_id, EventKind::WorkflowExecutionSignaled(signaled))?;
        }
        Ok((200, Value::Null))
    }

    fn answer(&mut self, method: &str, target: &str, body: &[u8]) -> io::Result<(u16, Value)> {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        match (method, parts.as_slice()) {
            ("GET", ["healthz"]) => Ok((if self.failed { 503 } else { 200 }, Value::Null)),
            ("POST", ["api", "v1", "workflows"]) => {
                let asked: StartRequestBody = serde_json::from_slice(body)?;
                let (status, started) = self.start(&asked.start)?;
                Ok((status, json!({ "started": started })))
            }
            ("POST", ["api", "v1", "workflows", id, "signals", _]) => self.signal(id, serde_json::from_slice(body)?),
            ("GET", ["api", "v1", "workflows", id, "history"]) => {
                let from = query.split('&').find_map(|pair| pair.strip_prefix("from=")?.parse::<usize>().ok());
                let history = self.history(id);
                Ok((200, json!(history.get(from.unwrap_or(1) - 1..).unwrap_or_default())))
            }
            _ => Ok((404, json!({ "code": "no_such_route" }))),
        }
    }
}

fn serve(stream: TcpStream, store: &Mutex<Store>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream);
    loop {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            if reader.read_until(b'\n', &mut head)? == 0 {
                return Ok(());
            }
        }
        let head = String::from_utf8_lossy(&head).into_owned();
        let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")?.parse().ok()).unwrap_or(0);
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        let mut words = head.split(' ');
        let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let mut store = store.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let (status, answer) = store.answer(method, target, &body).unwrap_or_else(|why| (503, json!(why.to_string())));
        drop(store);
        let answer = answer.to_string();
        let text = format!("HTTP/1.1 {status} -\r\nContent-Length: {}\r\n\r\n{answer}", answer.len());
        reader.get_mut().write_all(text.as_bytes())?;
    }
}

fn main() -> io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (mut data, mut promise) = (PathBuf::from("."), Promise::Durable);
    while let (Some(name), Some(value)) = (arguments.next(), arguments.next()) {
        match (name.as_str(), value.as_str()) {
            ("--data", dir) => data = dir.into(),
            ("--promise", "durable") => promise = Promise::Durable,
            ("--promise", "written") => promise = Promise::Written,
            ("--promise", "remembered") => promise = Promise::Remembered,
            _ => return Err(io::Error::other(format!("unknown: {name} {value}"))),
        }
    }
    fs::create_dir_all(&data)?;
    let store = Arc::new(Mutex::new(Store::open(&data, promise)?));
    let listener = TcpListener::bind("127.0.0.1:0")?;
    fs::write(data.join("token"), "double")?;
    let address = format!("http://{}", listener.local_addr()?);
    let file = json!({ "pid": std::process::id(), "address": address, "token_file": data.join("token") });
    fs::write(data.join("worker.tmp"), file.to_string())?;
    fs::rename(data.join("worker.tmp"), data.join("worker.json"))?;
    println!("ready at {address}");
    for stream in listener.incoming().flatten() {
        let store = store.clone();
        std::thread::spawn(move || serve(stream, &store));
    }
    Ok(())
}
