//! The attributes of each exported event, family by family.
//!
//! Invariant: every event kind is spelled out, so that a new one must be given a Temporal form (or none) before this
//! compiles. References come from what the exporter remembers; the order of events is its affair.
//!
//! Long: one arm an event kind.

use bosun_engine::*;
use serde_json::{Value, json};

use super::export::{Exporter, PendingOperation};
use super::protojson::*;

impl<'a> Exporter<'a> {
    // Long because it is a list: every event kind once, by family.
    // long: one exhaustive match; a variant more is a line more.
    pub(super) fn event(&mut self, event: &'a EventKind) {
        use EventKind::*;
        match event {
            WorkflowExecutionStarted(started) => self.started(started),
            WorkflowExecutionSignaled(_)
            | WorkflowExecutionCancelRequested { .. }
            | WorkflowExecutionPaused { .. }
            | WorkflowExecutionUnpaused { .. } => self.request(event),
            WorkflowExecutionUpdateAccepted { .. } | WorkflowExecutionUpdateCompleted { .. } => self.update(event),
            ActivityTaskScheduled(scheduled) => self.activity_scheduled(scheduled),
            ActivityTaskStarted { seq, attempt } => {
                let at = self.at;
                if let Some(pending) = self.pending.get_mut(seq) {
                    (pending.attempt, pending.attempt_at) = (*attempt, at);
                }
            }
            ActivityTaskAttemptFailed { seq, failure, .. } => {
                if let Some(pending) = self.pending.get_mut(seq) {
                    pending.last_failure = Some(failure);
                }
            }
            ActivityTaskCancelRequested { seq } => self.activity_cancel_requested(*seq),
            ActivityTaskCompleted { seq, .. }
            | ActivityTaskFailed { seq, .. }
            | ActivityTaskTimedOut { seq, .. }
            | ActivityTaskCanceled { seq, .. } => self.activity_over(*seq, event),
            TimerStarted { .. } | TimerFired { .. } | TimerCanceled { .. } => self.timer(event),
            StartChildWorkflowExecutionInitiated(initiated) => self.child_initiated(initiated),
            ChildWorkflowExecutionCancelRequested { seq, reason } => self.child_cancel_requested(*seq, reason),
            StartChildWorkflowExecutionFailed { seq, .. }
            | ChildWorkflowExecutionStarted { seq, .. }
            | ChildWorkflowExecutionCompleted { seq, .. }
            | ChildWorkflowExecutionFailed { seq, .. }
            | ChildWorkflowExecutionCanceled { seq, .. }
            | ChildWorkflowExecutionTimedOut { seq }
            | ChildWorkflowExecutionTerminated { seq, .. } => self.child(*seq, event),
            SignalExternalWorkflowExecutionInitiated(_) | RequestCancelExternalWorkflowExecutionInitiated { .. } => {
                self.external_initiated(event)
            }
            ExternalWorkflowExecutionSignaled { seq }
            | SignalExternalWorkflowExecutionFailed { seq, .. }
            | ExternalWorkflowExecutionCancelRequested { seq }
            | RequestCancelExternalWorkflowExecutionFailed { seq, .. } => self.external_over(*seq, event),
            MarkerRecorded(marker) => self.marker(marker),
            UpsertWorkflowSearchAttributes { .. } | WorkflowPropertiesModified { .. } => self.properties(event),
            WorkflowExecutionCompleted { .. }
            | WorkflowExecutionFailed { .. }
            | WorkflowExecutionTimedOut { .. }
            | WorkflowExecutionCanceled { .. }
            | WorkflowExecutionTerminated { .. } => self.closed(event),
            WorkflowExecutionContinuedAsNew(next) => self.continued_as_new(next),
            // Temporal has no such events: see the list in `export`.
            FirstWorkflowTaskScheduled
            | ActivityTaskAwaitingCompletion { .. }
            | ActivityTaskPaused { .. }
            | ActivityTaskUnpaused { .. }
            | ActivityPropertiesModifiedExternally { .. }
            | WorkflowExecutionForked { .. } => {}
        }
    }

