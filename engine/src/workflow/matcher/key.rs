//! How a command and an event are compared, named and described.
//!
//! Invariant: `matches` decides; entries only serve the explanation. Each kind stands in exactly one arm,
//! and a new kind of command does not compile until it has one.

use super::RunIdentity;
use crate::vocabulary::*;
use crate::workflow::asked::{ContentHash, Detail, Request, RequestKind};
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
    PayloadError::lasting_part(&asked.message) == PayloadError::lasting_part(&held.message)
}

/// A request with its content, by which two that are alike are compared.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RequestEntry {
    pub(super) request: Request,
    pub(super) content: Option<Payload>,
}

impl RequestEntry {
    fn new(kind: RequestKind) -> Self {
        RequestEntry { request: Request::new(kind), content: None }
    }
    fn named(mut self, name: impl ToString) -> Self {
        self.request.name = name.to_string();
        self
    }
    fn about(mut self, target: &WorkflowId) -> Self {
        self.request.target = Some(target.clone());
        self
    }
    fn seq(mut self, seq: Seq) -> Self {
        self.request.seq = Some(seq);
        self
    }
    fn detail(mut self, detail: Detail) -> Self {
        self.request.detail = Some(detail);
        self
    }
    fn content(mut self, content: Option<&Payload>) -> Self {
        self.request.content = content.map(ContentHash::of_payload);
        self.content = content.cloned();
        self
    }
    fn failed(self, failure: &Failure) -> Self {
        self.detail(Detail::of_failure(failure))
    }
    fn ended(self, result: &Result<Payload, Failure>) -> Self {
        match result {
            Ok(payload) => self.content(Some(payload)),
            Err(failure) => self.failed(failure),
        }
    }
}

/// The command as an entry.
pub(super) fn entry_of_command(command: &Command) -> RequestEntry {
    use RequestKind as K;
    match command {
        Command::ScheduleActivity { seq, activity_type, input, .. } => {
            RequestEntry::new(K::ScheduleActivity).named(activity_type).seq(*seq).content(Some(input))
        }
        Command::RequestCancelActivity { seq } => RequestEntry::new(K::RequestCancelActivity).seq(*seq),
        Command::StartTimer { seq, fire_at, .. } => {
            RequestEntry::new(K::StartTimer).seq(*seq).detail(Detail::Until(*fire_at))
        }
        Command::CancelTimer { seq } => RequestEntry::new(K::CancelTimer).seq(*seq),
        Command::StartChildWorkflow { seq, workflow_id, workflow_type, input, .. } => {
            RequestEntry::new(K::StartChildWorkflow)
                .named(workflow_type)
                .about(workflow_id)
                .seq(*seq)
                .content(Some(input))
        }
        Command::CancelChildWorkflow { seq, .. } => RequestEntry::new(K::CancelChildWorkflow).seq(*seq),
        Command::SignalExternalWorkflow { seq, target, name, input } => RequestEntry::new(K::SignalExternalWorkflow)
            .named(name)
            .about(&target.workflow_id)
            .seq(*seq)
            .content(Some(input)),
        Command::RequestCancelExternalWorkflow { seq, target, .. } => {
            RequestEntry::new(K::RequestCancelExternalWorkflow).about(&target.workflow_id).seq(*seq)
        }
        Command::RecordMarker(marker) => marker_entry(marker),
        Command::UpsertSearchAttributes { attributes } => {
            RequestEntry::new(K::UpsertSearchAttributes).content(Payload::encode(attributes).ok().as_ref())
        }
        Command::ModifyMemo { memo } => RequestEntry::new(K::ModifyMemo).content(Payload::encode(memo).ok().as_ref()),
        Command::CompleteUpdate { update_id, result } => {
            RequestEntry::new(K::CompleteUpdate).named(update_id).ended(result)
        }
        Command::CompleteWorkflow { result, .. } => RequestEntry::new(K::CompleteWorkflow).content(Some(result)),
        Command::FailWorkflow { failure, .. } => RequestEntry::new(K::FailWorkflow).failed(failure),
        Command::CancelWorkflow { details, .. } => RequestEntry::new(K::CancelWorkflow).content(details.as_ref()),
        Command::ContinueAsNew { input, .. } => RequestEntry::new(K::ContinueAsNew).content(Some(input)),
    }
}

/// The command that causes the event, as an entry. Events that no command causes have none.
pub(super) fn entry_of_event(event: &EventKind) -> Option<RequestEntry> {
    use EventKind::*;
    use RequestKind as K;
    Some(match event {
        ActivityTaskScheduled(held) => {
            RequestEntry::new(K::ScheduleActivity).named(&held.activity_type).seq(held.seq).content(Some(&held.input))
        }
        ActivityTaskCancelRequested { seq } => RequestEntry::new(K::RequestCancelActivity).seq(*seq),
        TimerStarted { seq, fire_at, .. } => RequestEntry::new(K::StartTimer).seq(*seq).detail(Detail::Until(*fire_at)),
        TimerCanceled { seq } => RequestEntry::new(K::CancelTimer).seq(*seq),
        StartChildWorkflowExecutionInitiated(held) => RequestEntry::new(K::StartChildWorkflow)
            .named(&held.workflow_type)
            .about(&held.workflow_id)
            .seq(held.seq)
            .content(Some(&held.input)),
        ChildWorkflowExecutionCancelRequested { seq, .. } => RequestEntry::new(K::CancelChildWorkflow).seq(*seq),
        SignalExternalWorkflowExecutionInitiated(held) => RequestEntry::new(K::SignalExternalWorkflow)
            .named(&held.name)
            .about(&held.target.workflow_id)
            .seq(held.seq)
            .content(Some(&held.input)),
        RequestCancelExternalWorkflowExecutionInitiated { seq, target, .. } => {
            RequestEntry::new(K::RequestCancelExternalWorkflow).about(&target.workflow_id).seq(*seq)
        }
        MarkerRecorded(marker) => marker_entry(marker),
        UpsertWorkflowSearchAttributes { attributes } => {
            RequestEntry::new(K::UpsertSearchAttributes).content(Payload::encode(attributes).ok().as_ref())
        }
        WorkflowPropertiesModified { memo } => {
            RequestEntry::new(K::ModifyMemo).content(Payload::encode(memo).ok().as_ref())
        }
        WorkflowExecutionUpdateCompleted { update_id, result } => {
            RequestEntry::new(K::CompleteUpdate).named(update_id).ended(result)
        }
        WorkflowExecutionCompleted { result, .. } => RequestEntry::new(K::CompleteWorkflow).content(Some(result)),
        WorkflowExecutionFailed { failure, .. } => RequestEntry::new(K::FailWorkflow).failed(failure),
        WorkflowExecutionCanceled { details, .. } => RequestEntry::new(K::CancelWorkflow).content(details.as_ref()),
        WorkflowExecutionContinuedAsNew(held) => RequestEntry::new(K::ContinueAsNew).content(Some(&held.input)),
        _ => return None,
    })
}

fn marker_entry(marker: &Marker) -> RequestEntry {
    match marker {
        Marker::SideEffect { seq, .. } => RequestEntry::new(RequestKind::SideEffect).seq(*seq),
        Marker::Patch { id, deprecated: false } => RequestEntry::new(RequestKind::Patch).named(id),
        Marker::Patch { id, deprecated: true } => {
            RequestEntry::new(RequestKind::Patch).named(id).detail(Detail::Deprecated)
        }
    }
}
