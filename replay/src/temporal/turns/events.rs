//! Temporal's events as ours, one by one.
//!
//! Invariant: an event that names something by the event that asked for it gets our number of that. Numbers are those that the
//! worker wrote along (`bosun-seq`), or are counted in the order of the commands.
//!
//! Long: one arm for each of Temporal's events.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bosun_engine::*;

use super::read::*;
use crate::temporal::TemporalEvent;

/// What an event is to the turns of a run.
pub(super) enum Imported {
    /// The code hears of it with the next workflow task; what comes before it in the same turn goes along.
    Told(Vec<EventKind>),
    /// The code asked for it.
    Asked(EventKind),
    /// It ends the run without the code.
    Ended(EventKind),
    /// It is of no concern.
    Nothing,
}

/// The worker of the attempt has left, or nobody has heard of it in time.
fn is_left(failure: &Failure) -> bool {
    match &failure.kind {
        FailureKind::Timeout { timeout, .. } => *timeout == TimeoutType::Heartbeat,
        FailureKind::Application { failure_type, .. } => failure_type == "WorkerShutdown",
        _ => false,
    }
}

/// What later events refer to.
#[derive(Default)]
pub(super) struct Numbering {
    last: u64,
    /// Side effects with their events, which come later in the history than they were asked for, also in a later task.
    later: BTreeMap<u64, (u64, EventKind)>,
    /// What each gave.
    pub(super) side_effects: Arc<BTreeMap<Seq, Payload>>,
    /// Their events that stand where the code asked.
    placed: BTreeSet<u64>,
    /// Our numbers, by the events that asked; the only place that holds them, so that a number can change.
    of_event: BTreeMap<u64, Seq>,
    /// The events that asked for the latest of each name.
    timers: BTreeMap<String, u64>,
    children: BTreeMap<String, u64>,
    /// Requests of updates that a reset has brought along, by the ids of the updates, each with its event.
    admitted: BTreeMap<String, (u64, Fields)>,
    /// By the event that asked for it: the attempt of an activity that has started, and why the one before failed.
    attempts: BTreeMap<u64, (u32, Option<Failure>)>,
    /// The events that asked for activities whose workers say by themselves that they live.
    beaten: BTreeSet<u64>,
    /// The time of the workflow task, which is the time of its commands as the code sees it.
    pub(super) at: Timestamp,
}

impl Numbering {
    /// Knows where side effects stand.
    pub(super) fn of(events: &[TemporalEvent]) -> Self {
        let side_effects = events.iter().filter_map(|event| match marker(event)? {
            Marker::SideEffect { seq, value } => Some((event.id, seq, value)),
            Marker::Patch { .. } => None,
        });
        let mut numbering = Numbering::default();
        let mut values = BTreeMap::new();
        for (id, seq, value) in side_effects {
            values.insert(seq, value.clone());
            let event = EventKind::MarkerRecorded(Marker::SideEffect { seq, value });
            numbering.later.insert(seq.0, (id, event));
        }
        numbering.side_effects = values.into();
        numbering
    }

    /// A side effect that the code asks for here, and whose event comes with a later task: it stands here, once.
    pub(super) fn place(&mut self, seq: Seq) -> Option<(u64, EventKind)> {
        let (id, event) = self.later.get(&seq.0)?.clone();
        self.placed.insert(id).then_some((id, event))
    }

    fn next(&mut self, event: &TemporalEvent) -> Seq {
        let header = object(&event.attributes, "header").and_then(|header| object(header, "fields"));
        let own = header.and_then(|fields| payload(fields.get("bosun-seq")?).decode::<u64>().ok());
        self.last = own.unwrap_or_else(|| {
            let mut next = self.last + 1;
            while self.later.contains_key(&next) {
                next += 1;
            }
            next
        });
        self.of_event.insert(event.id, Seq(self.last));
        Seq(self.last)
    }

    fn of_event(&self, event: &TemporalEvent, field: &str) -> Option<Seq> {
        self.of_event.get(&event.number(field)).copied()
    }

