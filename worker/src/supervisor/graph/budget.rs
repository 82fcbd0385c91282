//! What happens to a plan when the budget is spent: which tasks are left out, and what the result of the run is.
//!
//! Invariant: what the account withholds is never asked for: what waits is skipped, a result that nobody is paid to review
//! stays without a verdict, what is under way ends and is charged, and one last synthesis is made where the spec wants it.
//! A run that left anything out for it is no success. What is spent and what is left is the account's to say.

use super::*;
use crate::supervisor::core::account::{BUDGET_EXHAUSTED, Exhausted, UsedUp};
use crate::supervisor::model::{SkipReason, TaskError};

/// `kind` of the error of a task that gave a result which nobody reviewed any more.
pub const NOT_REVIEWED: &str = "not_reviewed";

impl Graph {
    /// Whether the budget has left anything undone.
    pub fn is_cut(&self) -> bool {
        self.cut
    }

    /// Whether something waits that is started when people give the run more.
    pub fn wants_more(&self, out: &Outbox) -> bool {
        let waits = |task: &Task| !task.is_in_flight();
        out.budget().asks()
            && self.phase == Phase::Executing
            && self.open.iter().filter_map(|id| self.task(id)).any(waits)
    }

    /// A budget that is spent starts nothing more: what waits is skipped, what runs ends, and the run with it.
    pub(super) fn check_budget(&mut self, gates: &mut dyn Gates, out: &mut Outbox) {
        let Some(exhausted) = out.budget().exhausted() else { return };
        self.chosen.clear();
        let undone = self.undone(out);
        if exhausted == Exhausted::Fail && !undone.is_empty() {
            return self.fail_for_budget(gates, out);
        }
        for id in undone {
            self.leave_out(&id, SPENT, gates, out);
        }
    }

    /// What nobody will do or review any more. A supervisor that selects leaves its plan as it stands (PDT-09).
    pub(super) fn undone(&self, out: &Outbox) -> Vec<TaskId> {
        let under_review = |id: &TaskId| {
            let whole = self.rules.review == ReviewScope::Iteration;
            calls(out).any(|key| match key {
                GraphKey::Review { .. } | GraphKey::ReviewAgain { .. } => whole || self.task_of(key) == Some(id),
                // What its accepted result proposed is under way.
                GraphKey::Act { task, .. } => task == id,
                _ => false,
            })
        };
        let undone = |task: &&Task| match task.status {
            TaskStatus::AwaitingReview => !under_review(&task.id),
            // Nobody would pay its worker to go on with the answer.
            TaskStatus::AwaitingInput if self.rules.selection != Selection::Supervisor => {
                let asks = task.result.is_none() && !task.metadata.gave_nothing;
                asks && task.capability.as_deref() != Some(HUMAN)
            }
            _ => self.rules.selection != Selection::Supervisor && !task.is_in_flight(),
        };
        self.open.iter().filter_map(|id| self.task(id)).filter(undone).map(|task| task.id.clone()).collect()
    }

    /// A task that is not done for want of budget; one that awaits its review keeps what it gave.
    pub(super) fn leave_out(&mut self, id: &TaskId, why: &str, gates: &mut dyn Gates, out: &mut Outbox) {
        self.cut = true;
        let Some(task) = self.task(id) else { return };
        if matches!(task.status, TaskStatus::Ready | TaskStatus::Errored) && task.is_tried_again() {
            return self.fail_untried(id, why, gates, out);
        }
        if task.status != TaskStatus::AwaitingReview {
            return self.give_up(id, SkipReason::Budget, why.to_owned(), gates, out);
        }
        if self.set(id, TaskStatus::Cancelled, Actor::Scheduler, "not_reviewed", out)
            && let Some(task) = self.plan.tasks.get_mut(id)
        {
            task.error = Some(TaskError { kind: NOT_REVIEWED.into(), message: format!("not reviewed: {why}") });
            self.tell_ended(id, gates, out);
        }
    }

