//! "Fork from here": at which events of a run a fork may begin, and what its form says before anybody has typed.
//!
//! Invariant: a link stands only where the engine forks exactly there, without moving the cut: before an event whose content
//! can be another one (the input, a result, a failure, a signal, the value of a side effect), or after the last event of a turn
//! that goes on. The form shows what that event said; the link names the event alone, whatever its payload weighs. It forks
//! nothing: the form, its dry run and the role that they need are those of `fork`.

use std::collections::BTreeMap;

use bosun_engine::*;
use maud::{Markup, html};

use crate::api::TokenRole;
use crate::backend::Backend;
use crate::inbox::target_of;
use crate::ui::elements::{path_segment, query_value};
use crate::ui::forms::{Fields, Visitor};

/// The events of one run from which it can be forked; none for who may not fork.
pub(crate) struct ForkHere {
    places: BTreeMap<EventId, ForkStart>,
    /// The form of the run's forks.
    form: String,
}

/// What the form begins with.
#[derive(Debug, Clone, PartialEq, Eq)]
enum ForkStart {
    /// Everything up to this event is kept, and it runs again from there.
    After,
    Input,
    Result,
    Failure,
    /// The signal of a name, and the how many-th of this name.
    Signal(SignalName, usize),
}

impl ForkHere {
    /// Of a page that shows no way to act: a file, or of somebody who may only look.
    pub(crate) fn nowhere() -> ForkHere {
        ForkHere { places: BTreeMap::new(), form: String::new() }
    }

    /// The places of a run. Who may not fork, or a history that cannot be read as turns, has none.
    pub(super) async fn of(visitor: &Visitor, info: &RunInfo) -> ForkHere {
        if !visitor.may(TokenRole::Operator) {
            return ForkHere::nowhere();
        }
        match visitor.backend.turns(target_of(info)).await {
            Ok(turns) => ForkHere::among(visitor, info, &turns),
            Err(_) => ForkHere::nowhere(),
        }
    }

    /// The same of a history that is read already.
    pub(super) fn among(visitor: &Visitor, info: &RunInfo, turns: &[Turn]) -> ForkHere {
        match visitor.may(TokenRole::Operator) {
            true => ForkHere { places: places(turns), form: form_of(info) },
            false => ForkHere::nowhere(),
        }
    }

    /// Where the form for this event is; nothing where no fork begins.
    pub(super) fn address(&self, event: EventId) -> Option<String> {
        self.places.contains_key(&event).then(|| format!("{}&event={event}", self.form))
    }

    /// The link, where a fork can begin.
    pub(super) fn link(&self, event: EventId) -> Markup {
        html! { @if let Some(address) = self.address(event) {
            a.fork-here href=(address) aria-label={ "Fork from here: event " (event) } { "Fork from here" }
        } }
    }

    /// Where the form of a thing is that began and ended with these events: its end comes first.
    pub(super) fn of_either(&self, first: EventId, last: EventId) -> Option<EventId> {
        [last, first].into_iter().find(|event| self.places.contains_key(event))
    }
}

/// The address of the form of a run's forks.
pub(super) fn form_of(info: &RunInfo) -> String {
    format!(
        "/runs/{}/fork?run_id={}&namespace={}",
        path_segment(info.workflow_id.as_str()),
        info.run_id,
        query_value(info.namespace.as_str())
    )
}

/// What the form of a fork at this event says at first; or why no fork begins there.
pub(super) fn filled(turns: &[Turn], event: &str) -> Result<Fields, String> {
    let id: EventId = event.trim().parse().map(EventId).map_err(|_| format!("{event:?} is no number of an event"))?;
    let kind = kind_of(turns, id).ok_or_else(|| format!("the history has no event {id}"))?;
    let places = places(turns);
    let Some(start) = places.get(&id) else {
        let near = places.range(..id).next_back().map(|(near, _)| format!("; the place before it is event {near}"));
        let near = near.unwrap_or_default();
        return Err(format!(
            "no fork begins at event {id} ({}): it is inside a turn, or after the end{near}",
            kind.name()
        ));
    };
    let (at, value) = (id.to_string(), said(kind));
    Ok(match start {
        ForkStart::After => Fields::of(&[("at", at.as_str()), ("kind", "none")]),
        ForkStart::Input => Fields::of(&[("kind", "input"), ("value", value.as_str())]),
        ForkStart::Result => Fields::of(&[("kind", "result"), ("which", at.as_str()), ("value", value.as_str())]),
        ForkStart::Failure => Fields::of(&[("kind", "failure"), ("which", at.as_str()), ("value", value.as_str())]),
        ForkStart::Signal(name, nth) => {
            let which = format!("{name}#{nth}");
            Fields::of(&[("kind", "signal"), ("which", which.as_str()), ("value", value.as_str())])
        }
    })
}

