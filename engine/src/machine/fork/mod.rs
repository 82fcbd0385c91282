//! Forks, planned: what of a history is kept, what is told to the code at the fork, what happens again in the world.
//!
//! Rules, each for what was under way at the fork:
//! - activities run again, from their first attempt, with an idempotency key of the new run; one that was asked to cancel
//!   is canceled;
//! - timers wait for as long as was left, and so do the run's own timeouts: the time between the last copied event and
//!   the fork does not count;
//! - children belong to the source: the end that the source recorded is told at once; without one the code is told that
//!   the child was terminated. They are neither shared nor started again;
//! - messages to other runs were sent by the source, and are told as it recorded, else as delivered;
//! - inputs that were accepted and not decided are decided by the fork; a pause ends;
//! - signals that reached the source later reach the fork again, in their order, unless the request says otherwise.
//!
//! A reset (`reset`) is a fork that goes on under the workflow id of its source, which it ends if it is open. The same rules
//! hold but for what follows from that:
//! - children that are under way at the point go on as the new run's, if the source is open;
//! - what the code decided because of the last event that is kept is decided anew: that event is told again;
//! - updates reach the new run again too.
//!
//! Invariant: planning reads a history and gives data; nothing is written, no code runs. The history is cut where turns
//! end, except right before an event that is replaced; the copied events are the source's own. What is told at the fork
//! is one event each, so that a fork replays like any other run.

mod begin;
mod change;
mod cut;
mod reset;
mod signals;
mod source;
mod under_way;

use std::collections::BTreeMap;

use self::change::{ResolvedChange, Told, changes};
use self::cut::Cut;
pub use self::reset::ResetSource;
use self::source::ForkHistory;
use super::replay::fold_run;
use super::run::Run;
use crate::request::*;
use crate::vocabulary::*;

/// A fork that has been planned and not begun.
#[derive(Debug, Clone)]
pub struct PlannedFork {
    /// The start event of the new run.
    pub(super) started: WorkflowExecutionStarted,
    /// The copied turns, with the ids of the new run. Empty: the run begins anew.
    pub(super) prefix: Vec<Turn>,
    pub(super) told: Vec<Tell>,
    /// Values that side effects of the first activation give instead of being carried out.
    pub(super) side_effects: BTreeMap<Seq, Payload>,
    /// Children under way that go on as the new run's.
    pub(super) children: Vec<Seq>,
    pub(super) reason: String,
    pub(super) run_id: RunId,
    pub(super) point: ForkPoint,
    pub(super) plan: ForkPlan,
}

/// One event that is told at the fork.
#[derive(Debug, Clone)]
pub(super) struct Tell {
    pub(super) event: EventKind,
    /// The signal of the source that this one takes the place of. It may wait in the inbox of what is copied.
    pub(super) replaces: Option<WorkflowExecutionSignaled>,
}

/// Something that cannot be forked as asked.
pub(super) fn refused(what: impl ToString, why: impl Into<String>) -> Rejection {
    Rejection::Invalid { what: format!("fork: {}", what.to_string()), why: why.into() }
}

impl PlannedFork {
    /// Plans the fork of a run with these turns. `run_id` is the new run's.
    pub fn plan(
        request: &ForkRequest,
        turns: &[Turn],
        run_id: RunId,
        now: Timestamp,
    ) -> Result<PlannedFork, Rejection> {
        let not_a_history = |why: super::LoadError| refused("the source", why.to_string());
        // Says what is wrong with the history as a whole, before its parts are looked at.
        let whole = fold_run(turns).map_err(not_a_history)?;
        let source = ForkHistory::of(turns)?;
        let changes = changes(&source, &request.changes, request.identity.as_ref())?;
        let (cut, moved) = cut::place(&source, request.at, &changes)?;
        let point = source.point(cut.event(turns));
        let started = started(&source, request, &point, run_id, now);
        let (mut fork, kept) =
            Self::beginning(&source, (cut, moved), (started, point), &request.reason, run_id).map_err(not_a_history)?;
        let (mut told, at) = (Vec::new(), fork.point.event);
        let reapplies = |_| request.reapply == ForkReapply::Signals;
        let dropped = signals::later((&source, Some(&whole)), (kept.as_ref(), at), &changes, reapplies, &mut told);
        fork.plan.signals_dropped = dropped.into_iter().map(|signal| signal.name.clone()).collect();
        // Whoever made them has had the answer of the source: a fork answers nobody.
        let later = source.after(at);
        let updates = later.iter().filter_map(|event| match event.kind {
            EventKind::WorkflowExecutionUpdateAccepted { name, .. } => Some(name.clone()),
            _ => None,
        });
        fork.plan.updates_dropped = updates.collect();
        fork.tell(&source, kept.as_ref(), (&changes, cut), told)?;
        fork.effects(&source, kept.as_ref());
        Ok(fork)
    }

    /// The copy of what is before the cut, and the run that it makes.
    fn beginning(
        source: &ForkHistory<'_>,
        (cut, moved): (Cut, Option<String>),
        (started, point): (WorkflowExecutionStarted, ForkPoint),
        reason: &str,
        run_id: RunId,
    ) -> Result<(PlannedFork, Option<Run>), super::LoadError> {
        let prefix = cut.copy(source.turns, run_id, &started);
        let kept = if prefix.is_empty() { None } else { Some(fold_run(&prefix)?) };
        let dropped = source.count() - count(point.event);
        let fork = PlannedFork {
            plan: ForkPlan { event: point.event, moved, dropped, ..Default::default() },
            started,
            prefix,
            told: Vec::new(),
            side_effects: BTreeMap::new(),
            children: Vec::new(),
            reason: reason.to_owned(),
            run_id,
            point,
        };
        Ok((fork, kept))
    }

