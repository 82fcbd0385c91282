//! What an async workflow function sees of its run.
//!
//! Invariant: everything it can learn comes from history, and everything it can do becomes a command. A context belongs
//! to one run on one thread (it is `!Send`); it reads no clock, and its futures need no runtime.

use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use serde::Serialize;
use serde::de::DeserializeOwned;

use self::leaf::Leaf;
use self::scope::CancellationScope;
use self::shared::{ContextShared, ContinueAsNewRequest};
use super::ledger::{CodePlace, SideEffect};
use super::panic::{diverge, recording};
use crate::reference::Workflow;
use crate::vocabulary::*;

mod activity;
pub(crate) mod branch;
mod child_workflow;
pub(crate) mod handlers;
pub(crate) mod leaf;
pub(crate) mod scope;
pub(crate) mod shared;
mod signal;
pub(crate) mod slot;
mod state;
mod task;

pub use activity::{ActivityFuture, OperationHandle, TimerFuture};
pub use child_workflow::{ChildFuture, ChildHandle, ChildStartFuture, MessageFuture};
pub use scope::CancellationFuture;
pub use signal::{SignalChannel, SignalFuture};
pub use state::StateCell;
pub use task::JoinHandle;

/// The failure type that [`WfContext::continue_as_new`] gives, to be returned from the workflow function.
pub const FAILURE_CONTINUE_AS_NEW: &str = "ContinueAsNew";

/// Whether a failure is the one that [`WfContext::continue_as_new`] gives.
pub(crate) fn is_continue_as_new(failure: &Failure) -> bool {
    matches!(&failure.kind, FailureKind::Application { failure_type, .. } if failure_type == FAILURE_CONTINUE_AS_NEW)
}

/// The run, as its workflow function sees it. Clones share the run; a clone from a scope works in that scope.
#[derive(Clone)]
pub struct WfContext {
    pub(crate) shared: Rc<ContextShared>,
    pub(crate) scope: Rc<CancellationScope>,
}

/// What the run knows.
impl WfContext {
    pub(crate) fn new(shared: &Rc<ContextShared>) -> Self {
        WfContext { shared: shared.clone(), scope: shared.root.clone() }
    }
    pub(crate) fn leaf(&self, place: CodePlace) -> Leaf {
        Leaf::new(&self.shared, &self.scope, place)
    }

    /// The event that started this run: its ids, parent, attempt and memo.
    pub fn info(&self) -> &WorkflowExecutionStarted {
        self.shared.seen_start()
    }
    /// The id of this run.
    pub fn run_id(&self) -> RunId {
        self.shared.ledger().run_id()
    }
    /// Its workflow id.
    pub fn workflow_id(&self) -> &WorkflowId {
        &self.shared.seen_start().workflow_id
    }
    /// Workflow time: the time of the event being handled.
    pub fn now(&self) -> Timestamp {
        self.shared.ledger().now()
    }
    /// How long the history is so far.
    pub fn history(&self) -> HistorySize {
        self.shared.ledger().history()
    }
    /// Whether the history has become long enough to go on in a new run: 4 096 events or 4 MiB.
    pub fn continue_as_new_suggested(&self) -> bool {
        self.history().continue_as_new_suggested()
    }
    /// True while recorded events are replayed: after a restart, in the debugger, in tests. Use it only to avoid telling
    /// somebody outside twice; logs are silent during replay anyway. Commands must not depend on it: a decision that does is
    /// not deterministic, and is caught as such.
    pub fn is_replaying(&self) -> bool {
        self.shared.ledger().is_replaying()
    }
    /// A random number, derived from the run id: the same on every replay.
    pub fn random_u64(&self) -> u64 {
        self.shared.asking("a random number").map_or(0, |mut ledger| ledger.random_u64())
    }
    /// A random UUID, derived from the run id: the same on every replay.
    pub fn uuid(&self) -> uuid::Uuid {
        self.shared.asking("a uuid").map_or(uuid::Uuid::nil(), |mut ledger| ledger.uuid())
    }
}

