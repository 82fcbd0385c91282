//! Agents: a language model with tools, as a workflow that outlives every crash.
//!
//! ```text
//!   workflow ──► machine (pure) ──► asks: agent_model · tools · agents below
//!       ▲            ledger · grants · turn · transcript             │
//!       └──────────────────── results, signals ◄─────────────────────┘
//! ```
//!
//! Invariant: every model call and every call of a tool is an activity of its own, so that a crash repeats at most what
//! was under way. What an agent may do is decided by its spec and the machine, never by a model. The provider is spoken
//! to by the capability `model`; nothing here knows one.

pub mod activity;
mod border;
pub(crate) mod ends;
pub mod grants;
pub mod ledger;
mod limits;
pub mod machine;
pub mod mcp;
pub(crate) mod next_run;
mod number;
mod opener;
pub mod opening;
pub mod resolve;
pub mod schema;
pub(crate) mod shown;
pub mod spec;
mod telling;
pub mod transcript;
pub mod turn;
pub(crate) mod waits;
mod wall;
pub mod workflow;

pub use activity::{Conversations, register_activities};
pub use border::{AGENT_CARRY, CarryInput, CarryOutput, ContinuedAgent};
pub use machine::AgentOutput;
pub use opener::WithAgents;
pub use spec::AgentSpec;
pub use workflow::{AGENT, AGENT_MODEL, register};
