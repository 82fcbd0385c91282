//! What a workflow id can be given as: a text from wherever, or an id.
//!
//! Invariant: a text that is no id is an error for whoever asked, and never a panic: ids are often made of what users write.

use super::{InvalidId, WorkflowId};

/// A [`WorkflowId`], or a text that becomes one: `"order-7"`, `format!("order-{n}")`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no workflow id",
    label = "neither a `WorkflowId` nor text",
    note = "write text: `\"order-7\"`, `format!(\"order-{{n}}\")`"
)]
pub trait IntoWorkflowId {
    /// The id. Fails when the text cannot be one: 1 to 255 bytes, no control characters, not `.` or `..`.
    fn into_workflow_id(self) -> Result<WorkflowId, InvalidId>;
}

impl IntoWorkflowId for WorkflowId {
    fn into_workflow_id(self) -> Result<WorkflowId, InvalidId> {
        Ok(self)
    }
}

impl IntoWorkflowId for &WorkflowId {
    fn into_workflow_id(self) -> Result<WorkflowId, InvalidId> {
        Ok(self.clone())
    }
}

impl IntoWorkflowId for &str {
    fn into_workflow_id(self) -> Result<WorkflowId, InvalidId> {
        WorkflowId::new(self)
    }
}

impl IntoWorkflowId for String {
    fn into_workflow_id(self) -> Result<WorkflowId, InvalidId> {
        WorkflowId::new(self)
    }
}

impl IntoWorkflowId for &String {
    fn into_workflow_id(self) -> Result<WorkflowId, InvalidId> {
        WorkflowId::new(self)
    }
}
