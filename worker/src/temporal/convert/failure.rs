//! Failures, in and out, with their causes.
//!
//! Invariant: the kind, the type that retry policies name, and the details stay. Of failures that an engine makes, the
//! words are those of the embedded one, not the server's.

use bosun_engine::*;
use temporalio_common::protos::temporal::api::common::v1 as common;
use temporalio_common::protos::temporal::api::enums::v1 as enums;
use temporalio_common::protos::temporal::api::failure::v1 as proto;
use temporalio_common::protos::temporal::api::failure::v1::failure::FailureInfo;

use super::payload::{payloads_in, payloads_out, period_in, period_out};

/// Who made the failure, for people who read histories.
const SOURCE: &str = "Bosun";
/// The type of a failure that ours have no kind for.
const OF_THE_SERVER: &str = "ServerFailure";

pub(in crate::temporal) fn failure_out(failure: &Failure) -> proto::Failure {
    proto::Failure {
        message: failure.message.clone(),
        source: SOURCE.to_owned(),
        cause: failure.cause.as_deref().map(|cause| Box::new(failure_out(cause))),
        failure_info: Some(info_out(&failure.kind)),
        ..Default::default()
    }
}

// long: one arm a kind.
fn info_out(kind: &FailureKind) -> FailureInfo {
    match kind {
        FailureKind::Application { failure_type, non_retryable, details, next_retry_delay } => {
            FailureInfo::ApplicationFailureInfo(proto::ApplicationFailureInfo {
                r#type: failure_type.clone(),
                non_retryable: *non_retryable,
                details: details.as_ref().map(payloads_out),
                next_retry_delay: next_retry_delay.map(period_out),
                ..Default::default()
            })
        }
        FailureKind::Timeout { timeout, last_heartbeat } => {
            FailureInfo::TimeoutFailureInfo(proto::TimeoutFailureInfo {
                timeout_type: timeout_out(*timeout).into(),
                last_heartbeat_details: last_heartbeat.as_ref().map(payloads_out),
            })
        }
        FailureKind::Canceled { details } => FailureInfo::CanceledFailureInfo(proto::CanceledFailureInfo {
            details: details.as_ref().map(payloads_out),
            ..Default::default()
        }),
        FailureKind::Terminated => FailureInfo::TerminatedFailureInfo(proto::TerminatedFailureInfo::default()),
        FailureKind::Activity { activity_type, activity_id, retry_state } => {
            FailureInfo::ActivityFailureInfo(proto::ActivityFailureInfo {
                activity_type: Some(common::ActivityType { name: activity_type.to_string() }),
                activity_id: activity_id.to_string(),
                retry_state: state_out(*retry_state).into(),
                ..Default::default()
            })
        }
        FailureKind::ChildWorkflow { workflow_type, workflow_id, run_id, retry_state } => {
            FailureInfo::ChildWorkflowExecutionFailureInfo(proto::ChildWorkflowExecutionFailureInfo {
                workflow_execution: Some(common::WorkflowExecution {
                    workflow_id: workflow_id.to_string(),
                    run_id: run_id.map_or_else(String::new, |run| run.to_string()),
                }),
                workflow_type: Some(common::WorkflowType { name: workflow_type.to_string() }),
                retry_state: retry_state.map_or(enums::RetryState::Unspecified, state_out).into(),
                ..Default::default()
            })
        }
        FailureKind::WorkerLost => FailureInfo::ApplicationFailureInfo(proto::ApplicationFailureInfo {
            r#type: "WorkerLost".to_owned(),
            ..Default::default()
        }),
    }
}

pub(in crate::temporal) fn failure_in(failure: proto::Failure) -> Failure {
    let (message, kind) = kind_in(failure.message, failure.failure_info);
    Failure { message, kind, cause: failure.cause.map(|cause| Box::new(failure_in(*cause))) }
}

// long: one arm a kind.
fn kind_in(message: String, info: Option<FailureInfo>) -> (String, FailureKind) {
    let application = |failure_type: String, non_retryable: bool| FailureKind::Application {
        failure_type,
        non_retryable,
        details: None,
        next_retry_delay: None,
    };
    let details = |details: Option<common::Payloads>| details.map(|details| payloads_in(details.payloads));
    match info {
        Some(FailureInfo::ApplicationFailureInfo(info)) => {
            let kind = FailureKind::Application {
                failure_type: info.r#type,
                non_retryable: info.non_retryable,
                details: details(info.details),
                next_retry_delay: period_in(info.next_retry_delay),
            };
            (message, kind)
        }
        Some(FailureInfo::TimeoutFailureInfo(info)) => {
            let failure = Failure::timeout(timeout_in(info.timeout_type()), details(info.last_heartbeat_details));
            (failure.message, failure.kind)
        }
        Some(FailureInfo::CanceledFailureInfo(info)) => {
            (message, FailureKind::Canceled { details: details(info.details) })
        }
        Some(FailureInfo::TerminatedFailureInfo(_)) => (message, FailureKind::Terminated),
        Some(FailureInfo::ActivityFailureInfo(info)) => {
            let retry_state = state_in(info.retry_state()).unwrap_or(RetryState::RetryPolicyNotSet);
            let named = info.activity_type.and_then(|named| ActivityType::new(named.name).ok());
            match (named, ActivityId::new(info.activity_id)) {
                (Some(activity_type), Ok(activity_id)) => {
                    let message = format!("activity {activity_type} failed");
                    (message, FailureKind::Activity { activity_type, activity_id, retry_state })
                }
                _ => (message, application(OF_THE_SERVER.to_owned(), true)),
            }
        }
        Some(FailureInfo::ChildWorkflowExecutionFailureInfo(info)) => child_in(message, info),
        Some(FailureInfo::ServerFailureInfo(info)) => {
            (message, application(OF_THE_SERVER.to_owned(), info.non_retryable))
        }
        Some(FailureInfo::ResetWorkflowFailureInfo(_)) => (message, application("ResetWorkflow".to_owned(), true)),
        Some(FailureInfo::NexusOperationExecutionFailureInfo(_)) => {
            (message, application("NexusOperation".to_owned(), true))
        }
        Some(FailureInfo::NexusHandlerFailureInfo(_)) => (message, application("NexusHandler".to_owned(), true)),
        None => (message, application(String::new(), false)),
    }
}

