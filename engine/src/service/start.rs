//! Starts a workflow execution: id policies, idempotency, and what is done together with the start (engine.md E01, E12,
//! G17).
//!
//! Invariant: there is one open run of a workflow id at most; a start repeated with the same request id, or under the
//! same run id, finds the run it started. All starts of an id are decided by one shard, one after the other.

use super::committer::{Answer, RunName};
use super::mailbox::{Reply, RunRef, StartThen};
use super::turn::{TurnThread, when_durable};
use crate::request::{Started, Target, UpdateOutcome, UpdateRequest, UpdateWait};
use crate::vocabulary::*;

/// What to do about the run that has the workflow id.
enum Verdict {
    StartNew,
    Use { run_id: RunId, newly_started: bool },
    TerminateFirst(RunId),
    Refuse(Rejection),
}

impl TurnThread {
    pub(super) fn start(&mut self, run_id: RunId, start: StartWorkflow, then: StartThen, reply: Reply<Started>) {
        match self.verdict(run_id, &start, &then) {
            Verdict::StartNew => self.start_new(run_id, start, then, reply),
            Verdict::Use { run_id, newly_started } => self.use_run(run_id, newly_started, start, then, reply),
            Verdict::TerminateFirst(open) => {
                let name = RunName {
                    namespace: start.namespace.clone(),
                    workflow_id: start.workflow_id.clone(),
                    run_id: open,
                };
                let reason = "terminated by a start of the same workflow id".to_owned();
                self.input(&name, Input::Terminate { reason, identity: start.identity.clone() }, None);
                self.start_new(run_id, start, then, reply);
            }
            Verdict::Refuse(why) => self.answer(reply, Err(why)),
        }
    }

    fn verdict(&mut self, run_id: RunId, start: &StartWorkflow, then: &StartThen) -> Verdict {
        if start.parent.is_some() && self.shard.info(run_id).is_some() {
            return Verdict::Use { run_id, newly_started: true };
        }
        let Some(newest) = self.shard.newest(&start.namespace, &start.workflow_id) else { return Verdict::StartNew };
        let Some(info) = self.shard.info(newest) else { return Verdict::StartNew };
        if start.request_id.is_some() && self.started_by(&info, start) {
            return Verdict::Use { run_id: newest, newly_started: false };
        }
        let workflow_id = start.workflow_id.clone();
        if info.status.is_open() {
            // Signal-with-start means the open run, if there is one (engine.md E12).
            if matches!(then, StartThen::Signal(_)) && start.id_conflict_policy == IdConflictPolicy::Fail {
                return Verdict::Use { run_id: newest, newly_started: false };
            }
            return match start.id_conflict_policy {
                IdConflictPolicy::Fail => Verdict::Refuse(Rejection::AlreadyOpen { workflow_id, run_id: newest }),
                IdConflictPolicy::UseExisting => Verdict::Use { run_id: newest, newly_started: false },
                IdConflictPolicy::TerminateExisting => Verdict::TerminateFirst(newest),
            };
        }
        let allowed = match start.id_reuse_policy {
            IdReusePolicy::AllowDuplicate => true,
            IdReusePolicy::AllowDuplicateFailedOnly => info.status != WorkflowStatus::Completed,
            IdReusePolicy::RejectDuplicate => false,
        };
        if allowed {
            return Verdict::StartNew;
        }
        let (status, policy) = (info.status, start.id_reuse_policy);
        Verdict::Refuse(Rejection::IdReused { workflow_id, run_id: newest, status, policy })
    }

    /// Whether this run, or the first of its chain, came from the same request.
    fn started_by(&self, info: &RunInfo, start: &StartWorkflow) -> bool {
        info.start_request_id == start.request_id
            || self.shard.info(info.first_run).is_some_and(|first| first.start_request_id == start.request_id)
    }

