//! The data model of every supervisor (supervisors.md §5.5): plain data with an order, no behaviour of a system.
//!
//! Invariant: what is compared is an integer (basis points, micros); what reaches a model or a decision has one order.

mod id;

pub use id::{InvalidTaskId, TaskId};
