//! Defects of workflow code: what only other code can put right.
//!
//! Invariant: a defect is no failure of the workflow. It is told of a turn of which nothing has been written, so that the
//! run can go on from the event before with mended code. Whether it holds the run or fails it is a [`DefectPolicy`].

use std::fmt;

use super::WorkflowType;

/// What becomes of a run whose code has a defect. In Temporal's Go SDK this is the `WorkflowPanicPolicy`
/// (`BlockWorkflow` and `FailWorkflow`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DefectPolicy {
    /// The run is held: nothing of the turn is written, inputs are kept, and it goes on with mended code.
    #[default]
    Hold,
    /// The run fails with a failure that tells of the defect, and its retry policy decides what comes next.
    Fail,
}

/// Why workflow code could not take its turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkflowDefect {
    /// It panicked; the message ends with the place, `(at src/flows.rs:12:5)`.
    Panic { message: String },
    /// The input of the run is not of the type as which the code reads it.
    UnreadableInput { workflow_type: WorkflowType, why: String },
    /// What was recorded is not of the type as which the code reads it.
    Undecodable { what: String, why: String },
    /// It waits for something that is not of the workflow context, or was woken from outside.
    ForeignFuture { why: String },
}

impl WorkflowDefect {
    /// The code of all defects in messages, for `explain`.
    pub const CODE: &'static str = "BOSUN0102";

    /// In a few words, for a title.
    pub fn title(&self) -> &'static str {
        match self {
            WorkflowDefect::Panic { .. } => "workflow code panicked",
            WorkflowDefect::UnreadableInput { .. } => "workflow code cannot read its input",
            WorkflowDefect::Undecodable { .. } => "workflow code cannot read a payload",
            WorkflowDefect::ForeignFuture { .. } => "workflow code waits for something outside of its context",
        }
    }
    /// What to do about it.
    pub fn help(&self) -> &'static str {
        match self {
            WorkflowDefect::Panic { .. } => "mend the code that panics",
            WorkflowDefect::UnreadableInput { .. } | WorkflowDefect::Undecodable { .. } => {
                "give the code a type that reads what was recorded"
            }
            WorkflowDefect::ForeignFuture { .. } => {
                "use the activities, timers, signals and channels of the workflow context"
            }
        }
    }
}

impl fmt::Display for WorkflowDefect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WorkflowDefect::Panic { message } => f.write_str(message),
            WorkflowDefect::UnreadableInput { workflow_type, why } => {
                write!(f, "the input of the workflow {workflow_type} cannot be read: {why}")
            }
            WorkflowDefect::Undecodable { what, why } => write!(f, "{what} cannot be read: {why}"),
            WorkflowDefect::ForeignFuture { why } => f.write_str(why),
        }
    }
}
