//! Reading a body that a person has written: everything that is wrong with it is told at once.
//!
//! Invariant: a key that nobody knows is an error, never passed over. It decides nothing about what the values mean.

use std::str::FromStr;

use axum::body::Bytes;
use axum::http::StatusCode;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use super::super::json_depth::{JSON_DEPTH_MAX, json_depth};
use super::super::problem::{InvalidField, Problem};
use crate::supervisor::fields::similar;

/// The JSON of a body; null where it is empty.
pub(super) fn json(body: &Bytes) -> Result<Value, Problem> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Ok(Value::Null);
    }
    if json_depth(body) > JSON_DEPTH_MAX {
        let message = format!("the JSON is nested more than {JSON_DEPTH_MAX} levels deep");
        return Err(Problem::new(StatusCode::BAD_REQUEST, "json_too_deep", message));
    }
    serde_json::from_slice(body).map_err(|why| {
        let message = format!("the body is not JSON: {why}");
        Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "bad_json", message)
    })
}

/// The members of an object, taken out one by one.
#[derive(Debug)]
pub(super) struct Members {
    left: Map<String, Value>,
    known: Vec<&'static str>,
    errors: Vec<InvalidField>,
}

impl Members {
    /// An empty body is an object without members.
    pub(super) fn read(body: &Bytes) -> Result<Members, Problem> {
        let left = match json(body)? {
            Value::Null => Map::new(),
            Value::Object(members) => members,
            other => {
                let message = format!("the body must be a JSON object, not {}", kind(&other));
                return Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "bad_json", message));
            }
        };
        Ok(Members { left, known: Vec::new(), errors: Vec::new() })
    }

    /// A member as it stands; nothing where it is absent or null.
    pub(super) fn value(&mut self, name: &'static str) -> Option<Value> {
        self.known.push(name);
        self.left.remove(name).filter(|value| !value.is_null())
    }

    /// A member that says something other than null, or null itself.
    pub(super) fn any(&mut self, name: &'static str) -> Option<Value> {
        self.known.push(name);
        self.left.remove(name)
    }

    pub(super) fn wrong(&mut self, name: &str, why: impl Into<String>) {
        self.errors.push(InvalidField { at: name.to_owned(), why: why.into() });
    }

    /// Says that it is needed, unless something is said of it already.
    pub(super) fn needs(&mut self, name: &str, is_there: bool) {
        let is_of = |at: &str| at.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
        if !is_there && self.errors.iter().all(|error| !is_of(&error.at)) {
            self.wrong(name, "it is needed");
        }
    }

    /// A text that reads as a value of this type.
    pub(super) fn parsed<T: FromStr<Err: std::fmt::Display>>(&mut self, name: &'static str) -> Option<T> {
        let text = self.text(name)?;
        text.parse().map_err(|why: T::Err| self.wrong(name, why.to_string())).ok()
    }

    pub(super) fn text(&mut self, name: &'static str) -> Option<String> {
        match self.value(name)? {
            Value::String(text) => Some(text),
            other => {
                self.wrong(name, format!("it must be a text, not {}", kind(&other)));
                None
            }
        }
    }

    /// A member of another shape, by its own rules.
    pub(super) fn typed<T: DeserializeOwned>(&mut self, name: &'static str) -> Option<T> {
        let value = self.value(name)?;
        serde_json::from_value(value).map_err(|why| self.wrong(name, why.to_string())).ok()
    }

    /// The same of a value that was taken out already, with the path of what is wrong in it.
    pub(super) fn read_as<T: DeserializeOwned>(&mut self, at: &str, value: Value) -> Option<T> {
        let read = serde_path_to_error::deserialize(value);
        read.map_err(|why| {
            let path = why.path().to_string();
            let at = if path == "." { at.to_owned() } else { format!("{at}.{path}") };
            self.wrong(&at, why.inner().to_string());
        })
        .ok()
    }

    /// Whether it is refused already: then it is told also what the engine would refuse later.
    pub(super) fn is_wrong(&self) -> bool {
        !self.errors.is_empty() || self.left.keys().any(|name| !self.known.contains(&name.as_str()))
    }

    /// A member that is an object: its own members are read like those of the body, and what is wrong is told with its path.
    pub(super) fn object<T>(&mut self, name: &'static str, read: impl FnOnce(&mut Members) -> T) -> Option<T> {
        let value = self.value(name)?;
        self.within(name, value, read)
    }

    /// The same of a value that was taken out already.
    pub(super) fn within<T>(&mut self, at: &str, value: Value, read: impl FnOnce(&mut Members) -> T) -> Option<T> {
        let Value::Object(left) = value else {
            self.wrong(at, format!("it must be an object, not {}", kind(&value)));
            return None;
        };
        let mut members = Members { left, known: Vec::new(), errors: Vec::new() };
        let found = read(&mut members);
        members.name_unknown();
        let is_well = members.errors.is_empty();
        self.errors.extend(members.errors.into_iter().map(|InvalidField { at: inner, why }| InvalidField {
            // What is wrong with all of it has no name of its own.
            at: if inner.is_empty() { at.to_owned() } else { format!("{at}.{inner}") },
            why,
        }));
        is_well.then_some(found)
    }

    /// A member that is not null where it is there, by the rules of its type.
    pub(super) fn not_null<T: DeserializeOwned>(&mut self, name: &'static str) -> Option<T> {
        let value = self.any(name)?;
        if value.is_null() {
            self.wrong(name, "it must not be null: leave it out");
            return None;
        }
        serde_json::from_value(value).map_err(|why| self.wrong(name, why.to_string())).ok()
    }

    fn name_unknown(&mut self) {
        for name in self.left.keys() {
            let near = similar(name, &self.known).map(|near| format!("; did you mean `{near}`?"));
            let why = format!("nobody knows this field{}", near.unwrap_or_default());
            self.errors.push(InvalidField { at: name.clone(), why });
        }
    }

    /// All is read: what is wrong, if anything is.
    pub(super) fn done(mut self) -> Result<(), Problem> {
        self.name_unknown();
        if self.errors.is_empty() {
            return Ok(());
        }
        let told: Vec<String> = self.errors.iter().map(|error| format!("{}: {}", error.at, error.why)).collect();
        let problem = Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid_body", told.join("; "));
        Err(Problem { errors: self.errors, ..problem })
    }
}

