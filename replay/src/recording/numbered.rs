//! Checks what has a command number: activities, timers, child workflows, requests to other runs, side effects.
//!
//! ```text
//!   asked for (numbers count up) ──► attempts, starts, cancel requests ──► over, exactly once
//! ```
//!
//! Invariant: only what was asked for is resolved, as the kind of thing it is, and once.

use std::collections::BTreeMap;

use bosun_engine::*;

use super::{CommandFamily, HistoryProblem};

/// Everything numbered in a run so far.
#[derive(Default)]
pub(super) struct Numbered {
    last: Seq,
    things: BTreeMap<Seq, Thing>,
}

struct Thing {
    family: CommandFamily,
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
enum Transition<'a> {
    Over,
    CancelRequested,
    CancelDelivered,
    TimerFired,
    ActivityCompleted,
    ActivityCanceled,
    ActivityPaused(bool),
    ActivityModified,
    AttemptStarted(Attempt),
    AttemptAwaits(Attempt),
    AttemptFailed(Attempt, &'a Timestamp),
    ChildStarted,
    ChildOver,
}

impl Numbered {
    /// No run can ask for more: a thousand commands every second for thirty years.
    const SEQ_MAX: Seq = Seq(1 << 40);

    pub(super) fn event(&mut self, id: EventId, now: Timestamp, event: &EventKind) -> Result<(), HistoryProblem> {
        if matches!(event, EventKind::WorkflowExecutionForked { .. }) {
            self.begin_again();
            return Ok(());
        }
        if let Some((seq, family)) = CommandFamily::asked_for(event) {
            return self.ask(id, seq, family, event);
        }
        match self.cancel_of_child(event).or_else(|| step(event)) {
            Some((seq, family, step)) => self.pending(seq, family)?.take(id, now, seq, step),
            None => Ok(()),
        }
    }

    /// The event that says that another run was asked to cancel says it of children too.
    fn cancel_of_child(&self, event: &EventKind) -> Option<(Seq, CommandFamily, Transition<'static>)> {
        let EventKind::ExternalWorkflowExecutionCancelRequested { seq } = event else { return None };
        let is_child = self.things.get(seq).is_some_and(|thing| thing.family == CommandFamily::ChildWorkflow);
        is_child.then_some((*seq, CommandFamily::ChildWorkflow, Transition::CancelDelivered))
    }

    /// A fork begins what was under way from the first attempt.
    fn begin_again(&mut self) {
        for thing in self.things.values_mut().filter(|thing| thing.over_since.is_none()) {
            (thing.attempt, thing.running, thing.forked) = (Attempt(0), false, true);
        }
    }

    /// A heartbeat belongs to an attempt that was started; it may be told after the activity's end in the same turn.
    pub(super) fn heartbeat(&self, beat: &Heartbeat) -> Result<(), HistoryProblem> {
        match self.things.get(&beat.seq) {
            Some(thing) if thing.family != CommandFamily::Activity => {
                Err(HistoryProblem::OtherFamily { seq: beat.seq, wanted: CommandFamily::Activity, found: thing.family })
            }
            Some(thing) if beat.attempt.0 == 0 || beat.attempt > thing.attempt => {
                Err(HistoryProblem::AttemptNotStarted { seq: beat.seq, attempt: beat.attempt })
            }
            Some(_) => Ok(()),
            None => Err(HistoryProblem::UnknownSeq { seq: beat.seq, wanted: CommandFamily::Activity }),
        }
    }

    /// A message of a closed run that has arrived: a start or cancel request of a child, or a request to another run, that
    /// was under way when the run ended at `closed_at`.
    pub(super) fn delivered(&mut self, seq: Seq, closed_at: EventId) -> Result<(), HistoryProblem> {
        let wanted = match self.things.get(&seq).map(|thing| thing.family) {
            Some(family @ (CommandFamily::ChildWorkflow | CommandFamily::ExternalCancel)) => family,
            Some(_) | None => CommandFamily::ExternalSignal,
        };
        self.pending(seq, wanted)?.over_since = Some(closed_at);
        Ok(())
    }

