//! The one form of a JSON value: every mapping in the order of its keys. What is hashed is hashed in this form.
//!
//! Invariant: two values that differ in the order of keys only have the same form and the same hash.

use serde_json::{Map, Value};

/// The value with the keys of every mapping in order.
pub(super) fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let mut entries: Vec<_> = map.iter().collect();
            entries.sort_by_key(|(key, _)| key.as_str());
            Value::Object(entries.into_iter().map(|(key, value)| (key.clone(), sorted(value))).collect::<Map<_, _>>())
        }
        Value::Array(items) => Value::Array(items.iter().map(sorted).collect()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

/// blake3 over the form as text, as 64 hex digits.
pub(super) fn hash(value: &Value) -> String {
    blake3::hash(sorted(value).to_string().as_bytes()).to_hex().to_string()
}
