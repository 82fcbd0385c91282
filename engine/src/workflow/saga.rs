//! Sagas: steps with compensations (E28).
//!
//! Invariant: when the body fails, is canceled or is dropped, every compensation registered so far runs to its end, in
//! reverse order, exactly once, out of reach of the cancellation; when it succeeds or continues as new, none runs. Code that
//! ends with its run (a branch that nobody waited for) undoes nothing. What compensations do is user code.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::panic::Location;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::concurrency::LocalBoxFuture;
use super::context::branch::InBranch;
use super::context::shared::ContextShared;
use super::context::slot::{keep_waker, wake_all};
use super::context::{WfContext, is_continue_as_new};
use super::ledger::CodePlace;
use super::panic::{Unwound, diverge, guard};
use crate::reference::Activity;
use crate::vocabulary::{Failure, PatchId, Payload, WorkflowDefect};

/// The failure type of a saga whose compensations did not all succeed; the failure of the body is its cause.
pub const FAILURE_COMPENSATION: &str = "CompensationFailed";

/// The patch in histories of runs that undid a saga which was dropped.
pub const PATCH_SAGA_DROPPED: &str = "bosun-dropped-saga-undone";

type CompensationFn = Box<dyn FnOnce(WfContext) -> LocalBoxFuture<Result<(), Failure>>>;

/// The compensations of a running saga. Clones are the same saga.
#[derive(Clone)]
pub struct Saga {
    context: WfContext,
    undo: Rc<RefCell<Undo>>,
}

/// What is left to undo. It outlives the code that waits for it.
#[derive(Default)]
struct Undo {
    registered: Vec<(String, CompensationFn)>,
    /// Taken out of the others before it runs: it can never run twice.
    under_way: Option<(String, LocalBoxFuture<Result<(), Failure>>)>,
    failed: Vec<String>,
}

impl Saga {
    /// Runs `body`; if it fails, compensates and gives its failure.
    ///
    /// A saga that is dropped before it has ended (it lost a [`select`](super::select)) is undone as well: its compensations
    /// run beside the code that dropped it, and the run ends no sooner than they do; if one fails, the run fails. Dropping
    /// cancels nothing: a step that is under way goes on. [`with_timeout`](super::with_timeout) and [`race`](super::race)
    /// cancel it first, and wait until all is undone.
    ///
    /// Nothing is undone of a run that is terminated, that fails because of a handler of a signal, or whose function returns
    /// while the saga still runs in a branch that was spawned: await its handle. A history in which a dropped saga was not
    /// undone, because it was made before there was this rule, is replayed as it was made, and so is the rest of that run; where
    /// a run first undoes one, its history holds the patch [`PATCH_SAGA_DROPPED`].
    #[track_caller]
    pub fn run<T, F>(context: &WfContext, body: impl FnOnce(Saga) -> F) -> impl Future<Output = Result<T, Failure>>
    where
        F: Future<Output = Result<T, Failure>>,
    {
        let place = Location::caller();
        async move {
            let saga = Saga { context: context.clone(), undo: Rc::default() };
            let mut open = OpenSaga { saga: saga.clone(), place, ended: false };
            let end = match body(saga.clone()).await {
                Ok(value) => Ok(value),
                // Going on in a new run is no failure; what was done stays done.
                Err(next_run) if is_continue_as_new(&next_run) => Err(next_run),
                Err(failure) => {
                    // Nothing is undone because a type has changed.
                    context.shared.ledger().note_failure(&failure);
                    Err(saga.compensate(failure).await)
                }
            };
            open.ended = true;
            end
        }
    }

