//! The transition tables of the run and of what it waits for, as text: what each state becomes by each event.
//!
//! Invariant: a row stands for every state that can be reached from the first one, and names every event that changes
//! it; what is left out leaves the state as it is. A change of behaviour shows up here. They are of the fold: it takes what
//! it is given, and which events are pushed at all is decided elsewhere. Deadlines are not in them.

use std::collections::BTreeSet;
use std::time::Duration;

use super::family::FamilyEvent;
use super::run::{Run, RunPhase};
use super::update::Update;
use crate::vocabulary::*;

const ACTIVITIES: &str = "
none                      scheduled > queued
queued                    started > running, failed, again later > backing off, cancel requested > queued canceling, paused > queued paused, completed > none
running                   scheduled > queued, failed, again now > queued, failed, again later > backing off, awaiting completion > awaiting, cancel requested > running canceling, paused > running paused, completed > none
backing off               scheduled > queued, started > running, failed, again now > queued, cancel requested > backing off canceling, paused > queued paused, completed > none
queued canceling          scheduled > queued, started > running canceling, failed, again later > backing off canceling, paused > queued paused canceling, completed > none
queued paused             scheduled > queued, started > running paused, cancel requested > queued paused canceling, unpaused > queued, completed > none
awaiting                  scheduled > queued, started > running, failed, again now > queued, failed, again later > backing off, cancel requested > awaiting canceling, paused > awaiting paused, completed > none
running canceling         scheduled > queued, failed, again now > queued canceling, failed, again later > backing off canceling, awaiting completion > awaiting canceling, paused > running paused canceling, completed > none
running paused            scheduled > queued, failed, again now > queued paused, failed, again later > queued paused, awaiting completion > awaiting paused, cancel requested > running paused canceling, unpaused > running, completed > none
backing off canceling     scheduled > queued, started > running canceling, failed, again now > queued canceling, paused > queued paused canceling, completed > none
queued paused canceling   scheduled > queued, started > running paused canceling, unpaused > queued canceling, completed > none
awaiting canceling        scheduled > queued, started > running canceling, failed, again now > queued canceling, failed, again later > backing off canceling, paused > awaiting paused canceling, completed > none
awaiting paused           scheduled > queued, started > running paused, failed, again now > queued paused, failed, again later > queued paused, cancel requested > awaiting paused canceling, unpaused > awaiting, completed > none
running paused canceling  scheduled > queued, failed, again now > queued paused canceling, failed, again later > queued paused canceling, awaiting completion > awaiting paused canceling, unpaused > running canceling, completed > none
awaiting paused canceling scheduled > queued, started > running paused canceling, failed, again now > queued paused canceling, failed, again later > queued paused canceling, unpaused > awaiting canceling, completed > none
";

const MESSAGES_TO_OTHER_RUNS: &str = "
none                      signal initiated > signal under way, cancel initiated > cancel under way
signal under way          cancel initiated > cancel under way, signaled > none, signal failed > none, cancel delivered > none
cancel under way          signal initiated > signal under way, signaled > none, signal failed > none, cancel delivered > none
";

const CHILDREN: &str = "
none                      initiated > initiated
initiated                 started > started, start failed > none, cancel requested > initiated canceling, cancel delivered > initiated told, closed > none
started                   initiated > initiated, start failed > none, cancel requested > started canceling, cancel delivered > started told, closed > none
initiated canceling       initiated > initiated, started > started canceling, start failed > none, cancel delivered > initiated canceling told, closed > none
initiated told            initiated > initiated, started > started told, start failed > none, cancel requested > initiated canceling told, closed > none
started canceling         initiated > initiated, start failed > none, cancel delivered > started canceling told, closed > none
started told              initiated > initiated, start failed > none, cancel requested > started canceling told, closed > none
initiated canceling told  initiated > initiated, started > started canceling told, start failed > none, closed > none
started canceling told    initiated > initiated, start failed > none, closed > none
";

const TIMERS: &str = "
none                      started > open
open                      fired > none, canceled > none
";

const UPDATES: &str = "
none                      accepted > accepted, completed > completed, failed > failed
accepted                  completed > completed, failed > failed
completed                 accepted > accepted, failed > failed
failed                    accepted > accepted, completed > completed
";

const RUN: &str = "
backoff                   backoff over > open, paused > backoff paused, cancel requested > backoff canceling, completed > completed, terminated > terminated
open                      paused > open paused, cancel requested > open canceling, completed > completed, terminated > terminated
backoff paused            backoff over > open paused, unpaused > backoff, cancel requested > backoff paused canceling, completed > completed, terminated > terminated
backoff canceling         backoff over > open canceling, paused > backoff paused canceling, completed > completed, terminated > terminated
completed
terminated
open paused               unpaused > open, cancel requested > open paused canceling, completed > completed, terminated > terminated
open canceling            paused > open paused canceling, completed > completed, terminated > terminated
backoff paused canceling  backoff over > open paused canceling, unpaused > backoff canceling, completed > completed, terminated > terminated
open paused canceling     unpaused > open canceling, completed > completed, terminated > terminated
";

