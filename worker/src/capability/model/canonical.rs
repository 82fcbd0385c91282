//! The one spelling of a piece of data, for keys and for comparing.
//!
//! Invariant: equal data has equal text, whatever the order of its names was. Pure.

use serde::Serialize;
use serde_json::Value;

/// The data with all names in order.
pub(super) fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let mut names: Vec<_> = map.iter().collect();
            names.sort_by_key(|(name, _)| *name);
            Value::Object(names.into_iter().map(|(name, value)| (name.clone(), sorted(value))).collect())
        }
        Value::Array(all) => all.iter().map(sorted).collect(),
        other => other.clone(),
    }
}

/// The canonical data of something that serializes; `Null` for what does not, which no request is.
pub(super) fn canonical(data: &impl Serialize) -> Value {
    serde_json::to_value(data).map_or(Value::Null, |value| sorted(&value))
}

/// A hash in hexadecimal digits.
pub(super) fn hash(value: &Value) -> String {
    blake3::hash(value.to_string().as_bytes()).to_hex().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_names_does_not_matter_and_that_of_lists_does() {
        let of = |text: &str| hash(&canonical(&serde_json::from_str::<Value>(text).unwrap()));
        assert_eq!(of(r#"{"b": [{"d": 1, "c": 2}], "a": null}"#), of(r#"{"a": null, "b": [{"c": 2, "d": 1}]}"#));
        assert_ne!(of("[1, 2]"), of("[2, 1]"));
    }
}
