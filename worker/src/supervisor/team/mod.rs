//! The team of a supervisor: who belongs to it, who may join and leave, and how its members reach each other.
//!
//! Invariant: every part here is a pure structure that is told what happened and leaves asks and notes; no part knows
//! the plan, the scheduler or a model.

pub mod directory;
pub mod events;
pub mod mailbox;
mod part;
mod queries;
pub mod recruit;
pub mod registry;
pub mod roles;
pub mod topics;
mod wanted;

#[cfg(test)]
mod tests;

pub use part::{Heard, Teamwork, agent_of};
pub use wanted::ForTeam;
