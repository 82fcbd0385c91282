//! The engine's guarantees, checked on the histories of a world at rest (the requirements of the engine §2, G11-G20).
//!
//! Invariant: a check knows events only, never how the machine came to them; each is a pure function of histories and of
//! what the client was answered, and names the guarantee that is broken. Such a finding is a bug in Bosun, or in the
//! simulated shell.

use std::collections::{BTreeMap, BTreeSet};

use bosun_engine::*;

use super::finding::Violation;
use super::world::{Sent, SimulatedRun, World, run_is_closed, started_of};

type GuaranteeResult = Result<(), Violation>;

fn broken(id: &'static str, why: impl Into<String>) -> GuaranteeResult {
    Err(Violation::Guarantee { id, why: why.into() })
}

/// Checks every history, and what they say together.
pub(super) fn check(world: &World<'_>) -> GuaranteeResult {
    world.runs.values().try_for_each(|run| of_history(&run.turns))?;
    one_open_run(world)?;
    orphans(world)?;
    chains(world)?;
    requests(world)
}

/// What one history shows alone.
pub(super) fn of_history(turns: &[Turn]) -> GuaranteeResult {
    order(turns)?;
    activities(turns)?;
    timers(turns)?;
    children(turns)
}

/// G11, G15: events are numbered without a gap, time does not go back, and nothing follows the end.
fn order(turns: &[Turn]) -> GuaranteeResult {
    let (mut next, mut at, mut closed) = (EventId(1), Timestamp(i64::MIN), false);
    for turn in turns {
        if turn.first_event != next {
            return broken("G11", format!("a turn begins with event {} instead of {next}", turn.first_event));
        }
        if turn.at < at {
            return broken("G15", format!("event time goes back from {at} to {} at event {next}", turn.at));
        }
        if closed && !turn.events.is_empty() {
            return broken("G18", format!("event {next} follows the end of the run"));
        }
        let end = turn.events.iter().position(|event| event.closes().is_some());
        if end.is_some_and(|end| end + 1 < turn.events.len()) {
            return broken("G18", format!("an event follows the end of the run in the turn of event {next}"));
        }
        closed |= end.is_some();
        (next, at) = (turn.next_event(), turn.at);
    }
    Ok(())
}

/// What an activity was allowed, and what has come of it.
struct CountedAttempts {
    /// The most attempts; 0: no limit.
    most: u32,
    last: u32,
    /// The attempts before this one are no longer counted.
    counts_from: u32,
    is_under_way: bool,
    ended: bool,
}

impl CountedAttempts {
    fn of(options: &ActivityOptions) -> Self {
        let most = options.retry_policy.clone().unwrap_or_default().maximum_attempts;
        CountedAttempts { most, last: 0, counts_from: 0, is_under_way: false, ended: false }
    }
    fn may_start(&self, attempt: Attempt) -> bool {
        let is_within = self.most == 0 || attempt.0.saturating_sub(self.counts_from) <= self.most;
        !self.ended && attempt.0 > self.last && is_within
    }
    fn start(&mut self, attempt: Attempt) {
        (self.last, self.is_under_way) = (attempt.0, true);
    }
    fn change(&mut self, change: &ActivityChange) {
        if let Some(options) = &change.options {
            self.most = CountedAttempts::of(options).most;
        }
        if change.reset {
            // The attempt that runs is the first that counts.
            self.counts_from = self.last.saturating_sub(u32::from(self.is_under_way));
        }
    }
}

/// G12: each activity is scheduled once, its attempts are numbered, few enough, and it ends once.
fn activities(turns: &[Turn]) -> GuaranteeResult {
    let mut scheduled: BTreeMap<Seq, CountedAttempts> = BTreeMap::new();
    for event in turns.iter().flat_map(|turn| &turn.events) {
        match event {
            EventKind::ActivityTaskScheduled(activity) => {
                let counted = CountedAttempts::of(&activity.options);
                if scheduled.insert(activity.seq, counted).is_some() {
                    return broken("G12", format!("activity {} is scheduled twice", activity.seq));
                }
            }
            // What was under way begins again, from its first attempt.
            EventKind::WorkflowExecutionForked { .. } => {
                scheduled.values_mut().for_each(|counted| {
                    (counted.last, counted.counts_from, counted.is_under_way) = (0, 0, false);
                });
            }
            EventKind::ActivityTaskAttemptFailed { seq, .. } => {
                if let Some(counted) = scheduled.get_mut(seq) {
                    counted.is_under_way = false;
                }
            }
            EventKind::ActivityPropertiesModifiedExternally { seq, change, .. } => {
                if let Some(counted) = scheduled.get_mut(seq) {
                    counted.change(change);
                }
            }
            EventKind::ActivityTaskStarted { seq, attempt } => match scheduled.get_mut(seq) {
                Some(counted) if counted.may_start(*attempt) => counted.start(*attempt),
                Some(_) => return broken("G12", format!("attempt {attempt} of activity {seq} must not start")),
                None => return broken("G12", format!("activity {seq} starts and was not scheduled")),
            },
            EventKind::ActivityTaskCompleted { seq, .. }
            | EventKind::ActivityTaskFailed { seq, .. }
            | EventKind::ActivityTaskTimedOut { seq, .. }
            | EventKind::ActivityTaskCanceled { seq, .. } => match scheduled.get_mut(seq) {
                Some(counted) if !counted.ended => counted.ended = true,
                Some(_) => return broken("G12", format!("activity {seq} ends twice")),
                None => return broken("G12", format!("activity {seq} ends and was not scheduled")),
            },
            _ => {}
        }
    }
    Ok(())
}

