//! What happened in a run, thing by thing: an activity with its attempts, a timer, a child, a message, rather than event by
//! event.
//!
//! Invariant: every event that is about one thing is folded into the span of that thing, and a span names the events that
//! it begins and ends with; what is about the run itself is a span of one event. Folding reads events alone: the same
//! history gives the same spans, live or exported.

use std::collections::BTreeMap;

use bosun_engine::*;
use serde_json::{Value, json};

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
struct Folding {
    spans: Vec<Span>,
    by_seq: BTreeMap<Seq, usize>,
    by_update: BTreeMap<UpdateId, usize>,
    /// It is a supervisor's: some of its timers are deadlines of people.
    supervises: bool,
}

/// The timers of a supervisor that end a wait for people: how they begin, and what is waited for.
const DEADLINES: [(&str, &str); 4] = [
    ("approval ", "waits for an approval: "),
    ("interrupt ", "waits for an answer: "),
    ("plan review", "waits for the review of the plan"),
    ("human control", "a person has taken over"),
];

impl Folding {
    fn begin(&mut self, event: &Event, kind: SpanKind, name: String) -> &mut Span {
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
        let of = |(begin, words): &(&str, &str)| name.strip_prefix(begin).map(|rest| format!("{words}{rest}"));
        match DEADLINES.iter().find_map(of).filter(|_| self.supervises) {
            Some(name) => (name, true),
            None => (name.to_owned(), false),
        }
    }

    /// A timer is over. A deadline that fires is a time-out, and one that is given up was met.
    fn timer_over(&mut self, event: &Event, seq: Seq, fired: bool) {
        let deadline = self.by_seq.get(&seq).is_some_and(|at| self.spans[*at].kind == SpanKind::Wait);
        let state = match (deadline, fired) {
            (true, true) => SpanState::TimedOut,
            (true, false) | (false, true) => SpanState::Done,
            (false, false) => SpanState::Canceled,
        };
        self.of(event, seq, state);
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
                self.numbered(event, *seq, if deadline { SpanKind::Wait } else { SpanKind::Timer }, name);
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
                let span = self.numbered(event, sent.seq, SpanKind::Message, format!("signal {} sent", sent.name));
                span.input = Some(sent.input.to_json());
            }
            K::RequestCancelExternalWorkflowExecutionInitiated { seq, .. } => {
                self.numbered(event, *seq, SpanKind::Message, "cancellation of another run".to_owned());
            }
            K::WorkflowExecutionSignaled(signal) => {
                self.begin(event, SpanKind::Message, format!("signal {}", signal.name)).input =
                    Some(signal.input.to_json());
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
                self.begin(event, SpanKind::Marker, marker_name(&value)).output = Some(unwrapped(&value));
            }
            other => self.of_run(event, other),
        }
    }

    /// What is about the run itself.
    fn of_run(&mut self, event: &Event, kind: &EventKind) {
        if let EventKind::WorkflowExecutionStarted(started) = kind {
            self.supervises = started.workflow_type.as_str() == SUPERVISOR;
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
                "waits for an approval: r/ap-1: timed out bad",
                "waits for an answer: r/in-1: done ok",
                "next try of task a: done ok"
            ]
        );
        assert_eq!(told("order")[0], "approval r/ap-1: done ok", "a timer of somebody's own");
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
