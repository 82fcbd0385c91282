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
}
