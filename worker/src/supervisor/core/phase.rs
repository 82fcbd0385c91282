//! The run machine: in which phase a supervisor is, and which may follow (supervisors.md §5.4).
//!
//! Invariant: a terminal phase never changes; what is not in the table is refused and changes nothing. Pausing and human
//! control are no phases: they hold a run in the phase it is in.

use std::fmt;

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    #[default]
    Created,
    Planning,
    AwaitingPlanApproval,
    Executing,
    Reviewing,
    Replanning,
    Synthesizing,
    /// Undoing what was done, because the run is cancelled.
    Compensating,
    Completed,
    /// Finished, with failures that are listed.
    Partial,
    Failed,
    Cancelled,
    TimedOut,
}

/// A change of phase that the table does not allow.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("illegal phase transition: {from} -> {to}")]
pub struct IllegalPhase {
    pub from: Phase,
    pub to: Phase,
}

impl Phase {
    pub const ALL: [Phase; 13] = [
        Phase::Created,
        Phase::Planning,
        Phase::AwaitingPlanApproval,
        Phase::Executing,
        Phase::Reviewing,
        Phase::Replanning,
        Phase::Synthesizing,
        Phase::Compensating,
        Phase::Completed,
        Phase::Partial,
        Phase::Failed,
        Phase::Cancelled,
        Phase::TimedOut,
    ];

    pub fn is_terminal(self) -> bool {
        use Phase::*;
        matches!(self, Completed | Partial | Failed | Cancelled | TimedOut)
    }

    pub fn may_become(self, to: Phase) -> bool {
        use Phase::*;
        if self.is_terminal() {
            return false;
        }
        match to {
            Created => false,
            Planning => matches!(self, Created),
            AwaitingPlanApproval => matches!(self, Created | Planning | Replanning),
            Executing => matches!(self, Created | Planning | AwaitingPlanApproval | Replanning | Reviewing),
            Reviewing => matches!(self, Executing),
            Replanning => matches!(self, Executing | Reviewing),
            Synthesizing => matches!(self, Planning | Executing | Reviewing | Replanning),
            Completed | Partial => matches!(self, Planning | Executing | Reviewing | Replanning | Synthesizing),
            Compensating => self != Compensating,
            Failed | TimedOut => self != Compensating,
            Cancelled => true,
        }
    }

    /// The new phase, or the same one if it is the one asked for, or why not.
    pub fn change(self, to: Phase) -> Result<Phase, IllegalPhase> {
        if self == to || self.may_become(to) { Ok(to) } else { Err(IllegalPhase { from: self, to }) }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Phase::Created => "created",
            Phase::Planning => "planning",
            Phase::AwaitingPlanApproval => "awaiting_plan_approval",
            Phase::Executing => "executing",
            Phase::Reviewing => "reviewing",
            Phase::Replanning => "replanning",
            Phase::Synthesizing => "synthesizing",
            Phase::Compensating => "compensating",
            Phase::Completed => "completed",
            Phase::Partial => "partial",
            Phase::Failed => "failed",
            Phase::Cancelled => "cancelled",
            Phase::TimedOut => "timed_out",
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "
created                planning awaiting_plan_approval executing compensating failed cancelled timed_out
planning               awaiting_plan_approval executing synthesizing compensating completed partial failed cancelled timed_out
awaiting_plan_approval executing compensating failed cancelled timed_out
executing              reviewing replanning synthesizing compensating completed partial failed cancelled timed_out
reviewing              executing replanning synthesizing compensating completed partial failed cancelled timed_out
replanning             awaiting_plan_approval executing synthesizing compensating completed partial failed cancelled timed_out
synthesizing           compensating completed partial failed cancelled timed_out
compensating           cancelled
completed
partial
failed
cancelled
timed_out
";

    /// The whole table of §5.4 as text: a change of behaviour shows up here.
    #[test]
    fn the_phase_table_is_the_specified_one() {
        let mut table = String::from("\n");
        for from in Phase::ALL {
            let targets: Vec<&str> =
                Phase::ALL.into_iter().filter(|to| from.may_become(*to)).map(Phase::as_str).collect();
            table += format!("{:<22} {}", from.as_str(), targets.join(" ")).trim_end();
            table.push('\n');
            assert_eq!(from.change(from), Ok(from), "asking for the same phase changes nothing");
        }
        assert_eq!(table, TABLE);
        let why = Phase::Completed.change(Phase::Executing).unwrap_err();
        assert_eq!(why.to_string(), "illegal phase transition: completed -> executing");
    }
}
