//! Checks what has a command number: activities, timers, child workflows, requests to other runs, side effects.
//!
//! ```text
//!   asked for (numbers count up) ──► attempts, starts, cancel requests ──► over, exactly once
//! ```
//!
//! Invariant: only what was asked for is resolved, as the kind of thing it is, and once.

use std::collections::BTreeMap;

use bosun_engine::*;

use super::{Family, Problem};

/// Everything numbered in a run so far.
#[derive(Default)]
pub(super) struct Numbered {
    last: Seq,
    things: BTreeMap<Seq, Thing>,
}

struct Thing {
    family: Family,
    over_since: Option<EventId>,
    cancel_requested: bool,
    /// Activities: the last attempt that was started, and whether it is under way.
    attempt: Attempt,
    running: bool,
    paused: bool,
    /// Children: the child has started.
    started: bool,
    /// Timers: when it may fire.
    fire_at: Timestamp,
    /// Activities: attempts before a fork were another run's, so that a result may be told without one.
    forked: bool,
}

/// What an event does to a numbered thing.
enum Step<'a> {
    Over,
    CancelRequested,
    CancelDelivered,
    TimerFired,
    ActivityCompleted,
    ActivityCanceled,
    ActivityPaused(bool),
    AttemptStarted(Attempt),
    AttemptAwaits(Attempt),
    AttemptFailed(Attempt, &'a Timestamp),
    ChildStarted,
    ChildOver,
}

impl Numbered {
    /// No run can ask for more: a thousand commands every second for thirty years.
    const SEQ_MAX: Seq = Seq(1 << 40);

    pub(super) fn event(&mut self, id: EventId, now: Timestamp, event: &EventKind) -> Result<(), Problem> {
        if matches!(event, EventKind::WorkflowExecutionForked { .. }) {
            self.begin_again();
            return Ok(());
        }
        if let Some((seq, family)) = Family::asked_for(event) {
            return self.ask(id, seq, family, event);
        }
        match self.cancel_of_child(event).or_else(|| step(event)) {
            Some((seq, family, step)) => self.pending(seq, family)?.take(id, now, seq, step),
            None => Ok(()),
        }
    }

    /// The event that says that another run was asked to cancel says it of children too.
    fn cancel_of_child(&self, event: &EventKind) -> Option<(Seq, Family, Step<'static>)> {
        let EventKind::ExternalWorkflowExecutionCancelRequested { seq } = event else { return None };
        let is_child = self.things.get(seq).is_some_and(|thing| thing.family == Family::ChildWorkflow);
        is_child.then_some((*seq, Family::ChildWorkflow, Step::CancelDelivered))
    }

    /// A fork begins what was under way from the first attempt.
    fn begin_again(&mut self) {
        for thing in self.things.values_mut().filter(|thing| thing.over_since.is_none()) {
            (thing.attempt, thing.running, thing.forked) = (Attempt(0), false, true);
        }
    }

    /// A heartbeat belongs to an attempt that was started; it may be told after the activity's end in the same turn.
    pub(super) fn heartbeat(&self, beat: &Heartbeat) -> Result<(), Problem> {
        match self.things.get(&beat.seq) {
            Some(thing) if thing.family != Family::Activity => {
                Err(Problem::OtherFamily { seq: beat.seq, wanted: Family::Activity, found: thing.family })
            }
            Some(thing) if beat.attempt.0 == 0 || beat.attempt > thing.attempt => {
                Err(Problem::AttemptNotStarted { seq: beat.seq, attempt: beat.attempt })
            }
            Some(_) => Ok(()),
            None => Err(Problem::UnknownSeq { seq: beat.seq, wanted: Family::Activity }),
        }
    }

    /// A message of a closed run that has arrived: a start or cancel request of a child, or a request to another run, that
    /// was under way when the run ended at `closed_at`.
    pub(super) fn delivered(&mut self, seq: Seq, closed_at: EventId) -> Result<(), Problem> {
        let wanted = match self.things.get(&seq).map(|thing| thing.family) {
            Some(family @ (Family::ChildWorkflow | Family::ExternalCancel)) => family,
            Some(_) | None => Family::ExternalSignal,
        };
        self.pending(seq, wanted)?.over_since = Some(closed_at);
        Ok(())
    }

    fn ask(&mut self, id: EventId, seq: Seq, family: Family, event: &EventKind) -> Result<(), Problem> {
        if seq <= self.last {
            return Err(Problem::SeqOutOfOrder { last: self.last, found: seq });
        }
        if seq > Self::SEQ_MAX {
            return Err(Problem::SeqTooLarge { found: seq });
        }
        self.last = seq;
        let fire_at = match event {
            EventKind::TimerStarted { fire_at, .. } => *fire_at,
            _ => Timestamp::ZERO,
        };
        let thing = Thing {
            family,
            // A side effect is over as soon as it is recorded.
            over_since: (family == Family::SideEffect).then_some(id),
            cancel_requested: false,
            attempt: Attempt(0),
            running: false,
            paused: false,
            started: false,
            fire_at,
            forked: false,
        };
        self.things.insert(seq, thing);
        Ok(())
    }

    /// The thing an event is about: it exists, is of that family, and is not over.
    fn pending(&mut self, seq: Seq, wanted: Family) -> Result<&mut Thing, Problem> {
        match self.things.get_mut(&seq) {
            None => Err(Problem::UnknownSeq { seq, wanted }),
            Some(thing) if thing.family != wanted => Err(Problem::OtherFamily { seq, wanted, found: thing.family }),
            Some(Thing { over_since: Some(since), .. }) => {
                Err(Problem::AlreadyOver { seq, family: wanted, since: *since })
            }
            Some(thing) => Ok(thing),
        }
    }
}

