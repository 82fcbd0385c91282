//! Resets, planned: a run goes back to an earlier point of its history and goes on from there, under its workflow id.
//!
//! ```text
//!   ended       Started ── … ── event n ── … ── Terminated (into the new run), if it was open
//!                                  │ copied
//!   the new one Started ── … ── event n ── Forked ── event n told again, later signals and updates ── new decisions
//! ```
//!
//! Invariant: planning reads histories and gives data, as in the parent module. The new run takes the place of the one that
//! was open: it is in its chain, has its parent, and its children go on; of a run that had ended before it takes the history
//! alone. What reached the later runs of the same chain is reapplied as what reached the source.

use super::cut::{self, Cut};
use super::signals::Dropped;
use super::source::{ForkHistory, Placed};
use super::{PlannedFork, Told, refused, signals, started_anew, under_way};
use crate::machine::decision::{Decision, Environment, TurnDraft};
use crate::machine::execution::Execution;
use crate::machine::replay::{LoadError, fold_run};
use crate::machine::run::Run;
use crate::request::*;
use crate::vocabulary::*;

/// What a reset looks at.
#[derive(Debug, Clone, Copy)]
pub struct ResetSource<'a> {
    /// The run to go back in.
    pub turns: &'a [Turn],
    /// The runs of its chain after it, in order.
    pub later: &'a [Vec<Turn>],
    /// The open run of the workflow id, which is ended: the source, a later one, or one of another chain.
    pub open: Option<&'a RunInfo>,
}

/// Where a history is cut, and the event that the code decides about anew.
struct ResetPoint {
    cut: Cut,
    again: Option<EventId>,
    moved: Option<String>,
}

impl PlannedFork {
    /// Plans a reset. `run_id` is the new run's.
    pub fn plan_reset(
        request: &ResetRequest,
        from: ResetSource<'_>,
        run_id: RunId,
        now: Timestamp,
    ) -> Result<PlannedFork, Rejection> {
        let not_a_history = |why: LoadError| wrong("the run", why.to_string());
        let whole = fold_run(from.turns).map_err(not_a_history)?;
        let later: Vec<Run> =
            from.later.iter().map(|turns| fold_run(turns)).collect::<Result<_, _>>().map_err(not_a_history)?;
        let source = ForkHistory::of(from.turns)?;
        let ResetPoint { mut cut, mut again, mut moved } = point(&source, request.to)?;
        if cut.splits_start(&source) {
            (cut, again) = (Cut::NOTHING, None);
            moved = moved.or_else(|| Some(cut::START_IS_WHOLE.to_owned()));
        }
        let point = ForkPoint { reset: true, ..source.point(cut.event(from.turns)) };
        let started = started(&source, request, (&point, from.open), run_id, now);
        let (mut reset, kept) =
            Self::beginning(&source, (cut, moved), (started, point), &request.reason, run_id).map_err(not_a_history)?;
        let at = reset.point.event;
        let mut told = Vec::new();
        let reapply = request.reapply;

        // What a run that continued as new had not decided, the next one has; a reset tells it again.
        let undecided = (later.is_empty() || signals::ended_by_reset(from.turns)).then_some(&whole);
        let reapplies = |event: Option<EventId>| reapply.signals() || (again.is_some() && event == again);
        let dropped = signals::later((&source, undecided), (kept.as_ref(), at), &[], reapplies, &mut told);
        let mut dropped = Dropped { signals: dropped.into_iter().cloned().collect(), updates: Vec::new() };
        reset.updates((&source, undecided, kept.as_ref()), again, reapply.updates(), (&mut dropped, &mut told));
        signals::of_later_runs((from.later, &later), reapply, &mut dropped, &mut told);
        reset.name_dropped(dropped);

        let goes_on = from.open.is_some_and(|open| open.run_id == source.run);
        reset.under_way((&source, kept.as_ref()), cut, goes_on, &mut told);
        if goes_on {
            reset.plan.still_open = whole.outliving_children(kept.as_ref());
        }
        if let Some(event) = again.and_then(|again| source.event(again))
            && at > EventId(0)
        {
            tell_again(&event, kept.as_ref(), &mut told);
        }
        reset.take_told(&source, told);
        reset.effects(&source, kept.as_ref());
        Ok(reset)
    }

