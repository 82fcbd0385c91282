//! The Bosun worker as a library: capabilities, supervisors, the workflows that ship, the control API and the command
//! line. This page is the crate's README.
//!
//! Invariant: capabilities act, supervisors and schedules decide; the latter are pure and speak to the former through the
//! engine only. The API and the command line carry requests to the engine's client and decide nothing. `clippy.toml`
//! refuses clocks, disks, threads and what has no order; a module that is a shell around what decides is allowed them here.
//!
//! This page documents what is promised: [`App`] with what its methods take, the [configuration](capability) of
//! capabilities, [specs](supervisor::spec) of supervisors, [scenes](scene) and [schedules](schedule), and the [guide].
//! The other modules are public for the program itself and for its tests; they are left out here and may change.
#![doc = include_str!("../README.md")]
#![warn(missing_docs)]
#![cfg_attr(
    test,
    allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "tests read fixtures and clocks")
)]

#[doc(hidden)]
pub mod agent;
#[allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "shell")]
#[doc(hidden)]
pub mod api;
#[allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "shell")]
pub mod app;
#[doc(hidden)]
pub mod backend;
#[doc(hidden)]
pub mod batch;
mod canonical;
#[allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "shell")]
pub mod capability;
#[doc(hidden)]
#[allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "shell")]
pub mod cli;
#[allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "shell")]
mod closed_directory;
mod deadlines;
#[doc(hidden)]
#[allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "shell")]
pub mod embedded;
#[doc(hidden)]
pub mod examples;
#[cfg(test)]
mod fake;
mod filter_text;
pub mod guide;
#[doc(hidden)]
pub mod harvest;
mod inbox;
mod json_schema;
#[allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "shell")]
mod migration;
#[doc(hidden)]
pub mod notify;
mod own_work;
mod past;
#[doc(hidden)]
pub mod priority;
mod queues;
mod run_json;
#[allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "shell")]
pub mod scene;
pub mod schedule;
#[cfg(test)]
pub(crate) mod stage;
#[doc(hidden)]
pub mod standalone;
mod standing;
mod startable;
mod store_reports;
mod store_work;
pub mod supervisor;
#[allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "shell")]
mod telemetry;
#[cfg(feature = "temporal")]
#[allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "shell")]
#[doc(hidden)]
pub mod temporal;
mod top_up;
#[cfg(test)]
pub(crate) mod transitions;
#[allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "shell")]
mod ui;
mod unhandled;

pub use app::App;
pub use cli::exit::Exit;
pub use cli::{PlanFile, PlanLoader, PlanRequest};
pub use embedded::OpenedDirectory;

/// The Rust of the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
pub struct Readme;