    fn timer(&self, fields: &Fields) -> Option<Seq> {
        self.of_event.get(self.timers.get(text(fields, "timerId"))?).copied()
    }

    /// The code knows something by another number than was counted.
    pub(super) fn renumber(&mut self, event_id: u64, seq: Seq) {
        self.of_event.insert(event_id, seq);
        self.last = self.last.max(seq.0);
    }

    /// The request of an update that was admitted before it was accepted: the acceptance does not repeat it.
    fn admitted_of(&mut self, accepted: &TemporalEvent) -> Option<Fields> {
        let (own, at) =
            (text(&accepted.attributes, "protocolInstanceId"), accepted.number("acceptedRequestSequencingEventId"));
        let by_event = |admitted: &BTreeMap<String, (u64, Fields)>| {
            admitted.iter().find(|(_, (event, _))| *event == at).map(|(id, _)| id.clone())
        };
        let id = if self.admitted.contains_key(own) { Some(own.to_owned()) } else { by_event(&self.admitted) };
        self.admitted.remove(&id?).map(|(_, request)| request)
    }

    // long: one arm an event.
    pub(super) fn import(&mut self, event: &TemporalEvent) -> Option<Imported> {
        use EventKind as E;
        let fields = &event.attributes;
        let ended = |end: EventKind| Some(Imported::Told(vec![end]));
        match event.event_type.as_str() {
            "WorkflowExecutionSignaled" => ended(E::WorkflowExecutionSignaled(WorkflowExecutionSignaled {
                name: SignalName::new(text(fields, "signalName")).ok()?,
                input: payloads(fields, "input").unwrap_or_default(),
                identity: Identity::new(text(fields, "identity")).ok(),
                request_id: None,
            })),
            "WorkflowExecutionCancelRequested" => ended(E::WorkflowExecutionCancelRequested {
                reason: text(fields, "cause").to_owned(),
                identity: Identity::new(text(fields, "identity")).ok(),
                request_id: None,
            }),
            "WorkflowExecutionUpdateAdmitted" => {
                let request = object(fields, "request")?;
                let id = text(object(request, "meta")?, "updateId").to_owned();
                self.admitted.insert(id, (event.id, request.clone()));
                Some(Imported::Nothing)
            }
            "WorkflowExecutionUpdateAccepted" => {
                let admitted = self.admitted_of(event);
                let request = object(fields, "acceptedRequest").or(admitted.as_ref())?;
                let (meta, input) = (object(request, "meta")?, object(request, "input")?);
                ended(E::WorkflowExecutionUpdateAccepted {
                    update_id: UpdateId::new(text(meta, "updateId")).ok()?,
                    name: UpdateName::new(text(input, "name")).ok()?,
                    input: payloads(input, "args").unwrap_or_default(),
                    identity: Identity::new(text(meta, "identity")).ok(),
                })
            }
            "ActivityTaskStarted" => {
                self.of_event(event, "scheduledEventId")?;
                let attempt = u32::try_from(event.number("attempt")).unwrap_or(1).max(1);
                self.attempts.insert(event.number("scheduledEventId"), (attempt, failure(fields, "lastFailure")));
                Some(Imported::Nothing)
            }
            "ActivityTaskCompleted" | "ActivityTaskFailed" | "ActivityTaskTimedOut" | "ActivityTaskCanceled" => {
                self.activity_ended(event).map(Imported::Told)
            }
            "TimerFired" => ended(E::TimerFired { seq: self.timer(fields)? }),
            name if name.starts_with("ChildWorkflowExecution") || name == "StartChildWorkflowExecutionFailed" => {
                self.of_child(event).map(|told| Imported::Told(vec![told]))
            }
            "ExternalWorkflowExecutionSignaled" => {
                ended(E::ExternalWorkflowExecutionSignaled { seq: self.of_event(event, "initiatedEventId")? })
            }
            "SignalExternalWorkflowExecutionFailed" => ended(E::SignalExternalWorkflowExecutionFailed {
                seq: self.of_event(event, "initiatedEventId")?,
                failure: not_reached(fields),
            }),
            "ExternalWorkflowExecutionCancelRequested" => {
                let seq = self.of_event(event, "initiatedEventId")?;
                ended(E::ExternalWorkflowExecutionCancelRequested { seq })
            }
            "RequestCancelExternalWorkflowExecutionFailed" => {
                let (seq, failure) = (self.of_event(event, "initiatedEventId")?, not_reached(fields));
                ended(E::RequestCancelExternalWorkflowExecutionFailed { seq, failure })
            }
            "WorkflowExecutionTerminated" => Some(Imported::Ended(E::WorkflowExecutionTerminated {
                reason: text(fields, "reason").to_owned(),
                identity: Identity::new(text(fields, "identity")).ok(),
                reset: None,
                unhandled_signals: Vec::new(),
            })),
            "WorkflowExecutionTimedOut" => Some(Imported::Ended(E::WorkflowExecutionTimedOut {
                timeout: WorkflowTimeout::Run,
                new_run: run_id(text(fields, "newExecutionRunId")),
                unhandled_signals: Vec::new(),
            })),
            _ => self.asked(event),
        }
    }

