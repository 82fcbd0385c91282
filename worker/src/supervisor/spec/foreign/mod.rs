//! Files of other systems that load unchanged.
//!
//! Invariant: what they say is written in our own words, or named in a warning; nothing of theirs is dropped silently.

pub(super) mod cuga;
pub(super) mod supyagent;

use serde_json::Value;

/// Whether a document is a supervisor's spec: one of ours, or a file of another system.
pub fn is_spec(document: &Value) -> bool {
    let Value::Object(file) = document else { return false };
    file.contains_key("preset")
        || file.get("kind").is_some_and(|kind| kind == "supervisor")
        || cuga::is_one(file)
        || supyagent::is_one(file)
}
