//! What a seen value must be like: equal, contained in, matching, one of, within a range.
//!
//! ```yaml
//! status: failed                      # a plain value is the value itself
//! error: { contains: disk full }      # a mapping of matcher words
//! result: { total: { at_least: 2 } }  # any other mapping: the keys that are given; nothing is said of the others
//! ```
//!
//! Invariant: what is given is matched strictly, what is not given is not looked at; a key that the seen value does not
//! have is a mismatch that names the nearest one. It reads nothing but the two values.

use regex::Regex;
use serde_json::Value;

use super::names::{near, or_near};
use crate::supervisor::FieldError;

/// The words that make a mapping a matcher.
pub(crate) const WORDS: [&str; 10] =
    ["is", "equals", "contains", "matches", "one_of", "at_least", "at_most", "not", "exists", "length"];

/// See the module.
#[derive(Debug, Clone)]
pub(crate) enum Matcher {
    /// The value itself; numbers by what they are worth.
    Value(Value),
    Keys(Vec<(String, Matcher)>),
    Items(Vec<Matcher>),
    Contains(Vec<Part>),
    Matches(Regex),
    OneOf(Vec<Matcher>),
    AtLeast(f64),
    AtMost(f64),
    Not(Box<Matcher>),
    Exists(bool),
    Length(Box<Matcher>),
    All(Vec<Matcher>),
}

/// What a text, a list or a mapping must hold.
#[derive(Debug, Clone)]
pub(crate) enum Part {
    Plain(Value),
    /// A mapping: an entry that has these keys, whatever else it has.
    Like(Matcher),
}

/// What was expected and what was seen, at a place of the seen value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Mismatch {
    pub(crate) at: String,
    pub(crate) expected: String,
    pub(crate) seen: String,
    /// What would have been right, where a plain value was expected.
    pub(crate) value: Option<Value>,
}

impl Mismatch {
    pub(crate) fn new(expected: impl Into<String>, seen: impl Into<String>) -> Self {
        Mismatch { at: String::new(), expected: expected.into(), seen: seen.into(), value: None }
    }

    /// On one line.
    pub(crate) fn told(&self) -> String {
        let at = if self.at.is_empty() { String::new() } else { format!("{}: ", self.at) };
        format!("{at}expected {}, seen {}", self.expected, self.seen)
    }
}

impl Matcher {
    pub(crate) fn read(path: &str, value: &Value) -> Result<Matcher, FieldError> {
        match value {
            Value::Object(map) if !map.is_empty() && map.keys().all(|key| WORDS.contains(&key.as_str())) => {
                let mut all = Vec::new();
                for (word, given) in map {
                    all.push(Self::word(&format!("{path}.{word}"), word, given)?);
                }
                Ok(if all.len() == 1 { all.swap_remove(0) } else { Matcher::All(all) })
            }
            Value::Object(map) => {
                let read = |(key, value): (&String, &Value)| {
                    Ok((key.clone(), Matcher::read(&format!("{path}.{key}"), value)?))
                };
                map.iter().map(read).collect::<Result<_, _>>().map(Matcher::Keys)
            }
            Value::Array(list) => {
                let read = |(i, value)| Matcher::read(&format!("{path}[{i}]"), value);
                list.iter().enumerate().map(read).collect::<Result<_, _>>().map(Matcher::Items)
            }
            scalar => Ok(Matcher::Value(scalar.clone())),
        }
    }

    /// One matcher word with what it was given.
    pub(crate) fn word(path: &str, word: &str, given: &Value) -> Result<Matcher, FieldError> {
        let number = || given.as_f64().ok_or_else(|| FieldError::at(path, format!("expected a number, found {given}")));
        Ok(match word {
            "is" => Matcher::read(path, given)?,
            "equals" => Matcher::Value(given.clone()),
            "contains" => match given {
                Value::Array(all) if all.is_empty() => {
                    return Err(FieldError::at(
                        path,
                        "it is empty, and would hold of everything; write what is contained",
                    ));
                }
                Value::Array(all) => {
                    Matcher::Contains(all.iter().map(|one| Part::read(path, one)).collect::<Result<_, _>>()?)
                }
                one => Matcher::Contains(vec![Part::read(path, one)?]),
            },
            "matches" => {
                let text = given.as_str().ok_or_else(|| FieldError::at(path, "expected a regular expression"))?;
                Matcher::Matches(Regex::new(text).map_err(|why| FieldError::at(path, why.to_string()))?)
            }
            "one_of" => match given {
                Value::Array(list) if !list.is_empty() => {
                    Matcher::OneOf(list.iter().map(|one| Matcher::read(path, one)).collect::<Result<_, _>>()?)
                }
                _ => return Err(FieldError::at(path, "expected a list of at least one value")),
            },
            "at_least" => Matcher::AtLeast(number()?),
            "at_most" => Matcher::AtMost(number()?),
            "not" => Matcher::Not(Box::new(Matcher::read(path, given)?)),
            "exists" => match given {
                Value::Bool(wanted) => Matcher::Exists(*wanted),
                _ => return Err(FieldError::at(path, "expected true or false")),
            },
            "length" => Matcher::Length(Box::new(Matcher::read(path, given)?)),
            other => {
                let hint = or_near(other, &WORDS);
                return Err(FieldError::at(
                    path,
                    format!("`{other}` is no matcher{hint}; there are: {}", WORDS.join(", ")),
                ));
            }
        })
    }

