//! Child workflows and messages to other runs, as futures (E15, E16).
//!
//! Invariant: as for activities: asked for at the call, and a dropped future asks for nothing. A child that could not
//! be started resolves its start and its result alike.

use std::future::{Future, IntoFuture};
use std::marker::PhantomData;
use std::panic::Location;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::WfContext;
use super::activity::OperationFuture;
use super::shared::OperationSlots;
use super::slot::OnceSlot;
use crate::reference::{SignalRef, Workflow};
use crate::vocabulary::*;
use crate::workflow::ledger::CodePlace;
use crate::workflow::pending::PendingCommand;

/// The id of a child whose text could not be one: it is never asked for.
const NO_ID: &str = "none";

/// A child workflow that has been asked for. Await it for its result.
#[must_use = "the child is asked for already; await it, or keep the handle to signal and cancel it"]
pub struct ChildHandle<T> {
    context: WfContext,
    workflow_id: WorkflowId,
    /// Why the text that was given is no id: nobody can be sent anything.
    no_id: Option<Failure>,
    seq: Seq,
    start: Rc<OnceSlot<RunId>>,
    result: Rc<OnceSlot<Payload>>,
    place: CodePlace,
    output: PhantomData<fn() -> T>,
}

impl<T: DeserializeOwned> ChildHandle<T> {
    /// The id under which the child was started; `none` if the text could not be an id.
    pub fn workflow_id(&self) -> &WorkflowId {
        &self.workflow_id
    }
    /// The number of the command that started it.
    pub fn seq(&self) -> Seq {
        self.seq
    }
    /// Resolves when the child has started, or could not be.
    #[track_caller]
    pub fn started(&self) -> ChildStartFuture {
        let leaf = self.context.leaf(Location::caller());
        ChildStartFuture { operation: OperationFuture::new(leaf, self.seq, self.start.clone()) }
    }
    /// Resolves when the child has ended. May be asked for more than once.
    #[track_caller]
    pub fn result(&self) -> ChildFuture<T> {
        self.result_at(Location::caller())
    }
    fn result_at(&self, place: CodePlace) -> ChildFuture<T> {
        let leaf = self.context.leaf(place);
        ChildFuture { operation: OperationFuture::new(leaf, self.seq, self.result.clone()), output: PhantomData }
    }
    /// Cancels the child according to its cancellation type.
    #[track_caller]
    pub fn cancel(&self, reason: &str) {
        self.context.shared.cancel_operation(self.seq, reason, Some(Location::caller()));
    }
    /// Sends it a signal; resolves when that is delivered, or cannot be.
    #[track_caller]
    pub fn signal<I: Serialize + ?Sized>(&self, signal: impl SignalRef<I>, input: &I) -> MessageFuture {
        let place = Location::caller();
        if let Some(why) = &self.no_id {
            let refused = OperationSlots::refused(why.clone());
            return MessageFuture { operation: self.context.operation(place, refused) };
        }
        let run_id = self.context.shared.child_run(self.seq);
        let target = ExternalTarget { workflow_id: self.workflow_id.clone(), run_id };
        self.context.send_signal(place, target, signal.into_signal_name(), input)
    }
}

impl<T: DeserializeOwned> IntoFuture for ChildHandle<T> {
    type Output = Result<T, Failure>;
    type IntoFuture = ChildFuture<T>;
    fn into_future(self) -> ChildFuture<T> {
        self.result_at(self.place)
    }
}

/// The result of a child workflow.
#[must_use = "it does nothing unless it is awaited"]
pub struct ChildFuture<T> {
    operation: OperationFuture,
    output: PhantomData<fn() -> T>,
}

impl<T: DeserializeOwned> Future for ChildFuture<T> {
    type Output = Result<T, Failure>;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.operation.poll_end(cx).map(|result| self.operation.read("child workflow", &result?))
    }
}

/// The start of a child workflow.
#[must_use = "it does nothing unless it is awaited"]
pub struct ChildStartFuture {
    operation: OperationFuture<RunId>,
}

impl Future for ChildStartFuture {
    type Output = Result<RunId, Failure>;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.operation.poll_end(cx)
    }
}

/// The delivery of a signal or cancel request to another run.
pub struct MessageFuture {
    operation: OperationFuture,
}

impl Future for MessageFuture {
    type Output = Result<(), Failure>;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.operation.poll_end(cx).map(|result| result.map(|_| ()))
    }
}

