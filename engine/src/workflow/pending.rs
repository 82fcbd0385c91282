//! What a run has asked for and not heard the end of, and what canceling it means.
//!
//! Invariant: a cancellation is requested at most once for each number, and for `TryCancel` and `Abandon` the code is
//! told at once, so that a later end of the other side is nobody's business any more (E07, E15).

use serde::{Deserialize, Serialize};

use super::ledger::CommandLedger;
use crate::vocabulary::*;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum PendingCommand {
    Activity {
        activity_type: ActivityType,
        cancellation: CancellationType,
        cancel_requested: bool,
    },
    Timer {
        fire_at: Timestamp,
    },
    Child {
        workflow_type: WorkflowType,
        workflow_id: WorkflowId,
        run_id: Option<RunId>,
        cancellation: CancellationType,
        cancel_requested: bool,
    },
    SignalExternal {
        workflow_id: WorkflowId,
        name: SignalName,
    },
    CancelExternal {
        workflow_id: WorkflowId,
    },
}

/// What a cancellation of something pending does.
#[derive(Debug, PartialEq)]
pub(crate) struct Cancel {
    pub(crate) command: Option<Command>,
    /// The code hears this at once and nothing later.
    pub(crate) over: Option<Failure>,
}

impl PendingCommand {
    /// Decides what canceling this means. A second call asks for nothing.
    pub(crate) fn cancel(&mut self, seq: Seq, reason: &str) -> Cancel {
        match self {
            PendingCommand::Activity { activity_type, cancellation, cancel_requested } => {
                let canceled = || activity_canceled(activity_type, reason);
                let asks = *cancellation != CancellationType::Abandon && !*cancel_requested;
                *cancel_requested |= asks;
                let at_once = matches!(cancellation, CancellationType::TryCancel | CancellationType::Abandon);
                Cancel { command: asks.then_some(Command::RequestCancelActivity { seq }), over: at_once.then(canceled) }
            }
            PendingCommand::Timer { .. } => Cancel {
                command: Some(Command::CancelTimer { seq }),
                over: Some(Failure::canceled(format!("timer {seq} canceled: {reason}"))),
            },
            PendingCommand::Child { workflow_id, cancellation, cancel_requested, .. } => {
                let canceled = || child_canceled(workflow_id, reason);
                let asks = *cancellation != CancellationType::Abandon && !*cancel_requested;
                *cancel_requested |= asks;
                let at_once = matches!(cancellation, CancellationType::TryCancel | CancellationType::Abandon);
                Cancel {
                    command: asks.then(|| Command::CancelChildWorkflow { seq, reason: reason.to_owned() }),
                    over: at_once.then(canceled),
                }
            }
            // Messages to other runs are short and have no cancel command; they end by themselves.
            PendingCommand::SignalExternal { .. } | PendingCommand::CancelExternal { .. } => {
                Cancel { command: None, over: None }
            }
        }
    }

    /// Cancels what was asked for in this very activation, if the ledger takes that back: nobody has heard of it, so the code
    /// is told at once, whatever its cancellation type says. A timer is over at once anyway, and both its commands stay.
    pub(crate) fn cancel_in(&mut self, ledger: &mut CommandLedger, seq: Seq, reason: &str) -> Cancel {
        let cancel = self.cancel(seq, reason);
        let over = match self {
            _ if cancel.command.is_none() => return cancel,
            PendingCommand::Activity { activity_type, .. } => activity_canceled(activity_type, reason),
            PendingCommand::Child { workflow_id, .. } => child_canceled(workflow_id, reason),
            PendingCommand::Timer { .. }
            | PendingCommand::SignalExternal { .. }
            | PendingCommand::CancelExternal { .. } => return cancel,
        };
        match ledger.withdraw(seq) {
            true => Cancel { command: None, over: Some(over) },
            false => cancel,
        }
    }

    /// A child whose cancel request has been delivered and that waits for no more than that.
    pub(crate) fn delivered(&self) -> Option<Failure> {
        match self {
            PendingCommand::Child {
                workflow_id,
                cancellation: CancellationType::WaitCancellationRequested,
                cancel_requested: true,
                ..
            } => Some(Failure::canceled(format!("child workflow {workflow_id} was asked to cancel"))),
            PendingCommand::Activity { .. }
            | PendingCommand::Timer { .. }
            | PendingCommand::Child { .. }
            | PendingCommand::SignalExternal { .. }
            | PendingCommand::CancelExternal { .. } => None,
        }
    }

    pub(crate) fn is_timer(&self) -> bool {
        matches!(self, PendingCommand::Timer { .. })
    }

    pub(crate) fn describe(&self, seq: Seq) -> String {
        match self {
            PendingCommand::Activity { activity_type, .. } => format!("activity {seq} {activity_type}"),
            PendingCommand::Timer { fire_at } => Awaited::timer_until(seq, *fire_at),
            PendingCommand::Child { workflow_type, workflow_id, .. } => {
                format!("child workflow {seq} {workflow_type} {workflow_id}")
            }
            PendingCommand::SignalExternal { workflow_id, name } => format!("signal {seq} {name} to {workflow_id}"),
            PendingCommand::CancelExternal { workflow_id } => format!("cancel request {seq} to {workflow_id}"),
        }
    }
}

fn activity_canceled(activity_type: &ActivityType, reason: &str) -> Failure {
    Failure::canceled(format!("activity {activity_type} canceled: {reason}"))
}

fn child_canceled(workflow_id: &WorkflowId, reason: &str) -> Failure {
    Failure::canceled(format!("child workflow {workflow_id} canceled: {reason}"))
}

/// Says what makes options impossible, before anything is asked for (E04, E05).
pub(crate) fn check_activity(activity_type: &ActivityType, options: &ActivityOptions) -> Result<(), Failure> {
    let wrong = |why: String| Failure::application("InvalidOptions", format!("activity {activity_type}: {why}"));
    if options.start_to_close.is_none() && options.schedule_to_close.is_none() {
        return Err(wrong("give it a start-to-close or a schedule-to-close timeout".into()).non_retryable());
    }
    match options.retry_policy.as_ref().map(RetryPolicy::check) {
        Some(Err(why)) => Err(wrong(why).non_retryable()),
        Some(Ok(())) | None => Ok(()),
    }
}

/// Whether a run that was asked to cancel and ends in this failure has been canceled. An application failure that
/// happened *because* of a cancellation is a failure all the same.
pub(crate) fn ends_canceled(failure: &Failure) -> bool {
    match &failure.kind {
        FailureKind::Canceled { .. } => true,
        FailureKind::Activity { .. } | FailureKind::ChildWorkflow { .. } => {
            failure.cause.as_deref().is_some_and(ends_canceled)
        }
        FailureKind::Application { .. }
        | FailureKind::Timeout { .. }
        | FailureKind::Terminated
        | FailureKind::WorkerLost => false,
    }
}

/// The closing command of a run whose code ended in a failure.
pub(crate) fn close_failed(failure: Failure, cancel_requested: bool, unhandled_signals: Vec<SignalName>) -> Command {
    if !(cancel_requested && ends_canceled(&failure)) {
        return Command::FailWorkflow { failure, unhandled_signals };
    }
    let details = match &failure.root().kind {
        FailureKind::Canceled { details } => details.clone(),
        _ => None,
    };
    Command::CancelWorkflow { details, unhandled_signals }
}

/// What an update that the run did not answer before it closed is answered with.
pub(crate) fn workflow_closed() -> Failure {
    Failure::application("WorkflowClosed", "workflow closed before the update was done").non_retryable()
}
