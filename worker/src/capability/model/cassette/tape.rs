//! A cassette in one file: recordings that were made elsewhere, to be played.
//!
//! Invariant: a recording has the name that its own file would have, so that one found in a directory is found here too.
//! Requests and answers are as they were until the text is made; what looks like a key is not in the text. Pure but for
//! [`Tape::read`].

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{ChatRequest, ChatResponse, Recording, VERSION, key, name, redact};
use crate::canonical;

/// Recordings in one file, as text of JSON. They are only played: `BOSUN_CASSETTE_DIR` may name such a file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tape {
    version: u32,
    recordings: BTreeMap<String, Recording>,
}

impl Default for Tape {
    fn default() -> Self {
        Tape { version: VERSION, recordings: BTreeMap::new() }
    }
}

impl Tape {
    /// Adds the answer to a request, which was asked after all that were added before.
    pub fn record(&mut self, provider: &str, request: &ChatRequest, response: ChatResponse) {
        let request = canonical::of(request);
        let key = key(provider, &request);
        let is_taken = |occurrence: &u32| self.recordings.contains_key(&name(&key, *occurrence));
        let occurrence = (1..).find(|occurrence| !is_taken(occurrence)).unwrap_or(u32::MAX);
        let recording = Recording { version: VERSION, provider: provider.to_owned(), occurrence, request, response };
        self.recordings.insert(name(&key, occurrence), recording);
    }

    /// How many answers there are.
    pub fn len(&self) -> usize {
        self.recordings.len()
    }
    /// Whether there is no answer.
    pub fn is_empty(&self) -> bool {
        self.recordings.is_empty()
    }

    /// The text of the file. What looks like a key is cut out.
    pub fn to_text(&self) -> String {
        let data = redact::value(canonical::of(self));
        format!("{data:#}\n")
    }

    /// Reads what [`Tape::to_text`] made.
    ///
    /// # Errors
    /// The text is no cassette, or one of another version: a sentence that says so.
    pub fn parse(text: &str) -> Result<Tape, String> {
        let tape: Tape = serde_json::from_str(text).map_err(|why| why.to_string())?;
        let versions = tape.recordings.values().map(|recording| recording.version);
        match versions.chain([tape.version]).find(|version| *version != VERSION) {
            Some(version) => Err(format!("version {version} is not {VERSION}")),
            None => Ok(tape),
        }
    }

    /// The tape at a path; none where there is no file.
    pub(super) fn read(path: &Path) -> Result<Option<Tape>, String> {
        if !path.is_file() {
            return Ok(None);
        }
        let text = std::fs::read_to_string(path).map_err(|why| why.to_string())?;
        Tape::parse(&text).map(Some)
    }

    pub(super) fn get(&self, name: &str) -> Option<&Recording> {
        self.recordings.get(name)
    }

    /// The names and requests that a provider was asked.
    pub(super) fn requests(&self, provider: &str) -> impl Iterator<Item = (String, &Value)> {
        let of = self.recordings.iter().filter(move |(_, recording)| recording.provider == provider);
        of.map(|(name, recording)| (name.clone(), &recording.request))
    }
}
