//! Branches: which code of a run is polled in which branch, so that a canceled branch waits for nothing any more.
//!
//! ```text
//!   race ─► InBranch ─► polls the branch ─► a leaf waits: for what? in which scope was it made? in which branch?
//! ```
//!
//! What was asked for belongs to the scope in which it was asked for; a wait also belongs to the branch that waits. A branch
//! that is canceled while it waits through something from outside (a signal channel, a semaphore, a channel between
//! branches, an activity that was begun before) hears of it at that wait, and what it waited for goes on without it.
//!
//! Invariant: what is shielded, or was made in a detached scope, is out of reach. A run that waited on before there was
//! this rule waits on when it is replayed: the first time the rule makes a difference to a run, that is recorded as a patch.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use super::WfContext;
use super::scope::CancellationScope;
use super::shared::ContextShared;
use crate::vocabulary::PatchId;
use crate::workflow::ledger::CodePlace;

/// The patch in histories of runs in which a canceled branch stopped waiting for something from outside of it.
pub const PATCH_BRANCH_WAITS: &str = "bosun-canceled-branch-waits-no-more";

/// A branch whose code is being polled, and the branches around it.
pub(crate) struct CodeBranch {
    scope: Rc<CancellationScope>,
    /// Nothing that is canceled around it matters inside.
    shield: bool,
    outer: Option<Rc<CodeBranch>>,
}

impl CodeBranch {
    /// Why code that waits in this branch for something of `scope` should stop, if it should.
    pub(super) fn canceled(self: &Rc<Self>, scope: &CancellationScope) -> Option<String> {
        let mut at = Some(self);
        while let Some(branch) = at.filter(|branch| !branch.shield) {
            if let Some(reason) = branch.scope.canceled().filter(|_| scope.is_reached_from(&branch.scope)) {
                return Some(reason);
            }
            at = branch.outer.as_ref();
        }
        None
    }
}

/// A future that is polled as a branch of a run.
pub(crate) struct InBranch<F> {
    shared: Rc<ContextShared>,
    branch: Rc<CodeBranch>,
    future: Pin<Box<F>>,
}

// The future is in a box of its own.
impl<F> Unpin for InBranch<F> {}

impl<F: Future> InBranch<F> {
    /// Code that the cancellation of this context's scope should end.
    pub(crate) fn of(context: &WfContext, code: F) -> Self {
        Self::new(context, false, code)
    }
    /// Code that no cancellation around it reaches.
    pub(crate) fn shielded(context: &WfContext, code: F) -> Self {
        Self::new(context, true, code)
    }
    fn new(context: &WfContext, shield: bool, code: F) -> Self {
        let branch = CodeBranch { scope: context.scope.clone(), shield, outer: None };
        InBranch { shared: context.shared.clone(), branch: Rc::new(branch), future: Box::pin(code) }
    }
    /// Around a branch is whatever polls it now.
    fn stand_in(&mut self, outer: Option<Rc<CodeBranch>>) {
        let known = match (&self.branch.outer, &outer) {
            (Some(known), Some(outer)) => Rc::ptr_eq(known, outer),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        if !known {
            let CodeBranch { scope, shield, .. } = &*self.branch;
            self.branch = Rc::new(CodeBranch { scope: scope.clone(), shield: *shield, outer });
        }
    }
}

impl<F: Future> Future for InBranch<F> {
    type Output = F::Output;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = &mut *self;
        let outer = this.shared.branch.take();
        this.stand_in(outer.clone());
        this.shared.branch.replace(Some(this.branch.clone()));
        // Also when the code panics: a saga goes on with other code then.
        let _back = BackOut { shared: &this.shared, outer };
        this.future.as_mut().poll(cx)
    }
}

/// Leaves the branch for the one around it.
struct BackOut<'a> {
    shared: &'a ContextShared,
    outer: Option<Rc<CodeBranch>>,
}

impl Drop for BackOut<'_> {
    fn drop(&mut self) {
        self.shared.branch.replace(self.outer.take());
    }
}

impl ContextShared {
    /// Why what waits now for something of `scope` should stop, because its branch is canceled.
    pub(super) fn canceled_around(&self, scope: &CancellationScope, place: CodePlace) -> Option<String> {
        let branch = self.branch.borrow().clone()?;
        branch.canceled(scope).filter(|_| self.branch_waits_end(place))
    }
    /// Whether this run works by the rule; see the module. Asked only where that makes a difference.
    pub(super) fn branch_waits_end(&self, place: CodePlace) -> bool {
        let patch = PatchId::of(PATCH_BRANCH_WAITS);
        self.asking("the end of a wait").is_some_and(|mut ledger| ledger.patched(place, patch, false))
    }
}
