//! Starts a workflow execution: id policies, idempotency, and what is done together with the start (E01, E12,
//! G17).
//!
//! Invariant: there is one open run of a workflow id at most; a start repeated with the same request id, or under the
//! same run id, finds the run it started. All starts of an id are decided by one shard, one after the other.

use super::committer::{Answer, RunName};
use super::current_turn::{SharedReply, TurnCaller};
use super::mailbox::{RunRef, StartThen};
use super::shard::newer_than;
use super::turn::{TurnThread, when_durable};
use crate::request::{Started, Target, UpdateOutcome, UpdateRequest, UpdateWait};
use crate::vocabulary::*;

/// What to do about the run that has the workflow id.
enum StartVerdict {
    /// `after` is when the newest run of the id started; the new one is newer.
    StartNew {
        after: Option<Timestamp>,
    },
    Use {
        run_id: RunId,
        newly_started: bool,
    },
    TerminateFirst {
        open: RunId,
        after: Option<Timestamp>,
    },
    Refuse(Rejection),
}

impl TurnThread {
    pub(super) fn start(&mut self, run_id: RunId, start: StartWorkflow, then: StartThen, reply: SharedReply<Started>) {
        let verdict = self.verdict(run_id, &start, &then);
        // On a full disk nothing new is begun (G5). What runs may go on, and begin children.
        if let StartVerdict::StartNew { .. } | StartVerdict::TerminateFirst { .. } = verdict
            && start.parent.is_none()
            && let Some(why) = self.shared.journal.low_on_space()
        {
            return self.answer(reply, Err(Rejection::StorageFull { why }));
        }
        match verdict {
            StartVerdict::StartNew { after } => self.start_new(run_id, start, (None, after), then, reply),
            StartVerdict::Use { run_id, newly_started } => {
                let child =
                    start.parent.clone().map(|parent| (start.namespace.clone(), start.workflow_id.clone(), parent));
                self.use_run(run_id, newly_started, start, then, reply);
                if let Some((namespace, workflow_id, parent)) = child {
                    // A parent that asks again after a crash may have missed the end too.
                    self.watch_child(namespace, workflow_id, run_id, parent);
                }
            }
            StartVerdict::TerminateFirst { open, after } => {
                let name = RunName {
                    namespace: start.namespace.clone(),
                    workflow_id: start.workflow_id.clone(),
                    run_id: open,
                };
                // Loaded apart: when it is this run's code that does not come back, this run is held.
                match self.look(&name, reply.caller(), |_| ()) {
                    Ok(()) => self.start_new(run_id, start, (Some(name), after), then, reply),
                    Err(why) => self.answer(reply, Err(why)),
                }
            }
            StartVerdict::Refuse(why) => self.answer(reply, Err(why)),
        }
    }

    fn verdict(&mut self, run_id: RunId, start: &StartWorkflow, then: &StartThen) -> StartVerdict {
        if start.parent.is_some() && self.shard.info(run_id).is_some() {
            return StartVerdict::Use { run_id, newly_started: true };
        }
        let Some(newest) = self.shard.newest(&start.namespace, &start.workflow_id) else {
            return StartVerdict::StartNew { after: None };
        };
        let Some(info) = self.shard.info(newest) else { return StartVerdict::StartNew { after: None } };
        let after = Some(info.started_at);
        if self.started_by(&info, start.request_id.as_ref()) {
            return StartVerdict::Use { run_id: newest, newly_started: false };
        }
        let workflow_id = start.workflow_id.clone();
        if info.status.is_open() {
            // Signal-with-start means the open run, if there is one (E12).
            if matches!(then, StartThen::Signal(_)) && start.id_conflict_policy == IdConflictPolicy::Fail {
                return StartVerdict::Use { run_id: newest, newly_started: false };
            }
            return match start.id_conflict_policy {
                IdConflictPolicy::Fail => StartVerdict::Refuse(Rejection::AlreadyOpen { workflow_id, run_id: newest }),
                IdConflictPolicy::UseExisting => StartVerdict::Use { run_id: newest, newly_started: false },
                IdConflictPolicy::TerminateExisting => StartVerdict::TerminateFirst { open: newest, after },
            };
        }
        let allowed = match start.id_reuse_policy {
            IdReusePolicy::AllowDuplicate => true,
            IdReusePolicy::AllowDuplicateFailedOnly => info.status != WorkflowStatus::Completed,
            IdReusePolicy::RejectDuplicate => false,
        };
        if allowed {
            return StartVerdict::StartNew { after };
        }
        let (status, policy) = (info.status, start.id_reuse_policy);
        StartVerdict::Refuse(Rejection::IdReused { workflow_id, run_id: newest, status, policy })
    }