    fn start_new(&mut self, run_id: RunId, start: StartWorkflow, then: StartThen, reply: Reply<Started>) {
        let now = self.shared.clock.now();
        let workflow_id = start.workflow_id.clone();
        let started = Started { workflow_id: workflow_id.clone(), run_id, newly_started: true };
        let (then, mut answers) = self.before_start(run_id, then);
        answers.push(when_durable(reply, started));
        let name = RunName { namespace: start.namespace.clone(), workflow_id, run_id };
        let waiting_update = match &then {
            Some(Input::Update { update_id, .. }) => Some(update_id.clone()),
            _ => None,
        };
        self.in_hand.begin(&name, None);
        let begun = self.shard.begin(
            run_id,
            first_event(run_id, start, now),
            |execution, environment| then.map(|input| execution.decide(input, environment)).transpose(),
            answers,
        );
        self.in_hand.end();
        if let Err((why, answers)) = begun {
            if let Some(update_id) = waiting_update {
                self.shared.waiters.refuse_update(run_id, update_id, &why);
            }
            self.refuse_in_order(answers, why);
        }
    }

    /// The input that belongs to the start, with whoever waits for it.
    fn before_start(&mut self, run_id: RunId, then: StartThen) -> (Option<Input>, Vec<Answer>) {
        match then {
            StartThen::Nothing => (None, Vec::new()),
            StartThen::Signal(signal) => (Some(Input::Signal(signal.into())), Vec::new()),
            StartThen::Update(UpdateRequest { update_id, name, input, identity, wait }, reply) => {
                let answers = match wait {
                    UpdateWait::Accepted => vec![when_durable(reply, UpdateOutcome::Accepted)],
                    UpdateWait::Completed => {
                        self.shared.waiters.await_update(&self.shared.health, run_id, update_id.clone(), reply);
                        Vec::new()
                    }
                };
                (Some(Input::Update { update_id, name, input, identity }), answers)
            }
        }
    }

    /// The start found its run; what belongs to it is done there.
    fn use_run(
        &mut self,
        run_id: RunId,
        newly_started: bool,
        start: StartWorkflow,
        then: StartThen,
        reply: Reply<Started>,
    ) {
        let started = Started { workflow_id: start.workflow_id.clone(), run_id, newly_started };
        let target = Target { namespace: start.namespace, workflow_id: start.workflow_id, run_id: Some(run_id) };
        match then {
            StartThen::Nothing => self.answer(reply, Ok(started)),
            StartThen::Signal(signal) => {
                let name = RunName { namespace: target.namespace, workflow_id: target.workflow_id, run_id };
                let input = Input::Signal(signal.into());
                self.in_hand.begin(&name, Some(input.clone()));
                let decided = self.shard.decide(&name, input, vec![when_durable(reply, started)]);
                self.in_hand.end();
                if let Err((why, answers)) = decided {
                    self.refuse_in_order(answers, why);
                }
            }
            StartThen::Update(request, update_reply) => {
                self.answer(reply, Ok(started));
                self.update(RunRef::Target(target), request, update_reply);
            }
        }
    }
}

fn first_event(run_id: RunId, start: StartWorkflow, now: Timestamp) -> WorkflowExecutionStarted {
    WorkflowExecutionStarted {
        namespace: start.namespace,
        workflow_id: start.workflow_id,
        workflow_type: start.workflow_type,
        task_queue: start.task_queue,
        input: start.input,
        execution_deadline: start.execution_timeout.map(|timeout| now.plus(timeout)),
        run_timeout: start.run_timeout,
        retry_policy: start.retry_policy,
        attempt: Attempt(1),
        first_run: run_id,
        continued_from: None,
        last_failure: None,
        start_at: None,
        parent: start.parent,
        memo: start.memo,
        search_attributes: start.search_attributes,
        request_id: start.request_id,
        identity: start.identity,
        summary: start.summary,
        details: start.details,
        carried_signals: Vec::new(),
        carried_request_ids: Vec::new(),
    }
}

impl From<crate::request::SignalRequest> for WorkflowExecutionSignaled {
    fn from(request: crate::request::SignalRequest) -> Self {
        WorkflowExecutionSignaled {
            name: request.name,
            input: request.input,
            identity: request.identity,
            request_id: request.request_id,
        }
    }
}
