//! Cancellation scopes: a tree that a cancellation runs down (E17).
//!
//! Invariant: a canceled scope stays canceled, and so is every scope nested in it, now or later. A detached scope is in
//! nobody's tree: the cancellation of the run does not reach it, which is what cleanup needs. Which code waits in which
//! branch is another matter: see `branch.rs`.

use std::cell::RefCell;
use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll};

use super::WfContext;
use super::branch::InBranch;
use super::leaf::{Leaf, WaitReason};

pub(crate) struct CancellationScope {
    /// Of a detached scope and those nested in it: which detached one. `None`: it is in the tree of the run.
    detached: Option<Rc<()>>,
    canceled: RefCell<Option<String>>,
    nested: RefCell<Vec<Weak<CancellationScope>>>,
}

impl CancellationScope {
    /// The scope of the run.
    pub(crate) fn root() -> Rc<Self> {
        Self::in_tree(None, None)
    }
    pub(crate) fn detached() -> Rc<Self> {
        Self::in_tree(Some(Rc::new(())), None)
    }
    fn in_tree(detached: Option<Rc<()>>, canceled: Option<String>) -> Rc<Self> {
        Rc::new(CancellationScope { detached, canceled: RefCell::new(canceled), nested: RefCell::default() })
    }
    fn nest(self: &Rc<Self>) -> Rc<Self> {
        let scope = Self::in_tree(self.detached.clone(), self.canceled());
        let mut nested = self.nested.borrow_mut();
        // Scopes end without telling; now and then the dead ones are swept out.
        if nested.len().is_power_of_two() {
            nested.retain(|scope| scope.strong_count() > 0);
        }
        nested.push(Rc::downgrade(&scope));
        scope
    }
    /// The reason, if the scope has been canceled.
    pub(crate) fn canceled(&self) -> Option<String> {
        self.canceled.borrow().clone()
    }
    /// Whether the cancellation of a branch may end a wait on something of this scope: what was detached is reached from
    /// within what it was detached with, and from nowhere else.
    pub(super) fn is_reached_from(&self, branch: &CancellationScope) -> bool {
        match (&self.detached, &branch.detached) {
            (None, _) => true,
            (Some(own), Some(other)) => Rc::ptr_eq(own, other),
            (Some(_), None) => false,
        }
    }
    /// Marks the scope and what is nested in it. Says whether that was news.
    pub(crate) fn cancel(&self, reason: &str) -> bool {
        if self.canceled.borrow().is_some() {
            return false;
        }
        *self.canceled.borrow_mut() = Some(reason.to_owned());
        let nested: Vec<Rc<CancellationScope>> = self.nested.borrow().iter().filter_map(Weak::upgrade).collect();
        for scope in nested {
            scope.cancel(reason);
        }
        true
    }
}

impl WfContext {
    /// A context whose work can be canceled apart from the rest, and is canceled with it.
    pub fn nested_scope(&self) -> WfContext {
        WfContext { shared: self.shared.clone(), scope: self.scope.nest() }
    }
    /// A context whose work the cancellation of this scope, or of the run, does not reach: for cleanup.
    pub fn detached_scope(&self) -> WfContext {
        WfContext { shared: self.shared.clone(), scope: CancellationScope::detached() }
    }
    /// Runs cleanup to its end even when the run, or the branch that it is in, is being canceled.
    pub async fn shielded<T, F: Future<Output = T>>(&self, cleanup: impl FnOnce(WfContext) -> F) -> T {
        let context = self.detached_scope();
        let cleanup = cleanup(context.clone());
        InBranch::shielded(&context, cleanup).await
    }
    /// Cancels everything in this scope, as the cancellation of the run would. Of a branch (of [`race`], [`with_timeout`] or
    /// [`WfContext::spawn`]) it also ends what its code waits for through something that was made outside of it.
    ///
    /// [`race`]: crate::workflow::race
    /// [`with_timeout`]: crate::workflow::with_timeout
    #[track_caller]
    pub fn cancel_scope(&self, reason: &str) {
        self.shared.cancel_scope(&self.scope, reason, Some(Location::caller()));
    }
    /// Whether cancellation was asked for, of this scope or of one around it.
    pub fn is_canceled(&self) -> bool {
        self.scope.canceled().is_some()
    }
    /// Resolves, with the reason, when this scope is canceled, or the branch that waits.
    #[track_caller]
    pub fn cancellation(&self) -> CancellationFuture {
        CancellationFuture { leaf: self.leaf(Location::caller()) }
    }
}

/// See [`WfContext::cancellation`].
#[must_use = "it does nothing unless it is awaited"]
pub struct CancellationFuture {
    leaf: Leaf,
}

impl Future for CancellationFuture {
    type Output = String;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<String> {
        if let Some(reason) = self.leaf.cancel_reason() {
            self.leaf.over();
            return Poll::Ready(reason);
        }
        self.leaf.wait(cx, || WaitReason::Cancellation);
        Poll::Pending
    }
}
