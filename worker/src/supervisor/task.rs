//! The task machine: which status may follow which, and who may ask for it (supervisors.md §5.2).
//!
//! ```text
//! pending <-> ready -> running -> awaiting_review -> completed
//!               ^         |              |-> needs_revision -> running
//!               |         v              '-> failed
//!               '----- errored -> failed
//! ```
//!
//! Invariant: a terminal status never changes; only the critic (or a human) completes a task that awaits review; a
//! request for the status a task has is a no-op, and every other pair that is not listed is refused. It decides
//! nothing: schedulers do.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The number of a task in its plan. Plans in YAML count tasks, so a number it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TaskNumber(pub u32);

impl fmt::Display for TaskNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Where a task stands. `rerun` and `needs_review` are the names that pydantask plans use for two of them.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum TaskStatus {
    #[default]
    Pending,
    Ready,
    AwaitingApproval,
    Running,
    AwaitingInput,
    #[serde(alias = "needs_review")]
    AwaitingReview,
    #[serde(alias = "rerun")]
    NeedsRevision,
    Errored,
    Blocked,
    Completed,
    Failed,
    Escalated,
    Skipped,
    Cancelled,
}

/// Who asks for a change of status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Actor {
    Scheduler,
    Worker,
    Critic,
    Supervisor,
    Human,
}

/// A change of status that the table does not allow.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("[tasks] illegal status transition for task \"{task}\": {from} -> {to} (asked by the {by})")]
pub struct IllegalTransition {
    pub task: String,
    pub from: TaskStatus,
    pub to: TaskStatus,
    pub by: Actor,
}

impl TaskStatus {
    pub const ALL: [TaskStatus; 14] = [
        TaskStatus::Pending,
        TaskStatus::Ready,
        TaskStatus::AwaitingApproval,
        TaskStatus::Running,
        TaskStatus::AwaitingInput,
        TaskStatus::AwaitingReview,
        TaskStatus::NeedsRevision,
        TaskStatus::Errored,
        TaskStatus::Blocked,
        TaskStatus::Completed,
        TaskStatus::Failed,
        TaskStatus::Escalated,
        TaskStatus::Skipped,
        TaskStatus::Cancelled,
    ];

    pub fn is_terminal(self) -> bool {
        use TaskStatus::*;
        match self {
            Completed | Failed | Escalated | Skipped | Cancelled => true,
            Pending | Ready | AwaitingApproval | Running | AwaitingInput | AwaitingReview | NeedsRevision | Errored
            | Blocked => false,
        }
    }

    /// Whether a worker may be given the task once its dependencies are completed (PDT-13).
    pub fn is_runnable(self) -> bool {
        matches!(self, TaskStatus::Ready | TaskStatus::NeedsRevision)
    }

    /// Whether `by` may move a task from this status to another one.
    pub fn may_become(self, to: TaskStatus, by: Actor) -> bool {
        use TaskStatus::*;
        if self.is_terminal() {
            return false;
        }
        let by_human = by == Actor::Human;
        match to {
            Cancelled => true,
            Completed => match self {
                Running => by_human || by == Actor::Worker,
                AwaitingReview => by_human || by == Actor::Critic,
                Pending | Ready | AwaitingApproval | AwaitingInput | NeedsRevision | Errored | Blocked => by_human,
                Completed | Failed | Escalated | Skipped | Cancelled => false,
            },
            Pending => matches!(self, Ready | Errored | Blocked),
            Ready => matches!(self, Pending | AwaitingApproval | Errored | Running),
            AwaitingApproval => matches!(self, Ready | NeedsRevision),
            Running => matches!(self, Ready | NeedsRevision | AwaitingInput),
            AwaitingInput => matches!(self, Running | AwaitingReview),
            AwaitingReview => matches!(self, Running),
            NeedsRevision => matches!(self, AwaitingApproval | AwaitingReview),
            // A task that cannot be started as it is written (PDT-18, PDT-19) is the scheduler's to say.
            Errored => {
                let unstarted = matches!(self, Pending | Ready | NeedsRevision | Blocked);
                // SHH-18: what an accepted result proposes is carried out before its task is over, and may go wrong.
                let acts = by == Actor::Worker && self == AwaitingReview;
                matches!(self, Running) || acts || (by == Actor::Scheduler && unstarted)
            }
            Blocked => matches!(self, Pending | Ready | NeedsRevision),
            Failed => matches!(self, Pending | Ready | Blocked | AwaitingApproval | Errored | AwaitingReview),
            Escalated => matches!(self, AwaitingReview),
            // SHH-10: a result that a person rejects, or that nobody approves in time, is left out.
            Skipped => {
                matches!(self, Pending | Ready | Blocked | AwaitingApproval | Errored)
                    || (self == AwaitingInput && (by_human || by == Actor::Scheduler))
            }
        }
    }

