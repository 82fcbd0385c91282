//! What people are told of a plan on its way: the four moments of CUGA's chat (CUG-14).
//!
//! Invariant: a plan is shown with the status of every sub-task, in plan order; a result is told briefly, on one line.
//! It emits nothing: who does tags the text and keys it.

use serde_json::Value;

use super::text::shown;

/// The most characters of a result in a message.
const SUMMARY_MAX: usize = 200;

/// A sub-task as it is told.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProgressTask {
    pub id: String,
    pub goal: String,
    pub agent: Option<String>,
    pub status: String,
    /// The sub-tasks it waits for.
    pub after: Vec<String>,
}

impl ProgressTask {
    fn line(&self) -> String {
        let agent = self.agent.as_ref().map(|agent| format!(" ({agent})")).unwrap_or_default();
        let after = match self.after.is_empty() {
            true => String::new(),
            false => format!(", after {}", self.after.join(", ")),
        };
        format!("[{}] {}{agent}: {}{after}", self.status, self.id, brief(&self.goal))
    }
    fn by(&self) -> String {
        self.agent.as_ref().map(|agent| format!(" by {agent}")).unwrap_or_default()
    }
}

/// After decomposition: the whole plan.
pub fn plan_proposed(objective: &str, tasks: &[ProgressTask]) -> String {
    let count = match tasks.len() {
        1 => "1 sub-task".to_owned(),
        count => format!("{count} sub-tasks"),
    };
    format!("Plan for: {}\n{count}:\n{}", brief(objective), lines(tasks))
}

/// A sub-task starts: who is active.
pub fn subtask_started(task: &ProgressTask, attempt: u32) -> String {
    let again = if attempt > 1 { format!(", attempt {attempt}") } else { String::new() };
    format!("Sub-task {} started{}{again}: {}", task.id, task.by(), brief(&task.goal))
}

/// A sub-task is done: a brief summary of its result.
pub fn subtask_completed(task: &ProgressTask, result: &Value) -> String {
    let summary = match brief(&shown(result)) {
        text if text.is_empty() => "no result".to_owned(),
        text => text,
    };
    format!("Sub-task {} completed{}: {summary}", task.id, task.by())
}

pub fn subtask_failed(task: &ProgressTask, error: &str) -> String {
    format!("Sub-task {} failed{}: {}", task.id, task.by(), brief(error))
}

/// A worker's error, because of which the sub-task is not done: in flow-state's words (FSS-16).
pub fn subtask_skipped(supervisor: &str, task: &ProgressTask, why: &str) -> String {
    format!("[supervisor:{supervisor}] skipped task \"{}\": {}", task.id, brief(why))
}

/// A sub-task is not done, and no agent had to do with it.
pub fn subtask_not_done(task: &ProgressTask, why: &str) -> String {
    let why = why.strip_prefix("Skipped: ").unwrap_or(why);
    format!("Sub-task {} {}: {}", task.id, task.status, brief(why))
}

/// The plan is over: how many sub-tasks were completed, and the end of each.
pub fn plan_completed(objective: &str, tasks: &[ProgressTask]) -> String {
    let done = tasks.iter().filter(|task| task.status == "completed").count();
    format!("Plan finished for: {}\n{done} of {} sub-tasks completed:\n{}", brief(objective), tasks.len(), lines(tasks))
}

fn lines(tasks: &[ProgressTask]) -> String {
    let line = |(at, task): (usize, &ProgressTask)| format!("{}. {}", at + 1, task.line());
    tasks.iter().enumerate().map(line).collect::<Vec<_>>().join("\n")
}

/// One line, not longer than a person reads at a glance.
fn brief(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(SUMMARY_MAX) {
        Some((end, _)) => format!("{}...", line[..end].trim_end()),
        None => line,
    }
}
