//! The JSON of a history file, in both directions.
//!
//! Invariant: writing then reading gives the same turns; reading refuses what it does not understand (unknown fields,
//! event types, schemas) instead of dropping it. Whether the turns make sense is checked by `validate`.

use bosun_engine::*;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::{History, HistoryLimits, HistoryPlace, HistoryProblem, InvalidHistory, Redaction, SCHEMA};
use crate::event_types::event_types;
use crate::{rfc3339, strict_json};

pub(super) fn write(history: &History) -> String {
    let turns: Vec<Value> = history.turns().iter().map(write_turn).collect();
    let mut file = json!({ "schema": SCHEMA, "run": header(history) });
    if history.redaction() != Redaction::None {
        file["redaction"] = json!(redaction_name(history.redaction()));
    }
    file["turns"] = Value::Array(turns);
    format!("{file:#}\n")
}

/// What a person looks for first. Nothing in it is news: it is checked against the events.
fn header(history: &History) -> Value {
    json!({
        "namespace": history.started().namespace,
        "workflow_id": history.started().workflow_id,
        "run_id": history.run_id(),
        "workflow_type": history.started().workflow_type,
        "status": history.status().to_string(),
        "events": history.len(),
    })
}

fn redaction_name(redaction: Redaction) -> &'static str {
    match redaction {
        Redaction::None => "none",
        Redaction::Payloads => "payloads",
        Redaction::PayloadsAndTexts => "payloads-and-texts",
    }
}

fn write_turn(turn: &Turn) -> Value {
    let events = turn.numbered().map(|event| {
        let mut written = json!({ "id": event.id, "type": event.kind.name() });
        if let Value::Object(kind) = plain(&event.kind)
            && let Some((_, attributes)) = kind.into_iter().next()
        {
            written["attributes"] = attributes;
        }
        written
    });
    let mut written = json!({
        "at": turn.at.to_string(),
        "build": turn.build.to_string(),
        "run_id": turn.run,
        "events": events.collect::<Vec<_>>(),
    });
    if turn.events.is_empty() {
        written["next_event"] = json!(turn.first_event);
    }
    if !turn.inbox_added.is_empty() {
        written["inbox_added"] = plain(&turn.inbox_added);
    }
    if turn.inbox_taken != 0 {
        written["inbox_taken"] = json!(turn.inbox_taken);
    }
    if !turn.heartbeats.is_empty() {
        written["heartbeats"] = plain(&turn.heartbeats);
    }
    if !turn.delivered.is_empty() {
        written["delivered"] = plain(&turn.delivered);
    }
    if let Some(size) = turn.size_told {
        written["size_told"] = plain(&size);
    }
    if turn.outlook != Outlook::default() {
        written["outlook"] = plain(&turn.outlook);
    }
    written
}

/// Our own types are always JSON: their keys are text and `validate` has refused numbers that are not finite.
fn plain<T: Serialize>(value: &T) -> Value {
    serde_json::to_value(value).expect("vocabulary types are JSON")
}

pub(super) type Header = Map<String, Value>;

pub(super) fn read(text: &[u8], limits: &HistoryLimits) -> Result<(Vec<Turn>, Redaction, Header), InvalidHistory> {
    let place = HistoryPlace::default();
    let (turns, redaction, header) =
        read_frame(text, limits).map_err(|problem| InvalidHistory { place: place.clone(), problem })?;
    let mut read = Vec::with_capacity(turns.len());
    let mut next_event = EventId(1);
    for (index, turn) in turns.into_iter().enumerate() {
        let mut place = HistoryPlace { turn: Some(index + 1), event: None };
        let turn = read_turn(turn, next_event, &mut place).map_err(|problem| InvalidHistory { place, problem })?;
        next_event = turn.next_event();
        read.push(turn);
    }
    Ok((read, redaction, header))
}

