//! The attributes of exported events about other runs: child workflows, signals and cancel requests.
//!
//! Invariant: the end of a child or request names the run it was about and refers to the event that asked for it.

use bosun_engine::*;
use serde_json::{Value, json};

use super::attributes::numbered;
use super::export::{Exporter, PendingOperation};
use super::protojson::*;

impl<'a> Exporter<'a> {
    pub(super) fn child_initiated(&mut self, initiated: &'a ChildWorkflowInitiated) {
        let options = &initiated.options;
        let queue = options.task_queue.as_ref().unwrap_or(&self.history.started().task_queue);
        let close_policy = match options.parent_close_policy {
            ParentClosePolicy::Terminate => "PARENT_CLOSE_POLICY_TERMINATE",
            ParentClosePolicy::Abandon => "PARENT_CLOSE_POLICY_ABANDON",
            ParentClosePolicy::RequestCancel => "PARENT_CLOSE_POLICY_REQUEST_CANCEL",
        };
        let reuse_policy = match options.id_reuse_policy {
            IdReusePolicy::AllowDuplicate => "WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE",
            IdReusePolicy::AllowDuplicateFailedOnly => "WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE_FAILED_ONLY",
            IdReusePolicy::RejectDuplicate => "WORKFLOW_ID_REUSE_POLICY_REJECT_DUPLICATE",
        };
        let message = self
            .command_in_namespace()
            .text("workflowId", &initiated.workflow_id)
            .set("workflowType", named(&initiated.workflow_type))
            .set("taskQueue", task_queue(queue))
            .set("input", payloads(&initiated.input))
            .maybe("workflowExecutionTimeout", options.execution_timeout, duration)
            .maybe("workflowRunTimeout", options.run_timeout, duration)
            .set("workflowTaskTimeout", "10s")
            .set("parentClosePolicy", close_policy)
            .set("workflowIdReusePolicy", reuse_policy)
            .maybe("retryPolicy", options.retry_policy.as_ref(), retry_policy)
            .set("header", numbered(initiated.seq))
            .maybe("memo", Some(&options.memo).filter(|memo| !memo.is_empty()), memo)
            .maybe(
                "searchAttributes",
                Some(&options.search_attributes).filter(|attributes| !attributes.is_empty()),
                search_attributes,
            );
        let event_type = "START_CHILD_WORKFLOW_EXECUTION_INITIATED";
        let asked = self.write(event_type, "startChildWorkflowExecutionInitiated", message);
        self.note(options.summary.as_deref(), None);
        self.asked(
            initiated.seq,
            PendingOperation { asked, child: Some((initiated, None)), ..PendingOperation::default() },
        );
    }

    /// Temporal asks for the cancellation of a child as it asks for that of any run.
    pub(super) fn child_cancel_requested(&mut self, seq: Seq, reason: &str) {
        let Some((initiated, run_id)) = self.pending.get(&seq).and_then(|pending| pending.child) else { return };
        let message = self
            .command_in_namespace()
            .set("workflowExecution", execution(&initiated.workflow_id, run_id))
            .set("childWorkflowOnly", true)
            .set("reason", reason);
        let event_type = "REQUEST_CANCEL_EXTERNAL_WORKFLOW_EXECUTION_INITIATED";
        let id = self.write(event_type, "requestCancelExternalWorkflowExecutionInitiated", message);
        self.child_cancels.insert(seq, (id, &initiated.workflow_id, run_id));
    }

    pub(super) fn child(&mut self, seq: Seq, event: &EventKind) {
        let Some((initiated, run_id)) = self.pending.get(&seq).and_then(|pending| pending.child) else { return };
        let (asked, started) = self.pending.get(&seq).map_or((0, 0), |pending| (pending.asked, pending.started));
        if let EventKind::StartChildWorkflowExecutionFailed { .. } = event {
            let message = self
                .command_in_namespace()
                .text("workflowId", &initiated.workflow_id)
                .set("workflowType", named(&initiated.workflow_type))
                .set("cause", "START_CHILD_WORKFLOW_EXECUTION_FAILED_CAUSE_WORKFLOW_ALREADY_EXISTS")
                .set("initiatedEventId", asked.to_string());
            let event_type = "START_CHILD_WORKFLOW_EXECUTION_FAILED";
            self.write(event_type, "startChildWorkflowExecutionFailed", message);
            self.pending.remove(&seq);
            return;
        }
        let run_id = match event {
            EventKind::ChildWorkflowExecutionStarted { run_id, .. } => Some(*run_id),
            _ => run_id,
        };
        let message = self
            .in_namespace()
            .set("workflowExecution", execution(&initiated.workflow_id, run_id))
            .set("workflowType", named(&initiated.workflow_type))
            .set("initiatedEventId", asked.to_string());
        if let EventKind::ChildWorkflowExecutionStarted { .. } = event {
            let message = message.set("header", json!({}));
            let started = self.write("CHILD_WORKFLOW_EXECUTION_STARTED", "childWorkflowExecutionStarted", message);
            if let Some(pending) = self.pending.get_mut(&seq) {
                (pending.started, pending.child) = (started, Some((initiated, run_id)));
            }
            return;
        }
        self.child_over(event, message.set("startedEventId", started.to_string()));
        self.pending.remove(&seq);
    }

