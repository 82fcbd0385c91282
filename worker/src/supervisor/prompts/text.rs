//! How prompts are put together: headed sections, lists, values.
//!
//! Invariant: an empty section is left out; nothing is cut or reordered here, but the keys of objects that have no order
//! of their own are sorted. It knows no supervisor.

use serde_json::Value;

/// A prompt in the making.
#[derive(Debug, Default)]
pub(super) struct Prompt(String);

impl Prompt {
    /// Begins with who is spoken to and what for.
    pub(super) fn new(opening: &str) -> Self {
        Prompt(opening.trim_end().to_owned())
    }
    /// Adds a section, unless there is nothing in it.
    #[must_use]
    pub(super) fn section(mut self, heading: &str, body: &str) -> Self {
        let body = body.trim_end();
        if !body.is_empty() {
            self.0.push_str(&format!("\n\n## {heading}\n{body}"));
        }
        self
    }
    pub(super) fn text(self) -> String {
        self.0
    }
}

/// A value as a model reads it: a text as it is, anything else as JSON.
pub(super) fn shown(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// `1. first`, one a line.
pub(super) fn numbered<T: AsRef<str>>(lines: &[T]) -> String {
    let line = |(at, line): (usize, &T)| format!("{}. {}", at + 1, line.as_ref());
    lines.iter().enumerate().map(line).collect::<Vec<_>>().join("\n")
}

/// `- item`, one a line; further lines of an item stand below its first.
pub(super) fn bullets<T: AsRef<str>>(items: impl IntoIterator<Item = T>) -> String {
    let item = |item: T| format!("- {}", item.as_ref().replace('\n', "\n  "));
    items.into_iter().map(item).collect::<Vec<_>>().join("\n")
}

/// `name: value` of every entry that says something, by name.
pub(super) fn entries<'a>(entries: impl IntoIterator<Item = (&'a String, &'a Value)>) -> String {
    let mut named: Vec<(&String, &Value)> = entries.into_iter().filter(|(_, value)| !is_empty(value)).collect();
    named.sort_by_key(|(name, _)| *name);
    bullets(named.into_iter().map(|(name, value)| format!("{name}: {}", shown(value))))
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Recorded workflow time as a model reads it, with the year by itself: models get it wrong otherwise.
pub(super) fn moment(ms: i64) -> String {
    match jiff::Timestamp::from_millisecond(ms) {
        Ok(time) => format!("{time} (UTC); the year is {}", &time.to_string()[..4]),
        Err(_) => String::new(),
    }
}
