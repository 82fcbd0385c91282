//! What people do to tasks: approve, reject, send back, answer, complete by hand (supervisors.md §5.2).
//!
//! Invariant: every change goes through the task table; what the table refuses changes nothing. Who may ask, and whether
//! an answer counts, is decided before (approvals, interrupts, control).

use serde_json::{Map, json};

use super::*;
use crate::supervisor::core::strategy::Continuation;
use crate::supervisor::model::{Feedback, FeedbackFrom, PlanOrigin};

/// Nobody has said anything of the plan in time.
pub const PLAN_REVIEW_TIMED_OUT: &str = "plan_review_timed_out";

/// Notes that wait for the next decision; of more, the oldest go.
const BOARD_NOTES_MAX: usize = 200;

impl Graph {
    /// A person has approved that a task may start, or that what its result proposes may be done.
    /// What they want whoever does it to know is told to them (SHH-12).
    pub fn approved(
        &mut self,
        id: &TaskId,
        action: &str,
        feedback: Option<String>,
        gates: &mut dyn Gates,
        out: &mut Outbox,
    ) {
        let Some(task) = self.plan.tasks.get_mut(id) else { return };
        let (status, attempt) = (task.status, task.tries);
        if let Some(text) = feedback {
            out.note(NoteKind::FeedbackAttached, json!({ "task": id, "text": text, "from": "human" }));
            let from = FeedbackFrom::Human;
            task.feedback.push(Feedback { from, attempt, text, score_bp: None, passed: true });
        }
        match status {
            TaskStatus::AwaitingApproval => {
                task.approved = true;
                if !action.is_empty() && task.action.as_deref() != Some(action) {
                    task.metadata.approved_action = Some(action.to_owned());
                }
                self.set(id, TaskStatus::Ready, Actor::Human, "approved", out);
                // It was chosen already: nobody has to choose it again.
                if matches!(self.rules.selection, Selection::Supervisor | Selection::Controller) {
                    self.chosen.push(id.clone());
                }
            }
            TaskStatus::AwaitingInput => {
                task.metadata.passed_try = Some(task.tries);
                if task.is_reviewed() {
                    task.metadata.proposed_action = Some(action.to_owned()).filter(|action| !action.is_empty());
                    self.under_review(id, out);
                    self.accept(id, "approved", gates, out);
                } else if self.set(id, TaskStatus::Running, Actor::Human, "approved", out) {
                    self.act_or_judge(id, action, gates, out);
                }
            }
            _ => {}
        }
        self.advance(gates, out);
    }

    /// What a result proposes is done at once where nobody judges the result; otherwise when it is accepted, if it is.
    pub(super) fn act_or_judge(&mut self, id: &TaskId, action: &str, gates: &mut dyn Gates, out: &mut Outbox) {
        let Some(task) = self.task(id) else { return };
        let (attempt, is_judged) = (task.tries, self.is_judged(task));
        if !action.is_empty() && !is_judged {
            return self.act(id, action, gates, out);
        }
        if let Some(task) = self.plan.tasks.get_mut(id) {
            task.metadata.proposed_action = Some(action.to_owned()).filter(|action| !action.is_empty());
        }
        self.take(id, attempt, gates, out);
    }

    /// The action that a result proposed is carried out, once; the result stays as it is. One that nobody pays for is told
    /// as not done.
    pub(super) fn act(&mut self, id: &TaskId, action: &str, gates: &mut dyn Gates, out: &mut Outbox) {
        let Some(task) = self.task(id) else { return };
        let attempt = task.tries;
        if out.budget().exhausted().is_some() {
            self.set(id, TaskStatus::Errored, Actor::Worker, "budget", out);
            return self.leave_out(
                id,
                &format!("the result is there, but `{action}` was not done: {SPENT}"),
                gates,
                out,
            );
        }
        let Some(task) = self.task(id) else { return };
        let mut context =
            json!({ "id": id, "goal": task.goal, "action": action, "result": task.result, "role": task.role });
        let said = task.feedback.iter().rfind(|said| said.from == FeedbackFrom::Human && said.attempt == attempt);
        if let (Some(said), Value::Object(context)) = (said, &mut context) {
            context.insert("feedback".to_owned(), said.text.clone().into());
        }
        let prompt = prompt_of(Purpose::ExecuteWorker, &context);
        let mut call = Call::new(GraphKey::Act { task: id.clone(), attempt }, Purpose::ExecuteWorker, context)
            .task(id.clone(), attempt)
            .prompt(prompt);
        call.agent = self.who(task).name();
        self.call(call, out);
    }

