//! What goes another way in a fork: results, failures, values, signals, the input.
//!
//! Invariant: a change names exactly one thing of the history, or it is refused with the things it could mean. It is told
//! at the fork; what the fork has not asked for by then cannot be changed.

use std::collections::BTreeMap;

use super::source::{ForkHistory, ForkedOperation, OperationFamily, Placed, SIDE_EFFECT};
use super::{PlannedFork, refused, under_way};
use crate::machine::run::Run;
use crate::request::*;
use crate::vocabulary::*;

/// A change that was found in the history.
pub(super) enum ResolvedChange {
    Outcome { subject: ForkedOperation, outcome: Result<Payload, Failure> },
    SideEffect { subject: ForkedOperation, value: Payload, activating: EventId },
    Signal { event: EventId, signal: WorkflowExecutionSignaled },
    Input,
}

pub(super) type Told = Vec<(EventId, EventKind, ForkTold)>;

/// `by`: who asks for the fork, and so who says what is different.
pub(super) fn changes(
    source: &ForkHistory<'_>,
    asked: &[ForkChange],
    by: Option<&Identity>,
) -> Result<Vec<ResolvedChange>, Rejection> {
    let mut found: Vec<ResolvedChange> = Vec::new();
    for change in asked {
        let change = match change {
            ForkChange::Outcome { of, outcome } => self::outcome(source, of, outcome)?,
            ForkChange::Signal { name, nth, input } => signal(source, name, *nth, (input, by))?,
            ForkChange::Input(_) => ResolvedChange::Input,
        };
        if found.iter().any(|one| one.is_about_the_same(&change)) {
            return Err(refused(change.name(), "it is changed twice"));
        }
        found.push(change);
    }
    Ok(found)
}

fn outcome(
    source: &ForkHistory<'_>,
    of: &ForkSubject,
    outcome: &Result<Payload, Failure>,
) -> Result<ResolvedChange, Rejection> {
    let subject = find(source, of)?.clone();
    match (subject.family, outcome) {
        (OperationFamily::Activity | OperationFamily::Child, _) => {
            Ok(ResolvedChange::Outcome { subject, outcome: outcome.clone() })
        }
        (OperationFamily::SideEffect, Ok(value)) => {
            let before = source.events.iter().rev().skip_while(|event| event.id > subject.asked);
            let activating = before.into_iter().find(|event| event.kind.origin() == Origin::Activating);
            let activating = activating.map_or(EventId(1), |event| event.id);
            Ok(ResolvedChange::SideEffect { subject, value: value.clone(), activating })
        }
        (OperationFamily::SideEffect, Err(_)) => Err(refused(of, "a side effect has a value; it cannot fail")),
        (OperationFamily::Signal | OperationFamily::CancelRequest, _) => {
            Err(refused(of, "a message to another run has no result"))
        }
    }
}

/// The one thing that is meant.
fn find<'s>(source: &'s ForkHistory<'_>, of: &ForkSubject) -> Result<&'s ForkedOperation, Rejection> {
    match of {
        ForkSubject::Seq(seq) => source.subjects.get(seq).ok_or_else(|| {
            let why = "no activity, child workflow or side effect of the history has this command number";
            refused(of, format!("{why}; {}", there_is(source)))
        }),
        ForkSubject::Event(id) => {
            let found = source.subjects.values().find(|one| one.asked == *id || one.ended == Some(*id));
            found.ok_or_else(|| match source.event(*id) {
                Some(event) => {
                    let is = event.kind.name();
                    refused(
                        of,
                        format!(
                            "it is {is}; name the event that asked for a result or the one that brought it; {}",
                            there_is(source)
                        ),
                    )
                }
                None => refused(of, format!("the history has {} events", source.count())),
            })
        }
        ForkSubject::Name { name, nth } => {
            let fits = |one: &&ForkedOperation| one.type_name == *name || one.id_name == *name;
            let candidates: Vec<&ForkedOperation> = source.subjects.values().filter(fits).collect();
            match (candidates.as_slice(), nth) {
                ([], _) => Err(refused(of, format!("the history has no such name; {}", there_is(source)))),
                ([one], None) => Ok(one),
                (several, Some(nth)) => several
                    .get(nth.wrapping_sub(1))
                    .copied()
                    .ok_or_else(|| refused(of, format!("there are {} of this name, counted from 1", several.len()))),
                (several, None) => Err(refused(of, format!("there are several: {}", listed(name, several)))),
            }
        }
    }
}

/// What a change may name.
fn there_is(source: &ForkHistory<'_>) -> String {
    match known(source).as_slice() {
        [] => "it has no activity, child workflow or side effect".to_owned(),
        known => format!("it has: {}", known.join(", ")),
    }
}

