//! History files: one run's history as readable, versioned JSON, written exactly and read as if it came from an enemy.
//!
//! Invariant: a [`History`] has been checked from its first event to its last ([`HistoryProblem`] lists how it can be
//! wrong), so every reader may rely on it; and what is written is read back as the same turns, bit for bit. Reading
//! runs no workflow code, makes no run, and takes over no id: what a history is used for is decided elsewhere.
//!
//! ```json
//! { "schema": "bosun.history/1",
//!   "run":   { "workflow_id": "order-1", "run_id": "…", "workflow_type": "order", "status": "Completed", … },
//!   "turns": [ { "at": "2026-01-01T00:00:00.000000Z", "build": "0000000000000001",
//!                "events": [ { "id": 1, "type": "WorkflowExecutionStarted", "attributes": { … } }, … ] }, … ] }
//! ```

mod json;
mod numbered;
mod problem;
mod redact;
#[cfg(test)]
mod tests;
mod validate;
mod visit;

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use bosun_engine::*;

pub use problem::InvalidHistory;
pub(crate) use problem::{CommandFamily, HistoryPlace, HistoryProblem};
pub use redact::Redaction;

use crate::strict_json::JsonLimits;

/// The format that is written. Additive changes keep the number; readers refuse what they do not know.
pub const SCHEMA: &str = "bosun.history/1";

/// How much of a history from outside is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HistoryLimits {
    /// How large and how deep the JSON may be.
    pub json: JsonLimits,
    /// How many events.
    pub events: usize,
    /// The largest payload, in bytes.
    pub payload_bytes: usize,
    /// The longest text, in bytes.
    pub text_bytes: usize,
    /// Whether a payload may name an encoding of storage, or of redaction without a word of it in the header. In a file
    /// from outside it would claim to be a reference into somebody's store; in our own log it is what a user called it.
    pub storage_encodings: bool,
}

/// What the log's codecs call their wrappers.
const STORAGE_ENCODINGS: [&str; 4] = [ENCODING_BLOB, "lz4", "xchacha20poly1305", "escaped"];

impl HistoryLimits {
    /// The longest chain of causes that fits into readable JSON with everything around it.
    pub const CAUSES_MAX: usize = 50;
    /// For histories of our own log: only what could not be written and read back is refused.
    pub const NONE: HistoryLimits = HistoryLimits {
        json: JsonLimits { bytes: usize::MAX, depth: JsonLimits::DEPTH_MAX, values: usize::MAX },
        events: usize::MAX >> 1,
        payload_bytes: usize::MAX,
        text_bytes: usize::MAX,
        storage_encodings: true,
    };
}

impl Default for HistoryLimits {
    fn default() -> Self {
        HistoryLimits {
            json: JsonLimits::default(),
            events: 1_000_000,
            // G34; a text is part of a request too, so it cannot be longer.
            payload_bytes: 2 << 20,
            text_bytes: 256 << 10,
            storage_encodings: false,
        }
    }
}

/// The history of one run, checked once and for all.
#[derive(Debug, Clone, PartialEq)]
pub struct History {
    turns: Vec<Turn>,
    started: WorkflowExecutionStarted,
    redaction: Redaction,
}

/// Why a history file could not be read.
#[derive(Debug, thiserror::Error)]
pub enum LoadHistoryError {
    /// The file cannot be read.
    #[error("{}: {why}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        why: std::io::Error,
    },
    /// The file holds no history that can be used.
    #[error("{}: {why}", path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// The first thing that is wrong with it.
        why: InvalidHistory,
    },
}

impl History {
    /// A history from the log of this engine.
    pub fn new(turns: Vec<Turn>) -> Result<Self, InvalidHistory> {
        Self::checked(turns, Redaction::None, &HistoryLimits::NONE)
    }

    /// Turns from elsewhere, which are checked like a file.
    pub fn from_turns(turns: Vec<Turn>, limits: &HistoryLimits) -> Result<Self, InvalidHistory> {
        Self::checked(turns, Redaction::None, limits)
    }

