//! Small activities for trying things out and for tests from outside: they wait, fail on schedule, and leave traces.
//!
//! | type | input | result |
//! |---|---|---|
//! | `echo` | anything | the same |
//! | `sleep` | `{"ms": 200, "value": ...}` | `value`; heartbeats its progress, stops when canceled |
//! | `fail_n_times` | `{"times": 2, "value": ..., "type": "Oops", "message": "...", "non_retryable": false}` | `value`, after `times` attempts failed |
//! | `append_line` | `{"file": "trace.txt", "text": "..."}` | how many lines the file has; the line is `text key=<idempotency key> attempt=<n>` |
//!
//! Invariant: `append_line` writes one whole line, synced, into the directory that the worker's owner named, and
//! nowhere else; without such a directory it refuses. What an activity here does depends on its input and attempt alone.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bosun_engine::{ActivityContext, ActivityError, ActivityRegistry, Failure};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::durable::{private_dir, private_file};

pub const ECHO: &str = "echo";
pub const SLEEP: &str = "sleep";
pub const FAIL_N_TIMES: &str = "fail_n_times";
pub const APPEND_LINE: &str = "append_line";

/// Where `append_line` may write.
#[derive(Debug, Clone, Default)]
pub struct DemoConfig {
    pub directory: Option<PathBuf>,
}

pub(super) fn register(registry: &mut ActivityRegistry, config: &DemoConfig) {
    let directory = config.directory.clone();
    registry.register(ECHO, |_, input: Value| async move { Ok(input) });
    registry.register(SLEEP, sleep);
    registry.register(FAIL_N_TIMES, |context, input| async move { fail_n_times(&context, input) });
    registry.register(APPEND_LINE, move |context, input| {
        let directory = directory.clone();
        async move { append_line(directory.as_deref(), &context, &input) }
    });
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Sleep {
    ms: u64,
    #[serde(default)]
    value: Value,
}

/// Each heartbeat says how long it has slept; the next attempt sleeps the rest only.
async fn sleep(context: ActivityContext, input: Sleep) -> Result<Value, ActivityError> {
    let mut slept = context.heartbeat_details::<u64>().unwrap_or(0);
    while slept < input.ms {
        let nap = (input.ms - slept).min(100);
        tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(nap)) => slept += nap,
            () = context.canceled() => return Err(ActivityError::Canceled(None)),
        }
        context.heartbeat(&slept)?;
    }
    Ok(input.value)
}

/// A failure by script, also used by the order saga.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptedFailure {
    /// The first attempts that fail.
    pub times: u32,
    #[serde(default = "failure_type", rename = "type")]
    pub failure_type: String,
    #[serde(default)]
    pub message: String,
    #[serde(default)]
    pub non_retryable: bool,
}

fn failure_type() -> String {
    "Scripted".into()
}

impl ScriptedFailure {
    /// Fails if the script says so for this attempt.
    pub fn play(&self, context: &ActivityContext) -> Result<(), Failure> {
        let attempt = context.attempt().0;
        if attempt > self.times {
            return Ok(());
        }
        let message = match self.message.as_str() {
            "" => format!("attempt {attempt} of {} that fail by script", self.times),
            message => message.to_owned(),
        };
        let failure = Failure::application(&self.failure_type, message);
        Err(if self.non_retryable { failure.non_retryable() } else { failure })
    }
}

#[derive(Debug, Deserialize)]
struct FailNTimes {
    #[serde(flatten)]
    script: ScriptedFailure,
    #[serde(default)]
    value: Value,
}

fn fail_n_times(context: &ActivityContext, input: FailNTimes) -> Result<Value, ActivityError> {
    input.script.play(context)?;
    Ok(input.value)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AppendLine {
    file: String,
    text: String,
}

fn append_line(
    directory: Option<&Path>,
    context: &ActivityContext,
    input: &AppendLine,
) -> Result<Value, ActivityError> {
    let refused = |why: String| Failure::application("AppendRefused", why).non_retryable();
    let failed = |why: std::io::Error| Failure::application("AppendFailed", why.to_string());
    let directory = directory.ok_or_else(|| refused("this worker names no directory for append_line".into()))?;
    let plain = !input.file.is_empty() && !input.file.starts_with('.') && !input.file.contains(['/', '\\', '\0']);
    if !plain {
        return Err(refused(format!("{:?} is no plain file name", input.file)).into());
    }
    private_dir(directory).map_err(failed)?;
    let path = directory.join(&input.file);
    if path.is_symlink() {
        return Err(refused(format!("{:?} is a link", input.file)).into());
    }
    let text = input.text.replace(['\n', '\r'], " ");
    let line = format!("{text} key={} attempt={}\n", context.idempotency_key(), context.attempt());
    let mut file = private_file().append(true).open(&path).map_err(failed)?;
    // One write of one line: appends of several activities do not mix.
    file.write_all(line.as_bytes()).and_then(|()| file.sync_all()).map_err(failed)?;
    let lines = fs::read_to_string(&path).map_err(failed)?.lines().count();
    Ok(json!(lines))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capability::testing::{failure, probe};

    #[tokio::test]
    async fn sleep_heartbeats_and_stops_when_canceled() {
        let first = probe(1);
        let slept = sleep(first.context, Sleep { ms: 150, value: json!("up") }).await;
        assert_eq!(slept, Ok(json!("up")));
        assert_eq!(first.heartbeats.0.lock().unwrap().len(), 2);
        let canceled = probe(1);
        canceled.cancel.send(true).unwrap();
        let stopped = sleep(canceled.context, Sleep { ms: 60_000, value: Value::Null }).await;
        assert_eq!(stopped, Err(ActivityError::Canceled(None)));
    }

    #[test]
    fn failures_follow_the_script() {
        let script = |times| serde_json::from_value(json!({ "times": times, "value": 7 })).unwrap();
        assert_eq!(fail_n_times(&probe(1).context, script(0)), Ok(json!(7)));
        let failed = failure(fail_n_times(&probe(1).context, script(1)));
        assert_eq!(failed.to_string(), "Scripted: attempt 1 of 1 that fail by script");
    }

    #[test]
    fn lines_are_appended_in_the_named_directory_only() {
        let dir = tempfile::tempdir().unwrap();
        let append = |directory: Option<&Path>, file: &str, text: &str| {
            append_line(directory, &probe(1).context, &AppendLine { file: file.into(), text: text.into() })
        };
        let place = dir.path().join("traces");
        assert_eq!(append(Some(&place), "a", "one\nline"), Ok(json!(1)));
        assert_eq!(append(Some(&place), "a", "two"), Ok(json!(2)));
        let key = probe(1).context.idempotency_key();
        let written = fs::read_to_string(place.join("a")).unwrap();
        assert_eq!(written, format!("one line key={key} attempt=1\ntwo key={key} attempt=1\n"));
        for file in ["", "../a", "/tmp/a", ".hidden"] {
            assert_eq!(failure(append(Some(&place), file, "x")).type_name(), "AppendRefused", "{file}");
        }
        assert_eq!(failure(append(None, "a", "x")).type_name(), "AppendRefused");
    }
}
