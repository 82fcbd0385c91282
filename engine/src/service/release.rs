//! Carries out effects, after their commit. Each arm hands the effect to whoever does it.
//!
//! Invariant: every effect here is safe to repeat: attempts are numbered, starts find the run they made, messages
//! between runs carry request ids. So a crash between commit and release loses nothing: recovery asks again.

use std::sync::Arc;

use super::committer::RunName;
use super::mailbox::{ClosedRun, ReplySender, RunRef, ShardMessage, StartThen};
use super::shared::WorkerShared;
use crate::activity::TaskToken;
use crate::machine::Effect;
use crate::queue::WaitingAttempt;
use crate::request::{Started, Target};
use crate::vocabulary::*;

pub(crate) fn release(shared: &Arc<WorkerShared>, name: &RunName, effect: Effect) {
    if carries_lost(&effect) {
        let run = name.run_id;
        return tracing::warn!(%run, "damage to the store took the payload of a message to another run: it is not sent");
    }
    match effect {
        Effect::RunActivity(task) => shared.runner.run(shared, *task),
        Effect::QueueActivity { seq, attempt, activity_type, queue, priority } => {
            let RunName { namespace, workflow_id, run_id } = name.clone();
            let slot = shared.slot_use(&activity_type, &queue);
            let waiting = WaitingAttempt { namespace, workflow_id, run_id, seq, attempt, slot };
            shared.enqueue(waiting, priority);
        }
        Effect::CancelActivity { seq, attempt } => {
            shared.runner.cancel(TaskToken { run_id: name.run_id, seq, attempt });
        }
        Effect::StartChild { seq, run_id, start } => start_child(shared, name, seq, run_id, start),
        Effect::WatchChild { seq, workflow_id, first_run } => watch_child(shared, name, seq, workflow_id, first_run),
        Effect::CancelChild { seq, workflow_id, first_run, reason, request_id } => {
            let input = Input::RequestCancel { reason, identity: None, request_id: Some(request_id) };
            let reply = delivery(shared, name, move |result| Input::CancelDelivered { seq, result });
            to_chain(shared, name, workflow_id, first_run, input, Some(reply));
        }
        Effect::ParentClosed { workflow_id, first_run, policy } => {
            parent_closed(shared, name, workflow_id, first_run, policy);
        }
        Effect::SignalExternal { seq, target, signal } => {
            let answer = move |result| Input::SignalDelivered { seq, result };
            to_other_run(shared, name, target, Input::Signal(signal), answer);
        }
        Effect::CancelExternal { seq, target, reason, request_id } => {
            let input = Input::RequestCancel { reason, identity: None, request_id: Some(request_id) };
            to_other_run(shared, name, target, input, move |result| Input::CancelDelivered { seq, result });
        }
        Effect::NotifyParent { parent, outcome } => {
            let to =
                RunName { namespace: name.namespace.clone(), workflow_id: parent.workflow_id, run_id: parent.run_id };
            shared.deliver_input(&to, Input::ChildClosed { seq: parent.seq, run_id: name.run_id, outcome });
        }
        Effect::ResolveUpdate { update_id, result } => {
            shared.waiters.update_completed(name.run_id, update_id, &result);
        }
        Effect::Closed { outcome, next_run } => {
            shared.waiters.closed(&ClosedRun { run_id: name.run_id, outcome, next_run });
        }
    }
}

/// Whether somebody would take a mark of what is lost for what it stands for. Nothing that is asked of the code of a run is
/// among it: a run whose code would hear of what is lost is held.
fn carries_lost(effect: &Effect) -> bool {
    match effect {
        Effect::StartChild { start, .. } => start.input.is_lost() || start.memo.values().any(Payload::is_lost),
        Effect::SignalExternal { signal, .. } => signal.input.is_lost(),
        Effect::NotifyParent { outcome, .. } => outcome.is_lost(),
        Effect::RunActivity(_)
        | Effect::QueueActivity { .. }
        | Effect::CancelActivity { .. }
        | Effect::WatchChild { .. }
        | Effect::CancelChild { .. }
        | Effect::ParentClosed { .. }
        | Effect::CancelExternal { .. }
        | Effect::ResolveUpdate { .. }
        | Effect::Closed { .. } => false,
    }
}

/// Gives the answer to a question asked of another shard back to the run as an input.
fn answer_with<T: Send + 'static>(
    shared: &Arc<WorkerShared>,
    name: &RunName,
    input: impl FnOnce(Result<T, Rejection>) -> Option<Input> + Send + 'static,
) -> ReplySender<T> {
    let (reply, answered) = ReplySender::new(None);
    let (shared, name) = (shared.clone(), name.clone());
    // Counted as under way, so that a virtual clock waits for it.
    shared.time.begin();
    let handle = shared.runner.handle().clone();
    handle.spawn(async move {
        if let Ok(result) = answered.await
            && let Some(input) = input(result)
        {
            shared.deliver_input(&name, input);
        }
        shared.time.end();
    });
    reply
}