    /// Whether the value is as it must be; `None` is one that is not there.
    pub(crate) fn check(&self, seen: Option<&Value>, at: &str) -> Result<(), Mismatch> {
        let value = seen.filter(|_| matches!(self, Matcher::Value(_))).cloned();
        let wrong =
            || Mismatch { at: at.to_owned(), expected: self.to_string(), seen: shown(seen), value: value.clone() };
        let held = |holds: bool| if holds { Ok(()) } else { Err(wrong()) };
        match self {
            Matcher::All(all) => all.iter().try_for_each(|one| one.check(seen, at)),
            Matcher::Exists(wanted) => held(seen.is_some_and(|seen| !seen.is_null()) == *wanted),
            Matcher::Not(inner) => held(inner.check(seen, at).is_err()),
            Matcher::Value(Value::Null) => held(seen.is_none_or(Value::is_null)),
            _ => match seen {
                None => Err(wrong()),
                Some(seen) => self.check_value(seen, at, held),
            },
        }
    }

    /// Whether something that is not there is as it must be. `not` is no such word: a slip in a key would pass for it.
    pub(crate) fn wants_nothing(&self) -> bool {
        match self {
            Matcher::Exists(wanted) => !wanted,
            Matcher::Value(value) => value.is_null(),
            Matcher::All(all) => all.iter().all(Matcher::wants_nothing),
            _ => false,
        }
    }

    fn check_value(&self, seen: &Value, at: &str, held: impl Fn(bool) -> Result<(), Mismatch>) -> Result<(), Mismatch> {
        match self {
            Matcher::Value(value) => held(same(value, seen)),
            Matcher::Keys(keys) => keys.iter().try_for_each(|(key, one)| match part(seen, key, at) {
                Err(_) if one.wants_nothing() => Ok(()),
                found => one.check(Some(found?), &below(at, key)),
            }),
            Matcher::Items(items) => {
                let list = seen.as_array().filter(|list| list.len() == items.len());
                let Some(list) = list else { return held(false) };
                items
                    .iter()
                    .zip(list)
                    .enumerate()
                    .try_for_each(|(i, (one, seen))| one.check(Some(seen), &format!("{at}[{i}]")))
            }
            Matcher::Contains(all) => held(all.iter().all(|part| part.is_in(seen))),
            Matcher::Matches(regex) => held(regex.is_match(&text(seen))),
            Matcher::OneOf(list) => held(list.iter().any(|one| one.check(Some(seen), at).is_ok())),
            Matcher::AtLeast(least) => held(seen.as_f64().is_some_and(|seen| seen >= *least)),
            Matcher::AtMost(most) => held(seen.as_f64().is_some_and(|seen| seen <= *most)),
            Matcher::Length(inner) => {
                let length = match seen {
                    Value::Array(list) => list.len(),
                    Value::Object(map) => map.len(),
                    other => text(other).chars().count(),
                };
                inner.check(Some(&length.into()), &format!("{at} (its length)"))
            }
            Matcher::All(_) | Matcher::Exists(_) | Matcher::Not(_) => Ok(()),
        }
    }
}

impl Part {
    fn read(path: &str, value: &Value) -> Result<Part, FieldError> {
        Ok(match value {
            Value::Object(_) => Part::Like(Matcher::read(path, value)?),
            plain => Part::Plain(plain.clone()),
        })
    }

    fn is_in(&self, seen: &Value) -> bool {
        match (self, seen) {
            (Part::Plain(part), seen) => contains(seen, part),
            (Part::Like(like), Value::Array(list)) => list.iter().any(|one| like.check(Some(one), "").is_ok()),
            (Part::Like(like), seen) => like.check(Some(seen), "").is_ok(),
        }
    }
}

