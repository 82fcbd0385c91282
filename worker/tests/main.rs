//! The checks of the worker over its public API, in one program: each program of tests links everything, so one is
//! built where five would say the same. `million` has an allocator of its own, and `golden` is asked for by name.
//!
//! Invariant: trip wires are armed for all of them, so whatever here decides as a workflow is seen when it looks at a
//! clock, the environment, a file or chance.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a program of its own, around what decides")]

mod agents;
#[cfg(feature = "mcp")]
mod mcp;
mod models;
mod notifications;
mod programs;
mod python_sdk;
mod schedules;
mod supervisors;

bosun_replay::trip_wires!();
