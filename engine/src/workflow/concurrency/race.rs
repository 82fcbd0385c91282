//! Races: the first branch to end wins, and the others are canceled.
//!
//! Invariant: a race ends when all of its branches have ended, so that nothing of a loser runs on unseen; with
//! `TryCancel` activities and timers that is at once. A loser's cleanup in a detached scope is waited for.

use std::future::Future;
use std::time::Duration;

use super::{LocalBoxFuture, join_all, select_all};
use crate::vocabulary::Failure;
use crate::workflow::context::WfContext;

/// A branch of a race: it gets a context whose scope is its own.
pub type Branch<T> = Box<dyn FnOnce(WfContext) -> LocalBoxFuture<T>>;

/// Makes a branch of an async closure.
pub fn branch<T, F: Future<Output = T> + 'static>(code: impl FnOnce(WfContext) -> F + 'static) -> Branch<T> {
    Box::new(move |context| Box::pin(code(context)))
}

/// Runs the branches, gives the index and output of the first that ends, and cancels the others. Branches that are
/// ready in the same turn win in the order given. Panics when there is none.
pub async fn race<T>(context: &WfContext, branches: Vec<Branch<T>>) -> (usize, T) {
    let mut scopes = Vec::with_capacity(branches.len());
    let mut futures = Vec::with_capacity(branches.len());
    for branch in branches {
        let scope = context.nested_scope();
        futures.push(branch(scope.clone()));
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

/// Runs a branch for at most `limit` of workflow time. When time is up, the branch is canceled and waited for, and the
/// output is `None`.
pub async fn with_timeout<T: 'static, F: Future<Output = T> + 'static>(
    context: &WfContext,
    limit: Duration,
    code: impl FnOnce(WfContext) -> F + 'static,
) -> Result<Option<T>, Failure> {
    let work = branch(|context| async move { Ok(Some(code(context).await)) });
    let clock = branch(move |context: WfContext| async move { context.timer(limit).await.map(|()| None) });
    race(context, vec![work, clock]).await.1
}