/// A refusal that says nothing about the other run: the worker leaves, and recovery asks again.
fn is_passing(why: &Rejection) -> bool {
    matches!(
        why,
        Rejection::ShuttingDown
            | Rejection::StorageFailed { .. }
            | Rejection::StorageFull { .. }
            | Rejection::StorageError { .. }
            | Rejection::Overloaded { .. }
    )
}

fn start_child(shared: &Arc<WorkerShared>, name: &RunName, seq: Seq, run_id: RunId, start: Box<StartWorkflow>) {
    let (namespace, workflow_id) = (start.namespace.clone(), start.workflow_id.clone());
    let reply = answer_with(shared, name, move |started: Result<Started, Rejection>| match started {
        Ok(started) => Some(Input::ChildStarted { seq, result: Ok(started.run_id) }),
        Err(why) if is_passing(&why) => None,
        Err(why) => {
            let failure = Failure::application("ChildWorkflowNotStarted", why.to_string()).non_retryable();
            Some(Input::ChildStarted { seq, result: Err(failure) })
        }
    });
    let message = ShardMessage::Start { run_id, start, then: StartThen::Nothing, reply };
    shared.deliver(&namespace, &workflow_id, message);
}

fn watch_child(shared: &Arc<WorkerShared>, name: &RunName, seq: Seq, workflow_id: WorkflowId, first_run: RunId) {
    let parent = Parent {
        workflow_id: name.workflow_id.clone(),
        run_id: name.run_id,
        seq,
        close_policy: ParentClosePolicy::Abandon,
    };
    let namespace = name.namespace.clone();
    let message =
        ShardMessage::WatchChild { namespace: namespace.clone(), workflow_id: workflow_id.clone(), first_run, parent };
    shared.deliver(&namespace, &workflow_id, message);
}

fn to_chain(
    shared: &Arc<WorkerShared>,
    name: &RunName,
    workflow_id: WorkflowId,
    first_run: RunId,
    input: Input,
    reply: Option<ReplySender<()>>,
) {
    let namespace = name.namespace.clone();
    let run = RunRef::Chain { namespace: namespace.clone(), workflow_id: workflow_id.clone(), first_run };
    shared.deliver(&namespace, &workflow_id, ShardMessage::Input { run, input, reply });
}

/// Applies a parent close policy to a child (E15).
fn parent_closed(
    shared: &Arc<WorkerShared>,
    name: &RunName,
    workflow_id: WorkflowId,
    first_run: RunId,
    policy: ParentClosePolicy,
) {
    if let Some(input) = close_with_parent(&name.workflow_id, name.run_id, policy) {
        to_chain(shared, name, workflow_id, first_run, input, None);
    }
}

/// What a child is asked when its parent has closed.
pub(crate) fn close_with_parent(parent: &WorkflowId, run: RunId, policy: ParentClosePolicy) -> Option<Input> {
    let reason = format!("the parent workflow {parent} has closed");
    match policy {
        ParentClosePolicy::Abandon => None,
        ParentClosePolicy::Terminate => Some(Input::Terminate { reason, identity: None }),
        ParentClosePolicy::RequestCancel => Some(Input::RequestCancel {
            reason,
            identity: None,
            request_id: Some(RequestId::of(format!("parent-closed:{run}"))),
        }),
    }
}

/// Tells the run whether its message has reached the other one, durably.
fn delivery(
    shared: &Arc<WorkerShared>,
    name: &RunName,
    answer: impl FnOnce(Result<(), Failure>) -> Input + Send + 'static,
) -> ReplySender<()> {
    answer_with(shared, name, move |result: Result<(), Rejection>| match result {
        Ok(()) => Some(answer(Ok(()))),
        Err(why) if is_passing(&why) => None,
        Err(why) => Some(answer(Err(Failure::application("ExternalWorkflowNotReached", why.to_string())))),
    })
}

fn to_other_run(
    shared: &Arc<WorkerShared>,
    name: &RunName,
    target: ExternalTarget,
    input: Input,
    answer: impl FnOnce(Result<(), Failure>) -> Input + Send + 'static,
) {
    let reply = delivery(shared, name, answer);
    let target = Target { namespace: name.namespace.clone(), workflow_id: target.workflow_id, run_id: target.run_id };
    let (namespace, workflow_id) = (target.namespace.clone(), target.workflow_id.clone());
    let message = ShardMessage::Input { run: RunRef::Target(target), input, reply: Some(reply) };
    shared.deliver(&namespace, &workflow_id, message);
}
