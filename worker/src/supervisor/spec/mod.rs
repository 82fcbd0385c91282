//! What a supervisor run is told to do: the spec, read strictly and resolved once (supervisors.md §5.6).
//!
//! Invariant: a spec that was read has no key that nobody knows; a resolved spec holds every value, so that nothing
//! reads the file or the environment later. It runs nothing.

mod span;

pub use span::{InvalidSpan, Span};
