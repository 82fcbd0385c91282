//! What a scene expects, as it is written.
//!
//! Invariant: every expectation keeps the path at which it stands, so that a failure names it; an unknown key, kind of
//! note or word is refused with the nearest one. It judges nothing: `judge` does.

use std::time::Duration;

use serde_json::{Map, Value};

use super::file::moment;
use super::matcher::{Matcher, WORDS};
use super::names::or_near;
use super::never::{Never, status_slip};
use super::rule::id;
use crate::supervisor::FieldError;
use crate::supervisor::fields::{Fields, kind};
use crate::supervisor::journal::NoteKind;
use crate::supervisor::outbox::Purpose;

pub(super) const KEYS: [&str; 15] = [
    "outcome", "success", "error", "code", "result", "text", "report", "warnings", "calls", "prompts", "notes",
    "queries", "at", "takes", "never",
];
/// How a run can have ended, or not.
pub(crate) const OUTCOMES: [&str; 9] =
    ["completed", "partial", "failed", "canceled", "cancelled", "terminated", "timed_out", "waiting", "paused"];

/// Keys of a report that need no task.
pub(super) const REPORT: [&str; 18] = [
    "tasks",
    "summary",
    "status",
    "success",
    "error",
    "code",
    "details",
    "reason",
    "result",
    "final_result",
    "errors",
    "recruits",
    "tokens",
    "calls",
    "cost_micros",
    "unpriced_calls",
    "text",
    "objective",
];

/// See the module.
#[derive(Debug, Clone, Default)]
pub(crate) struct Expect {
    pub(crate) outcome: Option<Matcher>,
    /// Of the report, each with its path: `success`, `report.tasks.dump` ...
    pub(crate) report: Vec<(String, ReportPart, Matcher)>,
    pub(crate) calls: Vec<CallExpect>,
    pub(crate) prompts: Vec<CallExpect>,
    pub(crate) notes: Vec<NoteExpect>,
    /// Asked at a time, or at the end.
    pub(crate) queries: Vec<(Option<Duration>, QueryExpect)>,
    pub(crate) takes: Option<Matcher>,
    /// What is said of the spec when it is read, in order.
    pub(crate) warnings: Option<Matcher>,
    pub(crate) never: Vec<Never>,
}

/// A place of the report.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ReportPart {
    Key(String),
    Task(String),
}

/// Calls that are meant, and how many there are.
#[derive(Debug, Clone)]
pub(crate) struct CallExpect {
    pub(crate) path: String,
    pub(crate) on: Option<String>,
    /// In the short form `execute_worker: dump`: the task, or the agent.
    pub(crate) about: Option<String>,
    pub(crate) agent: Option<String>,
    pub(crate) tool: Option<String>,
    pub(crate) task: Option<String>,
    pub(crate) attempt: Option<u64>,
    pub(crate) round: Option<u64>,
    pub(crate) with: Option<Matcher>,
    /// What the activity that carries it is given.
    pub(crate) input: Option<Matcher>,
    pub(crate) prompt: Option<Matcher>,
    pub(crate) answer: Option<Matcher>,
    pub(crate) times: Option<Matcher>,
}

#[derive(Debug, Clone)]
pub(crate) struct NoteExpect {
    pub(crate) path: String,
    pub(crate) kind: String,
    pub(crate) data: Vec<(String, Matcher)>,
    pub(crate) times: Option<Matcher>,
}

#[derive(Debug, Clone)]
pub(crate) struct QueryExpect {
    pub(crate) path: String,
    pub(crate) query: String,
    pub(crate) input: Value,
    pub(crate) at: String,
    pub(crate) is: Matcher,
}

