//! Breakpoints: where a walk over a history stops.
//!
//! Invariant: whether an event matches depends on the history and the code's state alone, so that a walk stops at the
//! same events in both directions.

use std::fmt;

use bosun_engine::*;
use serde::Serialize;

use super::Timeline;
use super::change::JsonPath;
use crate::event_types::event_types;

/// What to stop at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum Breakpoint {
    /// An event of this type.
    Kind(String),
    /// Anything about an activity, child workflow, signal, update or timer of this name.
    Name(String),
    /// An event that says that something failed, timed out or was refused.
    Failure,
    /// The state of the code changes at or below this path.
    State(JsonPath),
}

/// A text that is no breakpoint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is no breakpoint: write an event type (TimerFired), `failure`, `name:NAME` for an activity, child, timer, \
     signal or update, or `state.PATH` for a change of the state"
)]
/// A text that is no breakpoint.
pub struct BadBreakpoint {
    /// The text.
    pub text: String,
}

impl Breakpoint {
    /// Reads a breakpoint as it is typed.
    pub fn parse(text: &str) -> Result<Breakpoint, BadBreakpoint> {
        let bad = || BadBreakpoint { text: text.to_owned() };
        let text = text.trim();
        let text = text.strip_suffix("changes").map_or(text, str::trim);
        if text.eq_ignore_ascii_case("failure") {
            return Ok(Breakpoint::Failure);
        }
        if let Some((prefix, name)) = text.split_once(':') {
            let named = ["name", "activity", "child", "timer", "signal", "update"].contains(&prefix);
            return if named && !name.is_empty() { Ok(Breakpoint::Name(name.to_owned())) } else { Err(bad()) };
        }
        if text == "state" {
            return Ok(Breakpoint::State(JsonPath::default()));
        }
        if text.starts_with("state.") {
            return JsonPath::parse(text).map(Breakpoint::State).ok_or_else(bad);
        }
        match event_types().iter().find(|name| name.eq_ignore_ascii_case(text)) {
            Some(name) => Ok(Breakpoint::Kind((*name).to_owned())),
            None => Err(bad()),
        }
    }

    /// Whether a walk stops at this event.
    pub fn stops(&self, timeline: &Timeline<'_>, event: &Event) -> bool {
        match self {
            Breakpoint::Kind(name) => event.kind.name() == name,
            Breakpoint::Name(name) => timeline.name_of(event).is_some_and(|found| found == name),
            Breakpoint::Failure => failure_of(&event.kind).is_some() || is_bad_end(&event.kind),
            Breakpoint::State(path) => timeline.changes_of(event.id).iter().any(|change| change.path.touches(path)),
        }
    }
}

impl fmt::Display for Breakpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Breakpoint::Kind(name) => f.write_str(name),
            Breakpoint::Name(name) => write!(f, "name:{name}"),
            Breakpoint::Failure => f.write_str("failure"),
            Breakpoint::State(path) if path.0.is_empty() => f.write_str("state"),
            Breakpoint::State(path) => write!(f, "state.{path} changes"),
        }
    }
}

/// The failure that an event tells of.
pub(super) fn failure_of(event: &EventKind) -> Option<&Failure> {
    match event {
        EventKind::ActivityTaskAttemptFailed { failure, .. }
        | EventKind::ActivityTaskFailed { failure, .. }
        | EventKind::ActivityTaskTimedOut { failure, .. }
        | EventKind::StartChildWorkflowExecutionFailed { failure, .. }
        | EventKind::ChildWorkflowExecutionFailed { failure, .. }
        | EventKind::SignalExternalWorkflowExecutionFailed { failure, .. }
        | EventKind::RequestCancelExternalWorkflowExecutionFailed { failure, .. }
        | EventKind::WorkflowExecutionFailed { failure, .. }
        | EventKind::WorkflowExecutionUpdateCompleted { result: Err(failure), .. } => Some(failure),
        _ => None,
    }
}

fn is_bad_end(event: &EventKind) -> bool {
    matches!(
        event,
        EventKind::ChildWorkflowExecutionTimedOut { .. }
            | EventKind::ChildWorkflowExecutionTerminated { .. }
            | EventKind::WorkflowExecutionTimedOut { .. }
            | EventKind::WorkflowExecutionTerminated { .. }
    )
}
