//! A server that is a process: started as the leader of a group of its own, watched while it speaks, and ended with
//! its standard input first.
//!
//! Invariant: the environment is cleared but for what the owner names; no line and no flood of lines fills the memory or
//! goes on for ever; of what it writes to its error output the end is kept. When a [`RunningServer`] is gone, so is its
//! group. Whether a byte of a call was handed to it is known ([`ServerInput`]), so a call that was not is made again.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use rmcp::RoleClient;
use rmcp::transport::async_rw::AsyncRwTransport;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio_util::sync::CancellationToken;

use super::super::*;
use super::secrets::Secrets;
use super::trouble::{Trouble, said};
use crate::capability::process::{Owner, ProcessConfig, ProcessGroup, passes, spawn};

/// Bytes, and messages, that a server may say for each call. More is a flood.
pub(super) const FLOOD_BYTES: u64 = 64 * 1024 * 1024;
pub(super) const FLOOD_LINES: u64 = 20_000;
/// What is kept of the error output.
const STDERR_BYTES: usize = 16 * 1024;
/// How long a server may take to end by itself after its input is closed.
const LEAVE: Duration = Duration::from_millis(500);
/// How long the rest of its error output is waited for. A process that has left the group may hold it open.
const LAST_WORDS: Duration = Duration::from_millis(500);

pub(super) type Wire = AsyncRwTransport<RoleClient, Watched, GatedInput>;

/// A started server.
pub(super) struct RunningServer {
    child: Child,
    group: ProcessGroup,
    heard: Arc<ServerOutput>,
}

impl RunningServer {
    /// Asked of the kernel: the end of its output may not have been read yet.
    pub(super) fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Its input is closed already: gives it a moment, and ends what is left of its group. Afterwards all is heard.
    pub(super) async fn end(mut self) {
        if tokio::time::timeout(LEAVE, self.child.wait()).await.is_err() {
            self.group.terminate(&mut self.child).await;
        }
        self.group.end();
        self.heard.last_words().await;
    }
}

/// Starts the server.
pub(super) async fn start(
    name: &str,
    stdio: &McpStdio,
    message_bytes: usize,
    worker: &super::ServerContext,
    secrets: &mut Secrets,
) -> Result<(RunningServer, Wire, Arc<ServerOutput>), Trouble> {
    let mut command = Command::new(&stdio.command);
    command.args(&stdio.args).env_clear().envs(&worker.config.environment);
    command.envs(secrets.values(&stdio.env).await?);
    if let Some(cwd) = &stdio.cwd {
        command.current_dir(cwd);
    }
    let (mut child, group) = execute(name, command, &worker.process).await?;
    let heard = Arc::new(ServerOutput::default());
    let stdout = child.stdout.take().expect("stdout is piped");
    let stdin = child.stdin.take().expect("stdin is piped");
    tokio::spawn(keep_end(child.stderr.take().expect("stderr is piped"), heard.clone()));
    let watched = Watched { inner: stdout, heard: heard.clone(), line: 0, line_max: message_bytes };
    // The watch above is the bound: it ends the connection, where the library would go on without the answer.
    let stdin = GatedInput { inner: stdin, input: heard.input.clone() };
    let wire = AsyncRwTransport::new(watched, stdin).with_max_line_length(usize::MAX);
    Ok((RunningServer { child, group, heard: heard.clone() }, wire, heard))
}

async fn execute(name: &str, command: Command, process: &ProcessConfig) -> Result<(Child, ProcessGroup), Trouble> {
    let owner = Owner { idempotency_key: format!("mcp-{name}"), attempt: 1 };
    spawn(command, owner, process, true).await.map_err(|why| {
        let message = format!("cannot start the server: {why}");
        if passes(&why) { Trouble::safe(MCP_UNREACHABLE, message) } else { Trouble::never(MCP_UNREACHABLE, message) }
    })
}

/// What was heard of a server beside its messages.
#[derive(Default)]
pub(super) struct ServerOutput {
    /// Since a call began when no other was on the connection.
    bytes: AtomicU64,
    lines: AtomicU64,
    /// The calls since then, each of which may have its share, and those that are not at their end.
    calls: AtomicU64,
    now: AtomicU64,
    /// Lines that are no messages.
    strange: AtomicU64,
    too_long: AtomicBool,
    flood: AtomicBool,
    pub(super) input: Arc<ServerInput>,
    stderr: Mutex<ErrorOutput>,
    /// Canceled when the error output has been read to its end.
    stderr_ended: CancellationToken,
}

#[derive(Default)]
struct ErrorOutput {
    end: VecDeque<u8>,
    /// There was more before.
    is_cut: bool,
}

impl ErrorOutput {
    fn keep(&mut self, bytes: &[u8]) {
        self.end.extend(bytes);
        let excess = self.end.len().saturating_sub(STDERR_BYTES);
        self.is_cut |= excess > 0;
        self.end.drain(..excess);
    }