    /// The new status, or the same one if it is the one asked for, or why not.
    pub fn change(self, task: impl fmt::Display, to: TaskStatus, by: Actor) -> Result<TaskStatus, IllegalTransition> {
        let refused = || IllegalTransition { task: task.to_string(), from: self, to, by };
        if self == to || self.may_become(to, by) { Ok(to) } else { Err(refused()) }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            TaskStatus::Pending => "pending",
            TaskStatus::Ready => "ready",
            TaskStatus::AwaitingApproval => "awaiting_approval",
            TaskStatus::Running => "running",
            TaskStatus::AwaitingInput => "awaiting_input",
            TaskStatus::AwaitingReview => "awaiting_review",
            TaskStatus::NeedsRevision => "needs_revision",
            TaskStatus::Errored => "errored",
            TaskStatus::Blocked => "blocked",
            TaskStatus::Completed => "completed",
            TaskStatus::Failed => "failed",
            TaskStatus::Escalated => "escalated",
            TaskStatus::Skipped => "skipped",
            TaskStatus::Cancelled => "cancelled",
        }
    }

    /// The status of a name as plans write it.
    pub fn from_name(name: &str) -> Option<TaskStatus> {
        match name {
            "needs_review" => Some(TaskStatus::AwaitingReview),
            "rerun" => Some(TaskStatus::NeedsRevision),
            name => TaskStatus::ALL.into_iter().find(|status| status.as_str() == name),
        }
    }
}

impl fmt::Display for TaskStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Actor::Scheduler => "scheduler",
            Actor::Worker => "worker",
            Actor::Critic => "critic",
            Actor::Supervisor => "supervisor",
            Actor::Human => "human",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The whole table of §5.2 as text: a change of behaviour shows up here.
    /// `x` is for everybody; `w`, `c` for the worker, the critic (and a human); `h` for a human only; `t` for a human, or the
    /// scheduler when the human's time is over; `s` for the scheduler;
    /// `d` for the worker alone.
    const TABLE: &str = "
pending            ready errored:s blocked completed:h failed skipped cancelled
ready              pending awaiting_approval running errored:s blocked completed:h failed skipped cancelled
awaiting_approval  ready needs_revision completed:h failed skipped cancelled
running            ready awaiting_input awaiting_review errored completed:w cancelled
awaiting_input     running completed:h skipped:t cancelled
awaiting_review    awaiting_input needs_revision errored:d completed:c failed escalated cancelled
needs_revision     awaiting_approval running errored:s blocked completed:h cancelled
errored            pending ready completed:h failed skipped cancelled
blocked            pending errored:s completed:h failed skipped cancelled
completed
failed
escalated
skipped
cancelled
";

    fn who(from: TaskStatus, to: TaskStatus) -> Option<&'static str> {
        let allowed = |by| from.may_become(to, by);
        let actors = [Actor::Scheduler, Actor::Worker, Actor::Critic, Actor::Supervisor, Actor::Human];
        match actors.map(allowed) {
            [true, true, true, true, true] => Some(""),
            [true, false, false, false, false] => Some(":s"),
            [false, true, false, false, true] => Some(":w"),
            [false, false, true, false, true] => Some(":c"),
            [false, true, false, false, false] => Some(":d"),
            [false, false, false, false, true] => Some(":h"),
            [true, false, false, false, true] => Some(":t"),
            [false, false, false, false, false] => None,
            other => panic!("{from} -> {to}: {other:?}"),
        }
    }

    /// PDT-12, PDT-25: terminal statuses are final, and only the critic or a human approves a result.
    #[test]
    fn the_transition_table_is_the_specified_one() {
        let mut table = String::from("\n");
        for from in TaskStatus::ALL {
            let targets: Vec<String> = TaskStatus::ALL
                .into_iter()
                .filter_map(|to| who(from, to).filter(|_| to != from).map(|who| format!("{to}{who}")))
                .collect();
            table += format!("{:<18} {}", from.as_str(), targets.join(" ")).trim_end();
            table.push('\n');
        }
        assert_eq!(table, TABLE);
    }

    #[test]
    fn an_illegal_change_says_who_wanted_what() {
        let why = TaskStatus::Completed.change(TaskNumber(3), TaskStatus::Running, Actor::Supervisor).unwrap_err();
        assert_eq!(
            why.to_string(),
            "[tasks] illegal status transition for task \"3\": completed -> running (asked by the supervisor)"
        );
    }

    #[test]
    fn asking_for_the_same_status_changes_nothing() {
        for status in TaskStatus::ALL {
            assert_eq!(status.change(TaskNumber(1), status, Actor::Scheduler), Ok(status));
        }
    }

    /// PDT-12: the names of pydantask plans are understood.
    #[test]
    fn every_status_has_one_name_and_two_have_an_older_one() {
        for status in TaskStatus::ALL {
            assert_eq!(TaskStatus::from_name(status.as_str()), Some(status));
            assert_eq!(serde_json::to_value(status).unwrap(), status.as_str());
        }
        assert_eq!(TaskStatus::from_name("needs_review"), Some(TaskStatus::AwaitingReview));
        assert_eq!(TaskStatus::from_name("rerun"), Some(TaskStatus::NeedsRevision));
        assert_eq!(TaskStatus::from_name("done"), None);
    }
}
