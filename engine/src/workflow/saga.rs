//! Sagas: steps with compensations (engine.md E28).
//!
//! Invariant: when the body fails or is canceled, every compensation registered so far runs to its end, in reverse
//! order, exactly once, out of reach of the cancellation; when it succeeds or continues as new, none runs. What they
//! do is user code.

use std::cell::RefCell;
use std::future::Future;
use std::panic::Location;
use std::rc::Rc;
use std::task::Poll;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::concurrency::LocalBoxFuture;
use super::context::{WfContext, is_continue_as_new};
use super::panic::{Unwound, diverge, guard};
use crate::reference::Activity;
use crate::vocabulary::{Failure, Payload, WorkflowDefect};

/// The failure type of a saga whose compensations did not all succeed; the failure of the body is its cause.
pub const FAILURE_COMPENSATION: &str = "CompensationFailed";

type CompensationFn = Box<dyn FnOnce(WfContext) -> LocalBoxFuture<Result<(), Failure>>>;

/// The compensations of a running saga. Clones are the same saga.
#[derive(Clone)]
pub struct Saga {
    context: WfContext,
    compensations: Rc<RefCell<Vec<(String, CompensationFn)>>>,
}

impl Saga {
    /// Runs `body`; if it fails, compensates and gives its failure.
    pub async fn run<T, F>(context: &WfContext, body: impl FnOnce(Saga) -> F) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, Failure>>,
    {
        let saga = Saga { context: context.clone(), compensations: Rc::default() };
        match body(saga.clone()).await {
            Ok(value) => Ok(value),
            // Going on in a new run is no failure; what was done stays done.
            Err(next_run) if is_continue_as_new(&next_run) => Err(next_run),
            Err(failure) => {
                // Nothing is undone because a type has changed.
                context.shared.ledger().note_failure(&failure);
                Err(saga.compensate(failure).await)
            }
        }
    }

    /// Registers what undoes a step. Do it before the step when the step may have happened although it failed.
    pub fn compensate_with<F>(&self, name: impl Into<String>, undo: impl FnOnce(WfContext) -> F + 'static)
    where
        F: Future<Output = Result<(), Failure>> + 'static,
    {
        let undo: CompensationFn = Box::new(move |context| Box::pin(undo(context)));
        self.compensations.borrow_mut().push((name.into(), undo));
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
        let cleanup = self.context.detached_scope();
        let mut failed = Vec::new();
        loop {
            // Taken out before it runs: it can never run twice.
            let last = self.compensations.borrow_mut().pop();
            let Some((name, undo)) = last else { break };
            if let Err(why) = compensated(undo, cleanup.clone()).await {
                failed.push(format!("{name}: {why}"));
            }
        }
        if failed.is_empty() {
            return failure;
        }
        let message = format!("{} compensations failed: {}", failed.len(), failed.join("; "));
        Failure::application(FAILURE_COMPENSATION, message).non_retryable().because(failure)
    }
}

/// Runs one compensation. A panic of it is a defect, which holds the run before anything of this turn is written; where
/// the policy is to fail, it is this compensation's failure.
async fn compensated(undo: CompensationFn, cleanup: WfContext) -> Result<(), Failure> {
    let shared = cleanup.shared.clone();
    let (mut undo, mut undoing) = (Some(undo), None);
    std::future::poll_fn(move |cx| {
        let polled = guard(|| {
            if let Some(undo) = undo.take() {
                undoing = Some(undo(cleanup.clone()));
            }
            undoing.as_mut().map_or(Poll::Ready(Ok(())), |undoing| undoing.as_mut().poll(cx))
        });
        match polled {
            Ok(polled) => polled,
            Err(Unwound::Diverged) => diverge(),
            Err(Unwound::Panicked(message)) => {
                // What it held may panic as well, and has been told of.
                let _ = guard(|| drop(undoing.take()));
                shared.ledger().note_defect(WorkflowDefect::Panic { message: message.clone() });
                Poll::Ready(Err(Failure::panic(message)))
            }
        }
    })
    .await
}
