//! People: the highest node of the hierarchy. Approvals, escalations, trust, plan review, interrupts.
//!
//! Invariant: what a person decides is a recorded fact with an id, a deadline in workflow time and the hash of what was
//! shown; the first valid answer wins and never changes; every other one is recorded with the reason why it counts for
//! nothing. The parts here decide only about people's answers: what a task does then is its scheduler's business.

mod amount;
pub mod approval;
pub mod autonomy;
pub mod below;
pub mod escalation;
pub mod interrupts;
pub mod plan_review;
pub mod rules;
pub mod signature;
pub mod takeover;
pub mod trust;

pub use super::core::answer::{InvalidAnswer, shown_hash};

#[cfg(test)]
mod tests;
