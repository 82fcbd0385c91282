//! What a graph shows: the board, one task, why tasks do not run, the deadlock report.
//!
//! Invariant: computed from the state, in the order of ids; showing changes nothing.

use serde_json::json;

use super::schedule::DependencyState;
use super::*;

/// Blocked tasks that a report names (PDT-07).
const BLOCKED_MAX: usize = 12;

/// One line of the status board.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaskBoardLine {
    pub task_id: TaskId,
    /// The status; of a task that was sent back the word that the spec has for it (`review.reject_status`).
    pub status: String,
    pub is_final: bool,
    pub objective: String,
    pub dependencies: Vec<TaskId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capability: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qa_passed: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qa_summary: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Why a task waits (part 6 no. 5).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WhyNotRunning {
    pub task: TaskId,
    pub status: TaskStatus,
    /// In the order in which they would have to be lifted.
    pub reasons: Vec<String>,
}

/// A task as it is shown, with what went wrong with it.
pub(super) fn with_error(mut shown: Value, task: &Task) -> Value {
    if let Some(error) = &task.error {
        shown["error"] = error.message.as_str().into();
    }
    shown
}

impl Graph {
    pub fn board_line(&self, task: &Task) -> TaskBoardLine {
        let last = task.last_verdict();
        TaskBoardLine {
            task_id: task.id.clone(),
            status: match task.status {
                TaskStatus::NeedsRevision => self.rules.rejected_as.as_str().to_owned(),
                status => status.as_str().to_owned(),
            },
            is_final: task.is_final,
            objective: task.goal.clone(),
            dependencies: task.dependencies(),
            capability: task.capability.clone(),
            qa_passed: last.map(|feedback| feedback.passed),
            qa_summary: last.map(|feedback| feedback.text.clone()),
            error: task.error.as_ref().map(|error| error.message.clone()),
        }
    }

    /// Everything that keeps a task from running now; nothing if it runs, is over, or may start at once.
    pub fn why_not_running(&self, id: &TaskId, gates: &mut dyn Gates, out: &mut Outbox) -> Option<WhyNotRunning> {
        let task = self.task(id)?;
        let mut reasons = Vec::new();
        match task.status {
            TaskStatus::Running => return None,
            status if status.is_terminal() => return None,
            TaskStatus::AwaitingApproval => reasons.push("waits for an approval".to_owned()),
            TaskStatus::AwaitingInput => reasons.push("waits for a person's answer".to_owned()),
            TaskStatus::AwaitingReview => {
                let acts = calls(out).any(|key| matches!(key, GraphKey::Act { task, .. } if task == id));
                let why = if acts { "waits for what its accepted result proposed" } else { "waits for its review" };
                reasons.push(why.to_owned());
            }
            TaskStatus::Errored => {
                let error = task.error.as_ref().map(|error| error.message.as_str()).unwrap_or_default();
                let waits = times(out).any(|key| self.task_of(key) == Some(id));
                reasons.push(match waits {
                    true => format!("errored ({error}); waits for its next try"),
                    false => format!("errored ({error}); waits for a repair"),
                });
            }
            _ => reasons.extend(self.unmet_edges(task)),
        }
        if task.status == TaskStatus::Blocked && reasons.is_empty() {
            let why = task.error.as_ref().map(|error| format!(" ({})", error.message)).unwrap_or_default();
            reasons.push(format!("blocked{why}; waits until somebody makes it pending"));
        }
        reasons.extend(gates.held());
        if reasons.is_empty() && task.status.is_runnable() {
            if self.in_flight.len() >= self.rules.slots() {
                reasons.push(format!("waits for a slot: {} of {} are taken", self.in_flight.len(), self.rules.slots()));
            } else if let Some(earlier) = self.stopped_before(id, out) {
                reasons.push(format!("waits for task {earlier}, which comes before it"));
            } else if let Start::Wait(why) | Start::Held(why) = gates.may_start(task, out) {
                reasons.push(why);
            } else if self.rules.selection == Selection::Supervisor {
                reasons.push("the supervisor has not chosen it yet".to_owned());
            }
        }
        Some(WhyNotRunning { task: id.clone(), status: task.status, reasons }).filter(|why| !why.reasons.is_empty())
    }

