//! Servers by their config, and calls as a worker makes them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bosun_engine::*;
use bosun_worker::capability::mcp::*;
use bosun_worker::capability::model::SecretRef;
use bosun_worker::capability::{self, CapabilityConfig};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::stub;

/// What must never be seen anywhere.
pub(crate) const SECRET: &str = "sk-live-0123456789abcdef";

/// A worker with one server, `s`.
pub(crate) struct Worker {
    pub(crate) registry: ActivityRegistry,
    dir: tempfile::TempDir,
}

struct NoHeartbeats;

impl HeartbeatSink for NoHeartbeats {
    fn heartbeat(&self, _: TaskToken, _: Option<Payload>) {}
}

impl Worker {
    /// A process that behaves like this.
    pub(crate) fn process(mode: &str) -> Worker {
        Worker::process_with(mode, |_| {})
    }

    pub(crate) fn process_with(mode: &str, change: impl FnOnce(&mut McpServer)) -> Worker {
        let dir = tempfile::tempdir().unwrap();
        let mut server = server(mode, dir.path());
        change(&mut server);
        Worker::of(dir, server)
    }

    pub(crate) fn of(dir: tempfile::TempDir, server: McpServer) -> Worker {
        let environment = BTreeMap::from([("PATH".to_owned(), std::env::var("PATH").unwrap())]);
        let mcp = McpConfig { environment, ..McpConfig::default() }.with_server("s", server);
        let mut config = CapabilityConfig { mcp, ..CapabilityConfig::default() };
        config.process.notes = Some(dir.path().join("processes"));
        config.process.kill_grace = Duration::from_millis(300);
        let mut registry = ActivityRegistry::new();
        capability::register(&mut registry, &config).unwrap();
        Worker { registry, dir }
    }

    pub(crate) async fn call(&self, tool: &str, arguments: Value) -> Result<McpOutput, Failure> {
        self.ask(MCP, json!({ "server": "s", "tool": tool, "arguments": arguments, "timeout_ms": 20_000 })).await
    }

    pub(crate) async fn ask<T: serde::de::DeserializeOwned>(&self, activity: &str, input: Value) -> Result<T, Failure> {
        match self.start(activity, input).0.await {
            Ok(payload) => Ok(payload.decode().unwrap()),
            Err(ActivityError::Failure(failure)) => Err(failure),
            Err(other) => panic!("{other:?}"),
        }
    }

    /// A call that may be canceled.
    pub(crate) fn start(&self, activity: &str, input: Value) -> (ActivityFuture, watch::Sender<bool>) {
        let task = ActivityTask {
            namespace: Namespace::of("default"),
            workflow_id: WorkflowId::of("w"),
            workflow_type: WorkflowType::of("w"),
            run_id: RunId([7; 16]),
            seq: Seq(1),
            activity_id: ActivityId::of("a"),
            activity_type: ActivityType::of(activity),
            task_queue: TaskQueue::of("default"),
            attempt: Attempt(1),
            input: Payload::encode(&input).unwrap(),
            heartbeat_details: None,
            scheduled_at: Timestamp::ZERO,
            deadline: None,
            heartbeat_timeout: None,
        };
        let (cancel, canceled) = watch::channel(false);
        let context = ActivityContext::new(Arc::new(task), canceled, Arc::new(NoHeartbeats));
        (self.registry.get(&ActivityType::of(activity)).unwrap()(context), cancel)
    }

    /// The lines of the server's log: what was started and called, and by which process.
    pub(crate) fn log(&self) -> Vec<(String, i32)> {
        let text = std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
        let line = |line: &str| {
            let (what, pid) = line.rsplit_once(' ').unwrap();
            (what.to_owned(), pid.parse().unwrap())
        };
        text.lines().map(line).collect()
    }
    pub(crate) fn count(&self, what: &str) -> usize {
        self.log().iter().filter(|(line, _)| line == what).count()
    }
    pub(crate) fn directory(&self) -> PathBuf {
        self.dir.path().to_owned()
    }
}

pub(crate) fn server(mode: &str, dir: &Path) -> McpServer {
    std::fs::write(dir.join("key"), SECRET).unwrap();
    let text = |text: &str| McpValue::Text(PlainText { text: text.to_owned() });
    let (name, mode) = stub::mode(mode);
    let env = BTreeMap::from([
        (name, text(&mode)),
        ("LOG".to_owned(), text(dir.join("log").to_str().unwrap())),
        ("TOKEN".to_owned(), McpValue::Secret(SecretRef::File(dir.join("key")))),
    ]);
    let command = std::env::current_exe().unwrap().display().to_string();
    let args = stub::ARGUMENTS.map(str::to_owned).to_vec();
    McpServer::new(McpReach::Stdio(McpStdio { command, args, cwd: None, env }))
}

/// The type of a failure, whether it may be tried again, and that it holds no secret.
#[track_caller]
pub(crate) fn judged(result: Result<McpOutput, Failure>) -> (String, bool, String) {
    let failure = result.expect_err("it fails");
    let shown = format!("{failure:?} {failure}");
    assert!(!shown.contains("sk-live"), "{shown}");
    let is_retried = !matches!(&failure.kind, FailureKind::Application { non_retryable: true, .. });
    (failure.type_name().to_owned(), is_retried, failure.message.clone())
}

/// Waits until a process is gone, for two minutes.
pub(crate) async fn is_gone(pid: i32) -> bool {
    let has_ended =
        |stat: &str| stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with(['Z', 'X']));
    // The first thread may have ended while others of the process, which is being killed, still hold its pipes.
    let alone = || std::fs::read_dir(format!("/proc/{pid}/task")).map_or(true, |threads| threads.count() <= 1);
    let running =
        || std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !(has_ended(&stat) && alone()));
    for _ in 0..12_000 {
        if !running() {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    false
}

/// Waits until something has happened in another process.
pub(crate) async fn until(mut happened: impl FnMut() -> bool) {
    for _ in 0..12_000 {
        if happened() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it did not happen in two minutes");
}
