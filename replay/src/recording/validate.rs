//! Checks the structure of a history: everything that is true of whatever the run machine writes.
//!
//! Invariant: a history that passes can be folded, replayed and shown without a panic and without surprise: ids have no
//! gaps, everything resolved was asked for, and nothing happens after the end. No workflow code is involved, and nothing
//! is repaired: a history is right or it is refused, with the place and the reason.

use std::collections::{BTreeMap, BTreeSet};

use bosun_engine::*;

use super::numbered::Numbered;
use super::visit::{self, Visitor};
use super::{CommandFamily, HistoryLimits, HistoryPlace, HistoryProblem, InvalidHistory, Redaction, STORAGE_ENCODINGS};
use crate::rfc3339;

pub(super) fn validate(turns: &mut [Turn], redaction: Redaction, limits: &HistoryLimits) -> Result<(), InvalidHistory> {
    let Some(first) = turns.first() else { return Err(at(HistoryPlace::default(), HistoryProblem::Empty)) };
    let mut checker = Checker::new(first);
    for (index, turn) in turns.iter_mut().enumerate() {
        let mut contents = ExportContents { limits, redacted: redaction != Redaction::None, found: None };
        visit::turn(turn, &mut contents);
        checker.place = HistoryPlace { turn: Some(index + 1), event: None };
        contents
            .found
            .map_or(Ok(()), Err)
            .and_then(|()| checker.turn(turn, limits))
            .map_err(|problem| at(checker.place.clone(), problem))?;
    }
    if checker.next_event == EventId(1) {
        return Err(at(HistoryPlace::default(), HistoryProblem::Empty));
    }
    Ok(())
}

fn at(place: HistoryPlace, problem: HistoryProblem) -> InvalidHistory {
    InvalidHistory { place, problem }
}

/// What the history says so far.
struct Checker {
    place: HistoryPlace,
    run: RunId,
    next_event: EventId,
    now: Timestamp,
    backoff: bool,
    paused: bool,
    /// The start says that the run was forked.
    forked: bool,
    closed_at: Option<EventId>,
    /// An activating event has been seen in this turn.
    activated: bool,
    inbox: usize,
    numbered: Numbered,
    /// Accepted updates, and whether they are completed.
    updates: BTreeMap<UpdateId, bool>,
    requests: BTreeSet<RequestId>,
}

impl Checker {
    fn new(first: &Turn) -> Self {
        Checker {
            place: HistoryPlace::default(),
            run: first.run,
            next_event: EventId(1),
            now: rfc3339::EARLIEST,
            backoff: false,
            paused: false,
            forked: false,
            closed_at: None,
            activated: false,
            inbox: 0,
            numbered: Numbered::default(),
            updates: BTreeMap::new(),
            requests: BTreeSet::new(),
        }
    }

    fn turn(&mut self, turn: &Turn, limits: &HistoryLimits) -> Result<(), HistoryProblem> {
        if turn.run != self.run {
            return Err(HistoryProblem::OtherRun { expected: self.run, found: turn.run });
        }
        if turn.first_event != self.next_event {
            return Err(HistoryProblem::EventIdGap { expected: self.next_event, found: turn.first_event });
        }
        if !(rfc3339::EARLIEST..=rfc3339::LATEST).contains(&turn.at) {
            return Err(HistoryProblem::TimeOutOfRange { found: turn.at });
        }
        if turn.at < self.now {
            return Err(HistoryProblem::TimeGoesBack { before: self.now, found: turn.at });
        }
        self.now = turn.at;
        self.activated = false;
        for event in &turn.events {
            self.place.event = Some((self.next_event, event.name()));
            self.event(event)?;
            self.next_event = self.next_event.next();
            if self.next_event.0 > limits.events as u64 + 1 {
                return Err(HistoryProblem::TooManyEvents { limit: limits.events });
            }
        }
        self.place.event = None;
        turn.heartbeats.iter().try_for_each(|beat| self.numbered.heartbeat(beat))?;
        for seq in &turn.delivered {
            let closed_at = self.closed_at.ok_or(HistoryProblem::DeliveredWhileOpen { seq: *seq })?;
            self.numbered.delivered(*seq, closed_at)?;
        }
        let taken = usize::try_from(turn.inbox_taken).unwrap_or(usize::MAX);
        if taken > self.inbox {
            return Err(HistoryProblem::InboxUnderrun { taken: turn.inbox_taken, held: self.inbox });
        }
        self.inbox = self.inbox - taken + turn.inbox_added.len();
        Ok(())
    }

