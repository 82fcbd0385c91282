//! What a plan run shows: the data of a live tree, a board as text, and the report at the end.
//!
//! Invariant: everything is computed from the run's state; showing changes nothing. Times are the engine's.

use std::fmt::Write as _;
use std::time::Duration;

use bosun_engine::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::critic::CriticVerdict;
use super::execution::{PlanExecution, TaskRun};
use super::plan::TaskItem;
use super::task::{TaskNumber, TaskStatus};

/// How much of a result a view shows.
const BRIEF_MAX: usize = 120;
/// How much of the final result the report shows; all of it is in `final_result`.
const FINAL_TEXT_MAX: usize = 20_000;

/// How a run ended, or that it goes on (supervisors.md §5.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlanRunStatus {
    Executing,
    /// Every task is completed.
    Completed,
    /// The final task is completed, others are not.
    Partial,
    Failed,
    Cancelled,
}

/// One task for people and programs that watch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaskView {
    pub task_id: TaskNumber,
    pub title: String,
    pub capability: String,
    pub dependencies: Vec<TaskNumber>,
    pub status: TaskStatus,
    /// The number of the running or last attempt; 0 before the first.
    pub attempt: u32,
    pub max_attempts: u32,
    pub is_final: bool,
    pub started_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
    pub duration_ms: Option<u64>,
    /// The first line of the result.
    pub brief: Option<String>,
    pub error_msg: Option<String>,
    /// What the critic said last.
    pub task_feedback: Option<CriticVerdict>,
    /// Why it does not run, if its dependencies keep it from running.
    pub reason: Option<String>,
}

/// A run for people and programs that watch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlanProgress {
    pub objective: String,
    pub status: PlanRunStatus,
    pub completed: u32,
    pub total: u32,
    pub started_at: Timestamp,
    pub ended_at: Option<Timestamp>,
    pub tasks: Vec<TaskView>,
}

/// The result of a run (PDT-10).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlanRunOutput {
    pub objective: String,
    pub status: PlanRunStatus,
    pub final_result: Option<FinalResult>,
    pub tasks: Vec<TaskView>,
    pub errors: Vec<String>,
    /// Markdown.
    pub report: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FinalResult {
    pub task_id: TaskNumber,
    pub output: Value,
}

impl PlanExecution {
    pub fn status(&self) -> PlanRunStatus {
        if self.ended_at.is_none() {
            return PlanRunStatus::Executing;
        }
        if self.canceled.is_some() {
            return PlanRunStatus::Cancelled;
        }
        let completed = |id: TaskNumber| self.tasks.get(&id).is_some_and(|task| task.status == TaskStatus::Completed);
        let useful = self.plan.final_task().map_or_else(|| self.final_task().is_some(), completed);
        match self.tasks.keys().all(|id| completed(*id)) {
            true => PlanRunStatus::Completed,
            false if useful => PlanRunStatus::Partial,
            false => PlanRunStatus::Failed,
        }
    }

    pub fn view(&self, id: TaskNumber) -> Option<TaskView> {
        let (item, task) = (self.plan.task(id)?, self.tasks.get(&id)?);
        let running = u32::from(task.status == TaskStatus::Running);
        let ended_at = task.ended_at;
        Some(TaskView {
            task_id: id,
            title: item.title().to_owned(),
            capability: item.capability.clone(),
            dependencies: item.sub_task_dependencies.clone(),
            status: task.status,
            attempt: task.attempt_count + running,
            max_attempts: item.max_attempts,
            is_final: item.is_final,
            started_at: task.started_at,
            ended_at,
            duration_ms: task.started_at.zip(ended_at).map(|(from, to)| millis(to.since(from))),
            brief: task.result.as_ref().and_then(|result| brief(&result.text)),
            error_msg: task.error_msg.clone(),
            task_feedback: task.iteration_history.iter().rev().find_map(|record| record.task_feedback.clone()),
            reason: self.why_not_running(id),
        })
    }

    pub fn progress(&self) -> PlanProgress {
        let tasks: Vec<TaskView> = self.tasks.keys().filter_map(|id| self.view(*id)).collect();
        let completed = tasks.iter().filter(|task| task.status == TaskStatus::Completed).count();
        PlanProgress {
            objective: self.plan.objective().to_owned(),
            status: self.status(),
            completed: u32::try_from(completed).unwrap_or(u32::MAX),
            total: u32::try_from(tasks.len()).unwrap_or(u32::MAX),
            started_at: self.started_at,
            ended_at: self.ended_at,
            tasks,
        }
    }

