//! A scene as it is written: YAML to a scene that can be played, or the place of what is wrong with it.
//!
//! Invariant: a key that nobody knows is refused with its path and the nearest one; nothing is coerced, and a scene that
//! expects nothing is refused. Other files are asked for by the name that the scene has for them; it opens none itself.

use std::collections::BTreeSet;
use std::time::Duration;

use bosun_engine::{Payload, WorkflowType};
use serde_json::{Map, Value, json};

use super::expect::Expect;
use super::people::TimedAct;
use super::rule::Rule;
use super::subject::{Refused, Subject};
use crate::supervisor::fields::{Fields, parse_duration};
use crate::supervisor::spec::SupervisorSpec;
use crate::supervisor::{FieldError, TextPlace, parse_yaml, place_of};

/// The longest scene that is read, in bytes.
const BYTES_MAX: usize = 1024 * 1024;
/// Orders of completions that are tried if a scene says nothing else.
pub(super) const PERMUTE: usize = 200;

pub(super) const KEYS: [&str; 14] = [
    "scene", "rows", "spec", "workflow", "input", "context", "refused", "world", "people", "faults", "expect", "ways",
    "order", "until",
];

/// What is wrong with a scene's file, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}: {why}{}", TextPlace::shown(*.place, file))]
pub struct BadScene {
    /// The file, as it was named.
    pub file: String,
    /// The key and what is wrong with it.
    pub why: FieldError,
    /// Where that stands in the file, if it does.
    pub place: Option<TextPlace>,
}

impl BadScene {
    /// The same below the name of the file.
    pub fn told(&self) -> String {
        format!("{}{}", self.why, TextPlace::shown(self.place, &self.file))
    }
}

/// Gives the text of another file, by the name a scene has for it.
pub(crate) type Files<'a> = &'a dyn Fn(&str) -> Result<String, String>;

/// One scene.
#[derive(Debug, Clone)]
pub(crate) struct Scene {
    pub(crate) file: String,
    /// One sentence: what it shows.
    pub(crate) sentence: String,
    /// Rows of the requirements that it closes.
    pub(crate) rows: Vec<String>,
    pub(crate) workflow_type: WorkflowType,
    pub(crate) input: Payload,
    /// The spec with its preset, as the run gets it.
    pub(crate) spec: Option<Box<SupervisorSpec>>,
    /// What `bosun run` says of the spec beside running it.
    pub(crate) warnings: Vec<String>,
    /// It must not be read; nothing runs then.
    pub(crate) refused: Option<Refused>,
    pub(crate) world: Vec<Rule>,
    pub(crate) people: Vec<TimedAct>,
    /// Every word and number of the scene outside of what it expects: what its calls can be about.
    pub(crate) words: BTreeSet<String>,
    /// When the worker process is killed, beside the crashes that every scene gets anyway.
    pub(crate) kills: Vec<Duration>,
    pub(crate) expect: Expect,
    pub(crate) ways: Ways,
    /// Whether the order in which concurrent calls end decides what happens, as it must.
    pub(crate) order_matters: bool,
    /// Nobody looks any longer; the run may be open then.
    pub(crate) until: Option<Duration>,
}

/// What is tried beside the straight way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ways {
    /// The most orders that are tried, 0 for none.
    pub(crate) permute: usize,
    /// The most events that a crash follows; all if it says nothing.
    pub(crate) crash: Option<usize>,
}

impl Scene {
    pub(crate) fn read(file: &str, text: &str, files: Files<'_>) -> Result<Scene, BadScene> {
        let bad = |why: FieldError| BadScene { file: file.to_owned(), place: place_of(text, &why.path), why };
        if text.len() > BYTES_MAX {
            let why = format!("the file has {} bytes; at most {BYTES_MAX} are read", text.len());
            return Err(bad(FieldError::at("the document", why)));
        }
        let value = parse_yaml(text).map_err(|why| bad(FieldError::at("the document", why.to_string())))?;
        Self::of(file, &value, files).map_err(bad)
    }

