//! A semaphore inside a run.
//!
//! Invariant: permits go to those who wait, in the order in which they began to wait. A permit that is dropped is free
//! again; a waiter that is dropped loses its place and no permit.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use crate::vocabulary::Failure;
use crate::workflow::context::WfContext;
use crate::workflow::context::leaf::{Leaf, WaitReason};

struct Seats {
    free: usize,
    next_ticket: u64,
    waiting: BTreeMap<u64, Waker>,
}

/// Lets a bounded number of branches pass at a time. Clones are the same semaphore.
#[derive(Clone)]
pub struct Semaphore {
    context: WfContext,
    seats: Rc<RefCell<Seats>>,
}

/// Leave to pass; dropping it gives it back.
pub struct Permit {
    seats: Rc<RefCell<Seats>>,
}

impl Semaphore {
    /// With so many permits.
    pub fn new(context: &WfContext, permits: usize) -> Self {
        let seats = Seats { free: permits, next_ticket: 0, waiting: BTreeMap::new() };
        Semaphore { context: context.clone(), seats: Rc::new(RefCell::new(seats)) }
    }
    /// Waits for a permit; canceled with the scope the semaphore was made in, or the branch that waits.
    #[track_caller]
    pub fn acquire(&self) -> AcquireFuture {
        AcquireFuture { leaf: self.context.leaf(Location::caller()), seats: self.seats.clone(), ticket: None }
    }
    /// A permit, if one is free and nobody waits before.
    pub fn try_acquire(&self) -> Option<Permit> {
        let mut seats = self.seats.borrow_mut();
        if seats.free == 0 || !seats.waiting.is_empty() {
            return None;
        }
        seats.free -= 1;
        drop(seats);
        Some(Permit { seats: self.seats.clone() })
    }
    /// How many permits are free.
    pub fn available(&self) -> usize {
        self.seats.borrow().free
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.seats.borrow_mut().free += 1;
        wake_first(&self.seats);
    }
}

fn wake_first(seats: &RefCell<Seats>) {
    let first = seats.borrow().waiting.values().next().cloned();
    if let Some(waker) = first {
        waker.wake();
    }
}

/// See [`Semaphore::acquire`].
pub struct AcquireFuture {
    leaf: Leaf,
    seats: Rc<RefCell<Seats>>,
    ticket: Option<u64>,
}

impl AcquireFuture {
    fn leave(&mut self) {
        self.leaf.over();
        if let Some(ticket) = self.ticket.take() {
            self.seats.borrow_mut().waiting.remove(&ticket);
        }
    }
}

impl Future for AcquireFuture {
    type Output = Result<Permit, Failure>;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(failure) = self.leaf.canceled() {
            self.leave();
            return Poll::Ready(Err(failure));
        }
        let this = &mut *self;
        let mut seats = this.seats.borrow_mut();
        let ticket = *this.ticket.get_or_insert_with(|| {
            seats.next_ticket += 1;
            seats.next_ticket
        });
        let is_first = seats.waiting.keys().next().is_none_or(|first| *first >= ticket);
        if seats.free > 0 && is_first {
            seats.free -= 1;
            let more = seats.free > 0;
            drop(seats);
            this.leave();
            if more {
                wake_first(&this.seats);
            }
            return Poll::Ready(Ok(Permit { seats: this.seats.clone() }));
        }
        seats.waiting.insert(ticket, cx.waker().clone());
        drop(seats);
        this.leaf.wait(cx, || WaitReason::Permit);
        Poll::Pending
    }
}

impl Drop for AcquireFuture {
    fn drop(&mut self) {
        let waited = self.ticket.is_some();
        self.leave();
        if waited && self.seats.borrow().free > 0 {
            wake_first(&self.seats);
        }
    }
}
