//! Review of one task's result, as soon as it is there (pydantask's critic, the flow board's reviewer).
//!
//! Invariant: only a review (or a person) completes a task that awaits one (PDT-25); every review counts an attempt
//! (PDT-21), and so does a person's rejection of a result; a review of a task that is over changes nothing. An answer that
//! is no review judges nothing: it is asked for again, a bounded number of times, and is no attempt of the task.

use serde_json::json;

use super::answers::answered;
use super::*;
use crate::supervisor::critic::CriticVerdict;
use crate::supervisor::model::{Feedback, FeedbackFrom, TaskError};
use crate::supervisor::plan_task;

/// The label and the kind of error of a task whose review failed (FSS-31).
const REVIEWER_ERROR: &str = "reviewer-error";

/// How each verdict begins that pydantask writes into an objective (PDT-24).
const FAILED_REVIEW: &str = "Previous attempt failed review; feedback: ";

/// An objective in other words, with what reviews have written into the one before (PDT-54).
pub(super) fn with_feedback_of(before: &str, goal: &str) -> String {
    let said = before.find(FAILED_REVIEW).filter(|_| !goal.contains(FAILED_REVIEW));
    said.map_or_else(|| goal.to_owned(), |at| format!("{goal}\n\n{}", &before[at..]))
}

impl Graph {
    /// A result that nobody is paid to review waits for the end of the run, which leaves it out.
    pub(super) fn ask_review(&mut self, id: &TaskId, attempt: u32, out: &mut Outbox) {
        self.ask_review_again(id, (attempt, 1), None, out);
    }

    /// `refused`: what was wrong with the review before, which was the one before the n-th of this result.
    fn ask_review_again(&mut self, id: &TaskId, (attempt, n): (u32, u32), refused: Option<&str>, out: &mut Outbox) {
        if out.budget().exhausted().is_some() {
            return;
        }
        let Some(task) = self.task(id) else { return };
        let mut context = json!({
            "id": id, "goal": task.goal, "objective": self.plan.objective, "attempt": attempt,
            "result": task.result, "criteria": self.rules.criteria,
        });
        if !self.may_escalate() {
            context["accepts_or_rejects"] = true.into();
        }
        let mut prompt = prompt_of(Purpose::Review, &context);
        let mut key = GraphKey::Review { of: id.clone(), attempt: Some(attempt) };
        if let Some(why) = refused {
            context["error"] = why.into();
            prompt += &format!("\n\nYour last review was not taken: {why}");
            key = GraphKey::ReviewAgain { task: id.clone(), attempt, n };
        }
        let call = Call::new(key, Purpose::Review, context)
            .task(id.clone(), attempt)
            .round(self.iteration.max(self.cycle))
            .prompt(prompt);
        self.call(call, out);
    }

    pub(super) fn reviewed(
        &mut self,
        id: &TaskId,
        (attempt, n): (u32, u32),
        answer: Answer,
        gates: &mut dyn Gates,
        out: &mut Outbox,
    ) {
        let review = answered::<TaskReview>("review", answer);
        let review = review.and_then(|review| match (review.verdict, review.passed) {
            (None, None) => Err(NotTaken::NoVerdict),
            _ => Ok(review),
        });
        let review = review.map_err(|why| why.to_string());
        if self.task(id).is_none_or(|task| task.status != TaskStatus::AwaitingReview || task.tries != attempt) {
            out.note(NoteKind::AttemptDropped, json!({ "task": id, "attempt": attempt, "what": "review" }));
            return;
        }
        match review {
            Ok(review) => self.judge(id, attempt, review, gates, out),
            // The reviewer itself had too little.
            Err(_) if out.budget().exhausted().is_some() => {}
            Err(why) if Tries::of(self.rules.review_tries).are_left(n) => {
                out.note(NoteKind::ReviewRecorded, json!({ "task": id, "attempt": attempt, "refused": why }));
                self.ask_review_again(id, (attempt, n + 1), Some(&why), out);
            }
            Err(why) => self.reviewer_failed(id, why, gates, out),
        }
    }