/// G14: a timer is never early, and ends once.
fn timers(turns: &[Turn]) -> GuaranteeResult {
    let (mut armed, mut known): (BTreeMap<Seq, Timestamp>, BTreeSet<Seq>) = Default::default();
    for turn in turns {
        for event in &turn.events {
            match event {
                EventKind::TimerStarted { seq, fire_at, .. } => {
                    if !known.insert(*seq) {
                        return broken("G14", format!("timer {seq} is armed twice"));
                    }
                    armed.insert(*seq, *fire_at);
                }
                EventKind::TimerFired { seq } => match armed.remove(seq) {
                    Some(fire_at) if fire_at <= turn.at => {}
                    Some(fire_at) => {
                        return broken("G14", format!("timer {seq} fires at {} instead of {fire_at}", turn.at));
                    }
                    None => return broken("G14", format!("timer {seq} fires and is not armed")),
                },
                EventKind::TimerCanceled { seq } if armed.remove(seq).is_none() => {
                    return broken("G14", format!("timer {seq} is canceled and is not armed"));
                }
                _ => {}
            }
        }
    }
    Ok(())
}

/// G18: a child starts once and ends once.
fn children(turns: &[Turn]) -> GuaranteeResult {
    let mut known: BTreeMap<Seq, bool> = BTreeMap::new();
    for event in turns.iter().flat_map(|turn| &turn.events) {
        match event {
            EventKind::StartChildWorkflowExecutionInitiated(child) => drop(known.insert(child.seq, false)),
            EventKind::ChildWorkflowExecutionStarted { seq, .. } if known.insert(*seq, true) != Some(false) => {
                return broken("G18", format!("child {seq} starts twice"));
            }
            EventKind::StartChildWorkflowExecutionFailed { seq, .. } if known.remove(seq) != Some(false) => {
                return broken("G18", format!("child {seq} fails to start after its start"));
            }
            EventKind::ChildWorkflowExecutionCompleted { seq, .. }
            | EventKind::ChildWorkflowExecutionFailed { seq, .. }
            | EventKind::ChildWorkflowExecutionCanceled { seq, .. }
            | EventKind::ChildWorkflowExecutionTimedOut { seq }
            | EventKind::ChildWorkflowExecutionTerminated { seq, .. }
                if known.remove(seq) != Some(true) =>
            {
                return broken("G18", format!("child {seq} ends, and is not running"));
            }
            _ => {}
        }
    }
    Ok(())
}

/// G17: a workflow id has one open run at most.
fn one_open_run(world: &World<'_>) -> GuaranteeResult {
    let mut open = BTreeSet::new();
    for run in world.runs.values().filter(|run| !run_is_closed(run)) {
        if let Some(started) = started_of(run)
            && !open.insert(&started.workflow_id)
        {
            return broken("G17", format!("{} has two open runs", started.workflow_id));
        }
    }
    Ok(())
}

/// G18: at rest, no child is open whose parent has closed, unless it was abandoned.
fn orphans(world: &World<'_>) -> GuaranteeResult {
    for run in world.runs.values().filter(|run| !run_is_closed(run)) {
        let Some(started) = started_of(run) else { continue };
        let Some(parent) = &started.parent else { continue };
        let told = run.turns.iter().flat_map(|turn| &turn.events);
        let mut told = told.filter(|event| matches!(event, EventKind::WorkflowExecutionCancelRequested { .. }));
        let orphan = match parent.close_policy {
            ParentClosePolicy::Abandon => false,
            ParentClosePolicy::Terminate => true,
            ParentClosePolicy::RequestCancel => told.next().is_none(),
        };
        if orphan && world.runs.get(&parent.run_id).is_some_and(run_is_closed) {
            return broken("G18", format!("{} is open and its parent has closed", started.workflow_id));
        }
    }
    Ok(())
}

