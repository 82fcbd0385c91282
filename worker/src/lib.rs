//! The Bosun worker: supervisors, capabilities, control API and command line.

pub mod api;
pub mod app;
pub mod backend;
pub mod cli;
pub mod embedded;
#[cfg(test)]
mod fake;

pub use app::App;
