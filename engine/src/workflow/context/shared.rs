//! What the context handles of one run share with its driver.
//!
//! Invariant: commands are entered only while the run is being activated; during a query or a validator the attempt is
//! noted, and when the run has been dropped it is ignored, so that no `Drop` of user code can add a command. No borrow
//! is held while user code runs.
//!
//! Long: one method each thing that a context may ask its driver for, or be told by it.

use std::cell::{Cell, RefCell, RefMut};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::task::Waker;

use super::branch::CodeBranch;
use super::handlers::Handlers;
use super::leaf::{WaitPoint, WaitReason};
use super::scope::CancellationScope;
use super::signal::SignalBuffer;
use super::slot::OnceSlot;
use super::state::Cells;
use crate::vocabulary::*;
use crate::workflow::executor::{CodeTaskId, TaskFuture};
use crate::workflow::ledger::{CodePlace, CommandLedger};
use crate::workflow::pending::PendingCommand;
use crate::workflow::saga::SagasUndone;

/// What user code may do at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CodePhase {
    Activating,
    /// A query handler, a validator or a condition runs: look, don't touch.
    Reading,
    /// Between activations, or dropped.
    Idle,
}

pub(crate) struct ContextShared {
    pub(crate) started: WorkflowExecutionStarted,
    /// What the code of the runs saw whose events a fork has copied.
    before_forks: Vec<(RunId, WorkflowExecutionStarted)>,
    pub(crate) root: Rc<CancellationScope>,
    ledger: RefCell<CommandLedger>,
    phase: Cell<CodePhase>,
    mutated: RefCell<Option<String>>,
    operations: RefCell<BTreeMap<Seq, Operation>>,
    pub(super) waits: RefCell<BTreeMap<u64, WaitPoint>>,
    /// How many waits each task has, for tasks that have any.
    waits_of: RefCell<BTreeMap<CodeTaskId, u32>>,
    pub(super) next_wait: Cell<u64>,
    pub(super) conditions: RefCell<BTreeMap<u64, Rc<dyn Fn() -> bool>>>,
    spawned: RefCell<Vec<(CodeTaskId, TaskFuture)>>,
    next_task: Cell<u64>,
    pub(super) current_task: Cell<CodeTaskId>,
    /// The branch whose code is polled now.
    pub(super) branch: RefCell<Option<Rc<CodeBranch>>>,
    task_names: RefCell<BTreeMap<CodeTaskId, String>>,
    pub(crate) signals: RefCell<SignalBuffer>,
    pub(crate) handlers: RefCell<Handlers>,
    pub(crate) cells: RefCell<Cells>,
    pub(crate) open_updates: RefCell<BTreeSet<UpdateId>>,
    /// How many signals are being handled by `on_signal`.
    pub(super) signals_handled: Cell<usize>,
    pub(crate) undoing: SagasUndone,
    pub(crate) next_run: RefCell<Option<ContinueAsNewRequest>>,
    pub(crate) outcome: RefCell<Option<Result<Payload, Failure>>>,
}

/// Tasks of one run at a time. The largest fan-outs that make sense are far below.
const TASKS_MAX: usize = 100_000;

/// What a future asks for when it is dropped: no doing of the user's.
const CANCELLATION: &str = "a cancellation";

