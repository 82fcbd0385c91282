//! What is told of a run below that has ended, to whoever gave it its work.
//!
//! Invariant: whoever hears of an end without success hears the reason, what people and reviewers said, and what there is of the
//! work; of a success they hear what is missing in it. It decides nothing, and asks nobody.

use bosun_engine::{Failure, FailureKind};
use serde_json::{Value, json};

use super::output::{EndReason, NOTHING_DONE};
use super::{SupervisorOutput, TaskReport};
use crate::supervisor::core::phase::Phase;
use crate::supervisor::core::strategy::RUN_FAILED;
use crate::supervisor::model::TaskId;
use crate::supervisor::reading::text_of;
use crate::supervisor::task::TaskStatus;

/// The code of a run that has failed for its failures alone: which those were is told of its tasks.
const TOO_MANY_FAILURES: &str = "too_many_failures";

/// Why a run below has failed. One that somebody terminated has said nothing itself.
pub(super) fn message_of(failure: &Failure) -> String {
    let root = failure.root();
    match (&root.kind, root.message.trim()) {
        (FailureKind::Terminated, "") => "the run below was terminated".to_owned(),
        (FailureKind::Terminated, why) => format!("the run below was terminated: {why}"),
        (_, "") => format!("the run below has failed ({})", root.type_name()),
        _ => root.message.clone(),
    }
}

/// Why a run below has not done what it had to.
fn why(report: &SupervisorOutput) -> String {
    let said = |text: &&String| !text.is_empty();
    let because = || {
        let reason = report.reason.as_ref();
        let told = reason.filter(|reason| reason.code != NOTHING_DONE || !report.errors.is_empty());
        told.map(|reason| &reason.message)
    };
    let why = report.error.as_ref().filter(said).or(Some(&report.summary).filter(said)).or_else(because);
    with_reason(why.map_or("no result", String::as_str), report)
}

/// The same with what its reviewer said, what else caused it, and what there is of the work.
pub(super) fn why_not(report: &SupervisorOutput) -> String {
    let words = |task: &TaskReport| Some(format!(" (the reviewer of {}: {})", task.task_id, task.error.as_ref()?));
    let words: String = escalated(report).filter_map(words).collect();
    let cause = cause(report).filter(|_| words.is_empty()).unwrap_or_default();
    format!("{}{words}{cause}{}", why(report), told_of_rest(report))
}

/// Why it was refused, where it has ended without a failure.
pub(super) fn why_refused(report: &SupervisorOutput) -> String {
    format!("{}{}", rejected(&why(report), report), told_of_rest(report))
}

/// The same of one that has failed; of what somebody has cancelled no task says more than that.
pub(super) fn why_failed(failure: &Failure, report: &SupervisorOutput, is_refused: bool) -> String {
    let because = report.error.as_ref().or(report.reason.as_ref().map(|reason| &reason.message));
    let message = match because.filter(|_| failure.is_canceled() || report.error.is_none()) {
        Some(because) => because.clone(),
        None => message_of(failure),
    };
    let message = match () {
        () if is_refused => rejected(&message, report),
        () if failure.is_canceled() => message,
        () => {
            let too_many = report.code.as_deref() == Some(TOO_MANY_FAILURES);
            let caused = too_many.then(|| told(&of_reason(report))).flatten().unwrap_or_default();
            format!("{message}{caused}")
        }
    };
    format!("{message}{}", told_of_rest(report))
}

/// What is missing in a success: a bound that has stopped it, what was lost, what was left out.
pub(super) fn missing(report: &SupervisorOutput) -> Vec<&str> {
    let partial = report.reason.as_ref().filter(|_| report.status == Phase::Partial.as_str());
    let mut told: Vec<&str> = partial.map(|reason| reason.message.as_str()).into_iter().collect();
    for error in &report.errors {
        if !told.iter().any(|known| known.contains(error.as_str())) {
            told.push(error);
        }
    }
    told
}

