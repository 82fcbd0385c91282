//! From what the code asks for to what a cluster carries out.
//!
//! Invariant: one of our commands is at most one of theirs, in the order asked. Retries, timeouts, cancellation and the fate of
//! children are options that go along: the cluster sees to them, nothing here does. What is canceled twice is asked once.

use std::collections::HashMap;
use std::time::Duration;

use bosun_engine::*;
use temporalio_common::protos::coresdk::common::NamespacedWorkflowExecution;
use temporalio_common::protos::coresdk::workflow_commands as core;
use temporalio_common::protos::coresdk::workflow_commands::workflow_command::Variant;
use temporalio_common::protos::temporal::api::common::v1 as common;

use super::ClusterRun;
use super::numbers::Kind;
use crate::temporal::convert::*;
use crate::temporal::{BEAT_TIMEOUT, BEATEN, BEATS, CARRIED_SIGNALS, SEQ, SIDE_EFFECT};

/// A value that is recorded is there already: nothing of it takes long.
const SIDE_EFFECT_TIMEOUT: Duration = Duration::from_secs(10);
/// No timer of a cluster is shorter.
const SHORTEST_TIMER: Duration = Duration::from_millis(1);

impl ClusterRun {
    /// The command of a cluster for one of ours; none where what it is about has ended.
    // long: one arm a command.
    pub(super) fn command(&mut self, at: Timestamp, command: Command) -> Option<core::WorkflowCommand> {
        let mut summary = None;
        let variant = match command {
            Command::ScheduleActivity { seq, activity_id, activity_type, input, options } => {
                summary = options.summary.clone();
                self.schedule(seq, activity_id, &activity_type, &input, &options)
            }
            Command::RequestCancelActivity { seq } => {
                let (_, seq) = self.numbers.of(seq)?;
                Variant::RequestCancelActivity(core::RequestCancelActivity { seq })
            }
            Command::StartTimer { seq, fire_at, summary: what } => {
                summary = what;
                let after = fire_at.since(at).max(SHORTEST_TIMER);
                let seq = self.numbers.give(Kind::Timer, seq);
                Variant::StartTimer(core::StartTimer { seq, start_to_fire_timeout: Some(period_out(after)) })
            }
            Command::CancelTimer { seq } => {
                let (kind, number) = self.numbers.of(seq)?;
                self.numbers.ended(kind, number);
                Variant::CancelTimer(core::CancelTimer { seq: number })
            }
            Command::StartChildWorkflow { seq, workflow_id, workflow_type, input, options } => {
                summary = options.summary.clone();
                let start = core::StartChildWorkflowExecution {
                    seq: self.numbers.give(Kind::Child, seq),
                    namespace: self.namespace.to_string(),
                    workflow_id: workflow_id.to_string(),
                    workflow_type: workflow_type.to_string(),
                    input: vec![payload_out(&input)],
                    headers: numbered(seq),
                    ..Default::default()
                };
                self.children.insert(seq, (workflow_type, workflow_id));
                Variant::StartChildWorkflowExecution(child_options(&options, &self.task_queue, start))
            }
            Command::CancelChildWorkflow { seq, reason } => {
                let (_, child_workflow_seq) = self.numbers.of(seq)?;
                Variant::CancelChildWorkflowExecution(core::CancelChildWorkflowExecution { child_workflow_seq, reason })
            }
            Command::SignalExternalWorkflow { seq, target, name, input } => {
                Variant::SignalExternalWorkflowExecution(core::SignalExternalWorkflowExecution {
                    seq: self.numbers.give(Kind::ExternalSignal, seq),
                    signal_name: name.to_string(),
                    args: vec![payload_out(&input)],
                    headers: numbered(seq),
                    target: Some(core::signal_external_workflow_execution::Target::WorkflowExecution(
                        self.execution(&target),
                    )),
                })
            }
            Command::RequestCancelExternalWorkflow { seq, target, reason } => {
                Variant::RequestCancelExternalWorkflowExecution(core::RequestCancelExternalWorkflowExecution {
                    seq: self.numbers.give(Kind::ExternalCancel, seq),
                    workflow_execution: Some(self.execution(&target)),
                    reason,
                })
            }
            Command::RecordMarker(Marker::SideEffect { seq, value }) => self.side_effect(seq, &value),
            Command::RecordMarker(Marker::Patch { id, deprecated }) => {
                Variant::SetPatchMarker(core::SetPatchMarker { patch_id: id.to_string(), deprecated })
            }
            Command::UpsertSearchAttributes { attributes } => {
                let search_attributes = attributes_out(&attributes);
                Variant::UpsertWorkflowSearchAttributes(core::UpsertWorkflowSearchAttributes { search_attributes })
            }
            Command::ModifyMemo { memo } => {
                let upserted_memo = Some(common::Memo { fields: memo_out(&memo) });
                Variant::ModifyWorkflowProperties(core::ModifyWorkflowProperties { upserted_memo })
            }
            Command::CompleteUpdate { update_id, result } => self.answer_update(&update_id, result)?,
            Command::CompleteWorkflow { result, .. } => {
                Variant::CompleteWorkflowExecution(core::CompleteWorkflowExecution {
                    result: Some(payload_out(&result)),
                })
            }
            Command::FailWorkflow { failure, .. } => {
                Variant::FailWorkflowExecution(core::FailWorkflowExecution { failure: Some(failure_out(&failure)) })
            }
            Command::CancelWorkflow { details, .. } => {
                let details = details.as_ref().map(payloads_out);
                Variant::CancelWorkflowExecution(core::CancelWorkflowExecution { details })
            }
            Command::ContinueAsNew { workflow_type, input, options, unconsumed_signals } => {
                self.continue_as_new(workflow_type, &input, &options, &unconsumed_signals)
            }
        };
        let user_metadata = summary_out(summary.as_deref(), None);
        Some(core::WorkflowCommand { variant: Some(variant), user_metadata, ..Default::default() })
    }

