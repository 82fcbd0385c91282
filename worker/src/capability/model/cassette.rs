//! Cassettes: answers of real models, recorded once and played in tests.
//!
//! Invariant: a recording is found by the canonical request and how often it was asked before, and by nothing else; an
//! attempt that is repeated finds the same one, also in the next worker ([`CassetteSession`]). What is not found is an
//! error that shows the nearest recording. Only answers are recorded, and what looks like a key is cut out when they
//! are written. One JSON file for each, or a [`Tape`].

use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::OnceCell;

use super::call::code;
use super::function::show;
use super::{Answering, ChatRequest, ChatResponse, Model, ModelCallContext, ModelError, TokenSink};
use crate::canonical;
use crate::capability::durable::write_whole;

mod diff;
#[doc(hidden)]
mod places;
mod redact;
mod tape;

use places::Places;
pub use places::{CallingRun, CassetteSession, Lives};
pub use tape::Tape;

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

/// Records another model, or plays what was recorded of it.
pub struct Cassette {
    mode: CassetteMode,
    directory: PathBuf,
    provider: String,
    inner: Arc<dyn Model>,
    places: Places,
    tape: OnceCell<Option<Arc<Tape>>>,
}

impl fmt::Debug for Cassette {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Cassette { mode, directory, provider, .. } = self;
        write!(f, "Cassette({mode:?} of {provider} in {})", directory.display())
    }
}

impl Cassette {
    /// `directory`: where recordings are; one that is a file is a [`Tape`], which is played and never written.
    pub fn new(mode: CassetteMode, directory: PathBuf, provider: &str, inner: Arc<dyn Model>) -> Self {
        let provider = provider.to_owned();
        Cassette { mode, directory, provider, inner, places: Places::default(), tape: OnceCell::new() }
    }

    /// The same, which goes on counting where the worker before was killed.
    pub(super) fn in_session(self, session: Option<CassetteSession>) -> Self {
        Cassette { places: session.map_or_else(Places::default, Places::Kept), ..self }
    }

    async fn ask(
        &self,
        request: &ChatRequest,
        call: &ModelCallContext,
        sink: &mut dyn TokenSink,
    ) -> Result<ChatResponse, ModelError> {
        if self.mode == CassetteMode::Off {
            return self.inner.complete(request, call, sink).await;
        }
        let tape = self.tape().await?;
        if self.mode == CassetteMode::Record && tape.is_some() {
            return Err(broken(&self.directory, &"one file can only be played; name a directory to record into"));
        }
        let request_data = canonical::of(request);
        let key = key(&self.provider, &request_data);
        let key = key[..KEY_SHOWN].to_owned();
        let is_recorded = |key: &str, occurrence| {
            let name = name(key, occurrence);
            tape.map_or_else(|| self.directory.join(format!("{name}.json")).exists(), |tape| tape.get(&name).is_some())
        };
        let place = self.places.of(&key, call, &self.directory, &is_recorded).await;
        let occurrence = place.map_err(|why| broken(&self.directory, &format!("its session cannot be kept: {why}")))?;
        let name = name(&key, occurrence);
        let path = self.directory.join(format!("{name}.json"));
        // Whoever plays it asks no more often than there were answers: a call without one gives its place back.
        let place = CallPlace { cassette: self, key: &key, call: &call.idempotency_key };
        if self.mode != CassetteMode::Record {
            let found = match tape {
                Some(tape) => tape.get(&name).cloned(),
                None => read(&path).await?,
            };
            if let Some(recording) = found {
                place.keep();
                show(&recording.response, sink);
                return Ok(recording.response);
            }
        }
        if self.mode == CassetteMode::Replay || tape.is_some() {
            return Err(self.miss(request_data, occurrence, &name).await);
        }
        let response = self.inner.complete(request, call, sink).await?;
        place.keep();
        let (provider, request) = (self.provider.clone(), request_data);
        let recording = Recording { version: VERSION, provider, occurrence, request, response: response.clone() };
        write(path, redact::recording(&recording)?).await?;
        Ok(response)
    }

    /// The recordings, if they are in one file. It is read once.
    async fn tape(&self) -> Result<Option<&Tape>, ModelError> {
        let read = || async {
            let path = self.directory.clone();
            let read = tokio::task::spawn_blocking(move || Tape::read(&path).map(|tape| tape.map(Arc::new))).await;
            read.map_err(|why| broken(&self.directory, &why))?.map_err(|why| broken(&self.directory, &why))
        };
        self.tape.get_or_try_init(read).await.map(Option::as_deref)
    }

    async fn miss(&self, request: Value, occurrence: u32, name: &str) -> ModelError {
        let (directory, provider) = (self.directory.clone(), self.provider.clone());
        let tape = self.tape.get().cloned().flatten();
        let asked = redact::value(request);
        let nearest = tokio::task::spawn_blocking(move || match tape {
            Some(tape) => nearest(tape.requests(&provider), &asked),
            None => nearest(recorded(&directory, &provider), &asked),
        });
        let nearest = match nearest.await {
            Ok(Some((name, difference))) if difference.is_empty() => {
                format!("The same request is recorded in {name}, but not that it was asked {occurrence} times")
            }
            Ok(Some((name, difference))) => format!("The nearest is {name} (- recorded, + asked):\n{difference}"),
            Ok(None) | Err(_) => format!("There is none of {} there", self.provider),
        };
        let message = format!("no recording {name} for this request in {}. {nearest}", self.directory.display());
        ModelError::fatal(code::CASSETTE_MISS, message)
    }
}

/// The place of a call that is under way. Of one that fails, or is given up, the next call has it.
struct CallPlace<'c> {
    cassette: &'c Cassette,
    key: &'c str,
    call: &'c str,
}

impl CallPlace<'_> {
    fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for CallPlace<'_> {
    fn drop(&mut self) {
        self.cassette.places.unanswered(self.key, self.call);
    }
}

impl Model for Cassette {
    fn complete<'a>(
        &'a self,
        request: &'a ChatRequest,
        call: &'a ModelCallContext,
        sink: &'a mut dyn TokenSink,
    ) -> Answering<'a> {
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

/// What a request of a provider is found by.
fn key(provider: &str, request: &Value) -> String {
    canonical::hash(&Value::Array(vec![Value::from(provider), request.clone()]))
}

/// So much of the hash of a request tells it from others.
const KEY_SHOWN: usize = 32;

/// The name of a recording.
fn name(key: &str, occurrence: u32) -> String {
    format!("{}-{occurrence}", &key[..KEY_SHOWN])
}

/// The recorded requests of a provider in a directory, with their files. What cannot be read is left out.
fn recorded(directory: &Path, provider: &str) -> impl Iterator<Item = (String, Value)> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    paths.sort();
    paths.into_iter().take(COMPARED_MAX).filter_map(move |path| {
        let recording: Recording = serde_json::from_slice(&std::fs::read(&path).ok()?).ok()?;
        let name = path.file_name()?.to_string_lossy().into_owned();
        (recording.provider == provider).then_some((name, recording.request))
    })
}

/// The recording that differs in the fewest lines, and the differences.
fn nearest<V: std::borrow::Borrow<Value>>(
    recorded: impl Iterator<Item = (String, V)>,
    asked: &Value,
) -> Option<(String, String)> {
    let asked = diff::lines(asked);
    let lines = recorded.take(COMPARED_MAX).map(|(name, request)| (name, diff::lines(request.borrow())));
    let (name, recorded) = lines.min_by_key(|(_, recorded)| diff::distance(recorded, &asked))?;
    Some((name, diff::diff(&recorded, &asked)))
}

#[cfg(test)]
mod tests;
