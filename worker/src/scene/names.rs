//! The name that was probably meant.
//!
//! Invariant: a hint is a known name, and only one that is close; nothing is ever read as another name than it is.

pub(crate) use crate::supervisor::fields::similar as near;

/// ` (did you mean `x`?)`, or nothing.
pub(crate) fn or_near(text: &str, known: &[&str]) -> String {
    near(text, known).map_or_else(String::new, |near| format!(" (did you mean `{near}`?)"))
}
