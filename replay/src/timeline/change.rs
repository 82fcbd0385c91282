//! What differs between two JSON values, path by path, and how to go from one to the other.
//!
//! Invariant: applying the changes from `a` to `b` to `a` gives `b`. A path is written as `order.items[2].price`; keys
//! that are not plain words are quoted, so that every path names one place. Nesting is walked no deeper than a reader of
//! histories allows; what is deeper is compared whole.

use std::fmt;

use serde::Serialize;
use serde_json::Value;

/// Deeper than any JSON that is read here; a bound for values made in the process.
const DEPTH_MAX: usize = 64;

/// One step of a path into JSON.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(untagged)]
pub enum PathStep {
    /// The field of an object.
    Key(String),
    /// The place in an array, from 0.
    Index(usize),
}

/// Where in a value.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct JsonPath(pub Vec<PathStep>);

/// One place that differs: `None` is absence.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PathChange {
    /// Where.
    pub path: JsonPath,
    /// The value before; absent if there was none.
    pub before: Option<Value>,
    /// The value after; absent if there is none.
    pub after: Option<Value>,
}

impl Serialize for JsonPath {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl fmt::Display for JsonPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, step) in self.0.iter().enumerate() {
            match step {
                PathStep::Index(index) => write!(f, "[{index}]")?,
                PathStep::Key(key) if is_word(key) => write!(f, "{}{key}", if at > 0 { "." } else { "" })?,
                PathStep::Key(key) => write!(f, "[{}]", Value::String(key.clone()))?,
            }
        }
        Ok(())
    }
}

fn is_word(key: &str) -> bool {
    !key.is_empty() && key.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '-')
}

impl JsonPath {
    /// Reads `a.b[2]["any key"]`, with or without `state.` before it.
    pub fn parse(text: &str) -> Option<JsonPath> {
        let mut rest = text.strip_prefix("state.").unwrap_or(text);
        let mut steps = Vec::new();
        while !rest.is_empty() {
            if let Some(quoted) = rest.strip_prefix("[\"") {
                let end = quoted.find("\"]")?;
                steps.push(PathStep::Key(serde_json::from_str(&format!("\"{}\"", &quoted[..end])).ok()?));
                rest = &quoted[end + 2..];
            } else if let Some(index) = rest.strip_prefix('[') {
                let end = index.find(']')?;
                steps.push(PathStep::Index(index[..end].parse().ok()?));
                rest = &index[end + 1..];
            } else {
                let word = rest.strip_prefix('.').unwrap_or(rest);
                let end = word.find(['.', '[']).unwrap_or(word.len());
                if end == 0 {
                    return None;
                }
                steps.push(PathStep::Key(word[..end].to_owned()));
                rest = &word[end..];
            }
        }
        (!steps.is_empty()).then_some(JsonPath(steps))
    }

    /// Whether a change at one of the two paths changes what is at the other.
    pub fn touches(&self, other: &JsonPath) -> bool {
        self.0.iter().zip(&other.0).all(|(a, b)| a == b)
    }

    /// The value at this path.
    pub fn of<'a>(&self, value: &'a Value) -> Option<&'a Value> {
        self.0.iter().try_fold(value, |value, step| match step {
            PathStep::Key(key) => value.get(key),
            PathStep::Index(index) => value.get(index),
        })
    }
}

/// The places where two values differ, in the order of the second.
pub fn changes(before: &Value, after: &Value) -> Vec<PathChange> {
    let mut found = Vec::new();
    compare(&mut Vec::new(), before, after, &mut found);
    found
}

fn compare(path: &mut Vec<PathStep>, before: &Value, after: &Value, found: &mut Vec<PathChange>) {
    match (before, after) {
        (before, after) if before == after => {}
        (Value::Object(a), Value::Object(b)) if path.len() < DEPTH_MAX => {
            for (key, value) in b {
                one(path, PathStep::Key(key.clone()), a.get(key), Some(value), found);
            }
            for (key, value) in a.iter().filter(|(key, _)| !b.contains_key(*key)) {
                one(path, PathStep::Key(key.clone()), Some(value), None, found);
            }
        }
        (Value::Array(a), Value::Array(b)) if path.len() < DEPTH_MAX => {
            for (index, value) in b.iter().enumerate() {
                one(path, PathStep::Index(index), a.get(index), Some(value), found);
            }
            // From the end, so that the changes can be applied in order.
            for (index, value) in a.iter().enumerate().skip(b.len()).rev() {
                one(path, PathStep::Index(index), Some(value), None, found);
            }
        }
        (before, after) => found.push(PathChange {
            path: JsonPath(path.clone()),
            before: Some(before.clone()),
            after: Some(after.clone()),
        }),
    }
}

fn one(path: &mut Vec<PathStep>, step: PathStep, a: Option<&Value>, b: Option<&Value>, found: &mut Vec<PathChange>) {
    path.push(step);
    match (a, b) {
        (Some(a), Some(b)) => compare(path, a, b, found),
        (before, after) => {
            found.push(PathChange { path: JsonPath(path.clone()), before: before.cloned(), after: after.cloned() })
        }
    }
    path.pop();
}

/// Makes a value what the changes say it became.
pub(super) fn apply(value: &mut Value, changes: &[PathChange]) {
    for change in changes {
        let Some((last, parents)) = change.path.0.split_last() else {
            *value = change.after.clone().unwrap_or_default();
            continue;
        };
        let parent = parents.iter().try_fold(&mut *value, |value, step| match step {
            PathStep::Key(key) => value.get_mut(key),
            PathStep::Index(index) => value.get_mut(index),
        });
        match (parent, last, &change.after) {
            (Some(Value::Object(object)), PathStep::Key(key), Some(after)) => {
                object.insert(key.clone(), after.clone());
            }
            (Some(Value::Object(object)), PathStep::Key(key), None) => {
                object.shift_remove(key);
            }
            (Some(Value::Array(items)), PathStep::Index(index), Some(after)) if *index < items.len() => {
                items[*index] = after.clone();
            }
            (Some(Value::Array(items)), PathStep::Index(_), Some(after)) => items.push(after.clone()),
            (Some(Value::Array(items)), PathStep::Index(index), None) => items.truncate(*index),
            _ => {}
        }
    }
}

impl fmt::Display for PathChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = if self.path.0.is_empty() { "(all)".to_owned() } else { self.path.to_string() };
        match (&self.before, &self.after) {
            (Some(before), Some(after)) => write!(f, "{path}: {before} -> {after}"),
            (None, Some(after)) => write!(f, "+ {path}: {after}"),
            (Some(before), None) => write!(f, "- {path}: {before}"),
            (None, None) => write!(f, "{path}"),
        }
    }
}
