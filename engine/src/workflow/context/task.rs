//! Branches of a workflow that run beside the function.
//!
//! Invariant: a branch is polled after the tasks that began before it, always in the same order. The run does not wait
//! for its branches: when the function returns, they are dropped.

use std::cell::RefCell;
use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use super::WfContext;
use super::branch::InBranch;
use super::leaf::{Leaf, WaitReason};
use super::slot::{keep_waker, wake_all};
use crate::workflow::executor::CodeTaskId;

struct Joined<T> {
    value: RefCell<Option<T>>,
    wakers: RefCell<Vec<Waker>>,
}

/// The output of a branch. Dropping it leaves the branch running. A wait for it has no failure to give, so nothing but the
/// end of the branch ends it: to wait with a limit, [`select`](crate::workflow::select) it with a timer, or cancel it.
pub struct JoinHandle<T> {
    leaf: Leaf,
    branch: WfContext,
    task: CodeTaskId,
    joined: Rc<Joined<T>>,
}

impl<T> JoinHandle<T> {
    /// Cancels the branch's scope, and what its code waits for. The branch sees it and ends as it likes.
    #[track_caller]
    pub fn cancel(&self, reason: &str) {
        self.branch.cancel_scope(reason);
    }
}

impl<T> Future for JoinHandle<T> {
    type Output = T;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let value = self.joined.value.borrow_mut().take();
        if let Some(value) = value {
            self.leaf.over();
            return Poll::Ready(value);
        }
        keep_waker(&self.joined.wakers, cx);
        let task = self.task;
        self.leaf.wait(cx, || WaitReason::Task(task));
        Poll::Pending
    }
}

impl WfContext {
    /// Runs a branch beside the workflow function, in a nested scope.
    #[track_caller]
    pub fn spawn<T: 'static, F>(&self, branch: impl FnOnce(WfContext) -> F) -> JoinHandle<T>
    where
        F: Future<Output = T> + 'static,
    {
        let leaf = self.leaf(Location::caller());
        let context = self.nested_scope();
        let joined = Rc::new(Joined { value: RefCell::new(None), wakers: RefCell::new(Vec::new()) });
        let future = InBranch::of(&context, branch(context.clone()));
        let sink = joined.clone();
        let name = format!("the branch spawned at {}", leaf.place);
        let run = async move {
            let value = future.await;
            *sink.value.borrow_mut() = Some(value);
            wake_all(&sink.wakers);
        };
        let task = match self.shared.may_change("a branch") {
            true => self.shared.spawn(name, Box::pin(run)),
            false => CodeTaskId(0),
        };
        JoinHandle { leaf, branch: context, task, joined }
    }
}
