//! The history that is forked, as its plan looks at it.
//!
//! Invariant: everything here is read from the turns; the first event is the start of the run.

use std::collections::BTreeMap;

use super::refused;
use crate::request::ForkEffect;
use crate::vocabulary::*;

pub(super) struct ForkHistory<'a> {
    pub(super) turns: &'a [Turn],
    pub(super) run: RunId,
    pub(super) started: &'a WorkflowExecutionStarted,
    pub(super) events: Vec<Placed<'a>>,
    /// Activities, children and side effects by their command numbers.
    pub(super) subjects: BTreeMap<Seq, ForkedOperation>,
}

/// An event with its place.
#[derive(Clone, Copy)]
pub(super) struct Placed<'a> {
    pub(super) id: EventId,
    pub(super) turn: usize,
    pub(super) at: Timestamp,
    pub(super) kind: &'a EventKind,
}

/// Something that was asked for and has an outcome.
#[derive(Debug, Clone)]
pub(super) struct ForkedOperation {
    pub(super) seq: Seq,
    pub(super) family: OperationFamily,
    pub(super) type_name: String,
    pub(super) id_name: String,
    /// What its code said it is for.
    pub(super) summary: Option<String>,
    pub(super) asked: EventId,
    pub(super) ended: Option<EventId>,
    pub(super) attempts: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OperationFamily {
    Activity,
    Child,
    SideEffect,
    Signal,
    CancelRequest,
}

/// The name by which all side effects of a run are known.
pub(super) const SIDE_EFFECT: &str = "side-effect";

impl<'a> ForkHistory<'a> {
    pub(super) fn of(turns: &'a [Turn]) -> Result<Self, crate::vocabulary::Rejection> {
        let mut events = Vec::new();
        for (place, turn) in turns.iter().enumerate() {
            for (i, kind) in turn.events.iter().enumerate() {
                let id = EventId(turn.first_event.0 + i as u64);
                events.push(Placed { id, turn: place, at: turn.at, kind });
            }
        }
        let Some(Placed { kind: EventKind::WorkflowExecutionStarted(started), turn, .. }) = events.first() else {
            return Err(refused("the source", "its history does not begin with the start of a run"));
        };
        let (run, started) = (turns[*turn].run, &**started);
        if started.input.is_lost() {
            let why = "damage to the store took its input: another run would begin with nothing. Start the workflow again with \
                       the input that you know, or bring a backup back (`bosun store restore`)";
            return Err(refused("the source", why));
        }
        if let Some(lost) = turns.iter().find_map(Turn::lost_payload) {
            let hash = String::from_utf8_lossy(&lost.data);
            let why = format!(
                "damage to the store took payload {hash} of its history: another run would hear of it. Bring a backup back that \
                 has it (`bosun store restore`)"
            );
            return Err(refused("the source", &why));
        }
        let mut source = ForkHistory { turns, run, started, events, subjects: BTreeMap::new() };
        source.collect();
        Ok(source)
    }

    fn collect(&mut self) {
        for event in &self.events {
            if let Some((seq, family, type_name, id_name)) = asks(event.kind) {
                let ended = (family == OperationFamily::SideEffect).then_some(event.id);
                let summary = summary(event.kind);
                let subject =
                    ForkedOperation { seq, family, type_name, id_name, summary, asked: event.id, ended, attempts: 0 };
                self.subjects.insert(seq, subject);
            }
            match event.kind {
                EventKind::ActivityTaskStarted { seq, .. } => {
                    if let Some(subject) = self.subjects.get_mut(seq) {
                        subject.attempts += 1;
                    }
                }
                other => {
                    if let Some(subject) = ends(other).and_then(|seq| self.subjects.get_mut(&seq)) {
                        subject.ended = Some(event.id);
                    }
                }
            }
        }
    }

