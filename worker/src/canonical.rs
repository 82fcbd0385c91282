//! The one form of a JSON value: every mapping in the order of its keys. What is hashed or compared is so in this form.
//!
//! Invariant: two values that differ in the order of keys only have the same form and the same hash. Pure.

use serde::Serialize;
use serde_json::{Map, Value};

/// The value with the keys of every mapping in order.
pub(crate) fn sorted(value: &Value) -> Value {
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

/// The form of something that serializes; `Null` for what does not.
pub(crate) fn of(data: &impl Serialize) -> Value {
    serde_json::to_value(data).map_or(Value::Null, |value| sorted(&value))
}

/// blake3 over the form as text.
pub(crate) fn digest(value: &Value) -> blake3::Hash {
    blake3::hash(sorted(value).to_string().as_bytes())
}

/// The same as 64 hex digits.
pub(crate) fn hash(value: &Value) -> String {
    digest(value).to_hex().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_names_does_not_matter_and_that_of_lists_does() {
        let of = |text: &str| hash(&serde_json::from_str::<Value>(text).unwrap());
        assert_eq!(of(r#"{"b": [{"d": 1, "c": 2}], "a": null}"#), of(r#"{"a": null, "b": [{"c": 2, "d": 1}]}"#));
        assert_ne!(of("[1, 2]"), of("[2, 1]"));
    }
}
