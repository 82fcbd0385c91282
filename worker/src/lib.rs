//! The Bosun worker as a library: capabilities, supervisors, the workflows that ship, the control API and the command
//! line.
//!
//! Invariant: capabilities act, supervisors and schedules decide; the latter are pure and speak to the former through the
//! engine only. The API and the command line carry requests to the engine's client and decide nothing. `clippy.toml` refuses
//! clocks, disks, threads and what has no order; a module that is a shell around what decides is allowed them here.

#![cfg_attr(
    test,
    allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "tests read fixtures and clocks")
)]

pub mod agent;
#[allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "shell")]
pub mod api;
#[allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "shell")]
pub mod app;
pub mod backend;
mod canonical;
#[allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "shell")]
pub mod capability;
#[allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "shell")]
pub mod cli;
#[allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "shell")]
mod closed_directory;
#[allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "shell")]
pub mod embedded;
pub mod examples;
#[cfg(test)]
mod fake;
pub mod guide;
pub mod harvest;
mod inbox;
mod past;
mod run_json;
#[allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "shell")]
pub mod scene;
pub mod schedule;
#[cfg(test)]
pub(crate) mod stage;
mod store_reports;
mod store_work;
pub mod supervisor;
#[cfg(test)]
pub(crate) mod transitions;
#[allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "shell")]
mod ui;

pub use app::App;

/// The Rust of the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
pub struct Readme;