impl std::fmt::Display for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Part::Plain(value) => write!(f, "{value}"),
            Part::Like(like) => write!(f, "{like}"),
        }
    }
}

/// What is expected at a path of a value, such as `tasks.dump.status`.
pub(crate) fn check_at(is: &Matcher, value: &Value, path: &str) -> Result<(), Mismatch> {
    match at_path(value, path, "") {
        Err(_) if is.wants_nothing() => Ok(()),
        found => is.check(Some(found?), path),
    }
}

/// The value at a path such as `tasks.dump.status` or `rounds[0].message`.
pub(crate) fn at_path<'v>(value: &'v Value, path: &str, at: &str) -> Result<&'v Value, Mismatch> {
    let mut found = value;
    let mut walked = at.to_owned();
    for piece in path.replace('[', ".").replace(']', "").split('.').filter(|piece| !piece.is_empty()) {
        found = part(found, piece, &walked)?;
        walked = below(&walked, piece);
    }
    Ok(found)
}

/// What a value has under a key or a number; the mismatch names the nearest key.
fn part<'v>(value: &'v Value, key: &str, at: &str) -> Result<&'v Value, Mismatch> {
    let found = match value {
        Value::Object(map) => map.get(key),
        Value::Array(list) => key.parse::<usize>().ok().and_then(|i| list.get(i)),
        _ => None,
    };
    found.ok_or_else(|| {
        let seen = match value {
            Value::Object(map) => {
                let known: Vec<&str> = map.keys().map(String::as_str).collect();
                let hint = near(key, &known).map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
                format!("no `{key}`{hint} It has: {}", known.join(", "))
            }
            // Whoever writes a word wrong has written a key.
            other => match near(key, &WORDS) {
                Some(word) => format!("{}; `{key}` is no matcher (did you mean `{word}`?)", shown(Some(other))),
                None => shown(Some(other)),
            },
        };
        Mismatch { at: at.to_owned(), ..Mismatch::new(format!("something at `{key}`"), seen) }
    })
}

fn below(at: &str, key: &str) -> String {
    if at.is_empty() { key.to_owned() } else { format!("{at}.{key}") }
}

/// Equal; numbers by what they are worth, so that `2` is `2.0`.
fn same(wanted: &Value, seen: &Value) -> bool {
    match (wanted, seen) {
        (Value::Number(a), Value::Number(b)) => a == b || a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| same(a, b)))
        }
        _ => wanted == seen,
    }
}

/// A text has a part, a list an entry (an entry that is a text by its part), a mapping a key.
fn contains(seen: &Value, part: &Value) -> bool {
    match (seen, part) {
        (Value::String(seen), Value::String(part)) => seen.contains(part),
        (Value::String(seen), other) => seen.contains(&other.to_string()),
        (Value::Array(list), part) => {
            list.iter().any(|one| same(part, one) || (part.is_string() && contains(one, part)))
        }
        (Value::Object(map), Value::String(key)) => map.contains_key(key) || seen.to_string().contains(key.as_str()),
        (seen, part) => text(seen).contains(&text(part)),
    }
}

pub(crate) fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

/// A seen value on the lines of a report.
pub(crate) fn shown(value: Option<&Value>) -> String {
    match value {
        None => "nothing".to_owned(),
        Some(value) => value.to_string(),
    }
}

impl std::fmt::Display for Matcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let list = |all: &[Matcher]| all.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        match self {
            Matcher::Value(value) => write!(f, "{value}"),
            Matcher::Keys(keys) => {
                let keys: Vec<String> = keys.iter().map(|(key, one)| format!("{key}: {one}")).collect();
                write!(f, "{{ {} }}", keys.join(", "))
            }
            Matcher::Items(items) => write!(f, "[{}]", list(items)),
            Matcher::Contains(all) => {
                write!(f, "contains {}", all.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and "))
            }
            Matcher::Matches(regex) => write!(f, "matches /{regex}/"),
            Matcher::OneOf(all) => write!(f, "one of {}", list(all)),
            Matcher::AtLeast(least) => write!(f, "at least {least}"),
            Matcher::AtMost(most) => write!(f, "at most {most}"),
            Matcher::Not(inner) => write!(f, "not {inner}"),
            Matcher::Exists(true) => f.write_str("something"),
            Matcher::Exists(false) => f.write_str("nothing"),
            Matcher::Length(inner) => write!(f, "a length of {inner}"),
            Matcher::All(all) => f.write_str(&all.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and ")),
        }
    }
}