    /// The state of all tasks as text, one line each.
    pub fn status_board(&self) -> String {
        let mut board = format!("Objective: {}\n", self.plan.objective());
        for view in self.tasks.keys().filter_map(|id| self.view(*id)) {
            let TaskView { task_id, title, status, attempt, max_attempts, is_final, reason, error_msg, .. } = view;
            let mark = if is_final { " (final)" } else { "" };
            let why = reason.or(error_msg).map_or_else(String::new, |why| format!(" - {why}"));
            // Writing to a String cannot fail, here and below.
            let _ = writeln!(board, "[{task_id}] {status} attempt {attempt}/{max_attempts}: {title}{mark}{why}");
        }
        board
    }

    pub fn errors(&self) -> Vec<String> {
        let error = |id: &TaskNumber| {
            let view = self.view(*id).filter(|view| view.status != TaskStatus::Completed)?;
            let why = view.error_msg.or(view.reason).unwrap_or_else(|| "did not run".to_owned());
            Some(format!("Task {id} is {}: {why}", view.status))
        };
        self.tasks.keys().filter_map(error).collect()
    }

    pub fn output(&self) -> PlanRunOutput {
        let result = |id: TaskNumber| {
            let output = self.tasks.get(&id)?.result.as_ref()?.output.clone();
            Some(FinalResult { task_id: id, output })
        };
        PlanRunOutput {
            objective: self.plan.objective().to_owned(),
            status: self.status(),
            final_result: self.final_task().and_then(result),
            tasks: self.progress().tasks,
            errors: self.errors(),
            report: self.report(),
        }
    }

    /// The report, as markdown.
    pub fn report(&self) -> String {
        let progress = self.progress();
        let mut report = format!("# {}\n\n", progress.objective);
        let took =
            progress.ended_at.map_or_else(String::new, |end| format!(" in {}", seconds(end.since(self.started_at))));
        let (completed, total) = (progress.completed, progress.total);
        let _ = writeln!(report, "{} - {completed} of {total} tasks completed{took}.\n", progress.status.as_str());
        report += "| Task | | Status | Attempts | Time | Result |\n|---|---|---|---|---|---|\n";
        for view in &progress.tasks {
            let time = view.duration_ms.map_or_else(String::new, |ms| seconds(Duration::from_millis(ms)));
            let result = view.reason.as_ref().or(view.error_msg.as_ref()).or(view.brief.as_ref());
            let result = result.map_or_else(String::new, |text| cell(text));
            let (id, title, status) = (view.task_id, cell(&view.title), view.status);
            let _ = writeln!(
                report,
                "| {id} | {title} | {status} | {}/{} | {time} | {result} |",
                view.attempt, view.max_attempts
            );
        }
        self.report_feedback(&mut report);
        if let Some((id, result)) = self.final_task().and_then(|id| Some((id, self.tasks.get(&id)?.result.as_ref()?))) {
            let _ = write!(report, "\n## Result of task {id}\n\n{}\n", cut(result.text.trim_end(), FINAL_TEXT_MAX));
        }
        report
    }

    /// What was sent back and why.
    fn report_feedback(&self, report: &mut String) {
        let mut heading = Some("\n## Attempts that were not accepted\n\n");
        for (item, task) in self.plan.tasks().filter_map(|item| Some((item, self.tasks.get(&item.task_id)?))) {
            for line in rejected(item, task) {
                *report += heading.take().unwrap_or_default();
                let _ = writeln!(report, "- {line}");
            }
        }
    }
}

fn rejected(item: &TaskItem, task: &TaskRun) -> Vec<String> {
    let line = |attempt: u32, what: &str| format!("Task {}, attempt {attempt}: {}", item.task_id, cell(what));
    let why = task.iteration_history.iter().filter_map(|record| {
        let verdict = record.task_feedback.as_ref().filter(|verdict| !verdict.passed);
        let what = verdict.map(|verdict| &verdict.reasoning).or(record.error_msg.as_ref())?;
        Some(line(record.attempt, what))
    });
    why.collect()
}

impl PlanRunStatus {
    pub fn as_str(self) -> &'static str {
        match self {
            PlanRunStatus::Executing => "executing",
            PlanRunStatus::Completed => "completed",
            PlanRunStatus::Partial => "partial",
            PlanRunStatus::Failed => "failed",
            PlanRunStatus::Cancelled => "cancelled",
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn seconds(duration: Duration) -> String {
    format!("{}.{} s", duration.as_secs(), duration.subsec_millis() / 100)
}

fn brief(text: &str) -> Option<String> {
    text.lines().map(str::trim).find(|line| !line.is_empty()).map(|line| cut(line, BRIEF_MAX))
}

/// A text in one cell of a table.
fn cell(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    cut(&line, BRIEF_MAX).replace('|', "\\|")
}

/// The beginning of a text, cut between characters.
fn cut(text: &str, max: usize) -> String {
    match text.char_indices().nth(max) {
        Some((at, _)) => format!("{}\u{2026}", &text[..at]),
        None => text.to_owned(),
    }
}