    fn activity_ended(&mut self, event: &TemporalEvent) -> Option<Vec<EventKind>> {
        let (fields, seq) = (&event.attributes, self.of_event(event, "scheduledEventId")?);
        let started = self.attempts.remove(&event.number("scheduledEventId"));
        let attempts = started.map(|(last, why)| attempts(seq, last, why)).unwrap_or_default();
        let state = retry_state(fields, "retryState").unwrap_or(RetryState::RetryPolicyNotSet);
        let why = || failure(fields, "failure").unwrap_or_else(|| Failure::application("ServerFailure", ""));
        let beaten = self.beaten.contains(&event.number("scheduledEventId"));
        let ended = match event.event_type.as_str() {
            "ActivityTaskCompleted" => EventKind::ActivityTaskCompleted {
                seq,
                result: payloads(fields, "result").unwrap_or_default(),
                identity: None,
            },
            "ActivityTaskTimedOut" | "ActivityTaskFailed" if beaten && is_left(&why()) => {
                // As the worker tells it to the code.
                let message = "the worker that ran the attempt is gone".to_owned();
                let failure = Failure { message, kind: FailureKind::WorkerLost, cause: None };
                EventKind::ActivityTaskFailed { seq, failure, retry_state: RetryState::RetryPolicyNotSet }
            }
            "ActivityTaskFailed" => EventKind::ActivityTaskFailed { seq, failure: why(), retry_state: state },
            "ActivityTaskTimedOut" => EventKind::ActivityTaskTimedOut { seq, failure: why(), retry_state: state },
            _ => EventKind::ActivityTaskCanceled { seq, details: payloads(fields, "details") },
        };
        Some(attempts.into_iter().chain([ended]).collect())
    }