    /// A result that the rules of its task judge. Without rules it counts as it is, and is an attempt all the same.
    pub(super) fn judge_by_rules(&mut self, id: &TaskId, attempt: u32, gates: &mut dyn Gates, out: &mut Outbox) {
        let Some(task) = self.plan.tasks.get_mut(id) else { return };
        let Some(verdict) = plan_task::verdict(task) else {
            task.attempt_count += 1;
            self.set(id, TaskStatus::Completed, Actor::Worker, "result", out);
            return self.tell_ended(id, gates, out);
        };
        self.set(id, TaskStatus::AwaitingReview, Actor::Worker, "result", out);
        match verdict {
            Ok(CriticVerdict { passed, reasoning }) => {
                let (verdict, score, criteria, tokens) = (None, None, Value::Null, 0);
                let review = TaskReview { verdict, passed: Some(passed), feedback: reasoning, score, criteria, tokens };
                self.judge(id, attempt, review, gates, out);
            }
            Err(why) => self.reviewer_failed(id, why.to_string(), gates, out),
        }
    }

    /// Whether somebody, or some rule, has to accept the result of a task before it counts.
    pub(super) fn is_judged(&self, task: &Task) -> bool {
        match self.rules.review {
            ReviewScope::None => false,
            ReviewScope::Rules => plan_task::verdict(task).is_some(),
            ReviewScope::Task | ReviewScope::Iteration => true,
        }
    }

    /// SHH-19: what a reviewer has accepted is shown to a person as well, unless one has let it pass before.
    fn is_shown_to_a_person(&mut self, id: &TaskId, gates: &mut dyn Gates, out: &mut Outbox) -> bool {
        let Some(task) = self.copy(id) else { return false };
        if task.metadata.passed_try == Some(task.tries) || gates.may_count(&task, out) == Take::Go {
            return false;
        }
        if let Some(task) = self.plan.tasks.get_mut(id) {
            task.metadata.reviewed_try = Some(task.tries);
        }
        self.set(id, TaskStatus::AwaitingInput, Actor::Critic, "asks_a_person", out)
    }

    /// The result counts: what it proposes is done now, and with that the task is over. Until then it stays where it is.
    pub(super) fn accept(&mut self, id: &TaskId, reason: &str, gates: &mut dyn Gates, out: &mut Outbox) {
        if self.is_shown_to_a_person(id, gates, out) {
            return;
        }
        let proposed = self.plan.tasks.get_mut(id).and_then(|task| task.metadata.proposed_action.take());
        match proposed {
            Some(action) => self.act(id, &action, gates, out),
            None => {
                if self.set(id, TaskStatus::Completed, Actor::Critic, reason, out) {
                    self.tell_ended(id, gates, out);
                }
            }
        }
    }

    /// SHH-18: what a person has let a result do is not done when the result does not count in the end. That is told, and the
    /// error of the task says it as well.
    pub(super) fn drop_approved_action(&mut self, id: &TaskId, out: &mut Outbox) {
        let Some(task) = self.plan.tasks.get_mut(id) else { return };
        let is_approved = task.metadata.passed_try == Some(task.tries);
        let Some(action) = task.metadata.proposed_action.take().filter(|_| is_approved) else { return };
        let why = format!("`{action}` was approved, and was not done: its result does not count");
        if let Some(error) = task.error.as_mut() {
            error.message = format!("{} ({why})", error.message);
        }
        out.note(NoteKind::ActionRefused, json!({ "task": id, "action": action, "why": why }));
    }

    /// Whether a reviewer may hand a task upward. Beside somebody who decides a critic accepts or rejects, and the decider
    /// sees to the rest (PDT-12, PDT-23).
    pub(super) fn may_escalate(&self) -> bool {
        self.rules.selection != Selection::Supervisor
    }

    /// A verdict as it counts: work of too low a score is not accepted (supervisors.md §4.2 no. 27).
    pub(super) fn counted(&self, verdict: VerdictKind, score: Option<u32>) -> VerdictKind {
        let too_low = self.rules.accept_below_score_bp.zip(score).is_some_and(|(least, score)| score < least);
        match verdict {
            VerdictKind::Accepted if too_low => VerdictKind::NeedsRevision,
            VerdictKind::Escalate if !self.may_escalate() => VerdictKind::NeedsRevision,
            verdict => verdict,
        }
    }

