//! Signals as channels (E11).
//!
//! Invariant: a signal waits, in order of arrival, until the code takes it; it is taken when a receive resolves and at
//! no other moment. What nobody took is carried to the next run, or reported when the run closes.

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::marker::PhantomData;
use std::panic::Location;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use serde::de::DeserializeOwned;

use super::WfContext;
use super::leaf::{Leaf, WaitReason};
use crate::reference::SignalRef;
use crate::vocabulary::*;
use crate::workflow::concurrency::{Either, select};

#[derive(Default)]
pub(crate) struct SignalBuffer {
    arrived: u64,
    waiting: BTreeMap<SignalName, VecDeque<(u64, WorkflowExecutionSignaled)>>,
    receivers: BTreeMap<SignalName, Vec<Waker>>,
}

impl SignalBuffer {
    /// Keeps a signal and gives the receivers that must look for it.
    pub(crate) fn push(&mut self, signal: WorkflowExecutionSignaled) -> Vec<Waker> {
        self.arrived += 1;
        let wakers = self.receivers.remove(&signal.name).unwrap_or_default();
        self.waiting.entry(signal.name.clone()).or_default().push_back((self.arrived, signal));
        wakers
    }
    fn pop(&mut self, name: &SignalName) -> Option<WorkflowExecutionSignaled> {
        let queue = self.waiting.get_mut(name)?;
        let signal = queue.pop_front().map(|(_, signal)| signal);
        if queue.is_empty() {
            self.waiting.remove(name);
        }
        signal
    }
    /// What nobody has taken, in order of arrival.
    pub(crate) fn unconsumed(&self) -> Vec<WorkflowExecutionSignaled> {
        let mut all: Vec<_> = self.waiting.values().flatten().collect();
        all.sort_by_key(|(arrived, _)| *arrived);
        all.into_iter().map(|(_, signal)| signal.clone()).collect()
    }
    fn receive_later(&mut self, name: &SignalName, waker: &Waker) {
        let receivers = self.receivers.entry(name.clone()).or_default();
        if !receivers.iter().any(|known| known.will_wake(waker)) {
            receivers.push(waker.clone());
        }
    }
}

/// The signals of one name, read as `T`. Any number of channels of a name take from the same queue.
pub struct SignalChannel<T> {
    context: WfContext,
    name: SignalName,
    input: PhantomData<fn() -> T>,
}

impl<T: DeserializeOwned> SignalChannel<T> {
    /// Waits for the next signal; canceled with the scope of the context that gave the channel, or the branch that waits. An
    /// input that is no `T` is taken, and is a failure that the code may handle; a workflow
    /// that gives up with it has a defect.
    #[track_caller]
    pub fn recv(&self) -> SignalFuture<T> {
        SignalFuture { leaf: self.context.leaf(Location::caller()), name: self.name.clone(), input: PhantomData }
    }
    /// As [`Self::recv`], for at most this long: `None` when the time is up first. The timer is canceled otherwise.
    #[track_caller]
    pub fn recv_within(&self, limit: Duration) -> impl Future<Output = Result<Option<T>, Failure>> + use<T> {
        let (signal, timer) = (self.recv(), self.context.timer(limit));
        async move {
            let asked = timer.handle();
            match select(signal, timer).await {
                Either::First(signal) => {
                    asked.cancel();
                    signal.map(Some)
                }
                Either::Second(fired) => fired.map(|()| None),
            }
        }
    }
    /// The next signal, if one waits.
    pub fn try_recv(&self) -> Option<Result<T, Failure>> {
        self.take().map(|signal| Ok(signal.input.decode()?))
    }
    /// Every signal that waits.
    pub fn drain(&self) -> Vec<Result<T, Failure>> {
        std::iter::from_fn(|| self.try_recv()).collect()
    }
    /// As [`Self::try_recv`], with the sender and the request id.
    pub fn take(&self) -> Option<WorkflowExecutionSignaled> {
        if !self.context.shared.may_change("a received signal") {
            return None;
        }
        self.context.shared.signals.borrow_mut().pop(&self.name)
    }
}

/// See [`SignalChannel::recv`].
#[must_use = "it does nothing unless it is awaited"]
pub struct SignalFuture<T> {
    leaf: Leaf,
    name: SignalName,
    input: PhantomData<fn() -> T>,
}

impl<T: DeserializeOwned> Future for SignalFuture<T> {
    type Output = Result<T, Failure>;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let end = match this.leaf.canceled() {
            Some(failure) => Some(Err(failure)),
            None => {
                let signal = this.leaf.shared.signals.borrow_mut().pop(&this.name);
                signal.map(|signal| signal.input.decode().map_err(Failure::from))
            }
        };
        if let Some(end) = end {
            this.leaf.over();
            return Poll::Ready(end);
        }
        this.leaf.wait(cx, || WaitReason::Signal(this.name.clone()));
        this.leaf.shared.signals.borrow_mut().receive_later(&this.name, cx.waker());
        Poll::Pending
    }
}

impl WfContext {
    /// The signals of a name, whether they came before this call or come after it:
    /// `let approved = ctx.signal_channel(APPROVE).recv().await?;`.
    #[track_caller]
    pub fn signal_channel<T: DeserializeOwned>(&self, signal: impl SignalRef<T>) -> SignalChannel<T> {
        SignalChannel { context: self.clone(), name: signal.into_signal_name(), input: PhantomData }
    }
}
