//! The Bosun worker as a library: capabilities, supervisors, the workflows that ship, the control API and the command
//! line.
//!
//! Invariant: capabilities act, supervisors and schedules decide; the latter are pure and speak to the former through the
//! engine only. The API and the command line carry requests to the engine's client and decide nothing.

pub mod agent;
pub mod api;
pub mod app;
pub mod backend;
mod canonical;
pub mod capability;
pub mod cli;
mod closed_directory;
pub mod embedded;
pub mod examples;
#[cfg(test)]
mod fake;
pub mod guide;
pub mod harvest;
mod inbox;
mod past;
mod run_json;
pub mod scene;
pub mod schedule;
#[cfg(test)]
pub(crate) mod stage;
mod store_reports;
mod store_work;
pub mod supervisor;
mod telemetry;
#[cfg(test)]
pub(crate) mod transitions;
mod ui;

pub use app::App;

/// The Rust of the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
pub struct Readme;