    fn of_child(&self, event: &TemporalEvent) -> Option<EventKind> {
        use EventKind as E;
        let (fields, seq) = (&event.attributes, self.of_event(event, "initiatedEventId")?);
        Some(match event.event_type.as_str() {
            "StartChildWorkflowExecutionFailed" => {
                const CAUSES: [&str; 3] = ["UNSPECIFIED", "WORKFLOW_ALREADY_EXISTS", "NAMESPACE_NOT_FOUND"];
                let prefix = "START_CHILD_WORKFLOW_EXECUTION_FAILED_CAUSE_";
                let why = match choice(fields, "cause", prefix, &CAUSES) {
                    "WORKFLOW_ALREADY_EXISTS" => "its workflow id is in use",
                    "NAMESPACE_NOT_FOUND" => "there is no such namespace",
                    _ => "the cluster did not start it",
                };
                let failure = Failure::application("ChildWorkflowNotStarted", why).non_retryable();
                E::StartChildWorkflowExecutionFailed { seq, failure }
            }
            "ChildWorkflowExecutionStarted" => {
                let run = object(fields, "workflowExecution").and_then(|child| run_id(text(child, "runId")));
                E::ChildWorkflowExecutionStarted { seq, run_id: run? }
            }
            "ChildWorkflowExecutionCompleted" => {
                E::ChildWorkflowExecutionCompleted { seq, result: payloads(fields, "result").unwrap_or_default() }
            }
            "ChildWorkflowExecutionFailed" => {
                let failure = failure(fields, "failure").unwrap_or_else(|| Failure::application("ServerFailure", ""));
                E::ChildWorkflowExecutionFailed { seq, failure }
            }
            "ChildWorkflowExecutionCanceled" => {
                E::ChildWorkflowExecutionCanceled { seq, details: payloads(fields, "details") }
            }
            "ChildWorkflowExecutionTimedOut" => E::ChildWorkflowExecutionTimedOut { seq },
            "ChildWorkflowExecutionTerminated" => {
                E::ChildWorkflowExecutionTerminated { seq, reason: "terminated".to_owned() }
            }
            _ => return None,
        })
    }

    // long: one arm a command.
    fn asked(&mut self, event: &TemporalEvent) -> Option<Imported> {
        use EventKind as E;
        let fields = &event.attributes;
        let unhandled_signals = Vec::new();
        let asked = match event.event_type.as_str() {
            "ActivityTaskScheduled" => E::ActivityTaskScheduled(Box::new(self.scheduled(event)?)),
            "ActivityTaskCancelRequested" => {
                E::ActivityTaskCancelRequested { seq: self.of_event(event, "scheduledEventId")? }
            }
            "TimerStarted" => {
                let seq = self.next(event);
                self.timers.insert(text(fields, "timerId").to_owned(), event.id);
                let fire_at = self.at.plus(period(fields, "startToFireTimeout").unwrap_or_default());
                E::TimerStarted { seq, fire_at, summary: summary(fields) }
            }
            "TimerCanceled" => E::TimerCanceled { seq: self.timer(fields)? },
            "StartChildWorkflowExecutionInitiated" => {
                E::StartChildWorkflowExecutionInitiated(Box::new(self.child(event)?))
            }
            "SignalExternalWorkflowExecutionInitiated" => {
                let input = payloads(fields, "input").unwrap_or_default();
                let (seq, target) = (self.next(event), target(fields)?);
                let name = SignalName::new(text(fields, "signalName")).ok()?;
                let initiated = SignalExternalInitiated { seq, target, name, input };
                E::SignalExternalWorkflowExecutionInitiated(Box::new(initiated))
            }
            "RequestCancelExternalWorkflowExecutionInitiated" => {
                let (target, reason) = (target(fields)?, text(fields, "reason").to_owned());
                let of_child = fields.get("childWorkflowOnly").and_then(serde_json::Value::as_bool) == Some(true);
                let child = self.children.get(target.workflow_id.as_str()).filter(|_| of_child);
                match child.and_then(|asked| self.of_event.get(asked)).copied() {
                    Some(seq) => {
                        self.of_event.insert(event.id, seq);
                        E::ChildWorkflowExecutionCancelRequested { seq, reason }
                    }
                    None => {
                        let seq = self.next(event);
                        E::RequestCancelExternalWorkflowExecutionInitiated { seq, target, reason }
                    }
                }
            }
            "MarkerRecorded" if self.placed.contains(&event.id) => return Some(Imported::Nothing),
            "MarkerRecorded" => E::MarkerRecorded(marker(event)?),
            "UpsertWorkflowSearchAttributes" => {
                let attributes = attributes(fields, "searchAttributes");
                // Core notes patches there as well.
                if attributes.is_empty() {
                    return Some(Imported::Nothing);
                }
                E::UpsertWorkflowSearchAttributes { attributes }
            }
            "WorkflowPropertiesModified" => E::WorkflowPropertiesModified { memo: memo(fields, "upsertedMemo") },
            "WorkflowExecutionUpdateCompleted" => {
                let outcome = object(fields, "outcome")?;
                let failed = failure(outcome, "failure");
                let result = failed.map_or_else(|| Ok(payloads(outcome, "success").unwrap_or_default()), Err);
                let update_id = UpdateId::new(text(object(fields, "meta")?, "updateId")).ok()?;
                E::WorkflowExecutionUpdateCompleted { update_id, result }
            }
            "WorkflowExecutionCompleted" => E::WorkflowExecutionCompleted {
                result: payloads(fields, "result").unwrap_or_default(),
                unhandled_signals,
            },
            "WorkflowExecutionFailed" => E::WorkflowExecutionFailed {
                failure: failure(fields, "failure").unwrap_or_else(|| Failure::application("ServerFailure", "")),
                new_run: run_id(text(fields, "newExecutionRunId")),
                retry_state: retry_state(fields, "retryState").unwrap_or(RetryState::RetryPolicyNotSet),
                unhandled_signals,
            },
            "WorkflowExecutionCanceled" => {
                E::WorkflowExecutionCanceled { details: payloads(fields, "details"), unhandled_signals }
            }
            "WorkflowExecutionContinuedAsNew" => E::WorkflowExecutionContinuedAsNew(Box::new(continued(fields)?)),
            _ => return Some(Imported::Nothing),
        };
        Some(Imported::Asked(asked))
    }