    /// What it does, for people.
    pub fn summary(&self) -> &ForkPlan {
        &self.plan
    }
    /// The new run.
    pub fn run_id(&self) -> RunId {
        self.run_id
    }
    /// Its first event.
    pub fn started(&self) -> &WorkflowExecutionStarted {
        &self.started
    }
    /// The last event that is kept, and of which run.
    pub fn point(&self) -> &ForkPoint {
        &self.point
    }

    /// Everything that the code is told at the fork, in the order in which it happened to the source.
    fn tell(
        &mut self,
        source: &ForkHistory<'_>,
        kept: Option<&Run>,
        (changes, cut): (&[ResolvedChange], Cut),
        mut told: Told,
    ) -> Result<(), Rejection> {
        // Values of side effects last: the activation they belong to may be told already, in another way.
        let (values, others): (Vec<&ResolvedChange>, Vec<&ResolvedChange>) =
            changes.iter().partition(|change| matches!(change, ResolvedChange::SideEffect { .. }));
        for change in others.into_iter().chain(values) {
            change.apply(self, source, kept, &mut told)?;
        }
        if let Some(run) = kept {
            let decided: Vec<Seq> = changes.iter().filter_map(ResolvedChange::seq).collect();
            let open = under_way::children(source, run, self.point.event, &decided, &mut told);
            under_way::not_shared(open, &mut told);
            under_way::messages(source, run, self.point.event, &mut told);
            cut::refused_in_the_same_turn(source, cut, &mut told);
        }
        self.take_told(source, told);
        Ok(())
    }

    /// Takes over what is told, in the order in which it happened to the source.
    fn take_told(&mut self, source: &ForkHistory<'_>, mut told: Told) {
        told.sort_by_key(|(place, ..)| *place);
        for (place, event, line) in told {
            let replaces = match source.event(place).map(|event| event.kind) {
                Some(EventKind::WorkflowExecutionSignaled(signal)) if line.why == ForkTelling::Changed => {
                    Some(signal.clone())
                }
                _ => None,
            };
            self.told.push(Tell { event, replaces });
            self.plan.told.push(line);
        }
        if let Some(came) = source.started.signals_at_start.filter(|_| self.prefix.is_empty()) {
            let is_signal = |tell: &&Tell| matches!(tell.event, EventKind::WorkflowExecutionSignaled(_));
            let again = self.told.iter().take_while(is_signal).count().min(came as usize);
            self.started.signals_at_start = u32::try_from(again).ok().filter(|again| *again > 0);
        }
    }

    /// What happens in the world because of the fork.
    fn effects(&mut self, source: &ForkHistory<'_>, kept: Option<&Run>) {
        let at = self.point.event;
        if let Some(run) = kept {
            let ended: Vec<Seq> = self.told.iter().filter_map(|tell| source::ends(&tell.event)).collect();
            self.plan.runs_again = under_way::activities(source, run, &ended);
            self.plan.timers = under_way::timers(run);
            self.plan.inbox = under_way::inbox(run);
        }
        self.plan.may_run_again = source.asked_after(at);
    }
}

fn count(event: EventId) -> usize {
    usize::try_from(event.0).unwrap_or(usize::MAX)
}

/// The start event of the fork: its own ids, and what the source's said.
fn started(
    source: &ForkHistory<'_>,
    request: &ForkRequest,
    point: &ForkPoint,
    run_id: RunId,
    now: Timestamp,
) -> WorkflowExecutionStarted {
    let of_source = source.started;
    let mut started = WorkflowExecutionStarted {
        namespace: request.namespace.clone(),
        workflow_id: request.workflow_id.clone(),
        first_run: run_id,
        continued_from: None,
        parent: None,
        request_id: request.request_id.clone(),
        identity: request.identity.clone(),
        forked_from: Some(Box::new(source.forked_from(point, now))),
        ..of_source.clone()
    };
    if point.event == EventId(0) {
        started_anew(&mut started, source, now);
        let input = request.changes.iter().find_map(|change| match change {
            ForkChange::Input(input) => Some(input.clone()),
            ForkChange::Outcome { .. } | ForkChange::Signal { .. } => None,
        });
        started.input = input.unwrap_or(started.input);
    }
    started
}

/// A run that begins anew has all of its time before it.
fn started_anew(started: &mut WorkflowExecutionStarted, source: &ForkHistory<'_>, now: Timestamp) {
    // The time of a delayed start begins with its code.
    let created = source.time_of(EventId(1));
    let begun = started.start_at.unwrap_or(created);
    // One whose code has not begun waits as long as it was to wait.
    started.start_at = started.start_at.filter(|at| *at > now).map(|at| now.plus(at.since(created)));
    let begins = started.start_at.unwrap_or(now);
    let left = |deadline: Timestamp| begins.plus(deadline.since(begun));
    started.execution_deadline = started.execution_deadline.map(left);
    // What is told again first comes with the start again: see `take_told`.
    started.signals_at_start = None;
}