thread_local! {
    static STRAY: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// What workflow code last asked for on this thread while its run was not activated, which was ignored: a `Drop` that
/// gives commands, run because the code was evicted or is over. For test kits.
pub fn take_stray_request() -> Option<String> {
    STRAY.with(|stray| stray.borrow_mut().take())
}

/// What `continue_as_new` asked for; it counts when the workflow function returns the failure it got.
pub(crate) struct ContinueAsNewRequest {
    pub(crate) workflow_type: Option<WorkflowType>,
    pub(crate) input: Payload,
    pub(crate) options: ContinueAsNewOptions,
    pub(crate) place: CodePlace,
}

/// Something that was asked for and has not ended.
struct Operation {
    pending: PendingCommand,
    scope: Rc<CancellationScope>,
    place: CodePlace,
    result: Rc<OnceSlot<Payload>>,
    /// Children only.
    start: Option<Rc<OnceSlot<RunId>>>,
}

impl ContextShared {
    pub(crate) fn new(run_id: RunId, started: WorkflowExecutionStarted) -> Rc<Self> {
        Rc::new(ContextShared {
            before_forks: started.before_forks(),
            ledger: RefCell::new(CommandLedger::new(run_id, started.numbering)),
            started,
            root: CancellationScope::root(),
            phase: Cell::new(CodePhase::Idle),
            mutated: RefCell::default(),
            operations: RefCell::default(),
            waits: RefCell::default(),
            waits_of: RefCell::default(),
            next_wait: Cell::new(0),
            conditions: RefCell::default(),
            spawned: RefCell::default(),
            next_task: Cell::new(0),
            current_task: Cell::new(CodeTaskId(0)),
            branch: RefCell::default(),
            task_names: RefCell::default(),
            signals: RefCell::default(),
            handlers: RefCell::default(),
            cells: RefCell::default(),
            open_updates: RefCell::default(),
            signals_handled: Cell::new(0),
            undoing: SagasUndone::default(),
            next_run: RefCell::default(),
            outcome: RefCell::default(),
        })
    }

    /// How the run came to be, as its code may know at this point of its history.
    pub(crate) fn seen_start(&self) -> &WorkflowExecutionStarted {
        let run = self.ledger.borrow().run_id();
        self.before_forks.iter().find(|(before, _)| *before == run).map_or(&self.started, |(_, started)| started)
    }

    /// Breaks the cycles between the run and the closures it keeps, for a driver that goes away.
    pub(crate) fn release(&self) {
        self.phase.set(CodePhase::Idle);
        drop(self.conditions.take());
        drop(self.spawned.take());
        drop(self.operations.take());
        drop(self.handlers.take());
        drop(self.cells.take());
    }
}

/// Entering commands.
impl ContextShared {
    pub(crate) fn ledger(&self) -> RefMut<'_, CommandLedger> {
        self.ledger.borrow_mut()
    }
    pub(crate) fn set_phase(&self, phase: CodePhase) -> CodePhase {
        self.phase.replace(phase)
    }
    /// The ledger, if the code may ask for something now.
    pub(crate) fn asking(&self, what: &str) -> Option<RefMut<'_, CommandLedger>> {
        if self.phase.get() == CodePhase::Idle && what != CANCELLATION {
            STRAY.with(|stray| *stray.borrow_mut() = Some(what.to_owned()));
        }
        self.may_change(what).then(|| self.ledger.borrow_mut())
    }
    /// Whether the run may be changed now; an attempt by a reader is noted.
    pub(crate) fn may_change(&self, what: &str) -> bool {
        self.may_change_with(|| what.to_owned())
    }
    /// As [`Self::may_change`], with words that are only made when they are needed.
    pub(crate) fn may_change_with(&self, what: impl FnOnce() -> String) -> bool {
        match self.phase.get() {
            CodePhase::Activating => true,
            CodePhase::Reading => {
                self.mutated.borrow_mut().get_or_insert_with(what);
                false
            }
            CodePhase::Idle => false,
        }
    }
    pub(crate) fn is_activating(&self) -> bool {
        self.phase.get() == CodePhase::Activating
    }
    /// Runs code that may only look; also says what it tried to change.
    pub(crate) fn reading<T>(&self, code: impl FnOnce() -> T) -> (T, Option<String>) {
        let before = self.set_phase(CodePhase::Reading);
        let value = code();
        self.set_phase(before);
        (value, self.mutated.take())
    }
    /// As [`Self::reading`] of something whose end was cut short by a panic.
    pub(crate) fn forget_reading(&self) {
        self.mutated.take();
    }
}

/// Operations: what was asked for, its end, and its cancellation.
impl ContextShared {
    /// Asks for an operation in a scope. In a canceled scope nothing is asked for and the operation is canceled.
    pub(crate) fn operate(
        &self,
        scope: &Rc<CancellationScope>,
        place: CodePlace,
        what: &str,
        make: impl FnOnce(Seq, &mut CommandLedger) -> (Command, PendingCommand),
    ) -> OperationSlots {
        if let Some(reason) = scope.canceled() {
            return OperationSlots::refused(Failure::canceled(format!(
                "{what} not started, its scope is canceled: {reason}"
            )));
        }
        let result = OnceSlot::empty();
        let Some(mut ledger) = self.asking(what) else {
            return OperationSlots { seq: Seq(0), result, start: OnceSlot::empty() };
        };
        if ledger.is_closed() {
            return OperationSlots { seq: Seq(0), result, start: OnceSlot::empty() };
        }
        let seq = ledger.next_seq();
        let (command, pending) = make(seq, &mut ledger);
        ledger.ask(place, command);
        let start = OnceSlot::empty();
        let is_child = matches!(pending, PendingCommand::Child { .. });
        let operation = Operation {
            pending,
            scope: scope.clone(),
            place,
            result: result.clone(),
            start: is_child.then(|| start.clone()),
        };
        self.operations.borrow_mut().insert(seq, operation);
        OperationSlots { seq, result, start }
    }

