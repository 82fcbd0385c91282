//! Which call has which place among equal requests, and what of that outlives the worker.
//!
//! Invariant: a call has one place, however often it is attempted and whatever becomes of the worker; the place of one that
//! was not answered is free for the next. What is kept is noted, durably, before anybody is asked. A session goes on in the
//! next worker as long as one of its runs, or one above it, is under way; then the next call begins another. It records
//! and plays nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::future::Future;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use tokio::sync::OnceCell;

use super::super::{CallTag, ModelCallContext};

/// The file of a session in a data directory.
pub(super) const SESSION_FILE: &str = "cassette-session.jsonl";

/// How many runs of a session are asked after, the newest first.
const RUNS_MAX: usize = 1_000;

/// The run of a call, as it is looked up.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CallingRun {
    pub namespace: String,
    pub workflow_id: String,
    pub run_id: String,
}

/// Knows the runs of a worker.
pub trait Lives: Send + Sync {
    /// Whether this run, or one that it is below of, has not ended.
    fn is_under_way(&self, run: CallingRun) -> Pin<Box<dyn Future<Output = bool> + Send + '_>>;
}

/// Where the places of a worker's calls are kept.
#[derive(Clone)]
pub struct CassetteSession {
    path: PathBuf,
    lives: Arc<dyn Lives>,
    begun: Arc<OnceCell<PlaceRegister>>,
}

/// Places in memory, and the file that they are kept in.
pub(super) struct PlaceRegister {
    seen: Mutex<BTreeMap<String, Occurrences>>,
    file: Option<Mutex<File>>,
}

/// Which call was which occurrence of its request.
#[derive(Debug, Default)]
struct Occurrences {
    calls: BTreeMap<String, u32>,
    next: u32,
    /// Of calls that were not answered.
    free: BTreeSet<u32>,
    /// The places that calls had when the worker before ended, which are free now.
    before: BTreeMap<String, u32>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    /// The recordings that the places are of.
    Session {
        directory: PathBuf,
    },
    Asked {
        key: String,
        place: u32,
        call: String,
        run: CallingRun,
    },
}

impl CassetteSession {
    /// A session that is kept in the data directory of a worker.
    pub fn new(data: &Path, lives: Arc<dyn Lives>) -> CassetteSession {
        CassetteSession { path: data.join(SESSION_FILE), lives, begun: Arc::default() }
    }
}

/// The places of the requests of one worker.
pub(super) enum Places {
    Memory(PlaceRegister),
    Kept(CassetteSession),
}

impl Default for Places {
    fn default() -> Self {
        Places::Memory(PlaceRegister { seen: Mutex::default(), file: None })
    }
}

impl Places {
    /// The place of a call among those of its request. Recordings are in `directory`; `is_recorded` looks there.
    pub(super) async fn of(
        &self,
        key: &str,
        call: &ModelCallContext,
        directory: &Path,
        is_recorded: &(dyn Fn(&str, u32) -> bool + Sync),
    ) -> io::Result<u32> {
        let run = run_of(call);
        let begun = match self {
            Places::Memory(begun) => begun,
            Places::Kept(session) => {
                let begin = || begin(session, &run, directory, is_recorded);
                session.begun.get_or_try_init(begin).await?
            }
        };
        let (place, is_new) = begun.seen().entry(key.to_owned()).or_default().place(&call.idempotency_key);
        if let Some(file) = begun.file.as_ref().filter(|_| is_new) {
            let line = Line::Asked { key: key.to_owned(), place, call: call.idempotency_key.clone(), run };
            let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
            // A short line, beside a call that takes a second; it must be there before anybody is asked.
            append(&mut file, &line)?;
        }
        Ok(place)
    }

    /// The next call has its place.
    pub(super) fn unanswered(&self, key: &str, call: &str) {
        let begun = match self {
            Places::Memory(begun) => Some(begun),
            Places::Kept(session) => session.begun.get(),
        };
        if let Some(begun) = begun
            && let Some(seen) = begun.seen().get_mut(key)
        {
            seen.free.extend(seen.calls.remove(call));
        }
    }
}

