//! What a model is shown of the result of a tool: what it gave, said once, and whether it failed.
//!
//! Invariant: a function of the result alone. What differs between two equal calls (how long it took, the date in a header)
//! is not shown, so that the same run asks the same model the same, and a cassette of it plays. The history keeps it all.

use std::borrow::Cow;

use serde_json::{Map, Value, json};

use super::transcript::{cut, cut_bytes};
use crate::capability::http::HTTP;
use crate::capability::mcp::{MCP, McpOutput};
use crate::capability::model::tokens;
use crate::capability::process::PROCESS;

/// The headers that say something about the answer, and not about the moment or the connection.
const HEADERS: [&str; 3] = ["content-type", "link", "location"];

/// A result as a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ShownResult<'a> {
    words: Cow<'a, str>,
    /// The tool ran and did not do what it was asked for.
    pub(super) failed: bool,
}

impl<'a> ShownResult<'a> {
    /// The result of an activity.
    pub(super) fn of_tool(activity_type: &str, value: &'a Value) -> ShownResult<'a> {
        match activity_type {
            PROCESS => process(value),
            HTTP => http(value),
            MCP => mcp(value),
            _ => ShownResult { words: words(value), failed: false },
        }
    }

    /// The output of an agent that was called.
    pub(super) fn of_agent(output: &'a Value) -> ShownResult<'a> {
        let said = match output.get("value").filter(|value| !value.is_null()) {
            Some(value) => Cow::Owned(value.to_string()),
            None => Cow::Borrowed(output.get("text").and_then(Value::as_str).unwrap_or_default()),
        };
        let stop = output.get("stop").unwrap_or(&Value::Null);
        if stop == "completed" {
            return ShownResult { words: said, failed: false };
        }
        ShownResult { words: Cow::Owned(format!("[it ended early: {stop}]\n{said}")), failed: true }
    }

    /// No longer than that.
    pub(super) fn text(self, bytes_max: u64) -> String {
        cut(self.words.into_owned(), bytes_max)
    }
    /// Its tokens, estimated.
    pub(super) fn tokens(&self, bytes_max: u64) -> u32 {
        tokens(cut_bytes(&self.words, bytes_max))
    }
}

/// A result without what differs between two equal calls: what a run may show a model.
pub(crate) fn steady(activity_type: &str, mut value: Value) -> Value {
    match activity_type {
        PROCESS => {
            if let Value::Object(output) = &mut value {
                output.shift_remove("duration_ms");
            }
        }
        HTTP => {
            if let Some(Value::Object(headers)) = value.get_mut("headers") {
                headers.retain(|name, _| HEADERS.contains(&name.as_str()));
            }
        }
        _ => {}
    }
    value
}

fn words(value: &Value) -> Cow<'_, str> {
    match value {
        Value::String(text) => Cow::Borrowed(text),
        other => Cow::Owned(other.to_string()),
    }
}

fn process(output: &Value) -> ShownResult<'_> {
    let failed = output["exit_code"] != json!(0);
    let shown = picked(output, &["exit_code", "signal", "stdout", "stderr", "truncated"]);
    ShownResult { words: Cow::Owned(shown.to_string()), failed }
}

fn http(output: &Value) -> ShownResult<'_> {
    let failed = output["status"].as_u64().is_none_or(|status| status >= 400);
    // The body as data says the same as the body as text.
    let body = if output["json"].is_null() { "body" } else { "json" };
    let mut shown = picked(output, &["status", body, "encoding", "truncated", "url"]);
    shown["headers"] = picked(&output["headers"], &HEADERS);
    ShownResult { words: Cow::Owned(shown.to_string()), failed }
}

/// The members of these names that say something.
fn picked(output: &Value, names: &[&str]) -> Value {
    let dull = |value: &Value| value.is_null() || *value == json!(false) || *value == json!("text");
    let member =
        |name: &&str| output.get(*name).filter(|value| !dull(value)).map(|value| ((*name).to_owned(), value.clone()));
    Value::Object(names.iter().filter_map(member).collect::<Map<String, Value>>())
}

