//! Explains and doubts: history files, replay of histories against code, comparison of histories.
//!
//! Invariant: nothing here calls an activity, a model or a clock, and nothing writes to a data directory. What a replay
//! runs is the engine's own driver, the same one that runs live.

#[cfg(test)]
mod arbitrary;
#[cfg(test)]
mod corpus;
mod diff;
mod event_types;
mod recording;
mod replayer;
mod rfc3339;
mod strict_json;
mod temporal;

pub use diff::*;
pub use recording::*;
pub use replayer::*;
pub use strict_json::{JsonLimits, JsonRefused};
pub use temporal::*;