    /// Each edge that is not satisfied, by name.
    fn unmet_edges(&self, task: &Task) -> Vec<String> {
        let mut reasons = Vec::new();
        for edge in task.edges.iter().filter(|_| self.rules.honour) {
            let Some(on) = self.task(&edge.on) else {
                reasons.push(format!("depends on task {}, which does not exist", edge.on));
                continue;
            };
            let one = Task { edges: vec![edge.clone()], ..task.clone() };
            match (self.dependencies(&one), &edge.when) {
                (DependencyState::Satisfied, _) => {}
                (_, Some(when)) if on.status == TaskStatus::Completed => {
                    reasons.push(format!("task {} is completed, but not: {when}", edge.on));
                }
                _ => reasons.push(format!("waits for task {} ({})", edge.on, on.status)),
            }
        }
        reasons
    }

    /// PDT-07.
    pub(super) fn make_deadlock_report(&self) -> String {
        let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
        for task in self.plan.tasks.values() {
            *counts.entry(task.status.as_str()).or_default() += 1;
        }
        let counts: Vec<String> = counts.iter().map(|(status, count)| format!("{status}={count}")).collect();
        let runnable: Vec<String> =
            self.plan.tasks.values().filter(|task| self.may_run(task)).map(|task| task.id.to_string()).collect();
        let blocked = |task: &&Task| !task.status.is_terminal() && !self.may_run(task);
        let reason = |task: &Task| {
            let why = self.why_not(&task.id).unwrap_or_else(|| "not runnable".to_owned());
            format!("task {}: {why}", task.id)
        };
        let blocked: Vec<String> = self.plan.tasks.values().filter(blocked).take(BLOCKED_MAX).map(reason).collect();
        let requested: Vec<&String> =
            self.board_notes.iter().filter(|note| note.contains("was not executed")).collect();
        let requested = match requested.is_empty() {
            true => "nothing".to_owned(),
            false => requested.into_iter().cloned().collect::<Vec<_>>().join("; "),
        };
        format!(
            "Status counts: {}. Requested by the supervisor: {requested}. Runnable: [{}]. Blocked: {}.",
            counts.join(", "),
            runnable.join(", "),
            if blocked.is_empty() { "none".to_owned() } else { blocked.join("; ") }
        )
    }

    /// Why a task has no error and is not done all the same.
    pub(super) fn why_left(&self, task: &Task) -> String {
        let words = || task.feedback.last().filter(|said| !said.passed && !said.text.is_empty());
        match task.status {
            TaskStatus::AwaitingReview => "the review says nothing of it".to_owned(),
            TaskStatus::NeedsRevision => {
                words().map_or("rejected".to_owned(), |said| format!("rejected: {}", said.text))
            }
            _ => self.why_not(&task.id).unwrap_or_else(|| match &self.undecided {
                Some(why) => format!("nobody began it, for the last decision was not understood: {why}"),
                None => "nobody began it".to_owned(),
            }),
        }
    }

    /// The state of tasks as data, without what is only of the machine.
    pub fn digest(&self) -> Value {
        let task = |task: &Task| {
            let feedback: Vec<&String> = task.feedback.iter().map(|feedback| &feedback.text).collect();
            json!({
                "id": task.id, "status": task.status, "tries": task.tries, "result": task.result,
                "error": task.error, "feedback": feedback, "goal": task.goal,
            })
        };
        let tasks: Vec<Value> = self.plan.in_order().into_iter().map(task).collect();
        json!({ "phase": self.phase, "iteration": self.iteration, "tasks": tasks, "outcome": self.outcome })
    }
}
