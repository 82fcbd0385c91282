//! What happened in a run, thing by thing: an activity with its attempts, a timer, a child, a message, rather than event by
//! event.
//!
//! Invariant: every event that is about one thing is folded into the span of that thing, and a span names the events that
//! it begins and ends with; what is about the run itself is a span of one event. Folding reads events alone: the same
//! history gives the same spans, live or exported.

use std::collections::BTreeMap;

use bosun_engine::*;
use serde_json::{Value, json};

/// How a span stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SpanState {
    Open,
    Retrying,
    Done,
    Failed,
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
            SpanState::Failed => "bad",
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
}

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
            K::ActivityTaskFailed { seq, failure, .. }
            | K::ActivityTaskTimedOut { seq, failure, .. }
            | K::StartChildWorkflowExecutionFailed { seq, failure }
            | K::ChildWorkflowExecutionFailed { seq, failure }
            | K::SignalExternalWorkflowExecutionFailed { seq, failure }
            | K::RequestCancelExternalWorkflowExecutionFailed { seq, failure } => self.ends(event, *seq, Err(failure)),
            K::ActivityTaskCanceled { seq, .. }
            | K::TimerCanceled { seq }
            | K::ChildWorkflowExecutionCanceled { seq, .. } => drop(self.of(event, *seq, SpanState::Canceled)),
            K::TimerFired { seq }
            | K::ExternalWorkflowExecutionSignaled { seq }
            | K::ExternalWorkflowExecutionCancelRequested { seq } => drop(self.of(event, *seq, SpanState::Done)),
            K::ChildWorkflowExecutionTimedOut { seq } => {
                self.ends(event, *seq, Err(&Failure::application("TimedOut", "the child timed out")));
            }
            K::ChildWorkflowExecutionTerminated { seq, reason } => {
                self.ends(event, *seq, Err(&Failure::application("Terminated", reason)));
            }
            K::TimerStarted { seq, summary, .. } => {
                let name = summary.clone().unwrap_or_else(|| "timer".to_owned());
                self.numbered(event, *seq, SpanKind::Timer, name);
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
        let state = match kind.closes() {
            None => SpanState::Moment,
            Some(WorkflowStatus::Completed | WorkflowStatus::ContinuedAsNew) => SpanState::Done,
            Some(WorkflowStatus::Canceled) => SpanState::Canceled,
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