/// A whole number, also as JSON of other programs writes it: `3.0`.
pub(super) fn whole<'de, D: Deserializer<'de>, N: TryFrom<u64>>(given: D) -> Result<Option<N>, D::Error> {
    let Some(number) = Option::<serde_json::Number>::deserialize(given)? else { return Ok(None) };
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let of_float =
        |float: f64| (float.fract() == 0.0 && (0.0..=9_007_199_254_740_992.0).contains(&float)).then_some(float as u64);
    let found = number.as_u64().or_else(|| of_float(number.as_f64()?)).and_then(|number| N::try_from(number).ok());
    found.map(Some).ok_or_else(|| D::Error::custom(format!("{number} is not a whole number that fits here")))
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(members: Members) -> Vec<(String, String)> {
        members.done().unwrap_err().errors.into_iter().map(|error| (error.at, error.why)).collect()
    }

    #[test]
    fn everything_that_is_wrong_is_told_at_once() {
        let mut members = Members::read(&Bytes::from(r#"{"a": 1, "b": "x", "workflow_typ": "t"}"#)).unwrap();
        assert_eq!(members.text("a"), None);
        assert_eq!(members.parsed::<u8>("b"), None);
        assert_eq!(members.text("workflow_type"), None);
        members.needs("workflow_type", false);
        let told = problems(members);
        let places: Vec<&str> = told.iter().map(|(at, _)| at.as_str()).collect();
        assert_eq!(places, ["a", "b", "workflow_type", "workflow_typ"]);
        assert!(told[3].1.ends_with("did you mean `workflow_type`?"), "{told:?}");
    }

    /// What is wrong below the top level has its whole path.
    #[test]
    fn everything_that_is_wrong_below_is_told_with_its_path() {
        let mut members = Members::read(&Bytes::from(r#"{"a": {"b": 1, "c": 2, "d": null}, "e": 1}"#)).unwrap();
        let read = members.object("a", |a| {
            a.text("b");
            a.not_null::<u8>("d");
            a.wrong("", "something is missing");
        });
        assert_eq!((read, members.object("e", |_| ())), (None, None));
        let places: Vec<String> = problems(members).into_iter().map(|(at, _)| at).collect();
        assert_eq!(places, ["a.b", "a.d", "a", "a.c", "e"]);
    }

    #[test]
    fn a_body_is_an_object_or_nothing() {
        for empty in ["", " \n", "null", "{}"] {
            Members::read(&Bytes::from(empty)).unwrap().done().unwrap();
        }
        for bad in ["[]", "1", "{", "\"x\"", "{} {}"] {
            assert!(Members::read(&Bytes::from(bad)).is_err(), "{bad}");
        }
    }
}
