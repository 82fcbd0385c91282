//! Concurrency inside a run: join, select, race, bounded fan-out, semaphore and channel (E29).
//!
//! Invariant: branches are polled in the order in which they were given, so the same history gives the same winner and
//! the same order of commands. Nothing here reads a clock or random numbers, and nothing but a lost race cancels.

mod channel;
mod join;
mod race;
mod select;
mod semaphore;

pub use channel::{Receiver, Sender, channel};
pub use join::{Join, JoinAll, for_each_bounded, join, join_all};
pub use race::{Branch, branch, race, with_timeout};
pub use select::{Either, Select, SelectAll, select, select_all};
pub use semaphore::{Permit, Semaphore};

use std::future::Future;
use std::pin::Pin;

/// A future on the heap, of this thread.
pub type LocalBoxFuture<T> = Pin<Box<dyn Future<Output = T>>>;