impl Expect {
    pub(crate) fn read(path: &str, value: &Value) -> Result<Expect, FieldError> {
        let fields = Fields::read(value, path, &KEYS)?;
        for key in ["report", "calls", "prompts", "notes", "queries", "at", "never"] {
            fields.value(key).map_or(Ok(()), |given| says_something(&fields.path_of(key), given))?;
        }
        let list = |key: &str| fields.entries(key);
        let mut expect = Expect {
            outcome: fields.value("outcome").map(|value| outcome(&fields.path_of("outcome"), value)).transpose()?,
            calls: list("calls")?.iter().map(|(at, one)| CallExpect::read(at, one)).collect::<Result<_, _>>()?,
            prompts: list("prompts")?.iter().map(|(at, one)| CallExpect::prompt(at, one)).collect::<Result<_, _>>()?,
            notes: list("notes")?
                .iter()
                .map(|(at, one)| NoteExpect::read(at, one, "kind"))
                .collect::<Result<_, _>>()?,
            takes: fields.value("takes").map(|value| takes(&fields.path_of("takes"), value)).transpose()?,
            warnings: fields
                .value("warnings")
                .map(|value| Matcher::read(&fields.path_of("warnings"), value))
                .transpose()?,
            never: list("never")?.iter().map(|(at, one)| Never::read(at, one)).collect::<Result<_, _>>()?,
            ..Expect::default()
        };
        for key in ["success", "error", "code", "result", "text"] {
            if let Some(value) = value.get(key) {
                let at = fields.path_of(key);
                let is = Matcher::read(&at, value)?;
                expect.report.push((at, ReportPart::Key(key.to_owned()), is));
            }
        }
        if let Some(report) = fields.value("report") {
            expect.report(&fields.path_of("report"), report)?;
        }
        for (at, one) in list("queries")? {
            expect.queries.push((None, QueryExpect::read(&at, one)?));
        }
        expect.at_times(&fields)?;
        Ok(expect)
    }

    fn report(&mut self, path: &str, report: &Value) -> Result<(), FieldError> {
        let fields = Fields::read(report, path, &REPORT)?;
        for (key, value) in mapping(path, report)? {
            let at = fields.path_of(key);
            if key != "tasks" {
                self.report.push((at.clone(), ReportPart::Key(key.clone()), Matcher::read(&at, value)?));
                continue;
            }
            says_something(&at, value)?;
            for (task, value) in mapping(&at, value)? {
                let at = format!("{at}.{task}");
                status_slip(&at, if value.is_object() { &value["status"] } else { value })?;
                self.report.push((at.clone(), ReportPart::Task(task.clone()), Matcher::read(&at, value)?));
            }
        }
        Ok(())
    }

    /// `at: { 1s: { query, path, equals } }`, or a list of such.
    fn at_times(&mut self, fields: &Fields<'_>) -> Result<(), FieldError> {
        let Some(at) = fields.value("at") else { return Ok(()) };
        let path = fields.path_of("at");
        for (time, asked) in mapping(&path, at)? {
            let place = format!("{path}.{time}");
            let when = moment(&place, &Value::String(time.clone()))?;
            says_something(&place, asked)?;
            match asked {
                Value::Array(list) => {
                    for (i, one) in list.iter().enumerate() {
                        self.queries.push((Some(when), QueryExpect::read(&format!("{place}[{i}]"), one)?));
                    }
                }
                one => self.queries.push((Some(when), QueryExpect::read(&place, one)?)),
            }
        }
        // What is asked at the end comes last.
        self.queries.sort_by_key(|(at, _)| (at.is_none(), *at));
        Ok(())
    }
}

/// What expects nothing holds of every run.
fn says_something(path: &str, given: &Value) -> Result<(), FieldError> {
    let is_empty = given.as_object().is_some_and(Map::is_empty) || given.as_array().is_some_and(Vec::is_empty);
    if !is_empty {
        return Ok(());
    }
    Err(FieldError::at(path, "it is empty, and would hold of every run; write what is expected here, or leave it out"))
}

fn outcome(path: &str, value: &Value) -> Result<Matcher, FieldError> {
    let known = |value: &Value| match value.as_str() {
        Some(word) if OUTCOMES.contains(&word) => Ok(()),
        Some(word) => {
            let hint = or_near(word, &OUTCOMES);
            Err(FieldError::at(path, format!("unknown outcome `{word}`{hint}; there are: {}", OUTCOMES.join(", "))))
        }
        None => Ok(()),
    };
    known(value)?;
    let us = |value: &Value| if value == "cancelled" { Value::from("canceled") } else { value.clone() };
    match value {
        Value::Object(map) => {
            map.values().flat_map(|value| value.as_array()).flatten().try_for_each(known)?;
            Matcher::read(path, value)
        }
        other => Matcher::read(path, &us(other)),
    }
}