    /// Whether this run, or the first of its chain, came from this request.
    pub(super) fn started_by(&self, info: &RunInfo, request_id: Option<&RequestId>) -> bool {
        let came_from = |info: &RunInfo| request_id.is_some() && info.start_request_id.as_ref() == request_id;
        came_from(info) || self.shard.info(info.first_run).is_some_and(|first| came_from(&first))
    }

    /// Starts the run, ending the one that is in its way in the same commit.
    fn start_new(
        &mut self,
        run_id: RunId,
        start: StartWorkflow,
        (ends, after): (Option<RunName>, Option<Timestamp>),
        then: StartThen,
        reply: SharedReply<Started>,
    ) {
        let now = newer_than(after, self.shared.clock.now());
        let workflow_id = start.workflow_id.clone();
        let name = RunName { namespace: start.namespace.clone(), workflow_id: workflow_id.clone(), run_id };
        let started = Started { workflow_id, run_id, newly_started: true };
        let (then, mut answers, second) = self.before_start(&name, then);
        let first = reply.clone();
        answers.push(when_durable(reply, started));
        let waiting_update = match &then {
            Some(Input::Update { update_id, .. }) => Some(update_id.clone()),
            _ => None,
        };
        let caller = TurnCaller::Refused(Box::new(move |why| {
            let why = not_begun(why);
            first.send(Err(why.clone()));
            second.refuse(why);
        }));
        let ends = ends.map(|name| (name, start.identity.clone()));
        let what = self.shared.quarantine.is_some().then(|| what_is_started(&start));
        self.current_turn.begin_start(what, &name, caller);
        let mut event = start.first_event(run_id, now);
        // The code finds it waiting.
        event.signals_at_start = matches!(then, Some(Input::Signal(_))).then_some(1);
        let begun = self.shard.begin(run_id, (event, now, what), ends, then, answers);
        self.current_turn.end();
        if let Err((why, answers)) = begun {
            if let Some(update_id) = waiting_update {
                self.shared.waiters.refuse_update(run_id, update_id, &why);
            }
            self.refuse_in_order(answers, why);
        }
    }

    /// The input that belongs to the start, with whoever waits for it.
    fn before_start(&mut self, name: &RunName, then: StartThen) -> (Option<Input>, Vec<Answer>, TurnCaller) {
        match then {
            StartThen::Nothing => (None, Vec::new(), TurnCaller::Nobody),
            StartThen::Signal(signal) => (Some(Input::Signal(signal.into())), Vec::new(), TurnCaller::Nobody),
            StartThen::Update(UpdateRequest { update_id, name: update, input, identity, wait }, reply) => {
                let reply = SharedReply::new(reply);
                let (answers, caller) = match wait {
                    UpdateWait::Accepted => {
                        (vec![when_durable(reply.clone(), UpdateOutcome::Accepted)], reply.caller())
                    }
                    UpdateWait::Completed => {
                        self.await_update(name, update_id.clone(), &reply);
                        (Vec::new(), self.update_waiter(name.run_id, update_id.clone()))
                    }
                };
                (Some(Input::Update { update_id, name: update, input, identity }), answers, caller)
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
        reply: SharedReply<Started>,
    ) {
        let started = Started { workflow_id: start.workflow_id.clone(), run_id, newly_started };
        let target = Target { namespace: start.namespace, workflow_id: start.workflow_id, run_id: Some(run_id) };
        match then {
            StartThen::Nothing => self.answer(reply, Ok(started)),
            StartThen::Signal(signal) => {
                let name = RunName { namespace: target.namespace, workflow_id: target.workflow_id, run_id };
                let caller = reply.caller();
                self.current_turn.begin(&name, None, caller);
                let decided =
                    self.shard.decide(&name, Input::Signal(signal.into()), vec![when_durable(reply, started)]);
                self.current_turn.end();
                if let Err((why, answers)) = decided {
                    self.refuse_in_order(answers, why);
                }
            }
            StartThen::Update(request, update_reply) => {
                self.answer(reply, Ok(started));
                self.update(RunRef::Target(target), request, SharedReply::new(update_reply));
            }
        }
    }
}

/// Of a run whose first turn does not come back there is nothing.
fn not_begun(why: Rejection) -> Rejection {
    match why {
        Rejection::Held { why } => Rejection::Held { why: format!("{NOTHING_STARTED}: {why}") },
        other => other,
    }
}

/// Names what is started, whoever starts it however often.
fn what_is_started(start: &StartWorkflow) -> RunId {
    let mut hasher = blake3::Hasher::new();
    for text in [start.namespace.as_str(), start.workflow_id.as_str(), start.workflow_type.as_str()] {
        hasher.update(&(text.len() as u64).to_be_bytes()).update(text.as_bytes());
    }
    hasher.update(&start.input.digest());
    let mut name = [0; 16];
    name.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    RunId(name)
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
