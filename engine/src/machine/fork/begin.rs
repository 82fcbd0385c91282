//! Begins a planned fork: loads what was copied, tells what is told, and lets everything that was under way go on.
//!
//! Invariant: the code is checked against the copied events before anything is decided; code that does not fit refuses
//! the fork, with the card. The copied turns and the turn decided here are written together or not at all.

use super::{PlannedFork, Tell};
use crate::machine::decision::{FollowUp, TurnDraft};
use crate::machine::execution::Execution;
use crate::machine::run::Run;
use crate::machine::{Decision, Environment, NextRun};
use crate::vocabulary::*;
use crate::workflow::WorkflowRegistry;

/// What a fork begins with once the code has been checked.
enum CheckedFork {
    GoesOn(Execution),
    BeginsAnew(Box<dyn Driver>),
}

impl Tell {
    /// A signal or an update, as what waits for the code.
    fn message(&self) -> Option<Input> {
        match &self.event {
            EventKind::WorkflowExecutionSignaled(signal) => Some(Input::Signal(signal.clone())),
            EventKind::WorkflowExecutionUpdateAccepted { update_id, name, input, identity } => Some(Input::Update {
                update_id: update_id.clone(),
                name: name.clone(),
                input: input.clone(),
                identity: identity.clone(),
            }),
            _ => None,
        }
    }
    fn is_message(&self) -> bool {
        let event = &self.event;
        matches!(event, EventKind::WorkflowExecutionSignaled(_) | EventKind::WorkflowExecutionUpdateAccepted { .. })
    }
}

impl PlannedFork {
    /// Checks the code against what would be copied.
    pub fn check(&self, registry: &WorkflowRegistry, build: BuildId) -> Result<(), Rejection> {
        self.checked(registry, build).map(|_| ())
    }

    fn checked(&self, registry: &WorkflowRegistry, build: BuildId) -> Result<CheckedFork, Rejection> {
        if self.prefix.is_empty() {
            // There is code for the type, at least.
            return registry.create(&self.started, self.run_id).map(CheckedFork::BeginsAnew);
        }
        let execution = Execution::load(&self.prefix, registry, build)
            .map_err(|why| super::refused("the source", why.to_string()))?;
        match execution.held() {
            Some(held) => Err(Rejection::DoesNotFit { why: held.to_string() }),
            None => Ok(CheckedFork::GoesOn(execution)),
        }
    }

    /// Begins with nothing of the source but its input, or another one.
    fn begin_anew(self, code: Box<dyn Driver>, environment: &mut Environment<'_>) -> (Execution, Decision) {
        let PlannedFork { told, side_effects, run_id, started, .. } = self;
        let first = NextRun { run_id, started, inbox: Vec::new() };
        Execution::begin_with(first, code, side_effects, environment, |execution, draft| {
            execution.tell_in_order(draft, told)
        })
    }

    /// Begins the run. The turns come first in the commit, the decision's turn follows.
    pub fn begin(
        self,
        registry: &WorkflowRegistry,
        environment: &mut Environment<'_>,
    ) -> Result<(Execution, Vec<Turn>, Decision), Rejection> {
        let mut execution = match self.checked(registry, environment.build)? {
            CheckedFork::GoesOn(execution) => execution,
            CheckedFork::BeginsAnew(code) => {
                let (execution, decision) = self.begin_anew(code, environment);
                return fits(execution, Vec::new(), decision);
            }
        };
        let PlannedFork { prefix, told, side_effects, children, reason, run_id, point, started, .. } = self;
        let identity = started.identity;
        let mut draft = TurnDraft::new(&execution.run, environment);
        draft.side_effects = side_effects;
        let ends_pause = if point.reset { "reset" } else { "forked" };
        let (from, by, own) = (point, identity.clone(), children.clone());
        let forked = EventKind::WorkflowExecutionForked { run_id, from, reason, identity: by, children: own };
        draft.push(&mut execution.run, forked);
        execution.forked(run_id);
        if execution.run.is_paused() {
            let reason = ends_pause.to_owned();
            draft.push(&mut execution.run, EventKind::WorkflowExecutionUnpaused { reason, identity });
        }
        execution.tell(&mut draft, told);
        execution.run.take_over(&mut draft, &children);
        let decision = draft.finish(&mut execution.run);
        fits(execution, prefix, decision)
    }
}

