//! The start of a run as a cluster tells it, and resets, which make a run of another one's history.
//!
//! Invariant: what the cluster does not keep of a start is absent, never guessed.

use bosun_engine::*;

use super::ImportError;
use super::read::*;
use crate::temporal::TemporalEvent;

/// The new run and the one that it was made of, where this event is a reset.
pub(super) fn reset(event: &TemporalEvent) -> Option<(RunId, RunId)> {
    let failed = matches!(event.event_type.as_str(), "WorkflowTaskFailed" | "WorkflowTaskTimedOut");
    let new_run = run_id(text(&event.attributes, "newRunId")).filter(|_| failed)?;
    Some((new_run, run_id(text(&event.attributes, "baseRunId")).unwrap_or(new_run)))
}

/// What a run that was reset says of the one before. How far that came, the event of the reset says.
pub(super) fn forked_from(base: RunId, at: Timestamp, started: &WorkflowExecutionStarted) -> ForkedFrom {
    let point = ForkPoint { workflow_id: started.workflow_id.clone(), run_id: base, event: EventId(1), reset: true };
    ForkedFrom::of(started, point, at)
}

/// From here on a run that was reset is itself.
pub(super) fn reset_here(run_id: RunId, base: RunId, workflow_id: &WorkflowId) -> EventKind {
    // Where it is becomes known with its turn.
    let from = ForkPoint { workflow_id: workflow_id.clone(), run_id: base, event: EventId(0), reset: true };
    EventKind::WorkflowExecutionForked {
        run_id,
        from,
        reason: "reset on the cluster".to_owned(),
        identity: None,
        children: Vec::new(),
    }
}

pub(super) fn started(
    event: &TemporalEvent,
    namespace: &Namespace,
) -> Result<(RunId, WorkflowExecutionStarted), ImportError> {
    let fields = &event.attributes;
    let bad = |field: &'static str| ImportError::BadStart { field };
    let run = run_id(text(fields, "originalExecutionRunId")).ok_or(bad("run id"))?;
    let header = object(fields, "header").and_then(|header| object(header, "fields"));
    let carried = header.and_then(|fields| fields.get("bosun-carried-signals")).map(payload);
    let at_start = header.and_then(|fields| fields.get("bosun-signals-at-start")).map(payload);
    let seq = header.and_then(|fields| fields.get("bosun-seq")).and_then(|seq| payload(seq).decode().ok());
    let parent = object(fields, "parentWorkflowExecution").and_then(|parent| {
        Some(Parent {
            workflow_id: WorkflowId::new(text(parent, "workflowId")).ok()?,
            run_id: run_id(text(parent, "runId"))?,
            seq: Seq(seq.unwrap_or_default()),
            close_policy: ParentClosePolicy::default(),
        })
    });
    let started = WorkflowExecutionStarted {
        namespace: namespace.clone(),
        workflow_id: WorkflowId::new(text(fields, "workflowId")).map_err(|_| bad("workflow id"))?,
        workflow_type: WorkflowType::new(named(fields, "workflowType")).map_err(|_| bad("workflow type"))?,
        task_queue: TaskQueue::new(named(fields, "taskQueue")).map_err(|_| bad("task queue"))?,
        input: payloads(fields, "input").unwrap_or_default(),
        execution_deadline: instant(fields, "workflowExecutionExpirationTime"),
        run_timeout: period(fields, "workflowRunTimeout"),
        retry_policy: retry_policy(fields, "retryPolicy"),
        attempt: Attempt(u32::try_from(event.number("attempt")).unwrap_or(1).max(1)),
        first_run: run_id(text(fields, "firstExecutionRunId")).unwrap_or(run),
        continued_from: run_id(text(fields, "continuedExecutionRunId")),
        last_failure: failure(fields, "continuedFailure"),
        start_at: None,
        parent,
        memo: memo(fields, "memo"),
        search_attributes: attributes(fields, "searchAttributes"),
        request_id: None,
        identity: Identity::new(text(fields, "identity")).ok(),
        summary: summary(fields),
        details: None,
        carried_signals: carried.and_then(|carried| carried.decode().ok()).unwrap_or_default(),
        carried_request_ids: Vec::new(),
        forked_from: None,
        priority: None,
        numbering: Some(IdNumbering::ByKind),
        signals_at_start: at_start.and_then(|signals| signals.decode().ok()),
    };
    Ok((run, started))
}
