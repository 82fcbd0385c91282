//! Inputs from the command line: JSON, a file, standard input, or `key=value` pairs.
//!
//! Invariant: what is sent is valid JSON, compact, with the keys in the order they were written. Nothing here knows
//! what a workflow expects.

use std::io::Read;
use std::path::Path;

use bosun_engine::{Failure, Payload};
use serde_json::{Map, Value};

use super::error::CliError;
use super::explain::Code;

/// Standard input that is larger than any payload may be is not read to its end.
const STDIN_MAX: u64 = 64 * 1024 * 1024;

/// The input of a request: `--input` or pairs, not both. Nothing given is `null`.
pub(super) fn payload(input: Option<&str>, pairs: &[String]) -> Result<Payload, CliError> {
    let value = match (input, pairs) {
        (Some(_), [_, ..]) => return Err(bad("give --input or key=value pairs, not both")),
        (Some(text), []) => parse(text)?,
        (None, []) => return Ok(Payload::null()),
        (None, pairs) => Value::Object(object(pairs)?),
    };
    encode(&value)
}

fn bad(message: impl Into<String>) -> CliError {
    CliError::new(Code::BadInput, message)
}

fn encode(value: &Value) -> Result<Payload, CliError> {
    Payload::encode(value).map_err(|why| bad("the input cannot be written as JSON").cause(why))
}

/// JSON text, `@file`, or `-`.
pub(super) fn parse(text: &str) -> Result<Value, CliError> {
    let (what, text) = match text {
        "-" => {
            let mut read = String::new();
            let stdin = std::io::stdin().lock().take(STDIN_MAX).read_to_string(&mut read);
            stdin.map_err(|why| bad("cannot read standard input").cause(why))?;
            ("standard input".to_owned(), read)
        }
        text => match text.strip_prefix('@') {
            Some(path) => (format!("file {path}"), read_file(Path::new(path))?),
            None => ("--input".to_owned(), text.to_owned()),
        },
    };
    serde_json::from_str(&text).map_err(|why| {
        let error = bad(format!("{what} is not JSON")).cause(why);
        if what == "--input" { error.help(r#"quote text as JSON does, for example --input '"hello"'"#) } else { error }
    })
}

fn read_file(path: &Path) -> Result<String, CliError> {
    std::fs::read_to_string(path).map_err(|why| CliError::no_file(path.display(), &why))
}

/// Pairs as an object. A value is JSON where it is valid JSON, and text otherwise; `a.b=1` nests.
pub(super) fn object(pairs: &[String]) -> Result<Map<String, Value>, CliError> {
    let mut object = Map::new();
    for pair in pairs {
        let (key, text) = pair.split_once('=').ok_or_else(|| bad(format!("{pair:?} is not key=value")))?;
        let value = serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()));
        let mut path: Vec<&str> = key.split('.').collect();
        if path.iter().any(|part| part.is_empty()) {
            return Err(bad(format!("{pair:?} has an empty key")));
        }
        // `split` gives at least one part.
        let last = path.pop().unwrap_or_default();
        let mut place = &mut object;
        for part in path {
            let inner = place.entry(part).or_insert_with(|| Value::Object(Map::new()));
            place = inner.as_object_mut().ok_or_else(|| bad(format!("{pair:?}: {part} already has a value")))?;
        }
        if place.insert(last.to_owned(), value).is_some() {
            return Err(bad(format!("{key:?} is given twice")));
        }
    }
    Ok(object)
}

/// A failure as `activity fail` takes it.
pub(super) fn failure(failure_type: &str, message: &str, non_retryable: bool) -> Failure {
    let failure = Failure::application(failure_type, message);
    if non_retryable { failure.non_retryable() } else { failure }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(input: Option<&str>, pairs: &[&str]) -> Result<String, String> {
        let pairs: Vec<String> = pairs.iter().map(|pair| (*pair).to_owned()).collect();
        match payload(input, &pairs) {
            Ok(payload) => Ok(String::from_utf8(payload.data.to_vec()).unwrap()),
            Err(why) => Err(why.message),
        }
    }

    #[test]
    fn inputs_are_json_a_file_or_pairs() {
        assert_eq!(text(None, &[]), Ok("null".into()));
        assert_eq!(text(Some(r#"{ "b": 1, "a": [true] }"#), &[]), Ok(r#"{"b":1,"a":[true]}"#.into()));
        assert_eq!(
            text(None, &["n=7", "name=Ada Lovelace", "ok=true", "list=[1,2]", "deep.er.est=\"7\"", "eq=a=b"]),
            Ok(r#"{"n":7,"name":"Ada Lovelace","ok":true,"list":[1,2],"deep":{"er":{"est":"7"}},"eq":"a=b"}"#.into())
        );
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "[1, 2]\n").unwrap();
        assert_eq!(text(Some(&format!("@{}", file.path().display())), &[]), Ok("[1,2]".into()));
    }

    #[test]
    fn bad_inputs_are_named() {
        assert_eq!(text(Some("hello"), &[]), Err("--input is not JSON".into()));
        assert_eq!(text(Some("@/no/such/file"), &[]), Err("the file /no/such/file cannot be read".into()));
        assert_eq!(text(Some("1"), &["a=1"]), Err("give --input or key=value pairs, not both".into()));
        assert_eq!(text(None, &["a"]), Err("\"a\" is not key=value".into()));
        assert_eq!(text(None, &["=1"]), Err("\"=1\" has an empty key".into()));
        assert_eq!(text(None, &["a=1", "a=2"]), Err("\"a\" is given twice".into()));
        assert_eq!(text(None, &["a=1", "a.b=2"]), Err("\"a.b=2\": a already has a value".into()));
    }
}