impl Thing {
    fn take(&mut self, id: EventId, now: Timestamp, seq: Seq, step: Step<'_>) -> Result<(), Problem> {
        let last = self.attempt;
        match step {
            Step::CancelRequested if std::mem::replace(&mut self.cancel_requested, true) => {
                return Err(Problem::CancelRequestedTwice { seq, family: self.family });
            }
            Step::TimerFired if now < self.fire_at => {
                return Err(Problem::FiredEarly { seq, at: now, fire_at: self.fire_at });
            }
            Step::ActivityCompleted if last == Attempt(0) && !self.forked => {
                return Err(Problem::ResultWithoutAttempt { seq });
            }
            Step::ActivityCanceled | Step::CancelDelivered if !self.cancel_requested => {
                return Err(Problem::CanceledUnasked { seq });
            }
            Step::ActivityPaused(to) if std::mem::replace(&mut self.paused, to) == to => {
                return Err(Problem::ActivityPause { seq });
            }
            Step::AttemptStarted(found) => {
                if found.0 == 0 {
                    return Err(Problem::AttemptZero);
                }
                if self.running {
                    return Err(Problem::AttemptStillRunning { seq, attempt: last });
                }
                if last.0.checked_add(1) != Some(found.0) {
                    return Err(Problem::AttemptOutOfOrder { seq, last, found });
                }
                (self.attempt, self.running) = (found, true);
            }
            Step::AttemptAwaits(attempt) | Step::AttemptFailed(attempt, _) if !self.running || attempt != last => {
                return Err(Problem::AttemptNotStarted { seq, attempt });
            }
            Step::AttemptFailed(_, next_at) if *next_at < now => return Err(Problem::RetryInThePast),
            Step::AttemptFailed(..) => self.running = false,
            Step::ChildStarted if std::mem::replace(&mut self.started, true) => {
                return Err(Problem::ChildStartedTwice { seq });
            }
            Step::ChildOver if !self.started => return Err(Problem::ChildNotStarted { seq }),
            Step::Over | Step::TimerFired | Step::ActivityCompleted | Step::ActivityCanceled | Step::ChildOver => {
                self.over_since = Some(id);
            }
            Step::CancelRequested
            | Step::CancelDelivered
            | Step::ActivityPaused(_)
            | Step::AttemptAwaits(_)
            | Step::ChildStarted => {}
        }
        Ok(())
    }
}

/// The numbered thing an event is about. Long because it is a list: every such event once.
fn step(event: &EventKind) -> Option<(Seq, Family, Step<'_>)> {
    use EventKind::*;
    let (seq, family, step) = match event {
        ActivityTaskStarted { seq, attempt } => (seq, Family::Activity, Step::AttemptStarted(*attempt)),
        ActivityTaskAwaitingCompletion { seq, attempt } => (seq, Family::Activity, Step::AttemptAwaits(*attempt)),
        ActivityTaskAttemptFailed { seq, attempt, next_attempt_at, .. } => {
            (seq, Family::Activity, Step::AttemptFailed(*attempt, next_attempt_at))
        }
        ActivityTaskCompleted { seq, .. } => (seq, Family::Activity, Step::ActivityCompleted),
        ActivityTaskFailed { seq, .. } | ActivityTaskTimedOut { seq, .. } => (seq, Family::Activity, Step::Over),
        ActivityTaskCanceled { seq, .. } => (seq, Family::Activity, Step::ActivityCanceled),
        ActivityTaskCancelRequested { seq } => (seq, Family::Activity, Step::CancelRequested),
        ActivityTaskPaused { seq, .. } => (seq, Family::Activity, Step::ActivityPaused(true)),
        ActivityTaskUnpaused { seq, .. } => (seq, Family::Activity, Step::ActivityPaused(false)),
        TimerFired { seq } => (seq, Family::Timer, Step::TimerFired),
        TimerCanceled { seq } => (seq, Family::Timer, Step::Over),
        StartChildWorkflowExecutionFailed { seq, .. } => (seq, Family::ChildWorkflow, Step::Over),
        ChildWorkflowExecutionStarted { seq, .. } => (seq, Family::ChildWorkflow, Step::ChildStarted),
        ChildWorkflowExecutionCancelRequested { seq, .. } => (seq, Family::ChildWorkflow, Step::CancelRequested),
        ChildWorkflowExecutionCompleted { seq, .. }
        | ChildWorkflowExecutionFailed { seq, .. }
        | ChildWorkflowExecutionCanceled { seq, .. }
        | ChildWorkflowExecutionTimedOut { seq }
        | ChildWorkflowExecutionTerminated { seq, .. } => (seq, Family::ChildWorkflow, Step::ChildOver),
        ExternalWorkflowExecutionSignaled { seq } | SignalExternalWorkflowExecutionFailed { seq, .. } => {
            (seq, Family::ExternalSignal, Step::Over)
        }
        ExternalWorkflowExecutionCancelRequested { seq } | RequestCancelExternalWorkflowExecutionFailed { seq, .. } => {
            (seq, Family::ExternalCancel, Step::Over)
        }
        _ => return None,
    };
    Some((*seq, family, step))
}