impl PlaceRegister {
    fn seen(&self) -> MutexGuard<'_, BTreeMap<String, Occurrences>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Occurrences {
    /// The place of a call, and whether it has just been given to it.
    fn place(&mut self, call: &str) -> (u32, bool) {
        if let Some(place) = self.calls.get(call) {
            return (*place, false);
        }
        let own = self.before.remove(call).filter(|place| self.free.remove(place));
        let place = own.or_else(|| self.free.pop_first()).unwrap_or_else(|| {
            self.next += 1;
            self.next
        });
        self.calls.insert(call.to_owned(), place);
        (place, true)
    }
}

fn run_of(call: &ModelCallContext) -> CallingRun {
    let CallTag { workflow_id, run_id, .. } = call.tag.clone();
    CallingRun { namespace: call.namespace.clone(), workflow_id, run_id }
}

/// Goes on with the session of the worker before, or begins one.
async fn begin(
    session: &CassetteSession,
    asking: &CallingRun,
    directory: &Path,
    is_recorded: &(dyn Fn(&str, u32) -> bool + Sync),
) -> io::Result<PlaceRegister> {
    let directory = std::path::absolute(directory)?;
    let text = match std::fs::read_to_string(&session.path) {
        Err(why) if why.kind() == io::ErrorKind::NotFound => String::new(),
        read => read?,
    };
    // A line that a power cut has cut short was asked by nobody.
    let lines: Vec<Line> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let same = matches!(lines.first(), Some(Line::Session { directory: other }) if *other == directory);
    let goes_on = same && is_any_under_way(session, asking, &lines).await;
    let mut options = File::options();
    options.create(true).mode(0o600);
    if goes_on {
        let mut file = options.append(true).open(&session.path)?;
        if !text.ends_with('\n') {
            file.write_all(b"\n")?;
        }
        return Ok(PlaceRegister { seen: Mutex::new(seen_in(&lines, is_recorded)), file: Some(Mutex::new(file)) });
    }
    let mut file = options.write(true).truncate(true).open(&session.path)?;
    append(&mut file, &Line::Session { directory })?;
    Ok(PlaceRegister { seen: Mutex::default(), file: Some(Mutex::new(file)) })
}

async fn is_any_under_way(session: &CassetteSession, asking: &CallingRun, lines: &[Line]) -> bool {
    let mut known = BTreeSet::new();
    for line in lines.iter().rev() {
        let Line::Asked { run, .. } = line else { continue };
        if run == asking {
            return true;
        }
        if known.len() < RUNS_MAX && known.insert(run) && session.lives.is_under_way(run.clone()).await {
            return true;
        }
    }
    false
}

fn seen_in(lines: &[Line], is_recorded: &dyn Fn(&str, u32) -> bool) -> BTreeMap<String, Occurrences> {
    let mut calls: BTreeMap<(&str, u32), &str> = BTreeMap::new();
    for line in lines {
        if let Line::Asked { key, place, call, .. } = line {
            // The last one that has it: those before were not answered.
            calls.insert((key, *place), call);
        }
    }
    let mut all: BTreeMap<String, Occurrences> = BTreeMap::new();
    for ((key, place), call) in calls {
        let seen = all.entry(key.to_owned()).or_default();
        seen.next = seen.next.max(place);
        if is_recorded(key, place) {
            seen.calls.insert(call.to_owned(), place);
        } else {
            seen.free.insert(place);
            seen.before.insert(call.to_owned(), place);
        }
    }
    all
}

fn append(file: &mut File, line: &Line) -> io::Result<()> {
    let mut text = serde_json::to_vec(line)?;
    text.push(b'\n');
    file.write_all(&text)?;
    file.sync_data()
}