fn known(source: &ForkHistory<'_>) -> Vec<String> {
    let mut names: Vec<String> = source
        .subjects
        .values()
        .filter(|one| !matches!(one.family, OperationFamily::Signal | OperationFamily::CancelRequest))
        .map(|one| one.type_name.clone())
        .collect();
    names.sort();
    names.dedup();
    names
}

fn listed(name: &str, several: &[&ForkedOperation]) -> String {
    let one = |(i, subject): (usize, &&ForkedOperation)| {
        let summary = subject.summary.as_ref().map(|summary| format!(", {summary}")).unwrap_or_default();
        match subject.ended {
            Some(ended) => format!("{name}#{} (ended at event {ended}{summary})", i + 1),
            None => format!("{name}#{} (asked for at event {}{summary})", i + 1, subject.asked),
        }
    };
    several.iter().enumerate().map(one).collect::<Vec<_>>().join(", ")
}

fn signal(
    source: &ForkHistory<'_>,
    name: &SignalName,
    nth: Option<usize>,
    (input, by): (&Payload, Option<&Identity>),
) -> Result<ResolvedChange, Rejection> {
    let found: Vec<(EventId, &WorkflowExecutionSignaled)> = source
        .events
        .iter()
        .filter_map(|event| match event.kind {
            EventKind::WorkflowExecutionSignaled(signal) if signal.name == *name => Some((event.id, signal)),
            _ => None,
        })
        .collect();
    let what = format!("signal {name}");
    let (event, signal) = match (found.as_slice(), nth) {
        ([], _) => return Err(refused(what, "the history has no signal of this name")),
        ([one], None) => *one,
        (several, Some(nth)) => *several
            .get(nth.wrapping_sub(1))
            .ok_or_else(|| refused(what, format!("there are {}, counted from 1", several.len())))?,
        (several, None) => {
            let one = |(i, (event, _)): (usize, &(EventId, _))| format!("{name}#{} (event {event})", i + 1);
            let list: Vec<String> = several.iter().enumerate().map(one).collect();
            return Err(refused(what, format!("there are several: {}", list.join(", "))));
        }
    };
    // Whoever sent the one in the source did not say this.
    let signal = WorkflowExecutionSignaled { input: input.clone(), identity: by.cloned(), ..signal.clone() };
    Ok(ResolvedChange::Signal { event, signal })
}

impl ResolvedChange {
    /// The event that is replaced; nothing from it on is kept.
    pub(super) fn cuts_before(&self) -> Option<EventId> {
        match self {
            ResolvedChange::Outcome { subject, .. } => subject.ended,
            ResolvedChange::SideEffect { activating, .. } => Some(*activating),
            ResolvedChange::Signal { event, .. } => Some(*event),
            ResolvedChange::Input => Some(EventId(1)),
        }
    }
    pub(super) fn is_signal(&self, id: EventId) -> bool {
        matches!(self, ResolvedChange::Signal { event, .. } if *event == id)
    }
    pub(super) fn seq(&self) -> Option<Seq> {
        match self {
            ResolvedChange::Outcome { subject, .. } | ResolvedChange::SideEffect { subject, .. } => Some(subject.seq),
            ResolvedChange::Signal { .. } | ResolvedChange::Input => None,
        }
    }
    fn name(&self) -> String {
        match self {
            ResolvedChange::Outcome { subject, .. } => subject.type_name.clone(),
            ResolvedChange::SideEffect { subject, .. } => format!("{SIDE_EFFECT} {}", subject.seq),
            ResolvedChange::Signal { signal, .. } => format!("signal {}", signal.name),
            ResolvedChange::Input => "the input".into(),
        }
    }
    fn is_about_the_same(&self, other: &ResolvedChange) -> bool {
        match (self, other) {
            (ResolvedChange::Input, ResolvedChange::Input) => true,
            (ResolvedChange::Signal { event: one, .. }, ResolvedChange::Signal { event: two, .. }) => one == two,
            _ => self.seq().is_some() && self.seq() == other.seq(),
        }
    }