/// G18: a run that says that another follows is followed by it.
fn chains(world: &World<'_>) -> GuaranteeResult {
    for run in world.runs.values() {
        let next = run.turns.iter().flat_map(|turn| &turn.events).find_map(|event| match event {
            EventKind::WorkflowExecutionContinuedAsNew(next) => Some(next.new_run),
            EventKind::WorkflowExecutionFailed { new_run, .. }
            | EventKind::WorkflowExecutionTimedOut { new_run, .. } => *new_run,
            _ => None,
        });
        if let Some(next) = next
            && !world.runs.contains_key(&next)
        {
            return broken("G18", format!("the run {next} was to follow and is not there"));
        }
    }
    Ok(())
}

/// G1, G13: what the client was answered is in the history of the chain exactly once and in order; what was refused is
/// not there at all.
fn requests(world: &World<'_>) -> GuaranteeResult {
    let main = world.main();
    let mut runs: Vec<&SimulatedRun> = world.runs.values().collect();
    runs.retain(|run| started_of(run).is_some_and(|started| started.workflow_id == main));
    runs.sort_by_key(|run| run.born);
    let events = runs.iter().flat_map(|run| &run.turns).flat_map(|turn| &turn.events);
    let found: Vec<&RequestId> = events
        .filter_map(|event| match event {
            EventKind::WorkflowExecutionSignaled(signal) => signal.request_id.as_ref(),
            EventKind::WorkflowExecutionCancelRequested { request_id, .. } => request_id.as_ref(),
            _ => None,
        })
        .filter(|id| id.as_str().starts_with("client-"))
        .collect();
    // Signals that were accepted while the run was paused and that it never took, because it was over before.
    let mut kept: BTreeSet<&RequestId> = BTreeSet::new();
    kept.extend(runs.iter().flat_map(|run| &run.turns).flat_map(|turn| &turn.inbox_added).filter_map(id_of));
    let accepted = |sent: &Sent| sent.answer == Some(Ok(()));
    let expected: Vec<&RequestId> =
        world.sent.iter().filter(|sent| accepted(sent)).filter_map(|sent| id_of(&sent.input)).collect();
    let closed = runs.last().is_some_and(|run| run_is_closed(run));
    let expected: Vec<&RequestId> =
        expected.into_iter().filter(|id| found.contains(id) || !(closed && kept.contains(id))).collect();
    if found != expected {
        return broken("G13", format!("the client was answered for {expected:?}, and history holds {found:?}"));
    }
    Ok(())
}

fn id_of(input: &Input) -> Option<&RequestId> {
    match input {
        Input::Signal(signal) => signal.request_id.as_ref(),
        Input::RequestCancel { request_id, .. } => request_id.as_ref(),
        _ => None,
    }
}

/// How a history ends, if it does.
pub(super) fn outcome_of(turns: &[Turn]) -> Option<CloseOutcome> {
    let end = turns.iter().rev().flat_map(|turn| turn.events.iter().rev()).find(|event| event.closes().is_some())?;
    Some(match end {
        EventKind::WorkflowExecutionCompleted { result, .. } => CloseOutcome::Completed(result.clone()),
        EventKind::WorkflowExecutionFailed { failure, new_run: None, .. } => CloseOutcome::Failed(failure.clone()),
        EventKind::WorkflowExecutionTimedOut { timeout, new_run: None, .. } => CloseOutcome::TimedOut(*timeout),
        EventKind::WorkflowExecutionCanceled { details, .. } => CloseOutcome::Canceled(details.clone()),
        EventKind::WorkflowExecutionTerminated { reason, .. } => CloseOutcome::Terminated { reason: reason.clone() },
        // The chain goes on.
        _ => return None,
    })
}

/// The closing event of a history as what it says to those who wait for the end; `None` if the run is open.
pub(super) fn end_of(turns: &[Turn]) -> Option<CloseOutcome> {
    let end = turns.iter().rev().flat_map(|turn| turn.events.iter().rev()).find(|event| event.closes().is_some())?;
    Some(match end {
        EventKind::WorkflowExecutionFailed { failure, .. } => CloseOutcome::Failed(failure.clone()),
        EventKind::WorkflowExecutionTimedOut { timeout, .. } => CloseOutcome::TimedOut(*timeout),
        EventKind::WorkflowExecutionContinuedAsNew(next) => CloseOutcome::ContinuedAsNew { new_run: next.new_run },
        _ => return outcome_of(turns),
    })
}

/// The start event of a history.
pub(super) fn start_of(turns: &[Turn]) -> Option<&WorkflowExecutionStarted> {
    match turns.first()?.events.first()? {
        EventKind::WorkflowExecutionStarted(started) => Some(started),
        _ => None,
    }
}
