//! The Bosun worker: supervisors, capabilities, control API and command line.

pub mod api;
pub mod app;
pub mod backend;
pub mod capability;
pub mod cli;
pub mod embedded;
#[cfg(test)]
mod fake;
#[cfg(test)]
pub(crate) mod stage;
pub mod supervisor;

pub use app::App;