const ONE: Seq = Seq(1);
const AT: Timestamp = Timestamp(1_000);

fn run() -> Run {
    let request = StartWorkflow::new(WorkflowType::of("order"), WorkflowId::of("o"));
    let started = request.first_event(RunId([1; 16]), AT);
    Run::new(RunId([1; 16]), AT, BuildId(1), &started)
}

/// Every state that can be reached, with what each event makes of it.
fn table(first: Run, events: &[(&str, EventKind)], shown: impl Fn(&Run) -> String) -> String {
    let mut known = BTreeSet::from([shown(&first)]);
    let (mut waiting, mut lines) = (std::collections::VecDeque::from([first]), String::from("\n"));
    while let Some(run) = waiting.pop_front() {
        let state = shown(&run);
        let mut changes = Vec::new();
        // Nothing follows the end of a run.
        for (name, event) in events.iter().filter(|_| !run.is_closed()) {
            let mut next = run.clone();
            next.route(AT, event);
            let becomes = shown(&next);
            if becomes != state {
                changes.push(format!("{name} > {becomes}"));
            }
            if known.insert(becomes) {
                waiting.push_back(next);
            }
        }
        lines += format!("{state:<25} {}", changes.join(", ")).trim_end();
        lines.push('\n');
    }
    lines
}

fn failure() -> Failure {
    Failure::application("Broken", "broken")
}

fn activity_events() -> Vec<(&'static str, EventKind)> {
    let seq = ONE;
    let scheduled = ActivityTaskScheduled {
        seq,
        activity_id: ActivityId::of("1"),
        activity_type: ActivityType::of("pay"),
        input: Payload::null(),
        options: ActivityOptions::default(),
    };
    let failed = |next_attempt_at| EventKind::ActivityTaskAttemptFailed {
        seq,
        attempt: Attempt(1),
        failure: failure(),
        next_attempt_at,
    };
    let attempt = Attempt(1);
    vec![
        ("scheduled", EventKind::ActivityTaskScheduled(Box::new(scheduled))),
        ("started", EventKind::ActivityTaskStarted { seq, attempt }),
        ("failed, again now", failed(AT)),
        ("failed, again later", failed(AT.plus(Duration::from_millis(1)))),
        ("awaiting completion", EventKind::ActivityTaskAwaitingCompletion { seq, attempt }),
        ("cancel requested", EventKind::ActivityTaskCancelRequested { seq }),
        ("paused", EventKind::ActivityTaskPaused { seq, reason: String::new(), identity: None }),
        ("unpaused", EventKind::ActivityTaskUnpaused { seq, identity: None }),
        ("completed", EventKind::ActivityTaskCompleted { seq, result: Payload::null(), identity: None }),
    ]
}

/// E08, E09: an attempt starts from the queue only, a pause takes nobody out of an attempt, and whatever ends it ends it.
#[test]
fn activities() {
    let shown = |run: &Run| run.activities.get(ONE).map_or("none".to_owned(), |activity| activity.shown());
    assert_eq!(table(run(), &activity_events(), shown), ACTIVITIES);
}

/// E10.
#[test]
fn timers() {
    let events = [
        ("started", EventKind::TimerStarted { seq: ONE, fire_at: AT, summary: None }),
        ("fired", EventKind::TimerFired { seq: ONE }),
        ("canceled", EventKind::TimerCanceled { seq: ONE }),
    ];
    let shown = |run: &Run| if run.timers.is_pending(ONE) { "open" } else { "none" }.to_owned();
    assert_eq!(table(run(), &events, shown), TIMERS);
}

#[test]
fn children() {
    let seq = ONE;
    let initiated = ChildWorkflowInitiated {
        seq,
        workflow_id: WorkflowId::of("c"),
        workflow_type: WorkflowType::of("order"),
        input: Payload::null(),
        options: ChildWorkflowOptions::default(),
    };
    let events = [
        ("initiated", EventKind::StartChildWorkflowExecutionInitiated(Box::new(initiated))),
        ("started", EventKind::ChildWorkflowExecutionStarted { seq, run_id: RunId([2; 16]) }),
        ("start failed", EventKind::StartChildWorkflowExecutionFailed { seq, failure: failure() }),
        ("cancel requested", EventKind::ChildWorkflowExecutionCancelRequested { seq, reason: String::new() }),
        ("cancel delivered", EventKind::ExternalWorkflowExecutionCancelRequested { seq }),
        ("closed", EventKind::ChildWorkflowExecutionCompleted { seq, result: Payload::null() }),
    ];
    let shown = |run: &Run| run.children.get(&ONE).map_or("none".to_owned(), |child| child.shown());
    assert_eq!(table(run(), &events, shown), CHILDREN);
}

