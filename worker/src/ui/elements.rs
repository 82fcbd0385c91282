//! Small parts that many pages share: a status, a moment, a payload, a command to copy.
//!
//! Invariant: what stands for something in colour also says it in words; a moment carries its exact value; a payload is
//! shown whole, folded where it is long. Nothing here asks anybody.

use std::time::Duration;

use bosun_engine::{Failure, RunId, RunInfo, Timestamp, WorkflowStatus};
use maud::{Markup, html};
use serde_json::Value;

use crate::api::guard::now;
use crate::cli::time_format::short;
use crate::cli::waiting::{Hold, status_shown};
use crate::cli::{run_word, shell_word};

/// How a run stands, in the words of the command line: held, as people hold it, or the engine's status.
pub(super) fn standing(info: &RunInfo, hold: Option<Hold>) -> Markup {
    match (info.status.is_open(), info.held, hold) {
        (true, true, _) => badge("bad", &status_shown(info.status, true, hold)),
        (true, false, Some(_)) => badge("wait", &status_shown(info.status, false, hold)),
        _ => status(info.status),
    }
}

/// The word and the colour of a status.
pub(super) fn status(status: WorkflowStatus) -> Markup {
    let class = match status {
        WorkflowStatus::Running => "run",
        WorkflowStatus::Paused => "wait",
        WorkflowStatus::Completed | WorkflowStatus::ContinuedAsNew => "ok",
        WorkflowStatus::Canceled => "off",
        WorkflowStatus::Failed | WorkflowStatus::TimedOut | WorkflowStatus::Terminated => "bad",
    };
    badge(class, &status.to_string())
}

/// A word in the colour of a class: `run`, `ok`, `bad`, `wait`, `off`.
pub(super) fn badge(class: &str, word: &str) -> Markup {
    html! { span class={ "badge " (class) } { (word.replace('_', " ")) } }
}

/// A moment as one speaks of it, with the exact one beside it.
pub(super) fn ago(at: Timestamp) -> Markup {
    let now = now();
    let text = if at > now { format!("in {}", short(at.since(now))) } else { format!("{} ago", short(now.since(at))) };
    let exact = at.to_string();
    html! { time datetime=(exact) title=(exact) { (text) } }
}

pub(super) fn exact(at: Timestamp) -> Markup {
    let text = at.to_string();
    html! { time datetime=(text) { (text) } }
}

pub(super) fn span(duration: Duration) -> String {
    short(duration)
}

/// How long a run took, or has taken.
pub(super) fn lasted(info: &RunInfo) -> String {
    short(info.closed_at.unwrap_or_else(now).since(info.started_at))
}

/// The page of a run. Ids are anybody's text: each part is encoded.
pub(crate) fn run_link(namespace: &str, id: &str, run: Option<RunId>) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    if let Some(run) = run {
        query.append_pair("run_id", &run.to_string());
    }
    if namespace != bosun_engine::DEFAULT_NAMESPACE {
        query.append_pair("namespace", namespace);
    }
    let query = query.finish();
    let mark = if query.is_empty() { "" } else { "?" };
    format!("/runs/{}{mark}{query}", path_segment(id))
}

/// A text as one part of a path.
pub(super) fn path_segment(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'~' => encoded.push(char::from(byte)),
            // A segment of dots alone would be another folder.
            b'.' if text.bytes().any(|byte| byte != b'.') => encoded.push('.'),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

/// A text as the value of a parameter.
pub(crate) fn query_value(text: &str) -> String {
    form_urlencoded::byte_serialize(text.as_bytes()).collect()
}

/// An address with these parameters beside those that it has; one that is there is replaced, an empty one is taken out.
pub(super) fn with(address: &str, pairs: &[(&str, &str)]) -> String {
    let (path, query) = address.split_once('?').unwrap_or((address, ""));
    let mut kept = form_urlencoded::Serializer::new(String::new());
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        if pairs.iter().all(|(given, _)| *given != name) {
            kept.append_pair(&name, &value);
        }
    }
    for (name, value) in pairs.iter().filter(|(_, value)| !value.is_empty()) {
        kept.append_pair(name, value);
    }
    let query = kept.finish();
    let mark = if query.is_empty() { "" } else { "?" };
    format!("{path}{mark}{query}")
}

/// Longer payloads are folded.
const OPEN_CHARS: usize = 400;

/// A value as one reads it: a text as text, everything else as JSON.
pub(super) fn value(value: &Value) -> Markup {
    let text = text_of(value);
    let long = text.chars().count() > OPEN_CHARS || text.lines().count() > 12;
    html! {
        @if long {
            details.payload {
                summary { (cut(text.lines().next().unwrap_or_default(), 100)) span.muted { " " (text.len()) " bytes" } }
                pre tabindex="0" { (text) }
            }
        } @else {
            pre.payload { (text) }
        }
    }
}

/// A value that a page is about: never folded.
pub(super) fn open_value(value: &Value) -> Markup {
    html! { pre.payload tabindex="0" { (text_of(value)) } }
}

fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => format!("{other:#}"),
    }
}

/// What somebody has said, as prose: folded where it is long.
pub(super) fn words(text: &str) -> Markup {
    html! { @if text.chars().count() > SPOKEN_CHARS { (value(&Value::from(text))) } @else { p.words { (text) } } }
}

/// Longer ones are folded.
const SPOKEN_CHARS: usize = 4_000;

/// A text of at most so many characters.
pub(super) fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

pub(super) fn failure(why: &Failure) -> Markup {
    html! { div.failure { strong { (why.type_name()) } ": " (why.message)
        @if let Some(cause) = &why.cause { div.cause { "caused by " (failure(cause)) } }
    } }
}

/// `bosun VERB ID`, complete for the namespace.
pub(super) fn command_of(verb: &str, info: &RunInfo, rest: &str) -> String {
    let namespace = info.namespace.as_str();
    let place = if namespace == bosun_engine::DEFAULT_NAMESPACE {
        String::new()
    } else {
        format!(" --namespace {}", shell_word(namespace))
    };
    format!("bosun {verb} {}{rest}{place}", run_word(info.workflow_id.as_str()))
}

/// Millionths of a dollar as dollars.
pub(super) fn dollars(micros: u64) -> String {
    let text = format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000);
    let short = text.trim_end_matches('0');
    let decimals = short.len() - short.find('.').map_or(0, |dot| dot + 1);
    format!("${short}{}", "0".repeat(2_usize.saturating_sub(decimals)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_one_part_of_a_path_whatever_they_hold() {
        assert_eq!(path_segment("a b/../c?d#e&f%"), "a%20b%2F..%2Fc%3Fd%23e%26f%25");
        assert_eq!((path_segment(".."), path_segment("v1.2")), ("%2E%2E".to_owned(), "v1.2".to_owned()));
        assert_eq!(run_link("default", "a", None), "/runs/a");
        assert_eq!(run_link("dev & co", "a", None), "/runs/a?namespace=dev+%26+co");
        assert_eq!(with("/r?a=1&b=2", &[("a", ""), ("c", "x y")]), "/r?b=2&c=x+y");
        assert_eq!(with("/r?a=1", &[("a", "")]), "/r");
    }

    #[test]
    fn money_has_at_least_two_decimals() {
        assert_eq!([0, 10_000, 1_234_567, 2_500_000].map(dollars), ["$0.00", "$0.01", "$1.234567", "$2.50"]);
    }

    #[test]
    fn what_comes_from_a_run_is_text() {
        let shown = value(&Value::from("<script>alert(1)</script>")).into_string();
        assert!(!shown.contains("<script>") && shown.contains("&lt;script&gt;"), "{shown}");
    }
}
