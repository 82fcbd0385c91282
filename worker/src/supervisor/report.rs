//! What a plan run shows: the data of a live tree, a board as text, and the report at the end.
//!
//! Invariant: everything is computed from the plan as it was written and its tasks as they stand; showing changes nothing.
//! Times are the engine's.

use std::fmt::Write as _;
use std::time::Duration;

use bosun_engine::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::core::phase::Phase;
use super::critic::CriticVerdict;
use super::graph;
use super::model::{Attempt, Feedback, FeedbackFrom, Task, TaskId, TaskPlan};
use super::plan::{Plan, TaskItem};
use super::plan_task;
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
    /// The final task is completed, others are not: there is a result, and not all of the plan is done.
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

/// What has happened to a task, in pydantask's words (PDT-11).
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct TaskRun {
    status: TaskStatus,
    /// The objective, with the feedback of rejected attempts (PDT-24).
    sub_task_objective: String,
    /// Attempts that have ended: reviewed, or in an error (PDT-21, PDT-26).
    attempt_count: u32,
    iteration_history: Vec<AttemptRecord>,
    result: Option<TaskResult>,
    error_msg: Option<String>,
    started_at: Option<Timestamp>,
    ended_at: Option<Timestamp>,
}

/// One attempt.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct AttemptRecord {
    attempt: u32,
    started_at: Timestamp,
    ended_at: Option<Timestamp>,
    /// What the rules said, if they were asked.
    task_feedback: Option<CriticVerdict>,
    /// What went wrong, if the attempt gave no result.
    error_msg: Option<String>,
}

/// What an attempt gave.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct TaskResult {
    /// The result as people read it.
    text: String,
    output: Value,
}

/// A run as it stands.
pub(super) struct PlanRunView<'r> {
    /// As it was written.
    pub(super) plan: Plan,
    /// As it stands.
    pub(super) tasks: &'r TaskPlan,
    pub(super) phase: Phase,
    pub(super) started_at: Timestamp,
    pub(super) ended_at: Option<Timestamp>,
}

