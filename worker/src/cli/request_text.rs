//! What a person is shown of one request before deciding: every part of it in words, in the order in which one reads.
//!
//! Invariant: nothing that bears on the decision is left out. Keys that nobody reads (hashes, what else is told already) are
//! named here; whatever is new is shown under its own name. Does not ask the run and does not decide.

use bosun_engine::Timestamp;
use serde_json::Value;

use super::approval::moment;
use super::error::{one_line, printable};

/// The name a person reads, and the keys of requests that hold it: the first that says something is shown.
const PARTS: [(&str, &[&str]); 12] = [
    ("what", &["subject", "action", "tool", "what", "kind"]),
    ("about", &["description"]),
    ("arguments", &["arguments"]),
    ("question", &["payload"]),
    ("risk", &["risk"]),
    ("because", &["reasons"]),
    ("task", &["task_id", "task"]),
    ("of whom", &["agent", "whom"]),
    ("asked at", &["requested_at", "raised_at"]),
    ("until", &["deadline", "until"]),
    ("on timeout", &["on_timeout", "on_expiry"]),
    ("on reject", &["on_reject"]),
];
/// What is not for people: hashes of what is shown, how the run keeps its books, and what `until` says already.
const BOOKS: [&str; 8] = ["id", "shown", "hash", "notified", "timeout", "index", "answer", "options"];
/// What is told also where there is nothing in it: an empty result is a result.
const ALWAYS: [&str; 4] = ["payload", "arguments", "result", "output"];

/// What of a request, or of what became of it, is a moment.
const MOMENTS: [&str; 5] = ["requested_at", "raised_at", "deadline", "until", "from"];

/// A request with its moments as `at` shows them; runs tell them in microseconds. What tasks say is left as it is.
pub(crate) fn with_moments(request: &Value, at: impl Fn(Timestamp) -> Value) -> Value {
    let mut request = request.clone();
    for name in MOMENTS {
        if let Some(micros) = request.get(name).and_then(Value::as_i64) {
            request[name] = at(Timestamp(micros));
        }
    }
    request
}

/// The parts of a request, each with its name; a text may have several lines.
pub(crate) fn parts(request: &Value) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for (name, keys) in PARTS {
        // What happens when the time is over is of no use to who has as much time as they like.
        if name == "on timeout" && !["deadline", "until"].iter().any(|key| request[*key].is_i64()) {
            continue;
        }
        let mut said = keys.iter().filter_map(|key| Some(part(key, request.get(key)?)));
        all.extend(said.find(|text| !text.is_empty()).map(|text| (name.to_owned(), text)));
    }
    let known = |key: &str| BOOKS.contains(&key) || PARTS.iter().any(|(_, keys)| keys.contains(&key));
    let others = request.as_object().into_iter().flatten().filter(|(key, _)| !known(key));
    // The context is what the run adds to the request: its parts stand beside the others.
    let added = others.flat_map(|(key, value)| match value {
        Value::Object(parts) if key == "context" => parts.iter().collect(),
        _ => vec![(key, value)],
    });
    for (key, value) in added {
        let text = part(key, value);
        if !text.is_empty() {
            all.push((one_line(&key.replace('_', " ")), text));
        }
    }
    all
}

