//! A history that a person names: a run of the store, or a file (ours, or Temporal's).
//!
//! Invariant: a file is hostile input and is checked like a damaged log before anything is done with it. A name is a
//! file if it has a separator or ends in `.json`, and a run otherwise; it is never guessed by looking what exists.

use std::path::Path;

use bosun_engine::{Event, EventId, Target};
use bosun_replay::{History, JsonLimits, Limits, LoadHistoryError, TemporalHistory};

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
        let (path, name) = (Path::new(name), name.to_owned());
        let text = std::fs::read(path)
            .map_err(|why| CliError::new(Code::Failed, format!("cannot read the history {name}")).cause(why))?;
        if has_schema(&text) {
            let history = History::from_json(&text, &Limits::default())
                .map_err(|why| unreadable(&name, &LoadHistoryError::Invalid { path: path.to_owned(), why }))?;
            return Ok(Source::File { name, history });
        }
        let history =
            TemporalHistory::from_json(&text, JsonLimits::default()).map_err(|why| unreadable(&name, &why))?;
        Ok(Source::Temporal { name, history })
    }
}

/// Ours say what they are; whatever does not is read as Temporal's.
fn has_schema(text: &[u8]) -> bool {
    const MARK: &[u8] = b"\"bosun.history/";
    text.windows(MARK.len()).take(4_096).any(|part| part == MARK)
}

fn unreadable(name: &str, why: &dyn std::error::Error) -> CliError {
    CliError::new(Code::UnreadableHistory, format!("{name} is not a history that can be read")).cause(why)
}
