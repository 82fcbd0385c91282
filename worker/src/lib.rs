//! The Bosun worker: supervisors, capabilities, control API and command line.

pub mod api;
pub mod app;
pub mod backend;
pub mod cli;
pub mod embedded;

pub use app::App;
