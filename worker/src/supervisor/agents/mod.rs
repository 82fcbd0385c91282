//! Agents that take turns and call tools: delegation (supyagent), hand-off (LangGraph, Swarm), manager and coworkers
//! (CrewAI), and the conversational supervisor (CUGA), on one loop.
//!
//! ```text
//!   session: model ──► tool calls ──► answers in call order ──► model ... ──► answer
//!                         │
//!                         ├─ function, sleep, person     (a call, a timer, somebody)
//!                         ├─ delegation, question        (a session below, whose answer is the call's)
//!                         ├─ background process          (a session below that nobody waits for)
//!                         └─ hand-off                    (another agent goes on, for good or until it gives back)
//! ```
//!
//! Invariant: the state is data, what happened comes in by key, and what shall happen goes out through the outbox; the
//! order in which answers come makes no difference to what a model is told. The differences between systems are
//! [`AgentRules`]. It calls no model and keeps no time.

mod agent_loop;
mod boundary;
mod budget;
mod calls;
mod crew;
mod crew_from_spec;
mod crew_report;
mod crew_run;
mod delegation;
mod denied;
mod dispatch;
mod ending;
mod from_spec;
mod handoff;
mod memory;
mod message;
mod patience;
pub(super) mod presets;
mod processes;
mod refusal;
mod rules;
mod session;
mod step_context;
mod step_limit;
mod steps;
mod strategy;
#[cfg(test)]
mod tests;
mod todos;
mod toolbox;
mod turn;
mod view;
mod words;

pub use super::spec::tool_names::{Builtin, handoff_name, sanitized};
pub use super::spec::{CrewTask, OutputCondition};
pub use super::standing::{PolicyRule, StandingPolicy};
pub use agent_loop::AgentLoop;
pub use boundary::{AgentInput, AgentOutcome, AgentsRefused, HumanAnswer, HumanKind, HumanNeeded, NotWaiting};
pub use crew::{Crew, CrewCheckpoint, CrewRefused, CrewStart, TaskOutput};
pub use crew_report::CrewLine;
pub use from_spec::{agents as agents_of, policies as policies_of, rules as rules_of};
pub use handoff::output_messages;
pub use memory::{Thread, child_id};
pub use message::{AgentAnswer, AnswerError, FunctionResult, Message, MessageRole, Tag, ToolCall, Variables};
pub use processes::ProcessStatus;
pub use refusal::{AnswerRefusal, ProcessRefusal};
pub use rules::{
    AgentDef, AgentRules, DelegationRules, ErrorStyle, HandoffRules, LoopCount, LoopLimit, OnLimit, ToolBudget, ToolDef,
};
pub use step_context::{StepContext, ToolOffer};
pub use steps::StepsDef;
pub use todos::{TODOS_MAX, Todo, TodoStatus};
pub use view::{AgentsView, SessionView};