/// How long it takes, in virtual time: a time, or a range of times.
fn takes(path: &str, value: &Value) -> Result<Matcher, FieldError> {
    let seconds = |path: &str, value: &Value| moment(path, value).map(|time| time.as_secs_f64());
    let Value::Object(map) = value else {
        let time = seconds(path, value)?;
        return Ok(Matcher::All(vec![Matcher::AtLeast(time), Matcher::AtMost(time)]));
    };
    let mut all = Vec::new();
    for (word, value) in map {
        let at = format!("{path}.{word}");
        let time = seconds(&at, value)?;
        all.push(match word.as_str() {
            "at_least" => Matcher::AtLeast(time),
            "at_most" => Matcher::AtMost(time),
            other => return Err(FieldError::at(at, format!("expected at_least or at_most, found `{other}`"))),
        });
    }
    Ok(Matcher::All(all))
}

pub(crate) fn mapping<'v>(path: &str, value: &'v Value) -> Result<&'v Map<String, Value>, FieldError> {
    value.as_object().ok_or_else(|| FieldError::at(path, format!("expected a mapping, found {}", kind(value))))
}

pub(super) const CALL: [&str; 11] =
    ["on", "agent", "tool", "task", "attempt", "round", "with", "input", "prompt", "answer", "times"];

impl CallExpect {
    /// `{ execute_worker: dump, times: 1 }` or `{ on: execute_worker, task: dump, times: 1 }`; `call` is another word for `on`.
    pub(crate) fn read(path: &str, value: &Value) -> Result<Self, FieldError> {
        let mut map = mapping(path, value)?.clone();
        if let Some(on) = map.remove("call") {
            map.insert("on".to_owned(), on);
        }
        // Who is named already is not named by another key: that one is a slip.
        let short = map.iter().find(|(key, _)| !map.contains_key("on") && !CALL.contains(&key.as_str()));
        let mut rest = map.clone();
        if let Some((on, _)) = short {
            rest.remove(on);
            let purposes: Vec<&str> = Purpose::ALL.iter().map(|purpose| purpose.as_str()).collect();
            let known: Vec<&str> = purposes.iter().copied().chain(CALL).collect();
            if !purposes.contains(&on.as_str()) && super::names::near(on, &known).is_some() {
                return Err(FieldError::at(
                    format!("{path}.{on}"),
                    format!("unknown key `{on}`{}", or_near(on, &known)),
                ));
            }
        }
        let rest = Value::Object(rest);
        let fields = Fields::read(&rest, path, &CALL)?;
        let matcher = |key: &str| fields.value(key).map(|one| Matcher::read(&fields.path_of(key), one)).transpose();
        let about = short.and_then(|(_, about)| match about {
            Value::String(text) if text == "any" => None,
            Value::Null => None,
            Value::String(text) => Some(text.clone()),
            other => Some(other.to_string()),
        });
        Ok(CallExpect {
            path: path.to_owned(),
            on: short.map(|(on, _)| on.clone()).or(fields.text("on")?),
            about,
            agent: fields.text("agent")?,
            tool: fields.text("tool")?,
            task: id(&fields, "task")?,
            attempt: fields.natural("attempt")?,
            round: fields.natural("round")?,
            with: matcher("with")?,
            input: matcher("input")?,
            prompt: matcher("prompt")?,
            answer: matcher("answer")?,
            times: matcher("times")?,
        })
    }

    /// `{ to: execute_worker, task: dump, contains: Write out }`.
    pub(crate) fn prompt(path: &str, value: &Value) -> Result<Self, FieldError> {
        let mut call = mapping(path, value)?.clone();
        let mut words = Map::new();
        for word in WORDS {
            words.extend(call.remove(word).map(|given| (word.to_owned(), given)));
        }
        if let Some(to) = call.remove("to") {
            call.insert("on".to_owned(), to);
        }
        let known = ["to", "on", "agent", "tool", "task", "attempt", "round", "times"];
        Fields::read(&Value::Object(call.clone()), path, &known)?;
        let prompt = match words.is_empty() {
            true => None,
            false => Some(Matcher::read(path, &Value::Object(words))?),
        };
        Ok(CallExpect { prompt, ..Self::read(path, &Value::Object(call))? })
    }
}

