//! What must be true of every history, whatever happened to the worker that wrote it.
//!
//! Invariant: it knows the order and number of facts only, not what a workflow meant to do. An empty list of violations
//! says that ids are gap-free, time never runs back, everything asked for has at most one end, and no timer was early.

use std::collections::{BTreeMap, BTreeSet};

use bosun_engine::{Event, EventId, EventKind, Seq, Timestamp};

/// The rules a history breaks, each with the event that does.
pub fn violations(history: &[Event]) -> Vec<String> {
    let mut check = Check::default();
    for (i, event) in history.iter().enumerate() {
        check.place(i, event);
        check.event(event);
    }
    check.violations
}

/// How late each fired timer was, in microseconds.
pub fn timer_delays(history: &[Event]) -> Vec<i64> {
    let mut due = BTreeMap::new();
    let mut delays = Vec::new();
    for event in history {
        match &event.kind {
            EventKind::TimerStarted { seq, fire_at, .. } => {
                // A timer set for the past is due when it is set.
                due.insert(*seq, (*fire_at).max(event.at));
            }
            EventKind::TimerFired { seq } => delays.extend(due.get(seq).map(|due: &Timestamp| event.at.0 - due.0)),
            _ => {}
        }
    }
    delays
}

#[derive(Default)]
struct Check {
    violations: Vec<String>,
    last_at: Option<Timestamp>,
    closed: Option<EventId>,
    /// By the number of the command: what was begun and has not ended.
    open: BTreeSet<(&'static str, Seq)>,
    begun: BTreeSet<(&'static str, Seq)>,
    timers_due: BTreeMap<Seq, Timestamp>,
    attempts: BTreeMap<Seq, u32>,
    request_ids: BTreeSet<String>,
}

impl Check {
    fn report(&mut self, event: &Event, what: impl std::fmt::Display) {
        self.violations.push(format!("event {}: {what}: {:?}", event.id, event.kind));
    }

    fn place(&mut self, i: usize, event: &Event) {
        if event.id.0 != i as u64 + 1 {
            self.report(event, format_args!("its id should be {}", i + 1));
        }
        if self.last_at.is_some_and(|last| last > event.at) {
            self.report(event, "it is earlier than the event before");
        }
        self.last_at = Some(event.at);
        if let Some(closed) = self.closed {
            self.report(event, format_args!("it follows the end of the run, event {closed}"));
        }
        if event.kind.closes().is_some() {
            self.closed = Some(event.id);
        }
        if matches!(event.kind, EventKind::WorkflowExecutionStarted(_)) != (i == 0) {
            self.report(event, "a history begins with its start event and has no other");
        }
    }

    fn begin(&mut self, event: &Event, what: &'static str, seq: Seq) {
        if !self.begun.insert((what, seq)) {
            self.report(event, format_args!("{what} {seq} was begun before"));
        }
        self.open.insert((what, seq));
    }

    fn end(&mut self, event: &Event, what: &'static str, seq: Seq) {
        if !self.open.remove(&(what, seq)) {
            self.report(event, format_args!("{what} {seq} was not open"));
        }
    }

    /// Only the kinds that rules are about; every other kind is free to stand anywhere.
    fn event(&mut self, event: &Event) {
        use EventKind::*;
        match &event.kind {
            ActivityTaskScheduled(scheduled) => self.begin(event, "activity", scheduled.seq),
            ActivityTaskStarted { seq, attempt } => {
                let before = self.attempts.insert(*seq, attempt.0);
                if before.is_some_and(|before| before >= attempt.0) {
                    self.report(event, "this attempt was started before");
                }
            }
            ActivityTaskCompleted { seq, .. }
            | ActivityTaskFailed { seq, .. }
            | ActivityTaskTimedOut { seq, .. }
            | ActivityTaskCanceled { seq, .. } => self.end(event, "activity", *seq),
            TimerStarted { seq, fire_at, .. } => {
                self.begin(event, "timer", *seq);
                self.timers_due.insert(*seq, *fire_at);
            }
            TimerFired { seq } => {
                self.end(event, "timer", *seq);
                if self.timers_due.get(seq).is_some_and(|due| *due > event.at) {
                    self.report(event, "the timer is early");
                }
            }
            TimerCanceled { seq } => self.end(event, "timer", *seq),
            StartChildWorkflowExecutionInitiated(child) => self.begin(event, "child", child.seq),
            StartChildWorkflowExecutionFailed { seq, .. }
            | ChildWorkflowExecutionCompleted { seq, .. }
            | ChildWorkflowExecutionFailed { seq, .. }
            | ChildWorkflowExecutionCanceled { seq, .. }
            | ChildWorkflowExecutionTimedOut { seq }
            | ChildWorkflowExecutionTerminated { seq, .. } => self.end(event, "child", *seq),
            WorkflowExecutionSignaled(signal) => {
                if let Some(id) = &signal.request_id
                    && !self.request_ids.insert(id.to_string())
                {
                    self.report(event, "a signal with this request id was applied before");
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use bosun_engine::{Attempt, BuildId, Payload};

    use super::*;
    use crate::harness::workload;

    fn history(kinds: Vec<(i64, EventKind)>) -> Vec<Event> {
        let started = workload::started_event("w");
        let kinds = std::iter::once((0, started)).chain(kinds);
        let event = |(i, (at, kind))| Event { id: EventId(i as u64 + 1), at: Timestamp(at), build: BuildId(1), kind };
        kinds.enumerate().map(event).collect()
    }

    fn timer(seq: u64, fire_at: i64) -> EventKind {
        EventKind::TimerStarted { seq: Seq(seq), fire_at: Timestamp(fire_at), summary: None }
    }

    #[test]
    fn a_good_history_breaks_no_rule() {
        let completed = EventKind::WorkflowExecutionCompleted { result: Payload::null(), unhandled_signals: vec![] };
        let good = history(vec![(1, timer(1, 5)), (6, EventKind::TimerFired { seq: Seq(1) }), (6, completed)]);
        assert_eq!(violations(&good), Vec::<String>::new());
        assert_eq!(timer_delays(&good), [1]);
    }

    #[test]
    fn every_broken_rule_is_named() {
        let fired = || EventKind::TimerFired { seq: Seq(1) };
        let attempt = || EventKind::ActivityTaskStarted { seq: Seq(7), attempt: Attempt(1) };
        let done = || EventKind::ActivityTaskCompleted { seq: Seq(7), result: Payload::null(), identity: None };
        let closed = || EventKind::WorkflowExecutionTerminated {
            reason: String::new(),
            identity: None,
            reset: None,
            unhandled_signals: Vec::new(),
        };
        for (kinds, rule) in [
            (vec![(1, timer(1, 5)), (4, fired())], "the timer is early"),
            (vec![(1, timer(1, 5)), (5, fired()), (5, fired())], "timer 1 was not open"),
            (vec![(1, timer(1, 5)), (2, timer(1, 5))], "timer 1 was begun before"),
            (vec![(5, timer(1, 9)), (4, timer(2, 9))], "earlier than the event before"),
            (vec![(1, attempt()), (2, attempt())], "attempt was started before"),
            (vec![(1, done())], "activity 7 was not open"),
            (vec![(1, closed()), (1, closed())], "follows the end of the run"),
            (vec![(1, workload::started_event("w"))], "has no other"),
        ] {
            let found = violations(&history(kinds));
            assert!(found.iter().any(|violation| violation.contains(rule)), "{rule}: {found:?}");
        }
        let mut gap = history(vec![(1, timer(1, 5)), (2, timer(2, 5))]);
        gap.remove(1);
        assert!(violations(&gap)[0].contains("its id should be 2"));
    }
}