    /// Whether the run begins with that of another run of its workflow id.
    pub fn is_reset(&self) -> bool {
        self.point.reset
    }

    /// What the run that is ended says of its end, in words and for the engine.
    pub fn end(&self) -> (ResetInto, String) {
        let why = if self.reason.is_empty() { String::new() } else { format!(": {}", self.reason) };
        let ForkPoint { run_id, event, .. } = &self.point;
        let reason = format!("reset to event {event} of run {run_id}; it goes on as run {}{why}", self.run_id);
        (ResetInto { run_id: self.run_id, children: self.children.clone() }, reason)
    }

    /// What is not told again is named.
    fn name_dropped(&mut self, Dropped { signals, updates }: Dropped) {
        self.know_requests(signals.iter().filter_map(|signal| signal.request_id.clone()));
        self.plan.signals_dropped = signals.into_iter().map(|signal| signal.name).collect();
        self.plan.updates_dropped = updates;
    }

    /// A signal that is dropped on purpose is not taken when its sender, who had no answer, sends it again.
    fn know_requests(&mut self, requests: impl Iterator<Item = RequestId>) {
        self.started.carried_request_ids.extend(requests);
        if let Some(first) = self.prefix.first_mut().and_then(|turn| turn.events.first_mut()) {
            *first = EventKind::WorkflowExecutionStarted(Box::new(self.started.clone()));
        }
    }

