//! How a command and an event are compared, named and described.
//!
//! Invariant: `matches` decides; keys and descriptions only serve the explanation. Each kind stands in exactly one arm,
//! and a new kind of command does not compile until it has one.

use super::RunIdentity;
use crate::vocabulary::*;
use crate::workflow::panic::without_place;

/// Whether the event is what the run machine writes for the command. Longer than a screen: one arm per kind.
// long: one exhaustive match; a variant more is a line more.
pub(super) fn matches(run: &RunIdentity, command: &Command, event: &EventKind) -> bool {
    use EventKind as E;
    match (command, event) {
        (Command::ScheduleActivity { seq, activity_id, activity_type, input, .. }, E::ActivityTaskScheduled(held)) => {
            *seq == held.seq
                && *activity_id == held.activity_id
                && *activity_type == held.activity_type
                && *input == held.input
        }
        (Command::RequestCancelActivity { seq }, E::ActivityTaskCancelRequested { seq: held }) => seq == held,
        (Command::StartTimer { seq, fire_at, .. }, E::TimerStarted { seq: held, fire_at: held_at, .. }) => {
            seq == held && fire_at == held_at
        }
        (Command::CancelTimer { seq }, E::TimerCanceled { seq: held }) => seq == held,
        (
            Command::StartChildWorkflow { seq, workflow_id, workflow_type, input, .. },
            E::StartChildWorkflowExecutionInitiated(held),
        ) => {
            *seq == held.seq
                && *workflow_id == held.workflow_id
                && *workflow_type == held.workflow_type
                && *input == held.input
        }
        (Command::CancelChildWorkflow { seq, .. }, E::ChildWorkflowExecutionCancelRequested { seq: held, .. }) => {
            seq == held
        }
        (
            Command::SignalExternalWorkflow { seq, target, name, input },
            E::SignalExternalWorkflowExecutionInitiated(held),
        ) => *seq == held.seq && *target == held.target && *name == held.name && *input == held.input,
        (
            Command::RequestCancelExternalWorkflow { seq, target, .. },
            E::RequestCancelExternalWorkflowExecutionInitiated { seq: held, target: held_target, .. },
        ) => seq == held && target == held_target,
        (Command::RecordMarker(asked), E::MarkerRecorded(held)) => match (asked, held) {
            (Marker::SideEffect { seq, .. }, Marker::SideEffect { seq: held, .. }) => seq == held,
            (Marker::Patch { id, .. }, Marker::Patch { id: held, .. }) => id == held,
            (Marker::SideEffect { .. }, Marker::Patch { .. }) | (Marker::Patch { .. }, Marker::SideEffect { .. }) => {
                false
            }
        },
        (Command::UpsertSearchAttributes { attributes }, E::UpsertWorkflowSearchAttributes { attributes: held }) => {
            same_attributes(attributes, held)
        }
        (Command::ModifyMemo { memo }, E::WorkflowPropertiesModified { memo: held }) => memo == held,
        (
            Command::CompleteUpdate { update_id, result },
            E::WorkflowExecutionUpdateCompleted { update_id: held, result: held_result },
        ) => update_id == held && same_result(result, held_result),
        (Command::CompleteWorkflow { result, .. }, E::WorkflowExecutionCompleted { result: held, .. }) => {
            result == held
        }
        (Command::FailWorkflow { failure, .. }, E::WorkflowExecutionFailed { failure: held, .. }) => {
            same_failure(failure, held)
        }
        (Command::CancelWorkflow { details, .. }, E::WorkflowExecutionCanceled { details: held, .. }) => {
            details == held
        }
        (Command::ContinueAsNew { workflow_type, input, .. }, E::WorkflowExecutionContinuedAsNew(held)) => {
            *workflow_type.as_ref().unwrap_or(&run.workflow_type) == held.workflow_type && *input == held.input
        }
        (
            Command::ScheduleActivity { .. }
            | Command::RequestCancelActivity { .. }
            | Command::StartTimer { .. }
            | Command::CancelTimer { .. }
            | Command::StartChildWorkflow { .. }
            | Command::CancelChildWorkflow { .. }
            | Command::SignalExternalWorkflow { .. }
            | Command::RequestCancelExternalWorkflow { .. }
            | Command::RecordMarker(_)
            | Command::UpsertSearchAttributes { .. }
            | Command::ModifyMemo { .. }
            | Command::CompleteUpdate { .. }
            | Command::CompleteWorkflow { .. }
            | Command::FailWorkflow { .. }
            | Command::CancelWorkflow { .. }
            | Command::ContinueAsNew { .. },
            _,
        ) => false,
    }
}

