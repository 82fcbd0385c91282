//! Temporal's history JSON (`temporal.api.history.v1.History` in ProtoJSON): written for its tools, read for ours.
//!
//! Invariant: an export names only Temporal's events, numbers them without gaps, and every reference points to an event
//! before it. An import is for viewing, statistics and diff; `turns` makes turns of it, which the code of this program is told
//! and checked against, and never carries on.

mod attributes;
mod export;
mod import;
mod other_runs;
mod protojson;
mod statistics;
#[cfg(test)]
mod tests;
mod turns;

pub use export::to_temporal;
pub use import::{TemporalError, TemporalEvent, TemporalHistory};
pub use statistics::{ActivityStatistics, Statistics};
pub use turns::{ImportError, TurnReader};
