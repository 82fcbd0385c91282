//! What a supervisor run is told to do: the spec, read strictly and resolved once (supervisors.md §5.6).
//!
//! ```text
//!   preset ─► file ─► overrides ─► types ─► checks ─► resolved spec + hash ─► first event of the run
//! ```
//!
//! Invariant: a spec that was read has no key that nobody knows; a resolved spec holds every value, so that nothing
//! reads the file or the environment later. It runs nothing.

mod agent;
mod builder;
mod check;
mod choice;
#[doc(hidden)]
pub(crate) mod crew_task;
mod error;
mod every_fault;
mod foreign;
mod number;
mod preset;
mod read;
mod resolve;
mod script;
mod sections;
mod shorthand;
mod template;
#[cfg(test)]
mod tests;
#[doc(hidden)]
pub(crate) mod tool_names;
mod typed;
mod values;
mod whole;

pub use super::model::{InvalidSpan, Span};
pub use agent::{
    Agent, AgentKind, Limits, MemoryScope, Model, Role, Tool, Via, ViaHttp, ViaModel, ViaProcess, ViaSupervisor,
};
pub use builder::SpecBuilder;
pub use check::delegate_tool;
pub use choice::{PlanningChoice, choose_planning};
pub use crew_task::{CrewTask, OutputCondition};
pub use error::InvalidSpec;
pub use foreign::{is_spec, is_spec_text};
pub use number::{Money, Ratio};
pub use preset::{Family, Preset};
pub(crate) use read::faults_of;
pub(crate) use read::merge;
pub use read::{Files, SpecFile, UnreadFile, read_spec, read_spec_in, read_spec_value, read_spec_with};
pub use resolve::ResolvedSpec;
pub use script::{Script, ScriptFailure, ScriptRule, Scripted, answer, told_nobody};
pub use sections::*;
pub(crate) use template::fill;
pub use whole::{Authority, Kind, SeedPlanSource, SupervisorSpec};
