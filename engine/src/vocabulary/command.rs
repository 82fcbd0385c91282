//! Commands: what workflow code asks for, in the imperative.
//!
//! Invariant: commands are the only way out of workflow code, in the order the code asked; the run machine turns each
//! into events. They map one to one onto Temporal's workflow commands, so that another engine can carry them out.

use serde::{Deserialize, Serialize};

use super::*;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Command {
    ScheduleActivity {
        seq: Seq,
        activity_id: ActivityId,
        activity_type: ActivityType,
        input: Payload,
        options: ActivityOptions,
    },
    RequestCancelActivity {
        seq: Seq,
    },
    /// `fire_at` is absolute; one that is not later than now fires in the next turn, in order.
    StartTimer {
        seq: Seq,
        fire_at: Timestamp,
        summary: Option<String>,
    },
    CancelTimer {
        seq: Seq,
    },
    StartChildWorkflow {
        seq: Seq,
        workflow_id: WorkflowId,
        workflow_type: WorkflowType,
        input: Payload,
        options: ChildWorkflowOptions,
    },
    CancelChildWorkflow {
        seq: Seq,
        reason: String,
    },
    SignalExternalWorkflow {
        seq: Seq,
        target: ExternalTarget,
        name: SignalName,
        input: Payload,
    },
    RequestCancelExternalWorkflow {
        seq: Seq,
        target: ExternalTarget,
        reason: String,
    },
    RecordMarker(Marker),
    UpsertSearchAttributes {
        attributes: SearchAttributes,
    },
    ModifyMemo {
        memo: Memo,
    },
    CompleteUpdate {
        update_id: UpdateId,
        result: Result<Payload, Failure>,
    },
    CompleteWorkflow {
        result: Payload,
        unhandled_signals: Vec<SignalName>,
    },
    FailWorkflow {
        failure: Failure,
        unhandled_signals: Vec<SignalName>,
    },
    /// The run ends as canceled.
    CancelWorkflow {
        details: Option<Payload>,
        unhandled_signals: Vec<SignalName>,
    },
    ContinueAsNew {
        workflow_type: Option<WorkflowType>,
        input: Payload,
        options: ContinueAsNewOptions,
        unconsumed_signals: Vec<WorkflowExecutionSignaled>,
    },
}

impl Command {
    /// How many bytes of payloads the code gives with it, for a bound on what one turn may ask for.
    pub(crate) fn payload_bytes(&self) -> usize {
        match self {
            Command::ScheduleActivity { input, .. }
            | Command::SignalExternalWorkflow { input, .. }
            | Command::StartChildWorkflow { input, .. }
            | Command::ContinueAsNew { input, .. } => input.len(),
            Command::CompleteWorkflow { result, .. } => result.len(),
            Command::RecordMarker(Marker::SideEffect { value, .. }) => value.len(),
            _ => 0,
        }
    }
    /// Whether the run is over after this command.
    pub fn closes(&self) -> bool {
        match self {
            Command::CompleteWorkflow { .. }
            | Command::FailWorkflow { .. }
            | Command::CancelWorkflow { .. }
            | Command::ContinueAsNew { .. } => true,
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
            | Command::CompleteUpdate { .. } => false,
        }
    }

    /// The event that the run machine writes for the command where nothing else decides with it: no limit, no retry, and
    /// `new_run` as the run that follows. For those who make histories without a machine; the machine's families write
    /// their own.
    // long: one exhaustive match; a variant more is a line more.
    pub fn into_event(self, own_type: &WorkflowType, new_run: RunId) -> EventKind {
        use EventKind as E;
        match self {
            Command::ScheduleActivity { seq, activity_id, activity_type, input, options } => {
                let scheduled = ActivityTaskScheduled { seq, activity_id, activity_type, input, options };
                E::ActivityTaskScheduled(Box::new(scheduled))
            }
            Command::RequestCancelActivity { seq } => E::ActivityTaskCancelRequested { seq },
            Command::StartTimer { seq, fire_at, summary } => E::TimerStarted { seq, fire_at, summary },
            Command::CancelTimer { seq } => E::TimerCanceled { seq },
            Command::StartChildWorkflow { seq, workflow_id, workflow_type, input, options } => {
                let initiated = ChildWorkflowInitiated { seq, workflow_id, workflow_type, input, options };
                E::StartChildWorkflowExecutionInitiated(Box::new(initiated))
            }
            Command::CancelChildWorkflow { seq, reason } => E::ChildWorkflowExecutionCancelRequested { seq, reason },
            Command::SignalExternalWorkflow { seq, target, name, input } => {
                let initiated = SignalExternalInitiated { seq, target, name, input };
                E::SignalExternalWorkflowExecutionInitiated(Box::new(initiated))
            }
            Command::RequestCancelExternalWorkflow { seq, target, reason } => {
                E::RequestCancelExternalWorkflowExecutionInitiated { seq, target, reason }
            }
            Command::RecordMarker(marker) => E::MarkerRecorded(marker),
            Command::UpsertSearchAttributes { attributes } => E::UpsertWorkflowSearchAttributes { attributes },
            Command::ModifyMemo { memo } => E::WorkflowPropertiesModified { memo },
            Command::CompleteUpdate { update_id, result } => E::WorkflowExecutionUpdateCompleted { update_id, result },
            Command::CompleteWorkflow { result, unhandled_signals } => {
                E::WorkflowExecutionCompleted { result, unhandled_signals }
            }
            Command::FailWorkflow { failure, unhandled_signals } => {
                let retry_state = RetryState::RetryPolicyNotSet;
                E::WorkflowExecutionFailed { failure, new_run: None, retry_state, unhandled_signals }
            }
            Command::CancelWorkflow { details, unhandled_signals } => {
                E::WorkflowExecutionCanceled { details, unhandled_signals }
            }
            Command::ContinueAsNew { workflow_type, input, options, unconsumed_signals } => {
                let workflow_type = workflow_type.unwrap_or_else(|| own_type.clone());
                let next = ContinuedAsNew { new_run, workflow_type, input, options, unconsumed_signals };
                E::WorkflowExecutionContinuedAsNew(Box::new(next))
            }
        }
    }
}