/// What there is of the work: a part, or what was said in place of it, or what of its tasks is done and was not undone again.
pub(super) fn left_by(report: &SupervisorOutput) -> String {
    const CHARS_MAX: usize = 8_000;
    let is_empty = |result: &&Value| [Value::Null, json!({}), json!([])].contains(*result);
    let result = report.final_result.as_ref().filter(|result| !is_empty(result)).map(text_of);
    let filled = |text: &String| !text.trim().is_empty();
    let result = result.filter(filled).or_else(|| report.so_far.clone()).filter(filled).unwrap_or_else(|| done(report));
    let shown: String = result.trim().chars().take(CHARS_MAX).collect();
    let more = if shown.len() < result.trim().len() { " ..." } else { "" };
    format!("{shown}{more}")
}

/// The tasks that it has done, where nothing puts them together.
fn done(report: &SupervisorOutput) -> String {
    let done = report.tasks.iter().filter(|task| task.status == TaskStatus::Completed && task.undone != Some(true));
    let told = done.map(|task| match task.brief.as_deref().filter(|brief| !brief.is_empty()) {
        Some(brief) => format!("{}: {brief}", task.task_id),
        None => format!("{} is done", task.task_id),
    });
    told.collect::<Vec<_>>().join("; ")
}

fn told_of_rest(report: &SupervisorOutput) -> String {
    let left = left_by(report);
    // What is the reason is told as that.
    let is_told = report.error.as_deref().is_some_and(|error| error.trim() == left);
    if left.is_empty() || is_told { String::new() } else { format!("; what there is of it: {left}") }
}

/// What is said of an end that no task is the cause of: the budget, for one.
fn with_reason(why: &str, report: &SupervisorOutput) -> String {
    let no_task = |reason: &&EndReason| reason.tasks.is_empty() && reason.code != NOTHING_DONE;
    match report.reason.as_ref().filter(no_task).filter(|reason| !why.contains(&reason.message)) {
        Some(reason) => format!("{why}: {}", reason.message),
        None => why.to_owned(),
    }
}

/// Why the tasks that are not done are not, where the run has no error of its own that says so.
fn cause(report: &SupervisorOutput) -> Option<String> {
    if report.error.is_none() { told(&of_reason(report)) } else { None }
}

/// What the reason says of tasks; that one went down with the run is none of its own.
fn of_reason(report: &SupervisorOutput) -> Vec<(&TaskId, &str)> {
    let tasks = report.reason.iter().flat_map(|reason| &reason.tasks);
    tasks.map(|task| (&task.task_id, task.why.as_str())).filter(|(_, why)| *why != RUN_FAILED).collect()
}

/// What is said of tasks, each by its name where there are several.
fn told(tasks: &[(&TaskId, &str)]) -> Option<String> {
    let said: Vec<&(&TaskId, &str)> = tasks.iter().filter(|(_, why)| !why.trim().is_empty()).collect();
    match (tasks, said.as_slice()) {
        (_, []) => None,
        ([_], [(_, why)]) => Some(format!(" ({why})")),
        (_, said) => {
            let named: Vec<String> =
                said.iter().take(EndReason::NAMED).map(|(task, why)| format!("{task}: {why}")).collect();
            Some(format!(" ({})", named.join("; ")))
        }
    }
}

/// The tasks that its reviewer handed upward.
pub(super) fn escalated(report: &SupervisorOutput) -> impl Iterator<Item = &TaskReport> {
    report.tasks.iter().filter(|task| task.status == TaskStatus::Escalated)
}

/// The same with what people said, and what else went wrong beside that.
pub(super) fn rejected(why: &str, report: &SupervisorOutput) -> String {
    let reasons = of_reason(report);
    let of_task = |task: &TaskReport| reasons.iter().find(|(id, _)| **id == task.task_id).map(|(_, why)| *why);
    let said = |task| {
        let task: &TaskReport = task;
        let said = task.error.as_deref().or_else(|| of_task(task))?;
        (said != RUN_FAILED && !why.contains(said)).then_some((&task.task_id, said))
    };
    let said: Vec<(&TaskId, &str)> = report.tasks.iter().filter_map(said).collect();
    format!("{why}{}", told(&said).unwrap_or_default())
}