    /// The end of an operation, if anybody still waits for it.
    pub(crate) fn resolve(&self, seq: Seq, result: Result<Payload, Failure>) {
        if let Some(operation) = self.remove_operation(seq) {
            if let (Some(start), Err(failure)) = (&operation.start, &result) {
                start.resolve(Err(failure.clone()));
            }
            operation.result.resolve(result);
        }
    }
    fn remove_operation(&self, seq: Seq) -> Option<Operation> {
        self.operations.borrow_mut().remove(&seq)
    }
    pub(crate) fn child_started(&self, seq: Seq, started: RunId) {
        let start = match self.operations.borrow_mut().get_mut(&seq) {
            Some(Operation { pending: PendingCommand::Child { run_id, .. }, start, .. }) => {
                *run_id = Some(started);
                start.clone()
            }
            _ => None,
        };
        if let Some(start) = start {
            start.resolve(Ok(started));
        }
    }
    pub(crate) fn child_run(&self, seq: Seq) -> Option<RunId> {
        match self.operations.borrow().get(&seq) {
            Some(Operation { pending: PendingCommand::Child { run_id, .. }, .. }) => *run_id,
            _ => None,
        }
    }
    pub(crate) fn cancel_delivered(&self, seq: Seq, result: Result<(), Failure>) {
        let child = self.operations.borrow().get(&seq).map(|operation| {
            (matches!(operation.pending, PendingCommand::Child { .. }), operation.pending.delivered())
        });
        match child {
            Some((true, Some(failure))) => self.resolve(seq, Err(failure)),
            Some((true, None)) | None => {}
            Some((false, _)) => self.resolve(seq, result.map(|()| Payload::null())),
        }
    }

    /// Cancels one operation according to its cancellation type.
    pub(crate) fn cancel_operation(&self, seq: Seq, reason: &str, place: Option<CodePlace>) {
        let Some(mut ledger) = self.asking(CANCELLATION) else { return };
        let cancel = match self.operations.borrow_mut().get_mut(&seq) {
            Some(operation) => (operation.pending.cancel_in(&mut ledger, seq, reason), operation.place),
            None => return,
        };
        let (cancel, asked_at) = cancel;
        if let Some(command) = cancel.command {
            ledger.ask(place.unwrap_or(asked_at), command);
        }
        drop(ledger);
        if let Some(failure) = cancel.over {
            self.resolve(seq, Err(failure));
        }
    }

    /// Cancels a scope and everything nested in it, in the order in which the code asked for it.
    pub(crate) fn cancel_scope(&self, scope: &CancellationScope, reason: &str, place: Option<CodePlace>) {
        if !self.may_change(CANCELLATION) || !scope.cancel(reason) {
            return;
        }
        let canceled = |operation: &Operation| operation.scope.canceled().is_some();
        let seqs: Vec<Seq> =
            self.operations.borrow().iter().filter(|(_, operation)| canceled(operation)).map(|(seq, _)| *seq).collect();
        for seq in seqs {
            self.cancel_operation(seq, reason, place);
        }
        let waits = self.waits.borrow();
        let left = |wait: &&WaitPoint| wait.leaves_with_its_branch();
        let in_branches =
            waits.values().filter(|wait| wait.scope.canceled().is_none()).find(left).map(|wait| wait.place);
        let in_branches = in_branches.is_some_and(|place| self.branch_waits_end(place));
        let hears = |wait: &&WaitPoint| wait.scope.canceled().is_some() || (in_branches && left(wait));
        let wakers: Vec<Waker> = waits.values().filter(hears).map(|wait| wait.waker.clone()).collect();
        drop(waits);
        wakers.into_iter().for_each(Waker::wake);
    }
}

/// What an asked-for operation gives its futures.
pub(crate) struct OperationSlots {
    pub(crate) seq: Seq,
    pub(crate) result: Rc<OnceSlot<Payload>>,
    pub(crate) start: Rc<OnceSlot<RunId>>,
}

impl OperationSlots {
    pub(crate) fn refused(failure: Failure) -> Self {
        OperationSlots { seq: Seq(0), result: OnceSlot::refused(failure.clone()), start: OnceSlot::refused(failure) }
    }
}

