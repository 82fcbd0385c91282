//! Text within a list filter, and text that list filters look for.
//!
//! Invariant: whatever a text holds, it is one literal of the filter and stands for itself. A search attribute that is given as
//! text is a keyword unless it is a whole moment. It reads no filter.

use bosun_engine::{SearchValue, Timestamp};

/// A text as a literal, with its quotes.
pub(crate) fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\\', r"\\").replace('\'', "''"))
}

/// A search attribute that is given as text: a date and a time with an offset or `Z` is a moment, all else a keyword.
pub(crate) fn typed_text(text: &str) -> SearchValue {
    let bytes = text.as_bytes();
    let is_moment = bytes.len() >= "2026-01-01T00:00:00Z".len() && bytes[10] == b'T' && bytes[0].is_ascii_digit();
    match text.parse::<jiff::Timestamp>() {
        Ok(at) if is_moment => SearchValue::Datetime(Timestamp(at.as_microsecond())),
        _ => SearchValue::Keyword(text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use bosun_engine::filter::Filter;

    use super::*;

    #[test]
    fn only_a_whole_moment_is_one() {
        let noon = SearchValue::Datetime(Timestamp(1_767_268_800_000_000));
        for text in ["2026-01-01T12:00:00Z", "2026-01-01T13:00:00+01:00", "2026-01-01T12:00:00.000Z"] {
            assert_eq!(typed_text(text), noon, "{text}");
        }
        for text in
            ["2026-01-01", "2026-01-01T12:00:00", "12:00", "now", "", "2026-13-01T12:00:00Z", "é026-01-01T12:00:00Z"]
        {
            assert_eq!(typed_text(text), SearchValue::Keyword(text.to_owned()));
        }
    }

    #[test]
    fn whatever_a_text_holds_it_is_one_literal() {
        for text in ["shop", "it's", r"a\b", r"\", r"x\' OR WorkflowId != ''", "''", r#"say "hi""#, "`w`"] {
            let filter = Filter::parse(&format!("Namespace = {}", literal(text))).unwrap().to_string();
            // One comparison: written by the engine itself it is the same again.
            assert_eq!(Filter::parse(&filter).unwrap().to_string(), filter);
            assert!(!filter.contains(" OR ") || text.contains(" OR "), "{text}: {filter}");
            let doubled = Filter::parse(&format!("Namespace IN ({0}, {0})", literal(text)));
            assert!(doubled.is_ok(), "{text}: {doubled:?}");
        }
    }
}
