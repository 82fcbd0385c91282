//! What a session remembers of earlier runs, and what that says about the run at hand.
//!
//! Invariant: memory helps or is absent; it never fails a run. What was fetched and advised is recorded, so a replay
//! decides the same. It changes no plan: it may choose the strategy.

pub mod advisor;
mod session;

#[cfg(test)]
mod tests;

pub use session::SessionMemoryPart;
