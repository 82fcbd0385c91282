//! The driver of an async workflow function: one job in, the function runs until it waits, commands out.
//!
//! Invariant: dropping the driver asks for nothing, whatever `Drop` code the function holds. After the function has
//! returned, its query handlers still answer. An async function cannot be snapshotted: it resumes by replay.

use std::rc::Rc;

use super::context::handlers::{PayloadFuture, UpdateHandler};
use super::context::shared::{CodePhase, ContextShared};
use super::context::{WfContext, is_continue_as_new};
use super::executor::Executor;
use super::logs::LoggedTurn;
use super::machine_driver::{invalid_input, unreadable_input};
use super::panic::{Unwound, guard};
use super::pending::{close_failed, workflow_closed};
use super::state_machine::unknown_update;
use crate::vocabulary::*;

/// Starts the workflow function with its encoded input.
pub(crate) type WorkflowFunction = Rc<dyn Fn(WfContext, &Payload) -> Result<PayloadFuture, PayloadError>>;

pub(crate) struct AsyncDriver {
    function: WorkflowFunction,
    shared: Rc<ContextShared>,
    executor: Executor,
    /// The code panicked or diverged; it runs no more.
    dead: bool,
    on_defect: DefectPolicy,
}

impl AsyncDriver {
    pub(crate) fn new(
        run_id: RunId,
        started: &WorkflowExecutionStarted,
        function: WorkflowFunction,
        on_defect: DefectPolicy,
    ) -> Self {
        // What the engine carries along is not kept for the life of the run; its job brings it.
        let started = WorkflowExecutionStarted {
            carried_signals: Vec::new(),
            carried_request_ids: Vec::new(),
            ..started.clone()
        };
        let shared = ContextShared::new(run_id, started);
        AsyncDriver { function, shared, executor: Executor::default(), dead: false, on_defect }
    }

    /// What a job does to the context, before any code is polled.
    fn apply(shared: &Rc<ContextShared>, function: &WorkflowFunction, job: Job) {
        match job {
            Job::InitializeWorkflow(started) => Self::initialize(shared, function, *started),
            Job::SignalWorkflow(signal) => {
                let receivers = shared.signals.borrow_mut().push(signal);
                receivers.into_iter().for_each(std::task::Waker::wake);
            }
            Job::CancelWorkflow { reason } => shared.cancel_root(&reason),
            Job::DoUpdate { update_id, name, input } => Self::start_update(shared, update_id, &name, &input),
            Job::ResolveActivity { seq, result } | Job::ResolveChildWorkflow { seq, result } => {
                shared.resolve(seq, result);
            }
            Job::FireTimer { seq } => shared.resolve(seq, Ok(Payload::null())),
            Job::ResolveChildWorkflowStart { seq, result: Ok(run_id) } => shared.child_started(seq, run_id),
            Job::ResolveChildWorkflowStart { seq, result: Err(failure) } => shared.resolve(seq, Err(failure)),
            Job::ResolveSignalExternal { seq, result } => shared.resolve(seq, result.map(|()| Payload::null())),
            Job::ResolveCancelExternal { seq, result } => shared.cancel_delivered(seq, result),
        }
    }

    fn initialize(shared: &Rc<ContextShared>, function: &WorkflowFunction, started: WorkflowExecutionStarted) {
        for signal in started.carried_signals {
            // Nobody receives yet.
            let _ = shared.signals.borrow_mut().push(signal);
        }
        match function(WfContext::new(shared), &started.input) {
            Ok(future) => {
                let end = shared.clone();
                let name = format!("the workflow function {}", started.workflow_type);
                let main = async move {
                    let result = future.await;
                    end.sagas_undone().await;
                    end.outcome.borrow_mut().get_or_insert(result);
                };
                shared.spawn(name, Box::pin(main));
            }
            Err(why) => {
                shared.ledger().note_defect(unreadable_input(started.workflow_type.as_str(), &why));
                let failure = invalid_input(started.workflow_type.as_str(), &why);
                shared.outcome.borrow_mut().get_or_insert(Err(failure));
            }
        }
    }