    fn schedule(
        &mut self,
        seq: Seq,
        activity_id: ActivityId,
        activity_type: &ActivityType,
        input: &Payload,
        options: &ActivityOptions,
    ) -> Variant {
        let number = self.numbers.give(Kind::Activity, seq);
        // A cluster does not see that a worker is gone, as the embedded engine does; it has to be told that one lives.
        let (mut headers, mut heartbeat) = (numbered(seq), options.heartbeat);
        let is_here = options.task_queue.as_ref().is_none_or(|queue| queue.as_str() == self.task_queue);
        let beats = heartbeat.is_none() && is_here && BEATEN.contains(&activity_type.as_str());
        if beats {
            headers.insert(BEATS.to_owned(), payload_out(&Payload::raw_json("true")));
            heartbeat = Some(BEAT_TIMEOUT);
        }
        if self.recorded.beats.get(&seq).copied().unwrap_or(beats) {
            self.beaten.insert(seq);
        }
        let cancellation = match options.cancellation {
            CancellationType::TryCancel | CancellationType::WaitCancellationRequested => {
                core::ActivityCancellationType::TryCancel
            }
            CancellationType::WaitCancellationCompleted => core::ActivityCancellationType::WaitCancellationCompleted,
            CancellationType::Abandon => core::ActivityCancellationType::Abandon,
        };
        Variant::ScheduleActivity(core::ScheduleActivity {
            seq: number,
            activity_id: activity_id.to_string(),
            activity_type: activity_type.to_string(),
            task_queue: options.task_queue.as_ref().map_or_else(|| self.task_queue.clone(), ToString::to_string),
            arguments: vec![payload_out(input)],
            headers,
            schedule_to_close_timeout: options.schedule_to_close.map(period_out),
            schedule_to_start_timeout: options.schedule_to_start.map(period_out),
            start_to_close_timeout: options.start_to_close.map(period_out),
            heartbeat_timeout: heartbeat.map(period_out),
            retry_policy: options.retry_policy.as_ref().map(retry_out),
            cancellation_type: cancellation.into(),
            priority: options.priority.as_ref().map(priority_out),
            ..Default::default()
        })
    }

    /// The value is known; a local activity that gives it back brings it into the history.
    fn side_effect(&mut self, seq: Seq, value: &Payload) -> Variant {
        let number = self.numbers.give_to_nobody(Kind::Activity);
        self.recording.insert(number);
        Variant::ScheduleLocalActivity(core::ScheduleLocalActivity {
            seq: number,
            activity_id: format!("{SIDE_EFFECT}-{seq}"),
            activity_type: SIDE_EFFECT.to_owned(),
            attempt: 1,
            arguments: vec![payload_out(value)],
            start_to_close_timeout: Some(period_out(SIDE_EFFECT_TIMEOUT)),
            ..Default::default()
        })
    }

    fn answer_update(&mut self, update_id: &UpdateId, result: Result<Payload, Failure>) -> Option<Variant> {
        use core::update_response::Response;
        let protocol_instance_id = self.updates.remove(update_id)?;
        let response = match result {
            Ok(result) => Response::Completed(payload_out(&result)),
            // After its acceptance this is how it fails.
            Err(failure) => Response::Rejected(failure_out(&failure)),
        };
        Some(Variant::UpdateResponse(core::UpdateResponse { protocol_instance_id, response: Some(response) }))
    }

    fn continue_as_new(
        &self,
        workflow_type: Option<WorkflowType>,
        input: &Payload,
        options: &ContinueAsNewOptions,
        signals: &[WorkflowExecutionSignaled],
    ) -> Variant {
        let carried = (!signals.is_empty()).then(|| Payload::encode(signals).unwrap_or_default());
        let headers = carried.map(|carried| (CARRIED_SIGNALS.to_owned(), payload_out(&carried)));
        Variant::ContinueAsNewWorkflowExecution(core::ContinueAsNewWorkflowExecution {
            workflow_type: workflow_type.unwrap_or_else(|| self.workflow_type.clone()).to_string(),
            task_queue: options.task_queue.as_ref().map_or_else(|| self.task_queue.clone(), ToString::to_string),
            arguments: vec![payload_out(input)],
            workflow_run_timeout: options.run_timeout.map(period_out),
            memo: options.memo.as_ref().map(memo_out).unwrap_or_default(),
            headers: headers.into_iter().collect(),
            search_attributes: options.search_attributes.as_ref().and_then(attributes_out),
            retry_policy: options.retry_policy.as_ref().map(retry_out),
            ..Default::default()
        })
    }

    fn execution(&self, target: &ExternalTarget) -> NamespacedWorkflowExecution {
        NamespacedWorkflowExecution {
            namespace: self.namespace.to_string(),
            workflow_id: target.workflow_id.to_string(),
            run_id: target.run_id.map_or_else(String::new, |run| run.to_string()),
        }
    }
}

/// Our number goes along: those who read histories, and activities that read what was said before, name things by it.
fn numbered(seq: Seq) -> HashMap<String, common::Payload> {
    HashMap::from([(SEQ.to_owned(), payload_out(&Payload::raw_json(seq.to_string())))])
}
