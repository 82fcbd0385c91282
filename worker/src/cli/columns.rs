//! What `--fields` can name: columns, of the verbs that print some, and keys of what is printed as JSON.
//!
//! Invariant: whoever names a column where there is none is told so before anything is done; a key that is not there, where
//! it would be printed.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::args::{Noun, WorkflowVerb};
use super::error::CliError;
use super::output::{Format, SCHEMA, Screen};
use super::{batch, budget, config, notify, replay, schedule, supervise, token};

/// Refuses `--fields` for a text without columns.
///
/// # Errors
/// A usage error that names the format that has keys.
pub(super) fn check(noun: &Noun, format: Format, fields: &[String]) -> Result<(), CliError> {
    if format != Format::Text || fields.is_empty() || prints_columns(noun) {
        return Ok(());
    }
    Err(CliError::usage("--fields: this verb prints no columns")
        .help("with `-o json` it prints keys, and `--fields` names some of these"))
}

fn prints_columns(noun: &Noun) -> bool {
    match noun {
        Noun::Verb(verb) | Noun::Workflow(verb) => matches!(verb, WorkflowVerb::List(_) | WorkflowVerb::Show(_)),
        Noun::Agent(verb) => matches!(verb, supervise::AgentVerb::List(_)),
        Noun::Batch(verb) => matches!(verb, batch::BatchVerb::List(_)),
        Noun::Budget(verb) => matches!(verb, budget::BudgetVerb::Show { .. }),
        Noun::Config(verb) => matches!(verb, config::ConfigVerb::List { .. }),
        Noun::Notify(verb) => matches!(verb, notify::NotifyVerb::List),
        Noun::Replay(verb) => matches!(verb, replay::ReplayVerb::Check(_) | replay::ReplayVerb::Show(_)),
        Noun::Schedule(verb) => matches!(verb, schedule::ScheduleVerb::List(_)),
        Noun::Token(verb) => matches!(verb, token::TokenVerb::List),
        Noun::Doctor | Noun::Top(_) => true,
        _ => false,
    }
}

/// Keys that only some rows have, and those that go by how a run has ended: none of them has to be there.
const OPTIONAL_KEYS: [&str; 10] =
    ["waiting", "stuck", "held", "control", "problem", "result", "failure", "timeout", "details", "reason"];

impl Screen {
    /// A key of `--fields` that no row has, where there are rows to tell.
    pub(super) fn unknown_key(&self, rows: &[Value]) -> Option<CliError> {
        if rows.is_empty() || !matches!(self.format, Format::Json | Format::Jsonl) {
            return None;
        }
        let has = |field: &str| rows.iter().any(|row| row.get(field).is_some());
        let unknown = self.fields.iter().find(|field| !has(field) && !OPTIONAL_KEYS.contains(&field.as_str()))?;
        let keys = rows.iter().filter_map(Value::as_object).flat_map(Map::keys).collect::<BTreeSet<_>>();
        let keys: Vec<&str> = keys.into_iter().map(String::as_str).filter(|key| *key != SCHEMA).collect();
        let near = crate::supervisor::fields::similar(unknown, &keys);
        let near = near.map_or_else(String::new, |near| format!(" (did you mean `{near}`?)"));
        Some(CliError::usage(format!("nothing here has the key `{unknown}`{near}; there are {}", keys.join(", "))))
    }
}