    pub(super) fn acted(&mut self, id: &TaskId, attempt: u32, answer: Answer, gates: &mut dyn Gates, out: &mut Outbox) {
        let Some(task) = self.task(id) else { return };
        let is_judged = self.is_judged(task);
        let waits_in = if is_judged { TaskStatus::AwaitingReview } else { TaskStatus::Running };
        if task.status != waits_in || task.tries != attempt {
            return;
        }
        let read = |done: Value| Ok::<_, NotTaken>((Reply::of(done.clone())?, done));
        match answer.map_err(NotTaken::from).and_then(read) {
            Ok((reply, done)) => {
                self.cost_of_attempt(id, attempt, &reply);
                if let Some(task) = self.plan.tasks.get_mut(id).filter(|_| reply.success) {
                    (task.metadata.action_result, task.metadata.action_error) = (Some(done), None);
                }
                // What was judged is not judged again: it was accepted before anything was done.
                match is_judged {
                    _ if !reply.success => self.not_acted(id, attempt, reply.why(), gates, out),
                    true => self.accept(id, "acted", gates, out),
                    false => self.take(id, attempt, gates, out),
                }
                self.said_beside(id, &reply, gates, out);
            }
            Err(why) => self.not_acted(id, attempt, why.to_string(), gates, out),
        }
    }

    /// What was approved was tried, and failed: whatever people say to another try, that stays so (SHH-18).
    fn not_acted(&mut self, id: &TaskId, attempt: u32, why: String, gates: &mut dyn Gates, out: &mut Outbox) {
        if let Some(task) = self.plan.tasks.get_mut(id) {
            task.metadata.action_error = Some(why.clone());
        }
        self.errored(id, attempt, why, gates, out);
    }

    /// Modify and Retry (SHH-12, SHH-19): the task is done again, told what the person wants.
    /// An action that they want instead is what the task is about from now on.
    pub fn sent_back(
        &mut self,
        id: &TaskId,
        feedback: &str,
        action: Option<&str>,
        gates: &mut dyn Gates,
        out: &mut Outbox,
    ) {
        let Some(task) = self.plan.tasks.get_mut(id) else { return };
        let (status, attempt, is_reviewed) = (task.status, task.tries, task.is_reviewed());
        if !matches!(status, TaskStatus::AwaitingApproval | TaskStatus::AwaitingInput) {
            return;
        }
        let mut text = feedback.to_owned();
        if let Some(action) = action.filter(|action| !action.is_empty()) {
            task.metadata.approved_action = Some(action.to_owned());
            task.action = Some(action.to_owned());
            let gap = if text.is_empty() { "" } else { "\n" };
            text.push_str(&format!("{gap}The action to take instead: {action}"));
        }
        out.note(NoteKind::FeedbackAttached, json!({ "task": id, "text": text, "from": "human" }));
        let from = FeedbackFrom::Human;
        task.feedback.push(Feedback { from, attempt, text, score_bp: None, passed: false });
        // PDT-21, PDT-23: whoever rejects a result, it counts, so that this ends some day.
        if status == TaskStatus::AwaitingInput {
            // The reviewer who accepted it has counted.
            task.attempt_count += u32::from(!is_reviewed);
            if !Tries::of_task(task).are_left(task.attempt_count) {
                self.under_review(id, out);
                self.rejected_for_good(id, Actor::Human, gates, out);
                return self.advance(gates, out);
            }
        }
        if status == TaskStatus::AwaitingApproval {
            self.set(id, TaskStatus::NeedsRevision, Actor::Human, "modify_and_retry", out);
        } else if is_reviewed && self.rules.review == ReviewScope::Iteration {
            // A person wants it done again: another plan does that, if there may be one.
            self.under_review(id, out);
            self.set(id, TaskStatus::NeedsRevision, Actor::Human, "modify_and_retry", out);
            self.judged = Some(true);
        } else if self.set(id, TaskStatus::Running, Actor::Human, "modify_and_retry", out) {
            if let Some(task) = self.plan.tasks.get_mut(id) {
                task.tries_sent_back = attempt;
            }
            self.go_on(id, Map::new(), gates, out);
        }
        self.advance(gates, out);
    }

