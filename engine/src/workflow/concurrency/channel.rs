//! A bounded channel between branches of a run.
//!
//! Invariant: values arrive in the order in which their sends resolved, each exactly once. The channel is memory of the
//! run like any variable: replay rebuilds it, and it reaches no other run.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::panic::Location;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use crate::vocabulary::Failure;
use crate::workflow::context::WfContext;
use crate::workflow::context::leaf::{Leaf, WaitReason};
use crate::workflow::context::slot::{keep_waker, wake_all};

struct Pipe<T> {
    values: RefCell<VecDeque<T>>,
    capacity: usize,
    senders: RefCell<usize>,
    receiver_gone: RefCell<bool>,
    wakers: RefCell<Vec<Waker>>,
}

/// Sends into a channel. Clones are senders of the same channel.
pub struct Sender<T> {
    context: WfContext,
    pipe: Rc<Pipe<T>>,
}

/// Receives from a channel.
pub struct Receiver<T> {
    context: WfContext,
    pipe: Rc<Pipe<T>>,
}

/// A channel that holds at most `capacity` values (at least one).
pub fn channel<T>(context: &WfContext, capacity: usize) -> (Sender<T>, Receiver<T>) {
    let pipe = Rc::new(Pipe {
        values: RefCell::new(VecDeque::new()),
        capacity: capacity.max(1),
        senders: RefCell::new(1),
        receiver_gone: RefCell::new(false),
        wakers: RefCell::new(Vec::new()),
    });
    (Sender { context: context.clone(), pipe: pipe.clone() }, Receiver { context: context.clone(), pipe })
}

impl<T> Sender<T> {
    /// Waits for room; canceled with the scope the channel was made in, or the branch that waits. `Ok(false)`: there is no receiver any more and the value is dropped.
    #[track_caller]
    pub fn send(&self, value: T) -> impl Future<Output = Result<bool, Failure>> + use<T> {
        let mut leaf = self.context.leaf(Location::caller());
        let (pipe, mut value) = (self.pipe.clone(), Some(value));
        std::future::poll_fn(move |cx| {
            let room = pipe.values.borrow().len() < pipe.capacity;
            let gone = *pipe.receiver_gone.borrow();
            if !gone && !room {
                return pipe.wait(&mut leaf, cx);
            }
            leaf.over();
            if let (false, Some(value)) = (gone, value.take()) {
                pipe.values.borrow_mut().push_back(value);
                wake_all(&pipe.wakers);
            }
            Poll::Ready(Ok(!gone))
        })
    }
}

impl<T> Receiver<T> {
    /// Waits for a value; canceled with the scope the channel was made in, or the branch that waits. `None`: all senders are gone and nothing is left.
    #[track_caller]
    pub fn recv(&self) -> impl Future<Output = Result<Option<T>, Failure>> + use<T> {
        let mut leaf = self.context.leaf(Location::caller());
        let pipe = self.pipe.clone();
        std::future::poll_fn(move |cx| {
            let value = pipe.values.borrow_mut().pop_front();
            if value.is_none() && *pipe.senders.borrow() > 0 {
                return pipe.wait(&mut leaf, cx);
            }
            leaf.over();
            wake_all(&pipe.wakers);
            Poll::Ready(Ok(value))
        })
    }
}

impl<T> Pipe<T> {
    fn wait<R>(&self, leaf: &mut Leaf, cx: &Context<'_>) -> Poll<Result<R, Failure>> {
        if let Some(failure) = leaf.canceled() {
            leaf.over();
            return Poll::Ready(Err(failure));
        }
        keep_waker(&self.wakers, cx);
        leaf.wait(cx, || WaitReason::Channel);
        Poll::Pending
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        *self.pipe.senders.borrow_mut() += 1;
        Sender { context: self.context.clone(), pipe: self.pipe.clone() }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        *self.pipe.senders.borrow_mut() -= 1;
        wake_all(&self.pipe.wakers);
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        *self.pipe.receiver_gone.borrow_mut() = true;
        wake_all(&self.pipe.wakers);
    }
}
