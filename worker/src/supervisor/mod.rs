//! Supervisors: workflows that manage agents, commands and people.
//!
//! ```text
//!   spec ──► run (the workflow, routes) ──► strategy: graph | chat | agents
//!                 │    ▲                         ▲ gates
//!                 │    └── core (every rule) ────┤ exhausted, awaited
//!                 └──► people · team · memory ───┘        all speak through outbox (asks) and journal (notes)
//! ```
//!
//! Rooms stand on each other, from `model` (the data) and `core` up to `run`, and no arrow leads back: the tidy test has the
//! list (`ROOMS`), and the core compiles with nothing but what is below it (`worker/tests/core`). What a run wants of the
//! strategy it follows it asks by `core/strategy` and `core/plan_control`. A family is named in `run` where the strategy is
//! made, and where its answers are read and shown in its words: the tidy test has the list (`FAMILY_WORDS`).
//!
//! `spec` says what a run is told; `run` is the workflow; `core` holds what no family may have a copy of; `graph` carries
//! plans of tasks, `chat` conversations, `agents` agents that call tools; `people`, `team`, `memory` and `routing` are what
//! all share; `model` is the data. A plan file is carried out by the same run and graph: `plan_run` gives them the values and
//! shows the report.
//!
//! Where the requirements live (shared/requirements/supervisors.md). The numbers of a system are in `spec/preset`, its keys
//! in `spec/sections`, its conditions in `spec/check`; what its rules do is here:
//!
//! | rows | system | modules |
//! |---|---|---|
//! | PDT | pydantask | `graph/{decide,tools,review,worker_asks}`; plan files: `plan`, `plan_yaml`, `plan_task`, `plan_run` |
//! | FSS | flow-state's supervisor | `graph/{iterate,flow,synthesis}`; its pieces for programs: `blocks` |
//! | FSP | flow-state's Plan and Execute | `graph/iterate` (the evaluator) |
//! | FSC | flow-state's coordinator | `graph/{schedule,finish}` (the merge) |
//! | CUG | CUGA, plans | `spec/choice`, `graph/{decide,policies,standing,upfront}`, `people/plan_review`, `run/progress` |
//! | CUG | CUGA, conversations | `agents/{delegation,memory,todos}`, `standing`, `spec/foreign/cuga` |
//! | SHN | Shannon | `routing`, `run/children`, `team`, `memory`, `core/control`, `graph/{finish,synthesis}` |
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
//! Where a rule lives: one place each. Strategies give values (how often, how long, what is granted) and choose what is
//! wanted when a rule says no; they hold no copy of what a rule counts or keeps.
//!
//! | rule | module |
//! |---|---|
//! | budget: what may be asked for, what was spent | `core/account`, which `run/asks` asks before every call |
//! | loan: what runs below get of the budget | `core/loans` |
//! | call: under way, delivered again, put off, held while the run stands still | `core/calls` |
//! | what is waited for, and every deadline: of the run, a decision, a delegation, missing inputs, an answer of a person | `core/awaited` |
//! | retry: of a task, a review, a synthesis, a speaker, a selection, a guardrail, a progress ledger, a controller's decision, a person's choice, a call whose worker was lost | `core/retry` |
//! | verdict by the rules a task was written with | `critic`, which `graph/review` asks |
//! | pause, takeover, cancel | `core/control` |
//! | time of one call | `run/work` |
//! | authority: what whoever decides may do | `core/authority` |
//! | what people, the team and decided approvals do to a plan | `core/plan_control`, which a plan answers |
//! | who has asked people, and what silence means | `core/question` |
//! | people before work that is no task of a plan: a turn, a delegation, a hand-off, a tool | `core/gate`, which `run/asks` asks before every call of a conversation |
//! | people before a task of a plan starts | `graph/people`, by `run/parts` |
//! | what needs an approval: by its action, risk, cost, confidence | `people/escalation` |
//! | how much may be done without asking, and how that grows | `people/trust`, kept by `people/autonomy` |
//! | approval of a plan, a task, a result, a recruit; of a tool of a task's agent, before the task starts | `people/approval` |
//! | question to a person; one of them is whether a tool may be called that a policy holds back | `people/interrupts` |
//! | review of a plan by a person | `people/plan_review` |
//! | what runs below wait for, and whom an answer is passed on to | `people/below` |
//! | dependency policy | `graph/schedule` |
//! | note | `journal`, recorded in `run` |
//! | why something is refused, and in which words | the file refusal of each room; else beside what refuses |
//!
//! Invariant: everything here is pure: what happened comes in as recorded results, what shall happen goes out as
//! activities of capabilities. No clock, no disk, no socket, no thread, no randomness, no `HashMap`.

#[doc(hidden)]
pub mod agents;
pub mod blocks;
#[doc(hidden)]
pub mod chat;
#[doc(hidden)]
pub mod core;
#[doc(hidden)]
mod critic;
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
pub mod native;
#[doc(hidden)]
pub mod outbox;
#[doc(hidden)]
pub mod people;
mod placeholder;
#[doc(hidden)]
mod plan;
#[doc(hidden)]
mod plan_run;
mod plan_task;
#[doc(hidden)]
mod plan_yaml;
#[doc(hidden)]
pub mod prompts;
#[doc(hidden)]
pub mod reading;
#[doc(hidden)]
mod report;
#[doc(hidden)]
pub mod routing;
#[doc(hidden)]
pub mod run;
mod shape;
pub mod spec;
pub mod spec_schema;
#[doc(hidden)]
pub mod standing;
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