    fn start_update(shared: &Rc<ContextShared>, update_id: UpdateId, name: &UpdateName, input: &Payload) {
        let handler = shared.handlers.borrow().updates.get(name).cloned();
        shared.open_updates.borrow_mut().insert(update_id.clone());
        let future = match handler {
            Some(UpdateHandler { run, .. }) => run(WfContext::new(shared).nested_scope(), input),
            None => Err(unknown_update(shared.started.workflow_type.as_str(), name, &shared.update_names())),
        };
        let end = Rc::downgrade(shared);
        let name = format!("the handler of update {update_id}");
        match future {
            Err(failure) => shared.answer_update(&update_id, Err(failure)),
            Ok(future) => {
                let run = async move {
                    let result = future.await;
                    if let Some(shared) = end.upgrade() {
                        shared.answer_update(&update_id, result);
                    }
                };
                shared.spawn(name, Box::pin(run));
            }
        }
    }

    fn run(&mut self, job: Job) {
        let (shared, function) = (&self.shared, &self.function);
        let ran = self.executor.run(shared, || Self::apply(shared, function, job));
        if let Err(stuck) = ran {
            let defect = WorkflowDefect::ForeignFuture { why: stuck.to_string() };
            self.shared.outcome.borrow_mut().get_or_insert_with(|| Err(defect.failure()));
            self.shared.ledger().note_defect(defect);
        }
    }

    /// Asks for the end of the run if its code has ended, answering the updates that are still being handled.
    fn close(&mut self) {
        let Some(outcome) = self.shared.outcome.borrow_mut().take() else { return };
        outcome.as_ref().err().into_iter().for_each(|failure| self.shared.ledger().note_failure(failure));
        for update_id in self.shared.open_updates.take() {
            let result = Err(workflow_closed());
            self.shared.ledger().ask(None, Command::CompleteUpdate { update_id, result });
        }
        let next_run = self.shared.next_run.take();
        let unconsumed_signals = self.shared.signals.borrow().unconsumed();
        let unhandled_signals = unconsumed_signals.iter().map(|signal| signal.name.clone()).collect();
        let canceled = self.shared.ledger().cancel_reason().is_some();
        let (place, command) = match (outcome, next_run) {
            (Ok(result), _) => (None, Command::CompleteWorkflow { result, unhandled_signals }),
            (Err(failure), Some(next)) if is_continue_as_new(&failure) => {
                let (workflow_type, input, options) = (next.workflow_type, next.input, next.options);
                (Some(next.place), Command::ContinueAsNew { workflow_type, input, options, unconsumed_signals })
            }
            (Err(failure), _) => (None, close_failed(failure, canceled, unhandled_signals)),
        };
        self.shared.ledger().ask(place, command);
        self.drop_tasks();
    }

    /// Drops what is left of the code. A panic in its `Drop`s is nobody's business: the run's fate is decided.
    fn drop_tasks(&mut self) {
        let phase = self.shared.set_phase(CodePhase::Idle);
        let executor = &mut self.executor;
        let _ = guard(|| {
            executor.clear();
            drop(self.shared.take_spawned());
        });
        self.shared.set_phase(phase);
    }

    /// Runs a handler that may only look.
    fn read<T>(
        &self,
        job: &'static str,
        code: impl FnOnce() -> Result<T, Failure>,
    ) -> (Result<T, Failure>, Option<String>) {
        let before = self.shared.set_phase(CodePhase::Idle);
        let read = self.shared.logged(job).run(|| guard(|| self.shared.reading(code)));
        self.shared.set_phase(before);
        match read {
            Ok(read) => read,
            Err(unwound) => {
                self.shared.forget_reading();
                let message = match unwound {
                    Unwound::Panicked(message) => message,
                    Unwound::Diverged => "the handler left its call".to_owned(),
                };
                (Err(Failure::panic(message)), None)
            }
        }
    }
}

