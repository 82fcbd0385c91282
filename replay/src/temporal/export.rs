//! Export: one of our histories as Temporal would have told it.
//!
//! What differs, and how it is bridged:
//! - Temporal writes a workflow task (scheduled, started, completed) around each activation; we write turns. One triple is
//!   made for each thing that the code is told: after what happened, before the commands. So official replayers tell their
//!   code the same things in the same order, one at a time, as ours was told.
//! - Temporal writes `ActivityTaskStarted` when the activity ends, with the number of the last attempt and the failure
//!   before it; failed attempts have no events of their own.
//! - An accepted update is a command event there; it follows the triple.
//! - Timers have no ids here, and side effects are no activities: both get the numbers that Temporal's core counts, a side
//!   effect as the local activity by which a worker of a cluster records it.
//! - What Temporal has no event for (the end of a backoff, pauses of activities, "will complete later") is left out.
//!
//! Invariant: event ids are 1, 2, 3, …; every reference is to an earlier event; times never decrease, except that of
//! `ActivityTaskStarted`, which tells when the attempt started, as Temporal does. Deterministic: no clock, no chance.

use std::collections::{BTreeMap, BTreeSet};

use bosun_engine::*;
use serde_json::{Value, json};

use super::protojson::{ProtoMessage, duration, payload, task_queue};
use crate::History;
use crate::outcomes::answers;

/// The flag of Temporal's core under which it compares ids and types of activities and children.
const ID_AND_TYPE_DETERMINISM_CHECKS: u32 = 1;

/// The history as Temporal's JSON: `{"events": […]}`.
pub fn to_temporal(history: &History) -> Value {
    let mut exporter = Exporter::new(history);
    for turn in history.turns() {
        exporter.turn(turn);
    }
    json!({ "events": exporter.written })
}

/// What later events refer to.
pub(super) struct Exporter<'a> {
    pub(super) history: &'a History,
    pub(super) written: Vec<Value>,
    pub(super) at: Timestamp,
    /// The event that completed the workflow task of the current commands.
    pub(super) task_completed: usize,
    pub(super) pending: BTreeMap<Seq, PendingOperation<'a>>,
    pub(super) updates: BTreeMap<&'a UpdateId, usize>,
    tasks: usize,
    /// How many signals are still to come before the code begins.
    signals_missing: u32,
    pub(super) timers: u64,
    /// Side effects are counted among them.
    pub(super) activities: u64,
    /// Events that ask a child to cancel; the answer may come when the child has ended.
    pub(super) child_cancels: BTreeMap<Seq, (usize, &'a WorkflowId, Option<RunId>)>,
}

/// Something that was asked for, as far as its end refers to it.
#[derive(Default)]
pub(super) struct PendingOperation<'a> {
    pub(super) asked: usize,
    pub(super) started: usize,
    pub(super) cancel_requested: usize,
    /// Of a timer: its number among timers.
    pub(super) timer: u64,
    pub(super) attempt: Attempt,
    pub(super) attempt_at: Timestamp,
    pub(super) last_failure: Option<&'a Failure>,
    pub(super) child: Option<(&'a ChildWorkflowInitiated, Option<RunId>)>,
    pub(super) target: Option<&'a ExternalTarget>,
}

impl<'a> Exporter<'a> {
    fn new(history: &'a History) -> Self {
        Exporter {
            history,
            written: Vec::new(),
            at: Timestamp::ZERO,
            task_completed: 0,
            pending: BTreeMap::new(),
            updates: BTreeMap::new(),
            tasks: 0,
            signals_missing: history.started().signals_at_start.unwrap_or_default(),
            timers: 0,
            activities: 0,
            child_cancels: BTreeMap::new(),
        }
    }

    fn turn(&mut self, turn: &'a Turn) {
        self.at = turn.at;
        let mut rest = turn.events.as_slice();
        while !rest.is_empty() {
            let (round, later) = rest.split_at(round(rest));
            self.round(round, turn.build);
            rest = later;
        }
    }

    /// What happened, the workflow task, what the code asked for.
    fn round(&mut self, events: &'a [EventKind], build: BuildId) {
        let mut after_task = Vec::new();
        let undone = undone_at_once(events);
        for event in events {
            if timer_of(event).is_some_and(|seq| undone.contains(&seq)) {
                // Temporal's core sends neither command, and counts the timer.
                self.timers += u64::from(matches!(event, EventKind::TimerStarted { .. }));
            } else if is_after_task(event) || self.is_too_early(event) {
                after_task.push(event);
            } else {
                self.event(event);
            }
        }
        if events.iter().any(|event| self.is_task(event)) {
            self.workflow_task(build);
        }
        after_task.into_iter().for_each(|event| self.event(event));
    }

    /// Whether the code is told something, and not only what it finds when it begins.
    fn is_task(&mut self, event: &EventKind) -> bool {
        match event {
            EventKind::WorkflowExecutionStarted(_) => self.signals_missing == 0,
            EventKind::WorkflowExecutionSignaled(_) if self.signals_missing > 1 => {
                self.signals_missing -= 1;
                false
            }
            other => {
                let told = other.origin() == Origin::Activating;
                self.signals_missing = if told { 0 } else { self.signals_missing };
                told
            }
        }
    }

