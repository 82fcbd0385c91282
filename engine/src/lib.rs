//! The Bosun engine: it decides, drives and remembers.

pub mod log;
pub mod vocabulary;

pub use vocabulary::*;
