//! What people send, decoded strictly, and the hash of what they were shown.
//!
//! Invariant: an answer that does not conform is a typed error that names the field, never a guess; two values that
//! differ only in the order of their keys have one hash. It keeps nothing.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::canonical;

/// An answer that does not conform.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("invalid {what}: {}{why}", at_text(.at))]
pub struct InvalidAnswer {
    pub what: String,
    /// The path of the field, empty for the whole.
    pub at: String,
    pub why: String,
}

fn at_text(at: &str) -> String {
    if at.is_empty() { String::new() } else { format!("{at}: ") }
}

pub(in crate::supervisor) fn decode<T: DeserializeOwned>(what: &str, value: &Value) -> Result<T, InvalidAnswer> {
    serde_path_to_error::deserialize(value).map_err(|why| {
        let at = why.path().to_string();
        let at = if at == "." { String::new() } else { at };
        InvalidAnswer { what: what.to_owned(), at, why: why.into_inner().to_string() }
    })
}

/// The hash of what a person is shown.
pub fn shown_hash(value: &Value) -> String {
    canonical::hash(value)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_order_of_keys_is_no_difference_and_anything_else_is() {
        let text: Value = serde_json::from_str(r#"{"b": {"y": 1, "x": [1, 2]}, "a": null}"#).unwrap();
        assert_eq!(shown_hash(&text), shown_hash(&json!({ "a": null, "b": { "x": [1, 2], "y": 1 } })));
        for other in [json!({ "a": null }), json!({ "a": null, "b": { "x": [2, 1], "y": 1 } }), json!("a")] {
            assert_ne!(shown_hash(&text), shown_hash(&other), "{other}");
        }
    }
}