    /// Its last line, without secrets: they are cut out of all that is kept, and only then is a line chosen and cut.
    fn last_line(&self, secrets: &Secrets) -> String {
        let bytes: Vec<u8> = self.end.iter().copied().collect();
        let text = String::from_utf8_lossy(&bytes);
        let text = if self.is_cut { secrets.tail_text(&text) } else { secrets.cut_text(&text) };
        text.lines().rev().find(|line| !line.trim().is_empty()).map(said).unwrap_or_default()
    }
}

struct OnCall<'a>(&'a ServerOutput);

impl Drop for OnCall<'_> {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::Relaxed);
    }
}

impl ServerOutput {
    /// The call lasts until what this gives is dropped.
    pub(super) fn call_begins(&self) -> impl Drop + '_ {
        if self.now.fetch_add(1, Ordering::Relaxed) == 0 {
            for count in [&self.bytes, &self.lines, &self.calls] {
                count.store(0, Ordering::Relaxed);
            }
        }
        self.calls.fetch_add(1, Ordering::Relaxed);
        OnCall(self)
    }

    fn is_flood(&self, bytes: u64, lines: u64) -> bool {
        let calls = self.calls.load(Ordering::Relaxed).max(1);
        let bytes = self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let lines = self.lines.fetch_add(lines, Ordering::Relaxed) + lines;
        bytes > calls * FLOOD_BYTES || lines > calls * FLOOD_LINES
    }

    /// Waits a moment for the reason that a process that ends has just written: another task reads it.
    pub(super) async fn last_words(&self) {
        let _ = tokio::time::timeout(LAST_WORDS, self.stderr_ended.cancelled()).await;
    }

    /// Why the connection was ended from this side, if it was.
    pub(super) fn broken(&self) -> Option<Trouble> {
        if self.too_long.load(Ordering::Relaxed) {
            return Some(Trouble::never(MCP_TOO_LARGE, "the server sent a message that is longer than it may be"));
        }
        let message = format!("the server sent more than {FLOOD_BYTES} bytes or {FLOOD_LINES} lines without an answer");
        self.flood.load(Ordering::Relaxed).then(|| Trouble::unknown(MCP_LOST, message))
    }

    /// The end of its error output, and how much else it said, for whoever looks for a reason.
    pub(super) fn excerpt(&self, secrets: &Secrets) -> String {
        let strange = self.strange.load(Ordering::Relaxed);
        let last = self.stderr.lock().unwrap_or_else(PoisonError::into_inner).last_line(secrets);
        let strange =
            if strange > 0 { format!("; it printed {strange} lines that are no messages") } else { String::new() };
        if last.is_empty() { strange } else { format!("; it said last: {last}{strange}") }
    }
}

async fn keep_end(mut stderr: ChildStderr, heard: Arc<ServerOutput>) {
    let _ended = heard.stderr_ended.clone().drop_guard();
    let mut buffer = vec![0; 4 * 1024];
    while let Ok(length @ 1..) = stderr.read(&mut buffer).await {
        heard.stderr.lock().unwrap_or_else(PoisonError::into_inner).keep(&buffer[..length]);
    }
}

/// A server's output with a limit on its lines, and on all of them together.
pub(super) struct Watched {
    inner: ChildStdout,
    heard: Arc<ServerOutput>,
    line: usize,
    line_max: usize,
}

impl Watched {
    fn look(&mut self, bytes: &[u8]) -> io::Result<()> {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let is_blank = matches!(piece.first(), Some(b'\n' | b'\r' | b' '));
            if self.line == 0 && !is_blank && !matches!(piece.first(), Some(b'{' | b'[')) {
                self.heard.strange.fetch_add(1, Ordering::Relaxed);
            }
            self.line += piece.len();
            if self.line > self.line_max {
                self.heard.too_long.store(true, Ordering::Relaxed);
                return Err(io::Error::other("a line is too long"));
            }
            if piece.ends_with(b"\n") {
                self.line = 0;
            }
        }
        let lines = bytes.iter().filter(|byte| **byte == b'\n').count();
        if self.heard.is_flood(bytes.len() as u64, lines as u64) {
            self.heard.flood.store(true, Ordering::Relaxed);
            return Err(io::Error::other("too much was said"));
        }
        Ok(())
    }
}

impl AsyncRead for Watched {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        std::task::ready!(Pin::new(&mut self.inner).poll_read(cx, buffer))?;
        let read = buffer.filled()[before..].to_vec();
        Poll::Ready(self.look(&read))
    }
}

/// How much the pipe to a server has taken, and whether it may take more.
///
/// A connection may be found closed before a call was written, or after: the library says the same of both.
#[derive(Default)]
pub(super) struct ServerInput(Mutex<InputGate>);

#[derive(Default)]
struct InputGate {
    taken: u64,
    is_shut: bool,
}

