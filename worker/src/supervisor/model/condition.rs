//! A condition on a result, as data: what `when` of an edge and rules of recruitment are written in.
//!
//! Invariant: a condition is total: a path that is not there is `null`, and a comparison of things that have no order is
//! false. Numbers are compared exactly as written when both are integers. No expressions, no code.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One test of one place in a JSON value. All tests that are given must hold.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Condition {
    /// Keys and indexes joined by dots (`findings.0.risk`); empty: the whole value.
    pub path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub equals: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_equals: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_least: Option<serde_json::Number>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub below: Option<serde_json::Number>,
    /// A text that the text (or an entry that the list) must contain; capitals count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contains: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exists: Option<bool>,
}

/// The value at a path, if there is one.
pub fn at<'v>(value: &'v Value, path: &str) -> Option<&'v Value> {
    path.split('.').filter(|key| !key.is_empty()).try_fold(value, |value, key| match value {
        Value::Object(map) => map.get(key),
        Value::Array(list) => list.get(key.parse::<usize>().ok()?),
        _ => None,
    })
}

impl Condition {
    pub fn holds(&self, value: &Value) -> bool {
        let found = at(value, &self.path).filter(|value| !value.is_null());
        let value = found.unwrap_or(&Value::Null);
        let ordered = |limit: &serde_json::Number| compare(value, limit);
        self.equals.as_ref().is_none_or(|wanted| same(value, wanted))
            && self.not_equals.as_ref().is_none_or(|other| !same(value, other))
            && self.at_least.as_ref().is_none_or(|limit| ordered(limit).is_some_and(std::cmp::Ordering::is_ge))
            && self.below.as_ref().is_none_or(|limit| ordered(limit).is_some_and(std::cmp::Ordering::is_lt))
            && self.contains.as_ref().is_none_or(|part| contains(value, part))
            && self.exists.is_none_or(|wanted| wanted == found.is_some())
    }
}

impl std::fmt::Display for Condition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let path = if self.path.is_empty() { "the result" } else { &self.path };
        let mut tests = Vec::new();
        tests.extend(self.equals.as_ref().map(|value| format!("{path} = {value}")));
        tests.extend(self.not_equals.as_ref().map(|value| format!("{path} != {value}")));
        tests.extend(self.at_least.as_ref().map(|value| format!("{path} >= {value}")));
        tests.extend(self.below.as_ref().map(|value| format!("{path} < {value}")));
        tests.extend(self.contains.as_ref().map(|value| format!("{path} contains {value:?}")));
        tests.extend(self.exists.map(|exists| format!("{path} {}", if exists { "exists" } else { "does not exist" })));
        f.write_str(&if tests.is_empty() { "always".to_owned() } else { tests.join(" and ") })
    }
}

/// 1 and 1.0 are the same number.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(_), Value::Number(limit)) => compare(a, limit).is_some_and(std::cmp::Ordering::is_eq),
        _ => a == b,
    }
}

fn compare(value: &Value, limit: &serde_json::Number) -> Option<std::cmp::Ordering> {
    let Value::Number(number) = value else { return None };
    match (number.as_i64(), limit.as_i64()) {
        (Some(a), Some(b)) => Some(a.cmp(&b)),
        _ => number.as_f64()?.partial_cmp(&limit.as_f64()?),
    }
}

fn contains(value: &Value, part: &str) -> bool {
    match value {
        Value::String(text) => text.contains(part),
        Value::Array(list) => list.iter().any(|entry| entry.as_str() == Some(part)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_test_holds_or_not_on_both_sides_of_its_limit() {
        let value = json!({ "risk": 7, "share": 0.5, "tags": ["new", "big"], "note": "Prices rose", "none": null });
        let cases = [
            (json!({ "path": "risk", "at_least": 7 }), true),
            (json!({ "path": "risk", "at_least": 8 }), false),
            (json!({ "path": "risk", "below": 7 }), false),
            (json!({ "path": "risk", "below": 7.5 }), true),
            (json!({ "path": "risk", "equals": 7.0 }), true),
            (json!({ "path": "risk", "not_equals": 7 }), false),
            (json!({ "path": "share", "at_least": 0.5 }), true),
            (json!({ "path": "tags", "contains": "big" }), true),
            (json!({ "path": "tags", "contains": "bi" }), false),
            (json!({ "path": "note", "contains": "rose" }), true),
            (json!({ "path": "note", "contains": "Rose" }), false),
            (json!({ "path": "tags.1", "equals": "big" }), true),
            (json!({ "path": "tags.2", "exists": false }), true),
            (json!({ "path": "none", "exists": true }), false),
            (json!({ "path": "note", "at_least": 1 }), false),
            (json!({ "path": "risk", "at_least": 1, "below": 3 }), false),
            (json!({}), true),
        ];
        for (condition, holds) in cases {
            let parsed: Condition = serde_json::from_value(condition.clone()).unwrap();
            assert_eq!(parsed.holds(&value), holds, "{condition}: {parsed}");
        }
        assert!(serde_json::from_value::<Condition>(json!({ "path": "a", "equal": 1 })).is_err());
    }
}
