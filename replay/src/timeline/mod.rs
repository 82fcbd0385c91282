//! Time travel: a run as it was at any of its events, forwards and backwards.
//!
//! What happened (pending work, failures) is folded from the events by the run machine's own `apply`. What the code made
//! of it (its state) is noted in one pass of replay, as a chain of changes; what it waited for is asked again by
//! replaying up to that event. Both cost time in proportion to the length of the history, and no activity, model or
//! clock is called.
//!
//! Invariant: what is shown at event N is what a live run shows after N. Without code that fits, the facts are shown all
//! the same, the state up to where the code stops to fit, and the reason is named.

mod breakpoint;
mod change;
mod states;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use bosun_engine::machine::Run;
use bosun_engine::workflow::{NonDeterminism, ReplayError, ReplayStep, Replayer, WorkflowRegistry};
use bosun_engine::*;
use serde::Serialize;
use serde_json::Value;

use self::breakpoint::failure_of;
pub use self::breakpoint::{BadBreakpoint, Breakpoint};
pub use self::change::{JsonPath, PathChange, PathStep, changes};
use self::states::States;
use crate::{History, Redaction};

/// A copy of the folded run is kept at every so many events.
const FOLD_EVERY: usize = 512;

/// A history with the code that may have made it.
pub struct Timeline<'a> {
    registry: &'a WorkflowRegistry,
    history: History,
    events: Vec<Event>,
    /// The run before the event of this index.
    folds: Vec<(usize, Run)>,
    states: States,
    /// The name of every numbered request.
    names: BTreeMap<Seq, String>,
    code: CodeFit,
}

/// How far the code could be followed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub enum CodeFit {
    /// To the end.
    Fits,
    /// It asks for something else; its states are known up to there.
    Mismatch(Box<NonDeterminism>),
    /// It could not be run at all.
    NotRun {
        /// What the replay said.
        why: String,
    },
}

/// A run as it was after one event.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Moment {
    /// The event.
    pub event: Event,
    /// How the run stood after it.
    pub status: WorkflowStatus,
    /// Whether somebody had asked it to cancel.
    pub cancel_requested: bool,
    /// Activities that had not ended.
    pub pending_activities: Vec<PendingActivity>,
    /// Timers that had not fired.
    pub pending_timers: Vec<PendingTimer>,
    /// Children that had not ended.
    pub pending_children: Vec<PendingChild>,
    /// Updates that were accepted and not answered.
    pub pending_updates: Vec<UpdateId>,
    /// Inputs that wait because the run was paused or held.
    pub inbox: usize,
    /// The last failure up to here, and its event.
    pub last_failure: Option<(EventId, Failure)>,
    /// The state of the code, if its form shows one and the code fits up to here.
    pub state: Option<Value>,
    /// What the event changed in the state.
    pub changes: Vec<PathChange>,
    /// What the code was waiting for; nothing where it could not be followed.
    pub awaiting: Option<Vec<Awaited>>,
    /// Where in the code this event was asked for.
    pub location: Option<String>,
}

/// What only the code can say of a moment.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CodeView {
    /// What the code was waiting for; nothing where it could not be followed.
    pub awaiting: Option<Vec<Awaited>>,
    /// Where in the code the event was asked for.
    pub location: Option<String>,
}

/// Which way a search goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// To later events.
    Forwards,
    /// To earlier events.
    Backwards,
}

impl<'a> Timeline<'a> {
    /// Folds the history, and replays it once to note the states.
    pub fn new(registry: &'a WorkflowRegistry, history: History) -> Self {
        let events: Vec<Event> = history.events().collect();
        let names = events.iter().filter_map(|event| introduced(&event.kind)).collect();
        let (states, code) = states_of(registry, &history);
        let folds = fold(&history);
        Timeline { registry, history, events, folds, states, names, code }
    }

    /// The history that is shown.
    pub fn history(&self) -> &History {
        &self.history
    }
    /// All events, the first at index 0.
    pub fn events(&self) -> &[Event] {
        &self.events
    }
    /// One event; nothing if there is none of this id.
    pub fn event(&self, at: EventId) -> Option<&Event> {
        self.events.get(usize::try_from(at.0.checked_sub(1)?).ok()?)
    }
    /// The id of the last event.
    pub fn last(&self) -> EventId {
        EventId(self.events.len() as u64)
    }
    /// How far the code could be followed.
    pub fn code(&self) -> &CodeFit {
        &self.code
    }