    /// A result that a person was asked about is one under review (§5.2).
    pub(super) fn under_review(&mut self, id: &TaskId, out: &mut Outbox) {
        self.set(id, TaskStatus::Running, Actor::Human, "answered", out);
        self.set(id, TaskStatus::AwaitingReview, Actor::Human, "result", out);
    }

    /// All questions of a task are answered: it goes on from there (LGI-01).
    pub fn answered_by_person(
        &mut self,
        id: &TaskId,
        continuation: Continuation,
        gates: &mut dyn Gates,
        out: &mut Outbox,
    ) {
        let Some(task) = self.plan.tasks.get(id).filter(|task| task.status == TaskStatus::AwaitingInput) else {
            return;
        };
        let (is_human, attempt) = (task.capability.as_deref() == Some(HUMAN), task.tries);
        if !self.set(id, TaskStatus::Running, Actor::Human, "answered", out) {
            return;
        }
        if is_human {
            let answer = continuation.answers.last().cloned();
            // A person may say no to the work as any worker may.
            if let Some(why) = answer.as_ref().and_then(refused) {
                self.errored(id, attempt, why, gates, out);
                return self.advance(gates, out);
            }
            if let Some(task) = self.plan.tasks.get_mut(id) {
                task.result = answer.filter(|answer| !answer.is_null());
                (task.by_human, task.error) = (true, None);
            }
            self.finish_attempt(id, attempt, out);
            self.take(id, attempt, gates, out);
        } else {
            let extra = Map::from_iter([("resume".to_owned(), json!(continuation))]);
            self.go_on(id, extra, gates, out);
        }
        self.advance(gates, out);
    }

    /// Nobody answered in time: that is an error of the task (LGI-07).
    pub fn unanswered(&mut self, id: &TaskId, why: &str, gates: &mut dyn Gates, out: &mut Outbox) {
        let Some(task) = self.plan.tasks.get(id).filter(|task| task.status == TaskStatus::AwaitingInput) else {
            return;
        };
        let attempt = task.tries;
        if self.set(id, TaskStatus::Running, Actor::Scheduler, "unanswered", out) {
            self.errored(id, attempt, why.to_owned(), gates, out);
        }
        self.advance(gates, out);
    }

    /// Starts the next attempt of a running task with what it is to be told.
    fn go_on(&mut self, id: &TaskId, more: Map<String, Value>, gates: &mut dyn Gates, out: &mut Outbox) {
        let Some(task) = self.copy(id) else { return };
        let mut extra = gates.context(&task, self.who(&task).name().as_deref(), out);
        extra.extend(more);
        self.start_attempt(id, extra, gates, out);
    }

    fn finish_attempt(&mut self, id: &TaskId, attempt: u32, out: &mut Outbox) {
        let Some(task) = self.plan.tasks.get_mut(id) else { return };
        if let Some(record) = task.attempts.iter_mut().rev().find(|record| record.n == attempt) {
            (record.ended_at, record.outcome) = (Some(out.now()), AttemptOutcome::Completed);
        }
    }

    /// A person has done the task (SHN-68). Whatever ran for it is cancelled, and its late answer dropped.
    pub fn complete_manually(
        &mut self,
        id: &TaskId,
        result: Value,
        gates: &mut dyn Gates,
        out: &mut Outbox,
    ) -> Result<(), PlanRefusal> {
        let Some(task) = self.plan.tasks.get_mut(id) else { return Err(PlanRefusal::NoTask(id.clone())) };
        if task.status.is_terminal() {
            return Err(PlanRefusal::TaskIsOver { id: id.clone(), status: task.status });
        }
        (task.result, task.by_human, task.error) = (Some(result).filter(|result| !result.is_null()), true, None);
        if let Some(attempt) =
            task.attempts.last().filter(|last| last.outcome == AttemptOutcome::Running).map(|last| last.n)
        {
            let status = TaskStatus::Completed;
            out.note(NoteKind::AttemptDropped, json!({ "task": id, "attempt": attempt, "status": status }));
        }
        self.cancel_calls_of(id, out);
        self.set(id, TaskStatus::Completed, Actor::Human, "completed_by_hand", out);
        self.chosen.retain(|other| other != id);
        self.tell_ended(id, gates, out);
        // Nobody is asked whether what they have done themselves may be done.
        if self.open.is_empty() {
            self.plan_changed(gates, out);
        }
        Ok(())
    }
}

