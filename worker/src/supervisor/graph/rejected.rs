//! What becomes of a task that a person says no to (SHH-10), and of the run.
//!
//! Invariant: an optional task is left out and the run goes on; a required one has failed with the person's no, and the run with
//! it. What was tried and failed before has failed, whatever a person says. What a person said below, or a reviewer handed upward
//! there, is not begun again here.

use super::*;
use crate::supervisor::core::retry;
use crate::supervisor::model::{SkipReason, TaskError};
use crate::supervisor::outbox::CallFailureKind;

/// The error of a task that a person said no to, here or below.
pub(super) const APPROVAL_REJECTED: &str = "approval_rejected";
/// The error of a task whose run below has an escalated one.
pub(super) const HANDED_UP: &str = "handed_up";
/// The error of a task whose worker failed.
const WORKER_ERROR: &str = "worker-error";

impl Graph {
    /// A person said no, or the time for an answer did: an optional task is not done; the run goes on (SHH-10).
    pub fn rejected(&mut self, id: &TaskId, reason: &str, by: Actor, gates: &mut dyn Gates, out: &mut Outbox) {
        let Some(task) = self.plan.tasks.get_mut(id) else { return };
        let waiting = task.status;
        if !matches!(waiting, TaskStatus::AwaitingApproval | TaskStatus::AwaitingInput) {
            return;
        }
        // An action that was approved and failed has failed, and so has its task (SHH-18).
        if waiting == TaskStatus::AwaitingInput
            && let Some(failed) = task.metadata.action_error.clone()
        {
            let message = format!("{failed}; it was not let be tried again: {reason}");
            task.error = Some(TaskError { kind: WORKER_ERROR.into(), message });
            self.under_review(id, out);
            if self.set(id, TaskStatus::Failed, by, "approval_rejected", out) {
                self.tell_ended(id, gates, out);
                self.check_threshold(gates, out);
            }
            return self.advance(gates, out);
        }
        // What was tried and failed has failed, whoever does not let it be tried again (§4.1 no. 11).
        if waiting == TaskStatus::AwaitingApproval && task.is_tried_again() {
            if self.set(id, TaskStatus::Failed, by, "approval_rejected", out) {
                self.tell_ended(id, gates, out);
                self.check_threshold(gates, out);
            }
            return self.advance(gates, out);
        }
        task.error = Some(TaskError { kind: APPROVAL_REJECTED.into(), message: reason.to_owned() });
        task.skipped = Some(SkipReason::ApprovalRejected);
        if self.set(id, TaskStatus::Skipped, by, "approval_rejected", out) {
            self.tell_ended(id, gates, out);
        }
        self.advance(gates, out);
    }

    /// A person said no to what is required: its task has failed with that, and the run with it (SHH-10).
    pub fn required_rejected(
        &mut self,
        id: Option<&TaskId>,
        why: String,
        by: Actor,
        gates: &mut dyn Gates,
        out: &mut Outbox,
    ) {
        let asked = |task: &Task| matches!(task.status, TaskStatus::AwaitingApproval | TaskStatus::AwaitingInput);
        self.denied |= by == Actor::Human;
        if let Some(id) = id.filter(|id| self.task(id).is_some_and(asked)) {
            if self.task(id).is_some_and(|task| task.status == TaskStatus::AwaitingInput) {
                self.under_review(id, out);
            }
            if let Some(task) = self.plan.tasks.get_mut(id) {
                let failed = task.metadata.action_error.as_ref();
                let message = failed
                    .map_or_else(|| why.clone(), |failed| format!("{why}; what was approved had failed: {failed}"));
                task.error = Some(TaskError { kind: APPROVAL_REJECTED.into(), message });
            }
            if self.set(id, TaskStatus::Failed, by, "approval_rejected", out) {
                self.tell_ended(id, gates, out);
            }
        }
        self.abort(TASK_REJECTED, why, Value::Null, gates, out);
    }

    /// An attempt has failed for good: a person said no below, or what was asked for cannot be had. The task has that error,
    /// so that the run above this one hears of it too.
    pub(super) fn not_tried_again(
        &mut self,
        id: &TaskId,
        kind: CallFailureKind,
        why: String,
        gates: &mut dyn Gates,
        out: &mut Outbox,
    ) {
        // What waits for a repair would be done once more.
        let repairs = self.rules.on_exhausted == OnTriesExhausted::Errored;
        let (of_task, is_hopeless) = match kind {
            CallFailureKind::Hopeless => (None, true),
            CallFailureKind::Final => (None, repairs),
            CallFailureKind::HandedUp => (Some(HANDED_UP), repairs),
            // What else went wrong there has failed, whatever a person said.
            CallFailureKind::SaidNoBeside => (None, repairs),
            _ => (Some(APPROVAL_REJECTED), repairs && retry::is_of_person(kind)),
        };
        if let Some((kind, error)) = of_task.zip(self.plan.tasks.get_mut(id).and_then(|task| task.error.as_mut())) {
            error.kind = kind.to_owned();
        }
        match is_hopeless {
            true => self.fail(id, "hopeless", gates, out),
            false => self.exhausted(id, why, gates, out),
        }
        if let Some(task) = self.plan.tasks.get_mut(id).filter(|task| task.status.is_terminal()) {
            task.ended_by_person |= retry::is_of_person(kind);
        }
    }

    /// Whether a person has said no to any of it, or ended it.
    pub(super) fn has_no_of_person(&self) -> bool {
        let ended = |task: &Task| task.ended_by_person && task.status != TaskStatus::Completed;
        self.denied || self.plan.tasks.values().any(ended) || self.handed.as_ref().is_some_and(|handed| handed.said_no)
    }

    /// Whether nothing but the no of a person keeps the run from its success.
    pub(super) fn is_rejected(&self) -> bool {
        let kind = |task: &Task, kind: &str| task.error.as_ref().is_some_and(|error| error.kind == kind);
        let ended = |task: &Task| {
            let left_out = matches!(task.status, TaskStatus::Cancelled | TaskStatus::Skipped);
            task.ended_by_person && left_out && !kind(task, WORKER_ERROR)
        };
        let said_no = |task: &&Task| kind(task, APPROVAL_REJECTED) || ended(task);
        let (rejected, others): (Vec<&Task>, Vec<&Task>) = self.plan.tasks.values().partition(said_no);
        !self.is_cut() && !rejected.is_empty() && !others.into_iter().any(is_at_fault)
    }
}

/// Whether a task that nobody said no to was tried, and has not been done.
fn is_at_fault(task: &Task) -> bool {
    match task.status {
        TaskStatus::Failed
        | TaskStatus::Escalated
        | TaskStatus::NeedsRevision
        | TaskStatus::AwaitingReview
        | TaskStatus::Errored
        // Nothing held it back, and nobody began it.
        | TaskStatus::Ready => true,
        TaskStatus::Skipped => task.skipped == Some(SkipReason::WorkerError),
        _ => false,
    }
}
