//! How a run ends, and what comes after it: retries of the workflow, continue-as-new (E02, E03, E18, E19).
//!
//! Invariant: a run ends with exactly one event. The next run of the chain, if there is one, begins in the same commit,
//! so that nothing can fall between them; it carries the request ids seen, the signals not consumed, and the signals and
//! cancel requests that were accepted and still wait in the inbox. Without a next run those signals are reported.

use std::collections::BTreeSet;

use super::decision::{Effect, NextRun, TurnDraft};
use super::run::Run;
use super::signal::{RequestIds, request_id};
use crate::seeded::{self, Bug};
use crate::vocabulary::*;

impl Run {
    /// Pushes the closing event, and asks for everything the end of the run means to others.
    fn close(&mut self, draft: &mut TurnDraft<'_, '_>, event: EventKind) {
        self.stop_attempts(draft);
        self.close_children(draft, event.handed_over());
        let open_updates = self.pending_updates();
        draft.push(self, event);
        for update_id in open_updates {
            let failure = Failure::application("WorkflowClosed", "the run ended before the update was completed");
            draft.effect(Effect::ResolveUpdate { update_id, result: Err(failure) });
        }
        let Some(outcome) = self.outcome().cloned() else { return };
        if self.info.next_run.is_none()
            && let Some(parent) = &self.info.parent
        {
            draft.effect(Effect::NotifyParent { parent: parent.clone(), outcome: outcome.clone() });
        }
        draft.effect(Effect::Closed { outcome, next_run: self.info.next_run });
        self.hear_what_waits(draft);
    }

    pub(super) fn complete(
        &mut self,
        draft: &mut TurnDraft<'_, '_>,
        result: Payload,
        mut unhandled_signals: Vec<SignalName>,
    ) {
        unhandled_signals.extend(self.unhandled_in_inbox());
        self.close(draft, EventKind::WorkflowExecutionCompleted { result, unhandled_signals });
    }

    /// Signals that wait in the inbox when the run ends count as unhandled too.
    fn unhandled_in_inbox(&self) -> Vec<SignalName> {
        let signal = |input: &Input| match input {
            Input::Signal(signal) => Some(signal.name.clone()),
            _ => None,
        };
        self.inbox.iter().filter_map(signal).collect()
    }

    /// What was accepted for this run and is the next run's to decide. Updates wait only where a reset tells them again.
    fn left_in_inbox(&self) -> Vec<Input> {
        let moves =
            |input: &&Input| matches!(input, Input::Signal(_) | Input::RequestCancel { .. } | Input::Update { .. });
        self.inbox.iter().filter(moves).cloned().collect()
    }

    pub(super) fn fail(
        &mut self,
        draft: &mut TurnDraft<'_, '_>,
        failure: Failure,
        mut unhandled_signals: Vec<SignalName>,
    ) {
        let next = match &self.started.retry_policy {
            Some(policy) => policy.next(self.started.attempt, &failure),
            None => Err(RetryState::RetryPolicyNotSet),
        };
        let next = next.and_then(|delay| {
            let at = draft.at().plus(delay);
            match self.started.execution_deadline {
                Some(deadline) if at >= deadline => Err(RetryState::Timeout),
                Some(_) | None => Ok(at),
            }
        });
        let (new_run, retry_state) = match next {
            Ok(at) => (Some(self.retry_at(draft, at, &failure)), RetryState::RetryPolicyNotSet),
            Err(retry_state) => {
                unhandled_signals.extend(self.unhandled_in_inbox());
                (None, retry_state)
            }
        };
        self.close(draft, EventKind::WorkflowExecutionFailed { failure, new_run, retry_state, unhandled_signals });
    }

    /// `untaken`: what its code was given and has not taken.
    pub(super) fn time_out(
        &mut self,
        draft: &mut TurnDraft<'_, '_>,
        timeout: WorkflowTimeout,
        untaken: Vec<SignalName>,
    ) {
        let failure = Failure::timeout(TimeoutType::StartToClose, None);
        let next = match (&self.started.retry_policy, timeout) {
            (Some(policy), WorkflowTimeout::Run) => policy.next(self.started.attempt, &failure).ok(),
            (Some(_), WorkflowTimeout::Execution) | (None, _) => None,
        };
        let next = next
            .map(|delay| draft.at().plus(delay))
            .filter(|at| self.started.execution_deadline.is_none_or(|deadline| *at < deadline));
        let new_run = next.map(|at| self.retry_at(draft, at, &failure));
        let mut unhandled_signals = untaken;
        if new_run.is_none() {
            unhandled_signals.extend(self.unhandled_in_inbox());
        }
        self.close(draft, EventKind::WorkflowExecutionTimedOut { timeout, new_run, unhandled_signals });
    }