/// Notes for replay and for lists.
impl WfContext {
    /// Runs `effect` once; every replay gets the value it gave then.
    ///
    /// # Panics
    ///
    /// When the recorded value can no longer be read as a `T`. The run is then held until code that fits is deployed.
    #[track_caller]
    pub fn side_effect<T: Serialize + DeserializeOwned>(&self, effect: impl FnOnce() -> T) -> T {
        let place = Location::caller();
        let step = self.shared.asking("a side effect").map(|mut ledger| ledger.side_effect(place));
        match step {
            Some(SideEffect::Recorded(value)) => match value.decode() {
                Ok(value) => value,
                Err(why) => panic!("the recorded side effect does not fit the code: {why}"),
            },
            // Unwinding out of a `Drop` that runs because of a panic would end the process.
            Some(SideEffect::Diverged) if std::thread::panicking() => recording(effect),
            Some(SideEffect::Diverged) => diverge(),
            Some(SideEffect::Run(seq)) => {
                let value = recording(effect);
                match Payload::encode(&value) {
                    Ok(payload) => self.shared.ledger().side_effect_ran(place, seq, payload),
                    Err(why) => panic!("the value of a side effect cannot be recorded: {why}"),
                }
                value
            }
            // A reader's attempt has been noted; the value is thrown away with the answer.
            None => recording(effect),
        }
    }
    /// Whether to take the new branch of a change (E21).
    #[track_caller]
    pub fn patched(&self, id: impl Into<PatchId>) -> bool {
        let (place, id) = (Location::caller(), id.into());
        if let Some(mut ledger) = self.shared.asking("a patch") {
            return ledger.patched(place, id, false);
        }
        self.shared.ledger().patch_answer(&id)
    }
    /// Says that the old branch of a change is gone. Keep the call until no open run holds the marker of that patch, and no
    /// closed one that you still want to replay; then it may go.
    #[track_caller]
    pub fn deprecate_patch(&self, id: impl Into<PatchId>) {
        let (place, id) = (Location::caller(), id.into());
        if let Some(mut ledger) = self.shared.asking("a patch") {
            ledger.patched(place, id, true);
        }
    }
    /// Sets search attributes; [`SearchValue::Unset`] removes one.
    #[track_caller]
    pub fn upsert_search_attributes(&self, attributes: SearchAttributes) {
        let place = Location::caller();
        if let Some(mut ledger) = self.shared.asking("search attributes") {
            ledger.ask(place, Command::UpsertSearchAttributes { attributes });
        }
    }
    /// Sets notes for people, leaving others as they are.
    #[track_caller]
    pub fn upsert_memo(&self, memo: Memo) {
        let place = Location::caller();
        if let Some(mut ledger) = self.shared.asking("a memo") {
            ledger.ask(place, Command::ModifyMemo { memo });
        }
    }
}

/// Waiting, and the next run.
impl WfContext {
    /// Resolves when the condition holds. It is looked at whenever the workflow has moved; it must only read: one that
    /// changes the workflow is a defect ([`WorkflowDefect::ConditionMutated`]). What handlers of signals and updates change
    /// is kept in a [`StateCell`]: `ctx.wait_until(move || done.get())`. A plain `move || done` looks at a copy that nobody
    /// changes, and waits for ever.
    #[track_caller]
    pub fn wait_until(&self, condition: impl Fn() -> bool + 'static) -> WaitFuture {
        WaitFuture { leaf: self.leaf(Location::caller()), condition: Rc::new(condition) }
    }

    /// Goes on in a new run of the same workflow id: `return ctx.continue_as_new(&next, Default::default());`.
    /// Signals that nobody took go along. It counts when the workflow function returns the failure this gives.
    #[track_caller]
    pub fn continue_as_new<T>(
        &self,
        input: &(impl Serialize + ?Sized),
        options: ContinueAsNewOptions,
    ) -> Result<T, Failure> {
        self.next_run(Location::caller(), None, input, options)
    }
    /// As [`Self::continue_as_new`], by a reference, to the same workflow code or to other that ends with the same type:
    /// `return ctx.continue_as(ACCOUNT, &balance);`.
    #[track_caller]
    pub fn continue_as<I: Serialize, O>(&self, workflow: Workflow<I, O>, input: &I) -> Result<O, Failure> {
        self.next_run(Location::caller(), Some(workflow.workflow_type()), input, ContinueAsNewOptions::default())
    }
    /// As [`Self::continue_as_new`], with other workflow code.
    #[track_caller]
    pub fn continue_as_new_type<T>(
        &self,
        workflow_type: impl Into<WorkflowType>,
        input: &(impl Serialize + ?Sized),
        options: ContinueAsNewOptions,
    ) -> Result<T, Failure> {
        self.next_run(Location::caller(), Some(workflow_type.into()), input, options)
    }
    fn next_run<T>(
        &self,
        place: CodePlace,
        workflow_type: Option<WorkflowType>,
        input: &(impl Serialize + ?Sized),
        options: ContinueAsNewOptions,
    ) -> Result<T, Failure> {
        let input = Payload::encode(input)?;
        if self.shared.may_change("continue-as-new") {
            *self.shared.next_run.borrow_mut() = Some(ContinueAsNewRequest { workflow_type, input, options, place });
        }
        Err(Failure::application(FAILURE_CONTINUE_AS_NEW, "return this failure from the workflow function"))
    }
}

/// See [`WfContext::wait_until`].
#[must_use = "it does nothing unless it is awaited"]
pub struct WaitFuture {
    leaf: Leaf,
    condition: Rc<dyn Fn() -> bool>,
}

impl Future for WaitFuture {
    type Output = Result<(), Failure>;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let end = match self.leaf.canceled() {
            Some(failure) => Some(Err(failure)),
            None => (self.condition)().then_some(Ok(())),
        };
        if let Some(end) = end {
            self.leaf.over();
            return Poll::Ready(end);
        }
        let condition = self.condition.clone();
        self.leaf.wait_until(cx, &condition);
        Poll::Pending
    }
}