/// Nothing of a turn may be written in which the code asked for more than a turn may hold.
fn fits(
    execution: Execution,
    copied: Vec<Turn>,
    decision: Decision,
) -> Result<(Execution, Vec<Turn>, Decision), Rejection> {
    match execution.undone() {
        Some(held) => Err(Rejection::Held { why: held.to_string() }),
        None => Ok((execution, copied, decision)),
    }
}

impl Run {
    /// Children of the run before are this one's: it asks for what they need, and hears how they end.
    fn take_over(&self, draft: &mut TurnDraft<'_, '_>, children: &[Seq]) {
        if !self.is_closed() {
            children.iter().for_each(|seq| self.redrive_child(draft, *seq));
        }
    }

    /// Whether an event that is told still finds what it is about.
    fn waits_for(&self, event: &EventKind) -> bool {
        let known = |seq: &Seq| {
            self.activities.get(*seq).is_some() || self.children.contains_key(seq) || self.externals.contains_key(seq)
        };
        match event {
            EventKind::TimerFired { seq } => self.timers.is_pending(*seq),
            EventKind::ExternalWorkflowExecutionCancelRequested { seq } => known(seq),
            EventKind::ChildWorkflowExecutionStarted { seq, .. } => self.child_to_start(*seq).is_some(),
            other => super::source::ends(other).is_none_or(|seq| known(&seq)),
        }
    }
}

impl Execution {
    /// Tells what is told, and lets everything that was under way go on.
    fn tell(&mut self, draft: &mut TurnDraft<'_, '_>, told: Vec<Tell>) {
        self.tell_in_order(draft, told);
        if !self.run.is_closed() {
            for seq in self.run.canceled_activities() {
                let canceled = EventKind::ActivityTaskCanceled { seq, details: None };
                draft.follow_ups.push_back(FollowUp::Event(canceled));
            }
            self.settle(draft);
        }
        if !self.run.is_closed() {
            self.run.queue_waiting(draft);
            draft.follow_up(Input::Deadline);
            self.settle(draft);
        }
    }

    /// Tells everything, in order, and decides what was accepted before the fork. Signals and updates stand in the inbox until
    /// they are told, so that a run that ends before reports them, or leaves them to the next of its chain, as any run does.
    fn tell_in_order(&mut self, draft: &mut TurnDraft<'_, '_>, told: Vec<Tell>) {
        let mut accepted = self.run.inbox.len();
        for input in told.iter().filter_map(Tell::message) {
            self.run.note_request(&input);
            self.run.inbox.push_back(input);
        }
        for tell in told {
            if tell.is_message() {
                accepted -= self.decide_accepted(draft, accepted, tell.replaces.as_ref());
                // A run that cannot decide now decides it later, from its inbox.
                if self.run.is_closed() || self.run.is_buffering() {
                    continue;
                }
                // An update is validated again, since it meets another state.
                if let Some(update @ Input::Update { .. }) = self.run.inbox.remove(accepted) {
                    if self.accept(draft, update).is_ok() {
                        self.settle(draft);
                    }
                    continue;
                }
            }
            let event = tell.event;
            if let EventKind::WorkflowExecutionCancelRequested { reason, identity, request_id } = &event
                && self.run.has_not_begun()
            {
                let (reason, identity) = (reason.clone(), identity.clone());
                let request = Input::RequestCancel { reason, identity, request_id: request_id.clone() };
                self.run.cancel_before_it_begins(draft, request);
            }
            // What the code did with the one before may have made it meaningless.
            if !self.run.is_closed() && self.run.waits_for(&event) {
                draft.push(&mut self.run, event);
                self.settle(draft);
            }
        }
        accepted -= self.drain_inbox(draft, accepted);
        draft.inbox_added.extend(self.run.inbox.iter().skip(accepted).cloned());
    }

    /// Decides the `accepted` first inputs of the inbox, before a signal that came after them, but for the one whose place
    /// that signal takes. Says how many have left the inbox.
    fn decide_accepted(
        &mut self,
        draft: &mut TurnDraft<'_, '_>,
        accepted: usize,
        replaced: Option<&WorkflowExecutionSignaled>,
    ) -> usize {
        let is_it = |input: &Input| matches!(input, Input::Signal(signal) if Some(signal) == replaced);
        let place = self.run.inbox.iter().take(accepted).position(is_it);
        let decided = self.drain_inbox(draft, place.unwrap_or(accepted));
        if place == Some(decided) && !self.run.is_closed() {
            self.run.inbox.pop_front();
            draft.inbox_taken += 1;
            return decided + 1;
        }
        decided
    }
}
