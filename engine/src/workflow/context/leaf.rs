//! The common part of the context's futures: that they wait, where, and in which scope.
//!
//! Invariant: a future stands in the run's list of waits from the poll that left it pending until it resolves or is
//! dropped. That list is how the executor knows that a job can go on with a task, and what `awaiting` shows.

use std::rc::Rc;
use std::task::{Context, Waker};

use serde::de::DeserializeOwned;

use super::branch::CodeBranch;
use super::scope::CancellationScope;
use super::shared::ContextShared;
use crate::vocabulary::*;
use crate::workflow::executor::CodeTaskId;
use crate::workflow::ledger::CodePlace;

/// The common part of every future that the context gives out: where it is, and that it waits.
pub(crate) struct Leaf {
    pub(crate) shared: Rc<ContextShared>,
    pub(crate) scope: Rc<CancellationScope>,
    pub(crate) place: CodePlace,
    wait: Option<u64>,
}

impl Leaf {
    pub(crate) fn new(shared: &Rc<ContextShared>, scope: &Rc<CancellationScope>, place: CodePlace) -> Self {
        Leaf { shared: shared.clone(), scope: scope.clone(), place, wait: None }
    }
    /// Says that this future waits, and how to wake it.
    pub(crate) fn wait(&mut self, cx: &Context<'_>, what: impl FnOnce() -> WaitReason) {
        let mut waits = self.shared.waits.borrow_mut();
        let task = self.shared.current_task.get();
        if let Some(wait) = self.wait.and_then(|id| waits.get_mut(&id)) {
            if wait.task != task {
                self.shared.uncount_wait(wait.task);
                self.shared.count_wait(task);
                wait.task = task;
            }
            wait.branch.clone_from(&self.shared.branch.borrow());
            wait.waker.clone_from(cx.waker());
            return;
        }
        let id = self.shared.next_wait.get();
        self.shared.next_wait.set(id + 1);
        let (place, scope) = (self.place, self.scope.clone());
        let branch = self.shared.branch.borrow().clone();
        waits.insert(id, WaitPoint { task, what: what(), place, scope, branch, waker: cx.waker().clone() });
        self.shared.count_wait(task);
        self.wait = Some(id);
    }
    /// As [`Self::wait`], and wakes when the condition holds.
    pub(crate) fn wait_until(&mut self, cx: &Context<'_>, condition: &Rc<dyn Fn() -> bool>) {
        self.wait(cx, || WaitReason::Condition);
        if let Some(id) = self.wait {
            self.shared.conditions.borrow_mut().entry(id).or_insert_with(|| condition.clone());
        }
    }
    /// The failure of something that waits in a canceled scope, or a canceled branch.
    pub(crate) fn canceled(&self) -> Option<Failure> {
        self.cancel_reason().map(|reason| Failure::canceled(format!("canceled: {reason}")))
    }
    pub(super) fn cancel_reason(&self) -> Option<String> {
        self.scope.canceled().or_else(|| self.shared.canceled_around(&self.scope, self.place))
    }
    /// The failure of what waits in a canceled branch for an operation that is not canceled itself.
    pub(super) fn left(&self) -> Option<Failure> {
        self.scope.canceled().is_none().then(|| self.canceled()).flatten()
    }
    /// Says that this future waits no more.
    pub(crate) fn over(&mut self) {
        if let Some(id) = self.wait.take() {
            let wait = self.shared.waits.borrow_mut().remove(&id);
            if let Some(wait) = &wait {
                self.shared.uncount_wait(wait.task);
            }
            let condition = self.shared.conditions.borrow_mut().remove(&id);
            drop((wait, condition));
        }
    }
}

impl ContextShared {
    /// What was recorded as a `T`. That it is none is a failure that the code hears of, and a defect.
    pub(super) fn read<T: DeserializeOwned>(
        &self,
        payload: &Payload,
        what: impl FnOnce() -> String,
    ) -> Result<T, Failure> {
        payload.decode().map_err(|why| {
            let defect = WorkflowDefect::Undecodable { what: what(), why: why.to_string() };
            self.ledger().note_defect(defect);
            Failure::from(why)
        })
    }
}

impl Drop for Leaf {
    fn drop(&mut self) {
        self.over();
    }
}

/// A place in user code that waits now.
pub(crate) struct WaitPoint {
    pub(super) task: CodeTaskId,
    pub(super) what: WaitReason,
    pub(super) place: CodePlace,
    pub(super) scope: Rc<CancellationScope>,
    /// The branch that waits.
    pub(super) branch: Option<Rc<CodeBranch>>,
    pub(super) waker: Waker,
}

impl WaitPoint {
    /// Whether the wait should end because its branch is canceled. One for another branch has no failure to give.
    pub(super) fn leaves_with_its_branch(&self) -> bool {
        let canceled = self.branch.as_ref().is_some_and(|branch| branch.canceled(&self.scope).is_some());
        canceled && !matches!(self.what, WaitReason::Task(_))
    }
}

/// What is waited for; made into text only when somebody asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum WaitReason {
    Operation(Seq),
    Signal(SignalName),
    Condition,
    Cancellation,
    Permit,
    Channel,
    Task(CodeTaskId),
}
