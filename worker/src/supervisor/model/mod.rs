//! The data model of every supervisor (supervisors.md §5.5): plain data with an order, no behaviour of a system.
//!
//! Invariant: what is compared is an integer (basis points, micros); what reaches a model or a decision has one order.

mod condition;
mod id;
mod metadata;
mod plan;
mod task;

pub use condition::{Condition, at};
pub use id::{InvalidTaskId, TaskId};
pub use metadata::{
    AskedOfAnother, DoubtedResult, Overflow, PlanMetadata, ReservedName, SaidBeside, TaskMetadata, ToolApprovalWanted,
};
pub use plan::{PlanChangeError, PlanOrigin, TaskPlan};
pub use task::{
    Attempt, AttemptOutcome, CancelReason, DependencyPolicy, Edge, Feedback, FeedbackFrom, Priority, Requires, Risk,
    SkipReason, SupervisorFeedback, Task, TaskError,
};
