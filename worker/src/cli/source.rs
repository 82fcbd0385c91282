//! A history that a person names: a run of the store, or a file (ours, or Temporal's).
//!
//! Invariant: a file is hostile input and is checked like a damaged log before anything is done with it. A name is a
//! file if it has a separator or ends in `.json`, and a run otherwise; it is never guessed by looking what exists.

use std::path::Path;

use bosun_engine::{Event, EventId, Target};
use bosun_replay::{History, HistoryFile, Limits, LoadHistoryError, TemporalHistory};

use super::args::ExactRun;
use super::context::Context;
use super::error::CliError;
use super::explain::Code;
use super::resolve::resolve;
use super::show::whole_history;

/// A history from somewhere.
pub(super) enum Source {
    Run { target: Target, events: Vec<Event> },
    File { name: String, history: History },
    Temporal { name: String, history: TemporalHistory },
}

/// Whether a name means a file.
pub(super) fn is_file(name: &str) -> bool {
    name.contains(std::path::MAIN_SEPARATOR) || name.ends_with(".json")
}

impl Source {
    pub(super) async fn of(cx: &Context, name: &str) -> Result<Self, CliError> {
        if is_file(name) {
            return Source::read(name);
        }
        let target = resolve(cx, Some(name), &ExactRun::default()).await?;
        let events = whole_history(cx, &target, EventId(1)).await?;
        Ok(Source::Run { target, events })
    }

    /// Reads a file; no store is needed for that.
    pub(super) fn read(name: &str) -> Result<Self, CliError> {
        let read = HistoryFile::load(Path::new(name), &Limits::default());
        let name = name.to_owned();
        match read {
            Ok(HistoryFile::Bosun(history)) => Ok(Source::File { name, history }),
            Ok(HistoryFile::Temporal(history)) => Ok(Source::Temporal { name, history }),
            Err(LoadHistoryError::File { why, .. }) => {
                Err(CliError::new(Code::Failed, format!("cannot read the history {name}")).cause(why))
            }
            Err(why @ LoadHistoryError::Invalid { .. }) => {
                let message = format!("{name} is not a history that can be read");
                Err(CliError::new(Code::UnreadableHistory, message).cause(why))
            }
        }
    }
}