/// What people do to the plan.
impl Graph {
    /// Words of a person, for the next decision. A graph where nobody decides has no use for them beyond the mailbox.
    pub fn told(&mut self, text: &str) {
        if self.rules.selection != Selection::Supervisor {
            return;
        }
        self.board_notes.push(format!("{}{text}", meanwhile::PERSON_SAYS));
        let excess = self.board_notes.len().saturating_sub(BOARD_NOTES_MAX);
        self.board_notes.drain(..excess);
    }

    /// People want another plan than what the supervisor has made of the one that they approved: it decides once more, and
    /// what it chose is not begun.
    pub(super) fn decide_again(&mut self, conversation: &Value, out: &mut Outbox) {
        let words = conversation.as_array().and_then(|said| said.last()?["message"].as_str()).unwrap_or_default();
        self.told(&format!("{words} (about the plan as it is now; nothing more starts until it is approved)"));
        self.chosen.clear();
        self.enter(Phase::Executing, out);
        self.ask_decision(out);
    }

    /// The plan that was shown is approved: it is carried out as it is (CUG-31).
    pub fn plan_approved(&mut self, gates: &mut dyn Gates, out: &mut Outbox) {
        if self.phase != Phase::AwaitingPlanApproval {
            return;
        }
        // A request without sub-tasks is for whoever answers it as a whole.
        let whole = PlannerOutput { complexity: self.complexity_bp, ..PlannerOutput::default() };
        self.approved = true;
        if self.plan.tasks.is_empty() && gates.hands_on(&whole, true, out) {
            return self.enter(Phase::Executing, out);
        }
        self.execute_plan(gates, out);
    }

    /// A person replaces what is left of the plan; what is over or runs stays. Refused as a whole, or taken as a whole.
    /// A plan that waits for its approval is shown again as it is now. Gives what was named and stays as it is, and why.
    pub fn revise(
        &mut self,
        tasks: Vec<PlannedTask>,
        gates: &mut dyn Gates,
        out: &mut Outbox,
    ) -> Result<Vec<String>, PlanRefusal> {
        self.may_be_changed(out)?;
        let planned = self.checked(PlannerOutput { tasks, ..PlannerOutput::default() })?;
        let mut changed = self.clone();
        let known = changed.refused_in_plan.len();
        changed.merge_plan(planned.tasks, PlanOrigin::Human, gates, out)?;
        // Whoever made this plan hears of it now, and the next planner has nothing to do with it.
        let kept = changed.refused_in_plan.split_off(known);
        *self = changed;
        self.touch_all();
        self.plan_changed(gates, out);
        Ok(kept)
    }

    /// A tool of the plan in a person's hands. What is added or patched is part of what they approve.
    pub fn changed_by_person(
        &mut self,
        tool: &str,
        args: &Map<String, Value>,
        gates: &mut dyn Gates,
        out: &mut Outbox,
    ) -> Result<Value, PlanRefusal> {
        if matches!(tool, "add_task" | "patch_task") {
            self.may_be_changed(out)?;
        } else if self.phase.is_terminal() {
            return Err(PlanRefusal::RunIsOver(self.phase));
        }
        let answer = self.tool(tool, args, Actor::Human, gates, out)?;
        self.touched_by(tool, args, &answer);
        self.plan_changed(gates, out);
        Ok(answer)
    }

    /// Whether people may change the plan: while one is made, reviewed or summed up, a change would be lost.
    pub(super) fn may_be_changed(&self, out: &Outbox) -> Result<(), PlanRefusal> {
        let is_asked = calls(out).any(|key| matches!(key, GraphKey::Plan { .. }));
        match self.phase {
            Phase::Executing | Phase::AwaitingPlanApproval if !is_asked => Ok(()),
            Phase::AwaitingPlanApproval => Err(PlanRefusal::IsAskedAnew),
            phase if phase.is_terminal() => Err(PlanRefusal::RunIsOver(phase)),
            phase => Err(PlanRefusal::NotNow(phase)),
        }
    }

    /// What people are asked to approve is the plan as it is now.
    pub(super) fn plan_changed(&mut self, gates: &mut dyn Gates, out: &mut Outbox) {
        if self.phase == Phase::AwaitingPlanApproval && !gates.plan_needs_approval(&self.plan, self.complexity_bp, out)
        {
            self.execute_plan(gates, out);
        }
    }
}