fn read_frame(text: &[u8], limits: &HistoryLimits) -> Result<(Vec<Value>, Redaction, Header), HistoryProblem> {
    let mut file = ObjectFields::of("", strict_json::read(text, limits.json)?)?;
    match file.take("schema") {
        Some(Value::String(schema)) if schema == SCHEMA => {}
        Some(Value::String(schema)) if schema.starts_with("bosun.history/") => {
            return Err(HistoryProblem::UnknownSchema { found: schema });
        }
        Some(found) => return Err(HistoryProblem::NotAHistory { found: found.to_string().chars().take(80).collect() }),
        None => return Err(HistoryProblem::NotAHistory { found: "missing".into() }),
    }
    let redaction = match file.optional::<String>("redaction")?.as_deref() {
        None => Redaction::None,
        Some("payloads") => Redaction::Payloads,
        Some("payloads-and-texts") => Redaction::PayloadsAndTexts,
        Some(other) => {
            return Err(HistoryProblem::Malformed {
                path: "redaction".into(),
                why: format!("no redaction is called {other:?}"),
            });
        }
    };
    let header = file.required("run")?;
    let turns = file.array("turns")?;
    file.end()?;
    Ok((turns, redaction, header))
}

/// The header is for people; it must not say anything else than the events.
pub(super) fn check_header(found: &Header, history: &History) -> Result<(), HistoryProblem> {
    let Value::Object(told) = header(history) else { return Ok(()) };
    if let Some(unknown) = found.keys().find(|key| !told.contains_key(*key)) {
        return Err(HistoryProblem::UnknownField { path: format!("run.{unknown}") });
    }
    const FIELDS: [&str; 6] = ["namespace", "workflow_id", "run_id", "workflow_type", "status", "events"];
    for field in FIELDS {
        let header = found.get(field).ok_or_else(|| HistoryProblem::MissingField { path: format!("run.{field}") })?;
        if told.get(field) != Some(header) {
            let events = told.get(field).map(Value::to_string).unwrap_or_default();
            let header = header.to_string().chars().take(300).collect();
            return Err(HistoryProblem::HeaderMismatch { field, header, events });
        }
    }
    Ok(())
}

fn read_turn(turn: Value, next_event: EventId, place: &mut HistoryPlace) -> Result<Turn, HistoryProblem> {
    let mut fields = ObjectFields::of("turn", turn)?;
    let at: String = fields.required("at")?;
    let at = rfc3339::parse(&at).ok_or_else(|| HistoryProblem::Malformed {
        path: "turn.at".into(),
        why: format!("{:?} is not an RFC 3339 time", at.chars().take(40).collect::<String>()),
    })?;
    let build: String = fields.required("build")?;
    let digits = build.len() == 16 && build.bytes().all(|digit| digit.is_ascii_hexdigit());
    let build = digits.then(|| u64::from_str_radix(&build, 16).ok()).flatten().ok_or_else(|| {
        HistoryProblem::Malformed { path: "turn.build".into(), why: "expected 16 hexadecimal digits".into() }
    })?;
    let run = fields.required("run_id")?;
    let listed = fields.array("events")?;
    let mut events = Vec::with_capacity(listed.len());
    let mut expected = next_event;
    for event in listed {
        events.push(read_event(event, expected, place)?);
        expected = expected.next();
    }
    place.event = None;
    let first_event = if events.is_empty() { fields.required("next_event")? } else { next_event };
    let turn = Turn {
        run,
        first_event,
        at,
        build: BuildId(build),
        events,
        inbox_added: fields.optional("inbox_added")?.unwrap_or_default(),
        inbox_taken: fields.optional("inbox_taken")?.unwrap_or_default(),
        heartbeats: fields.optional("heartbeats")?.unwrap_or_default(),
        outlook: fields.optional("outlook")?.unwrap_or_default(),
        delivered: fields.optional("delivered")?.unwrap_or_default(),
        size_told: fields.optional("size_told")?,
    };
    fields.end()?;
    if turn.first_event != next_event {
        return Err(HistoryProblem::EventIdGap { expected: next_event, found: turn.first_event });
    }
    Ok(turn)
}