impl PlanRunView<'_> {
    fn task(&self, id: TaskNumber) -> Option<&Task> {
        self.tasks.get(&TaskId::from(u64::from(id.0)))
    }

    /// By ascending id.
    fn all(&self) -> impl Iterator<Item = (&TaskItem, &Task)> {
        self.plan.tasks().filter_map(|item| Some((item, self.task(item.task_id)?)))
    }

    /// The task whose result is the run's (PDT-10).
    fn final_task(&self) -> Option<(TaskNumber, &Task)> {
        let task = self.tasks.get(&graph::final_task(self.tasks, &plan_task::text)?)?;
        Some((plan_task::number(&task.id)?, task))
    }

    pub(super) fn status(&self) -> PlanRunStatus {
        if self.ended_at.is_none() {
            return PlanRunStatus::Executing;
        }
        if self.phase == Phase::Cancelled {
            return PlanRunStatus::Cancelled;
        }
        let completed = |task: &Task| task.status == TaskStatus::Completed;
        let marked = self.plan.final_task().and_then(|id| self.task(id));
        let useful = marked.map_or_else(|| self.final_task().is_some(), completed);
        match self.all().all(|(_, task)| completed(task)) {
            true => PlanRunStatus::Completed,
            false if useful => PlanRunStatus::Partial,
            false => PlanRunStatus::Failed,
        }
    }

    /// Why a task does not run and will not without help; nothing if it is over, runs, or may run.
    fn why_not_running(&self, item: &TaskItem, task: &Task) -> Option<String> {
        if task.status.is_terminal() || task.status == TaskStatus::Running {
            return None;
        }
        let waits = |on: &TaskNumber| {
            let status = self.task(*on)?.status;
            (status != TaskStatus::Completed).then(|| format!("{on} ({status})"))
        };
        let waits: Vec<String> = item.sub_task_dependencies.iter().filter_map(waits).collect();
        (!waits.is_empty()).then(|| format!("waiting on deps [{}]", waits.join(", ")))
    }

    pub(super) fn view(&self, id: TaskNumber) -> Option<TaskView> {
        Some(self.view_of(self.plan.task(id)?, self.task(id)?))
    }

    fn view_of(&self, item: &TaskItem, task: &Task) -> TaskView {
        let running = u32::from(task.status == TaskStatus::Running);
        let started_at = task.attempts.first().map(|attempt| attempt.started_at);
        TaskView {
            task_id: item.task_id,
            title: item.title().to_owned(),
            capability: item.capability.clone(),
            dependencies: item.sub_task_dependencies.clone(),
            status: task.status,
            attempt: task.attempt_count + running,
            max_attempts: item.max_attempts,
            is_final: item.is_final,
            started_at,
            ended_at: task.ended_at,
            duration_ms: started_at.zip(task.ended_at).map(|(from, to)| millis(to.since(from))),
            brief: task.result.as_ref().and_then(|_| brief(&plan_task::text(task))),
            error_msg: task.error.as_ref().map(|error| error.message.clone()),
            task_feedback: task.feedback.iter().rev().find_map(verdict),
            reason: self.why_not_running(item, task),
        }
    }

    pub(super) fn run_of(&self, id: TaskNumber) -> Option<TaskRun> {
        let (item, task) = (self.plan.task(id)?, self.task(id)?);
        let record = |attempt: &Attempt| AttemptRecord {
            attempt: item.attempt_count + attempt.n,
            started_at: attempt.started_at,
            ended_at: attempt.ended_at,
            task_feedback: task.feedback.iter().filter(|said| said.attempt == attempt.n).find_map(verdict),
            error_msg: attempt.error.clone(),
        };
        let result = |output: &Value| TaskResult { text: plan_task::text(task), output: output.clone() };
        Some(TaskRun {
            status: task.status,
            sub_task_objective: task.goal.clone(),
            attempt_count: task.attempt_count,
            iteration_history: task.attempts.iter().map(record).collect(),
            result: task.result.as_ref().map(result),
            error_msg: task.error.as_ref().map(|error| error.message.clone()),
            started_at: task.attempts.first().map(|attempt| attempt.started_at),
            ended_at: task.ended_at,
        })
    }

    pub(super) fn progress(&self) -> PlanProgress {
        let tasks: Vec<TaskView> = self.all().map(|(item, task)| self.view_of(item, task)).collect();
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
    pub(super) fn status_board(&self) -> String {
        let mut board = format!("Objective: {}\n", self.plan.objective());
        for view in self.progress().tasks {
            let TaskView { task_id, title, status, attempt, max_attempts, is_final, reason, error_msg, .. } = view;
            let mark = if is_final { " (final)" } else { "" };
            let why = reason.or(error_msg).map_or_else(String::new, |why| format!(" - {why}"));
            // Writing to a String cannot fail, here and below.
            let _ = writeln!(board, "[{task_id}] {status} attempt {attempt}/{max_attempts}: {title}{mark}{why}");
        }
        board
    }

    pub(super) fn output(&self) -> PlanRunOutput {
        let progress = self.progress();
        let error = |view: &TaskView| {
            let why = view.error_msg.as_deref().or(view.reason.as_deref()).unwrap_or("did not run");
            let not_done = view.status != TaskStatus::Completed;
            not_done.then(|| format!("Task {} is {}: {why}", view.task_id, view.status))
        };
        let result = |(task_id, task): (TaskNumber, &Task)| {
            let output = task.result.clone().unwrap_or_default();
            FinalResult { task_id, output }
        };
        PlanRunOutput {
            objective: progress.objective.clone(),
            status: progress.status,
            final_result: self.final_task().map(result),
            errors: progress.tasks.iter().filter_map(error).collect(),
            report: self.report_of(&progress),
            tasks: progress.tasks,
        }
    }

    /// The report, as markdown.
    pub(super) fn report(&self) -> String {
        self.report_of(&self.progress())
    }

    fn report_of(&self, progress: &PlanProgress) -> String {
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
        // What was sent back and why.
        let mut heading = Some("\n## Attempts that were not accepted\n\n");
        for line in self.all().flat_map(|(item, task)| not_accepted(item, task)) {
            report += heading.take().unwrap_or_default();
            let _ = writeln!(report, "- {line}");
        }
        if let Some((id, task)) = self.final_task() {
            let text = plan_task::text(task);
            let _ = write!(report, "\n## Result of task {id}\n\n{}\n", cut(text.trim_end(), FINAL_TEXT_MAX));
        }
        report
    }
}

/// What the rules of the task said.
fn verdict(said: &Feedback) -> Option<CriticVerdict> {
    let by_rules = said.from == FeedbackFrom::Critic;
    by_rules.then(|| CriticVerdict { passed: said.passed, reasoning: said.text.clone() })
}

fn not_accepted(item: &TaskItem, task: &Task) -> Vec<String> {
    let lines = task.attempts.iter().filter_map(|attempt| {
        let said = task.feedback.iter().find(|said| said.attempt == attempt.n && !said.passed);
        let what = said.map(|said| &said.text).or(attempt.error.as_ref())?;
        Some(format!("Task {}, attempt {}: {}", item.task_id, item.attempt_count + attempt.n, cell(what)))
    });
    lines.collect()
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
