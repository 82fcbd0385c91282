//! What a cluster says of a run: its row of a list, and its pending activities.
//!
//! Invariant: a row without a usable id or type is none, and is left out by whoever lists. What a cluster does not keep of a
//! run (the request that started it, its build of ours) is absent, never guessed.

use bosun_engine::*;
use temporalio_common::protos::temporal::api::enums::v1 as enums;
use temporalio_common::protos::temporal::api::history::v1::HistoryEvent;
use temporalio_common::protos::temporal::api::workflow::v1 as proto;

use super::failure::failure_in;
use super::payload::{attributes_in, instant_in, memo_in, payloads_in, run_id_in};

fn run_status(status: enums::WorkflowExecutionStatus) -> WorkflowStatus {
    use enums::WorkflowExecutionStatus as S;
    match status {
        S::Unspecified | S::Running => WorkflowStatus::Running,
        S::Completed => WorkflowStatus::Completed,
        S::Failed => WorkflowStatus::Failed,
        S::Canceled => WorkflowStatus::Canceled,
        S::Terminated => WorkflowStatus::Terminated,
        S::ContinuedAsNew => WorkflowStatus::ContinuedAsNew,
        S::TimedOut => WorkflowStatus::TimedOut,
        S::Paused => WorkflowStatus::Paused,
    }
}

/// `None`: a row that ours cannot name.
pub(in crate::temporal) fn info_of(namespace: &Namespace, row: proto::WorkflowExecutionInfo) -> Option<RunInfo> {
    let status = run_status(row.status());
    let execution = row.execution?;
    let run_id = run_id_in(&execution.run_id)?;
    let workflow_id = WorkflowId::new(execution.workflow_id).ok()?;
    let parent = row.parent_execution.filter(|parent| !parent.workflow_id.is_empty()).and_then(|parent| {
        Some(Parent {
            workflow_id: WorkflowId::new(parent.workflow_id).ok()?,
            run_id: run_id_in(&parent.run_id)?,
            seq: Seq(0),
            close_policy: ParentClosePolicy::default(),
        })
    });
    Some(RunInfo {
        namespace: namespace.clone(),
        workflow_id,
        run_id,
        workflow_type: WorkflowType::new(row.r#type?.name).ok()?,
        task_queue: TaskQueue::new(row.task_queue).unwrap_or_else(|_| TaskQueue::of(DEFAULT_TASK_QUEUE)),
        status,
        started_at: instant_in(row.start_time).unwrap_or_default(),
        closed_at: instant_in(row.close_time),
        history: HistorySize {
            events: u64::try_from(row.history_length).unwrap_or(0),
            bytes: u64::try_from(row.history_size_bytes).unwrap_or(0),
        },
        attempt: Attempt(1),
        first_run: run_id_in(&row.first_run_id).unwrap_or(run_id),
        continued_from: None,
        next_run: None,
        parent,
        memo: memo_in(row.memo),
        search_attributes: attributes_in(row.search_attributes),
        summary: None,
        details: None,
        build: BuildId::default(),
        start_request_id: None,
        forked_from: None,
        held: false,
        hold: None,
    })
}

/// When the code of a run begins, while it is open and has had no workflow task, and its start was delayed.
pub(in crate::temporal) fn begins_at(row: &proto::WorkflowExecutionInfo, events: &[HistoryEvent]) -> Option<Timestamp> {
    let (started, begins) = (instant_in(row.start_time)?, instant_in(row.execution_time)?);
    let begun = events.iter().any(|event| event.event_type() == enums::EventType::WorkflowTaskScheduled);
    (run_status(row.status()).is_open() && begins > started && !begun).then_some(begins)
}

/// `seq` is our number of it.
pub(in crate::temporal) fn pending_activity(
    row: proto::PendingActivityInfo,
    run_id: RunId,
    seq: Seq,
) -> Option<PendingActivity> {
    use enums::PendingActivityState as S;
    let (attempt, paused) = (u32::try_from(row.attempt).unwrap_or(1), row.paused);
    let state = match row.state() {
        _ if paused => PendingActivityState::Paused,
        S::Started => PendingActivityState::Started,
        S::CancelRequested => PendingActivityState::CancelRequested,
        S::Paused | S::PauseRequested => PendingActivityState::Paused,
        S::Scheduled | S::Unspecified if attempt > 1 => PendingActivityState::BackingOff,
        S::Scheduled | S::Unspecified => PendingActivityState::Scheduled,
    };
    let next_attempt_at = instant_in(row.next_attempt_schedule_time).or_else(|| instant_in(row.scheduled_time));
    let runs = matches!(row.state(), S::Started | S::CancelRequested | S::PauseRequested);
    Some(PendingActivity {
        seq,
        activity_id: ActivityId::new(row.activity_id).ok()?,
        activity_type: ActivityType::new(row.activity_type?.name).ok()?,
        state,
        attempt: Attempt(attempt),
        scheduled_at: instant_in(row.scheduled_time).unwrap_or_default(),
        next_attempt_at: next_attempt_at.filter(|_| state == PendingActivityState::BackingOff),
        last_failure: row.last_failure.map(failure_in),
        heartbeat_details: row.heartbeat_details.map(|details| payloads_in(details.payloads)),
        task_token: runs.then(|| TaskToken { run_id, seq, attempt: Attempt(attempt) }.to_string()),
        summary: None,
        // A server does not say.
        task_queue: None,
        options: None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::payload::instant_out;
    use super::*;

    #[test]
    fn a_delayed_start_begins_with_its_first_workflow_task() {
        let row = proto::WorkflowExecutionInfo {
            start_time: Some(instant_out(Timestamp(1_000_000))),
            execution_time: Some(instant_out(Timestamp(9_000_000))),
            ..Default::default()
        };
        let row = |status: enums::WorkflowExecutionStatus| {
            let mut row = row.clone();
            row.set_status(status);
            row
        };
        let event = |kind: enums::EventType| HistoryEvent { event_type: kind.into(), ..Default::default() };
        let waits = [event(enums::EventType::WorkflowExecutionStarted)];
        let begun = [waits[0].clone(), event(enums::EventType::WorkflowTaskScheduled)];
        let open = row(enums::WorkflowExecutionStatus::Running);
        assert_eq!(begins_at(&open, &waits), Some(Timestamp(9_000_000)));
        assert_eq!(begins_at(&open, &begun), None);
        assert_eq!(begins_at(&row(enums::WorkflowExecutionStatus::Terminated), &waits), None);
        let at_once = proto::WorkflowExecutionInfo { execution_time: open.start_time, ..open };
        assert_eq!(begins_at(&at_once, &waits), None);
    }
}
