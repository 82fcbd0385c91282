//! What must not be, as it is written: notes, calls and events; and statuses, which may stand under a `not`.
//!
//! Invariant: what never is must be something that could be: a name that nothing has is refused, since an expectation of
//! it would hold of every run. It judges nothing: `judge` does.

use serde_json::Value;

use super::expect::{CallExpect, NoteExpect, mapping};
use super::names::or_near;
use crate::supervisor::fields::Fields;
use crate::supervisor::{FieldError, TaskStatus};

#[derive(Debug, Clone)]
pub(crate) enum Never {
    Note(NoteExpect),
    Call(CallExpect),
    /// An event of the engine, by its name.
    Event(String, String),
}

impl Never {
    pub(super) fn read(path: &str, value: &Value) -> Result<Self, FieldError> {
        let map = mapping(path, value)?;
        if map.contains_key("note") {
            return NoteExpect::read(path, value, "note").map(Never::Note);
        }
        if map.contains_key("kind") {
            return NoteExpect::read(path, value, "kind").map(Never::Note);
        }
        if let Some(event) = map.get("event") {
            Fields::read(value, path, &["event"])?;
            let name = event.as_str().unwrap_or_default();
            let known = bosun_replay::event_types();
            if !known.contains(&name) {
                let hint = or_near(name, known);
                return Err(FieldError::at(format!("{path}.event"), format!("there is no event `{name}`{hint}")));
            }
            return Ok(Never::Event(path.to_owned(), name.to_owned()));
        }
        if map.contains_key("to") || map.contains_key("prompt") && !map.contains_key("on") {
            return CallExpect::prompt(path, value).map(Never::Call);
        }
        CallExpect::read(path, value).map(Never::Call)
    }
}

/// A status that is nearly one: `not: complet` would hold of everything.
pub(super) fn status_slip(path: &str, status: &Value) -> Result<(), FieldError> {
    let known: Vec<&str> = TaskStatus::ALL.iter().map(|status| status.as_str()).collect();
    match status {
        Value::String(word) if !known.contains(&word.as_str()) => match or_near(word, &known) {
            hint if hint.is_empty() => Ok(()),
            hint => {
                Err(FieldError::at(path, format!("unknown status `{word}`{hint}; there are: {}", known.join(", "))))
            }
        },
        Value::Object(words) => words
            .iter()
            .filter(|(word, _)| ["is", "equals", "not", "one_of"].contains(&word.as_str()))
            .try_for_each(|(_, value)| status_slip(path, value)),
        Value::Array(all) => all.iter().try_for_each(|one| status_slip(path, one)),
        _ => Ok(()),
    }
}