/// Tasks and waits.
impl ContextShared {
    pub(crate) fn spawn(&self, name: String, future: TaskFuture) -> CodeTaskId {
        if self.task_names.borrow().len() >= TASKS_MAX {
            self.ledger().overrun(format!("more than {TASKS_MAX} tasks"));
        }
        let id = CodeTaskId(self.next_task.get());
        self.next_task.set(id.0 + 1);
        self.task_names.borrow_mut().insert(id, name);
        self.spawned.borrow_mut().push((id, future));
        id
    }
    pub(crate) fn take_spawned(&self) -> Vec<(CodeTaskId, TaskFuture)> {
        self.spawned.take()
    }
    pub(crate) fn has_spawned(&self) -> bool {
        !self.spawned.borrow().is_empty()
    }
    pub(crate) fn enter_task(&self, id: CodeTaskId) {
        self.current_task.set(id);
    }
    pub(crate) fn task_ended(&self, id: CodeTaskId) {
        self.task_names.borrow_mut().remove(&id);
    }
    pub(crate) fn task_name(&self, id: CodeTaskId) -> String {
        self.task_names.borrow().get(&id).cloned().unwrap_or_else(|| format!("task {}", id.0))
    }
    pub(super) fn is_handling_nothing(&self) -> bool {
        self.open_updates.borrow().is_empty() && self.signals_handled.get() == 0
    }
    pub(crate) fn is_over(&self) -> bool {
        self.outcome.borrow().is_some()
    }
    pub(crate) fn waits_for_context(&self, task: CodeTaskId) -> bool {
        self.waits_of.borrow().contains_key(&task)
    }

    pub(super) fn count_wait(&self, task: CodeTaskId) {
        *self.waits_of.borrow_mut().entry(task).or_default() += 1;
    }
    pub(super) fn uncount_wait(&self, task: CodeTaskId) {
        let mut counts = self.waits_of.borrow_mut();
        match counts.get_mut(&task) {
            Some(count) if *count > 1 => *count -= 1,
            Some(_) | None => {
                counts.remove(&task);
            }
        }
    }

    /// Wakes those whose condition has come true, each once until it is polled again. Conditions only look.
    pub(crate) fn wake_conditions(&self) -> bool {
        if self.conditions.borrow().is_empty() {
            return false;
        }
        let conditions: Vec<(u64, Rc<dyn Fn() -> bool>)> =
            self.conditions.borrow().iter().map(|(id, condition)| (*id, condition.clone())).collect();
        let (holding, mutated) = self.reading(|| {
            conditions.into_iter().filter(|(_, condition)| condition()).map(|(id, _)| id).collect::<Vec<u64>>()
        });
        if let Some(what) = mutated {
            let defect = WorkflowDefect::ConditionMutated { what };
            self.outcome.borrow_mut().get_or_insert_with(|| Err(defect.failure()));
            self.ledger().note_defect(defect);
        }
        self.conditions.borrow_mut().retain(|id, _| !holding.contains(id));
        let waits = self.waits.borrow();
        let wakers: Vec<Waker> = holding.iter().filter_map(|id| waits.get(id)).map(|wait| wait.waker.clone()).collect();
        drop(waits);
        let any = !wakers.is_empty();
        wakers.into_iter().for_each(Waker::wake);
        any
    }

    pub(crate) fn awaiting(&self) -> Vec<Awaited> {
        let operations = self.operations.borrow();
        let describe = |wait: &WaitPoint| match &wait.what {
            WaitReason::Operation(seq) => operations
                .get(seq)
                .map_or_else(|| format!("operation {seq}"), |operation| operation.pending.describe(*seq)),
            WaitReason::Signal(name) => format!("signal {name}"),
            WaitReason::Condition => "a condition".to_owned(),
            WaitReason::Cancellation => "cancellation".to_owned(),
            WaitReason::Permit => "a permit of a semaphore".to_owned(),
            WaitReason::Channel => "a channel".to_owned(),
            WaitReason::Task(id) => self.task_name(*id),
        };
        let timer = |wait: &WaitPoint| match &wait.what {
            WaitReason::Operation(seq) => operations.get(seq).filter(|it| it.pending.is_timer()).map(|_| *seq),
            _ => None,
        };
        let awaited = |wait: &WaitPoint| Awaited {
            what: describe(wait),
            location: Some(wait.place.to_string()),
            timer: timer(wait),
        };
        self.waits.borrow().values().map(awaited).collect()
    }
}
