//! The shipped binary as somebody uses it who waits for its end: run, and what it said.
//!
//! Invariant: nothing is judged here; whoever asks looks at the exit code. Processes that go on are in `process`.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use super::process::bosun;

/// A command on a data directory, by itself: nothing is typed.
///
/// # Panics
/// If there is no binary, or it does not start.
pub fn run(data: &Path, words: &[&str]) -> Output {
    Command::new(bosun().unwrap()).args(words).arg("--data").arg(data).stdin(Stdio::null()).output().unwrap()
}

/// All that it said: its output, then its errors.
pub fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// The JSON that it printed.
///
/// # Panics
/// If it printed something else; the message is what it said.
#[track_caller]
pub fn object(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|why| panic!("{why}: {}", said(output)))
}
