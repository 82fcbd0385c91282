//! What happened in a run, thing by thing: an activity with its attempts, a timer, a child, a message, rather than event by
//! event.
//!
//! Invariant: every event that is about one thing is folded into the span of that thing, and a span names the events that
//! it begins and ends with; what is about the run itself is a span of one event. Folding reads events alone: the same
//! history gives the same spans, live or exported.

use std::collections::BTreeMap;

use bosun_engine::*;
use serde_json::{Value, json};

use super::people_waits::{ENGINE_PAUSE_KEY, facts_in, paused, short};
use crate::agent::AGENT;
use crate::supervisor::PLAN_RUN;
use crate::supervisor::run::SUPERVISOR;

/// How a span stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SpanState {
    Open,
    Retrying,
    Done,
    Failed,
    /// Its time was over.
    TimedOut,
    Canceled,
    /// It took no time: a message, a marker.
    Moment,
}

impl SpanState {
    pub(crate) fn class(self) -> &'static str {
        match self {
            SpanState::Open => "run",
            SpanState::Retrying => "wait",
            SpanState::Done => "ok",
            SpanState::Failed | SpanState::TimedOut => "bad",
            SpanState::Canceled => "off",
            SpanState::Moment => "note",
        }
    }
    pub(crate) fn word(self) -> &'static str {
        match self {
            SpanState::Open => "open",
            SpanState::Retrying => "retrying",
            SpanState::Done => "done",
            SpanState::Failed => "failed",
            SpanState::TimedOut => "timed out",
            SpanState::Canceled => "canceled",
            SpanState::Moment => "",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SpanKind {
    Run,
    Activity,
    Timer,
    /// For people, as long as they have.
    Wait,
    Child,
    Message,
    Marker,
}

impl SpanKind {
    pub(crate) fn word(self) -> &'static str {
        match self {
            SpanKind::Run => "run",
            SpanKind::Activity => "activity",
            SpanKind::Timer => "timer",
            SpanKind::Wait => "wait",
            SpanKind::Child => "child",
            SpanKind::Message => "message",
            SpanKind::Marker => "marker",
        }
    }
}

/// One thing that happened.
#[derive(Debug, Clone)]
pub(crate) struct Span {
    pub kind: SpanKind,
    pub name: String,
    pub state: SpanState,
    pub first: EventId,
    pub last: EventId,
    pub from: Timestamp,
    pub to: Option<Timestamp>,
    pub attempts: u32,
    pub input: Option<Value>,
    pub output: Option<Value>,
    /// Every failure of an attempt, in their order.
    pub failures: Vec<Failure>,
    /// The id of a child.
    pub child: Option<WorkflowId>,
}

/// The spans of a history, in the order in which they began.
pub(crate) fn spans(events: &[Event]) -> Vec<Span> {
    let mut folding = Folding::default();
    events.iter().for_each(|event| folding.event(event));
    folding.spans
}

#[derive(Default)]
pub(super) struct Folding {
    pub(super) spans: Vec<Span>,
    by_seq: BTreeMap<Seq, usize>,
    by_update: BTreeMap<UpdateId, usize>,
    /// It is a supervisor's: some of its timers are deadlines of people.
    pub(super) supervises: bool,
    /// It is an agent's.
    pub(super) is_agent: bool,
    /// What people are waited for, by what tells it apart: an entry stays as long as the wait.
    pub(super) waits: BTreeMap<String, usize>,
    /// The last activity that has ended well, after which an agent may have asked.
    pub(super) done: Option<(EventId, Timestamp)>,
}

/// The timers of a supervisor that end a wait for people: how they begin, and what is waited for.
const DEADLINES: [(&str, &str); 4] = [
    ("approval ", "waits for an approval: "),
    ("interrupt ", "waits for an answer: "),
    ("plan review", "waits for the review of the plan"),
    ("human control", "a person has taken over"),
];

impl Folding {
    pub(super) fn begin(&mut self, event: &Event, kind: SpanKind, name: String) -> &mut Span {
        self.spans.push(Span {
            kind,
            name,
            state: SpanState::Moment,
            first: event.id,
            last: event.id,
            from: event.at,
            to: None,
            attempts: 0,
            input: None,
            output: None,
            failures: Vec::new(),
            child: None,
        });
        let last = self.spans.len() - 1;
        &mut self.spans[last]
    }

    fn numbered(&mut self, event: &Event, seq: Seq, kind: SpanKind, name: String) -> &mut Span {
        self.by_seq.insert(seq, self.spans.len());
        let span = self.begin(event, kind, name);
        span.state = SpanState::Open;
        span
    }

