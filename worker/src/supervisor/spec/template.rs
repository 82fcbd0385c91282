//! Filling a call's own data into a scripted answer.
//!
//! Invariant: `{{name}}` is replaced by what the call holds, `\{{` is a plain `{{`, and everything else stays as it is. A
//! place of the context that is not there is nothing: an empty text. It evaluates no expressions.

use serde_json::Value;

use crate::supervisor::outbox::Call;

/// The names a text may hold, besides `context` and what is in it.
pub(super) const NAMES: [&str; 8] = ["agent", "attempt", "context", "key", "prompt", "purpose", "round", "task"];

/// A value with every text in it filled in.
pub(crate) fn fill(value: &Value, call: &Call) -> Value {
    match value {
        Value::String(text) => whole(text).map_or_else(|| fill_text(text, call).into(), |name| look_up(name, call)),
        Value::Array(list) => list.iter().map(|value| fill(value, call)).collect(),
        Value::Object(map) => map.iter().map(|(key, value)| (key.clone(), fill(value, call))).collect(),
        other => other.clone(),
    }
}

pub(super) fn fill_text(text: &str, call: &Call) -> String {
    let mut filled = String::new();
    for piece in pieces(text) {
        match piece {
            Piece::Text(text) => filled.push_str(text),
            Piece::Name(name) => match look_up(name, call) {
                Value::Null => {}
                Value::String(text) => filled.push_str(&text),
                other => filled.push_str(&other.to_string()),
            },
        }
    }
    filled
}

/// The first name in a value that means nothing.
pub(super) fn unknown_name(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => unknown_name_in(text),
        Value::Array(list) => list.iter().find_map(unknown_name),
        Value::Object(map) => map.values().find_map(unknown_name),
        _ => None,
    }
}

pub(super) fn unknown_name_in(text: &str) -> Option<String> {
    pieces(text).find_map(|piece| match piece {
        Piece::Name(name) if !NAMES.contains(&name.split('.').next().unwrap_or_default()) => Some(name.to_owned()),
        _ => None,
    })
}

enum Piece<'a> {
    Text(&'a str),
    Name(&'a str),
}

/// The text that is a single name.
fn whole(text: &str) -> Option<&str> {
    let name = text.strip_prefix("{{")?.strip_suffix("}}")?;
    (!name.contains("{{") && !name.contains("}}")).then(|| name.trim())
}

/// Names and what is between them, in order. An opening without an end is plain text.
fn pieces(text: &str) -> impl Iterator<Item = Piece<'_>> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        if let Some(after) = rest.strip_prefix("{{")
            && let Some(end) = after.find("}}")
        {
            rest = &after[end + 2..];
            return Some(Piece::Name(after[..end].trim()));
        }
        if let Some(after) = rest.strip_prefix("\\{{") {
            let plain = &rest[1..3];
            rest = after;
            return Some(Piece::Text(plain));
        }
        let start = rest.find("{{").map_or(rest.len(), |at| if rest[..at].ends_with('\\') { at - 1 } else { at });
        // A lone opening at the front is taken as text, so that every turn moves on.
        let end = if start == 0 { 2 } else { start };
        let plain = &rest[..end];
        rest = &rest[end..];
        Some(Piece::Text(plain))
    })
}

fn look_up(name: &str, call: &Call) -> Value {
    let (first, path) = name.split_once('.').unwrap_or((name, ""));
    match first {
        "agent" => call.agent.clone().into(),
        "attempt" => call.attempt.into(),
        "key" => call.key.to_string().into(),
        "prompt" => call.prompt.clone().into(),
        "purpose" => call.purpose.as_str().into(),
        "round" => call.round.into(),
        "task" => call.task.as_ref().map(ToString::to_string).into(),
        "context" => at(&call.context, path).cloned().unwrap_or(Value::Null),
        _ => Value::Null,
    }
}

/// The value at `a.b.0.c`.
fn at<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').filter(|step| !step.is_empty()).try_fold(value, |value, step| match value {
        Value::Array(list) => list.get(step.parse::<usize>().ok()?),
        other => other.get(step),
    })
}