    /// The run that tries again from the beginning.
    fn retry_at(&self, draft: &mut TurnDraft<'_, '_>, at: Timestamp, failure: &Failure) -> RunId {
        let new_run = self.id().derive("retry", u64::from(self.started.attempt.0));
        let mut started = self.started.clone();
        started.attempt = self.started.attempt.next();
        started.continued_from = Some(self.id());
        started.last_failure = Some(failure.clone());
        started.start_at = Some(at);
        started.carried_signals = Vec::new();
        started.signals_at_start = None;
        started.forked_from = None;
        started.numbering = Some(IdNumbering::ByKind);
        started.carried_request_ids = self.carried_request_ids();
        draft.next_run(NextRun { run_id: new_run, started, inbox: self.left_in_inbox() });
        new_run
    }

    /// The requests that were carried out; those that still wait are known to the next run by its inbox.
    fn carried_request_ids(&self) -> Vec<RequestId> {
        let mut ids = self.request_ids.in_order();
        if seeded::on(Bug::DedupeNotPersisted) {
            ids.clear();
        }
        let waiting: BTreeSet<&RequestId> = self.inbox.iter().filter_map(request_id).collect();
        ids.retain(|id| !waiting.contains(id));
        let surplus = ids.len().saturating_sub(RequestIds::KEPT);
        ids.drain(..surplus);
        ids
    }

    /// A run ends as canceled when its code says so: because it was asked to cancel, or by its own decision (a person
    /// denied its plan). An async workflow that was not asked and ends in a cancellation has failed; its driver says that.
    pub(super) fn end_canceled(
        &mut self,
        draft: &mut TurnDraft<'_, '_>,
        details: Option<Payload>,
        mut unhandled_signals: Vec<SignalName>,
    ) {
        unhandled_signals.extend(self.unhandled_in_inbox());
        self.close(draft, EventKind::WorkflowExecutionCanceled { details, unhandled_signals });
    }

    /// `untaken`: what its code was given and has not taken.
    pub(super) fn terminate(
        &mut self,
        draft: &mut TurnDraft<'_, '_>,
        (reason, identity): (String, Option<Identity>),
        untaken: Vec<SignalName>,
    ) {
        let mut unhandled_signals = untaken;
        unhandled_signals.extend(self.unhandled_in_inbox());
        self.close(draft, EventKind::WorkflowExecutionTerminated { reason, identity, reset: None, unhandled_signals });
    }

    /// Ends the run because another one goes on for it: its parent is not told, and the children that are handed over go on.
    pub(super) fn end_by_reset(
        &mut self,
        draft: &mut TurnDraft<'_, '_>,
        into: ResetInto,
        reason: String,
        identity: Option<Identity>,
    ) {
        let reset = Some(Box::new(into));
        let unhandled_signals = Vec::new();
        self.close(draft, EventKind::WorkflowExecutionTerminated { reason, identity, reset, unhandled_signals });
    }

    pub(super) fn continue_as_new(
        &mut self,
        draft: &mut TurnDraft<'_, '_>,
        workflow_type: Option<WorkflowType>,
        input: Payload,
        options: ContinueAsNewOptions,
        unconsumed_signals: Vec<WorkflowExecutionSignaled>,
    ) {
        let new_run = self.id().derive("continue", 0);
        let workflow_type = workflow_type.unwrap_or_else(|| self.info.workflow_type.clone());
        let mut started = self.started.clone();
        started.workflow_type = workflow_type.clone();
        started.input = input.clone();
        started.attempt = Attempt(1);
        started.continued_from = Some(self.id());
        started.last_failure = None;
        started.start_at = None;
        started.task_queue = options.task_queue.clone().unwrap_or(started.task_queue);
        started.run_timeout = options.run_timeout.or(started.run_timeout);
        started.retry_policy = options.retry_policy.clone().or(started.retry_policy);
        started.memo = options.memo.clone().unwrap_or_else(|| self.info.memo.clone());
        started.search_attributes =
            options.search_attributes.clone().unwrap_or_else(|| self.info.search_attributes.clone());
        started.carried_signals = unconsumed_signals.clone();
        started.signals_at_start = None;
        started.forked_from = None;
        started.numbering = Some(IdNumbering::ByKind);
        started.carried_request_ids = self.carried_request_ids();
        draft.next_run(NextRun { run_id: new_run, started, inbox: self.left_in_inbox() });
        let event = ContinuedAsNew { new_run, workflow_type, input, options, unconsumed_signals };
        self.close(draft, EventKind::WorkflowExecutionContinuedAsNew(Box::new(event)));
    }
}