    /// Says how the change is told at the fork, or why it cannot be.
    pub(super) fn apply(
        &self,
        fork: &mut PlannedFork,
        source: &ForkHistory<'_>,
        kept: Option<&Run>,
        told: &mut Told,
    ) -> Result<(), Rejection> {
        let at = fork.point.event;
        match self {
            ResolvedChange::Input => {
                let line = ForkTold {
                    event: Some(EventId(1)),
                    what: format!("the input = {}", short(&fork.started.input)),
                    why: ForkTelling::Changed,
                };
                fork.plan.told.push(line);
            }
            ResolvedChange::Signal { event, signal } => {
                let what = format!("signal {} = {}", signal.name, short(&signal.input));
                let line = ForkTold { event: Some(*event), what, why: ForkTelling::Changed };
                told.push((*event, EventKind::WorkflowExecutionSignaled(signal.clone()), line));
            }
            ResolvedChange::Outcome { subject, outcome } => {
                if !subject.is_pending_at(at) {
                    let why = format!("it is asked for at event {}, after the fork (event {at})", subject.asked);
                    return Err(refused(self.name(), why));
                }
                tell_outcome(subject, outcome, kept, told);
            }
            ResolvedChange::SideEffect { subject, value, activating } => {
                if activating.0 != at.0 + 1 {
                    return Err(refused(
                        self.name(),
                        format!("its activation begins at event {activating}, not right after the fork (event {at})"),
                    ));
                }
                self.give_again(fork, source, *activating, (subject, value), told);
            }
        }
        Ok(())
    }

    /// The activation with the side effect happens again; its other side effects give what they gave.
    fn give_again(
        &self,
        fork: &mut PlannedFork,
        source: &ForkHistory<'_>,
        activating: EventId,
        (subject, value): (&ForkedOperation, &Payload),
        told: &mut Told,
    ) {
        let answers = source.after(activating).iter().take_while(|event| event.kind.origin() != Origin::Activating);
        let recorded: BTreeMap<Seq, Payload> = answers.filter_map(recorded_value).collect();
        for (seq, recorded) in recorded {
            fork.side_effects.entry(seq).or_insert(recorded);
        }
        fork.side_effects.insert(subject.seq, value.clone());
        let what = format!("{SIDE_EFFECT} {} = {}", subject.seq, short(value));
        let line = ForkTold { event: Some(subject.asked), what, why: ForkTelling::Changed };
        let again = source.event(activating).filter(|event| event.id > EventId(1));
        match again {
            // A second side effect of the same activation is already told by it.
            Some(event) if !told.iter().any(|(place, ..)| *place == activating) => {
                told.push((activating, event.kind.clone(), line));
            }
            Some(_) | None => fork.plan.told.push(line),
        }
    }
}

fn recorded_value(event: &Placed<'_>) -> Option<(Seq, Payload)> {
    match event.kind {
        EventKind::MarkerRecorded(Marker::SideEffect { seq, value }) => Some((*seq, value.clone())),
        _ => None,
    }
}

fn tell_outcome(subject: &ForkedOperation, outcome: &Result<Payload, Failure>, kept: Option<&Run>, told: &mut Told) {
    let seq = subject.seq;
    // Before what waits in the inbox of what is copied, which may be the outcome that this one takes the place of.
    let place = match kept.is_some_and(|run| under_way::is_told_from_inbox(run, seq)) {
        true => EventId(0),
        false => subject.ended.unwrap_or(EventId(u64::MAX)),
    };
    let what = match outcome {
        Ok(result) => format!("{} = {}", subject.type_name, short(result)),
        Err(failure) => format!("{} failed: {failure}", subject.type_name),
    };
    let line = |what: String| ForkTold { event: subject.ended, what, why: ForkTelling::Changed };
    let event = match (subject.family, outcome) {
        (OperationFamily::Child, Ok(result)) => {
            EventKind::ChildWorkflowExecutionCompleted { seq, result: result.clone() }
        }
        (OperationFamily::Child, Err(failure)) => {
            EventKind::ChildWorkflowExecutionFailed { seq, failure: failure.clone() }
        }
        (_, Ok(result)) => EventKind::ActivityTaskCompleted { seq, result: result.clone(), identity: None },
        (_, Err(failure)) => EventKind::ActivityTaskFailed {
            seq,
            failure: failure.clone(),
            retry_state: RetryState::NonRetryableFailure,
        },
    };
    if subject.family == OperationFamily::Child
        && let Some(run_id) = kept.and_then(|run| run.child_to_start(seq))
    {
        let started = EventKind::ChildWorkflowExecutionStarted { seq, run_id };
        told.push((place, started, line(format!("{} started", subject.type_name))));
    }
    told.push((place, event, line(what)));
}

/// A payload for people, shortened.
pub(super) fn short(payload: &Payload) -> String {
    let text = match std::str::from_utf8(&payload.data) {
        Ok(text) if payload.encoding == ENCODING_JSON => text.to_owned(),
        Ok(_) | Err(_) => format!("{payload:?}"),
    };
    if text.chars().count() <= 120 { text } else { text.chars().take(119).chain(['…']).collect() }
}