    fn command(&self) -> ProtoMessage {
        ProtoMessage::new().set("workflowTaskCompletedEventId", self.task_completed.to_string())
    }
    fn namespace(&self) -> &'a str {
        self.history.started().namespace.as_str()
    }

    fn started(&mut self, started: &'a WorkflowExecutionStarted) {
        let parent = started.parent.as_ref();
        let run_id = self.history.run_id();
        let message = ProtoMessage::new()
            .set("workflowType", named(&started.workflow_type))
            .maybe("parentWorkflowNamespace", parent, |_| json!(started.namespace))
            .maybe("parentWorkflowExecution", parent, |of| execution(&of.workflow_id, Some(of.run_id)))
            .set("taskQueue", task_queue(&started.task_queue))
            .set("input", payloads(&started.input))
            .maybe("workflowExecutionTimeout", started.execution_deadline, |end| duration(end.since(self.at)))
            .maybe("workflowRunTimeout", started.run_timeout, duration)
            .set("workflowTaskTimeout", "10s")
            .maybe("continuedExecutionRunId", started.continued_from, |run| json!(run))
            .maybe("initiator", started.continued_from, |_| {
                json!(match started.attempt {
                    Attempt(1) => "CONTINUE_AS_NEW_INITIATOR_WORKFLOW",
                    Attempt(_) => "CONTINUE_AS_NEW_INITIATOR_RETRY",
                })
            })
            .maybe("continuedFailure", started.last_failure.as_ref(), failure)
            .set("originalExecutionRunId", started.original_run(run_id).to_string())
            .maybe("identity", started.identity.as_ref(), |identity| json!(identity))
            .set("firstExecutionRunId", started.first_run.to_string())
            .maybe("retryPolicy", started.retry_policy.as_ref(), retry_policy)
            .set("attempt", started.attempt.0)
            .maybe("workflowExecutionExpirationTime", started.execution_deadline, |end| json!(end.to_string()))
            .maybe("firstWorkflowTaskBackoff", started.start_at, |start| duration(start.since(self.at)))
            .maybe("memo", Some(&started.memo).filter(|memo| !memo.is_empty()), memo)
            .maybe(
                "searchAttributes",
                Some(&started.search_attributes).filter(|attributes| !attributes.is_empty()),
                search_attributes,
            )
            .set("header", started_header(started))
            .text("workflowId", &started.workflow_id);
        self.write("WORKFLOW_EXECUTION_STARTED", "workflowExecutionStarted", message);
        self.note(started.summary.as_deref(), started.details.as_deref());
    }

    fn request(&mut self, event: &EventKind) {
        let identity_of = |identity: &Option<Identity>| identity.as_ref().map_or(Value::Null, |name| json!(name));
        let (event_type, attributes, message) = match event {
            EventKind::WorkflowExecutionSignaled(signal) => (
                "WORKFLOW_EXECUTION_SIGNALED",
                "workflowExecutionSignaled",
                ProtoMessage::new()
                    .text("signalName", &signal.name)
                    .set("input", payloads(&signal.input))
                    .set("identity", identity_of(&signal.identity))
                    .set("header", json!({})),
            ),
            EventKind::WorkflowExecutionCancelRequested { reason, identity, request_id: _ } => (
                "WORKFLOW_EXECUTION_CANCEL_REQUESTED",
                "workflowExecutionCancelRequested",
                ProtoMessage::new().set("cause", reason.as_str()).set("identity", identity_of(identity)),
            ),
            EventKind::WorkflowExecutionPaused { reason, identity } => (
                "WORKFLOW_EXECUTION_PAUSED",
                "workflowExecutionPaused",
                ProtoMessage::new().set("identity", identity_of(identity)).set("reason", reason.as_str()),
            ),
            EventKind::WorkflowExecutionUnpaused { reason, identity } => (
                "WORKFLOW_EXECUTION_UNPAUSED",
                "workflowExecutionUnpaused",
                ProtoMessage::new().set("identity", identity_of(identity)).set("reason", reason.as_str()),
            ),
            other => unreachable!("{} is not a request", other.name()),
        };
        self.write(event_type, attributes, message);
        // A server says so of what code needs not know; without it, replayers refuse what they do not know.
        if let EventKind::WorkflowExecutionPaused { .. } | EventKind::WorkflowExecutionUnpaused { .. } = event
            && let Some(written) = self.written.last_mut()
        {
            written["workerMayIgnore"] = Value::Bool(true);
        }
    }

    fn update(&mut self, event: &'a EventKind) {
        match event {
            EventKind::WorkflowExecutionUpdateAccepted { update_id, name, input, identity } => {
                let meta = ProtoMessage::new()
                    .text("updateId", update_id)
                    .maybe("identity", identity.as_ref(), |identity| json!(identity))
                    .done();
                let request = json!({
                    "meta": meta,
                    "input": { "header": {}, "name": name, "args": payloads(input) },
                });
                let message = ProtoMessage::new()
                    .text("protocolInstanceId", update_id)
                    .set("acceptedRequestMessageId", format!("{update_id}/request"))
                    .set("acceptedRequestSequencingEventId", self.task_completed.saturating_sub(2).to_string())
                    .set("acceptedRequest", request);
                let attributes = "workflowExecutionUpdateAccepted";
                let id = self.write("WORKFLOW_EXECUTION_UPDATE_ACCEPTED", attributes, message);
                self.updates.insert(update_id, id);
            }
            EventKind::WorkflowExecutionUpdateCompleted { update_id, result } => {
                let outcome = match result {
                    Ok(result) => json!({ "success": payloads(result) }),
                    Err(why) => json!({ "failure": failure(why) }),
                };
                let message = ProtoMessage::new()
                    .set("meta", json!({ "updateId": update_id }))
                    .set("acceptedEventId", self.updates.get(update_id).copied().unwrap_or(0).to_string())
                    .set("outcome", outcome);
                self.write("WORKFLOW_EXECUTION_UPDATE_COMPLETED", "workflowExecutionUpdateCompleted", message);
            }
            other => unreachable!("{} is not about updates", other.name()),
        }
    }

    fn activity_scheduled(&mut self, scheduled: &'a ActivityTaskScheduled) {
        let options = &scheduled.options;
        let queue = options.task_queue.as_ref().unwrap_or(&self.history.started().task_queue);
        let policy = options.retry_policy.clone().unwrap_or_default();
        let message = self
            .command()
            .text("activityId", &scheduled.activity_id)
            .set("activityType", named(&scheduled.activity_type))
            .set("taskQueue", task_queue(queue))
            .set("header", numbered(scheduled.seq))
            .set("input", payloads(&scheduled.input))
            .maybe("scheduleToCloseTimeout", options.schedule_to_close, duration)
            .maybe("scheduleToStartTimeout", options.schedule_to_start, duration)
            .maybe("startToCloseTimeout", options.start_to_close, duration)
            .maybe("heartbeatTimeout", options.heartbeat, duration)
            .set("retryPolicy", retry_policy(&policy));
        self.activities += 1;
        let asked = self.write("ACTIVITY_TASK_SCHEDULED", "activityTaskScheduled", message);
        self.note(options.summary.as_deref(), None);
        self.asked(scheduled.seq, PendingOperation { asked, ..PendingOperation::default() });
    }

    fn activity_cancel_requested(&mut self, seq: Seq) {
        let asked = self.pending.get(&seq).map_or(0, |pending| pending.asked);
        let message = self.command().set("scheduledEventId", asked.to_string());
        let id = self.write("ACTIVITY_TASK_CANCEL_REQUESTED", "activityTaskCancelRequested", message);
        if let Some(pending) = self.pending.get_mut(&seq) {
            pending.cancel_requested = id;
        }
    }

    /// The start of the last attempt, if there was one, and the end.
    fn activity_over(&mut self, seq: Seq, event: &EventKind) {
        let pending = self.pending.remove(&seq).unwrap_or_default();
        let mut started = 0;
        if pending.attempt != Attempt(0) {
            let scheduled_at = pending.asked.to_string();
            let message = ProtoMessage::new()
                .set("scheduledEventId", scheduled_at)
                .set("identity", "bosun")
                .set("requestId", idempotency_key(&self.history.run_id(), seq))
                .set("attempt", pending.attempt.0)
                .maybe("lastFailure", pending.last_failure, failure);
            started = self.write_at(pending.attempt_at, "ACTIVITY_TASK_STARTED", "activityTaskStarted", message);
        }
        let references = ProtoMessage::new()
            .set("scheduledEventId", pending.asked.to_string())
            .set("startedEventId", started.to_string());
        let (event_type, attributes, message) = match event {
            EventKind::ActivityTaskCompleted { result, identity, .. } => (
                "ACTIVITY_TASK_COMPLETED",
                "activityTaskCompleted",
                references
                    .set("result", payloads(result))
                    .maybe("identity", identity.as_ref(), |identity| json!(identity)),
            ),
            EventKind::ActivityTaskFailed { failure: why, retry_state: state, .. } => (
                "ACTIVITY_TASK_FAILED",
                "activityTaskFailed",
                references.set("failure", failure(why)).set("retryState", retry_state(*state)),
            ),
            EventKind::ActivityTaskTimedOut { failure: why, retry_state: state, .. } => (
                "ACTIVITY_TASK_TIMED_OUT",
                "activityTaskTimedOut",
                references.set("failure", failure(why)).set("retryState", retry_state(*state)),
            ),
            EventKind::ActivityTaskCanceled { details, .. } => (
                "ACTIVITY_TASK_CANCELED",
                "activityTaskCanceled",
                references
                    .maybe("details", details.as_ref(), payloads)
                    .set("latestCancelRequestedEventId", pending.cancel_requested.to_string()),
            ),
            other => unreachable!("{} does not end an activity", other.name()),
        };
        self.write(event_type, attributes, message);
    }

    fn timer(&mut self, event: &EventKind) {
        match event {
            EventKind::TimerStarted { seq, fire_at, summary } => {
                self.timers += 1;
                let timer = self.timers;
                let message =
                    self.command().text("timerId", timer).set("startToFireTimeout", duration(fire_at.since(self.at)));
                let asked = self.write("TIMER_STARTED", "timerStarted", message);
                self.note(summary.as_deref(), None);
                self.asked(*seq, PendingOperation { asked, timer, ..PendingOperation::default() });
            }
            EventKind::TimerFired { seq } => {
                let PendingOperation { asked: started, timer, .. } = self.pending.remove(seq).unwrap_or_default();
                let message = ProtoMessage::new().text("timerId", timer).set("startedEventId", started.to_string());
                self.write("TIMER_FIRED", "timerFired", message);
            }
            EventKind::TimerCanceled { seq } => {
                let PendingOperation { asked: started, timer, .. } = self.pending.remove(seq).unwrap_or_default();
                let message = self.command().text("timerId", timer).set("startedEventId", started.to_string());
                self.write("TIMER_CANCELED", "timerCanceled", message.set("identity", "bosun"));
            }
            other => unreachable!("{} is not about timers", other.name()),
        }
    }

    fn marker(&mut self, marker: &Marker) {
        let (name, details) = match marker {
            // The markers and the keys of Temporal's core, so that its tools and replayers know them.
            Marker::SideEffect { seq, value } => {
                self.activities += 1;
                let data = local_activity(self.activities, *seq, self.at).to_string();
                let data = payloads(&Payload::raw_json(data));
                ("core_local_activity", json!({ "data": data, "result": payloads(value) }))
            }
            Marker::Patch { id, deprecated } => {
                let data = json!({ "id": id, "deprecated": deprecated }).to_string();
                ("core_patch", json!({ "patch-data": payloads(&Payload::raw_json(data)) }))
            }
        };
        let message = self.command().set("markerName", name).set("details", details);
        self.write("MARKER_RECORDED", "markerRecorded", message);
    }

    fn properties(&mut self, event: &EventKind) {
        match event {
            EventKind::UpsertWorkflowSearchAttributes { attributes } => {
                let message = self.command().set("searchAttributes", search_attributes(attributes));
                self.write("UPSERT_WORKFLOW_SEARCH_ATTRIBUTES", "upsertWorkflowSearchAttributes", message);
            }
            EventKind::WorkflowPropertiesModified { memo: changed } => {
                let message = self.command().set("upsertedMemo", memo(changed));
                self.write("WORKFLOW_PROPERTIES_MODIFIED", "workflowPropertiesModified", message);
            }
            other => unreachable!("{} is not about properties", other.name()),
        }
    }

    pub(super) fn in_namespace(&self) -> ProtoMessage {
        ProtoMessage::new().set("namespace", self.namespace())
    }
    pub(super) fn command_in_namespace(&self) -> ProtoMessage {
        self.command().set("namespace", self.namespace())
    }

    fn closed(&mut self, event: &EventKind) {
        let new_run =
            |message: ProtoMessage, run: &Option<RunId>| message.maybe("newExecutionRunId", *run, |run| json!(run));
        let (event_type, attributes, message) = match event {
            EventKind::WorkflowExecutionCompleted { result, unhandled_signals: _ } => (
                "WORKFLOW_EXECUTION_COMPLETED",
                "workflowExecutionCompleted",
                self.command().set("result", payloads(result)),
            ),
            EventKind::WorkflowExecutionFailed { failure: why, new_run: next, retry_state: state, .. } => (
                "WORKFLOW_EXECUTION_FAILED",
                "workflowExecutionFailed",
                new_run(self.command().set("failure", failure(why)), next).set(
                    "retryState",
                    match next {
                        Some(_) => json!("RETRY_STATE_IN_PROGRESS"),
                        None => retry_state(*state),
                    },
                ),
            ),
            EventKind::WorkflowExecutionTimedOut { timeout: _, new_run: next, .. } => (
                "WORKFLOW_EXECUTION_TIMED_OUT",
                "workflowExecutionTimedOut",
                new_run(ProtoMessage::new(), next).set(
                    "retryState",
                    match next {
                        Some(_) => "RETRY_STATE_IN_PROGRESS",
                        None => "RETRY_STATE_TIMEOUT",
                    },
                ),
            ),
            EventKind::WorkflowExecutionCanceled { details, unhandled_signals: _ } => (
                "WORKFLOW_EXECUTION_CANCELED",
                "workflowExecutionCanceled",
                self.command().maybe("details", details.as_ref(), payloads),
            ),
            EventKind::WorkflowExecutionTerminated { reason, identity, .. } => (
                "WORKFLOW_EXECUTION_TERMINATED",
                "workflowExecutionTerminated",
                ProtoMessage::new()
                    .set("reason", reason.as_str())
                    .maybe("identity", identity.as_ref(), |identity| json!(identity)),
            ),
            other => unreachable!("{} does not end a run", other.name()),
        };
        self.write(event_type, attributes, message);
    }

    fn continued_as_new(&mut self, next: &ContinuedAsNew) {
        let started = self.history.started();
        let options = &next.options;
        let queue = options.task_queue.as_ref().unwrap_or(&started.task_queue);
        let message = self
            .command()
            .set("newExecutionRunId", next.new_run.to_string())
            .set("workflowType", named(&next.workflow_type))
            .set("taskQueue", task_queue(queue))
            .set("input", payloads(&next.input))
            .maybe("workflowRunTimeout", options.run_timeout.or(started.run_timeout), duration)
            .set("workflowTaskTimeout", "10s")
            .set("initiator", "CONTINUE_AS_NEW_INITIATOR_WORKFLOW")
            .set("header", carried(&next.unconsumed_signals))
            .maybe("memo", options.memo.as_ref(), memo)
            .maybe("searchAttributes", options.search_attributes.as_ref(), search_attributes);
        self.write("WORKFLOW_EXECUTION_CONTINUED_AS_NEW", "workflowExecutionContinuedAsNew", message);
    }
}