fn places(turns: &[Turn]) -> BTreeMap<EventId, ForkStart> {
    let mut found = BTreeMap::new();
    let mut signals: BTreeMap<SignalName, usize> = BTreeMap::new();
    let mut closed = false;
    for turn in turns {
        closed |= turn.events.iter().any(|event| event.closes().is_some());
        let last = turn.events.len().saturating_sub(1);
        for (place, kind) in turn.events.iter().enumerate() {
            let id = EventId(turn.first_event.0 + place as u64);
            let start = match kind {
                EventKind::WorkflowExecutionSignaled(signal) => {
                    let nth = signals.entry(signal.name.clone()).or_default();
                    *nth += 1;
                    Some(ForkStart::Signal(signal.name.clone(), *nth))
                }
                kind => changeable(kind),
            };
            let start = start.or_else(|| (place == last && !closed).then_some(ForkStart::After));
            if let Some(start) = start {
                found.insert(id, start);
            }
        }
    }
    found
}

/// What of an event can be another one. It is cut before it, wherever in a turn it stands.
fn changeable(kind: &EventKind) -> Option<ForkStart> {
    Some(match kind {
        EventKind::WorkflowExecutionStarted(_) => ForkStart::Input,
        EventKind::ActivityTaskCompleted { .. }
        | EventKind::ChildWorkflowExecutionCompleted { .. }
        | EventKind::MarkerRecorded(Marker::SideEffect { .. }) => ForkStart::Result,
        EventKind::ActivityTaskFailed { .. }
        | EventKind::ActivityTaskTimedOut { .. }
        | EventKind::ActivityTaskCanceled { .. }
        | EventKind::StartChildWorkflowExecutionFailed { .. }
        | EventKind::ChildWorkflowExecutionFailed { .. }
        | EventKind::ChildWorkflowExecutionCanceled { .. }
        | EventKind::ChildWorkflowExecutionTimedOut { .. }
        | EventKind::ChildWorkflowExecutionTerminated { .. } => ForkStart::Failure,
        _ => return None,
    })
}

fn kind_of(turns: &[Turn], id: EventId) -> Option<&EventKind> {
    let turn = turns.iter().find(|turn| turn.first_event <= id && id < turn.next_event())?;
    turn.events.get(usize::try_from(id.0 - turn.first_event.0).ok()?)
}

/// What the event said, as the form takes it: JSON, or the message of a failure.
fn said(kind: &EventKind) -> String {
    let json = |payload: &Payload| format!("{:#}", payload.to_json());
    match kind {
        EventKind::WorkflowExecutionStarted(started) => json(&started.input),
        EventKind::WorkflowExecutionSignaled(signal) => json(&signal.input),
        EventKind::ActivityTaskCompleted { result, .. } | EventKind::ChildWorkflowExecutionCompleted { result, .. } => {
            json(result)
        }
        EventKind::MarkerRecorded(Marker::SideEffect { value, .. }) => json(value),
        EventKind::ActivityTaskFailed { failure, .. }
        | EventKind::ActivityTaskTimedOut { failure, .. }
        | EventKind::StartChildWorkflowExecutionFailed { failure, .. }
        | EventKind::ChildWorkflowExecutionFailed { failure, .. } => failure.message.clone(),
        EventKind::ActivityTaskCanceled { .. } | EventKind::ChildWorkflowExecutionCanceled { .. } => "canceled".into(),
        EventKind::ChildWorkflowExecutionTimedOut { .. } => "the child timed out".into(),
        EventKind::ChildWorkflowExecutionTerminated { reason, .. } => reason.clone(),
        _ => String::new(),
    }
}
