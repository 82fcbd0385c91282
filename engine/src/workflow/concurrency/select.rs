//! Waiting for the first of several futures.
//!
//! Invariant: when several are ready in the same turn, the one that was given first wins. The others are given back
//! or dropped; dropping cancels nothing (for that there is `race`). A saga that is dropped is undone.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// The first of two futures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Either<A, B> {
    /// The first one was ready first, or both were.
    First(A),
    /// The second one was.
    Second(B),
}

/// See [`select`].
pub struct Select<A, B>(Pin<Box<A>>, Pin<Box<B>>);

/// Gives the output of the first future to be ready. The other one is dropped, which cancels nothing: an activity runs on,
/// and nobody hears of its end; a [`Saga`](crate::workflow::Saga) is undone. Pass `&mut future` (pinned) to keep the other
/// one, or use [`race`](super::race) to cancel it.
pub fn select<A: Future, B: Future>(first: A, second: B) -> Select<A, B> {
    Select(Box::pin(first), Box::pin(second))
}

impl<A: Future, B: Future> Future for Select<A, B> {
    type Output = Either<A::Output, B::Output>;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Poll::Ready(output) = self.0.as_mut().poll(cx) {
            return Poll::Ready(Either::First(output));
        }
        self.1.as_mut().poll(cx).map(Either::Second)
    }
}

/// See [`select_all`].
pub struct SelectAll<F>(Vec<Pin<Box<F>>>);

/// Gives the index and output of the first future to be ready, and the rest in their order.
///
/// # Panics
///
/// When there is no future.
#[track_caller]
pub fn select_all<F: Future>(futures: impl IntoIterator<Item = F>) -> SelectAll<F> {
    let futures: Vec<_> = futures.into_iter().map(Box::pin).collect();
    assert!(!futures.is_empty(), "select_all of no futures would wait for ever");
    SelectAll(futures)
}

impl<F: Future> Future for SelectAll<F> {
    type Output = (usize, F::Output, Vec<Pin<Box<F>>>);
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let ready = self.0.iter_mut().enumerate().find_map(|(index, future)| match future.as_mut().poll(cx) {
            Poll::Ready(output) => Some((index, output)),
            Poll::Pending => None,
        });
        match ready {
            Some((index, output)) => {
                let mut rest = std::mem::take(&mut self.0);
                drop(rest.remove(index));
                Poll::Ready((index, output, rest))
            }
            None => Poll::Pending,
        }
    }
}
