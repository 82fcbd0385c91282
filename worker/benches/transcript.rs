//! What an agent's conversation costs on disk as it grows: it must be the conversation, not its square.
//! `cargo bench -p bosun-worker --bench transcript [-- CALLS BYTES]`
//!
//! Each run is one agent on a real data directory: so many model calls, each with one call of a tool; every message is
//! text that cannot be compressed. Told are the bytes of the conversation as the last request holds it; of the groups that
//! the engine wrote for it; of the directory when the worker has stopped (both less those of a run of no calls); what
//! whole requests in the history would have cost; and what one call takes.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a program of its own, around what decides")]

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bosun_engine::log::{DiskLog, SledOptions};
use bosun_engine::workflow::WorkflowRegistry;
use bosun_engine::*;
use bosun_worker::agent::{AGENT, Conversations, register, register_activities};
use bosun_worker::capability::model::{ChatRequest, Message};
use serde_json::{Value, json};

fn main() {
    let arguments: Vec<usize> = std::env::args().skip(1).filter_map(|argument| argument.parse().ok()).collect();
    let sizes = match arguments.as_slice() {
        [calls, bytes] => vec![(*calls, *bytes)],
        _ => [512, 2_048].into_iter().flat_map(|bytes| [10, 100, 1_000].map(|calls| (calls, bytes))).collect(),
    };
    println!(
        "{:>6} {:>9} {:>12} {:>12} {:>6} {:>12} {:>6} {:>12} {:>8}",
        "calls", "message", "transcript", "log", "ratio", "disk", "ratio", "square", "ms/call"
    );
    for (calls, bytes) in sizes {
        let empty = live(0, bytes);
        let run = live(calls, bytes);
        let disk = run.disk.saturating_sub(empty.disk);
        let log = run.log.saturating_sub(empty.log);
        let part = |bytes: u64| bytes as f64 / run.transcript as f64;
        println!(
            "{calls:>6} {bytes:>9} {:>12} {log:>12} {:>6.2} {disk:>12} {:>6.2} {:>12} {:>8.2}",
            run.transcript,
            part(log),
            part(disk),
            run.requests,
            run.took.as_secs_f64() * 1_000.0 / calls as f64,
        );
    }
}

struct Lived {
    /// The conversation as the last request holds it.
    transcript: u64,
    /// All requests together: what whole requests in the history would have cost.
    requests: u64,
    /// The groups of the log: what the engine was asked to write.
    log: u64,
    disk: u64,
    took: Duration,
}

fn live(calls: usize, bytes: usize) -> Lived {
    let dir = tempfile::tempdir().expect("a directory");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let asked = Arc::new(Mutex::new((0, 0)));
    let began = Instant::now();
    let log = runtime.block_on(run(dir.path(), calls, bytes, asked.clone()));
    let took = began.elapsed();
    drop(runtime);
    let (transcript, requests) = *asked.lock().expect("nobody panicked");
    Lived { transcript, requests, log, disk: size(dir.path()), took }
}

async fn run(dir: &Path, calls: usize, bytes: usize, asked: Arc<Mutex<(u64, u64)>>) -> u64 {
    let conversations = Conversations::default();
    let log = DiskLog::open(dir, SledOptions::default()).expect("the log opens");
    let mut options = WorkerOptions::new(DataDirectory::Log(Arc::new(log)));
    options.workflows = register(WorkflowRegistry::new());
    options.activities = activities(calls, bytes, asked, &conversations);
    let worker = Worker::start(options).expect("the worker starts");
    let client = worker.client();
    conversations.attach(Arc::new(client.clone()));
    let spec = json!({
        "name": "bench", "provider": "p", "model": "m", "system": "You look.", "task": "Look around.",
        "tools": [{ "name": "look", "parameters": { "type": "object" },
            "does": { "activity": { "activity_type": "look" } } }],
        "limits": { "max_steps": null, "max_tool_calls": null, "context_tokens": 1_000_000_000 },
    });
    let input = Payload::encode(&spec).expect("JSON");
    client.start(StartWorkflow::new(AGENT.into(), "bench".into()).input(input)).await.expect("it starts");
    let wait = ResultRequest { follow_runs: true, timeout: Some(Duration::from_secs(3_600)) };
    let result = client.result(&Target::workflow("bench".into()), wait).await.expect("a result").expect("in time");
    assert!(matches!(result.outcome, CloseOutcome::Completed(_)), "{:?}", result.outcome);
    let log = client.store_info().await.expect("the store").log_bytes;
    worker.drain(Duration::from_secs(30)).await.expect("the log is closed in order");
    log
}

fn activities(
    calls: usize,
    bytes: usize,
    asked: Arc<Mutex<(u64, u64)>>,
    conversations: &Conversations,
) -> ActivityRegistry {
    let mut registry = ActivityRegistry::new();
    let seed = Arc::new(AtomicU64::new(1));
    let text = move || random_text(seed.fetch_add(1, Ordering::Relaxed), bytes);
    let says = text.clone();
    registry.register("model", move |_: ActivityContext, input: Value| {
        let (asked, content) = (asked.clone(), says());
        async move {
            let request: ChatRequest = serde_json::from_value(input["request"].clone()).expect("a request");
            let length = serde_json::to_vec(&request.messages).map_or(0, |bytes| bytes.len() as u64);
            {
                let mut asked = asked.lock().expect("nobody panicked");
                *asked = (length, asked.1 + length);
            }
            let said = request.messages.iter().filter(|message| matches!(message, Message::Assistant(_))).count();
            let call = json!({ "id": "c", "name": "look", "arguments": { "at": said } });
            let tool_calls = if said < calls { json!([call]) } else { json!([]) };
            let usage = json!({ "input": 10, "output": 5 });
            Ok::<_, ActivityError>(json!({ "cost": { "micros": 15 }, "response": {
                "said": { "content": content, "tool_calls": tool_calls }, "stop": "end", "usage": usage, "model": "m" } }))
        }
    });
    registry.register("look", move |_: ActivityContext, _: Value| {
        let content = text();
        async move { Ok::<_, ActivityError>(content) }
    });
    register_activities(&mut registry, conversations.clone());
    registry
}

/// Six bits a character, so that it cannot be compressed much.
fn random_text(seed: u64, bytes: usize) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        char::from(LETTERS[(state >> 33) as usize % 64])
    };
    (0..bytes).map(|_| next()).collect()
}

fn size(dir: &Path) -> u64 {
    let entries = std::fs::read_dir(dir).expect("a directory");
    entries
        .flatten()
        .map(|entry| match entry.metadata() {
            Ok(found) if found.is_dir() => size(&entry.path()),
            Ok(found) => found.len(),
            Err(_) => 0,
        })
        .sum()
}