/// The number of a command goes along, as a worker of a cluster writes it: readers of ours name things by it.
pub(super) fn numbered(seq: Seq) -> Value {
    json!({ "fields": { "bosun-seq": payload(&Payload::raw_json(seq.to_string())) } })
}

/// What a run that continues takes along, and which command of its parent started a child.
fn started_header(started: &WorkflowExecutionStarted) -> Value {
    let mut header = match &started.parent {
        Some(parent) => numbered(parent.seq),
        None => json!({}),
    };
    if let Some(fields) = carried(&started.carried_signals).get_mut("fields").map(Value::take) {
        header["fields"]["bosun-carried-signals"] = fields["bosun-carried-signals"].clone();
    }
    if let Some(signals) = started.signals_at_start {
        header["fields"]["bosun-signals-at-start"] = payload(&Payload::raw_json(signals.to_string()));
    }
    header
}

fn carried(signals: &[WorkflowExecutionSignaled]) -> Value {
    match Payload::encode(signals) {
        Ok(signals) if !signals.data.is_empty() && signals.data.as_ref() != b"[]" => {
            json!({ "fields": { "bosun-carried-signals": payload(&signals) } })
        }
        _ => json!({}),
    }
}

/// What Temporal's core keeps of a local activity: of the one by which a worker of a cluster records a side effect.
fn local_activity(number: u64, seq: Seq, at: Timestamp) -> Value {
    let (seconds, micros) = (at.as_micros().div_euclid(1_000_000), at.as_micros().rem_euclid(1_000_000));
    let time = json!({ "seconds": seconds, "nanos": micros * 1_000 });
    json!({
        "seq": number,
        "attempt": 1,
        "activity_id": format!("bosun.side_effect-{seq}"),
        "activity_type": "bosun.side_effect",
        "complete_time": time,
        "backoff": null,
        "original_schedule_time": time,
    })
}
