//! Agents as workflows: whole runs on the engine, with models that are functions; crashes; arbitrary lives; histories of
//! older versions.
//!
//! Invariant: no network, no key; time is virtual. What a machine does by itself is tested beside it.

mod border;
mod forked;
mod kept;
mod lives;
mod scenes;
mod whole;