    fn event(&mut self, event: &EventKind) -> Result<(), HistoryProblem> {
        let id = self.next_event;
        if let Some(closed_at) = self.closed_at {
            return Err(HistoryProblem::AfterClose { closed_at });
        }
        match (id, event) {
            (EventId(1), EventKind::WorkflowExecutionStarted(started)) => self.started(started)?,
            (EventId(1), _) => return Err(HistoryProblem::NotStarted),
            (_, EventKind::WorkflowExecutionStarted(_)) => return Err(HistoryProblem::StartedTwice),
            _ => {}
        }
        match event.origin() {
            Origin::Activating => self.activated = true,
            Origin::Command if !self.activated => return Err(HistoryProblem::CommandWithoutActivation),
            Origin::Command | Origin::Bookkeeping => {}
        }
        if event.closes().is_some() {
            self.closed_at = Some(id);
        }
        self.run_event(event)?;
        self.numbered.event(id, self.now, event)
    }

    fn started(&mut self, started: &WorkflowExecutionStarted) -> Result<(), HistoryProblem> {
        if started.attempt.0 == 0 {
            return Err(HistoryProblem::AttemptZero);
        }
        self.backoff = started.start_at.is_some();
        self.forked = started.forked_from.is_some();
        Ok(())
    }

    /// The events about the run itself and about named things; the numbered ones have a checker of their own.
    fn run_event(&mut self, event: &EventKind) -> Result<(), HistoryProblem> {
        use EventKind::*;
        match event {
            FirstWorkflowTaskScheduled if !std::mem::take(&mut self.backoff) => Err(HistoryProblem::NoBackoff),
            WorkflowExecutionSignaled(signal) => self.request(signal.request_id.as_ref()),
            WorkflowExecutionCancelRequested { request_id, .. } => self.request(request_id.as_ref()),
            WorkflowExecutionPaused { .. } if std::mem::replace(&mut self.paused, true) => Err(HistoryProblem::Pause),
            WorkflowExecutionUnpaused { .. } if !std::mem::replace(&mut self.paused, false) => {
                Err(HistoryProblem::Pause)
            }
            WorkflowExecutionUpdateAccepted { update_id, .. } => match self.updates.insert(update_id.clone(), false) {
                Some(_) => Err(HistoryProblem::UpdateAcceptedTwice { update_id: update_id.clone() }),
                None => Ok(()),
            },
            WorkflowExecutionUpdateCompleted { update_id, .. } => match self.updates.get_mut(update_id) {
                None => Err(HistoryProblem::UpdateNotAccepted { update_id: update_id.clone() }),
                Some(true) => Err(HistoryProblem::UpdateCompletedTwice { update_id: update_id.clone() }),
                Some(completed) => {
                    *completed = true;
                    Ok(())
                }
            },
            WorkflowExecutionFailed { new_run, .. } | WorkflowExecutionTimedOut { new_run, .. } => {
                self.next_run(*new_run)
            }
            WorkflowExecutionContinuedAsNew(next) => self.next_run(Some(next.new_run)),
            WorkflowExecutionForked { .. } if !self.forked => Err(HistoryProblem::NotAFork),
            WorkflowExecutionForked { from, .. } if from.event.next() != self.next_event => {
                Err(HistoryProblem::ForkedElsewhere { copied: from.event, before: self.next_event.0 - 1 })
            }
            _ => Ok(()),
        }
    }

