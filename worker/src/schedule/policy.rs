//! Overlap: what becomes of a start while others of the same schedule are under way.
//!
//! Invariant: the answer depends on the policy and two numbers. All runs of the schedule count, however they were begun, so
//! that nothing overlaps that was not told to.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Starts that wait at most; as Temporal.
pub const WAITING_MAX: usize = 1_000;

/// Temporal's overlap policies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Overlap {
    /// Not started (default).
    #[default]
    Skip,
    /// Waits for the end of the others; one at most.
    BufferOne,
    /// Waits for the end of the others.
    BufferAll,
    /// Asks the others to cancel, and starts when they have ended; what waited before it is left out.
    CancelOther,
    /// Ends the others at once, and starts; what waited before it is left out.
    TerminateOther,
    /// Starts.
    AllowAll,
}

impl Overlap {
    /// As it is written in specs.
    pub fn name(self) -> &'static str {
        match self {
            Overlap::Skip => "skip",
            Overlap::BufferOne => "buffer_one",
            Overlap::BufferAll => "buffer_all",
            Overlap::CancelOther => "cancel_other",
            Overlap::TerminateOther => "terminate_other",
            Overlap::AllowAll => "allow_all",
        }
    }
}

/// How the others are ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HowToEnd {
    Cancel,
    Terminate,
}

/// What is done with a start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OverlapVerdict {
    Start,
    Skip,
    Wait,
    /// There is no room to wait in.
    Drop,
    /// Waits alone, and the others are ended.
    WaitAlone(HowToEnd),
}

/// `running` and `waiting` are those of the same schedule.
pub fn decide(overlap: Overlap, running: usize, waiting: usize) -> OverlapVerdict {
    match overlap {
        Overlap::AllowAll => OverlapVerdict::Start,
        _ if running == 0 && waiting == 0 => OverlapVerdict::Start,
        Overlap::Skip => OverlapVerdict::Skip,
        Overlap::BufferOne if waiting > 0 => OverlapVerdict::Skip,
        Overlap::BufferOne => OverlapVerdict::Wait,
        Overlap::BufferAll if waiting >= WAITING_MAX => OverlapVerdict::Drop,
        Overlap::BufferAll => OverlapVerdict::Wait,
        Overlap::CancelOther => OverlapVerdict::WaitAlone(HowToEnd::Cancel),
        Overlap::TerminateOther => OverlapVerdict::WaitAlone(HowToEnd::Terminate),
    }
}
