//! Does the code still ask for what history holds? The check of one activation.
//!
//! Invariant: a request matches an event by kind, identity and content (input, fire time, result); options such as
//! timeouts and summaries may change freely. No mismatch passes, and a clean replay raises none (G22). The
//! check compares; it changes neither history nor code.

mod align;
mod key;

use self::align::explain;
use self::key::matches;
use super::asked::Hint;
use super::nondeterminism::{AlignedLine, NonDeterminism};
use crate::vocabulary::*;
use crate::workflow::asked::Request;

/// What a command asks for, as it is shown.
pub(super) fn request_of(command: &Command) -> Request {
    key::entry_of_command(command).request
}

/// Where in the code the n-th command was asked for, if that is known.
pub type Locate<'a> = dyn Fn(usize) -> Option<CodeLocation> + 'a;

/// Which run is being checked, and by which build.
#[derive(Debug, Clone, PartialEq)]
pub struct RunIdentity {
    /// The run.
    pub run_id: RunId,
    /// Its workflow id.
    pub workflow_id: WorkflowId,
    /// Its type.
    pub workflow_type: WorkflowType,
    /// The code that is compared with the history.
    pub current_build: BuildId,
}

/// Compares what the code asked for in one activation with the events that history holds for it.
///
/// `recorded` are the events after `activating` up to the next activating one; those that no command causes are
/// skipped. `locate` says where in the code the n-th command was asked for.
pub fn check_activation(
    run: &RunIdentity,
    activating: &Event,
    produced: &[Command],
    locate: &Locate<'_>,
    recorded: &[Event],
) -> Result<(), NonDeterminism> {
    let recorded: Vec<&Event> = recorded.iter().filter(|event| event.kind.origin() == Origin::Command).collect();
    let produced = until_closed(produced);
    match first_difference(run, produced, &recorded) {
        None => Ok(()),
        Some(_) => Err(explain(run, activating, produced, locate, &recorded)),
    }
}

/// Lines up requests of more than one activation, and says what to do about the difference. Which of them belong to the
/// comparison is for the caller; whether there is a mismatch is not decided here.
pub fn align_requests(
    run: &RunIdentity,
    produced: &[Command],
    locate: &Locate<'_>,
    recorded: &[Event],
) -> (Vec<AlignedLine>, Hint) {
    let recorded: Vec<&Event> = recorded.iter().filter(|event| event.kind.origin() == Origin::Command).collect();
    align::align_all(run, until_closed(produced), locate, &recorded)
}

/// What is asked for after the run has closed does not count.
fn until_closed(produced: &[Command]) -> &[Command] {
    let end = produced.iter().position(Command::closes).map_or(produced.len(), |at| at + 1);
    &produced[..end]
}

/// Where the two sides part: the index of the command, and of the event.
fn first_difference(run: &RunIdentity, produced: &[Command], recorded: &[&Event]) -> Option<(usize, usize)> {
    let (mut asked, mut held) = (0, 0);
    loop {
        match (produced.get(asked), recorded.get(held)) {
            (None, None) => return None,
            (Some(command), Some(event)) if matches(run, command, &event.kind) => {
                asked += 1;
                held += 1;
            }
            (_, Some(event)) if is_deprecated_patch(&event.kind) => held += 1,
            (Some(_), Some(event)) if is_refused_command(&event.kind) => return None,
            _ => return Some((asked, held)),
        }
    }
}

/// The run machine ended the run because of what the code asked for: a payload above the limit (E31), or a search
/// attribute with a name that is taken.
fn is_refused_command(event: &EventKind) -> bool {
    let EventKind::WorkflowExecutionFailed { failure, .. } = event else { return false };
    let refusals = [FAILURE_PAYLOAD_TOO_LARGE, FAILURE_BAD_SEARCH_ATTRIBUTES];
    matches!(&failure.kind, FailureKind::Application { failure_type, .. } if refusals.contains(&failure_type.as_str()))
}

/// Code that has dropped a deprecated patch altogether still fits (E21).
fn is_deprecated_patch(event: &EventKind) -> bool {
    matches!(event, EventKind::MarkerRecorded(Marker::Patch { deprecated: true, .. }))
}
