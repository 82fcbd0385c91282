//! The past of a run, asked of a process of its own: this very program, with the history on its standard input.
//!
//! Invariant: whatever the workflow code does while it is replayed - overflow its stack, abort, never come back, take all
//! memory - ends that process, and the worker says so on the page. Two are asked at a time; none lives longer than
//! [`PATIENCE`], or than the page that asked. It opens no data directory.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::time::Duration;

use bosun_engine::Turn;
use bosun_replay::History;
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use serde_json::Value;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use tokio::sync::Semaphore;

use crate::api::problem::Problem;
use crate::cli::PastView;

/// So long a replay may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// So much a replay may hold, in bytes.
const MEMORY: u64 = 4 << 30;

/// Each takes a core for as long as the history is, and workflows need theirs.
static REPLAYS: Semaphore = Semaphore::const_new(2);

/// The run of these turns as it was after an event; after the last one, if none is named.
pub(crate) async fn past(turns: Vec<Turn>, at: Option<u64>, plan_before: bool) -> Result<PastView, Problem> {
    let last: usize = turns.iter().map(|turn| turn.events.len()).sum();
    if let Some(event) = at.filter(|event| !(1..=last as u64).contains(event)) {
        return Err(Problem::bad_request(format!("at: there is no event {event}: the history has {last} events")));
    }
    let at = at.iter().flat_map(|at| ["--at".to_owned(), at.to_string()]);
    asked(turns, at.chain(plan_before.then(|| "--plan-before".to_owned())).collect()).await
}

/// What a supervisor of these turns answers to its queries after the last of them.
pub(crate) async fn answers(turns: Vec<Turn>) -> Result<BTreeMap<String, Value>, Problem> {
    Ok(asked(turns, vec!["--answers".to_owned()]).await?.answers)
}

async fn asked(turns: Vec<Turn>, words: Vec<String>) -> Result<PastView, Problem> {
    let broken = |why: String| Problem::bad_request(format!("this run cannot be replayed: {why}"));
    let history = History::new(turns).map_err(|why| broken(why.to_string()))?.to_json();
    let _place = REPLAYS.acquire().await.map_err(|why| broken(why.to_string()))?;
    let mut command = Command::new(program().map_err(|why| broken(why.to_string()))?);
    command.args(["-o", "json", "replay", "past"]);
    command.args(words);
    command.kill_on_drop(true);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = command.spawn().map_err(|why| broken(format!("no process can be started: {why}")))?;
    if let Some(pid) = process.id().and_then(|id| Pid::from_raw(id.cast_signed())) {
        let limit = Rlimit { current: Some(MEMORY), maximum: Some(MEMORY) };
        let _ = prlimit(Some(pid), Resource::Data, limit);
    }
    let mut stdin = process.stdin.take();
    let asked = async {
        // A process that has ended reads nothing; how it ended says more.
        if let Some(stdin) = &mut stdin {
            let _ = stdin.write_all(history.as_bytes()).await;
        }
        drop(stdin.take());
        process.wait_with_output().await
    };
    let ended = tokio::time::timeout(PATIENCE, asked).await;
    let ended = ended.map_err(|_| broken(format!("its code has not come back for {} s", PATIENCE.as_secs())))?;
    let ended = ended.map_err(|why| broken(why.to_string()))?;
    if !ended.status.success() {
        let said = String::from_utf8_lossy(&ended.stderr);
        let said = said.lines().next().unwrap_or_default();
        return Err(broken(format!("the process that ran its code ended with {}. {said}", ended.status)));
    }
    // A program of its own may have printed something before.
    let said = String::from_utf8_lossy(&ended.stdout);
    let answer = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
    serde_json::from_str(answer).map_err(|why| broken(format!("its answer makes no sense: {why}")))
}

/// This program, also where its file has been replaced meanwhile.
fn program() -> std::io::Result<std::path::PathBuf> {
    let own = std::path::Path::new("/proc/self/exe");
    if own.exists() { Ok(own.to_owned()) } else { std::env::current_exe() }
}
