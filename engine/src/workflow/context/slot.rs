//! A value that a job will bring, and those who wait for it.
//!
//! Invariant: a slot is filled once; whoever looks later sees the same value. Waking is all it does: what the value
//! means is the operation's business.

use std::cell::RefCell;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use crate::vocabulary::Failure;

/// A value that a job will bring.
pub(crate) struct OnceSlot<T> {
    value: RefCell<Option<Result<T, Failure>>>,
    wakers: RefCell<Vec<Waker>>,
}

impl<T: Clone> OnceSlot<T> {
    pub(crate) fn empty() -> Rc<Self> {
        Rc::new(OnceSlot { value: RefCell::new(None), wakers: RefCell::new(Vec::new()) })
    }
    pub(crate) fn refused(failure: Failure) -> Rc<Self> {
        Rc::new(OnceSlot { value: RefCell::new(Some(Err(failure))), wakers: RefCell::new(Vec::new()) })
    }
    /// The first value stays.
    pub(super) fn resolve(&self, value: Result<T, Failure>) {
        self.value.borrow_mut().get_or_insert(value);
        wake_all(&self.wakers);
    }
    pub(crate) fn poll(&self, cx: &Context<'_>) -> Poll<Result<T, Failure>> {
        if let Some(value) = self.value.borrow().as_ref() {
            return Poll::Ready(value.clone());
        }
        keep_waker(&self.wakers, cx);
        Poll::Pending
    }
}

pub(crate) fn keep_waker(wakers: &RefCell<Vec<Waker>>, cx: &Context<'_>) {
    let mut wakers = wakers.borrow_mut();
    if !wakers.iter().any(|waker| waker.will_wake(cx.waker())) {
        wakers.push(cx.waker().clone());
    }
}

pub(crate) fn wake_all(wakers: &RefCell<Vec<Waker>>) {
    let wakers = std::mem::take(&mut *wakers.borrow_mut());
    wakers.into_iter().for_each(Waker::wake);
}
