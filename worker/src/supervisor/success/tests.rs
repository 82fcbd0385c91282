//! The judgement, case by case.

use super::*;
use crate::supervisor::model::{Edge, Requires, TaskError};

fn task(id: &str, status: TaskStatus) -> Task {
    Task { status, ..Task::new(TaskId::of(id), format!("goal of {id}")) }
}

fn plan(tasks: Vec<Task>) -> TaskPlan {
    let mut plan = TaskPlan::new("objective");
    plan.add(tasks).unwrap();
    plan
}

fn after(on: &str, task: Task) -> Task {
    let edge = Edge { on: TaskId::of(on), requires: Requires::Completed, when: None, on_failure: None };
    Task { edges: vec![edge], ..task }
}

fn skipped(id: &str, reason: SkipReason) -> Task {
    Task { skipped: Some(reason), ..task(id, TaskStatus::Skipped) }
}

fn cancelled(id: &str, reason: CancelReason) -> Task {
    Task { cancelled: Some(reason), ..task(id, TaskStatus::Cancelled) }
}

#[track_caller]
fn claims(tasks: Vec<Task>, excuses: Excuses, phase: Phase, success: bool) {
    assert_eq!(of_tasks(&plan(tasks), excuses, true, false, false), Claim { phase, success });
}

const NONE: Excuses =
    Excuses { skipped_errors: false, failures_below_threshold: false, final_task_counts: false, judged_done: false };

#[test]
fn all_done_is_a_success_and_a_plan_without_tasks_too() {
    claims(vec![task("a", TaskStatus::Completed), task("b", TaskStatus::Completed)], NONE, Phase::Completed, true);
    claims(vec![], NONE, Phase::Completed, true);
    // One that was stopped before there was a task has done nothing.
    let stopped = |result| of_tasks(&plan(vec![]), NONE, result, false, true);
    assert_eq!(stopped(false), Claim { phase: Phase::Failed, success: false });
    assert_eq!(stopped(true), Claim { phase: Phase::Partial, success: false });
}

/// Nothing is a success of which nothing was done, however well it is excused.
#[test]
fn a_run_that_did_nothing_is_no_success() {
    let excuses =
        Excuses { skipped_errors: true, failures_below_threshold: true, final_task_counts: true, judged_done: true };
    for reason in [SkipReason::WorkerError, SkipReason::NotNeeded, SkipReason::ApprovalRejected] {
        claims(vec![skipped("a", reason)], excuses, Phase::Partial, false);
    }
    claims(vec![cancelled("a", CancelReason::Requested)], excuses, Phase::Partial, false);
    let failed = of_tasks(&plan(vec![task("a", TaskStatus::Failed)]), excuses, false, false, false);
    assert_eq!(failed, Claim { phase: Phase::Failed, success: false });
}

/// FSS-16, SHN-34, FSP-04: what a rule of the spec leaves out is listed and excused; the same without the rule is not.
#[test]
fn rules_excuse_and_nothing_else_does() {
    let done = || task("done", TaskStatus::Completed);
    let skips = Excuses { skipped_errors: true, ..NONE };
    let share = Excuses { failures_below_threshold: true, ..NONE };
    claims(vec![done(), skipped("a", SkipReason::WorkerError)], skips, Phase::Partial, true);
    claims(vec![done(), skipped("a", SkipReason::WorkerError)], NONE, Phase::Partial, false);
    claims(vec![done(), task("a", TaskStatus::Failed)], share, Phase::Partial, true);
    claims(vec![done(), task("a", TaskStatus::Failed)], NONE, Phase::Partial, false);
    claims(vec![done(), cancelled("a", CancelReason::Requested)], NONE, Phase::Partial, true);
    claims(vec![done(), cancelled("a", CancelReason::Superseded)], NONE, Phase::Completed, true);
    claims(vec![done(), skipped("a", SkipReason::NotNeeded)], NONE, Phase::Completed, true);
    for status in TaskStatus::ALL {
        let open = !matches!(status, TaskStatus::Completed | TaskStatus::Skipped);
        if open {
            claims(vec![done(), task("a", status)], NONE, Phase::Partial, false);
        }
    }
    claims(vec![done(), skipped("a", SkipReason::Budget)], skips, Phase::Partial, false);
    claims(vec![done(), skipped("a", SkipReason::Iterations)], skips, Phase::Partial, false);
}