    /// Whoever was to do it had too little of the budget of this run: where there is more it is tried again as often as others
    /// are, else it is left out as what waits is.
    pub(super) fn spent_below(
        &mut self,
        id: &TaskId,
        attempt: u32,
        why: String,
        gates: &mut dyn Gates,
        out: &mut Outbox,
    ) {
        let exhausted = out.budget().exhausted();
        if exhausted.is_none() {
            self.errored(id, attempt, why, gates, out);
            // No rule excuses it: it was not done for want of budget.
            self.cut |= self.task(id).is_some_and(|task| task.status.is_terminal());
            return;
        }
        self.attempt_failed(id, attempt, &why, out);
        if exhausted == Some(Exhausted::Fail) {
            return self.fail_for_budget(gates, out);
        }
        self.cut = true;
        self.give_up(id, SkipReason::Budget, why, gates, out);
    }

    /// What was tried and failed has failed, although it would have been tried again (§4.1 no. 11).
    fn fail_untried(&mut self, id: &TaskId, why: &str, gates: &mut dyn Gates, out: &mut Outbox) {
        let error = self.plan.tasks.get_mut(id).and_then(|task| task.error.as_mut());
        if let Some(error) = error.filter(|error| error.message != why) {
            error.message = format!("{} (not tried again: {why})", error.message);
        }
        if self.set(id, TaskStatus::Failed, Actor::Scheduler, "given_up", out) {
            self.tell_ended(id, gates, out);
        }
    }

    pub(super) fn fail_for_budget(&mut self, gates: &mut dyn Gates, out: &mut Outbox) {
        let spent = json!(out.budget().spent);
        self.abort(BUDGET_EXHAUSTED, SPENT.to_owned(), spent, gates, out);
    }

    /// A supervisor that selects is not asked again; the run says so and ends as it stands (PDT-09).
    pub(super) fn stop_for_budget(&mut self, gates: &mut dyn Gates, out: &mut Outbox) {
        self.cut = true;
        let budget = *out.budget();
        if budget.exhausted() == Some(Exhausted::Fail) {
            return self.fail_for_budget(gates, out);
        }
        let (used, limit) = (budget.spent.tokens, budget.allowance.tokens.unwrap_or_default());
        self.errors.push(match budget.used_up() {
            Some(UsedUp::Tokens) => {
                format!("Global token budget exceeded: tokens_used={used} >= token_budget={limit}. Stopping execution.")
            }
            _ => budget.text(),
        });
        self.stop(gates, out);
    }

    /// What a run ends with whose budget pays for no synthesis any more; none while it does.
    pub(super) fn without_synthesis(&mut self, gates: &mut dyn Gates, out: &mut Outbox) -> Option<Option<Value>> {
        out.budget().exhausted()?;
        for id in self.undone(out) {
            self.leave_out(&id, SPENT, gates, out);
        }
        let results = self.results(gates);
        if results.is_empty() {
            self.cut = true;
            return Some(None);
        }
        if out.budget().has_last_word() {
            return None;
        }
        self.cut = true;
        Some(Some(Value::Object(results.into_iter().collect())))
    }

    /// What a task gave, as far as it counts: what was rejected, failed or given up is nobody's result (SHH-10, SHN-35), though
    /// the task keeps it.
    pub(super) fn standing_result(task: &Task) -> Option<&Value> {
        let thrown_away = match task.status {
            TaskStatus::Skipped | TaskStatus::Failed | TaskStatus::Escalated => true,
            TaskStatus::Cancelled => !Self::is_unreviewed(task),
            _ => false,
        };
        task.result.as_ref().filter(|_| !thrown_away)
    }

    /// Whether this is a result that nobody reviewed any more: it is there, and the report says that nobody accepted it.
    pub(super) fn is_unreviewed(task: &Task) -> bool {
        task.status == TaskStatus::Cancelled && task.error.as_ref().is_some_and(|error| error.kind == NOT_REVIEWED)
    }
}
