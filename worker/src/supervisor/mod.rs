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
//! Where the requirements live (shared/requirements/supervisors.md). The numbers of a system are in `spec/preset`, its keys
//! in `spec/sections`, its conditions in `spec/check`; what its rules do is here:
//!
//! | rows | system | modules |
//! |---|---|---|
//! | PDT | pydantask | `graph/{decide,tools,review,worker_asks}`; plan files: `plan`, `plan_yaml`, `plan_run`, `execution` |
//! | FSS | flow-state's supervisor | `graph/{iterate,flow,synthesis}` |
//! | FSP | flow-state's Plan and Execute | `graph/iterate` (the evaluator) |
//! | FSC | flow-state's coordinator | `graph/{schedule,finish}` (the merge) |
//! | CUG | CUGA, plans | `spec/choice`, `graph/{decide,policies,standing,upfront}`, `people/plan_review`, `run/progress` |
//! | CUG | CUGA, conversations | `agents/{delegation,memory,policies,todos}`, `spec/foreign/cuga` |
//! | SHN | Shannon | `routing`, `run/children`, `team`, `memory`, `people/control`, `graph/{finish,synthesis}` |
//! | SHD | Shannon's DAG and simple task | `graph/{schedule,worker_asks}`, `team/part` |
//! | SHH | Shannon's people | `people/{approval,escalation,autonomy,plan_review}`, `run/people` |
//! | SHT | Shannon's trust | `people/trust` |
//! | SUP | supyagent | `agents/{delegation,processes,steps}`, `team/registry`, `spec/foreign/supyagent` |
//! | AGC | AutoGen's chats | `chat` |
//! | CRW | CrewAI | `agents/{crew,crew_run,crew_report}` |
//! | LGS | LangGraph's supervisor | `agents/handoff` |
//! | LGI | LangGraph's interrupts | `people/interrupts`, `graph/{people,reply}` |
//! | SWM | Swarm | `agents/{handoff,turn}` |
//!
//! Where a rule lives; what else names it only asks there, or hands on what was decided:
//!
//! | rule | module |
//! |---|---|
//! | budget: what may be asked for, what was spent | `core/account`, at the one door `run/asks`; what runs below are lent: `core/loans` |
//! | approval | `people/approval`; of the tool of a conversation: `agents/dispatch` |
//! | retry: of a call whose worker was lost | `core/calls` |
//! | retry: of a task, a speaker, an output that a guardrail refused | `graph/execute`, `chat/machine`, `agents/crew_run` |
//! | pause: who holds a run | `people/control` |
//! | pause: what comes in and what is asked for meanwhile | `core/calls` |
//! | cancel | `people/control`; what is under way of a key: `core/calls` |
//! | dependency policy | `graph/schedule` |
//! | authority: what whoever decides may do | `spec/whole` (the spec's), `graph/rules` (the plan's) |
//! | deadline: of the run | `core/account` |
//! | deadline: of a question, an approval, a review, a takeover, a decision | with what it is of, in `people` |
//! | deadline: of a delegation, of missing inputs, of a message that is waited for | `agents/patience`, `graph/schedule`, `team/topics` |
//! | question to a person | `people/interrupts`; of a run below, and whom it is answered by: `people/below`, `run/answers` |
//! | note | `journal`, recorded in `run` |
//! | why something is refused, and in which words | `graph/refusal`, `agents/refusal`, `run/refusal`; else beside what refuses |
//!
//! Invariant: everything here is pure: what happened comes in as recorded results, what shall happen goes out as
//! activities of capabilities. No clock, no disk, no socket, no thread, no randomness, no `HashMap`.

#[doc(hidden)]
pub mod agents;
#[doc(hidden)]
pub mod chat;
#[doc(hidden)]
pub mod core;
#[doc(hidden)]
mod critic;
#[doc(hidden)]
mod execution;
#[doc(hidden)]
pub(crate) mod fields;
#[doc(hidden)]
pub mod graph;
#[doc(hidden)]
pub mod journal;
#[doc(hidden)]
pub mod memory;
#[doc(hidden)]
pub mod model;
#[doc(hidden)]
pub mod outbox;
#[doc(hidden)]
pub mod people;
mod placeholder;
#[doc(hidden)]
mod plan;
#[doc(hidden)]
mod plan_run;
#[doc(hidden)]
mod plan_yaml;
#[doc(hidden)]
pub mod prompts;
#[doc(hidden)]
mod report;
#[doc(hidden)]
pub mod routing;
#[doc(hidden)]
pub mod run;
mod shape;
pub mod spec;
#[doc(hidden)]
pub mod success;
#[doc(hidden)]
mod task;
#[doc(hidden)]
pub mod team;
mod work;
#[doc(hidden)]
mod yaml;

#[doc(hidden)]
pub use critic::CriticVerdict;
#[doc(hidden)]
pub use execution::{AttemptRecord, PlanExecution, ScheduleTask, TaskResult, TaskRun};
#[doc(hidden)]
pub use fields::FieldError;
#[doc(hidden)]
pub use plan::{Plan, PlanError, SeedPlan, TaskItem};
#[doc(hidden)]
pub use plan_run::{INVALID_PLAN, PLAN_FAILED, PLAN_RUN, PlanRun, PlanRunInput, SIGNAL_CANCEL_TASK, register};
#[doc(hidden)]
pub use plan_yaml::{InvalidPlanFile, PLAN_BYTES_MAX, PlanProblem, read_plan};
#[doc(hidden)]
pub use report::{FinalResult, PlanProgress, PlanRunOutput, PlanRunStatus, TaskView};
#[doc(hidden)]
pub use task::{Actor, IllegalTransition, TaskNumber, TaskStatus};
#[doc(hidden)]
pub use yaml::{InvalidYaml, TextPlace};
pub(crate) use yaml::{parse as parse_yaml, place_of};
