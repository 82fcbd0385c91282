//! Commands: what workflow code asks for, in the imperative.
//!
//! Invariant: commands are the only way out of workflow code, in the order the code asked; the run machine turns each
//! into events. They map one to one onto Temporal's workflow commands, so that another engine can carry them out.

use serde::{Deserialize, Serialize};

use super::*;

/// One thing that workflow code asks for, in Temporal's words. Commands of one activation are carried out together or
/// not at all.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Command {
    /// Run an activity (E04).
    ScheduleActivity {
        /// The number by which its outcome comes back.
        seq: Seq,
        /// Its name for people; unique in the run.
        activity_id: ActivityId,
        /// Which activity function.
        activity_type: ActivityType,
        /// What the function is given.
        input: Payload,
        /// Its timeouts, retries and queue.
        options: ActivityOptions,
    },
    /// Ask a running activity to stop; the outcome still comes back by its number.
    RequestCancelActivity {
        /// The number with which it was scheduled.
        seq: Seq,
    },
    /// `fire_at` is absolute; one that is not later than now fires in the next turn, in order.
    StartTimer {
        /// The number by which it fires.
        seq: Seq,
        /// When it fires, in workflow time.
        fire_at: Timestamp,
        /// What it is for, shown to people. Replay does not compare it.
        summary: Option<String>,
    },
    /// Forget a timer that has not fired.
    CancelTimer {
        /// The number with which it was started.
        seq: Seq,
    },
    /// Start a child workflow (E15).
    StartChildWorkflow {
        /// The number by which its start and its end come back.
        seq: Seq,
        /// The id of the child, unique in the namespace.
        workflow_id: WorkflowId,
        /// Which workflow code.
        workflow_type: WorkflowType,
        /// What the code is given.
        input: Payload,
        /// Its timeouts, retries and what happens to it when this run closes.
        options: ChildWorkflowOptions,
    },
    /// Ask a child to cancel.
    CancelChildWorkflow {
        /// The number with which it was started.
        seq: Seq,
        /// Why, as the child sees it.
        reason: String,
    },
    /// Send a signal to another run.
    SignalExternalWorkflow {
        /// The number by which the delivery comes back.
        seq: Seq,
        /// The run that is meant.
        target: ExternalTarget,
        /// Which signal.
        name: SignalName,
        /// What the signal carries.
        input: Payload,
    },
    /// Ask another run to cancel.
    RequestCancelExternalWorkflow {
        /// The number by which the delivery comes back.
        seq: Seq,
        /// The run that is meant.
        target: ExternalTarget,
        /// Why, as that run sees it.
        reason: String,
    },
    /// Note a value or a patch for this code's own replay.
    RecordMarker(Marker),
    /// Set what lists can look for.
    UpsertSearchAttributes {
        /// New values by name; the others stay.
        attributes: SearchAttributes,
    },
    /// Set notes for people.
    ModifyMemo {
        /// New notes by name; the others stay.
        memo: Memo,
    },
    /// Answer an accepted update (E14).
    CompleteUpdate {
        /// The update that is answered.
        update_id: UpdateId,
        /// What its caller is told.
        result: Result<Payload, Failure>,
    },
    /// The run ends with a result.
    CompleteWorkflow {
        /// What callers of `result` get.
        result: Payload,
        /// Signals that reached the code and were never taken (E11).
        unhandled_signals: Vec<SignalName>,
    },
    /// The run ends in a failure, unless its retry policy starts another attempt.
    FailWorkflow {
        /// What went wrong.
        failure: Failure,
        /// Signals that reached the code and were never taken.
        unhandled_signals: Vec<SignalName>,
    },
    /// The run ends as canceled.
    CancelWorkflow {
        /// What the code has left to say.
        details: Option<Payload>,
        /// Signals that reached the code and were never taken.
        unhandled_signals: Vec<SignalName>,
    },
    /// The run ends and another run of the same workflow id takes over (E19).
    ContinueAsNew {
        /// Which code goes on; `None`: the same.
        workflow_type: Option<WorkflowType>,
        /// What the next run is given.
        input: Payload,
        /// What the next run does not take over from this one.
        options: ContinueAsNewOptions,
        /// Signals that the next run gets, in the order in which they came.
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
    /// The number of the activity or child that it begins.
    pub(crate) fn begins(&self) -> Option<Seq> {
        match self {
            Command::ScheduleActivity { seq, .. } | Command::StartChildWorkflow { seq, .. } => Some(*seq),
            _ => None,
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