    /// Everything about one moment. Nothing for an event that does not exist.
    pub fn at(&self, at: EventId) -> Option<Moment> {
        let event = self.event(at)?.clone();
        let run = self.run_at(at)?;
        let CodeView { awaiting, location } = self.code_at(at);
        Some(Moment {
            status: run.info().status,
            cancel_requested: run.cancel_requested(),
            pending_activities: run.pending_activities(),
            pending_timers: run.pending_timers(),
            pending_children: run.pending_children(),
            pending_updates: run.pending_updates(),
            inbox: run.inbox_len(),
            last_failure: self.last_failure(at),
            state: self.state_at(at),
            changes: self.changes_of(at).to_vec(),
            awaiting,
            location,
            event,
        })
    }

    /// The state of the code after an event. Beyond a mismatch nothing is known.
    pub fn state_at(&self, at: EventId) -> Option<Value> {
        if self.is_beyond_the_code(at) { None } else { self.states.at(at) }
    }
    /// What the event changed in the state.
    pub fn changes_of(&self, at: EventId) -> &[PathChange] {
        self.states.changes_of(at)
    }
    /// What differs in the state between two events.
    pub fn diff(&self, from: EventId, to: EventId) -> Option<Vec<PathChange>> {
        Some(changes(&self.state_at(from)?, &self.state_at(to)?))
    }

    /// The name of what an event is about: an activity, child, signal, update or labelled timer.
    pub fn name_of<'s>(&'s self, event: &'s Event) -> Option<&'s str> {
        match &event.kind {
            EventKind::WorkflowExecutionSignaled(signal) => return Some(signal.name.as_str()),
            EventKind::WorkflowExecutionUpdateAccepted { name, .. } => return Some(name.as_str()),
            _ => {}
        }
        self.names.get(&seq_of(&event.kind)?).map(String::as_str)
    }

    /// The next event at which one of the breakpoints stops.
    pub fn find(&self, from: EventId, direction: Direction, breakpoints: &[Breakpoint]) -> Option<EventId> {
        let stops = |event: &&Event| breakpoints.iter().any(|breakpoint| breakpoint.stops(self, event));
        let found = match direction {
            Direction::Forwards => self.events.iter().filter(|event| event.id > from).find(stops),
            Direction::Backwards => self.events.iter().rev().filter(|event| event.id < from).find(stops),
        };
        found.map(|event| event.id)
    }

    /// The run as its events up to here add up.
    fn run_at(&self, at: EventId) -> Option<Run> {
        let end = usize::try_from(at.0).ok()?;
        let nearest = self.folds.partition_point(|(before, _)| *before < end).checked_sub(1)?;
        let (from, run) = &self.folds[nearest];
        let mut run = run.clone();
        let mut index = 0;
        for turn in self.history.turns() {
            let events = turn.events.len();
            if index + events <= *from {
                index += events;
                continue;
            }
            for event in turn.events.iter().skip(from.saturating_sub(index)).take(end.saturating_sub(index.max(*from)))
            {
                run.apply(turn.at, event);
            }
            index += events;
            if index > end {
                break;
            }
            run.apply_rest(turn);
            if index == end {
                break;
            }
        }
        Some(run)
    }

    /// The last failure that history tells of, up to an event.
    fn last_failure(&self, at: EventId) -> Option<(EventId, Failure)> {
        let until = self.events.iter().rev().filter(|event| event.id <= at);
        until.filter_map(|event| Some((event.id, failure_of(&event.kind)?.clone()))).next()
    }

    fn is_beyond_the_code(&self, at: EventId) -> bool {
        match &self.code {
            CodeFit::Fits => false,
            CodeFit::Mismatch(mismatch) => at >= mismatch.event_id,
            CodeFit::NotRun { .. } => true,
        }
    }

