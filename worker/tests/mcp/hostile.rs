//! Servers that do not answer, answer nonsense, or end: bounded, typed, and honest about what may have run.

use std::time::{Duration, Instant};

use bosun_engine::ActivityError;
use bosun_worker::capability::mcp::*;
use serde_json::{Value, json};

use super::kit::{Worker, is_gone, judged, until};

fn input(tool: &str, timeout_ms: u64) -> Value {
    json!({ "server": "s", "tool": tool, "timeout_ms": timeout_ms })
}

/// The processes of the server that hangs: itself, and its child.
fn hanging(worker: &Worker) -> (i32, i32) {
    let log = worker.log();
    let child = log.iter().find_map(|(line, _)| line.strip_prefix("child ")?.parse().ok()).unwrap();
    (log[0].1, child)
}

#[tokio::test]
async fn canceling_a_call_kills_the_server_and_its_children() {
    let worker = Worker::process("good");
    let (call, cancel) = worker.start(MCP, input("hang", 60_000));
    let call = tokio::spawn(call);
    until(|| worker.log().iter().any(|(line, _)| line.starts_with("child"))).await;
    let (server, child) = hanging(&worker);
    cancel.send_replace(true);
    assert!(matches!(call.await.unwrap(), Err(ActivityError::Canceled(None))));
    assert!(is_gone(server).await && is_gone(child).await);
    assert_eq!(std::fs::read_dir(worker.directory().join("processes")).unwrap().count(), 0, "its note is gone too");
    assert_eq!(worker.call("echo", json!({ "text": "again" })).await.unwrap().text, "again", "over a new connection");
    assert_eq!(worker.count("started"), 2);
}

#[tokio::test]
async fn a_server_that_never_answers_is_given_up_and_ended() {
    let worker = Worker::process("good");
    worker.call("echo", json!({ "text": "a" })).await.unwrap();
    let began = Instant::now();
    let (name, again, why) = judged(worker.ask(MCP, input("hang", 5_000)).await);
    assert_eq!((name.as_str(), again), (MCP_TIMEOUT, false), "{why}");
    assert!(why.contains("nobody knows whether it ran"), "{why}");
    assert!(began.elapsed() < Duration::from_secs(120), "{:?}", began.elapsed());
    let (server, child) = hanging(&worker);
    assert!(is_gone(server).await && is_gone(child).await);
}

#[tokio::test]
async fn the_end_of_the_worker_ends_its_servers() {
    let worker = Worker::process("good");
    worker.call("echo", json!({ "text": "a" })).await.unwrap();
    let server = worker.log()[0].1;
    let Worker { registry, .. } = worker;
    drop(registry);
    assert!(is_gone(server).await);
}

#[tokio::test]
async fn a_server_that_dies_in_a_call_is_started_again_only_for_the_next() {
    let worker = Worker::process("good");
    let (name, again, why) = judged(worker.call("die", json!({})).await);
    assert_eq!((name.as_str(), again), (MCP_LOST, false), "{why}");
    assert!(why.contains("out of cheese [redacted]") && why.contains("nobody knows"), "{why}");
    assert_eq!(worker.count("die"), 1, "it is not called twice");
    let (name, again, why) = judged(worker.call("die_harmless", json!({})).await);
    assert_eq!((name.as_str(), again), (MCP_LOST, true), "a tool that may be repeated is: {why}");
    assert_eq!(worker.call("echo", json!({ "text": "a" })).await.unwrap().text, "a");
    assert_eq!(worker.count("started"), 3);
}

/// A connection that died while nobody called is not noticed by the next call.
#[tokio::test]
async fn a_server_that_died_between_calls_is_started_again() {
    let worker = Worker::process("good");
    worker.call("echo", json!({ "text": "a" })).await.unwrap();
    let server = rustix::process::Pid::from_raw(worker.log()[0].1).unwrap();
    rustix::process::kill_process(server, rustix::process::Signal::KILL).unwrap();
    assert!(is_gone(server.as_raw_nonzero().get()).await);
    assert_eq!(worker.call("echo", json!({ "text": "b" })).await.unwrap().text, "b");
    assert_eq!((worker.count("started"), worker.count("echo")), (2, 2));
}

#[tokio::test]
async fn a_line_without_end_is_cut_off() {
    let worker = Worker::process_with("good", |server| server.message_bytes = 256 * 1024);
    for (tool, arguments) in [("endless", json!({})), ("huge", json!({ "bytes": 1_000_000 }))] {
        let (name, again, why) = judged(worker.call(tool, arguments).await);
        assert_eq!((name.as_str(), again), (MCP_TOO_LARGE, false), "{why}");
    }
    for (line, pid) in worker.log() {
        assert!(line != "started" || is_gone(pid).await, "{pid} goes on");
    }
}

#[tokio::test]
async fn a_flood_of_messages_ends_before_the_time_does() {
    let worker = Worker::process("good");
    for tool in ["flood", "chatter"] {
        let (name, again, why) = judged(worker.ask(MCP, input(tool, 120_000)).await);
        assert_eq!((name.as_str(), again), (MCP_LOST, false), "{why}");
        assert!(why.contains("without an answer") && why.contains("nobody knows"), "{why}");
    }
}

#[tokio::test]
async fn a_list_of_tools_that_fills_the_memory_is_not_kept() {
    let worker = Worker::process("wide");
    let (name, again, why) = judged(worker.call("echo", json!({})).await);
    assert_eq!((name.as_str(), again), (MCP_TOO_LARGE, false), "{why}");
    assert!(why.contains("list of tools"), "{why}");
}

#[tokio::test]
async fn garbage_between_messages_is_passed_over() {
    let worker = Worker::process("good");
    assert_eq!(worker.call("garbage", json!({})).await.unwrap().text, "done: garbage");
}

#[tokio::test]
async fn a_server_that_does_not_say_hello_runs_nothing_and_may_be_tried_again() {
    let mute = Worker::process_with("mute", |server| server.start_ms = 5_000);
    let (name, again, why) = judged(mute.call("echo", json!({ "text": "a" })).await);
    assert_eq!((name.as_str(), again), (MCP_UNREACHABLE, true), "{why}");
    assert!(is_gone(mute.log()[0].1).await);
    let gone = Worker::process("gone");
    let (name, again, why) = judged(gone.call("echo", json!({ "text": "a" })).await);
    assert_eq!((name.as_str(), again), (MCP_UNREACHABLE, true), "{why}");
    assert!(why.contains("no such table: [redacted]"), "it says why: {why}");
    let strange = Worker::process("strange");
    let (name, again, why) = judged(strange.call("echo", json!({ "text": "a" })).await);
    assert_eq!((name.as_str(), again), (MCP_PROTOCOL, false), "{why}");
    let pages = Worker::process("pages");
    let (name, again, why) = judged(pages.call("echo", json!({ "text": "a" })).await);
    assert_eq!((name.as_str(), again), (MCP_PROTOCOL, false), "{why}");
}

#[tokio::test]
async fn a_command_that_is_not_there_is_not_tried_again() {
    let worker = Worker::process_with("good", |server| {
        let McpReach::Stdio(stdio) = &mut server.reach else { panic!("a process") };
        stdio.command = "/nonexistent/mcp".to_owned();
    });
    let (name, again, why) = judged(worker.call("echo", json!({ "text": "a" })).await);
    assert_eq!((name.as_str(), again), (MCP_UNREACHABLE, false), "{why}");
}
