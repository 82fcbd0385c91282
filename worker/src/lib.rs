//! The Bosun worker: supervisors, capabilities, control API and command line.

pub mod api;
pub mod backend;
