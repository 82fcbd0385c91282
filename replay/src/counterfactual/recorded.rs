//! What was asked for then, and the matching of what is asked for now with it.
//!
//! Invariant: a recorded request is matched once. A match by more (type, id and input) is preferred to one by less.

use std::collections::BTreeMap;
use std::time::Duration;

use bosun_engine::*;

/// A request as far as it is matched.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RecordedRequest {
    family: crate::CommandFamily,
    type_name: String,
    /// A name that somebody gave; numbers that the driver gives do not count.
    id: Option<String>,
    input: Payload,
    /// Timers: how long.
    delay: Option<Duration>,
}

impl RecordedRequest {
    /// The request that an event makes, with its number.
    pub(super) fn of(event: &EventKind, at: Timestamp) -> Option<(Seq, RecordedRequest)> {
        let (seq, family) = crate::CommandFamily::asked_for(event)?;
        let (type_name, id, input, delay) = match event {
            EventKind::ActivityTaskScheduled(scheduled) => {
                let id = scheduled.activity_id.to_string();
                let given = !id.bytes().all(|byte| byte.is_ascii_digit());
                (scheduled.activity_type.to_string(), given.then_some(id), scheduled.input.clone(), None)
            }
            EventKind::StartChildWorkflowExecutionInitiated(child) => {
                (child.workflow_type.to_string(), Some(child.workflow_id.to_string()), child.input.clone(), None)
            }
            EventKind::SignalExternalWorkflowExecutionInitiated(signal) => {
                (signal.name.to_string(), Some(signal.target.workflow_id.to_string()), signal.input.clone(), None)
            }
            EventKind::RequestCancelExternalWorkflowExecutionInitiated { target, .. } => {
                (target.workflow_id.to_string(), None, Payload::null(), None)
            }
            EventKind::TimerStarted { fire_at, summary, .. } => {
                (summary.clone().unwrap_or_default(), None, Payload::null(), Some(fire_at.since(at)))
            }
            _ => return None,
        };
        Some((seq, RecordedRequest { family, type_name, id, input, delay }))
    }

    fn is_same_kind(&self, other: &RecordedRequest) -> bool {
        self.family == other.family && self.type_name == other.type_name && self.delay == other.delay
    }
}

/// The requests of the record that nobody has asked for again yet.
pub(super) struct RecordedRequests {
    left: BTreeMap<Seq, RecordedRequest>,
    fired: BTreeMap<Seq, Timestamp>,
}

impl RecordedRequests {
    pub(super) fn of(events: &[Event]) -> Self {
        let fired = events.iter().filter_map(|event| match event.kind {
            EventKind::TimerFired { seq } => Some((seq, event.at)),
            _ => None,
        });
        let fired: BTreeMap<Seq, Timestamp> = fired.collect();
        let asked = events.iter().filter_map(|event| RecordedRequest::of(&event.kind, event.at));
        // A timer that did not fire then says nothing about one of now.
        let tells = |(seq, request): &(Seq, RecordedRequest)| {
            request.family != crate::CommandFamily::Timer || fired.contains_key(seq)
        };
        RecordedRequests { left: asked.filter(tells).collect(), fired }
    }

    /// When a timer fired then.
    pub(super) fn fired(&self, seq: Seq) -> Option<Timestamp> {
        self.fired.get(&seq).copied()
    }

    /// The recorded request that is meant: the same id and input, else the same input, else the first of its type.
    pub(super) fn take(&mut self, asked: &RecordedRequest) -> Option<Seq> {
        let by = |fits: &dyn Fn(&RecordedRequest) -> bool| {
            self.left.iter().find(|(_, one)| one.is_same_kind(asked) && fits(one)).map(|(seq, _)| *seq)
        };
        let found = by(&|one| one.id == asked.id && one.input == asked.input)
            .or_else(|| by(&|one| one.input == asked.input))
            .or_else(|| by(&|_| true))?;
        self.left.remove(&found);
        Some(found)
    }
}
