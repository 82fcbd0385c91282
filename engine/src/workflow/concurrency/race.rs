//! Races: the first branch to end wins, and the others are canceled.
//!
//! Invariant: a race ends when all of its branches have ended, so that nothing of a loser runs on unseen; with
//! `TryCancel` activities and timers that is at once. Whatever a loser waits for hears of the cancellation, also what was
//! made outside of the branch. A loser's cleanup in a detached scope is waited for.

use std::future::Future;
use std::time::Duration;

use super::{LocalBoxFuture, join_all, select_all};
use crate::vocabulary::Failure;
use crate::workflow::context::WfContext;
use crate::workflow::context::branch::InBranch;

/// A branch of a race: it gets a context whose scope is its own.
pub type Branch<T> = Box<dyn FnOnce(WfContext) -> LocalBoxFuture<T>>;

/// Makes a branch of an async closure.
pub fn branch<T, F: Future<Output = T> + 'static>(code: impl FnOnce(WfContext) -> F + 'static) -> Branch<T> {
    Box::new(move |context| Box::pin(code(context)))
}

/// Runs the branches, gives the index and output of the first that ends, and cancels the others. Branches that are
/// ready in the same turn win in the order given.
///
/// What a branch asks for with the context that it is given is canceled with it. What was made outside and goes on without
/// it (a signal channel, a [`Semaphore`](super::Semaphore), a [`Receiver`](super::Receiver), an activity that was begun
/// before) is left as it is: only the wait of the loser ends, with a failure that is a cancellation. Cleanup in
/// [`WfContext::shielded`], and what was made in a detached scope, is waited for, and so is the branch of a
/// [`JoinHandle`](crate::workflow::JoinHandle), whose output need be no failure.
///
/// A history in which a loser waited on for something from outside, because it was made before there was this rule, is
/// replayed as it was made; that whole run keeps waiting so. Where the rule first makes a difference to a run, its history
/// holds the patch [`PATCH_BRANCH_WAITS`](crate::workflow::PATCH_BRANCH_WAITS).
///
/// # Panics
///
/// When there is no branch.
pub async fn race<T>(context: &WfContext, branches: Vec<Branch<T>>) -> (usize, T) {
    let mut scopes = Vec::with_capacity(branches.len());
    let mut futures = Vec::with_capacity(branches.len());
    for branch in branches {
        let scope = context.nested_scope();
        futures.push(InBranch::of(&scope, branch(scope.clone())));
        scopes.push(scope);
    }
    let (winner, output, losers) = select_all(futures).await;
    for (index, scope) in scopes.iter().enumerate() {
        if index != winner {
            scope.cancel_scope("another branch was first");
        }
    }
    join_all(losers).await;
    (winner, output)
}

/// Runs a branch for at most `limit` of workflow time. When time is up, the branch is canceled and waited for, as the loser of
/// a [`race`], and the output is `None`.
pub async fn with_timeout<T: 'static, F: Future<Output = T> + 'static>(
    context: &WfContext,
    limit: Duration,
    code: impl FnOnce(WfContext) -> F + 'static,
) -> Result<Option<T>, Failure> {
    let work = branch(|context| async move { Ok(Some(code(context).await)) });
    let clock = branch(move |context: WfContext| async move { context.timer(limit).await.map(|()| None) });
    race(context, vec![work, clock]).await.1
}
