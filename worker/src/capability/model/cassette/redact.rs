//! What is cut out of a recording when it is written: whatever looks like a key.
//!
//! Invariant: the request is found by the hash of the whole, so that cutting changes no key of a recording. Shapes only:
//! the provider's own key never comes this far ([`crate::capability::scrub`]).

use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

use super::{ModelError, Recording, code};
use crate::capability::scrub::REDACTED;

static KEYS: LazyLock<Regex> = LazyLock::new(|| {
    let shapes = [
        r"\bsk-[A-Za-z0-9_-]{16,}",
        r"(?i)\bbearer\s+[A-Za-z0-9._~+/=-]{16,}",
        r"\bAKIA[0-9A-Z]{16}\b",
        r"\bgh[pousr]_[A-Za-z0-9]{20,}",
        r"\bgithub_pat_[A-Za-z0-9_]{20,}",
        r"\bxox[abeprs]-[A-Za-z0-9-]{10,}",
        r"\bAIza[0-9A-Za-z_-]{30,}",
        r"\beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]*",
        r"-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?-----END [A-Z ]*PRIVATE KEY-----",
    ];
    Regex::new(&shapes.join("|")).expect("the shapes in the program are read by its tests")
});

/// The text of the file.
pub(super) fn recording(recording: &Recording) -> Result<String, ModelError> {
    let unwritable =
        |why: serde_json::Error| ModelError::fatal(code::CASSETTE, format!("the answer cannot be written: {why}"));
    let data = serde_json::to_value(recording).map_err(unwritable)?;
    let text = serde_json::to_string_pretty(&value(data)).map_err(unwritable)?;
    Ok(text + "\n")
}

pub(super) fn value(value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(KEYS.replace_all(&text, REDACTED).into_owned()),
        Value::Array(all) => all.into_iter().map(self::value).collect(),
        Value::Object(map) => {
            let all = map.into_iter();
            let pairs = all.map(|(name, inner)| (KEYS.replace_all(&name, REDACTED).into_owned(), self::value(inner)));
            Value::Object(pairs.collect())
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_looks_like_a_key_is_cut_out() {
        let keys = [
            "sk-ant-api03-0123456789abcdefXYZ",
            "Bearer abcdefghijklmnop.qrst",
            "AKIAIOSFODNN7EXAMPLE",
            "ghp_0123456789abcdefghij0123",
            "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abc",
            "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----",
        ];
        for key in keys {
            let shown = value(json!({"a": [format!("x {key} y")], key: 1})).to_string();
            assert!(!shown.contains(&key[4..]) && shown.contains("x [redacted] y"), "{shown}");
        }
        let harmless = json!({"text": "ask a risk-averse person, sk-1, about bearer bonds", "n": 1.5});
        assert_eq!(value(harmless.clone()), harmless);
    }
}