    /// Something of a thing that has begun.
    fn of(&mut self, event: &Event, seq: Seq, state: SpanState) -> Option<&mut Span> {
        let span = self.spans.get_mut(*self.by_seq.get(&seq)?)?;
        (span.last, span.state) = (event.id, state);
        span.to = (!matches!(state, SpanState::Open | SpanState::Retrying)).then_some(event.at);
        Some(span)
    }

    /// The name of a timer, and whether it is a deadline.
    fn timer(&self, summary: Option<&str>) -> (String, bool) {
        let name = summary.unwrap_or("timer");
        let of = |(begin, words): &(&str, &str)| name.strip_prefix(begin).map(|rest| format!("{words}{}", short(rest)));
        match DEADLINES.iter().find_map(of).filter(|_| self.supervises) {
            Some(name) => (name, true),
            None => (name.to_owned(), false),
        }
    }

    /// A timer is over. A deadline that fires is a time-out, and one that is given up was met.
    fn timer_over(&mut self, event: &Event, seq: Seq, fired: bool) {
        let deadline = self.by_seq.get(&seq).is_some_and(|at| self.spans[*at].kind == SpanKind::Wait);
        // A wait that is over already was ended by somebody.
        if deadline && self.by_seq.get(&seq).is_some_and(|at| self.spans[*at].state != SpanState::Open) {
            return;
        }
        let state = match (deadline, fired) {
            (true, true) => SpanState::TimedOut,
            (true, false) | (false, true) => SpanState::Done,
            (false, false) => SpanState::Canceled,
        };
        self.of(event, seq, state);
        if fired && deadline {
            let at = self.by_seq.get(&seq).copied();
            self.waits.retain(|_, wait| Some(*wait) != at);
        }
    }

    fn ends(&mut self, event: &Event, seq: Seq, outcome: Result<&Payload, &Failure>) {
        let state = if outcome.is_ok() { SpanState::Done } else { SpanState::Failed };
        let Some(span) = self.of(event, seq, state) else { return };
        match outcome {
            Ok(result) => span.output = Some(result.to_json()),
            Err(why) => span.failures.push(why.clone()),
        }
    }

