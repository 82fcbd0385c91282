//! The Bosun worker as a library: capabilities, supervisors, and the workflows that ship.
//!
//! Invariant: capabilities act, supervisors decide; the latter are pure and speak to the former through the engine only.

pub mod capability;
pub mod examples;
#[cfg(test)]
pub(crate) mod stage;
pub mod supervisor;
