//! What a run may claim at its end: the one place that judges how a run of any family has ended.
//!
//! Invariant: a run is a success only if at least one thing was done by a call or a person, and everything else that was
//! planned is done, needs to be done by nobody any more, or is excused by a rule of the spec. A task that no call did is
//! never counted as done. It is pure, and asks nobody.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::core::phase::Phase;
use super::model::{CancelReason, SkipReason, Task, TaskId, TaskPlan};
use super::task::TaskStatus;

/// `kind` of the error of a task that a new plan left out before anybody had tried it, or after its work was rejected.
pub const DROPPED: &str = "dropped";

/// How one task stands, as far as the claim goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskOutcome {
    /// A call or a person did it.
    Done,
    /// Nobody has to do it any more: another task took its place, or who decides said that it is not needed.
    Settled,
    /// It was not done, and a rule of the spec lets the run go without it. It is listed.
    Excused,
    /// It was not done. It is listed.
    Open,
}

/// The rules of a spec that excuse a task.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Excuses {
    /// `failure.on_subtask_error: skip` or `retry`: a task that gives nothing is left out (FSS-16, FSS-18).
    pub skipped_errors: bool,
    /// `failure.threshold_bp`: so many may fail; of more the run would have been aborted (SHN-34).
    pub failures_below_threshold: bool,
    /// `synthesis.mode: final_task`: without the final task there is no success (PDT-08, PDT-10).
    pub final_task_counts: bool,
    /// Who decides has said that all is done, and the final task is: what else is open was judged (PDT-08). Where nobody said
    /// so, a final task that is done excuses nothing.
    pub judged_done: bool,
}

/// What a run says of its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// `Completed`, `Partial` or `Failed`.
    pub phase: Phase,
    pub success: bool,
}

/// How the tasks of a plan stand.
pub fn standings(plan: &TaskPlan, excuses: Excuses) -> BTreeMap<TaskId, TaskOutcome> {
    let mut standings: BTreeMap<TaskId, TaskOutcome> =
        plan.tasks.values().map(|task| (task.id.clone(), standing(task, excuses))).collect();
    let mut dependents: BTreeMap<&TaskId, Vec<&Task>> = BTreeMap::new();
    for task in plan.tasks.values().filter(|task| waited_in_vain(task)) {
        task.edges.iter().for_each(|edge| dependents.entry(&edge.on).or_default().push(task));
    }
    // What waited for something that is open is open itself, however far down the line.
    let mut open: Vec<TaskId> =
        standings.iter().filter(|(_, standing)| **standing == TaskOutcome::Open).map(|(id, _)| id.clone()).collect();
    while let Some(id) = open.pop() {
        for task in dependents.get(&id).into_iter().flatten() {
            if standings.insert(task.id.clone(), TaskOutcome::Open) != Some(TaskOutcome::Open) {
                open.push(task.id.clone());
            }
        }
    }
    standings
}

/// A task that was not done because another one was not: it is as excused as that one.
fn waited_in_vain(task: &Task) -> bool {
    match task.status {
        TaskStatus::Skipped => task.skipped == Some(SkipReason::DependencyFailed),
        TaskStatus::Cancelled => task.cancelled == Some(CancelReason::Upstream),
        _ => false,
    }
}

/// How a task stands by itself.
fn standing(task: &Task, excuses: Excuses) -> TaskOutcome {
    let excused = |by: bool| if by && !task.required { TaskOutcome::Excused } else { TaskOutcome::Open };
    let dropped = task.error.as_ref().is_some_and(|error| error.kind == DROPPED);
    match task.status {
        TaskStatus::Completed => TaskOutcome::Done,
        TaskStatus::Skipped => match task.skipped {
            Some(SkipReason::NotNeeded) => TaskOutcome::Settled,
            Some(SkipReason::WorkerError) => excused(excuses.skipped_errors),
            Some(SkipReason::Budget | SkipReason::Iterations) | None => TaskOutcome::Open,
            Some(
                SkipReason::ConditionNotMet
                | SkipReason::ApprovalRejected
                | SkipReason::PolicyDenied
                | SkipReason::DependencyFailed,
            ) => excused(true),
        },
        TaskStatus::Cancelled => match task.cancelled {
            Some(CancelReason::Superseded) if !dropped => TaskOutcome::Settled,
            Some(CancelReason::Requested | CancelReason::Upstream) => excused(true),
            Some(
                CancelReason::Superseded
                | CancelReason::ParentClosed
                | CancelReason::Killed
                | CancelReason::RunCancelled,
            )
            | None => TaskOutcome::Open,
        },
        TaskStatus::Failed => excused(excuses.failures_below_threshold),
        TaskStatus::Escalated
        | TaskStatus::Pending
        | TaskStatus::Ready
        | TaskStatus::AwaitingApproval
        | TaskStatus::Running
        | TaskStatus::AwaitingInput
        | TaskStatus::AwaitingReview
        | TaskStatus::NeedsRevision
        | TaskStatus::Errored
        | TaskStatus::Blocked => TaskOutcome::Open,
    }
}

/// What a run of tasks may claim. `result`: it has one; `needs_result`: without one there is nothing to claim; `stopped`:
/// a bound ended it.
pub fn of_tasks(plan: &TaskPlan, excuses: Excuses, result: bool, needs_result: bool, stopped: bool) -> Claim {
    let standings = standings(plan, excuses);
    let any = |wanted: &[TaskOutcome]| standings.values().any(|standing| wanted.contains(standing));
    // A plan without a task is carried out as it is, unless something ended the run before there was any.
    let nothing_done = if standings.is_empty() { stopped } else { !any(&[TaskOutcome::Done]) };
    if !result && (needs_result || nothing_done) {
        return Claim { phase: Phase::Failed, success: false };
    }
    let listed = any(&[TaskOutcome::Open, TaskOutcome::Excused]);
    let phase = if listed || stopped || nothing_done { Phase::Partial } else { Phase::Completed };
    let finals = standings.iter().filter(|(id, _)| plan.tasks.get(id).is_some_and(|task| task.is_final));
    let mut finals =
        finals.map(|(_, standing)| *standing).filter(|standing| *standing != TaskOutcome::Settled).peekable();
    let judged = excuses.final_task_counts && excuses.judged_done && finals.peek().is_some();
    let finals_done = !excuses.final_task_counts || finals.all(|standing| standing == TaskOutcome::Done);
    let all_done = finals_done && (judged || !any(&[TaskOutcome::Open]));
    Claim { phase, success: all_done && !nothing_done }
}

/// What a run of agents who talk or call each other may claim: `ok` by its own rules, and `said` by a call or a person.
pub fn of_talk(ok: bool, said: bool) -> Claim {
    Claim { phase: if ok { Phase::Completed } else { Phase::Failed }, success: ok && said }
}

/// What every report says of its tasks in one sentence (FSP-08): `2 of 4 tasks are done; failed: load; skipped: check`.
pub fn summary<I: ToString>(tasks: &[(I, TaskStatus)]) -> String {
    let done = tasks.iter().filter(|(_, status)| *status == TaskStatus::Completed).count();
    let mut text = format!("{done} of {} tasks are done", tasks.len());
    for status in TaskStatus::ALL.into_iter().filter(|status| *status != TaskStatus::Completed) {
        let those: Vec<String> =
            tasks.iter().filter(|(_, other)| *other == status).map(|(id, _)| id.to_string()).collect();
        if !those.is_empty() {
            text += &format!("; {status}: {}", those.join(", "));
        }
    }
    text
}

#[cfg(test)]
mod tests;