fn child_in(message: String, info: proto::ChildWorkflowExecutionFailureInfo) -> (String, FailureKind) {
    let retry_state = state_in(info.retry_state());
    let execution = info.workflow_execution.unwrap_or_default();
    let named = info.workflow_type.and_then(|named| WorkflowType::new(named.name).ok());
    match (named, WorkflowId::new(&execution.workflow_id)) {
        (Some(workflow_type), Ok(workflow_id)) => {
            let (text, run_id) = (format!("child workflow {workflow_id} failed"), execution.run_id.parse().ok());
            (text, FailureKind::ChildWorkflow { workflow_type, workflow_id, run_id, retry_state })
        }
        _ => (message, Failure::application(OF_THE_SERVER, "").kind),
    }
}

fn timeout_out(timeout: TimeoutType) -> enums::TimeoutType {
    match timeout {
        TimeoutType::ScheduleToClose => enums::TimeoutType::ScheduleToClose,
        TimeoutType::ScheduleToStart => enums::TimeoutType::ScheduleToStart,
        TimeoutType::StartToClose => enums::TimeoutType::StartToClose,
        TimeoutType::Heartbeat => enums::TimeoutType::Heartbeat,
    }
}

fn timeout_in(timeout: enums::TimeoutType) -> TimeoutType {
    match timeout {
        enums::TimeoutType::ScheduleToClose => TimeoutType::ScheduleToClose,
        enums::TimeoutType::ScheduleToStart => TimeoutType::ScheduleToStart,
        enums::TimeoutType::Heartbeat => TimeoutType::Heartbeat,
        enums::TimeoutType::StartToClose | enums::TimeoutType::Unspecified => TimeoutType::StartToClose,
    }
}

fn state_out(state: RetryState) -> enums::RetryState {
    match state {
        RetryState::NonRetryableFailure => enums::RetryState::NonRetryableFailure,
        RetryState::MaximumAttemptsReached => enums::RetryState::MaximumAttemptsReached,
        RetryState::Timeout => enums::RetryState::Timeout,
        RetryState::RetryPolicyNotSet => enums::RetryState::RetryPolicyNotSet,
        RetryState::CancelRequested => enums::RetryState::CancelRequested,
    }
}

fn state_in(state: enums::RetryState) -> Option<RetryState> {
    Some(match state {
        enums::RetryState::NonRetryableFailure => RetryState::NonRetryableFailure,
        enums::RetryState::MaximumAttemptsReached => RetryState::MaximumAttemptsReached,
        enums::RetryState::Timeout => RetryState::Timeout,
        enums::RetryState::RetryPolicyNotSet => RetryState::RetryPolicyNotSet,
        enums::RetryState::CancelRequested => RetryState::CancelRequested,
        enums::RetryState::Unspecified | enums::RetryState::InProgress | enums::RetryState::InternalServerError => {
            return None;
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_come_back_as_they_were() {
        let root = Failure::application("CardDeclined", "no").non_retryable().with_details(Payload::raw_json("7"));
        let activity = Failure {
            message: "activity charge failed".into(),
            kind: FailureKind::Activity {
                activity_type: "charge".into(),
                activity_id: "1".into(),
                retry_state: RetryState::NonRetryableFailure,
            },
            cause: Some(Box::new(root)),
        };
        let child = Failure {
            message: "child workflow c1 failed".into(),
            kind: FailureKind::ChildWorkflow {
                workflow_type: "ship".into(),
                workflow_id: "c1".into(),
                run_id: Some(RunId([7; 16])),
                retry_state: None,
            },
            cause: Some(Box::new(activity)),
        };
        let timeout = Failure::timeout(TimeoutType::Heartbeat, Some(Payload::raw_json("\"half\"")));
        for failure in [child, timeout, Failure::canceled("by the user")] {
            assert_eq!(failure_in(failure_out(&failure)), failure);
        }
    }
}