/// Equal, or equal bit for bit: a NaN is itself.
fn same_attributes(asked: &SearchAttributes, held: &SearchAttributes) -> bool {
    asked == held
        || match (rmp_serde::to_vec(asked), rmp_serde::to_vec(held)) {
            (Ok(asked), Ok(held)) => asked == held,
            _ => false,
        }
}

fn same_result(asked: &Result<Payload, Failure>, held: &Result<Payload, Failure>) -> bool {
    match (asked, held) {
        (Ok(asked), Ok(held)) => asked == held,
        (Err(asked), Err(held)) => same_failure(asked, held),
        (Ok(_), Err(_)) | (Err(_), Ok(_)) => false,
    }
}

/// By type and message. The place of a panic moves with every edit of the file and does not count.
fn same_failure(asked: &Failure, held: &Failure) -> bool {
    if asked.type_name() != held.type_name() {
        return false;
    }
    if asked.type_name() == FAILURE_PANIC {
        return without_place(&asked.message) == without_place(&held.message);
    }
    asked.message == held.message
}

/// A request by kind and name, without number and content: what the two sides are lined up by.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) kind: &'static str,
    pub(super) name: String,
}

fn key(kind: &'static str, name: impl ToString) -> Key {
    Key { kind, name: name.to_string() }
}

/// A request as the explanation needs it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Entry {
    pub(super) key: Key,
    pub(super) text: String,
    pub(super) content: Option<Payload>,
}

impl Entry {
    fn new(key: Key, detail: &str, content: Option<&Payload>) -> Self {
        let mut text = key.kind.to_owned();
        for part in [key.name.as_str(), detail] {
            if !part.is_empty() {
                text.push(' ');
                text.push_str(part);
            }
        }
        if let Some(content) = content {
            text.push_str(&format!(" ({} bytes, blake3 {})", content.len(), hex(&content.digest()[..4])));
        }
        Entry { key, text, content: content.cloned() }
    }
}

/// The command as an entry, under the name of the command.
pub(super) fn entry_of_command(command: &Command) -> Entry {
    match command {
        Command::ScheduleActivity { seq, activity_type, input, .. } => {
            Entry::new(key("ScheduleActivity", activity_type), &format!("#{seq}"), Some(input))
        }
        Command::RequestCancelActivity { seq } => {
            Entry::new(key("RequestCancelActivity", ""), &format!("#{seq}"), None)
        }
        Command::StartTimer { seq, fire_at, .. } => {
            Entry::new(key("StartTimer", ""), &format!("#{seq} until {fire_at}"), None)
        }
        Command::CancelTimer { seq } => Entry::new(key("CancelTimer", ""), &format!("#{seq}"), None),
        Command::StartChildWorkflow { seq, workflow_id, workflow_type, input, .. } => {
            let key = key("StartChildWorkflow", format!("{workflow_type} {workflow_id}"));
            Entry::new(key, &format!("#{seq}"), Some(input))
        }
        Command::CancelChildWorkflow { seq, .. } => {
            Entry::new(key("CancelChildWorkflow", ""), &format!("#{seq}"), None)
        }
        Command::SignalExternalWorkflow { seq, target, name, input } => {
            let key = key("SignalExternalWorkflow", format!("{name} to {}", target.workflow_id));
            Entry::new(key, &format!("#{seq}"), Some(input))
        }
        Command::RequestCancelExternalWorkflow { seq, target, .. } => {
            Entry::new(key("RequestCancelExternalWorkflow", &target.workflow_id), &format!("#{seq}"), None)
        }
        Command::RecordMarker(marker) => marker_entry(marker),
        Command::UpsertSearchAttributes { attributes } => {
            let content = Payload::encode(attributes).ok();
            Entry::new(key("UpsertSearchAttributes", ""), "", content.as_ref())
        }
        Command::ModifyMemo { memo } => Entry::new(key("ModifyMemo", ""), "", Payload::encode(memo).ok().as_ref()),
        Command::CompleteUpdate { update_id, result } => result_entry(key("CompleteUpdate", update_id), result),
        Command::CompleteWorkflow { result, .. } => Entry::new(key("CompleteWorkflow", ""), "", Some(result)),
        Command::FailWorkflow { failure, .. } => Entry::new(key("FailWorkflow", ""), &failure_text(failure), None),
        Command::CancelWorkflow { details, .. } => Entry::new(key("CancelWorkflow", ""), "", details.as_ref()),
        Command::ContinueAsNew { input, .. } => Entry::new(key("ContinueAsNew", ""), "", Some(input)),
    }
}

