//! What people send to a schedule, and what its runs say to each other.
//!
//! Updates: `update` (a [`Change`]), `pause`, `unpause` (a [`Note`]), `trigger` (a [`Trigger`]), `backfill` (a [`Backfill`]), `delete`.
//! Queries: `describe`, and `next_times` (`{"count": 10}`). Signals: `action_ended_v1` and `start_quarantined_v1` to the schedule, `cancel_v1`, `terminate_v1`
//! and `hello_v1` to a start of it; they are not for people.
//!
//! Invariant: the forms are read strictly, so that a slip is refused before anything enters the history. Nothing is done here.

use bosun_engine::{Failure, FailureKind, Payload, Timestamp, WorkflowId};
use serde::{Deserialize, Serialize};

use super::policy::Overlap;
use super::spec::{InvalidSchedule, Schedule};
use super::text;

pub const UPDATES: [&str; 6] = ["update", "pause", "unpause", "trigger", "backfill", "delete"];
pub const QUERIES: [&str; 2] = ["describe", "next_times"];
/// To the schedule: an [`ActionEnd`].
pub const SIGNAL_ENDED: &str = "action_ended_v1";
/// To the schedule, by the worker: a start of it ends workers, and is held; a [`Quarantined`].
pub const SIGNAL_QUARANTINED: &str = "start_quarantined_v1";
/// To a start: ask what it started to cancel; a [`Because`].
pub const SIGNAL_CANCEL: &str = "cancel_v1";
/// To a start: end what it started at once.
pub const SIGNAL_TERMINATE: &str = "terminate_v1";
/// To a start: nothing but whether it is there.
pub const SIGNAL_HELLO: &str = "hello_v1";

/// Another schedule in place of the one there is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    pub schedule: Schedule,
    /// The version that was looked at; another one is not overwritten.
    #[serde(default)]
    pub version: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Note {
    pub note: String,
}

/// One start now, whatever the spec says; also while it is paused.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Trigger {
    /// Without it, the schedule's own.
    pub overlap: Option<Overlap>,
}

/// The times from `start_time` to `end_time`, both included, as if they were now; also while it is paused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Backfill {
    #[serde(with = "text::at")]
    pub start_time: Timestamp,
    #[serde(with = "text::at")]
    pub end_time: Timestamp,
    #[serde(default)]
    pub overlap: Option<Overlap>,
}

/// What `next_times` is asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HowMany {
    pub count: usize,
}

/// Why others are ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Because {
    pub reason: String,
}

/// A start that is held because it ends workers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quarantined {
    pub workflow_id: String,
    pub why: String,
}

/// How what was started has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Completed,
    Failed,
    Canceled,
    TimedOut,
    Terminated,
    /// It was not started: its id is in use, for example.
    NotStarted,
    /// Who started it was removed before it could say.
    Unknown,
}

/// A start that is over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActionEnd {
    /// The nominal time, as in its ids.
    pub name: String,
    pub outcome: Outcome,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

impl ActionEnd {
    pub fn of(name: &str, result: &Result<Payload, Failure>, started: bool) -> ActionEnd {
        let (outcome, message) = match result {
            Ok(_) => (Outcome::Completed, None),
            Err(failure) => {
                let cause = failure.cause.as_deref().unwrap_or(failure);
                let outcome = match (&failure.kind, &cause.kind) {
                    _ if !started => Outcome::NotStarted,
                    (FailureKind::Canceled { .. }, _) | (_, FailureKind::Canceled { .. }) => Outcome::Canceled,
                    (_, FailureKind::Terminated) => Outcome::Terminated,
                    (_, FailureKind::Timeout { .. }) => Outcome::TimedOut,
                    _ => Outcome::Failed,
                };
                (outcome, Some(cause.message.clone()))
            }
        };
        ActionEnd { name: name.to_owned(), outcome, message }
    }
}

/// The workflow id of a start's own run: of this schedule, at this nominal time.
pub fn action_run_id(schedule: &WorkflowId, name: &str) -> String {
    format!("{schedule}/{name}")
}

/// Reads an update's input, and says what is wrong with it.
pub fn read<T: for<'de> Deserialize<'de> + Default>(input: &Payload) -> Result<T, InvalidSchedule> {
    let value = input.to_json();
    if value.is_null() {
        return Ok(T::default());
    }
    read_value(value)
}

/// As [`read`], where something must be said.
pub fn read_value<T: for<'de> Deserialize<'de>>(value: serde_json::Value) -> Result<T, InvalidSchedule> {
    serde_path_to_error::deserialize(value).map_err(|why| {
        let path = why.path().to_string();
        InvalidSchedule::at(if path == "." { "input".to_owned() } else { path }, why.into_inner())
    })
}
