//! A value as a tree whose branches fold, for states that are too large to read at once.
//!
//! Invariant: all of the value is there; what is small stands in its line, what is large is folded with its size beside it.
//! It needs no script.

use bosun_engine::Timestamp;
use maud::{Markup, html};
use serde_json::Value;

use super::elements::{cut, exact};

/// What fits a line is not folded.
const LINE: usize = 80;
/// Deeper values stand as JSON.
const DEPTH_MAX: usize = 24;

pub(super) fn tree(value: &Value) -> Markup {
    html! { div.state-tree { (branches(value, 0)) } }
}

fn branches(value: &Value, depth: usize) -> Markup {
    html! { @match value {
        Value::Object(fields) if depth < DEPTH_MAX && !fields.is_empty() => ul { @for (name, value) in fields { (branch(name, value, depth)) } },
        Value::Array(items) if depth < DEPTH_MAX && !items.is_empty() => ul { @for (at, value) in items.iter().enumerate() { (branch(&at.to_string(), value, depth)) } },
        other => (leaf("", other)),
    } }
}

fn branch(name: &str, value: &Value, depth: usize) -> Markup {
    let size = match value {
        Value::Object(fields) => format!("{} fields", fields.len()),
        Value::Array(items) => format!("{} items", items.len()),
        _ => String::new(),
    };
    let text = value.to_string();
    html! { li {
        @if text.len() <= LINE || size.is_empty() { span.name { (name) } " " (leaf(name, value)) }
        @else { details { summary { span.name { (name) } " " span.muted { (size) " " (cut(&text, 60)) } } (branches(value, depth + 1)) } }
    } }
}

/// A moment is kept as microseconds, under a name that says so.
fn moment_of(name: &str, value: &Value) -> Option<Timestamp> {
    // From 2001 to 5138: no number that counts is as large.
    const MOMENTS: std::ops::Range<i64> = 1_000_000_000_000_000..100_000_000_000_000_000;
    let is_one = name.ends_with("_at") || matches!(name, "at" | "from" | "until" | "deadline" | "now");
    value.as_i64().filter(|micros| is_one && MOMENTS.contains(micros)).map(Timestamp)
}

/// A value in its line; `name` is what it stands under.
pub(super) fn leaf(name: &str, value: &Value) -> Markup {
    if let Some(at) = moment_of(name, value) {
        return exact(at);
    }
    html! { @match value {
        Value::String(text) if text.contains('\n') || text.len() > 400 => pre.payload { (text) },
        Value::String(text) => code.text { (text) },
        Value::Null => span.muted { "nothing" },
        Value::Bool(yes) => @if *yes { "yes" } @else { "no" },
        other => {
            @let text = other.to_string();
            @if text.len() > 400 { details.payload { summary { (cut(&text, 80)) } pre tabindex="0" { (format!("{other:#}")) } } }
            @else { code { (text) } }
        },
    } }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn everything_is_in_the_tree_and_is_text() {
        let long = "x".repeat(100);
        let state = json!({ "small": { "a": 1 }, "<large>": [long, { "deep": [1, 2, 3] }], "none": null });
        let shown = tree(&state).into_string();
        for part in ["small", "&lt;large&gt;", long.as_str(), "[1,2,3]", "nothing", "2 items"] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        // As deep as hostile input may be.
        let deep = (0..500).fold(json!(1), |inner, _| json!({ "in": inner, "beside": "y".repeat(100) }));
        assert!(!tree(&deep).into_string().is_empty());
    }
}