    // long: one exhaustive match; a variant more is a line more.
    fn event(&mut self, event: &Event) {
        use EventKind as K;
        match &event.kind {
            K::ActivityTaskScheduled(task) => {
                let name = named(task.activity_type.as_str(), task.options.summary.as_deref());
                self.numbered(event, task.seq, SpanKind::Activity, name).input = Some(task.input.to_json());
            }
            K::ActivityTaskStarted { seq, attempt } => {
                if let Some(span) = self.of(event, *seq, SpanState::Open) {
                    span.attempts = attempt.0;
                }
            }
            K::ActivityTaskAttemptFailed { seq, failure, .. } => {
                if let Some(span) = self.of(event, *seq, SpanState::Retrying) {
                    span.failures.push(failure.clone());
                }
            }
            K::ActivityTaskCompleted { seq, result, .. } | K::ChildWorkflowExecutionCompleted { seq, result } => {
                self.ends(event, *seq, Ok(result));
                self.done = Some((event.id, event.at));
            }
            K::ActivityTaskTimedOut { seq, failure, .. } => {
                self.ends(event, *seq, Err(failure));
                self.of(event, *seq, SpanState::TimedOut);
            }
            K::ActivityTaskFailed { seq, failure, .. }
            | K::StartChildWorkflowExecutionFailed { seq, failure }
            | K::ChildWorkflowExecutionFailed { seq, failure }
            | K::SignalExternalWorkflowExecutionFailed { seq, failure }
            | K::RequestCancelExternalWorkflowExecutionFailed { seq, failure } => self.ends(event, *seq, Err(failure)),
            K::ActivityTaskCanceled { seq, .. } | K::ChildWorkflowExecutionCanceled { seq, .. } => {
                _ = self.of(event, *seq, SpanState::Canceled)
            }
            K::TimerFired { seq } => self.timer_over(event, *seq, true),
            K::TimerCanceled { seq } => self.timer_over(event, *seq, false),
            K::ExternalWorkflowExecutionSignaled { seq } | K::ExternalWorkflowExecutionCancelRequested { seq } => {
                _ = self.of(event, *seq, SpanState::Done)
            }
            K::ChildWorkflowExecutionTimedOut { seq } => {
                self.ends(event, *seq, Err(&Failure::application("TimedOut", "the child timed out")));
                self.of(event, *seq, SpanState::TimedOut);
            }
            K::ChildWorkflowExecutionTerminated { seq, reason } => {
                self.ends(event, *seq, Err(&Failure::application("Terminated", reason)));
            }
            K::TimerStarted { seq, summary, .. } => {
                let (name, deadline) = self.timer(summary.as_deref());
                if deadline {
                    let at = self.wait(event, summary.as_deref().unwrap_or_default(), name);
                    self.by_seq.insert(*seq, at);
                } else {
                    self.numbered(event, *seq, SpanKind::Timer, name);
                }
            }
            K::StartChildWorkflowExecutionInitiated(child) => {
                let span = self.numbered(event, child.seq, SpanKind::Child, child.workflow_type.to_string());
                (span.input, span.child) = (Some(child.input.to_json()), Some(child.workflow_id.clone()));
            }
            K::ActivityTaskCancelRequested { seq }
            | K::ActivityTaskPaused { seq, .. }
            | K::ActivityTaskUnpaused { seq, .. }
            | K::ActivityPropertiesModifiedExternally { seq, .. }
            | K::ActivityTaskAwaitingCompletion { seq, .. }
            | K::ChildWorkflowExecutionStarted { seq, .. }
            | K::ChildWorkflowExecutionCancelRequested { seq, .. } => {
                let state = self.by_seq.get(seq).and_then(|at| self.spans.get(*at)).map(|span| span.state);
                self.of(event, *seq, state.unwrap_or(SpanState::Open));
            }
            K::SignalExternalWorkflowExecutionInitiated(sent) => {
                let span =
                    self.numbered(event, sent.seq, SpanKind::Message, format!("sent: {}", said_as(sent.name.as_str())));
                span.input = Some(sent.input.to_json());
            }
            K::RequestCancelExternalWorkflowExecutionInitiated { seq, .. } => {
                self.numbered(event, *seq, SpanKind::Message, "cancellation of another run".to_owned());
            }
            K::WorkflowExecutionSignaled(signal) => {
                let input = signal.input.to_json();
                self.said(event, signal.name.as_str(), &input);
                self.begin(event, SpanKind::Message, said_as(signal.name.as_str())).input = Some(input);
            }
            K::WorkflowExecutionUpdateAccepted { update_id, name, input, .. } => {
                self.by_update.insert(update_id.clone(), self.spans.len());
                let span = self.begin(event, SpanKind::Message, format!("update {name}"));
                (span.state, span.input) = (SpanState::Open, Some(input.to_json()));
            }
            K::WorkflowExecutionUpdateCompleted { update_id, result } => {
                let Some(span) = self.by_update.get(update_id).and_then(|at| self.spans.get_mut(*at)) else { return };
                (span.last, span.to) = (event.id, Some(event.at));
                match result {
                    Ok(answer) => (span.state, span.output) = (SpanState::Done, Some(answer.to_json())),
                    Err(why) => {
                        span.state = SpanState::Failed;
                        span.failures.push(why.clone());
                    }
                }
            }
            K::MarkerRecorded(marker) => {
                let value = serde_json::to_value(marker).unwrap_or_default();
                let recorded = match marker {
                    Marker::SideEffect { value, .. } if self.supervises => value.to_json(),
                    _ => Value::Null,
                };
                let facts = facts_in(&recorded).map(|facts| format!("noted: {facts}"));
                let name = facts.unwrap_or_else(|| marker_name(&value));
                self.begin(event, SpanKind::Marker, name).output = Some(unwrapped(&value));
                self.noted(event, &recorded);
            }
            other => self.of_run(event, other),
        }
    }

    /// What is about the run itself.
    fn of_run(&mut self, event: &Event, kind: &EventKind) {
        if let EventKind::WorkflowExecutionStarted(started) = kind {
            let of = started.workflow_type.as_str();
            (self.supervises, self.is_agent) = ([SUPERVISOR, PLAN_RUN].contains(&of), of == AGENT);
        }
        match kind {
            EventKind::WorkflowExecutionPaused { reason, .. } => {
                _ = self.wait(event, ENGINE_PAUSE_KEY, paused(&reason.as_str().into()));
            }
            EventKind::WorkflowExecutionUnpaused { .. } => self.wait_over(event, ENGINE_PAUSE_KEY, SpanState::Done),
            _ => {}
        }
        if kind.closes().is_some() {
            self.waits_over(event);
        }
        let state = match kind.closes() {
            None => SpanState::Moment,
            Some(WorkflowStatus::Completed | WorkflowStatus::ContinuedAsNew) => SpanState::Done,
            Some(WorkflowStatus::Canceled) => SpanState::Canceled,
            Some(WorkflowStatus::TimedOut) => SpanState::TimedOut,
            Some(_) => SpanState::Failed,
        };
        let value = serde_json::to_value(kind).unwrap_or_default();
        let span = self.begin(event, SpanKind::Run, kind.name().to_owned());
        (span.state, span.output) = (state, Some(unwrapped(&value)));
    }
}