    fn scheduled(&mut self, event: &TemporalEvent) -> Option<ActivityTaskScheduled> {
        let (fields, seq) = (&event.attributes, self.next(event));
        let header = object(fields, "header").and_then(|header| object(header, "fields"));
        let beaten = header.is_some_and(|header| header.contains_key("bosun-beats"));
        if beaten {
            self.beaten.insert(event.id);
        }
        Some(ActivityTaskScheduled {
            seq,
            activity_id: ActivityId::new(text(fields, "activityId")).ok()?,
            activity_type: ActivityType::new(named(fields, "activityType")).ok()?,
            input: payloads(fields, "input").unwrap_or_default(),
            options: ActivityOptions {
                task_queue: TaskQueue::new(named(fields, "taskQueue")).ok(),
                schedule_to_close: period(fields, "scheduleToCloseTimeout"),
                schedule_to_start: period(fields, "scheduleToStartTimeout"),
                start_to_close: period(fields, "startToCloseTimeout"),
                // That of the worker's own signs of life is none that the code asked for.
                heartbeat: if beaten { None } else { period(fields, "heartbeatTimeout") },
                retry_policy: retry_policy(fields, "retryPolicy"),
                summary: summary(fields),
                ..ActivityOptions::default()
            },
        })
    }

    fn child(&mut self, event: &TemporalEvent) -> Option<ChildWorkflowInitiated> {
        let (fields, seq) = (&event.attributes, self.next(event));
        let workflow_id = WorkflowId::new(text(fields, "workflowId")).ok()?;
        self.children.insert(workflow_id.to_string(), event.id);
        const CLOSE: [&str; 4] = ["UNSPECIFIED", "TERMINATE", "ABANDON", "REQUEST_CANCEL"];
        let parent_close_policy = match choice(fields, "parentClosePolicy", "PARENT_CLOSE_POLICY_", &CLOSE) {
            "ABANDON" => ParentClosePolicy::Abandon,
            "REQUEST_CANCEL" => ParentClosePolicy::RequestCancel,
            _ => ParentClosePolicy::Terminate,
        };
        Some(ChildWorkflowInitiated {
            seq,
            workflow_id,
            workflow_type: WorkflowType::new(named(fields, "workflowType")).ok()?,
            input: payloads(fields, "input").unwrap_or_default(),
            options: ChildWorkflowOptions {
                task_queue: TaskQueue::new(named(fields, "taskQueue")).ok(),
                execution_timeout: period(fields, "workflowExecutionTimeout"),
                run_timeout: period(fields, "workflowRunTimeout"),
                retry_policy: retry_policy(fields, "retryPolicy"),
                parent_close_policy,
                memo: memo(fields, "memo"),
                search_attributes: attributes(fields, "searchAttributes"),
                summary: summary(fields),
                ..ChildWorkflowOptions::default()
            },
        })
    }
}