/// The texts; the structured part only where the texts do not say it already, as servers should let them.
fn mcp(output: &Value) -> ShownResult<'_> {
    let Ok(McpOutput { text, is_error, structured, left_out }) = serde_json::from_value(output.clone()) else {
        return ShownResult { words: words(output), failed: false };
    };
    let said = |structured: &Value| serde_json::from_str::<Value>(&text).is_ok_and(|text| text == *structured);
    let more = structured.as_ref().filter(|structured| !said(structured)).map(Value::to_string);
    let left_out = left_out.iter().map(|what| format!("[left out: {what}]"));
    let parts = std::iter::once(text.clone()).filter(|text| !text.is_empty()).chain(more).chain(left_out);
    ShownResult { words: Cow::Owned(parts.collect::<Vec<_>>().join("\n")), failed: is_error }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(activity_type: &str, value: Value) -> (String, bool) {
        let shown = ShownResult::of_tool(activity_type, &value);
        assert_eq!(shown.tokens(9), tokens(shown.clone().text(9).len()));
        (shown.clone().text(10_000), shown.failed)
    }

    #[test]
    fn a_process_is_shown_by_what_it_did_and_not_by_how_long_it_took() {
        let output = |code: i32, ms: u64| {
            json!({ "exit_code": code, "signal": null, "stdout": "4\n", "stderr": "", "truncated": false,
                "stdout_bytes": 2, "stderr_bytes": 0, "duration_ms": ms })
        };
        let quick = shown(PROCESS, output(0, 3));
        assert_eq!(quick, (r#"{"exit_code":0,"stdout":"4\n","stderr":""}"#.to_owned(), false));
        assert_eq!(quick, shown(PROCESS, output(0, 900)));
        assert!(shown(PROCESS, output(1, 3)).1, "it failed");
        let killed = json!({ "exit_code": null, "signal": 9, "stdout": "", "stderr": "", "truncated": false });
        assert_eq!(shown(PROCESS, killed), (r#"{"signal":9,"stdout":"","stderr":""}"#.to_owned(), true));
    }

    #[test]
    fn an_answer_is_shown_once_and_without_its_date() {
        let output = |date: &str, status: u16| {
            json!({ "status": status, "headers": { "date": date, "content-type": "application/json", "x-request-id": date },
                "body": "{\"a\":1}", "encoding": "text", "json": { "a": 1 }, "truncated": false, "url": "https://x/" })
        };
        let (text, failed) = shown(HTTP, output("Mon", 200));
        let expected = json!({ "status": 200, "json": { "a": 1 }, "url": "https://x/",
            "headers": { "content-type": "application/json" } });
        assert_eq!((serde_json::from_str::<Value>(&text).unwrap(), failed), (expected, false));
        assert_eq!(text, shown(HTTP, output("Tue", 200)).0);
        assert!(shown(HTTP, output("Mon", 404)).1);
    }

    #[test]
    fn what_a_server_says_twice_is_shown_once() {
        let output = |text: &str| json!({ "text": text, "is_error": false, "structured": { "n": 1 } });
        assert_eq!(shown(MCP, output("{ \"n\": 1 }")), ("{ \"n\": 1 }".to_owned(), false));
        assert_eq!(shown(MCP, output("one")), ("one\n{\"n\":1}".to_owned(), false));
        let failed = json!({ "text": "no", "is_error": true, "left_out": ["4 more bytes of text"] });
        assert_eq!(shown(MCP, failed), ("no\n[left out: 4 more bytes of text]".to_owned(), true));
    }

    #[test]
    fn an_agent_that_ended_early_has_failed() {
        let shown = |output: Value| (ShownResult::of_agent(&output).text(100), ShownResult::of_agent(&output).failed);
        assert_eq!(shown(json!({ "text": "so", "stop": "loop" })), ("[it ended early: \"loop\"]\nso".to_owned(), true));
        assert_eq!(shown(json!({ "text": "so", "value": 7, "stop": "completed" })), ("7".to_owned(), false));
    }
}
