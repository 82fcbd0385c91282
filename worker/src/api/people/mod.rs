//! The HTTP API for people and their programs: plain JSON in and out, in Temporal's words, under `/api/v1`.
//!
//! ```text
//!   curl -H "Authorization: Bearer $(cat DIR/token)" -d '{"workflow_type": "order-saga", "input": {…}}' …/api/v1/workflows
//! ```
//!
//! Invariant: what is left out has the command line's default; all that is wrong with a body is told at once, each with its
//! place; a start, signal, update, cancel or answer with an `Idempotency-Key` is carried out once however often it is sent,
//! and so is the pause or resume of a supervisor or an agent; another request under the same key is refused (`once`). Every route stands in the one table of `routes`, and the
//! document of `openapi` is made from it. Nothing here decides about a run.

mod activities;
pub(crate) mod agents;
mod approvals;
mod batches;
mod body;
mod budget;
pub(crate) mod fork;
mod handlers;
mod history;
mod input_place;
mod known;
mod once;
mod openapi;
pub(crate) mod pages;
pub(crate) mod queries;
mod queues;
mod reset;
mod schedule_schema;
pub(crate) mod schedules;
mod sse;
mod standalone;
mod start;
mod view;
mod worker;

pub use activities::{complete_activity, pause_activity, resume_activity, update_activity};
pub use agents::agents;
pub use approvals::{answer, approvals};
pub use batches::{batch, batches, start_batch, stop_batch};
pub use budget::top_up;
pub(crate) use budget::top_up_refused;
pub use fork::fork;
pub use handlers::{
    cancel, count, delete, describe, list, pause, pause_execution, query, result, resume, resume_execution, signal,
    start, terminate, update, update_result,
};
pub(crate) use handlers::{pause_run, release_run, resume_run};
pub(crate) use history::file as history_file;
pub use history::{export, history, state};
pub(crate) use known::{UnknownField, unknown_field, unknown_in};
pub(crate) use once::{left_by, other_than_first};
pub use openapi::{about, openapi};
pub(crate) use pages::{Cursor, page as page_of_runs, page_of, parse as filter_of, without_notifications};
pub(crate) use queries::ask;
pub use queues::{queue, queues};
pub use reset::reset;
pub use schedules::{
    backfill_schedule, create_schedule, delete_schedule, pause_schedule, schedule, schedules, trigger_schedule,
    unpause_schedule, update_schedule,
};
pub use sse::{events, run_events};
pub use standalone::{cancel_standalone, standalone_activity, standalone_result, start_activity};
pub(crate) use view::{plain, unwrapped};
pub use worker::{backup, store, verify, worker};
