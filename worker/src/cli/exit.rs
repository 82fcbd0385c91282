//! The exit codes: a contract with scripts (the requirements of operating §1.1).
//!
//! Invariant: a code never changes its meaning. clap owns 2. Which code a refusal has stands in `explain`, which code an
//! outcome has stands here.

use std::process::ExitCode;

use bosun_engine::{CloseOutcome, WorkflowStatus};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    Ok,
    Error,
    Usage,
    WorkflowFailed,
    WorkflowTimedOut,
    WorkflowCanceled,
    WorkflowTerminated,
    BudgetExhausted,
    WaitingOnHuman,
    NonDeterminism,
    HistoryUnreadable,
    /// `bosun diff`: not an error, but not the same either.
    Differ,
    NotFound,
    /// The store is locked or the worker does not answer.
    Unreachable,
    Refused,
    /// A worker left because its log failed (the `EX_IOERR` of sysexits.h); start it again once the disk is well.
    StorageFailed,
    Interrupted,
    /// A second SIGTERM ended a worker before its drain had.
    Killed,
}

/// Every code with its number and meaning, as `bosun explain exit-codes` shows it.
pub const EXITS: &[(Exit, u8, &str)] = &[
    (Exit::Ok, 0, "ok"),
    (Exit::Error, 1, "error"),
    (Exit::Usage, 2, "usage: the command line is wrong"),
    (Exit::WorkflowFailed, 10, "the workflow failed"),
    (Exit::WorkflowTimedOut, 11, "the workflow timed out"),
    (Exit::WorkflowCanceled, 12, "the workflow was canceled"),
    (Exit::WorkflowTerminated, 13, "the workflow was terminated"),
    (Exit::BudgetExhausted, 14, "the budget is exhausted and the workflow is paused"),
    (Exit::WaitingOnHuman, 15, "the workflow waits for a human (with --no-wait)"),
    (Exit::NonDeterminism, 20, "non-determinism: the workflow code does not fit the history"),
    (Exit::HistoryUnreadable, 21, "the history or the store is damaged or of an unsupported version"),
    (Exit::Differ, 22, "the two histories differ (bosun diff)"),
    (Exit::NotFound, 30, "not found"),
    (Exit::Unreachable, 31, "the store is locked, or the worker cannot be reached"),
    (Exit::Refused, 32, "refused by policy"),
    (Exit::StorageFailed, 74, "a worker left because its log failed"),
    (Exit::Interrupted, 130, "interrupted (SIGINT)"),
    (Exit::Killed, 143, "a second SIGTERM ended a worker at once"),
];

impl Exit {
    pub fn number(self) -> u8 {
        EXITS.iter().find(|(exit, ..)| *exit == self).map_or(1, |(_, number, _)| *number)
    }

    /// How waiting for a run ends.
    pub fn of_outcome(outcome: &CloseOutcome) -> Exit {
        match outcome.status() {
            WorkflowStatus::Failed => Exit::WorkflowFailed,
            WorkflowStatus::TimedOut => Exit::WorkflowTimedOut,
            WorkflowStatus::Canceled => Exit::WorkflowCanceled,
            WorkflowStatus::Terminated => Exit::WorkflowTerminated,
            // Open ones are no outcome; a run that continued as new has done its part.
            WorkflowStatus::Completed
            | WorkflowStatus::ContinuedAsNew
            | WorkflowStatus::Running
            | WorkflowStatus::Paused => Exit::Ok,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit.number())
    }
}

#[cfg(test)]
mod tests {
    use bosun_engine::{Failure, Payload, WorkflowTimeout};

    use super::*;

    #[test]
    fn the_exit_codes_are_those_of_the_contract() {
        let numbers: Vec<u8> = EXITS.iter().map(|(exit, ..)| exit.number()).collect();
        assert_eq!(numbers, [0, 1, 2, 10, 11, 12, 13, 14, 15, 20, 21, 22, 30, 31, 32, 74, 130, 143]);
        assert_eq!(EXITS.last().map(|(exit, ..)| *exit), Some(Exit::Killed), "the table ends with the last variant");
    }

    #[test]
    fn every_way_a_run_can_close_has_its_code() {
        let code = |outcome| Exit::of_outcome(&outcome).number();
        assert_eq!(code(CloseOutcome::Completed(Payload::null())), 0);
        assert_eq!(code(CloseOutcome::Failed(Failure::application("A", "b"))), 10);
        assert_eq!(code(CloseOutcome::TimedOut(WorkflowTimeout::Run)), 11);
        assert_eq!(code(CloseOutcome::Canceled(None)), 12);
        assert_eq!(code(CloseOutcome::Terminated { reason: String::new() }), 13);
    }
}
