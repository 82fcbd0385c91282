//! Files of other systems that load unchanged.
//!
//! Invariant: what they say is written in our own words, or named in a warning; nothing of theirs is dropped silently.

pub(super) mod cuga;
pub(super) mod supyagent;

use serde_json::Value;

use crate::supervisor::plan_yaml::PLAN_BYTES_MAX;
use crate::supervisor::yaml;

/// Whether a document is a supervisor's spec: one of ours, or a file of another system.
pub fn is_spec(document: &Value) -> bool {
    let Value::Object(file) = document else { return false };
    file.contains_key("preset")
        || file.get("kind").is_some_and(|kind| kind == "supervisor")
        || cuga::is_one(file)
        || supyagent::is_one(file)
}

/// Whether a file is one: it says so, names a preset, or is one of another system. One that is no YAML is told by its lines,
/// so that the right reader says what is wrong with it.
pub fn is_spec_text(text: &str) -> bool {
    let short = text.len() <= PLAN_BYTES_MAX;
    match short.then(|| yaml::parse(text)) {
        Some(Ok(value)) => is_spec(&value),
        Some(Err(_)) | None => {
            text.lines().any(|line| line.starts_with("preset:") || line.trim_end() == "kind: supervisor")
        }
    }
}
