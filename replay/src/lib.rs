//! Explains and doubts: history files, replay of histories against code, comparison of histories.
//!
//! Invariant: nothing here calls an activity, a model or a clock, and nothing writes to a data directory. What a replay
//! runs is the engine's own driver, the same one that runs live.
//!
//! A history that was saved once, in a test of the workflow for ever after:
//!
//! ```
//! use bosun_engine::workflow::{WfContext, WorkflowRegistry};
//! use bosun_engine::{HistoryBuilder, Payload};
//! use bosun_replay::{History, HistoryLimits, Prefixes, replay_history};
//!
//! let code = WorkflowRegistry::new()
//!     .workflow("greet", |_: WfContext, name: String| async move { Ok(format!("hello {name}")) });
//!
//! let mut recorded = HistoryBuilder::started("greet", "greet-1", Payload::encode("ada")?);
//! recorded.completed(Payload::encode("hello ada")?);
//! let file = History::new(recorded.turns())?.to_json();
//!
//! let history = History::from_json(file.as_bytes(), &HistoryLimits::default())?;
//! let report = replay_history(&code, &history, Prefixes::All);
//! assert!(report.is_ok(), "{report}");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

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
    BadBreakpoint, Breakpoint, CodeFit, CodeView, Direction, JsonPath, Moment, PathChange, PathStep, Timeline, changes,
};