fn named(name: &str, summary: Option<&str>) -> String {
    summary.map_or_else(|| name.to_owned(), |summary| format!("{name} ({summary})"))
}

/// A signal in the words of people; one of somebody's own by its name.
fn said_as(name: &str) -> String {
    let words = match name {
        "pause_v1" => "pause",
        "resume_v1" => "resume",
        "cancel_v1" => "cancel",
        "waits_below_v1" => "what a run below waits for",
        "approval_response_v1" => "answer to an approval",
        "interrupt_resume_v1" => "answer to a question",
        "human_input_v1" => "words of a person",
        "human_takeover_v1" => "a person takes over",
        "human_release_v1" => "a person gives back",
        "budget_top_up_v1" => "more budget",
        "budget_request_v1" => "a run below asks for more of the budget",
        "budget_share_v1" => "share of the budget of the run above",
        "mailbox_v1" => "message to an agent",
        "recruit_v1" => "recruit an agent",
        "retire_v1" => "retire an agent",
        "cancel_task_v1" => "cancel a task",
        "plan_answer_v1" => "answer to a plan",
        other => return format!("signal {other}"),
    };
    words.to_owned()
}

fn marker_name(value: &Value) -> String {
    let kind = value.as_object().and_then(|kind| kind.keys().next()).map_or("marker", String::as_str);
    let id = value[kind]["id"].as_str().or(value[kind]["patch"].as_str());
    id.map_or_else(|| kind.to_owned(), |id| format!("{kind} {id}"))
}