/// The names of notes.
pub(crate) fn note_kinds() -> Vec<String> {
    let schema = serde_json::to_value(schemars::schema_for!(NoteKind)).unwrap_or_default();
    schema["enum"].as_array().into_iter().flatten().filter_map(|name| Some(name.as_str()?.to_owned())).collect()
}

impl NoteExpect {
    /// `{ kind: TaskStatusChanged, task: load, to: skipped }`. `TaskSkipped` is short for the change to that status.
    pub(super) fn read(path: &str, value: &Value, head: &str) -> Result<Self, FieldError> {
        let map = mapping(path, value)?;
        let named = map.get(head).and_then(Value::as_str);
        let named = named.ok_or_else(|| FieldError::at(format!("{path}.{head}"), "the name of a note is missing"))?;
        let mut data = Vec::new();
        let kinds = note_kinds();
        let kind = match named.strip_prefix("Task").and_then(status_named) {
            Some(status) if !kinds.iter().any(|kind| kind == named) => {
                data.push(("to".to_owned(), Matcher::Value(status.into())));
                "TaskStatusChanged".to_owned()
            }
            _ => {
                let known: Vec<&str> = kinds.iter().map(String::as_str).collect();
                if !known.contains(&named) {
                    let hint = or_near(named, &known);
                    return Err(FieldError::at(
                        format!("{path}.{head}"),
                        format!("unknown note `{named}`{hint}; there are: {}", known.join(", ")),
                    ));
                }
                named.to_owned()
            }
        };
        for (key, value) in map.iter().filter(|(key, _)| *key != head && *key != "times") {
            data.push((key.clone(), Matcher::read(&format!("{path}.{key}"), value)?));
        }
        let times = map.get("times").map(|times| Matcher::read(&format!("{path}.times"), times)).transpose()?;
        Ok(NoteExpect { path: path.to_owned(), kind, data, times })
    }
}

/// `Skipped` is the status `skipped`, `NeedsRevision` is `needs_revision`.
fn status_named(text: &str) -> Option<&'static str> {
    let plain = |status: &str| status.replace('_', "");
    let all = crate::supervisor::TaskStatus::ALL;
    all.iter().map(|status| status.as_str()).find(|status| plain(status) == text.to_lowercase())
}

impl QueryExpect {
    fn read(path: &str, value: &Value) -> Result<Self, FieldError> {
        let mut map = mapping(path, value)?.clone();
        if let Some(tasks) = map.remove("tasks") {
            let is = mapping(&format!("{path}.tasks"), &tasks)?.iter().map(|(task, status)| {
                let status = if status.is_string() { serde_json::json!({ "status": status }) } else { status.clone() };
                Ok((task.clone(), Matcher::read(&format!("{path}.tasks.{task}"), &status)?))
            });
            let is = Matcher::Keys(is.collect::<Result<_, _>>()?);
            Fields::read(&Value::Object(map), path, &["tasks"])?;
            return Ok(QueryExpect {
                path: path.to_owned(),
                query: "plan".into(),
                input: Value::Null,
                at: "tasks".into(),
                is,
            });
        }
        let known: Vec<&str> = ["query", "input", "path", "tasks"].into_iter().chain(WORDS).collect();
        let whole = Value::Object(map.clone());
        let fields = Fields::read(&whole, path, &known)?;
        let (query, at) = (fields.required_text("query")?, fields.text("path")?.unwrap_or_default());
        let input = map.remove("input").unwrap_or_default();
        map.retain(|key, _| WORDS.contains(&key.as_str()));
        if map.is_empty() {
            return Err(FieldError::at(path, format!("says nothing of the answer; use one of: {}", WORDS.join(", "))));
        }
        Ok(QueryExpect { path: path.to_owned(), query, input, at, is: Matcher::read(path, &Value::Object(map))? })
    }
}