/// The command that causes the event, as an entry. Events that no command causes have none.
pub(super) fn entry_of_event(event: &EventKind) -> Entry {
    use EventKind::*;
    match event {
        ActivityTaskScheduled(held) => {
            Entry::new(key("ScheduleActivity", &held.activity_type), &format!("#{}", held.seq), Some(&held.input))
        }
        ActivityTaskCancelRequested { seq } => Entry::new(key("RequestCancelActivity", ""), &format!("#{seq}"), None),
        TimerStarted { seq, fire_at, .. } => {
            Entry::new(key("StartTimer", ""), &format!("#{seq} until {fire_at}"), None)
        }
        TimerCanceled { seq } => Entry::new(key("CancelTimer", ""), &format!("#{seq}"), None),
        StartChildWorkflowExecutionInitiated(held) => {
            let key = key("StartChildWorkflow", format!("{} {}", held.workflow_type, held.workflow_id));
            Entry::new(key, &format!("#{}", held.seq), Some(&held.input))
        }
        ChildWorkflowExecutionCancelRequested { seq, .. } => {
            Entry::new(key("CancelChildWorkflow", ""), &format!("#{seq}"), None)
        }
        SignalExternalWorkflowExecutionInitiated(held) => {
            let key = key("SignalExternalWorkflow", format!("{} to {}", held.name, held.target.workflow_id));
            Entry::new(key, &format!("#{}", held.seq), Some(&held.input))
        }
        RequestCancelExternalWorkflowExecutionInitiated { seq, target, .. } => {
            Entry::new(key("RequestCancelExternalWorkflow", &target.workflow_id), &format!("#{seq}"), None)
        }
        MarkerRecorded(marker) => marker_entry(marker),
        UpsertWorkflowSearchAttributes { attributes } => {
            Entry::new(key("UpsertSearchAttributes", ""), "", Payload::encode(attributes).ok().as_ref())
        }
        WorkflowPropertiesModified { memo } => {
            Entry::new(key("ModifyMemo", ""), "", Payload::encode(memo).ok().as_ref())
        }
        WorkflowExecutionUpdateCompleted { update_id, result } => {
            result_entry(key("CompleteUpdate", update_id), result)
        }
        WorkflowExecutionCompleted { result, .. } => Entry::new(key("CompleteWorkflow", ""), "", Some(result)),
        WorkflowExecutionFailed { failure, .. } => Entry::new(key("FailWorkflow", ""), &failure_text(failure), None),
        WorkflowExecutionCanceled { details, .. } => Entry::new(key("CancelWorkflow", ""), "", details.as_ref()),
        WorkflowExecutionContinuedAsNew(held) => Entry::new(key("ContinueAsNew", ""), "", Some(&held.input)),
        other => Entry::new(key(other.name(), ""), "", None),
    }
}

fn marker_entry(marker: &Marker) -> Entry {
    match marker {
        Marker::SideEffect { seq, .. } => Entry::new(key("SideEffect", ""), &format!("#{seq}"), None),
        Marker::Patch { id, deprecated: false } => Entry::new(key("Patch", id), "", None),
        Marker::Patch { id, deprecated: true } => Entry::new(key("Patch", id), "(deprecated)", None),
    }
}

fn result_entry(key: Key, result: &Result<Payload, Failure>) -> Entry {
    match result {
        Ok(payload) => Entry::new(key, "", Some(payload)),
        Err(failure) => Entry::new(key, &failure_text(failure), None),
    }
}

/// The type and a hash of the message, which is user data.
fn failure_text(failure: &Failure) -> String {
    let message = blake3::hash(failure.message.as_bytes());
    format!("{} (message of {} bytes, blake3 {})", failure.type_name(), failure.message.len(), &message.to_hex()[..8])
}
