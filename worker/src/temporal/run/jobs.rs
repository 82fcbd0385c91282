//! From what a cluster tells to what the code hears.
//!
//! Invariant: one of their jobs is at most one of ours. An end whose number nobody knows is one that the code does not wait for
//! any more, and is not told. What the code cannot be told (names that are none of ours) fails the workflow task, not the run.

use bosun_engine::*;
use temporalio_common::protos::coresdk::activity_result::activity_resolution::Status as Ended;
use temporalio_common::protos::coresdk::child_workflow::StartChildWorkflowExecutionFailedCause as NotStarted;
use temporalio_common::protos::coresdk::child_workflow::child_workflow_result::Status as ChildEnded;
use temporalio_common::protos::coresdk::workflow_activation as core;
use temporalio_common::protos::coresdk::workflow_activation::resolve_child_workflow_execution_start::Status as ChildStart;
use temporalio_common::protos::temporal::api::enums::v1::{
    CancelExternalWorkflowExecutionFailedCause, SignalExternalWorkflowExecutionFailedCause,
};

use super::numbers::Kind;
use super::{ClusterRun, TaskFailed};
use crate::temporal::convert::*;
use crate::temporal::{CARRIED_SIGNALS, SEQ, WORKER_SHUTDOWN};

/// The end of an activity in the words of the embedded engine.
fn of_an_activity(mut failure: Failure) -> Failure {
    if let FailureKind::Activity { retry_state, .. } = &mut failure.kind
        && let Some(cause) = failure.cause.as_mut().filter(|cause| matches!(cause.kind, FailureKind::Canceled { .. }))
    {
        cause.message = "activity canceled".to_owned();
        *retry_state = RetryState::CancelRequested;
    }
    failure
}

/// Of whom nothing is heard is gone, as is one that has left.
fn of_a_lost_worker(mut failure: Failure) -> Failure {
    let left = |cause: &&mut Box<Failure>| match &cause.kind {
        FailureKind::Timeout { timeout, .. } => *timeout == TimeoutType::Heartbeat,
        FailureKind::Application { failure_type, .. } => failure_type == WORKER_SHUTDOWN,
        _ => false,
    };
    if let Some(cause) = failure.cause.as_mut().filter(left) {
        **cause = Failure { message: WORKER_GONE.to_owned(), kind: FailureKind::WorkerLost, cause: None };
        // No policy of a cluster is for lost workers: whoever asked decides whether the call is made again.
        if let FailureKind::Activity { retry_state, .. } = &mut failure.kind {
            *retry_state = RetryState::RetryPolicyNotSet;
        }
    }
    failure
}

/// In the words of the embedded engine.
const WORKER_GONE: &str = "the worker that ran the attempt is gone";

/// The end of a child in the words of the embedded engine.
fn of_a_child(mut failure: Failure) -> Failure {
    if let FailureKind::ChildWorkflow { retry_state, .. } = &mut failure.kind {
        *retry_state = None;
    }
    if let Some(cause) = failure.cause.as_mut() {
        match cause.kind {
            FailureKind::Canceled { .. } => cause.message = "child workflow canceled".to_owned(),
            FailureKind::Terminated => cause.message = "terminated".to_owned(),
            _ => {}
        }
    }
    failure
}

/// The start of a run as ours tell it.
pub(in crate::temporal) fn started_of(
    namespace: &Namespace,
    task_queue: &TaskQueue,
    run_id: RunId,
    init: core::InitializeWorkflow,
) -> Result<WorkflowExecutionStarted, TaskFailed> {
    let unusable = |why: InvalidId| TaskFailed::of_the_code(format!("the start of the run cannot be told: {why}"));
    let carried = init.headers.get(CARRIED_SIGNALS).cloned().map(payload_in);
    let carried_signals = carried.and_then(|carried| carried.decode().ok()).unwrap_or_default();
    let seq_of_parent =
        init.headers.get(SEQ).cloned().and_then(|seq| payload_in(seq).decode().ok()).unwrap_or_default();
    let parent = init.parent_workflow_info.as_ref().filter(|parent| !parent.workflow_id.is_empty());
    let parent = parent.and_then(|parent| {
        Some(Parent {
            workflow_id: WorkflowId::new(&parent.workflow_id).ok()?,
            run_id: run_id_in(&parent.run_id)?,
            seq: Seq(seq_of_parent),
            close_policy: ParentClosePolicy::default(),
        })
    });
    Ok(WorkflowExecutionStarted {
        namespace: namespace.clone(),
        workflow_id: WorkflowId::new(init.workflow_id).map_err(unusable)?,
        workflow_type: WorkflowType::new(init.workflow_type).map_err(unusable)?,
        task_queue: task_queue.clone(),
        input: payloads_in(init.arguments),
        execution_deadline: instant_in(init.workflow_execution_expiration_time),
        run_timeout: period_in(init.workflow_run_timeout),
        retry_policy: init.retry_policy.map(retry_in),
        attempt: Attempt(u32::try_from(init.attempt).unwrap_or(1).max(1)),
        first_run: run_id_in(&init.first_execution_run_id).unwrap_or(run_id),
        continued_from: run_id_in(&init.continued_from_execution_run_id),
        last_failure: init.continued_failure.map(failure_in),
        start_at: None,
        parent,
        memo: memo_in(init.memo),
        search_attributes: attributes_in(init.search_attributes),
        request_id: None,
        identity: Identity::new(init.identity).ok(),
        summary: None,
        details: None,
        carried_signals,
        carried_request_ids: Vec::new(),
        forked_from: None,
        priority: priority_in(init.priority),
        numbering: Some(IdNumbering::ByKind),
        signals_at_start: None,
    })
}