    /// What the code waited for after an event, and where it asked for it. Replays up to there.
    pub fn code_at(&self, at: EventId) -> CodeView {
        if self.is_beyond_the_code(at) {
            return CodeView::default();
        }
        let mut view = CodeView::default();
        let mut replayer = Replayer::new(self.registry);
        for turn in self.history.turns().iter().take_while(|turn| turn.first_event <= at) {
            let wanted = at < turn.next_event();
            let mut watch = |step: ReplayStep<'_>| {
                if !wanted || step.event.id > at {
                    return;
                }
                view.awaiting = Some(step.driver.awaiting());
                // The commands of an activation follow its event, one by one.
                let place = at.0.checked_sub(step.event.id.0 + 1).and_then(|place| usize::try_from(place).ok());
                view.location =
                    place.and_then(|place| step.driver.command_location(place)).map(|place| place.to_string());
            };
            if replayer.turn(turn, &mut watch).is_err() {
                return view;
            }
            if wanted && view.awaiting.is_none() {
                // A turn of bookkeeping only: the code waits as before.
                view.awaiting = replayer.driver().map(|driver| driver.awaiting());
            }
        }
        view
    }
}

/// What the code answers to these queries after the last event, each by its name. Nothing where the history is redacted or the
/// code does not fit it; a query that the code does not know is left out.
pub fn answers_at_end(registry: &WorkflowRegistry, history: &History, queries: &[&str]) -> BTreeMap<String, Value> {
    let mut answers = BTreeMap::new();
    if history.redaction() != Redaction::None {
        return answers;
    }
    let mut replayer = Replayer::new(registry);
    if history.turns().iter().any(|turn| replayer.turn(turn, &mut |_| {}).is_err()) {
        return answers;
    }
    let Some(driver) = replayer.driver() else { return answers };
    for name in queries {
        let Ok(query) = QueryName::new(*name) else { continue };
        if let Ok(answer) = driver.query(&query, &Payload::null()) {
            answers.insert((*name).to_owned(), answer.to_json());
        }
    }
    answers
}

fn fold(history: &History) -> Vec<(usize, Run)> {
    let first = &history.turns()[0];
    let mut run = Run::new(first.run, first.at, first.build, history.started());
    let (mut folds, mut index) = (vec![(0, run.clone())], 0);
    for turn in history.turns() {
        for event in &turn.events {
            run.apply(turn.at, event);
        }
        run.apply_rest(turn);
        index += turn.events.len();
        // Only between turns, so that what rides beside the events is never folded twice.
        if folds.last().is_some_and(|(at, _)| index - at >= FOLD_EVERY) {
            folds.push((index, run.clone()));
        }
    }
    folds
}

fn states_of(registry: &WorkflowRegistry, history: &History) -> (States, CodeFit) {
    let mut states = States::default();
    if history.redaction() != Redaction::None {
        return (
            states,
            CodeFit::NotRun { why: "the history is redacted, so the code would not get its results".into() },
        );
    }
    let mut replayer = Replayer::new(registry);
    for turn in history.turns() {
        let mut watch = |step: ReplayStep<'_>| {
            if let Some(state) = step.driver.state_json() {
                states.push(step.event.id, state);
            }
        };
        match replayer.turn(turn, &mut watch) {
            Ok(()) => {}
            Err(ReplayError::NonDeterminism(mismatch)) => return (states, CodeFit::Mismatch(mismatch)),
            Err(why) => return (states, CodeFit::NotRun { why: why.to_string() }),
        }
    }
    (states, CodeFit::Fits)
}

/// The name that a numbered request is known by.
fn introduced(event: &EventKind) -> Option<(Seq, String)> {
    match event {
        EventKind::ActivityTaskScheduled(held) => Some((held.seq, held.activity_type.to_string())),
        EventKind::StartChildWorkflowExecutionInitiated(held) => Some((held.seq, held.workflow_type.to_string())),
        EventKind::SignalExternalWorkflowExecutionInitiated(held) => Some((held.seq, held.name.to_string())),
        EventKind::TimerStarted { seq, summary: Some(summary), .. } => Some((*seq, summary.clone())),
        _ => None,
    }
}

/// The number of the request that an event is about.
fn seq_of(event: &EventKind) -> Option<Seq> {
    let Ok(Value::Object(kind)) = serde_json::to_value(event) else { return None };
    let seq = kind.values().next()?.get("seq")?.as_u64()?;
    Some(Seq(seq))
}