fn read_event(event: Value, expected: EventId, place: &mut HistoryPlace) -> Result<EventKind, HistoryProblem> {
    // Until its type is known the event is told by its number alone, and never as the one before it.
    place.event = Some((expected, "of no known type"));
    let mut fields = ObjectFields::of("event", event)?;
    let found: EventId = fields.required("id")?;
    let name: String = fields.required("type")?;
    let Some(known) = event_types().iter().find(|known| **known == name) else {
        return Err(HistoryProblem::UnknownEventType { name: name.chars().take(80).collect() });
    };
    place.event = Some((found, known));
    if found != expected {
        return Err(HistoryProblem::EventIdGap { expected, found });
    }
    // serde writes a kind without attributes as its name alone.
    let kind = match fields.take("attributes") {
        Some(attributes) => Value::Object(Map::from_iter([(name, attributes)])),
        None => Value::String(name),
    };
    let event = understood("attributes", kind)?;
    fields.end()?;
    Ok(event)
}

/// The fields of an object, taken one by one; what is left at the end is unknown.
struct ObjectFields {
    path: &'static str,
    fields: Map<String, Value>,
}

impl ObjectFields {
    fn of(path: &'static str, value: Value) -> Result<Self, HistoryProblem> {
        match value {
            Value::Object(fields) => Ok(ObjectFields { path, fields }),
            _ => Err(HistoryProblem::Malformed { path: path.into(), why: "expected an object".into() }),
        }
    }
    fn path_of(&self, field: &str) -> String {
        if self.path.is_empty() { field.to_owned() } else { format!("{}.{field}", self.path) }
    }
    fn take(&mut self, field: &str) -> Option<Value> {
        self.fields.swap_remove(field)
    }
    fn required<T: DeserializeOwned + Serialize>(&mut self, field: &'static str) -> Result<T, HistoryProblem> {
        self.optional(field)?.ok_or_else(|| HistoryProblem::MissingField { path: self.path_of(field) })
    }
    fn optional<T: DeserializeOwned + Serialize>(&mut self, field: &'static str) -> Result<Option<T>, HistoryProblem> {
        self.take(field).map(|value| understood(&self.path_of(field), value)).transpose()
    }
    /// An array whose items are looked at later, one by one.
    fn array(&mut self, field: &'static str) -> Result<Vec<Value>, HistoryProblem> {
        match self.take(field) {
            Some(Value::Array(items)) => Ok(items),
            Some(_) => Err(HistoryProblem::Malformed { path: self.path_of(field), why: "expected an array".into() }),
            None => Err(HistoryProblem::MissingField { path: self.path_of(field) }),
        }
    }
    fn end(&self) -> Result<(), HistoryProblem> {
        match self.fields.keys().next() {
            Some(field) => Err(HistoryProblem::UnknownField { path: self.path_of(field) }),
            None => Ok(()),
        }
    }
}

/// Reads a value and refuses it if it holds a field that the type does not know: written again, it would be missing.
fn understood<T: DeserializeOwned + Serialize>(path: &str, value: Value) -> Result<T, HistoryProblem> {
    let malformed = |why: serde_json::Error| HistoryProblem::Malformed { path: path.to_owned(), why: why.to_string() };
    let read: T = T::deserialize(&value).map_err(malformed)?;
    let again = serde_json::to_value(&read).map_err(malformed)?;
    match unread(&value, &again, path) {
        Some(path) => Err(HistoryProblem::UnknownField { path }),
        None => Ok(read),
    }
}

/// The path of the first key in `given` that is not in `read`. Payloads are left alone: they have several spellings, and
/// their insides belong to users.
fn unread(given: &Value, read: &Value, path: &str) -> Option<String> {
    match (given, read) {
        (Value::Object(given), Value::Object(read)) => {
            if is_payload(given) && is_payload(read) {
                return None;
            }
            given.iter().find_map(|(key, inner)| {
                let path = format!("{path}.{key}");
                match read.get(key) {
                    Some(read) => unread(inner, read, &path),
                    None => Some(path),
                }
            })
        }
        (Value::Array(given), Value::Array(read)) => given
            .iter()
            .zip(read)
            .enumerate()
            .find_map(|(i, (given, read))| unread(given, read, &format!("{path}[{i}]"))),
        _ => None,
    }
}

fn is_payload(object: &Map<String, Value>) -> bool {
    let has = |keys: &[&str]| object.len() == keys.len() && keys.iter().all(|key| object.contains_key(*key));
    has(&["json"]) || has(&["encoding", "base16"])
}