/// One part as text; empty where there is nothing to say.
fn part(key: &str, value: &Value) -> String {
    let is_empty = match value {
        Value::Null => true,
        Value::String(text) => text.trim().is_empty(),
        Value::Array(all) => all.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    };
    match value {
        _ if is_empty && ALWAYS.contains(&key) => "(empty)".to_owned(),
        Value::Null => String::new(),
        Value::Array(all) if all.is_empty() => String::new(),
        Value::Object(map) if map.is_empty() => String::new(),
        Value::String(word) if key == "on_reject" && word == "end_run" => "the run ends".to_owned(),
        Value::Number(_) if MOMENTS.contains(&key) => moment(value),
        Value::String(text) => printable(text),
        // What is approved: a task, an action, or a version of the plan.
        Value::Object(scope) if key == "scope" => {
            let word = |(name, value): (&String, &Value)| match value {
                Value::String(text) if name == "kind" => printable(text),
                other => format!("{} {}", printable(name), printable(&other.to_string())),
            };
            scope.iter().map(word).collect::<Vec<_>>().join(", ")
        }
        Value::Array(tasks) if key == "plan" => tasks.iter().map(task).collect::<Vec<_>>().join("\n"),
        Value::Array(all) if all.iter().all(Value::is_string) => {
            let lines: Vec<String> = all.iter().filter_map(Value::as_str).map(printable).collect();
            lines.join("\n")
        }
        other => printable(&format!("{other:#}")),
    }
}

/// One task of a plan that is up for review: what is to be done, by whom and after what.
fn task(task: &Value) -> String {
    let text = |key: &str| task[key].as_str().map(printable).unwrap_or_default();
    let whom = ["agent", "role", "capability"].map(text).into_iter().find(|whom| !whom.is_empty());
    let after: Vec<String> =
        task["dependencies"].as_array().into_iter().flatten().filter_map(Value::as_str).map(printable).collect();
    let risk = text("risk");
    let more: Vec<String> = [
        whom.map(|whom| format!("by {whom}")),
        (!after.is_empty()).then(|| format!("after {}", after.join(", "))),
        (!risk.is_empty()).then(|| format!("risk {risk}")),
        (task["requires_approval"] == true).then(|| "asks again".to_owned()),
    ]
    .into_iter()
    .flatten()
    .collect();
    let more = if more.is_empty() { String::new() } else { format!(" ({})", more.join("; ")) };
    let goal = format!("{}: {}{more}", text("id"), text("goal").replace('\n', "\n    "));
    let does = what_it_does(task).into_iter().map(|(name, said)| format!("\n    {name}: {said}"));
    goal + &does.collect::<String>()
}