    fn next_run(&self, next: Option<RunId>) -> Result<(), HistoryProblem> {
        if next == Some(self.run) { Err(HistoryProblem::NextRunIsItself) } else { Ok(()) }
    }

    /// A run remembers a bounded number of request ids, so beyond that a repetition proves nothing.
    fn request(&mut self, id: Option<&RequestId>) -> Result<(), HistoryProblem> {
        const REMEMBERED: usize = 65_536;
        match id {
            Some(id) if self.requests.len() < REMEMBERED && !self.requests.insert(id.clone()) => {
                Err(HistoryProblem::RequestAppliedTwice { request_id: id.clone() })
            }
            Some(_) | None => Ok(()),
        }
    }
}

/// Sizes and encodings of what users wrote. The first problem is kept.
struct ExportContents<'a> {
    limits: &'a HistoryLimits,
    /// The history says that payloads were left out.
    redacted: bool,
    found: Option<HistoryProblem>,
}

impl Visitor for ExportContents<'_> {
    fn payload(&mut self, payload: &mut Payload) {
        let of_storage = STORAGE_ENCODINGS.contains(&payload.encoding.as_ref());
        if payload.len() > self.limits.payload_bytes {
            let limit = self.limits.payload_bytes;
            self.found.get_or_insert(HistoryProblem::PayloadTooLarge { length: payload.len(), limit });
        } else if payload.encoding == ENCODING_REDACTED && !self.redacted && !self.limits.storage_encodings {
            self.found.get_or_insert(HistoryProblem::RedactedPayload);
        } else if of_storage && !self.limits.storage_encodings {
            self.found
                .get_or_insert(HistoryProblem::StorageEncoding { encoding: payload.encoding.clone().into_owned() });
        }
    }
    fn text(&mut self, text: &mut String) {
        if text.len() > self.limits.text_bytes {
            let limit = self.limits.text_bytes;
            self.found.get_or_insert(HistoryProblem::TextTooLong { length: text.len(), limit });
        }
    }
    fn attributes(&mut self, attributes: &mut SearchAttributes) {
        for (name, value) in attributes {
            match value {
                SearchValue::Float(number) if !number.is_finite() => {
                    self.found.get_or_insert(HistoryProblem::NotFinite { name: name.clone() });
                }
                SearchValue::Keyword(text) | SearchValue::Text(text) => self.text(text),
                SearchValue::KeywordList(texts) => texts.iter_mut().for_each(|text| self.text(text)),
                SearchValue::Float(_)
                | SearchValue::Bool(_)
                | SearchValue::Int(_)
                | SearchValue::Datetime(_)
                | SearchValue::Unset => {}
            }
        }
    }
    fn causes(&mut self, length: usize) {
        if length > HistoryLimits::CAUSES_MAX {
            self.found.get_or_insert(HistoryProblem::CausesTooDeep { length, limit: HistoryLimits::CAUSES_MAX });
        }
    }
}

impl CommandFamily {
    /// The kind of numbered thing an event asks for, with its number.
    pub(crate) fn asked_for(event: &EventKind) -> Option<(Seq, CommandFamily)> {
        match event {
            EventKind::ActivityTaskScheduled(scheduled) => Some((scheduled.seq, CommandFamily::Activity)),
            EventKind::TimerStarted { seq, .. } => Some((*seq, CommandFamily::Timer)),
            EventKind::StartChildWorkflowExecutionInitiated(initiated) => {
                Some((initiated.seq, CommandFamily::ChildWorkflow))
            }
            EventKind::SignalExternalWorkflowExecutionInitiated(initiated) => {
                Some((initiated.seq, CommandFamily::ExternalSignal))
            }
            EventKind::RequestCancelExternalWorkflowExecutionInitiated { seq, .. } => {
                Some((*seq, CommandFamily::ExternalCancel))
            }
            EventKind::MarkerRecorded(Marker::SideEffect { seq, .. }) => Some((*seq, CommandFamily::SideEffect)),
            _ => None,
        }
    }
}