    fn judge(&mut self, id: &TaskId, attempt: u32, review: TaskReview, gates: &mut dyn Gates, out: &mut Outbox) {
        let said = match (review.verdict, review.passed) {
            (Some(verdict), _) => verdict,
            (None, Some(true)) => VerdictKind::Accepted,
            (None, _) => VerdictKind::NeedsRevision,
        };
        let verdict = self.counted(said, review.score);
        let Some(task) = self.plan.tasks.get_mut(id) else { return };
        task.attempt_count += 1;
        let tries_are_left = Tries::of_task(task).are_left(task.attempt_count);
        let feedback = Feedback {
            from: FeedbackFrom::Critic,
            attempt,
            text: review.feedback.clone(),
            score_bp: review.score,
            passed: verdict == VerdictKind::Accepted,
        };
        task.feedback.push(feedback);
        out.note(
            NoteKind::ReviewRecorded,
            json!({ "task": id, "attempt": attempt, "verdict": verdict, "feedback": review.feedback, "score_bp": review.score }),
        );
        match verdict {
            VerdictKind::Accepted => {
                task.error = None;
                self.accept(id, "accepted", gates, out);
            }
            VerdictKind::Escalate => {
                self.escalate(id, &review.feedback, gates, out);
            }
            VerdictKind::NeedsRevision if !tries_are_left => self.rejected_for_good(id, Actor::Critic, gates, out),
            VerdictKind::NeedsRevision => self.send_back(id, &review.feedback, out),
        }
    }

    /// A result was rejected once too often, by whomever (PDT-23).
    pub(super) fn rejected_for_good(&mut self, id: &TaskId, by: Actor, gates: &mut dyn Gates, out: &mut Outbox) {
        let Some(task) = self.plan.tasks.get_mut(id) else { return };
        let message = format!("Max retries reached ({}/{}).", task.attempt_count, task.max_attempts);
        task.error = Some(TaskError { kind: "failed-review".into(), message });
        task.labels.insert("failed-review".to_owned());
        self.set(id, TaskStatus::Failed, by, "attempts_exhausted", out);
        self.tell_ended(id, gates, out);
        self.check_threshold(gates, out);
    }

    /// The next attempt is told what was wrong; pydantask also writes it into the objective, each time (PDT-24).
    fn send_back(&mut self, id: &TaskId, text: &str, out: &mut Outbox) {
        let append = self.rules.append_feedback;
        if let Some(task) = self.plan.tasks.get_mut(id).filter(|_| append) {
            task.goal = format!("{}\n\n{FAILED_REVIEW}{text}", task.goal);
        }
        out.note(NoteKind::FeedbackAttached, json!({ "task": id, "text": text }));
        self.drop_approved_action(id, out);
        self.set(id, TaskStatus::NeedsRevision, Actor::Critic, "rejected", out);
    }

    /// Whether reviews that failed are all that went wrong, so that nobody knows whether what was done is any good.
    pub(super) fn fails_without_verdict(&self) -> bool {
        let without = |task: &Task| task.error.as_ref().is_some_and(|error| error.kind == REVIEWER_ERROR);
        let mut failed = self.plan.tasks.values().filter(|task| task.status == TaskStatus::Failed).peekable();
        failed.peek().is_some() && failed.all(without)
    }

    /// FSS-31: a reviewer that throws to the last leaves the task without a verdict; that is an error of its own.
    pub(super) fn reviewer_failed(&mut self, id: &TaskId, why: String, gates: &mut dyn Gates, out: &mut Outbox) {
        if let Some(task) = self.plan.tasks.get_mut(id) {
            task.labels.insert(REVIEWER_ERROR.to_owned());
            task.error = Some(TaskError { kind: REVIEWER_ERROR.into(), message: why });
        }
        self.set(id, TaskStatus::Failed, Actor::Scheduler, "reviewer_error", out);
        self.tell_ended(id, gates, out);
        self.check_threshold(gates, out);
    }
}
