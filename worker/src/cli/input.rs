//! Inputs from the command line: JSON, a file, standard input, or `key=value` pairs.
//!
//! Invariant: what is sent is valid JSON, compact, with the keys in the order they were written. Nothing here knows
//! what a workflow expects. No more is read than a request may hold, and Ctrl-C ends the command while it waits for what
//! comes from outside.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::Path;
use std::sync::mpsc;

use bosun_engine::{Failure, Payload};
use serde_json::{Map, Value};

use super::error::CliError;
use super::explain::Code;

/// The most that is read of a file or of standard input: what the control API takes in one request.
const INPUT_MAX: u64 = 4 * 1024 * 1024;

/// The input of a request: `--input` or pairs, not both. Nothing given is `null`.
pub(super) fn payload(input: Option<&str>, pairs: &[String]) -> Result<Payload, CliError> {
    payload_of("--input", input, pairs)
}

/// The same of another option.
pub(super) fn payload_of(option: &str, input: Option<&str>, pairs: &[String]) -> Result<Payload, CliError> {
    let value = match (input, pairs) {
        (Some(_), [_, ..]) => return Err(bad(format!("give {option} or key=value pairs, not both"))),
        (Some(text), []) => parse_of(option, text)?,
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
    parse_of("--input", text)
}

fn parse_of(option: &str, text: &str) -> Result<Value, CliError> {
    let (what, text) = match text {
        "-" => ("standard input".to_owned(), read_stdin()?),
        text => match text.strip_prefix('@') {
            Some(path) => (format!("file {path}"), read_file(Path::new(path))?),
            None => (option.to_owned(), text.to_owned()),
        },
    };
    serde_json::from_str(&text).map_err(|why| {
        let error = bad(format!("{what} is not JSON")).cause(why);
        if what != option {
            return error;
        }
        error.help(format!(r#"quote text as JSON does, for example {option} '"hello"'"#))
    })
}

/// A text from standard input.
pub(super) fn read_stdin() -> Result<String, CliError> {
    from_outside(|| short(io::stdin().lock()))?
        .map_err(|why| too_long("standard input", &why).unwrap_or_else(|| bad("cannot read standard input").cause(why)))
}

/// A text from a file that somebody named.
pub(super) fn read_file(path: &Path) -> Result<String, CliError> {
    let named = path.to_owned();
    let name = path.display();
    from_outside(move || read_short(&named))?
        .map_err(|why| too_long(&format!("the file {name}"), &why).unwrap_or_else(|| CliError::no_file(name, &why)))
}

/// A text file as far as it is no longer than a request may be; a longer one is refused without being read to its end.
pub(crate) fn read_short(path: &Path) -> io::Result<String> {
    short(File::open(path)?)
}

fn short(from: impl Read) -> io::Result<String> {
    let mut read = Vec::new();
    from.take(INPUT_MAX + 1).read_to_end(&mut read)?;
    if read.len() as u64 > INPUT_MAX {
        return Err(io::Error::new(ErrorKind::FileTooLarge, format!("it has more than {INPUT_MAX} bytes")));
    }
    String::from_utf8(read).map_err(|_| io::Error::new(ErrorKind::InvalidData, "it is not text in UTF-8"))
}

fn too_long(what: &str, why: &io::Error) -> Option<CliError> {
    (why.kind() == ErrorKind::FileTooLarge).then(|| {
        CliError::new(Code::PayloadTooLarge, format!("{what} is longer than {INPUT_MAX} bytes, the most that is read"))
            .help("keep the data elsewhere, and give a reference to it")
    })
}

/// Does what may wait for a person or another program; Ctrl-C ends the waiting, and the command with nothing done.
pub(super) fn from_outside<T: Send + 'static>(
    read: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<io::Result<T>, CliError> {
    asked_outside(|| (), read)
}

/// As [`from_outside`], for a question: it is put when Ctrl-C is heard already, or an answer as quick as that is lost.
pub(super) fn asked_outside<T: Send + 'static>(
    ask: impl FnOnce(),
    read: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<io::Result<T>, CliError> {
    // Where nothing catches the signal, it ends the process by itself.
    let Ok(runtime) = tokio::runtime::Handle::try_current() else {
        ask();
        return Ok(read());
    };
    let interrupt = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::interrupt());
    let mut interrupt = interrupt.map_err(|why| CliError::new(Code::Failed, "cannot catch signals").cause(why))?;
    ask();
    let (done, told) = mpsc::channel();
    let interrupted = done.clone();
    let watch = runtime.spawn(async move {
        if interrupt.recv().await.is_some() {
            // Nobody listens when the text was there first.
            let _ = interrupted.send(None);
        }
    });
    // A thread of its own: one that never comes back holds up nothing, and ends with the process.
    let reader = std::thread::Builder::new().name("input".into()).spawn(move || done.send(Some(read())));
    reader.map_err(|why| CliError::new(Code::Failed, "no thread for the input").cause(why))?;
    let read = told.recv();
    watch.abort();
    match read {
        Ok(Some(read)) => Ok(read),
        Ok(None) | Err(_) => Err(CliError::new(Code::Interrupted, "interrupted").help("nothing was done")),
    }
}

/// A value that may be plain text: JSON where it begins like JSON, and text otherwise. What begins like JSON and is none is a
/// slip of the pen, and no text.
///
/// # Errors
/// Why it is no JSON, where it was to be some.
pub(crate) fn json_or_text(text: &str) -> Result<Value, serde_json::Error> {
    match serde_json::from_str(text) {
        Err(why) if text.trim_start().starts_with(['{', '[', '"']) => Err(why),
        Err(_) => Ok(Value::String(text.to_owned())),
        read => read,
    }
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
    fn what_begins_like_json_is_json() {
        assert_eq!(json_or_text(" [1]").unwrap(), serde_json::json!([1]));
        assert_eq!(json_or_text("7").unwrap(), serde_json::json!(7));
        assert_eq!(json_or_text("well done").unwrap(), serde_json::json!("well done"));
        for slip in ["{bad", " [1,", "\"open"] {
            assert!(json_or_text(slip).is_err(), "{slip}");
        }
    }

    /// No more is read than is taken: a longer file is none of a request.
    #[test]
    fn as_much_is_read_as_a_request_may_hold() {
        assert_eq!(INPUT_MAX, crate::api::ServerLimits::default().body as u64);
        assert_eq!(short(io::repeat(b' ').take(INPUT_MAX)).unwrap().len() as u64, INPUT_MAX);
        assert_eq!(short(io::repeat(b' ')).unwrap_err().kind(), ErrorKind::FileTooLarge);
        let told = text(Some("@/dev/zero"), &[]).unwrap_err();
        assert_eq!(told, "the file /dev/zero is longer than 4194304 bytes, the most that is read");
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
