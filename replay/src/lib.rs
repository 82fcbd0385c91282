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
//! use bosun_replay::{History, Limits, Prefixes, replay_history};
//!
//! let code = WorkflowRegistry::new()
//!     .workflow("greet", |_: WfContext, name: String| async move { Ok(format!("hello {name}")) });
//!
//! let mut recorded = HistoryBuilder::started("greet", "greet-1", Payload::encode("ada")?);
//! recorded.completed(Payload::encode("hello ada")?);
//! let file = History::new(recorded.turns())?.to_json();
//!
//! let history = History::from_json(file.as_bytes(), &Limits::default())?;
//! let report = replay_history(&code, &history, Prefixes::All);
//! assert!(report.is_ok(), "{report}");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#[cfg(test)]
mod arbitrary;
#[cfg(test)]
mod corpus;
pub mod determinism;
mod diff;
mod event_types;
mod fork;
mod recording;
mod replayer;
mod rfc3339;
pub mod simulate;
mod strict_json;
mod temporal;

pub use diff::*;
pub use fork::plan_fork;
pub use recording::*;
pub use replayer::*;
pub use strict_json::{JsonLimits, JsonRefused};
pub use temporal::*;
