//! Batches: one thing done to every run that a list filter finds, durably (E23, E26).
//!
//! ```text
//!   order ──► run: the workflow `bosun.batch` ──activity──► find a page of runs, recorded in the history
//!     what a person asks         ▲      │
//!                                │      └────activity──► carry out: each run of the page, under a request id of its own
//!                                └──────────── done, skipped and failed ones, with reasons
//! ```
//!
//! A batch is itself a run: it lives in the same log, goes on after kill -9, and is replayed and shown like any other. Which
//! runs it touches is found page by page, the newest first, among those that were there when it began, and is recorded before
//! any of them is touched. So a page that is carried out again after a crash is the same page; and whatever is done to a run is
//! told apart by a request id, or by a reason that names the batch, so that it is done once.
//!
//! | what | where |
//! |---|---|
//! | what a person asks, what is wrong with it, what is counted | `order` |
//! | the workflow | `run` |
//! | the two activities, and how a run is touched once | `carry_out` |
//! | whose an id is that is taken | `begun` |
//!
//! Invariant: `order` and `run` are pure. A batch may do what whoever asked for it may do, and nothing else: every call goes
//! through the backend of that caller.

use bosun_engine::WorkflowStatus;
use serde_json::Value;

pub(crate) mod begun;
#[doc(hidden)]
pub mod carry_out;
#[doc(hidden)]
pub mod order;
#[doc(hidden)]
pub mod run;

#[doc(hidden)]
pub use order::{BatchAction, BatchOrder};
#[doc(hidden)]
pub use run::{BATCH, register};

/// What the workflow id of a batch begins with.
pub const ID_PREFIX: &str = "batch:";

/// What a batch says of itself, with how it stands: one that was ended before it could say so says that it is running.
pub(crate) fn as_it_stands(status: WorkflowStatus, mut described: Value) -> Value {
    let word = match status {
        WorkflowStatus::Running | WorkflowStatus::Completed | WorkflowStatus::ContinuedAsNew => return described,
        WorkflowStatus::Paused => "paused",
        WorkflowStatus::Failed => "failed",
        WorkflowStatus::Canceled => "canceled",
        WorkflowStatus::Terminated => "terminated",
        WorkflowStatus::TimedOut => "timed_out",
    };
    if described.is_object() {
        described["state"] = word.into();
    }
    described
}