    /// The place after this event, in this run.
    pub(super) fn point(&self, event: EventId) -> ForkPoint {
        ForkPoint { workflow_id: self.started.workflow_id.clone(), run_id: self.run, event, reset: false }
    }
    /// What the start event of a run that begins here says of this one.
    pub(super) fn forked_from(&self, point: &ForkPoint, now: Timestamp) -> ForkedFrom {
        ForkedFrom::of(self.started, point.clone(), now.max(self.time_of(point.event)))
    }
    pub(super) fn count(&self) -> usize {
        self.events.len()
    }
    pub(super) fn event(&self, id: EventId) -> Option<Placed<'a>> {
        let place = usize::try_from(id.0.checked_sub(1)?).ok()?;
        self.events.get(place).copied()
    }
    /// The time of an event; of the first one for event 0.
    pub(super) fn time_of(&self, id: EventId) -> Timestamp {
        self.event(EventId(id.0.max(1))).map_or(Timestamp::ZERO, |event| event.at)
    }
    pub(super) fn after(&self, id: EventId) -> &[Placed<'a>] {
        let from = usize::try_from(id.0).unwrap_or(usize::MAX).min(self.events.len());
        &self.events[from..]
    }

    pub(super) fn asked_after(&self, id: EventId) -> Vec<ForkEffect> {
        let later = self.subjects.values().filter(|subject| subject.asked > id);
        later.filter(|subject| subject.family != OperationFamily::SideEffect).map(ForkedOperation::effect).collect()
    }
}

impl ForkedOperation {
    pub(super) fn effect(&self) -> ForkEffect {
        let kind = match self.family {
            OperationFamily::Activity => "activity",
            OperationFamily::Child => "child workflow",
            OperationFamily::SideEffect => "side effect",
            OperationFamily::Signal => "signal",
            OperationFamily::CancelRequest => "cancel request",
        };
        ForkEffect {
            kind: kind.into(),
            name: self.type_name.clone(),
            summary: self.summary.clone(),
            seq: self.seq,
            attempts: self.attempts,
        }
    }
    pub(super) fn is_pending_at(&self, event: EventId) -> bool {
        self.asked <= event && self.ended.is_none_or(|ended| ended > event)
    }
}

/// What an event asks for: its number, family, type and id.
fn asks(event: &EventKind) -> Option<(Seq, OperationFamily, String, String)> {
    Some(match event {
        EventKind::ActivityTaskScheduled(scheduled) => (
            scheduled.seq,
            OperationFamily::Activity,
            scheduled.activity_type.to_string(),
            scheduled.activity_id.to_string(),
        ),
        EventKind::StartChildWorkflowExecutionInitiated(child) => {
            (child.seq, OperationFamily::Child, child.workflow_type.to_string(), child.workflow_id.to_string())
        }
        EventKind::MarkerRecorded(Marker::SideEffect { seq, .. }) => {
            (*seq, OperationFamily::SideEffect, SIDE_EFFECT.to_owned(), SIDE_EFFECT.to_owned())
        }
        EventKind::SignalExternalWorkflowExecutionInitiated(signal) => {
            let name = format!("{} to {}", signal.name, signal.target.workflow_id);
            (signal.seq, OperationFamily::Signal, name.clone(), name)
        }
        EventKind::RequestCancelExternalWorkflowExecutionInitiated { seq, target, .. } => {
            (*seq, OperationFamily::CancelRequest, target.workflow_id.to_string(), target.workflow_id.to_string())
        }
        _ => return None,
    })
}

fn summary(event: &EventKind) -> Option<String> {
    match event {
        EventKind::ActivityTaskScheduled(scheduled) => scheduled.options.summary.clone(),
        EventKind::StartChildWorkflowExecutionInitiated(child) => child.options.summary.clone(),
        _ => None,
    }
}

/// The number of what an event ends.
pub(super) fn ends(event: &EventKind) -> Option<Seq> {
    match event {
        EventKind::ActivityTaskCompleted { seq, .. }
        | EventKind::ActivityTaskFailed { seq, .. }
        | EventKind::ActivityTaskTimedOut { seq, .. }
        | EventKind::ActivityTaskCanceled { seq, .. }
        | EventKind::StartChildWorkflowExecutionFailed { seq, .. }
        | EventKind::ChildWorkflowExecutionCompleted { seq, .. }
        | EventKind::ChildWorkflowExecutionFailed { seq, .. }
        | EventKind::ChildWorkflowExecutionCanceled { seq, .. }
        | EventKind::ChildWorkflowExecutionTimedOut { seq }
        | EventKind::ChildWorkflowExecutionTerminated { seq, .. }
        | EventKind::ExternalWorkflowExecutionSignaled { seq }
        | EventKind::SignalExternalWorkflowExecutionFailed { seq, .. }
        | EventKind::RequestCancelExternalWorkflowExecutionFailed { seq, .. } => Some(*seq),
        _ => None,
    }
}
