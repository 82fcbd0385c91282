//! Waiting for several futures, all of them.
//!
//! Invariant: outputs come in the order of the futures, whichever ends first; a failure does not stop the others.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

/// One of several futures, or what it gave.
enum JoinBranch<F: Future> {
    Running(Pin<Box<F>>),
    Done(Option<F::Output>),
}

impl<F: Future> JoinBranch<F> {
    fn poll(&mut self, cx: &mut Context<'_>) -> bool {
        if let JoinBranch::Running(future) = self {
            match future.as_mut().poll(cx) {
                Poll::Ready(output) => *self = JoinBranch::Done(Some(output)),
                Poll::Pending => return false,
            }
        }
        true
    }
    fn take(&mut self) -> Option<F::Output> {
        match self {
            JoinBranch::Running(_) => None,
            JoinBranch::Done(output) => output.take(),
        }
    }
}

// Outputs and boxed futures are moved freely.
impl<F: Future> Unpin for JoinAll<F> {}
impl<A: Future, B: Future> Unpin for Join<A, B> {}

/// See [`join_all`].
pub struct JoinAll<F: Future> {
    branches: Vec<JoinBranch<F>>,
    wakers: Vec<Waker>,
    woken: Arc<Woken>,
    running: usize,
}

/// Which branches are to be polled, so that a fan-out of n costs n polls and not n².
#[derive(Default)]
struct Woken {
    branches: Mutex<Vec<usize>>,
    parent: Mutex<Option<Waker>>,
}

struct BranchWaker {
    index: usize,
    woken: Arc<Woken>,
}

impl Wake for BranchWaker {
    fn wake(self: Arc<Self>) {
        locked(&self.woken.branches).push(self.index);
        let parent = locked(&self.woken.parent).clone();
        if let Some(parent) = parent {
            parent.wake();
        }
    }
}

/// The locks are there because a waker must be shareable; nothing panics while it holds one.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for all futures and gives their outputs in the order of the futures.
pub fn join_all<F: Future>(futures: impl IntoIterator<Item = F>) -> JoinAll<F> {
    let branches: Vec<_> = futures.into_iter().map(|future| JoinBranch::Running(Box::pin(future))).collect();
    let woken = Arc::new(Woken { branches: Mutex::new((0..branches.len()).collect()), parent: Mutex::default() });
    let waker = |index| Waker::from(Arc::new(BranchWaker { index, woken: woken.clone() }));
    JoinAll { running: branches.len(), wakers: (0..branches.len()).map(waker).collect(), branches, woken }
}

impl<F: Future> Future for JoinAll<F> {
    type Output = Vec<F::Output>;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        *locked(&this.woken.parent) = Some(cx.waker().clone());
        let mut woken = std::mem::take(&mut *locked(&this.woken.branches));
        woken.sort_unstable();
        woken.dedup();
        for index in woken {
            let branch = &mut this.branches[index];
            if matches!(branch, JoinBranch::Running(_)) && branch.poll(&mut Context::from_waker(&this.wakers[index])) {
                this.running -= 1;
            }
        }
        if this.running > 0 {
            return Poll::Pending;
        }
        Poll::Ready(this.branches.iter_mut().filter_map(JoinBranch::take).collect())
    }
}

/// See [`join`].
pub struct Join<A: Future, B: Future>(JoinBranch<A>, JoinBranch<B>);

/// Waits for two futures of different types.
pub fn join<A: Future, B: Future>(a: A, b: B) -> Join<A, B> {
    Join(JoinBranch::Running(Box::pin(a)), JoinBranch::Running(Box::pin(b)))
}

impl<A: Future, B: Future> Future for Join<A, B> {
    type Output = (A::Output, B::Output);
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let (a, b) = (this.0.poll(cx), this.1.poll(cx));
        if a && b
            && let (Some(a), Some(b)) = (this.0.take(), this.1.take())
        {
            return Poll::Ready((a, b));
        }
        Poll::Pending
    }
}

/// Runs `work` for every item, at most `limit` at a time, and gives the outputs in the order of the items. An item is
/// begun, in order, as soon as fewer than `limit` are running; a limit of 0 counts as 1.
pub async fn for_each_bounded<I, F: Future>(
    limit: usize,
    items: impl IntoIterator<Item = I>,
    mut work: impl FnMut(I) -> F,
) -> Vec<F::Output> {
    let mut waiting: VecDeque<I> = items.into_iter().collect();
    let mut running: Vec<(usize, Pin<Box<F>>)> = Vec::new();
    let mut outputs: Vec<Option<F::Output>> = Vec::new();
    outputs.resize_with(waiting.len(), || None);
    let mut begun = 0;
    std::future::poll_fn(|cx| {
        loop {
            while running.len() < limit.max(1)
                && let Some(item) = waiting.pop_front()
            {
                running.push((begun, Box::pin(work(item))));
                begun += 1;
            }
            let before = running.len();
            running.retain_mut(|(index, future)| match future.as_mut().poll(cx) {
                Poll::Ready(output) => {
                    outputs[*index] = Some(output);
                    false
                }
                Poll::Pending => true,
            });
            if running.is_empty() && waiting.is_empty() {
                return Poll::Ready(());
            }
            // Nothing ended, or nothing is left to begin: wait.
            if running.len() == before || waiting.is_empty() {
                return Poll::Pending;
            }
        }
    })
    .await;
    outputs.into_iter().flatten().collect()
}
