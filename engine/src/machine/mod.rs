//! The run machine, pure: one workflow execution run as a fold of its events, and the decisions about it.
//!
//! ```text
//!  input ──► Execution::decide ──► accept (one family file) ──► activating event ──► job ──► driver
//!                                                                    ▲                        │ commands
//!                                                                    └── follow-ups ◄── events ◄── command (family file)
//! ```
//!
//! Invariant: `apply` remembers and never refuses; `accept` and `command` choose and never remember except through the
//! events they push; folding the events of a turn gives the state the turn was decided to have. Nothing here knows a
//! clock, a disk or a thread: the time is an argument, and what must happen in the world is an [`Effect`].

mod activities;
mod activity;
mod child_workflow;
mod close;
mod decision;
mod execution;
mod external;
mod family;
mod fork;
mod held;
mod lifecycle;
mod limit;
mod outliving;
mod replay;
mod routes;
mod run;
mod signal;
#[cfg(test)]
mod tables;
mod timer;
mod update;

pub use decision::{Decision, Durable, Effect, Environment, Limits, NextRun, SealedEffects};
pub use execution::Execution;
pub use fork::{PlannedFork, ResetSource};
pub use held::{DefectMoment, Held, HeldCode};
pub use replay::{LoadError, fold_run};
pub use run::Run;
