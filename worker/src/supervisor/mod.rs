//! Supervisors: workflows that manage agents, commands and people.
//!
//! ```text
//!   spec ──► run (the workflow, routes) ──► strategy: graph | chat | agents
//!                 │    ▲                         ▲ gates
//!                 │    └── core (the account) ───┤ exhausted
//!                 └──► people · team · memory ───┘        all speak through outbox (asks) and journal (notes)
//! ```
//!
//! `spec` says what a run is told; `run` is the workflow; `core` holds what no family may have a copy of; `graph` carries
//! plans of tasks, `chat` conversations, `agents` agents that call tools; `people`, `team`, `memory` and `routing` are what
//! all share; `model` is the data. Beside them stands the runner of plan files (`plan_run`), which needs no supervisor.
//!
//! Invariant: everything here is pure: what happened comes in as recorded results, what shall happen goes out as
//! activities of capabilities. No clock, no disk, no socket, no thread, no randomness, no `HashMap`.

pub mod agents;
pub mod chat;
pub mod core;
mod critic;
mod execution;
pub(crate) mod fields;
pub mod graph;
pub mod journal;
pub mod memory;
pub mod model;
pub mod outbox;
pub mod people;
mod placeholder;
mod plan;
mod plan_run;
mod plan_yaml;
pub mod prompts;
mod report;
pub mod routing;
pub mod run;
mod shape;
pub mod spec;
pub mod success;
mod task;
pub mod team;
mod work;
mod yaml;

pub use critic::Verdict;
pub use execution::{AttemptRecord, Dispatch, Execution, TaskResult, TaskRun};
pub use fields::FieldError;
pub use plan::{Plan, PlanError, SeedPlan, TaskItem};
pub use plan_run::{INVALID_PLAN, PLAN_FAILED, PLAN_RUN, PlanRun, PlanRunInput, SIGNAL_CANCEL_TASK, register};
pub use plan_yaml::{InvalidPlanFile, PLAN_BYTES_MAX, PlanProblem, read_plan};
pub use report::{FinalResult, PlanRunOutput, PlanRunStatus, Progress, TaskView};
pub use task::{Actor, IllegalTransition, TaskId, TaskStatus};
pub(crate) use yaml::parse as parse_yaml;
