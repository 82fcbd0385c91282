//! What a cancelled run undoes of what its tasks did (SHN-62).
//!
//! Invariant: a compensation is asked for once, one after the other, of the agent that did the work (of the agent of the task,
//! if a person did it by hand), and the report says of each task whether it was undone. Work counts that gave a result, also
//! one that nobody has accepted or looked at yet. What goes wrong stops nothing and is an error of the run.

use serde_json::json;

use super::*;
use crate::supervisor::core::strategy::TaskReport;
use crate::supervisor::model::{CancelReason, TaskError};

/// Of work that had ended in a run that stood still, and was cancelled or failed then.
const UNSEEN: &str =
    "it had been done while the run stood still, and the run ended before anybody looked at the result";

/// How everything begins that is said of a compensation.
const COMPENSATION: &str = "compensation of task ";

/// The beginning of what is said of a task whose compensation failed.
fn not_undone(id: &TaskId) -> String {
    format!("{COMPENSATION}{id} failed")
}

/// What a run, and those below it, could not undo (SHN-62), from what it reports: in its words, where it has any.
pub fn left_undone(tasks: &[TaskReport], errors: &[String]) -> Vec<String> {
    let mut left: Vec<String> = errors.iter().filter(|error| error.starts_with(COMPENSATION)).cloned().collect();
    for task in tasks.iter().filter(|task| task.undone == Some(false)) {
        let what = not_undone(&task.task_id);
        if !left.iter().any(|error| error.starts_with(&what)) {
            left.push(what);
        }
    }
    left
}

impl Graph {
    /// The one completed last is undone first.
    pub(super) fn compensate_next(&mut self, out: &mut Outbox) {
        let Some(id) = self.compensating.pop() else {
            if let Some(outcome) = self.closing.take() {
                self.close(outcome, out);
            }
            return;
        };
        let Some(task) = self.task(&id) else { return };
        let left = task.metadata.left_work.as_ref();
        let result = task.result.as_ref().or_else(|| left?.result.as_ref());
        let context = json!({ "id": id, "compensation": Self::undone_by(task), "result": result });
        let mut call = Call::new(GraphKey::Compensate { task: id.clone() }, Purpose::Compensate, context).task(id, 1);
        // Whoever did it undoes it; the task may have gone to another one since.
        let done = task.attempts.iter().rev().filter(|attempt| attempt.outcome == AttemptOutcome::Completed);
        let by = done.filter_map(|attempt| attempt.agent.clone()).find(|agent| agent != HUMAN);
        call.agent = by.or_else(|| task.agent.clone()).or_else(|| self.who(task).name());
        self.call(call, out);
    }

    /// Whether there is anything to undo: what a task gave counts, whatever became of the task after that.
    pub(super) fn has_effects(task: &Task) -> bool {
        let acted = task.metadata.action_result.is_some();
        let left = task.metadata.left_work.is_some();
        task.status == TaskStatus::Completed || task.result.is_some() || task.metadata.gave_nothing || acted || left
    }

    /// What undoes a task, or the work that was done for it before.
    pub(super) fn undone_by(task: &Task) -> Option<&Value> {
        task.compensation.as_ref().or_else(|| task.metadata.left_work.as_ref()?.compensation.as_ref())
    }

    /// A run below was no success, and has done something all the same.
    pub(super) fn has_left_work(&mut self, id: &TaskId, so_far: Option<Value>) {
        if let Some(task) = self.plan.tasks.get_mut(id) {
            let left = task.metadata.left_work.get_or_insert_default();
            left.result = so_far.or(left.result.take());
        }
    }

    /// No report shows as done what a run below did before it failed: that nothing undoes it is said.
    pub(super) fn tell_left_work(&mut self) {
        let left = |task: &&Task| {
            let counts = task.status == TaskStatus::Completed || Self::undone_by(task).is_some();
            task.metadata.left_work.is_some() && !counts
        };
        let told = |task: &Task| {
            format!("{COMPENSATION}{} is not known: what was done for it before it failed is not undone", task.id)
        };
        let told: Vec<String> = self.plan.in_order().into_iter().filter(left).map(told).collect();
        self.errors.extend(told);
    }

    /// A worker had answered before the run was cancelled or failed, and nobody has looked at it: whether it would have
    /// counted is not known, and that there is something to undo is.
    pub(super) fn was_done(&mut self, id: &TaskId, attempt: u32, answer: Answer, out: &mut Outbox) {
        let Some(task) = self.plan.tasks.get_mut(id) else { return };
        // The end of the run cut it off, which is no end of its own.
        let cut_off = task.status == TaskStatus::Cancelled && task.cancelled == Some(CancelReason::RunCancelled);
        if !(task.status == TaskStatus::Running || cut_off) || task.tries != attempt {
            return;
        }
        let reply = reply_of(answer);
        let Some(record) = task.attempts.iter_mut().rev().find(|record| record.n == attempt) else { return };
        record.ended_at = Some(out.now());
        match reply {
            Ok(reply) if reply.success && !reply.is_question() => {
                record.outcome = AttemptOutcome::Completed;
                record.confidence_bp = reply.confidence;
                record.model.clone_from(&reply.model);
                task.metadata.gave_nothing |= reply.result.is_null();
                task.result = Some(reply.result.clone()).filter(|result| !result.is_null());
                task.error = Some(TaskError { kind: NOT_REVIEWED.into(), message: UNSEEN.to_owned() });
                self.cost_of_attempt(id, attempt, &reply);
                out.note(NoteKind::AttemptCompleted, json!({ "task": id, "attempt": attempt, "tokens": reply.tokens }));
            }
            Ok(reply) if reply.success => record.outcome = AttemptOutcome::Dropped,
            Ok(reply) => {
                self.cost_of_attempt(id, attempt, &reply);
                self.record_failure(id, attempt, &reply.why(), out);
            }
            Err(why) => self.record_failure(id, attempt, &why.to_string(), out),
        }
    }

    pub(super) fn compensated(&mut self, id: &TaskId, answer: Answer, out: &mut Outbox) {
        let error = match &answer {
            Ok(said) => refused(said),
            Err(why) => Some(why.to_string()),
        };
        self.undone.insert(id.clone(), error.is_none());
        out.note(NoteKind::CompensationRun, json!({ "task": id, "error": error }));
        self.errors.extend(error.map(|why| format!("{}: {why}", not_undone(id))));
        self.compensate_next(out);
    }
}