    /// Registers what undoes a step. Do it before the step when the step may have happened although it failed.
    pub fn compensate_with<F>(&self, name: impl Into<String>, undo: impl FnOnce(WfContext) -> F + 'static)
    where
        F: Future<Output = Result<(), Failure>> + 'static,
    {
        let undo: CompensationFn = Box::new(move |context| Box::pin(undo(context)));
        self.undo.borrow_mut().registered.push((name.into(), undo));
    }

    /// Registers the activity that undoes a step, with its input; what it gives is not looked at. As with
    /// [`Self::compensate_with`], before the step: `saga.undo_with(REFUND, &order)`.
    #[track_caller]
    pub fn undo_with<I: Serialize + 'static, O: DeserializeOwned + 'static>(&self, undo: Activity<I, O>, input: &I) {
        // Encoded now: what it undoes is what the step was given.
        let (place, name, input) = (Location::caller(), undo.name(), Payload::encode(input));
        self.compensate_with(name, move |context| async move {
            context.schedule::<O>(place, undo.activity_type(), input, undo.into_options()).await.map(drop)
        });
    }

    /// Runs what is registered, last first. A compensation that fails or panics does not stop the others.
    async fn compensate(&self, failure: Failure) -> Failure {
        let context = self.context.detached_scope();
        while self.begin_last(&context) {
            let undoing = std::future::poll_fn(|cx| self.poll_under_way(cx));
            let ended = InBranch::shielded(&context, undoing).await;
            let mut undo = self.undo.borrow_mut();
            let ended_one = undo.under_way.take();
            if let (Some((name, _)), Err(why)) = (&ended_one, ended) {
                undo.failed.push(format!("{name}: {why}"));
            }
            // What it holds is user code, which may ask for the saga.
            drop(undo);
            drop(ended_one);
        }
        let failed = std::mem::take(&mut self.undo.borrow_mut().failed);
        if failed.is_empty() {
            return failure;
        }
        let message = format!("{} compensations failed: {}", failed.len(), failed.join("; "));
        Failure::application(FAILURE_COMPENSATION, message).non_retryable().because(failure)
    }

    /// Takes out the last compensation, unless one is under way; it begins when it is polled. `false`: nothing is left.
    fn begin_last(&self, context: &WfContext) -> bool {
        let mut undo = self.undo.borrow_mut();
        if undo.under_way.is_none() {
            let Some((name, code)) = undo.registered.pop() else { return false };
            let context = context.clone();
            undo.under_way = Some((name, Box::pin(async move { code(context).await })));
        }
        true
    }

    /// A panic of a compensation is a defect, which holds the run before anything of this turn is written; where the policy is
    /// to fail, it is this compensation's failure.
    fn poll_under_way(&self, cx: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        let Some((name, mut undoing)) = self.undo.borrow_mut().under_way.take() else { return Poll::Ready(Ok(())) };
        let polled = guard(|| undoing.as_mut().poll(cx));
        let (undoing, polled) = match polled {
            Ok(polled) => (undoing, polled),
            Err(Unwound::Diverged) => diverge(),
            Err(Unwound::Panicked(message)) => {
                // What it held may panic as well, and has been told of.
                let _ = guard(|| drop(undoing));
                self.context.shared.ledger().note_defect(WorkflowDefect::Panic { message: message.clone() });
                let over: LocalBoxFuture<Result<(), Failure>> = Box::pin(std::future::pending());
                (over, Poll::Ready(Err(Failure::panic(message))))
            }
        };
        self.undo.borrow_mut().under_way = Some((name, undoing));
        polled
    }

    fn has_anything_to_undo(&self) -> bool {
        let undo = self.undo.borrow();
        undo.under_way.is_some() || !undo.registered.is_empty()
    }
}

/// A saga that has not ended, while its code is there.
struct OpenSaga {
    saga: Saga,
    place: CodePlace,
    ended: bool,
}

impl Drop for OpenSaga {
    fn drop(&mut self) {
        let (saga, shared, place) = (self.saga.clone(), &self.saga.context.shared, self.place);
        let goes_on = shared.is_activating() && !shared.is_over() && !std::thread::panicking();
        if self.ended || !goes_on || !saga.has_anything_to_undo() || !shared.undoes_dropped_sagas(place) {
            return;
        }
        let undoing = UndoingSaga::of(shared);
        let run = async move {
            let dropped = Failure::application(FAILURE_SAGA_DROPPED, format!("the saga begun at {place} was dropped"));
            let failure = saga.compensate(dropped).await;
            // Nobody else would hear of it.
            if failure.cause.is_some() {
                saga.context.shared.outcome.borrow_mut().get_or_insert(Err(failure));
            }
            drop(undoing);
        };
        shared.spawn(format!("the compensations of the saga begun at {place}"), Box::pin(run));
    }
}

/// The failure type of a saga that was dropped: the cause of what a compensation of it failed with.
const FAILURE_SAGA_DROPPED: &str = "SagaDropped";

/// A dropped saga is being undone, until this is dropped.
struct UndoingSaga(Weak<ContextShared>);

impl UndoingSaga {
    fn of(shared: &Rc<ContextShared>) -> Self {
        shared.undoing.sagas.set(shared.undoing.sagas.get() + 1);
        UndoingSaga(Rc::downgrade(shared))
    }
}

impl Drop for UndoingSaga {
    fn drop(&mut self) {
        if let Some(shared) = self.0.upgrade() {
            shared.undoing.sagas.set(shared.undoing.sagas.get() - 1);
            wake_all(&shared.undoing.wakers);
        }
    }
}

/// How many dropped sagas are being undone, and who waits for that.
#[derive(Default)]
pub(crate) struct SagasUndone {
    sagas: Cell<usize>,
    wakers: RefCell<Vec<Waker>>,
}

impl ContextShared {
    /// Resolves when no dropped saga is being undone.
    pub(super) async fn sagas_undone(&self) {
        std::future::poll_fn(|cx| {
            if self.undoing.sagas.get() == 0 {
                return Poll::Ready(());
            }
            keep_waker(&self.undoing.wakers, cx);
            Poll::Pending
        })
        .await;
    }
    /// Whether this run works by the rule; see [`Saga::run`].
    fn undoes_dropped_sagas(&self, place: CodePlace) -> bool {
        let patch = PatchId::of(PATCH_SAGA_DROPPED);
        self.asking("the end of a saga").is_some_and(|mut ledger| ledger.patched(place, patch, false))
    }
}