impl ServerInput {
    /// The bytes that the pipe has taken so far.
    pub(super) fn taken(&self) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).taken
    }

    /// Whether the pipe has taken nothing since; if so it never takes anything again, and what was to be sent is
    /// surely not delivered.
    pub(super) fn is_shut_since(&self, taken: u64) -> bool {
        let mut gate = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        gate.is_shut |= gate.taken == taken;
        gate.taken == taken
    }
}

/// A server's input that counts, and ends when it is shut.
pub(super) struct GatedInput {
    inner: ChildStdin,
    input: Arc<ServerInput>,
}

impl AsyncWrite for GatedInput {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let input = self.input.clone();
        let mut gate = input.0.lock().unwrap_or_else(PoisonError::into_inner);
        if gate.is_shut {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let taken = std::task::ready!(Pin::new(&mut self.inner).poll_write(cx, bytes))?;
        gate.taken += taken as u64;
        Poll::Ready(Ok(taken))
    }
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use super::*;

    const KEY: &str = "sk-live-0123456789";

    fn last_line(pieces: &[&str], secrets: &[&str]) -> String {
        let mut output = ErrorOutput::default();
        pieces.iter().for_each(|piece| output.keep(piece.as_bytes()));
        output.last_line(&Secrets::of_texts(secrets))
    }

    /// The key lies across the place where a long line is cut, and where reading has come to.
    #[test]
    fn a_key_across_the_cut_of_a_line_is_not_seen() {
        for before in 380..=402 {
            let line = format!("{}{KEY} and more", "x".repeat(before));
            let shown = last_line(&[&line], &[KEY]);
            assert!(!shown.contains("sk-l"), "{before}: {shown}");
        }
        for end in 6..=KEY.len() {
            let shown = last_line(&["the key is ", &KEY[..end]], &[KEY]);
            assert_eq!(shown, "the key is [redacted]", "{end}");
        }
    }

    /// The key has lost its beginning, in a text of one line and in one of more; and one key has lines itself.
    #[test]
    fn a_key_across_the_edge_of_what_is_kept_is_not_seen() {
        let lines = "-----KEY\n7777\n8888-----";
        for (secret, forbidden) in [(KEY, "9"), (lines, "8888")] {
            for kept in 0..=secret.len() {
                let rest = STDERR_BYTES - kept;
                for after in ["y".repeat(rest), format!("\n{}", " ".repeat(rest - 1)), " ".repeat(rest)] {
                    let shown = last_line(&["much before ", secret, &after], &[secret]);
                    assert!(!shown.contains(forbidden), "{kept}: {shown}");
                }
            }
        }
        // A key shortly after the edge is whole, and must not be cut by what is dropped.
        for before in 0..200 {
            let rest = "y".repeat(STDERR_BYTES - KEY.len() - before);
            let shown = last_line(&["much before", &"x".repeat(before), KEY, &rest], &[KEY]);
            assert!(!shown.contains('9'), "{before}: {shown}");
        }
        assert_eq!(last_line(&[&"x\n".repeat(STDERR_BYTES), "no such table\n"], &[KEY]), "no such table");
    }

    /// Many calls at a time have a share each; a call that goes on is not given that of a later one twice.
    #[test]
    fn what_may_be_said_is_counted_anew_only_if_no_other_call_goes_on() {
        let heard = ServerOutput::default();
        let first = heard.call_begins();
        assert!(!heard.is_flood(FLOOD_BYTES, FLOOD_LINES));
        drop(heard.call_begins());
        assert!(!heard.is_flood(0, FLOOD_LINES), "the share of the second");
        assert!(heard.is_flood(0, 1) && heard.is_flood(FLOOD_BYTES + 1, 0));
        drop(first);
        let _alone = heard.call_begins();
        assert!(!heard.is_flood(FLOOD_BYTES, FLOOD_LINES) && heard.is_flood(1, 0));
    }

    /// A call that was not written may be made again; once that is said, it is not written any more.
    #[tokio::test]
    async fn what_was_surely_not_sent_is_never_sent_later() {
        use tokio::io::AsyncWriteExt;
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let input = Arc::new(ServerInput::default());
        let mut stdin = GatedInput { inner: child.stdin.take().unwrap(), input: input.clone() };
        stdin.write_all(b"hello\n").await.unwrap();
        assert_eq!(input.taken(), 6);
        assert!(!input.is_shut_since(5), "a byte has gone out");
        stdin.write_all(b"a\n").await.unwrap();
        assert!(input.is_shut_since(8));
        assert_eq!(stdin.write_all(b"b\n").await.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        assert_eq!(input.taken(), 8);
        drop(stdin);
        child.wait().await.unwrap();
    }

    /// It is read by another task, which may come later than the end of the process.
    #[tokio::test]
    async fn the_last_words_of_a_process_are_waited_for() {
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 0.2; echo no such table >&2"]).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().unwrap();
        let heard = Arc::new(ServerOutput::default());
        tokio::spawn(keep_end(child.stderr.take().unwrap(), heard.clone()));
        child.wait().await.unwrap();
        heard.last_words().await;
        assert_eq!(heard.excerpt(&Secrets::default()), "; it said last: no such table");
    }
}
