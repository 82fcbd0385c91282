//! What comes back for a call, whoever was called.
//!
//! Invariant: an answer is the data that the callee gave, or a failure with a kind that the caller can match on. The caller
//! decides what it means.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Why a call gave no answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct CallFailure {
    pub kind: CallFailureKind,
    pub message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallFailureKind {
    /// The agent said so, or broke.
    Error,
    Timeout,
    /// Asked for by this run.
    Canceled,
    /// A person said no to what a run below had to do, or nobody anything in time: asking again would ask them again.
    Rejected,
    /// The same, where it is known that it was a person: nobody plans it again either.
    SaidNo,
    /// The same beside what else went wrong there.
    SaidNoBeside,
    /// Somebody has cancelled the run below, which is their no to all of it.
    CancelledBelow,
    /// The reviewer of a run below has handed its work upward: people look at it, and nobody does it again (FSS-25).
    HandedUp,
    /// A person did not let the work begin.
    Denied,
    /// What it was given of the budget of this run is used up, and there was no more: its work is left out, and is no fault of
    /// whoever did it.
    Spent,
    /// Asking again would give the same.
    Hopeless,
    /// The same, as the service says that was asked: the rule for failed tasks counts.
    Final,
    /// The process that ran it is gone, and its retries are used up.
    WorkerLost,
}

impl CallFailure {
    pub fn error(message: impl Into<String>) -> Self {
        CallFailure { kind: CallFailureKind::Error, message: message.into() }
    }
    pub fn denied(message: impl Into<String>) -> Self {
        CallFailure { kind: CallFailureKind::Denied, message: message.into() }
    }
}

/// What comes back for a call.
pub type Answer = Result<Value, CallFailure>;
