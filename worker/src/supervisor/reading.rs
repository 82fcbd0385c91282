//! What is answered, read strictly, and what is told, written for people and models.
//!
//! Invariant: an answer that does not conform is an error that names the field, and nothing of it is used; models answer
//! with the text of JSON, with or without a fence around it. Nothing is decided here.

use std::borrow::Cow;
use std::io;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::capability::model::without_fence;

/// What was said cannot be read as what it should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    #[error("the {what} does not conform: expected a mapping, found {found}")]
    NoMapping { what: String, found: &'static str },
    #[error("the {what} is no JSON: {why}")]
    NoJson { what: String, why: String },
    #[error("the {what} does not conform: {why}")]
    Misfit { what: String, why: String },
    #[error("the {what} does not conform at {at}: {why}")]
    MisfitAt { what: String, at: String, why: String },
}

/// Reads an answer, whoever gave it; the error says where it does not conform.
pub fn read<T: DeserializeOwned>(what: &str, value: &Value) -> Result<T, Unreadable> {
    let named = || what.to_owned();
    let value = data_of(value).map_err(|why| Unreadable::NoJson { what: named(), why: why_no_json(value, &why) })?;
    if value.is_array() {
        return Err(Unreadable::NoMapping { what: named(), found: kind_of(&value) });
    }
    serde_path_to_error::deserialize(&*value).map_err(|why| match why.path().to_string() {
        // It would name our type.
        path if path == "." && !value.is_object() => Unreadable::NoMapping { what: named(), found: kind_of(&value) },
        path if path == "." => Unreadable::Misfit { what: named(), why: why.inner().to_string() },
        at => Unreadable::MisfitAt { what: named(), at, why: why.inner().to_string() },
    })
}

/// Where the JSON of a text breaks off; of plain text how it begins, for the place of its first letter helps nobody.
fn why_no_json(value: &Value, why: &serde_json::Error) -> String {
    const SHOWN: usize = 60;
    let text = value.as_str().map(without_fence).unwrap_or_default().trim();
    if text.is_empty() {
        return "it is empty".to_owned();
    }
    if text.starts_with(['{', '[', '"']) {
        return why.to_string();
    }
    let more = if text.chars().nth(SHOWN).is_some() { " …" } else { "" };
    format!("it is the text `{}{more}`", text.chars().take(SHOWN).collect::<String>().replace('\n', " "))
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "a yes or no",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a mapping",
    }
}

/// What an answer says: models answer with the text of JSON, and like to put it in a fence; what is no text is taken as it is.
pub(crate) fn data_of(value: &Value) -> Result<Cow<'_, Value>, serde_json::Error> {
    match value {
        Value::String(text) => serde_json::from_str(without_fence(text)).map(Cow::Owned),
        value => Ok(Cow::Borrowed(value)),
    }
}

/// The text of a result as people read it.
pub fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

/// JSON on one line with a blank after `:` and `,`, as the systems whose texts we keep write it.
pub(crate) fn json_text(value: &Value) -> String {
    let mut bytes = Vec::new();
    let mut serializer = serde_json::Serializer::with_formatter(&mut bytes, Spaced);
    // A `Value` has text keys only and a vector takes everything, so this cannot fail.
    let _ = value.serialize(&mut serializer);
    String::from_utf8_lossy(&bytes).into_owned()
}

struct Spaced;

impl serde_json::ser::Formatter for Spaced {
    fn begin_array_value<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }
    fn begin_object_key<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }
    fn begin_object_value<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b": ")
    }
}

/// What is said of work that gave no result and no reason (FSP-04).
pub const NO_RESULT: &str = "Task did not produce a result";

/// Why an answer with `success: false` says that it did not succeed.
pub fn why_failed(map: &Map<String, Value>) -> Option<&str> {
    let text = |key: &str| map.get(key).and_then(Value::as_str);
    text("reason").or_else(|| text("error")).or_else(|| text("error_message"))
}

/// Why whoever answered did not succeed, if they say so (SHN-36).
pub fn refused(said: &Value) -> Option<String> {
    let map = said.as_object().filter(|map| map.get("success") == Some(&Value::Bool(false)))?;
    let why = why_failed(map).filter(|why| !why.trim().is_empty());
    Some(why.unwrap_or(NO_RESULT).to_owned())
}
