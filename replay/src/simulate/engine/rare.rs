//! Rare states of the whole engine: what must be met now and then, or a search has not looked where it matters
//! (the requirements of the engine §3, `sometimes!`).
//!
//! Invariant: a name stands in [`ENGINE_RARE`] or it is a mistake of this module, which its test finds.

use std::collections::BTreeMap;

use bosun_engine::*;

/// All rare states.
pub const ENGINE_RARE: &[&str] = &[
    "power cut",
    "power cut between taking and writing a group",
    "power cut between writing and releasing a group",
    "power cut with a group written and not synced",
    "killed",
    "crash before the recovery from a crash was over",
    "storage error before the write",
    "storage error after the write",
    "disk full",
    "storage error in housekeeping",
    "request refused after a storage error",
    "stopped in order and started again",
    "clock set back over a restart",
    "long downtime",
    "new version deployed",
    "shard stalled",
    "several turns in one group",
    "several runs in one group",
    "turn decided while a group was being written",
    "attempt waited for a slot",
    "attempt canceled",
    "attempt dropped after its grace period",
    "attempt lost with its worker",
    "attempt ended late",
    "attempt timed out",
    "heartbeat written",
    "zombie refused",
    "completed from outside",
    "request repeated",
    "start found its own run",
    "start terminated the open run",
    "start refused: open",
    "signal with start",
    "signal arrived",
    "signal waited in the inbox",
    "signal from another run arrived",
    "update completed",
    "update refused",
    "query answered",
    "result awaited over a crash",
    "cancel requested",
    "terminated",
    "paused",
    "activity paused",
    "continued as new",
    "child completed",
    "child closed with its parent",
    "timer fired",
    "timer fired late",
    "two ends in one turn",
    "request refused: overloaded",
    "run deleted",
    "run reset",
    "reset found its own run",
    "reset refused",
    "reset ended an open run",
    "reset with a timer, a child and a signal before it",
    "signal told again after a reset",
    "activity changed from outside",
    "housekeeping",
    "groups archived",
];

/// How often each was met.
#[derive(Debug, Clone, Default)]
pub(super) struct EngineRare(pub(super) BTreeMap<&'static str, u64>);

impl EngineRare {
    pub(super) fn hit(&mut self, name: &'static str) {
        debug_assert!(ENGINE_RARE.contains(&name), "{name} is not listed");
        *self.0.entry(name).or_default() += 1;
    }

    /// What a run that goes on after a reset had open before it.
    fn note_reset(&mut self, turns: &[Turn]) {
        let events: Vec<&EventKind> = turns.iter().flat_map(|turn| &turn.events).collect();
        let is_reset =
            |event: &&EventKind| matches!(event, EventKind::WorkflowExecutionForked { from, .. } if from.reset);
        let Some(forked) = events.iter().position(is_reset) else { return };
        let (before, after) = events.split_at(forked);
        let signal = |event: &EventKind| matches!(event, EventKind::WorkflowExecutionSignaled(_));
        if any(after, signal) {
            self.hit("signal told again after a reset");
        }
        if any(before, signal)
            && any(before, |event| matches!(event, EventKind::TimerStarted { .. }))
            && any(before, |event| matches!(event, EventKind::StartChildWorkflowExecutionInitiated(_)))
        {
            self.hit("reset with a timer, a child and a signal before it");
        }
    }

    /// What the turns of a history tell.
    pub(super) fn note_history(&mut self, turns: &[Turn]) {
        self.note_reset(turns);
        let mut armed: BTreeMap<Seq, Timestamp> = BTreeMap::new();
        for turn in turns {
            let ends = turn.events.iter().filter(|event| event.origin() == Origin::Activating).count();
            if ends > 1 {
                self.hit("two ends in one turn");
            }
            if turn.inbox_added.iter().any(|input| matches!(input, Input::Signal(_))) {
                self.hit("signal waited in the inbox");
            }
            if !turn.heartbeats.is_empty() {
                self.hit("heartbeat written");
            }
            for event in &turn.events {
                match event {
                    EventKind::TimerStarted { seq, fire_at, .. } => drop(armed.insert(*seq, *fire_at)),
                    EventKind::TimerFired { seq } if armed.get(seq).is_some_and(|at| *at < turn.at) => {
                        self.hit("timer fired late");
                    }
                    _ => {}
                }
                if let Some(name) = named(event) {
                    self.hit(name);
                }
            }
        }
    }
}

/// Whether such an event is among them.
fn any(events: &[&EventKind], is_it: impl Fn(&EventKind) -> bool) -> bool {
    events.iter().any(|event| is_it(event))
}

fn named(event: &EventKind) -> Option<&'static str> {
    Some(match event {
        EventKind::ActivityTaskCanceled { .. } => "attempt canceled",
        EventKind::ActivityTaskTimedOut { .. } => "attempt timed out",
        EventKind::ActivityTaskAttemptFailed { failure, .. } if failure.kind == FailureKind::WorkerLost => {
            "attempt lost with its worker"
        }
        EventKind::ActivityTaskPaused { .. } => "activity paused",
        EventKind::TimerFired { .. } => "timer fired",
        EventKind::WorkflowExecutionSignaled(signal) => match &signal.request_id {
            Some(id) if id.as_str().starts_with("client-") => "signal arrived",
            _ => "signal from another run arrived",
        },
        EventKind::WorkflowExecutionCancelRequested { .. } => "cancel requested",
        EventKind::WorkflowExecutionUpdateCompleted { .. } => "update completed",
        EventKind::WorkflowExecutionPaused { .. } => "paused",
        EventKind::WorkflowExecutionTerminated { reset: Some(_), .. } => "reset ended an open run",
        EventKind::ActivityPropertiesModifiedExternally { .. } => "activity changed from outside",
        EventKind::WorkflowExecutionTerminated { reason, .. } if reason.contains("parent") => {
            "child closed with its parent"
        }
        EventKind::WorkflowExecutionTerminated { reason, .. } if reason.contains("same workflow id") => {
            "start terminated the open run"
        }
        EventKind::WorkflowExecutionTerminated { .. } => "terminated",
        EventKind::ChildWorkflowExecutionCompleted { .. } => "child completed",
        EventKind::WorkflowExecutionContinuedAsNew(_) => "continued as new",
        _ => return None,
    })
}