    /// An attempt of an activity that this very round schedules.
    fn is_too_early(&self, event: &EventKind) -> bool {
        match event {
            EventKind::ActivityTaskStarted { seq, .. } => !self.pending.contains_key(seq),
            _ => false,
        }
    }

    fn workflow_task(&mut self, build: BuildId) {
        self.tasks += 1;
        let queue = task_queue(&self.history.started().task_queue);
        let scheduled = ProtoMessage::new()
            .set("taskQueue", queue)
            .set("startToCloseTimeout", duration(std::time::Duration::from_secs(10)))
            .set("attempt", 1);
        let scheduled = self.write("WORKFLOW_TASK_SCHEDULED", "workflowTaskScheduled", scheduled);
        let started = ProtoMessage::new()
            .set("scheduledEventId", scheduled.to_string())
            .set("identity", "bosun")
            .set("requestId", format!("{}-{}", self.history.run_id(), self.tasks));
        let started = self.write("WORKFLOW_TASK_STARTED", "workflowTaskStarted", started);
        let completed = ProtoMessage::new()
            .set("scheduledEventId", scheduled.to_string())
            .set("startedEventId", started.to_string())
            .set("identity", "bosun")
            .set("workerVersion", json!({ "buildId": build.to_string() }))
            .maybe("sdkMetadata", self.sdk_metadata(), |metadata| metadata);
        self.task_completed = self.write("WORKFLOW_TASK_COMPLETED", "workflowTaskCompleted", completed);
    }

    /// Ids are those that Temporal's core counts, so it may compare them; who replays the first task hears of that.
    fn sdk_metadata(&self) -> Option<Value> {
        let compared = self.tasks == 1 && self.history.started().numbering.is_some();
        compared.then(|| json!({ "coreUsedFlags": [ID_AND_TYPE_DETERMINISM_CHECKS] }))
    }

    /// Writes an event and gives its id.
    pub(super) fn write(&mut self, event_type: &str, attributes: &str, message: ProtoMessage) -> usize {
        self.write_at(self.at, event_type, attributes, message)
    }

    pub(super) fn write_at(
        &mut self,
        at: Timestamp,
        event_type: &str,
        attributes: &str,
        message: ProtoMessage,
    ) -> usize {
        let id = self.written.len() + 1;
        let mut event = json!({
            "eventId": id.to_string(),
            "eventTime": at.to_string(),
            "eventType": format!("EVENT_TYPE_{event_type}"),
            // Temporal numbers the tasks that wrote events; readers only expect the number to grow.
            "taskId": (1_048_576 + id).to_string(),
        });
        event[format!("{attributes}EventAttributes")] = message.done();
        self.written.push(event);
        id
    }

    /// Says of the event that was written last what it is for.
    pub(super) fn note(&mut self, summary: Option<&str>, details: Option<&str>) {
        let text = |text: &str| payload(&Payload::raw_json(json!(text).to_string()));
        let metadata = ProtoMessage::new().maybe("summary", summary, text).maybe("details", details, text).done();
        if let Some(event) = self.written.last_mut().filter(|_| summary.or(details).is_some()) {
            event["userMetadata"] = metadata;
        }
    }

    pub(super) fn asked(&mut self, seq: Seq, pending: PendingOperation<'a>) {
        self.pending.insert(seq, pending);
    }
}

/// Temporal writes an accepted update among the commands: a worker accepts it while it works on a task.
fn is_after_task(event: &EventKind) -> bool {
    event.origin() == Origin::Command || matches!(event, EventKind::WorkflowExecutionUpdateAccepted { .. })
}

/// The timer that an event asks for or cancels.
fn timer_of(event: &EventKind) -> Option<Seq> {
    match event {
        EventKind::TimerStarted { seq, .. } | EventKind::TimerCanceled { seq } => Some(*seq),
        _ => None,
    }
}

/// Timers that the code asks for and cancels in answer to one job.
fn undone_at_once(events: &[EventKind]) -> BTreeSet<Seq> {
    let (mut started, mut undone) = (BTreeSet::new(), BTreeSet::new());
    for event in events {
        match event {
            EventKind::TimerStarted { seq, .. } => _ = started.insert(*seq),
            EventKind::TimerCanceled { seq } if started.contains(seq) => _ = undone.insert(*seq),
            _ => {}
        }
    }
    undone
}

/// How many events belong to the first round: up to the next thing that the code is told, an event that answers a command of
/// the same turn, or one that ends the run from outside after the code has spoken.
fn round(events: &[EventKind]) -> usize {
    let (mut asked, mut told) = (Vec::new(), false);
    for (index, event) in events.iter().enumerate() {
        let answered = answers(event).is_some_and(|seq| asked.contains(&seq));
        let ends_from_outside = event.closes().is_some() && event.origin() == Origin::Bookkeeping;
        let is_told = event.origin() == Origin::Activating;
        if index > 0 && (answered || ends_from_outside || (told && is_told)) {
            return index;
        }
        told |= is_told;
        asked.extend(asks(event));
    }
    events.len()
}

/// The number an event asks something for, or asks the cancellation of.
fn asks(event: &EventKind) -> Option<Seq> {
    match event {
        EventKind::ActivityTaskCancelRequested { seq }
        | EventKind::ChildWorkflowExecutionCancelRequested { seq, .. } => Some(*seq),
        other => crate::CommandFamily::asked_for(other).map(|(seq, _)| seq),
    }
}
