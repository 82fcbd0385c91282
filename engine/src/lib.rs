//! The Bosun engine: it decides, drives and remembers.

pub mod activity;
pub mod filter;
pub mod request;
pub mod vocabulary;

pub use activity::*;
pub use filter::{Filter, FilterError};
pub use request::*;
pub use vocabulary::*;