    fn child_over(&mut self, event: &EventKind, message: ProtoMessage) {
        let (event_type, attributes, message) = match event {
            EventKind::ChildWorkflowExecutionCompleted { result, .. } => (
                "CHILD_WORKFLOW_EXECUTION_COMPLETED",
                "childWorkflowExecutionCompleted",
                message.set("result", payloads(result)),
            ),
            EventKind::ChildWorkflowExecutionFailed { failure: why, .. } => (
                "CHILD_WORKFLOW_EXECUTION_FAILED",
                "childWorkflowExecutionFailed",
                message.set("failure", failure(why)).set("retryState", retry_state(RetryState::RetryPolicyNotSet)),
            ),
            EventKind::ChildWorkflowExecutionCanceled { details, .. } => (
                "CHILD_WORKFLOW_EXECUTION_CANCELED",
                "childWorkflowExecutionCanceled",
                message.maybe("details", details.as_ref(), payloads),
            ),
            EventKind::ChildWorkflowExecutionTimedOut { .. } => (
                "CHILD_WORKFLOW_EXECUTION_TIMED_OUT",
                "childWorkflowExecutionTimedOut",
                message.set("retryState", retry_state(RetryState::Timeout)),
            ),
            EventKind::ChildWorkflowExecutionTerminated { .. } => {
                ("CHILD_WORKFLOW_EXECUTION_TERMINATED", "childWorkflowExecutionTerminated", message)
            }
            other => unreachable!("{} does not end a child", other.name()),
        };
        self.write(event_type, attributes, message);
    }

    pub(super) fn external_initiated(&mut self, event: &'a EventKind) {
        match event {
            EventKind::SignalExternalWorkflowExecutionInitiated(initiated) => {
                let message = self
                    .command_in_namespace()
                    .set("workflowExecution", target(&initiated.target))
                    .text("signalName", &initiated.name)
                    .set("input", payloads(&initiated.input))
                    .set("header", numbered(initiated.seq));
                let event_type = "SIGNAL_EXTERNAL_WORKFLOW_EXECUTION_INITIATED";
                let asked = self.write(event_type, "signalExternalWorkflowExecutionInitiated", message);
                let pending =
                    PendingOperation { asked, target: Some(&initiated.target), ..PendingOperation::default() };
                self.asked(initiated.seq, pending);
            }
            EventKind::RequestCancelExternalWorkflowExecutionInitiated { seq, target: to, reason } => {
                let message =
                    self.command_in_namespace().set("workflowExecution", target(to)).set("reason", reason.as_str());
                let event_type = "REQUEST_CANCEL_EXTERNAL_WORKFLOW_EXECUTION_INITIATED";
                let asked = self.write(event_type, "requestCancelExternalWorkflowExecutionInitiated", message);
                self.asked(*seq, PendingOperation { asked, target: Some(to), ..PendingOperation::default() });
            }
            other => unreachable!("{} asks nothing of another run", other.name()),
        }
    }

    pub(super) fn external_over(&mut self, seq: Seq, event: &EventKind) {
        if let Some((cancel_requested, child, run_id)) = self.child_cancels.remove(&seq) {
            // A child that was asked to cancel still ends.
            let (child, initiated) = (execution(child, run_id), cancel_requested.to_string());
            let message = self.in_namespace().set("initiatedEventId", initiated).set("workflowExecution", child);
            let (event_type, attributes) =
                ("EXTERNAL_WORKFLOW_EXECUTION_CANCEL_REQUESTED", "externalWorkflowExecutionCancelRequested");
            self.write(event_type, attributes, message);
            return;
        }
        let pending = self.pending.remove(&seq).unwrap_or_default();
        let message = self.in_namespace().set("initiatedEventId", pending.asked.to_string()).maybe(
            "workflowExecution",
            pending.target,
            target,
        );
        let task = self.task_completed.to_string();
        let (event_type, attributes, message) = match event {
            EventKind::ExternalWorkflowExecutionSignaled { .. } => {
                ("EXTERNAL_WORKFLOW_EXECUTION_SIGNALED", "externalWorkflowExecutionSignaled", message)
            }
            EventKind::ExternalWorkflowExecutionCancelRequested { .. } => {
                ("EXTERNAL_WORKFLOW_EXECUTION_CANCEL_REQUESTED", "externalWorkflowExecutionCancelRequested", message)
            }
            EventKind::SignalExternalWorkflowExecutionFailed { .. } => (
                "SIGNAL_EXTERNAL_WORKFLOW_EXECUTION_FAILED",
                "signalExternalWorkflowExecutionFailed",
                message.set("workflowTaskCompletedEventId", task).set(
                    "cause",
                    "SIGNAL_EXTERNAL_WORKFLOW_EXECUTION_FAILED_CAUSE_EXTERNAL_WORKFLOW_EXECUTION_NOT_FOUND",
                ),
            ),
            EventKind::RequestCancelExternalWorkflowExecutionFailed { .. } => (
                "REQUEST_CANCEL_EXTERNAL_WORKFLOW_EXECUTION_FAILED",
                "requestCancelExternalWorkflowExecutionFailed",
                message.set("workflowTaskCompletedEventId", task).set(
                    "cause",
                    "CANCEL_EXTERNAL_WORKFLOW_EXECUTION_FAILED_CAUSE_EXTERNAL_WORKFLOW_EXECUTION_NOT_FOUND",
                ),
            ),
            other => unreachable!("{} does not end a request to another run", other.name()),
        };
        self.write(event_type, attributes, message);
    }
}

fn target(target: &ExternalTarget) -> Value {
    execution(&target.workflow_id, target.run_id)
}
