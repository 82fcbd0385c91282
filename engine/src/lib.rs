//! The Bosun engine: it decides, drives and remembers.

pub mod activity;
pub mod request;
pub mod vocabulary;
pub mod workflow;

pub use activity::*;
pub use request::*;
pub use vocabulary::*;
