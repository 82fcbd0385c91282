//! The Bosun engine: it decides, drives and remembers.

pub mod vocabulary;

pub use vocabulary::*;
