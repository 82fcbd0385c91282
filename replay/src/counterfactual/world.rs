//! The world in which the changed code lives: the record, in its order, as far as it answers what the code asks for.
//!
//! Invariant: an outcome reaches the code after it was asked for and not before its recorded moment; a timer that the
//! record does not know fires when its time has come, between what was recorded before and after. The events collected
//! here are those the run machine would have written.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bosun_engine::workflow::{JobSources, JobTable, job_of};
use bosun_engine::*;

use super::event_of::{RecordedEnds, event_of};
use super::recorded::{RecordedRequest, RecordedRequests};
use super::{Unknown, Unused};
use crate::History;
use crate::outcomes::{about, ends, renumbered};

pub(super) struct CounterfactualWorld<'a> {
    record: &'a [Event],
    driver: Box<dyn Driver>,
    started: WorkflowExecutionStarted,
    run: RunId,
    /// Whose ids the code sees; see forks.
    visible_run_id: RunId,
    closing: Option<&'a EventKind>,
    recorded: RecordedRequests,
    /// From numbers of the record to numbers of now.
    now_called: BTreeMap<Seq, Seq>,
    /// Recorded outcomes whose time has come and that nobody has asked for.
    early: BTreeMap<Seq, Vec<&'a Event>>,
    side_effects: VecDeque<Payload>,
    /// What has been asked for and not ended: the event that did.
    pending: BTreeMap<Seq, EventId>,
    cancels: BTreeSet<Seq>,
    /// Timers that the record does not know.
    timers: BTreeSet<(Timestamp, Seq)>,
    matched: BTreeSet<Seq>,
    table: JobTable,
    at: Timestamp,
    history: HistorySize,
    recording: &'a History,
    /// What the code of then was told of it.
    size_told: Option<HistorySize>,
    events: Vec<Event>,
    status: WorkflowStatus,
    /// The code asked for a value that nobody has recorded, and cannot go on.
    stuck: Option<Unknown>,
    /// The code panicked, and cannot go on.
    panicked: Option<String>,
}

/// What came of it.
pub(super) struct Lived {
    pub(super) events: Vec<Event>,
    pub(super) unknown: Vec<Unknown>,
    pub(super) unused: Vec<Unused>,
    pub(super) status: WorkflowStatus,
    pub(super) panicked: Option<String>,
}

impl<'a> CounterfactualWorld<'a> {
    pub(super) fn new(
        history: &'a History,
        record: &'a [Event],
        driver: Box<dyn Driver>,
        started: WorkflowExecutionStarted,
    ) -> Self {
        let value = |event: &Event| match &event.kind {
            EventKind::MarkerRecorded(Marker::SideEffect { value, .. }) => Some(value.clone()),
            _ => None,
        };
        CounterfactualWorld {
            record,
            driver,
            run: history.run_id(),
            visible_run_id: started.original_run(history.run_id()),
            closing: record.last().map(|event| &event.kind).filter(|event| event.closes().is_some()),
            recorded: RecordedRequests::of(record),
            now_called: BTreeMap::new(),
            early: BTreeMap::new(),
            side_effects: record.iter().filter_map(value).collect(),
            pending: BTreeMap::new(),
            cancels: BTreeSet::new(),
            timers: BTreeSet::new(),
            matched: BTreeSet::new(),
            table: JobTable::default(),
            at: Timestamp::ZERO,
            history: HistorySize::default(),
            recording: history,
            size_told: None,
            events: Vec::new(),
            status: WorkflowStatus::Running,
            stuck: None,
            panicked: None,
            started,
        }
    }

    pub(super) fn live(mut self) -> Lived {
        for event in self.record {
            self.fire_timers_until(event.at);
            if self.is_over() {
                break;
            }
            self.at = self.at.max(event.at);
            self.history.events += 1;
            self.history.bytes += event.kind.size();
            self.size_told = self.recording.size_told(event.id);
            self.hear(event);
        }
        if self.closing.is_some() {
            // Nothing else happened, and time went on.
            self.fire_timers_until(Timestamp::MAX);
        }
        self.end()
    }

    fn is_over(&self) -> bool {
        !self.status.is_open() || self.stuck.is_some() || self.panicked.is_some()
    }