#[test]
fn a_required_task_is_never_excused() {
    let rejected = Task { required: true, ..skipped("a", SkipReason::ApprovalRejected) };
    claims(vec![task("done", TaskStatus::Completed), rejected], NONE, Phase::Partial, false);
}

/// A task that waited for a failed one is as excused as that one is.
#[test]
fn dependents_are_as_excused_as_what_they_waited_for() {
    let done = || task("done", TaskStatus::Completed);
    let dependent = || after("a", skipped("b", SkipReason::DependencyFailed));
    let skips = Excuses { skipped_errors: true, ..NONE };
    claims(vec![done(), skipped("a", SkipReason::WorkerError), dependent()], skips, Phase::Partial, true);
    claims(vec![done(), task("a", TaskStatus::Failed), dependent()], skips, Phase::Partial, false);
}

/// FSS-40: a task that nobody had tried when a new plan left it out is not settled by that.
#[test]
fn what_a_new_plan_dropped_untried_is_open() {
    let error = Some(TaskError { kind: DROPPED.into(), message: "left out".into() });
    let dropped = Task { error, ..cancelled("a", CancelReason::Superseded) };
    claims(vec![task("done", TaskStatus::Completed), dropped], NONE, Phase::Partial, false);
}

/// PDT-08, PDT-10: where the final task is the result, it decides; a run whose final task never ran is no success.
#[test]
fn the_final_task_decides_where_it_is_the_result() {
    let counts = Excuses { final_task_counts: true, judged_done: true, ..NONE };
    let is_final = |status| Task { is_final: true, ..task("z", status) };
    let (done, open) = (|| task("a", TaskStatus::Completed), || task("b", TaskStatus::Pending));
    claims(vec![done(), is_final(TaskStatus::Pending)], counts, Phase::Partial, false);
    claims(vec![open(), is_final(TaskStatus::Completed)], counts, Phase::Partial, true);
    claims(vec![open(), is_final(TaskStatus::Completed)], NONE, Phase::Partial, false);
    claims(vec![done(), open()], counts, Phase::Partial, false);
}

/// Where nobody has said that all is done, a final task that is done excuses nothing, and one that is excused is no success.
#[test]
fn a_final_task_excuses_nothing_that_nobody_judged() {
    let counts = Excuses { final_task_counts: true, skipped_errors: true, ..NONE };
    let done = |id| task(id, TaskStatus::Completed);
    let last = |task| Task { is_final: true, ..task };
    claims(vec![task("b", TaskStatus::Failed), last(done("z"))], counts, Phase::Partial, false);
    claims(vec![skipped("b", SkipReason::WorkerError), last(done("z"))], counts, Phase::Partial, true);
    claims(vec![done("b"), last(skipped("z", SkipReason::WorkerError))], counts, Phase::Partial, false);
    claims(vec![done("b"), last(done("z"))], counts, Phase::Completed, true);
}

#[test]
fn a_bound_that_ends_a_run_leaves_it_partial() {
    let whole = plan(vec![task("a", TaskStatus::Completed)]);
    assert_eq!(of_tasks(&whole, NONE, true, false, true), Claim { phase: Phase::Partial, success: true });
    assert_eq!(of_tasks(&whole, NONE, false, true, false), Claim { phase: Phase::Failed, success: false });
}

#[test]
fn talk_without_a_word_is_no_success() {
    assert_eq!(of_talk(true, true), Claim { phase: Phase::Completed, success: true });
    assert_eq!(of_talk(true, false), Claim { phase: Phase::Completed, success: false });
    assert_eq!(of_talk(false, true), Claim { phase: Phase::Failed, success: false });
}

#[test]
fn the_summary_counts_and_names() {
    let tasks = [("dump", TaskStatus::Completed), ("load", TaskStatus::Failed), ("check", TaskStatus::Skipped)];
    assert_eq!(summary(&tasks), "1 of 3 tasks are done; failed: load; skipped: check");
    assert_eq!(summary::<&str>(&[]), "0 of 0 tasks are done");
}
