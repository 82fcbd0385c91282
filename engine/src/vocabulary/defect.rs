//! Defects of workflow code: what only other code can put right.
//!
//! Invariant: a defect is no failure of the workflow. It is told of a turn of which nothing has been written, so that the
//! run can go on from the event before with mended code. Whether it holds the run or fails it is a [`DefectPolicy`].

use std::fmt;

use super::{FAILURE_PAYLOAD, Failure, WorkflowType};

/// The failure type of workflow code that waits for something that is not of its context.
pub const FAILURE_FOREIGN_FUTURE: &str = "ForeignFuture";

/// The failure type of a condition of `wait_until` that changed the workflow.
pub const FAILURE_CONDITION_MUTATED: &str = "ConditionMutated";

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
    Panic {
        /// What the panic said.
        message: String,
    },
    /// The input of the run is not of the type as which the code reads it.
    UnreadableInput {
        /// The code that was to read it.
        workflow_type: WorkflowType,
        /// What the decoder said.
        why: String,
    },
    /// What was recorded is not of the type as which the code reads it.
    Undecodable {
        /// Which payload, in words.
        what: String,
        /// What the decoder said.
        why: String,
    },
    /// A value that it gives away (an input, a result) cannot be written as a payload.
    Unencodable {
        /// What the encoder said, and of which type the value is.
        why: String,
    },
    /// It waits for something that is not of the workflow context, or was woken from outside.
    ForeignFuture {
        /// What was awaited and where, as far as it is known.
        why: String,
    },
    /// A condition of `wait_until` asked for something to happen: it must only look.
    ConditionMutated {
        /// What the condition changed.
        what: String,
    },
}

impl WorkflowDefect {
    /// The code of all defects in messages, for `explain`.
    pub const CODE: &'static str = "BOSUN0102";

    /// The failure of a run under [`DefectPolicy::Fail`], and what the sender of an update hears of a held one.
    pub fn failure(&self) -> Failure {
        let failure_type = match self {
            WorkflowDefect::Panic { message } => return Failure::panic(message.clone()),
            WorkflowDefect::UnreadableInput { .. }
            | WorkflowDefect::Undecodable { .. }
            | WorkflowDefect::Unencodable { .. } => FAILURE_PAYLOAD,
            WorkflowDefect::ForeignFuture { .. } => FAILURE_FOREIGN_FUTURE,
            WorkflowDefect::ConditionMutated { .. } => FAILURE_CONDITION_MUTATED,
        };
        Failure::application(failure_type, self.to_string()).non_retryable()
    }
    /// In a few words, for a title.
    pub fn title(&self) -> &'static str {
        match self {
            WorkflowDefect::Panic { .. } => "workflow code panicked",
            WorkflowDefect::UnreadableInput { .. } => "workflow code cannot read its input",
            WorkflowDefect::Undecodable { .. } => "workflow code cannot read a payload",
            WorkflowDefect::Unencodable { .. } => "workflow code cannot write a payload",
            WorkflowDefect::ForeignFuture { .. } => "workflow code waits for something outside of its context",
            WorkflowDefect::ConditionMutated { .. } => "a condition changed the workflow",
        }
    }
    /// What to do about it.
    pub fn help(&self) -> &'static str {
        match self {
            WorkflowDefect::Panic { .. } => "mend the code that panics",
            WorkflowDefect::UnreadableInput { .. } | WorkflowDefect::Undecodable { .. } => {
                "give the code a type that reads what was recorded"
            }
            WorkflowDefect::Unencodable { .. } => {
                "give the code a type that JSON can hold: the keys of its maps must be text or numbers, for example"
            }
            WorkflowDefect::ForeignFuture { .. } => {
                "use the activities, timers, signals and channels of the workflow context"
            }
            WorkflowDefect::ConditionMutated { .. } => {
                "let the condition only read, and change the state outside of it"
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
            WorkflowDefect::Unencodable { why } | WorkflowDefect::ForeignFuture { why } => f.write_str(why),
            WorkflowDefect::ConditionMutated { what } => {
                write!(f, "a condition of wait_until changed the workflow: {what}; conditions must only read")
            }
        }
    }
}