impl Driver for AsyncDriver {
    fn activate(&mut self, activation: Activation) -> Vec<Command> {
        let job = self.shared.ledger().begin(activation);
        let shared = self.shared.clone();
        let turn = shared.logged(job.name());
        if self.dead || self.shared.ledger().is_closed() {
            return self.shared.ledger().finish();
        }
        self.shared.set_phase(CodePhase::Activating);
        if let Err(unwound) = turn.run(|| guard(|| self.run(job))) {
            self.dead = true;
            if let Unwound::Panicked(message) = unwound {
                self.shared.ledger().note_defect(WorkflowDefect::Panic { message: message.clone() });
                *self.shared.outcome.borrow_mut() = Some(Err(Failure::panic(message)));
            }
        }
        self.close();
        if self.dead {
            self.drop_tasks();
        }
        self.shared.set_phase(CodePhase::Idle);
        self.shared.ledger().finish()
    }

    fn overrun(&self) -> Option<String> {
        self.shared.ledger().overran().map(str::to_owned)
    }

    fn defect(&self) -> Option<WorkflowDefect> {
        self.shared.ledger().defect().filter(|_| self.on_defect == DefectPolicy::Hold).cloned()
    }

    fn forked(&mut self, run_id: RunId) {
        self.shared.ledger().forked(run_id);
    }

    fn validate_update(&mut self, name: &UpdateName, input: &Payload) -> Result<(), Failure> {
        let handler = self.shared.handlers.borrow().updates.get(name).cloned();
        let Some(handler) = handler else {
            let known = self.shared.update_names();
            return Err(unknown_update(self.shared.started.workflow_type.as_str(), name, &known));
        };
        match self.read("ValidateUpdate", || (handler.validate)(input)) {
            (_, Some(what)) => {
                let message = format!("the validator of update {name} changed the workflow: {what}");
                Err(Failure::application(FAILURE_VALIDATOR_MUTATED, message).non_retryable())
            }
            (result, None) => result,
        }
    }

    fn query(&mut self, name: &QueryName, input: &Payload) -> Result<Payload, QueryError> {
        let handler = self.shared.handlers.borrow().queries.get(name).cloned();
        let Some(handler) = handler else {
            let known = self.shared.handlers.borrow().queries.keys().map(ToString::to_string).collect();
            return Err(QueryError::Unknown { name: name.clone(), known });
        };
        match self.read("Query", || handler(input)) {
            (_, Some(what)) => Err(QueryError::Mutated { name: name.clone(), what }),
            (result, None) => result.map_err(|failure| QueryError::Failed { name: name.clone(), failure }),
        }
    }

    fn snapshot(&self) -> Option<Vec<u8>> {
        None
    }

    fn state_json(&self) -> Option<serde_json::Value> {
        self.shared.cells.borrow().to_json()
    }

    fn awaiting(&self) -> Vec<Awaited> {
        self.shared.awaiting()
    }

    fn untaken_signals(&self) -> Vec<SignalName> {
        self.shared.signals.borrow().unconsumed().into_iter().map(|signal| signal.name).collect()
    }

    fn command_location(&self, index: usize) -> Option<CodeLocation> {
        self.shared.ledger().location(index)
    }
}

impl Drop for AsyncDriver {
    fn drop(&mut self) {
        self.shared.set_phase(CodePhase::Idle);
        self.drop_tasks();
        let _ = guard(|| self.shared.release());
    }
}

impl ContextShared {
    fn logged(&self, job: &'static str) -> LoggedTurn<'_> {
        let (started, ledger) = (self.seen_start(), self.ledger());
        LoggedTurn {
            workflow_type: started.workflow_type.as_str(),
            workflow_id: Some(&started.workflow_id),
            run_id: ledger.run_id(),
            history: ledger.history(),
            job,
            replaying: ledger.is_replaying(),
        }
    }
    fn cancel_root(&self, reason: &str) {
        let root = self.root.clone();
        self.cancel_scope(&root, reason, None);
    }
    fn update_names(&self) -> Vec<String> {
        self.handlers.borrow().updates.keys().map(ToString::to_string).collect()
    }
    fn answer_update(&self, update_id: &UpdateId, result: Result<Payload, Failure>) {
        if self.open_updates.borrow_mut().remove(update_id) {
            self.ledger().ask(None, Command::CompleteUpdate { update_id: update_id.clone(), result });
        }
    }
}