    fn fire_timers_until(&mut self, end: Timestamp) {
        while let Some((fire_at, seq)) = self.timers.first().copied().filter(|(fire_at, _)| *fire_at < end)
            && !self.is_over()
        {
            self.timers.remove(&(fire_at, seq));
            self.at = self.at.max(fire_at);
            self.happen(EventKind::TimerFired { seq });
        }
    }

    /// One event of the record.
    fn hear(&mut self, event: &'a Event) {
        let kind = &event.kind;
        if let Some(then) = about(kind) {
            return match self.now_called.get(&then) {
                Some(now) if self.pending.contains_key(now) => self.happen(renumbered(kind, *now)),
                // It was canceled now, or has ended.
                Some(_) => {}
                None => self.early.entry(then).or_default().push(event),
            };
        }
        match kind {
            // The engine ended it; no code had begun, then or now.
            EventKind::WorkflowExecutionCanceled { .. } if self.table.is_before_its_code() => self.happen(kind.clone()),
            // What the code of then decided is no news to the code of now.
            other if other.origin() == Origin::Command => {}
            EventKind::WorkflowExecutionStarted(_) => {
                self.happen(EventKind::WorkflowExecutionStarted(Box::new(self.started.clone())));
            }
            EventKind::WorkflowExecutionUpdateAccepted { name, input, .. } => {
                // A validator that refuses now leaves no event.
                if self.driver.validate_update(name, input).is_ok() {
                    self.happen(kind.clone());
                }
            }
            EventKind::WorkflowExecutionForked { run_id, .. } => {
                self.driver.forked(*run_id);
                self.visible_run_id = *run_id;
                self.happen(kind.clone());
            }
            other => self.happen(other.clone()),
        }
    }

    /// Something happens to the run; if it concerns the code, the code answers, and its questions that the record has
    /// already answered are answered at once.
    fn happen(&mut self, kind: EventKind) {
        let mut next = VecDeque::from([kind]);
        while let Some(kind) = next.pop_front() {
            if self.is_over() {
                return;
            }
            // Canceled, or ended, by what was told before.
            if about(&kind).is_some_and(|seq| !self.pending.contains_key(&seq)) {
                continue;
            }
            let commands = self.tell(&kind);
            for command in commands {
                if self.is_over() {
                    break;
                }
                next.extend(self.decide(command));
            }
        }
    }

    /// Writes an event and lets the code hear it.
    fn tell(&mut self, kind: &EventKind) -> Vec<Command> {
        let starts = matches!(kind, EventKind::WorkflowExecutionStarted(_));
        if starts {
            self.table.apply(kind);
        }
        let activating = kind.origin() == Origin::Activating;
        let job = if activating { job_of(kind, &self.table) } else { None };
        if !starts {
            self.table.apply(kind);
        }
        self.write(kind.clone());
        let Some(job) = job else { return Vec::new() };
        let markers = Markers::InOrder { side_effects: self.side_effects.clone() };
        let history = self.size_told.unwrap_or(self.history);
        let (at, run_id) = (self.at, self.visible_run_id);
        self.driver.activate(Activation { at, run_id, history, job, markers })
    }

    fn write(&mut self, kind: EventKind) {
        if let Some(status) = kind.closes() {
            self.status = status;
        }
        if let Some(seq) = about(&kind).filter(|seq| ends(&kind, self.table.child(*seq).is_some())) {
            self.pending.remove(&seq);
        }
        let id = EventId(self.events.len() as u64 + 1);
        self.events.push(Event { id, at: self.at, build: BuildId::default(), kind });
    }

    /// Whether the code panics as the code of then did not: that says nothing of how the run would have ended.
    fn is_new_panic(&self, failure: &Failure) -> bool {
        let then = match self.closing {
            Some(EventKind::WorkflowExecutionFailed { failure, .. }) => Some(failure),
            _ => None,
        };
        failure.cause.is_none() && failure.type_name() == FAILURE_PANIC && then != Some(failure)
    }

