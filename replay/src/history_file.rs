//! A history file of either kind: ours, which can be replayed, or Temporal's export, which can only be looked at.
//!
//! Invariant: which of the two it is, is told by its content and never by its name. Both are hostile input. When it is
//! neither, the error is about our own format.

use std::path::Path;

use crate::recording::{HistoryProblem, LoadHistoryError, read_file};
use crate::{History, HistoryLimits, TemporalHistory};

/// A history file: one of Bosun, or an export of Temporal.
#[derive(Debug, Clone, PartialEq)]
pub enum HistoryFile {
    /// One that code can be replayed against.
    Bosun(History),
    /// An export of Temporal's, to look at and to compare.
    Temporal(TemporalHistory),
}

impl HistoryFile {
    /// Reads a file of either kind; it may come from anywhere.
    pub fn load(path: &Path, limits: &HistoryLimits) -> Result<Self, LoadHistoryError> {
        let text =
            read_file(path, limits.json.bytes).map_err(|why| LoadHistoryError::File { path: path.to_owned(), why })?;
        match History::from_json(&text, limits) {
            Ok(history) => Ok(HistoryFile::Bosun(history)),
            Err(why) => match (&why.problem, TemporalHistory::from_json(&text, limits.json)) {
                (HistoryProblem::NotAHistory { .. } | HistoryProblem::Malformed { .. }, Ok(history)) => {
                    Ok(HistoryFile::Temporal(history))
                }
                _ => Err(LoadHistoryError::Invalid { path: path.to_owned(), why }),
            },
        }
    }
}