/// The fields of an event or a marker, without its name.
fn unwrapped(value: &Value) -> Value {
    let fields = value.as_object().and_then(|kind| kind.values().next()).cloned().unwrap_or(json!({}));
    crate::api::people::plain(fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A deadline of people that fires is a time-out, and one that is given up was met; any other timer is done when it fires.
    #[test]
    fn a_deadline_that_fires_is_no_success() {
        let start = |of: &str| {
            let request = StartWorkflow::new(WorkflowType::of(of), WorkflowId::of("w"));
            let started = request.first_event(RunId([1; 16]), Timestamp(0));
            event(1, EventKind::WorkflowExecutionStarted(Box::new(started)))
        };
        let timer = |seq, summary: &str| EventKind::TimerStarted {
            seq: Seq(seq),
            fire_at: Timestamp(9),
            summary: Some(summary.to_owned()),
        };
        let told = |of: &str| {
            let events = [
                start(of),
                event(2, timer(1, "approval r/ap-1")),
                event(3, timer(2, "interrupt r/in-1")),
                event(4, timer(3, "next try of task a")),
                event(5, EventKind::TimerFired { seq: Seq(1) }),
                event(6, EventKind::TimerCanceled { seq: Seq(2) }),
                event(7, EventKind::TimerFired { seq: Seq(3) }),
            ];
            let timers = spans(&events).into_iter().skip(1);
            timers
                .map(|span| format!("{}: {} {}", span.name, span.state.word(), span.state.class()))
                .collect::<Vec<_>>()
        };
        assert_eq!(
            told(SUPERVISOR),
            [
                "waits for an approval: ap-1: timed out bad",
                "waits for an answer: in-1: done ok",
                "next try of task a: done ok"
            ]
        );
        assert_eq!(told("order")[0], "approval r/ap-1: done ok", "a timer of somebody's own");
    }

    /// Issue 17 §1: who is waited for without a deadline is waited for all the same, and for as long as it took.
    #[test]
    fn a_wait_without_a_deadline_is_one_too() {
        let started = |of: &str| {
            let request = StartWorkflow::new(WorkflowType::of(of), WorkflowId::of("w"));
            EventKind::WorkflowExecutionStarted(Box::new(request.first_event(RunId([1; 16]), Timestamp(0))))
        };
        let noted = |notes: Value| {
            let value = Payload::encode(&notes).unwrap();
            EventKind::MarkerRecorded(Marker::SideEffect { seq: Seq(1), value })
        };
        let note = |kind: &str, data: Value| noted(json!([{ "kind": kind, "data": data }]));
        let signal = |name: &str, input: Value| {
            let input = Payload::encode(&input).unwrap();
            let (identity, request_id) = (None, None);
            EventKind::WorkflowExecutionSignaled(WorkflowExecutionSignaled {
                name: SignalName::of(name),
                input,
                identity,
                request_id,
            })
        };
        let told = |kinds: Vec<EventKind>| {
            let events: Vec<Event> = (1..).zip(kinds).map(|(id, kind)| event(id, kind)).collect();
            let waits = spans(&events).into_iter().filter(|span| span.kind == SpanKind::Wait);
            let second = |at: Timestamp| at.0 / 1_000_000;
            waits
                .map(|span| {
                    format!("{}: {} {}-{:?}", span.name, span.state.word(), second(span.from), span.to.map(second))
                })
                .collect::<Vec<_>>()
        };
        let raised = json!({ "id": "r/in-1", "task": "t", "payload": "which?" });
        let paused = json!({ "event": "WORKFLOW_PAUSING", "reason": "lunch" });
        assert_eq!(
            told(vec![
                started(SUPERVISOR),
                note("InterruptRaised", raised),
                note("Paused", paused.clone()),
                note("Paused", json!({ "event": "WORKFLOW_PAUSED", "checkpoint": "pre_subtask_1" })),
                note("Resumed", json!({})),
                note("InterruptAnswered", json!({ "id": "r/in-1", "answer": 7 })),
                note("HumanTookOver", json!({ "by": "ann" })),
            ]),
            [
                "waits for an answer: which?: done 2-Some(6)",
                "waits to be resumed: lunch: done 3-Some(5)",
                "a person has taken over: open 7-None"
            ]
        );
        // One that has a deadline is still one.
        let timer = |summary: &str| EventKind::TimerStarted {
            seq: Seq(4),
            fire_at: Timestamp(9),
            summary: Some(summary.to_owned()),
        };
        assert_eq!(
            told(vec![
                started(SUPERVISOR),
                note("ApprovalRequested", json!({ "id": "r/ap-1", "action": "publish" })),
                timer("approval r/ap-1"),
                note("ApprovalVoided", json!({ "id": "r/ap-1", "reason": "another plan" })),
                EventKind::TimerCanceled { seq: Seq(4) },
            ]),
            ["waits for an approval: publish: canceled 2-Some(4)"]
        );
        assert_eq!(
            told(vec![
                started("order"),
                note("Paused", paused),
                EventKind::WorkflowExecutionPaused { reason: "by hand".into(), identity: None },
                EventKind::WorkflowExecutionUnpaused { reason: String::new(), identity: None },
            ]),
            ["waits to be resumed: by hand: done 3-Some(4)"]
        );
        assert_eq!(
            told(vec![
                started(AGENT),
                EventKind::TimerFired { seq: Seq(9) },
                signal("pause_v1", json!({ "reason": "" })),
                signal("resume_v1", json!({})),
            ]),
            ["waits to be resumed: done 3-Some(4)"]
        );
    }

    fn event(id: u64, kind: EventKind) -> Event {
        Event { id: EventId(id), at: Timestamp(i64::try_from(id).unwrap() * 1_000_000), build: BuildId(0), kind }
    }

    #[test]
    fn attempts_and_their_failures_are_one_thing() {
        let task = ActivityTaskScheduled {
            seq: Seq(1),
            activity_id: "1".into(),
            activity_type: "charge".into(),
            input: Payload::raw_json("7"),
            options: ActivityOptions::default(),
        };
        let started = |attempt| EventKind::ActivityTaskStarted { seq: Seq(1), attempt: Attempt(attempt) };
        let failed = EventKind::ActivityTaskAttemptFailed {
            seq: Seq(1),
            attempt: Attempt(1),
            failure: Failure::application("Busy", "later"),
            next_attempt_at: Timestamp(9),
        };
        let mut events =
            vec![event(1, EventKind::ActivityTaskScheduled(Box::new(task))), event(2, started(1)), event(3, failed)];
        let retrying = spans(&events);
        assert_eq!((retrying.len(), retrying[0].state, retrying[0].to), (1, SpanState::Retrying, None));
        events.push(event(4, started(2)));
        let done = EventKind::ActivityTaskCompleted { seq: Seq(1), result: Payload::raw_json("8"), identity: None };
        events.push(event(5, done));
        let span = spans(&events).remove(0);
        assert_eq!((span.state, span.attempts, span.failures.len()), (SpanState::Done, 2, 1));
        assert_eq!((span.first, span.last, span.to), (EventId(1), EventId(5), Some(Timestamp(5_000_000))));
        assert_eq!((span.input, span.output), (Some(json!(7)), Some(json!(8))));
    }
}