#[test]
fn messages_to_other_runs() {
    let seq = ONE;
    let target = ExternalTarget { workflow_id: WorkflowId::of("other"), run_id: None };
    let signal =
        SignalExternalInitiated { seq, target: target.clone(), name: SignalName::of("go"), input: Payload::null() };
    let events = [
        ("signal initiated", EventKind::SignalExternalWorkflowExecutionInitiated(Box::new(signal))),
        (
            "cancel initiated",
            EventKind::RequestCancelExternalWorkflowExecutionInitiated { seq, target, reason: String::new() },
        ),
        ("signaled", EventKind::ExternalWorkflowExecutionSignaled { seq }),
        ("signal failed", EventKind::SignalExternalWorkflowExecutionFailed { seq, failure: failure() }),
        ("cancel delivered", EventKind::ExternalWorkflowExecutionCancelRequested { seq }),
    ];
    let shown = |run: &Run| match run.externals.get(&ONE) {
        Some(super::external::External::Signal(_)) => "signal under way".to_owned(),
        Some(super::external::External::Cancel { .. }) => "cancel under way".to_owned(),
        None => "none".to_owned(),
    };
    assert_eq!(table(run(), &events, shown), MESSAGES_TO_OTHER_RUNS);
}

#[test]
fn updates() {
    let id = UpdateId::of("u");
    let accepted = EventKind::WorkflowExecutionUpdateAccepted {
        update_id: id.clone(),
        name: UpdateName::of("set"),
        input: Payload::null(),
        identity: None,
    };
    let completed = |result| EventKind::WorkflowExecutionUpdateCompleted { update_id: id.clone(), result };
    let events =
        [("accepted", accepted), ("completed", completed(Ok(Payload::null()))), ("failed", completed(Err(failure())))];
    let shown = |run: &Run| match run.updates.get(&id) {
        None => "none".to_owned(),
        Some(Update::Accepted) => "accepted".to_owned(),
        Some(Update::Completed(Ok(_))) => "completed".to_owned(),
        Some(Update::Completed(Err(_))) => "failed".to_owned(),
    };
    assert_eq!(table(run(), &events, shown), UPDATES);
}

fn run_events() -> Vec<(&'static str, EventKind)> {
    let (reason, identity) = (String::new, None);
    vec![
        ("backoff over", EventKind::FirstWorkflowTaskScheduled),
        ("paused", EventKind::WorkflowExecutionPaused { reason: reason(), identity: identity.clone() }),
        ("unpaused", EventKind::WorkflowExecutionUnpaused { reason: reason(), identity: identity.clone() }),
        (
            "cancel requested",
            EventKind::WorkflowExecutionCancelRequested {
                reason: reason(),
                identity: identity.clone(),
                request_id: None,
            },
        ),
        ("completed", EventKind::WorkflowExecutionCompleted { result: Payload::null(), unhandled_signals: Vec::new() }),
        (
            "terminated",
            EventKind::WorkflowExecutionTerminated {
                reason: reason(),
                identity,
                reset: None,
                unhandled_signals: Vec::new(),
            },
        ),
    ]
}

/// E05: a retried run waits for its moment, an open one may be paused, and nothing opens a closed one.
#[test]
fn the_run() {
    let mut first = run();
    first.phase = RunPhase::Backoff;
    let shown = |run: &Run| {
        let phase = match &run.phase {
            RunPhase::Backoff => "backoff",
            RunPhase::Open => "open",
            RunPhase::Closed(CloseOutcome::Completed(_)) => "completed",
            RunPhase::Closed(_) => "terminated",
        };
        let marks = [(run.paused, " paused"), (run.cancel_requested(), " canceling")];
        let marks = marks.into_iter().filter(|(is, _)| *is && !run.is_closed()).map(|(_, mark)| mark);
        std::iter::once(phase).chain(marks).collect()
    };
    assert_eq!(table(first, &run_events(), shown), RUN);
}

/// Every event that closes a run belongs to the closing family, and no other does.
#[test]
fn what_closes_a_run_is_of_one_family() {
    for (name, event) in run_events().into_iter().chain(activity_events()) {
        assert_eq!(event.closes().is_some(), matches!(FamilyEvent::of(&event), FamilyEvent::Closed(_)), "{name}");
    }
}