    /// Updates that the source accepted later, and those that it had been told again and had not decided.
    fn updates(
        &self,
        (source, undecided, kept): (&ForkHistory<'_>, Option<&Run>, Option<&Run>),
        again: Option<EventId>,
        reapplies: bool,
        (dropped, told): (&mut Dropped, &mut Told),
    ) {
        for event in source.after(self.point.event) {
            let reapplies = reapplies || (again.is_some() && again == Some(event.id));
            dropped.updates.extend(signals::update(Some(event.id), event.kind, reapplies, told));
        }
        let waits = |input: &&Input| !kept.is_some_and(|run| run.inbox.contains(input));
        let inbox = undecided.into_iter().flat_map(|run| &run.inbox).filter(waits);
        for kind in inbox.filter_map(signals::message_of) {
            dropped.updates.extend(signals::update(None, &kind, reapplies, told));
        }
    }

    /// Children, messages, and what the engine had refused: as in a fork, but for children of a run that was open.
    fn under_way(
        &mut self,
        (source, kept): (&ForkHistory<'_>, Option<&Run>),
        cut: Cut,
        goes_on: bool,
        told: &mut Told,
    ) {
        let Some(run) = kept else { return };
        let open = under_way::children(source, run, self.point.event, &[], told);
        if goes_on {
            self.children = open.iter().map(|child| child.seq).collect();
            self.plan.children = open.into_iter().map(|child| child.workflow_id).collect();
        } else {
            under_way::not_shared(open, told);
        }
        under_way::messages(source, run, self.point.event, told);
        cut::refused_in_the_same_turn(source, cut, told);
    }
}

impl Execution {
    /// Ends an open run in whose place another one goes on. No code of it runs, so that a run that is held can be reset too.
    pub fn end_by_reset(
        &mut self,
        into: ResetInto,
        reason: String,
        identity: Option<Identity>,
        environment: &mut Environment<'_>,
    ) -> Decision {
        let mut draft = TurnDraft::new(&self.run, environment);
        self.run.end_by_reset(&mut draft, into, reason, identity);
        draft.finish(&mut self.run)
    }
}

fn wrong(what: impl ToString, why: impl Into<String>) -> Rejection {
    match refused(what, why) {
        Rejection::Invalid { what, why } => Rejection::Invalid { what: what.replacen("fork", "reset", 1), why },
        other => other,
    }
}

/// Where the history is cut.
fn point(source: &ForkHistory<'_>, to: ResetTo) -> Result<ResetPoint, Rejection> {
    let activates = |event: &&Placed<'_>| event.kind.origin() == Origin::Activating;
    match to {
        ResetTo::Event(EventId(0)) | ResetTo::FirstTurn => {
            Ok(ResetPoint { cut: Cut::NOTHING, again: None, moved: None })
        }
        ResetTo::Event(id) => match source.event(id) {
            Some(event) => Ok(at_event(source, event)),
            None => Err(wrong(format!("event {id}"), format!("the history has {} events", source.count()))),
        },
        ResetTo::LastTurn => {
            let last = source.events.iter().rev().find(activates);
            last.map(|event| anew(source, event.id, None)).ok_or_else(|| wrong(to, "the code has decided nothing yet"))
        }
        ResetTo::Build(build) => {
            let decided = |event: &&Placed<'_>| source.turns[event.turn].build == build;
            let first = source.events.iter().find(|event| activates(event) && decided(event));
            first.map(|event| anew(source, event.id, None)).ok_or_else(|| {
                let mut builds: Vec<BuildId> = source.turns.iter().map(|turn| turn.build).collect();
                builds.dedup();
                let known: Vec<String> = builds.iter().map(ToString::to_string).collect();
                wrong(to, format!("that build decided nothing in this run; it has: {}", known.join(", ")))
            })
        }
    }
}

/// The event is told again, and nothing after it is kept.
fn anew(source: &ForkHistory<'_>, event: EventId, moved: Option<String>) -> ResetPoint {
    match event {
        EventId(0 | 1) => ResetPoint { cut: Cut::NOTHING, again: None, moved },
        event => ResetPoint { cut: cut::before_event(source, event), again: Some(event), moved },
    }
}

/// Keeps everything up to an event. A history is never cut within what the code decided in one go: that is decided anew.
fn at_event(source: &ForkHistory<'_>, event: Placed<'_>) -> ResetPoint {
    let turn = &source.turns[event.turn];
    let last = turn.next_event().0 - 1;
    let ends = turn.events.iter().find(|event| event.closes().is_some());
    if event.id.0 == last && ends.is_none() && event.kind.origin() != Origin::Activating {
        // What was taken in since, and not decided, belongs to the end.
        let turns = if last == source.count() as u64 { source.turns.len() } else { event.turn + 1 };
        return ResetPoint { cut: Cut::after(turns), again: None, moved: None };
    }
    let before = source.events.iter().take_while(|other| other.id <= event.id);
    let activating =
        before.filter(|other| other.turn == event.turn && other.kind.origin() == Origin::Activating).last();
    match activating {
        Some(activating) => {
            let (name, id) = (activating.kind.name(), activating.id);
            let moved =
                (id != event.id).then(|| format!("what was decided because of event {id} ({name}) is decided anew"));
            anew(source, id, moved)
        }
        None => {
            let moved = match ends {
                Some(end) => format!("event {last} ({}) ends the run", end.name()),
                None => format!("events {} to {last} are one turn", turn.first_event),
            };
            ResetPoint { cut: Cut::after(event.turn), again: None, moved: Some(moved) }
        }
    }
}

/// Tells the event that the code decides about anew, unless it is told already or waits in the inbox.
fn tell_again(event: &Placed<'_>, kept: Option<&Run>, told: &mut Told) {
    let waits = |signal: &WorkflowExecutionSignaled| {
        kept.is_some_and(|run| signals::in_inbox(run).any(|waiting| waiting == signal))
    };
    let known = told.iter().any(|(place, ..)| *place == event.id)
        || matches!(event.kind, EventKind::WorkflowExecutionSignaled(signal) if waits(signal));
    if !known {
        let what = event.kind.name().to_owned();
        let line = ForkTold { event: Some(event.id), what, why: ForkTelling::Again };
        told.push((event.id, event.kind.clone(), line));
    }
}

/// The start event of the new run.
fn started(
    source: &ForkHistory<'_>,
    request: &ResetRequest,
    (point, open): (&ForkPoint, Option<&RunInfo>),
    run_id: RunId,
    now: Timestamp,
) -> WorkflowExecutionStarted {
    let of_source = source.started;
    let mut started = WorkflowExecutionStarted {
        // Whoever waits for the end of the chain waits for this run's.
        first_run: open.map_or(run_id, |open| open.first_run),
        parent: open.and_then(|open| open.parent.clone()),
        identity: request.identity.clone(),
        forked_from: Some(Box::new(source.forked_from(point, now))),
        ..of_source.clone()
    };
    if point.event == EventId(0) {
        started_anew(&mut started, source, now);
    }
    started
}