pub(super) fn signal_in(signal: core::SignalWorkflow) -> Result<Job, TaskFailed> {
    let name = SignalName::new(signal.signal_name)
        .map_err(|why| TaskFailed::of_the_code(format!("a signal cannot be told: {why}")))?;
    let (input, identity) = (payloads_in(signal.input), Identity::new(signal.identity).ok());
    Ok(Job::SignalWorkflow(WorkflowExecutionSignaled { name, input, identity, request_id: None }))
}

impl ClusterRun {
    pub(super) fn activity_ended(&mut self, resolved: core::ResolveActivity) -> Option<Job> {
        if self.recording.remove(&resolved.seq) {
            return None;
        }
        let result = match resolved.result?.status? {
            Ended::Completed(done) => Ok(done.result.map(payload_in).unwrap_or_default()),
            Ended::Failed(failed) => Err(failure_in(failed.failure.unwrap_or_default())),
            Ended::Cancelled(canceled) => Err(failure_in(canceled.failure.unwrap_or_default())),
            // Only of local activities with a policy of their own, which ours have not.
            Ended::Backoff(_) => return None,
        };
        let seq = self.numbers.ended(Kind::Activity, resolved.seq)?;
        let beaten = self.beaten.remove(&seq);
        let in_our_words =
            |failure| if beaten { of_a_lost_worker(of_an_activity(failure)) } else { of_an_activity(failure) };
        Some(Job::ResolveActivity { seq, result: result.map_err(in_our_words) })
    }

    pub(super) fn child_started(&mut self, resolved: core::ResolveChildWorkflowExecutionStart) -> Option<Job> {
        let seq = self.numbers.ours(Kind::Child, resolved.seq)?;
        let result = match resolved.status? {
            ChildStart::Succeeded(started) => Ok(run_id_in(&started.run_id)?),
            ChildStart::Failed(failed) => Err(self.no_child(seq, failed.cause())),
            ChildStart::Cancelled(canceled) => Err(failure_in(canceled.failure.unwrap_or_default())),
        };
        if result.is_err() {
            self.numbers.ended(Kind::Child, resolved.seq);
            self.children.remove(&seq);
        }
        Some(Job::ResolveChildWorkflowStart { seq, result })
    }

    /// In the words of the embedded engine.
    fn no_child(&self, seq: Seq, cause: NotStarted) -> Failure {
        let why = match cause {
            NotStarted::WorkflowAlreadyExists => "its workflow id is in use",
            NotStarted::NamespaceNotFound => "there is no such namespace",
            NotStarted::Unspecified | NotStarted::InvalidVersioningOverride => "the cluster did not start it",
        };
        let why = Failure::application("ChildWorkflowNotStarted", why).non_retryable();
        let Some((workflow_type, workflow_id)) = self.children.get(&seq) else { return why };
        let (workflow_type, workflow_id) = (workflow_type.clone(), workflow_id.clone());
        Failure {
            message: format!("child workflow {workflow_id} failed"),
            kind: FailureKind::ChildWorkflow { workflow_type, workflow_id, run_id: None, retry_state: None },
            cause: Some(Box::new(why)),
        }
    }

    pub(super) fn child_ended(&mut self, resolved: core::ResolveChildWorkflowExecution) -> Option<Job> {
        let result = match resolved.result?.status? {
            ChildEnded::Completed(done) => Ok(done.result.map(payload_in).unwrap_or_default()),
            ChildEnded::Failed(failed) => Err(of_a_child(failure_in(failed.failure.unwrap_or_default()))),
            ChildEnded::Cancelled(canceled) => Err(of_a_child(failure_in(canceled.failure.unwrap_or_default()))),
        };
        let seq = self.numbers.ended(Kind::Child, resolved.seq)?;
        self.children.remove(&seq);
        Some(Job::ResolveChildWorkflow { seq, result })
    }

    pub(super) fn signal_delivered(&mut self, resolved: core::ResolveSignalExternalWorkflow) -> Option<Job> {
        let failed = resolved.failure.clone().map(|_| {
            not_delivered(match resolved.cause() {
                SignalExternalWorkflowExecutionFailedCause::NamespaceNotFound => "there is no such namespace",
                SignalExternalWorkflowExecutionFailedCause::SignalCountLimitExceeded => "it takes no more signals",
                SignalExternalWorkflowExecutionFailedCause::ExternalWorkflowExecutionNotFound
                | SignalExternalWorkflowExecutionFailedCause::Unspecified => NOBODY,
            })
        });
        let seq = self.numbers.ended(Kind::ExternalSignal, resolved.seq)?;
        Some(Job::ResolveSignalExternal { seq, result: failed.map_or(Ok(()), Err) })
    }

    pub(super) fn cancel_delivered(&mut self, resolved: core::ResolveRequestCancelExternalWorkflow) -> Option<Job> {
        let failed = resolved.failure.clone().map(|_| {
            not_delivered(match resolved.cause() {
                CancelExternalWorkflowExecutionFailedCause::NamespaceNotFound => "there is no such namespace",
                CancelExternalWorkflowExecutionFailedCause::ExternalWorkflowExecutionNotFound
                | CancelExternalWorkflowExecutionFailedCause::Unspecified => NOBODY,
            })
        });
        let seq = self.numbers.ended(Kind::ExternalCancel, resolved.seq)?;
        Some(Job::ResolveCancelExternal { seq, result: failed.map_or(Ok(()), Err) })
    }
}

const NOBODY: &str = "no open workflow execution has this id";

fn not_delivered(why: &str) -> Failure {
    Failure::application("ExternalWorkflowNotReached", why)
}
