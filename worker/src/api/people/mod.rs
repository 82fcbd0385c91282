//! The HTTP API for people and their programs: plain JSON in and out, in Temporal's words, under `/api/v1`.
//!
//! ```text
//!   curl -H "Authorization: Bearer $(cat DIR/token)" -d '{"workflow_type": "order-saga", "input": {…}}' …/api/v1/workflows
//! ```
//!
//! Invariant: what is left out has the command line's default; all that is wrong with a body is told at once, each with its
//! place; a request with an `Idempotency-Key` is carried out once however often it is sent. Every route stands in the one
//! table of `routes`, and the document of `openapi` is made from it. Nothing here decides about a run.

mod approvals;
mod body;
mod handlers;
mod openapi;
mod start;
mod view;

pub use approvals::{answer, approvals};
pub use handlers::{
    cancel, delete, describe, history, list, pause, query, result, resume, signal, start, terminate, update,
};
pub use openapi::openapi;
