//! The whole engine in one simulated life: shards, committer, runner, journal, recovery, clients, clock and log, from
//! one list of choices.
//!
//! ```text
//!   EnginePlan (code, starts, choices) ──► World: a stepped worker on a log in memory, and who acts on it
//!        faults ──► power cut · kill · storage error · stop · stalled shard · clock set back      │
//!        then   ──► heal: faults stop, everything must end or wait for something named            │
//!        then   ──► checks: histories, answers, replays, indexes against the log                  ▼
//!                                                             EngineLife, or the first EngineFailure
//! ```
//!
//! Invariant: what runs is the production worker, taken step by step ([`bosun_engine::testing::Stepped`]); the same plan
//! gives the same life, byte for byte, in any process and on any thread. Choices that are used up stand for the next
//! harmless step, so that a shorter list is a smaller life: failures shrink. It has no watchdog (its subject is real
//! threads) and no disk (that has tests of its own, with kills and power cuts).

mod answers;
mod checks;
mod choices;
mod clients;
mod faults;
mod found;
mod plan;
mod rare;
mod rest;
mod world;

pub use choices::{CHOICES_OF_A_STEP, StepChoices};
pub use plan::{EnginePlan, FaultProfile};
pub use rare::ENGINE_RARE;
pub use world::{EngineFailure, EngineLife};

/// Lives a plan on this thread, which must not be within a runtime.
pub fn live_engine(plan: &EnginePlan) -> Result<EngineLife, EngineFailure> {
    world::EngineWorld::begin(plan)?.live()
}
