//! Text within a list filter.
//!
//! Invariant: whatever a text holds, it is one literal of the filter and stands for itself. It reads no filter.

/// A text as a literal, with its quotes.
pub(crate) fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\\', r"\\").replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use bosun_engine::filter::Filter;

    use super::*;

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
