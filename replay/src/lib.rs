//! Explains and doubts: history files, replay of histories against code, comparison of histories. This page is the crate's
//! README.
#![doc = include_str!("../README.md")]
#![warn(missing_docs)]

#[cfg(test)]
mod arbitrary;
mod card;
#[cfg(test)]
mod corpus;
mod counterfactual;
pub mod determinism;
mod diff;
mod event_types;
pub use event_types::event_types;
mod fork;
mod history_file;
#[cfg(test)]
mod hostile;
mod outcomes;
mod recording;
mod replayer;
mod rfc3339;
pub mod simulate;
mod strict_json;
mod temporal;
mod timeline;
mod warnings;

pub use card::{Card, EventBefore, SourceLine, Sources, SuggestedPatch, explain};
pub use counterfactual::*;
pub use diff::*;
pub use fork::plan_fork;
pub use history_file::HistoryFile;
pub use recording::*;
pub use replayer::*;
pub use strict_json::{JsonLimits, JsonRefused};
pub use temporal::*;
pub use timeline::{
    BadBreakpoint, Breakpoint, CodeFit, CodeView, Direction, JsonPath, Moment, PathChange, PathStep, Timeline,
    answers_at_end, changes,
};