/// More attempts are not told one by one.
const ATTEMPTS_TOLD: u32 = 100;

/// The attempts of an activity: a cluster keeps their number, and why the last but one failed.
fn attempts(seq: Seq, last: u32, why: Option<Failure>) -> Vec<EventKind> {
    let last = last.min(ATTEMPTS_TOLD);
    let failure = why.unwrap_or_else(|| Failure::application("", "the cluster does not say why"));
    let mut told = Vec::new();
    for attempt in (1..=last).map(Attempt) {
        told.push(EventKind::ActivityTaskStarted { seq, attempt });
        if attempt.0 < last {
            let (failure, next_attempt_at) = (failure.clone(), Timestamp::MAX);
            told.push(EventKind::ActivityTaskAttemptFailed { seq, attempt, failure, next_attempt_at });
        }
    }
    told
}

fn target(fields: &Fields) -> Option<ExternalTarget> {
    let execution = object(fields, "workflowExecution")?;
    let workflow_id = WorkflowId::new(text(execution, "workflowId")).ok()?;
    Some(ExternalTarget { workflow_id, run_id: run_id(text(execution, "runId")) })
}

fn continued(fields: &Fields) -> Option<ContinuedAsNew> {
    let header = object(fields, "header").and_then(|header| object(header, "fields"));
    let carried = header.and_then(|fields| fields.get("bosun-carried-signals")).map(payload);
    Some(ContinuedAsNew {
        new_run: run_id(text(fields, "newExecutionRunId"))?,
        workflow_type: WorkflowType::new(named(fields, "workflowType")).ok()?,
        input: payloads(fields, "input").unwrap_or_default(),
        options: ContinueAsNewOptions::default(),
        unconsumed_signals: carried.and_then(|carried| carried.decode().ok()).unwrap_or_default(),
    })
}

fn not_reached(fields: &Fields) -> Failure {
    const CAUSES: [&str; 4] =
        ["UNSPECIFIED", "EXTERNAL_WORKFLOW_EXECUTION_NOT_FOUND", "NAMESPACE_NOT_FOUND", "SIGNAL_COUNT_LIMIT_EXCEEDED"];
    let cause = choice(fields, "cause", "", &CAUSES);
    let why = if cause.ends_with("NAMESPACE_NOT_FOUND") {
        "there is no such namespace"
    } else if cause.ends_with("SIGNAL_COUNT_LIMIT_EXCEEDED") {
        "it takes no more signals"
    } else {
        "no open workflow execution has this id"
    };
    Failure::application("ExternalWorkflowNotReached", why)
}

/// A marker of Core's, or of our own exports.
fn marker(event: &TemporalEvent) -> Option<Marker> {
    let fields = &event.attributes;
    let details = object(fields, "details")?;
    match text(fields, "markerName") {
        "core_local_activity" => {
            let data = payloads(details, "data")?.to_json();
            let id = data.get("activity_id").or_else(|| data.get("activityId"))?.as_str()?;
            let seq = Seq(id.strip_prefix("bosun.side_effect-")?.parse().ok()?);
            Some(Marker::SideEffect { seq, value: payloads(details, "result").unwrap_or_default() })
        }
        "SideEffect" => {
            let seq = Seq(payloads(details, "side-effect-id")?.decode().ok()?);
            Some(Marker::SideEffect { seq, value: payloads(details, "data").unwrap_or_default() })
        }
        "core_patch" => {
            let data = payloads(details, "patch-data")?.to_json();
            let id = PatchId::new(data.get("id")?.as_str()?).ok()?;
            let deprecated = data.get("deprecated").and_then(serde_json::Value::as_bool).unwrap_or(false);
            Some(Marker::Patch { id, deprecated })
        }
        _ => None,
    }
}