    /// Carries out a command; gives the recorded outcomes that were waiting for it.
    fn decide(&mut self, command: Command) -> Vec<EventKind> {
        match &command {
            Command::RequestCancelActivity { seq } | Command::CancelChildWorkflow { seq, .. }
                if !self.pending.contains_key(seq) || !self.cancels.insert(*seq) =>
            {
                return Vec::new();
            }
            Command::CancelTimer { seq } => {
                if self.pending.remove(seq).is_none() {
                    return Vec::new();
                }
                self.timers.retain(|(_, timer)| timer != seq);
            }
            // What the code notes of itself it gives itself.
            Command::RecordMarker(Marker::SideEffect { seq, value })
                if self.side_effects.pop_front().is_none() && *value == Payload::default() =>
            {
                let event = self.events.len() as u64 + 1;
                self.stuck = Some(Unknown { event, what: format!("side effect {seq}"), pending_then: false });
                return Vec::new();
            }
            Command::FailWorkflow { failure, .. } if self.is_new_panic(failure) => {
                self.panicked = Some(failure.message.clone());
                return Vec::new();
            }
            _ => {}
        }
        let ends = RecordedEnds { started: &self.started, run: self.run, recorded: self.closing };
        let kind = event_of(command, &ends);
        let asked = RecordedRequest::of(&kind, self.at);
        self.table.apply(&kind);
        self.write(kind.clone());
        match asked {
            Some((seq, request)) => self.ask(seq, &request, &kind),
            None => Vec::new(),
        }
    }

    fn ask(&mut self, now: Seq, request: &RecordedRequest, kind: &EventKind) -> Vec<EventKind> {
        self.pending.insert(now, EventId(self.events.len() as u64));
        let fire_at = match kind {
            EventKind::TimerStarted { fire_at, .. } => Some(*fire_at),
            _ => None,
        };
        let then = self.recorded.take(request);
        let early = then.and_then(|then| self.early.remove(&then)).unwrap_or_default();
        match (then, fire_at) {
            // The record has let it fire already, or would before its time: it fires by itself.
            (Some(then), Some(fire_at)) if !early.is_empty() || self.fires_early(then, fire_at) => {
                self.timers.insert((fire_at, now));
                Vec::new()
            }
            (None, Some(fire_at)) => {
                self.timers.insert((fire_at, now));
                Vec::new()
            }
            (None, None) => Vec::new(),
            (Some(then), _) => {
                self.matched.insert(now);
                self.now_called.insert(then, now);
                early.into_iter().map(|event| renumbered(&event.kind, now)).collect()
            }
        }
    }

    fn fires_early(&self, then: Seq, fire_at: Timestamp) -> bool {
        self.recorded.fired(then).is_none_or(|at| at < fire_at)
    }

    fn end(self) -> Lived {
        let told = |event: &Event| match about(&event.kind) {
            Some(seq) => format!("{} of command {seq}", event.kind.name()),
            None => event.kind.name().to_owned(),
        };
        let unused = self.early.values().flatten();
        let unused = unused.filter(|event| event.kind.origin() == Origin::Activating);
        let unused = unused.map(|event| Unused { event: event.id.0, what: told(event) }).collect();
        let mut unknown: Vec<Unknown> = Vec::new();
        for (seq, event) in &self.pending {
            let place = usize::try_from(event.0).unwrap_or(1) - 1;
            let Some(asked) = self.events.get(place) else { continue };
            let is_timer = matches!(asked.kind, EventKind::TimerStarted { .. });
            let open = self.status.is_open();
            // What a closed run did not wait for is unknown only if nothing of it was recorded.
            if !is_timer && (open || !self.matched.contains(seq)) {
                let what = format!("{} {}", asked.kind.name(), name_of(&asked.kind));
                unknown.push(Unknown { event: event.0, what, pending_then: self.matched.contains(seq) });
            }
        }
        unknown.extend(self.stuck);
        Lived { events: self.events, unknown, unused, status: self.status, panicked: self.panicked }
    }
}

fn name_of(event: &EventKind) -> String {
    match event {
        EventKind::ActivityTaskScheduled(scheduled) => scheduled.activity_type.to_string(),
        EventKind::StartChildWorkflowExecutionInitiated(child) => child.workflow_id.to_string(),
        EventKind::SignalExternalWorkflowExecutionInitiated(signal) => {
            format!("{} to {}", signal.name, signal.target.workflow_id)
        }
        EventKind::RequestCancelExternalWorkflowExecutionInitiated { target, .. } => target.workflow_id.to_string(),
        _ => String::new(),
    }
}