    fn ask(&mut self, id: EventId, seq: Seq, family: CommandFamily, event: &EventKind) -> Result<(), HistoryProblem> {
        if seq <= self.last {
            return Err(HistoryProblem::SeqOutOfOrder { last: self.last, found: seq });
        }
        if seq > Self::SEQ_MAX {
            return Err(HistoryProblem::SeqTooLarge { found: seq });
        }
        self.last = seq;
        let fire_at = match event {
            EventKind::TimerStarted { fire_at, .. } => *fire_at,
            _ => Timestamp::ZERO,
        };
        let thing = Thing {
            family,
            // A side effect is over as soon as it is recorded.
            over_since: (family == CommandFamily::SideEffect).then_some(id),
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
    fn pending(&mut self, seq: Seq, wanted: CommandFamily) -> Result<&mut Thing, HistoryProblem> {
        match self.things.get_mut(&seq) {
            None => Err(HistoryProblem::UnknownSeq { seq, wanted }),
            Some(thing) if thing.family != wanted => {
                Err(HistoryProblem::OtherFamily { seq, wanted, found: thing.family })
            }
            Some(Thing { over_since: Some(since), .. }) => {
                Err(HistoryProblem::AlreadyOver { seq, family: wanted, since: *since })
            }
            Some(thing) => Ok(thing),
        }
    }
}

impl Thing {
    fn take(&mut self, id: EventId, now: Timestamp, seq: Seq, step: Transition<'_>) -> Result<(), HistoryProblem> {
        let last = self.attempt;
        match step {
            Transition::CancelRequested if std::mem::replace(&mut self.cancel_requested, true) => {
                return Err(HistoryProblem::CancelRequestedTwice { seq, family: self.family });
            }
            Transition::TimerFired if now < self.fire_at => {
                return Err(HistoryProblem::FiredEarly { seq, at: now, fire_at: self.fire_at });
            }
            Transition::ActivityCompleted if last == Attempt(0) && !self.forked => {
                return Err(HistoryProblem::ResultWithoutAttempt { seq });
            }
            Transition::ActivityCanceled | Transition::CancelDelivered if !self.cancel_requested => {
                return Err(HistoryProblem::CanceledUnasked { seq });
            }
            Transition::ActivityPaused(to) if std::mem::replace(&mut self.paused, to) == to => {
                return Err(HistoryProblem::ActivityPause { seq });
            }
            Transition::AttemptStarted(found) => self.start_attempt(seq, found)?,
            Transition::AttemptAwaits(attempt) | Transition::AttemptFailed(attempt, _)
                if !self.running || attempt != last =>
            {
                return Err(HistoryProblem::AttemptNotStarted { seq, attempt });
            }
            Transition::AttemptFailed(_, next_at) if *next_at < now => return Err(HistoryProblem::RetryInThePast),
            Transition::AttemptFailed(..) => self.running = false,
            Transition::ChildStarted if std::mem::replace(&mut self.started, true) => {
                return Err(HistoryProblem::ChildStartedTwice { seq });
            }
            Transition::ChildOver if !self.started => return Err(HistoryProblem::ChildNotStarted { seq }),
            Transition::Over
            | Transition::TimerFired
            | Transition::ActivityCompleted
            | Transition::ActivityCanceled
            | Transition::ChildOver => {
                self.over_since = Some(id);
            }
            Transition::CancelRequested
            | Transition::CancelDelivered
            | Transition::ActivityPaused(_)
            | Transition::ActivityModified
            | Transition::AttemptAwaits(_)
            | Transition::ChildStarted => {}
        }
        Ok(())
    }

    fn start_attempt(&mut self, seq: Seq, found: Attempt) -> Result<(), HistoryProblem> {
        let last = self.attempt;
        if found.0 == 0 {
            return Err(HistoryProblem::AttemptZero);
        }
        if self.running {
            return Err(HistoryProblem::AttemptStillRunning { seq, attempt: last });
        }
        if last.0.checked_add(1) != Some(found.0) {
            return Err(HistoryProblem::AttemptOutOfOrder { seq, last, found });
        }
        (self.attempt, self.running) = (found, true);
        Ok(())
    }
}

/// The numbered thing an event is about. Long because it is a list: every such event once.
fn step(event: &EventKind) -> Option<(Seq, CommandFamily, Transition<'_>)> {
    use EventKind::*;
    let (seq, family, step) = match event {
        ActivityTaskStarted { seq, attempt } => (seq, CommandFamily::Activity, Transition::AttemptStarted(*attempt)),
        ActivityTaskAwaitingCompletion { seq, attempt } => {
            (seq, CommandFamily::Activity, Transition::AttemptAwaits(*attempt))
        }
        ActivityTaskAttemptFailed { seq, attempt, next_attempt_at, .. } => {
            (seq, CommandFamily::Activity, Transition::AttemptFailed(*attempt, next_attempt_at))
        }
        ActivityTaskCompleted { seq, .. } => (seq, CommandFamily::Activity, Transition::ActivityCompleted),
        ActivityTaskFailed { seq, .. } | ActivityTaskTimedOut { seq, .. } => {
            (seq, CommandFamily::Activity, Transition::Over)
        }
        ActivityTaskCanceled { seq, .. } => (seq, CommandFamily::Activity, Transition::ActivityCanceled),
        ActivityTaskCancelRequested { seq } => (seq, CommandFamily::Activity, Transition::CancelRequested),
        ActivityTaskPaused { seq, .. } => (seq, CommandFamily::Activity, Transition::ActivityPaused(true)),
        ActivityTaskUnpaused { seq, .. } => (seq, CommandFamily::Activity, Transition::ActivityPaused(false)),
        ActivityPropertiesModifiedExternally { seq, .. } => {
            (seq, CommandFamily::Activity, Transition::ActivityModified)
        }
        TimerFired { seq } => (seq, CommandFamily::Timer, Transition::TimerFired),
        TimerCanceled { seq } => (seq, CommandFamily::Timer, Transition::Over),
        StartChildWorkflowExecutionFailed { seq, .. } => (seq, CommandFamily::ChildWorkflow, Transition::Over),
        ChildWorkflowExecutionStarted { seq, .. } => (seq, CommandFamily::ChildWorkflow, Transition::ChildStarted),
        ChildWorkflowExecutionCancelRequested { seq, .. } => {
            (seq, CommandFamily::ChildWorkflow, Transition::CancelRequested)
        }
        ChildWorkflowExecutionCompleted { seq, .. }
        | ChildWorkflowExecutionFailed { seq, .. }
        | ChildWorkflowExecutionCanceled { seq, .. }
        | ChildWorkflowExecutionTimedOut { seq }
        | ChildWorkflowExecutionTerminated { seq, .. } => (seq, CommandFamily::ChildWorkflow, Transition::ChildOver),
        ExternalWorkflowExecutionSignaled { seq } | SignalExternalWorkflowExecutionFailed { seq, .. } => {
            (seq, CommandFamily::ExternalSignal, Transition::Over)
        }
        ExternalWorkflowExecutionCancelRequested { seq } | RequestCancelExternalWorkflowExecutionFailed { seq, .. } => {
            (seq, CommandFamily::ExternalCancel, Transition::Over)
        }
        _ => return None,
    };
    Some((*seq, family, step))
}