    /// Reads a history file's text. It may come from anywhere.
    pub fn from_json(text: &[u8], limits: &HistoryLimits) -> Result<Self, InvalidHistory> {
        let (turns, redaction, header) = json::read(text, limits)?;
        let history = Self::checked(turns, redaction, limits)?;
        json::check_header(&header, &history).map_err(anywhere)?;
        Ok(history)
    }

    /// Reads a history file.
    pub fn load(path: &Path, limits: &HistoryLimits) -> Result<Self, LoadHistoryError> {
        let text =
            read_file(path, limits.json.bytes).map_err(|why| LoadHistoryError::File { path: path.to_owned(), why })?;
        Self::from_json(&text, limits).map_err(|why| LoadHistoryError::Invalid { path: path.to_owned(), why })
    }

    fn checked(mut turns: Vec<Turn>, redaction: Redaction, limits: &HistoryLimits) -> Result<Self, InvalidHistory> {
        validate::validate(&mut turns, redaction, limits)?;
        let first = turns.iter().find_map(|turn| turn.events.first());
        match first {
            Some(EventKind::WorkflowExecutionStarted(started)) => {
                let started = (**started).clone();
                Ok(History { turns, started, redaction })
            }
            Some(_) | None => Err(anywhere(HistoryProblem::NotStarted)),
        }
    }

    /// The text of a history file.
    pub fn to_json(&self) -> String {
        json::write(self)
    }

    /// The same history without what users wrote.
    pub fn redacted(&self, redaction: Redaction) -> History {
        let mut copy = self.clone();
        redact::redact(&mut copy.turns, redaction);
        if let EventKind::WorkflowExecutionStarted(started) = &copy.turns[0].events[0] {
            copy.started = (**started).clone();
        }
        copy.redaction = self.redaction.max(redaction);
        copy
    }
    /// What an export has left out.
    pub fn redaction(&self) -> Redaction {
        self.redaction
    }

    /// The turns, checked when the history was made.
    pub fn turns(&self) -> &[Turn] {
        &self.turns
    }
    /// The turns, for who has no more use for the history.
    pub fn into_turns(self) -> Vec<Turn> {
        self.turns
    }
    /// The events with their ids and times, in order.
    pub fn events(&self) -> impl Iterator<Item = Event> + '_ {
        self.turns.iter().flat_map(Turn::numbered)
    }
    /// How long the code was told that the history is when it heard the event, where that is not what the events add up to.
    pub(crate) fn size_told(&self, event: EventId) -> Option<HistorySize> {
        let after = self.turns.partition_point(|turn| turn.first_event <= event);
        let of = self.turns[..after].iter().rev().find(|turn| !turn.events.is_empty());
        of.and_then(|turn| turn.size_told)
    }
    /// The number of events.
    pub fn len(&self) -> usize {
        self.turns.iter().map(|turn| turn.events.len()).sum()
    }
    /// Never: a history has at least the event that started the run.
    pub fn is_empty(&self) -> bool {
        false
    }
    /// The first event.
    pub fn started(&self) -> &WorkflowExecutionStarted {
        &self.started
    }
    /// The run whose history it is.
    pub fn run_id(&self) -> RunId {
        self.turns[0].run
    }
    /// How the run stands at the end of the history.
    pub fn status(&self) -> WorkflowStatus {
        let mut status = WorkflowStatus::Running;
        for event in self.turns.iter().flat_map(|turn| &turn.events) {
            match event {
                EventKind::WorkflowExecutionPaused { .. } => status = WorkflowStatus::Paused,
                EventKind::WorkflowExecutionUnpaused { .. } => status = WorkflowStatus::Running,
                other => status = other.closes().unwrap_or(status),
            }
        }
        status
    }
    /// The history up to and including `turns` turns, for replaying every prefix.
    pub fn prefix(&self, turns: usize) -> &[Turn] {
        &self.turns[..turns.min(self.turns.len())]
    }
}

fn anywhere(problem: HistoryProblem) -> InvalidHistory {
    InvalidHistory { place: HistoryPlace::default(), problem }
}

/// Reads at most one byte more than the limit, whatever the file says its size is.
pub(crate) fn read_file(path: &Path, limit: usize) -> std::io::Result<Vec<u8>> {
    let mut text = Vec::new();
    let most = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    File::open(path)?.take(most).read_to_end(&mut text)?;
    Ok(text)
}