/// What a task of a plan does beside its goal, each with its name: a command, an action, arguments, the results it depends
/// on, and how it is undone. Who approves the plan approves these.
pub(crate) fn what_it_does(task: &Value) -> Vec<(&'static str, String)> {
    let said = ["action", "parameters", "tools", "when", "compensation"].into_iter().map(|name| (name, &task[name]));
    let text = |value: &Value| match value {
        Value::String(text) => printable(text),
        Value::Array(all) if all.iter().all(Value::is_string) => {
            all.iter().filter_map(Value::as_str).map(printable).collect::<Vec<_>>().join(", ")
        }
        other => printable(&other.to_string()),
    };
    let is_said = |value: &Value| match value {
        Value::Null => false,
        Value::String(text) => !text.trim().is_empty(),
        Value::Array(all) => !all.is_empty(),
        Value::Object(map) => !map.is_empty(),
        Value::Bool(_) | Value::Number(_) => true,
    };
    said.filter(|(_, value)| is_said(value)).map(|(name, value)| (name, text(value))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn everything_that_bears_on_a_decision_is_shown() {
        let request = json!({
            "id": "run/ap-1", "scope": "task", "task_id": "pay", "action": "", "subject": "the start of task pay",
            "description": "pays the bill\nof March", "risk": "high", "context": { "amount": 12, "result": "", "role": null }, "reasons": ["over 10", "new payee"],
            "on_reject": "skip", "timeout": "5m", "on_timeout": "deny", "requested_at": 0, "deadline": 60_000_000,
            "shown": "abc", "notified": true, "blast_radius": "the account", "options": ["Approve"],
        });
        let shown = parts(&request);
        let of = |name: &str| shown.iter().find(|(at, _)| at == name).map(|(_, text)| text.as_str());
        assert_eq!(of("what"), Some("the start of task pay"));
        assert_eq!(of("about"), Some("pays the bill\nof March"));
        assert_eq!(of("because"), Some("over 10\nnew payee"));
        assert_eq!(of("until"), Some("1970-01-01 00:01:00Z"));
        assert_eq!(of("on timeout"), Some("deny"));
        assert_eq!(of("amount"), Some("12"));
        assert_eq!((of("result"), of("scope"), of("role")), (Some("(empty)"), Some("task"), None));
        assert_eq!(of("blast radius"), Some("the account"), "what is new is not hidden");
        assert!(!shown.iter().any(|(_, text)| text == "abc"), "a hash is not for people: {shown:?}");
    }

    #[test]
    fn what_happens_on_a_timeout_is_told_where_there_is_one() {
        let of = |deadline: Value| {
            let shown = parts(&json!({ "id": "q", "task": "ask", "deadline": deadline, "on_expiry": "fail" }));
            shown.into_iter().find(|(name, _)| name == "on timeout").map(|(_, text)| text)
        };
        assert_eq!((of(Value::Null), of(json!(60_000_000))), (None, Some("fail".to_owned())));
    }

    /// The words of the run's own books are none for people.
    #[test]
    fn what_a_rejection_does_is_said_in_words() {
        assert_eq!(parts(&json!({ "on_reject": "end_run" })), [("on reject".to_owned(), "the run ends".to_owned())]);
        assert_eq!(parts(&json!({ "on_reject": "skip" })), [("on reject".to_owned(), "skip".to_owned())]);
    }

    /// What a task says is its own, also where it has the name of a moment.
    #[test]
    fn moments_are_told_as_elsewhere_and_nothing_else_is_touched() {
        let request = json!({ "requested_at": 0, "deadline": 60_000_000, "escalated": 2, "raised_at": null,
            "payload": { "deadline": 5 }, "context": { "until": 7 } });
        let told = with_moments(&request, |at| at.to_string().into());
        let same = json!({ "requested_at": "1970-01-01T00:00:00.000000Z", "deadline": "1970-01-01T00:01:00.000000Z", "escalated": 2,
            "raised_at": null, "payload": { "deadline": 5 }, "context": { "until": 7 } });
        assert_eq!(told, same);
    }

    #[test]
    fn a_tool_call_is_shown_with_its_arguments_and_cannot_steer_the_terminal() {
        let shown =
            parts(&json!({ "id": "a", "tool": "note\u{1b}[2J", "arguments": { "text": "hello" }, "hash": "x" }));
        assert_eq!(shown[0], ("what".to_owned(), "note\u{fffd}[2J".to_owned()));
        assert!(shown[1].1.contains("\"text\": \"hello\""), "{shown:?}");
        assert_eq!(shown.len(), 2, "{shown:?}");
    }

    #[test]
    fn a_plan_is_shown_with_every_task_of_it() {
        let shown = parts(&json!({ "kind": "plan", "id": "run#2", "what": "version 2 of the plan", "whom": "anybody",
            "until": 60_000_000, "answer": "bosun plan approve run --version 2", "plan": [
                { "id": "a", "goal": "read it", "agent": "ann", "dependencies": [] },
                { "id": "b", "goal": "pay\u{1b}[2J\nall", "agent": null, "dependencies": ["a"], "risk": "high", "requires_approval": true },
                { "id": "c", "goal": "clean up", "capability": "process", "action": "", "tools": [], "parameters": { "argv": ["rm", "-r\u{1b}"] } },
            ] }));
        let of = |name: &str| shown.iter().find(|(at, _)| at == name).map(|(_, text)| text.as_str());
        assert_eq!(of("what"), Some("version 2 of the plan"));
        assert_eq!(of("until"), Some("1970-01-01 00:01:00Z"));
        let plan = "a: read it (by ann)\nb: pay\u{fffd}[2J\n    all (after a; risk high; asks again)\nc: clean up (by process)\n    \
                    parameters: {\"argv\":[\"rm\",\"-r\\u001b\"]}";
        assert_eq!(of("plan"), Some(plan));
    }
}