/// Children and other runs.
impl WfContext {
    /// Asks for a child workflow by its reference: `let total = ctx.child(COUNT, "count-7", &7).await?;`. The id may be any
    /// text, a `format!(..)` too; one that cannot be an id fails the child, with the type [`FAILURE_INVALID_ID`].
    #[track_caller]
    pub fn child<I: Serialize, O: DeserializeOwned>(
        &self,
        workflow: Workflow<I, O>,
        workflow_id: impl IntoWorkflowId,
        input: &I,
    ) -> ChildHandle<O> {
        self.child_workflow(workflow.workflow_type(), workflow_id, input, ChildWorkflowOptions::default())
    }
    /// As [`Self::child`], with options.
    #[track_caller]
    pub fn child_with<I: Serialize, O: DeserializeOwned>(
        &self,
        workflow: Workflow<I, O>,
        workflow_id: impl IntoWorkflowId,
        input: &I,
        options: ChildWorkflowOptions,
    ) -> ChildHandle<O> {
        self.child_workflow(workflow.workflow_type(), workflow_id, input, options)
    }
    /// As [`Self::child_with`], for a workflow that only has a name: its result is read as whatever is asked for.
    #[track_caller]
    pub fn child_workflow<T: DeserializeOwned>(
        &self,
        workflow_type: impl Into<WorkflowType>,
        workflow_id: impl IntoWorkflowId,
        input: &(impl Serialize + ?Sized),
        options: ChildWorkflowOptions,
    ) -> ChildHandle<T> {
        let (place, workflow_type) = (Location::caller(), workflow_type.into());
        let (id, no_id) = match workflow_id.into_workflow_id() {
            Ok(id) => (id, None),
            Err(why) => (WorkflowId::of(NO_ID), Some(Failure::from(why))),
        };
        let asked = match no_id.clone().map_or_else(|| Payload::encode(input).map_err(Failure::from), Err) {
            Err(failure) => OperationSlots::refused(failure),
            Ok(input) => self.shared.operate(&self.scope, place, "a child workflow", |seq, _| {
                let pending = PendingCommand::Child {
                    workflow_type: workflow_type.clone(),
                    workflow_id: id.clone(),
                    run_id: None,
                    cancellation: options.cancellation,
                    cancel_requested: false,
                };
                let workflow_id = id.clone();
                (Command::StartChildWorkflow { seq, workflow_id, workflow_type, input, options }, pending)
            }),
        };
        let OperationSlots { seq, result, start } = asked;
        ChildHandle { context: self.clone(), workflow_id: id, no_id, seq, start, result, place, output: PhantomData }
    }
    /// Sends a signal to another run; resolves when it is delivered, or cannot be.
    #[track_caller]
    pub fn signal_external<I: Serialize + ?Sized>(
        &self,
        target: ExternalTarget,
        signal: impl SignalRef<I>,
        input: &I,
    ) -> MessageFuture {
        self.send_signal(Location::caller(), target, signal.into_signal_name(), input)
    }
    /// Asks another run to cancel; resolves when the request is delivered, or cannot be.
    #[track_caller]
    pub fn cancel_external(&self, target: ExternalTarget, reason: &str) -> MessageFuture {
        let place = Location::caller();
        let asked = self.shared.operate(&self.scope, place, "a cancel request", |seq, _| {
            let pending = PendingCommand::CancelExternal { workflow_id: target.workflow_id.clone() };
            (Command::RequestCancelExternalWorkflow { seq, target, reason: reason.to_owned() }, pending)
        });
        MessageFuture { operation: self.operation(place, asked) }
    }
    fn send_signal(
        &self,
        place: CodePlace,
        target: ExternalTarget,
        name: SignalName,
        input: &(impl Serialize + ?Sized),
    ) -> MessageFuture {
        let asked = match Payload::encode(input) {
            Err(why) => OperationSlots::refused(why.into()),
            Ok(input) => self.shared.operate(&self.scope, place, "a signal to another run", |seq, _| {
                let pending =
                    PendingCommand::SignalExternal { workflow_id: target.workflow_id.clone(), name: name.clone() };
                (Command::SignalExternalWorkflow { seq, target, name, input }, pending)
            }),
        };
        MessageFuture { operation: self.operation(place, asked) }
    }
}
