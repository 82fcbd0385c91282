//! The data model of every supervisor (supervisors.md §5.5): plain data with an order, no behaviour of a system.
//!
//! Invariant: what is compared is an integer (basis points, micros); what reaches a model or a decision has one order.

mod approval_id;
mod choices;
mod condition;
mod id;
mod instance;
mod metadata;
mod plan;
mod plan_strategy;
mod planned;
mod span;
mod task;

pub use approval_id::ApprovalId;
pub use choices::{Authority, OnExhausted};
pub use condition::{Condition, at};
pub use id::{InvalidTaskId, TaskId};
pub use instance::{AgentInstance, InstanceStatus};
pub use metadata::{
    AskedOfAnother, DoubtedResult, LeftWork, Overflow, PlanMetadata, ReservedName, SaidBeside, TaskMetadata,
    ToolApprovalWanted,
};
pub use plan::{PlanChangeError, PlanOrigin, TaskPlan};
pub use plan_strategy::PlanStrategy;
pub use planned::{Dependency, PlannedEdge, PlannedTask, PlannerOutput, basis_points};
pub(crate) use planned::{dollars, null_is_absent, share};
pub use span::{InvalidSpan, Span};
pub use task::{
    Attempt, AttemptOutcome, CancelReason, DependencyPolicy, Edge, Feedback, FeedbackFrom, Priority, Requires, Risk,
    SkipReason, SupervisorFeedback, Task, TaskError,
};

/// The capability of tasks that a person does: they are asked, and the answer is the result.
pub const HUMAN: &str = "human";
