//! Cassettes: answers of real models, recorded once and played in tests.
//!
//! Invariant: a recording is found by the canonical request and how often it was asked before, and by nothing else; an
//! attempt that is repeated finds the same one. What is not found is an error that shows the nearest recording. Only
//! answers are recorded, and what looks like a key is cut out when they are written. One JSON file for each.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::call::code;
use super::function::show;
use super::{Answering, Call, ChatRequest, ChatResponse, Model, ModelError, TokenSink};
use crate::canonical;
use crate::capability::durable::write_whole;

mod diff;
mod redact;

/// What is done with recordings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CassetteMode {
    /// Nothing.
    #[default]
    Off,
    /// Always asks, and writes the answer down.
    Record,
    /// Never asks.
    Replay,
    /// Plays what is recorded, and records what is not.
    Auto,
}

impl FromStr for CassetteMode {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "off" => Ok(CassetteMode::Off),
            "record" => Ok(CassetteMode::Record),
            "replay" => Ok(CassetteMode::Replay),
            "auto" => Ok(CassetteMode::Auto),
            _ => Err(format!("{text:?} is not one of record, replay, auto and off")),
        }
    }
}

/// One recorded answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Recording {
    version: u32,
    provider: String,
    /// From 1.
    occurrence: u32,
    /// For readers and differences; the file's name has the hash of the whole.
    request: Value,
    response: ChatResponse,
}

const VERSION: u32 = 1;

/// How many recordings are compared for the nearest one.
const COMPARED_MAX: usize = 200;

/// Which call was which occurrence of its request.
#[derive(Debug, Default)]
struct Seen {
    calls: BTreeMap<String, u32>,
    next: u32,
}

/// Records another model, or plays what was recorded of it.
pub struct Cassette {
    mode: CassetteMode,
    directory: PathBuf,
    provider: String,
    inner: Arc<dyn Model>,
    seen: Mutex<BTreeMap<String, Seen>>,
}

impl fmt::Debug for Cassette {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Cassette { mode, directory, provider, .. } = self;
        write!(f, "Cassette({mode:?} of {provider} in {})", directory.display())
    }
}

impl Cassette {
    pub fn new(mode: CassetteMode, directory: PathBuf, provider: &str, inner: Arc<dyn Model>) -> Self {
        Cassette { mode, directory, provider: provider.to_owned(), inner, seen: Mutex::default() }
    }

    async fn ask(
        &self,
        request: &ChatRequest,
        call: &Call,
        sink: &mut dyn TokenSink,
    ) -> Result<ChatResponse, ModelError> {
        if self.mode == CassetteMode::Off {
            return self.inner.complete(request, call, sink).await;
        }
        let request_data = canonical::of(request);
        let key = canonical::hash(&Value::Array(vec![Value::from(self.provider.as_str()), request_data.clone()]));
        let occurrence = self.occurrence(&key, &call.idempotency_key);
        let path = self.directory.join(format!("{}-{occurrence}.json", &key[..32]));
        if self.mode != CassetteMode::Record
            && let Some(recording) = read(&path).await?
        {
            show(&recording.response, sink);
            return Ok(recording.response);
        }
        if self.mode == CassetteMode::Replay {
            return Err(self.miss(request_data, occurrence, &path).await);
        }
        let response = self.inner.complete(request, call, sink).await?;
        let (provider, request) = (self.provider.clone(), request_data);
        let recording = Recording { version: VERSION, provider, occurrence, request, response: response.clone() };
        write(path, redact::recording(&recording)?).await?;
        Ok(response)
    }

    fn occurrence(&self, key: &str, call: &str) -> u32 {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = seen.entry(key.to_owned()).or_default();
        if let Some(occurrence) = seen.calls.get(call) {
            return *occurrence;
        }
        seen.next += 1;
        seen.calls.insert(call.to_owned(), seen.next);
        seen.next
    }

    async fn miss(&self, request: Value, occurrence: u32, path: &Path) -> ModelError {
        let (directory, provider) = (self.directory.clone(), self.provider.clone());
        let asked = redact::value(request);
        let nearest = tokio::task::spawn_blocking(move || nearest(&directory, &provider, &asked)).await;
        let nearest = match nearest {
            Ok(Some((name, difference))) if difference.is_empty() => {
                format!("The same request is recorded in {name}, but not that it was asked {occurrence} times")
            }
            Ok(Some((name, difference))) => format!("The nearest is {name} (- recorded, + asked):\n{difference}"),
            Ok(None) | Err(_) => format!("There is none of {} in {}", self.provider, self.directory.display()),
        };
        let message = format!("no recording {} for this request. {nearest}", path.display());
        ModelError::fatal(code::CASSETTE_MISS, message)
    }
}

impl Model for Cassette {
    fn complete<'a>(&'a self, request: &'a ChatRequest, call: &'a Call, sink: &'a mut dyn TokenSink) -> Answering<'a> {
        Box::pin(self.ask(request, call, sink))
    }
    /// A recorded answer costs what it cost, so that a played run equals the recorded one.
    fn is_free(&self) -> bool {
        self.inner.is_free()
    }
}

fn broken(path: &Path, why: &dyn fmt::Display) -> ModelError {
    ModelError::fatal(code::CASSETTE, format!("the recording {}: {why}", path.display()))
}

async fn read(path: &Path) -> Result<Option<Recording>, ModelError> {
    let bytes = match tokio::fs::read(path).await {
        Ok(bytes) => bytes,
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(why) => return Err(broken(path, &why)),
    };
    let recording: Recording = serde_json::from_slice(&bytes).map_err(|why| broken(path, &why))?;
    if recording.version != VERSION {
        return Err(broken(path, &format!("version {} is not {VERSION}", recording.version)));
    }
    Ok(Some(recording))
}

/// Whole or not there: another process may be reading.
async fn write(path: PathBuf, text: String) -> Result<(), ModelError> {
    let to = path.clone();
    let written = tokio::task::spawn_blocking(move || write_file(&to, &text)).await;
    written.map_err(|why| broken(&path, &why))?.map_err(|why| broken(&path, &why))
}

fn write_file(path: &Path, text: &str) -> io::Result<()> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = path.file_name().unwrap_or_default();
    std::fs::create_dir_all(directory)?;
    let beside = format!("{}.{}.new", name.display(), std::process::id());
    write_whole(File::open(directory)?, name, beside.as_str(), text.as_bytes())
}

/// The recording that differs in the fewest lines, and the differences.
fn nearest(directory: &Path, provider: &str, asked: &Value) -> Option<(String, String)> {
    let mut names: Vec<PathBuf> = std::fs::read_dir(directory).ok()?.flatten().map(|entry| entry.path()).collect();
    names.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    names.sort();
    let asked = diff::lines(asked);
    let recordings = names.iter().take(COMPARED_MAX).filter_map(|path| {
        let recording: Recording = serde_json::from_slice(&std::fs::read(path).ok()?).ok()?;
        (recording.provider == provider).then(|| (path, diff::lines(&recording.request)))
    });
    let (path, recorded) = recordings.min_by_key(|(_, recorded)| diff::distance(recorded, &asked))?;
    Some((path.file_name()?.to_string_lossy().into_owned(), diff::diff(&recorded, &asked)))
}

#[cfg(test)]
mod tests;