    /// A scene from its data.
    pub(crate) fn of(file: &str, value: &Value, files: Files<'_>) -> Result<Scene, FieldError> {
        other_than_a_scene(value)?;
        let fields = Fields::read(value, "", &KEYS)?;
        let sentence = fields.required_text("scene")?;
        let world: Vec<Rule> =
            fields.entries("world")?.iter().map(|(path, one)| Rule::read(path, one)).collect::<Result<_, _>>()?;
        let people: Vec<TimedAct> =
            fields.entries("people")?.iter().map(|(path, one)| TimedAct::read(path, one)).collect::<Result<_, _>>()?;
        let expect = Expect::read("expect", fields.value("expect").unwrap_or(&json!({})))?;
        let refused = Refused::read(&fields, &world, files)?;
        let until = fields.value("until").map(|value| moment("until", value)).transpose()?;
        if let Some((_, late)) =
            expect.queries.iter().find(|(at, _)| at.is_some_and(|at| until.is_some_and(|end| at > end)))
        {
            return Err(FieldError::at(&late.path, "is after `until`: nobody looks any longer"));
        }
        let order_matters = match fields.value("order") {
            None => false,
            Some(Value::String(word)) if word == "matters" => true,
            Some(other) => return Err(fields.error("order", format!("expected `matters`, found {other}"))),
        };
        let Subject { workflow_type, input, spec, warnings } = match &refused {
            // Nothing of it runs.
            Some(_) => Subject::none(),
            None => Subject::read(&fields, &world, files)?,
        };
        let nothing = fields.value("expect").and_then(Value::as_object).is_none_or(Map::is_empty);
        if nothing && refused.is_none() {
            let why = "a scene that expects nothing would always pass; give `expect`, with at least its `outcome`";
            return Err(fields.error("expect", why));
        }
        Ok(Scene {
            file: file.to_owned(),
            sentence,
            rows: fields.texts("rows")?,
            workflow_type,
            input,
            spec,
            warnings,
            refused,
            world,
            people,
            words: words(value),
            kills: kills(&fields)?,
            expect,
            ways: ways(&fields)?,
            order_matters,
            until,
        })
    }
}

/// What is no scene at all is told so, and not key by key.
fn other_than_a_scene(value: &Value) -> Result<(), FieldError> {
    let why = match value.get("scene") {
        None if value.is_null() => "the file is empty; a scene begins with `scene: what it shows`",
        None if value.get("kind").is_some() => "this is no scene: run it with `bosun run FILE`",
        _ => return Ok(()),
    };
    Err(FieldError::at("the document", why))
}

/// Whether a text is a scene's, by its first key: for whoever is given one in place of a spec.
pub fn is_scene_text(text: &str) -> bool {
    parse_yaml(text).is_ok_and(|value| value.get("scene").is_some())
}

fn words(scene: &Value) -> BTreeSet<String> {
    let told = scene.as_object().into_iter().flatten().filter(|(key, _)| *key != "expect").map(|(_, value)| value);
    let mut words = BTreeSet::new();
    told.for_each(|value| words_in(value, &mut words));
    words
}

/// Every text, number and key of a value.
pub(super) fn words_in(value: &Value, words: &mut BTreeSet<String>) {
    match value {
        Value::String(text) => drop(words.insert(text.clone())),
        Value::Number(number) => drop(words.insert(number.to_string())),
        Value::Array(all) => all.iter().for_each(|one| words_in(one, words)),
        Value::Object(map) => map.iter().for_each(|(key, one)| {
            words.insert(key.clone());
            words_in(one, words);
        }),
        Value::Null | Value::Bool(_) => {}
    }
}

fn kills(fields: &Fields<'_>) -> Result<Vec<Duration>, FieldError> {
    let mut kills = Vec::new();
    for (path, one) in fields.entries("faults")? {
        let fault = Fields::read(one, &path, &["at", "do"])?;
        let at = fault.required("at", fault.value("at"))?;
        kills.push(moment(&format!("{path}.at"), at)?);
        match fault.required_text("do")?.as_str() {
            "kill" | "restart" => {}
            other => {
                let why = format!("expected `kill` (`restart` is another word: it always comes back), found `{other}`");
                return Err(fault.error("do", why));
            }
        }
    }
    kills.sort();
    Ok(kills)
}

fn ways(fields: &Fields<'_>) -> Result<Ways, FieldError> {
    let none = json!({});
    let ways = Fields::read(fields.value("ways").unwrap_or(&none), "ways", &["permute", "crash"])?;
    let permute = match ways.value("permute") {
        None => PERMUTE,
        Some(Value::Bool(false)) => 0,
        Some(value) => value.as_u64().ok_or_else(|| ways.error("permute", "expected a number or false"))? as usize,
    };
    let crash = match ways.value("crash") {
        None => None,
        Some(Value::String(all)) if all == "all" => None,
        Some(Value::Bool(false)) => Some(0),
        Some(value) => {
            Some(value.as_u64().ok_or_else(|| ways.error("crash", "expected `all`, a number or false"))? as usize)
        }
    };
    Ok(Ways { permute, crash })
}

/// A time of the scene, counted from its beginning: `90s`, `500ms`, `2m`, `1h`, or a number of seconds; 0 is allowed.
pub(crate) fn moment(path: &str, value: &Value) -> Result<Duration, FieldError> {
    let parsed = match value {
        Value::String(text) => parse_moment(text),
        other => other.as_u64().map(Duration::from_secs),
    };
    parsed.ok_or_else(|| FieldError::at(path, format!("expected a time, such as 500ms, 2s, 5m or 1h, found {value}")))
}

pub(crate) fn parse_moment(text: &str) -> Option<Duration> {
    let day = text.strip_suffix('d').and_then(|days| days.parse::<u64>().ok());
    let seconds = || text.parse::<u64>().ok().map(Duration::from_secs);
    day.map(|days| Duration::from_secs(days * 86_400)).or_else(|| parse_duration(text)).or_else(seconds)
}
