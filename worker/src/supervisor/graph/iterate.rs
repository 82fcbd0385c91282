//! Iterations: review of all results at once, and replanning.
//!
//! Invariant: accepted and escalated tasks survive every new plan unchanged and are never done again (FSS-12); the
//! number of plannings is bounded (FSS-11); exhausted iterations are no error (FSS-14).

use serde_json::json;

use super::anew::each_once;
use super::answers::answered;
use super::*;
use crate::supervisor::model::{CancelReason, Feedback, FeedbackFrom, PlanChangeError, PlanOrigin, TaskError};
use crate::supervisor::spec::OnIdle;
use crate::supervisor::success::DROPPED;

impl ReviewOutput {
    /// A task that is assessed twice has one verdict, or the review has none.
    fn of_one_mind(self) -> Result<ReviewOutput, NotTaken> {
        let mut verdicts = BTreeMap::new();
        for (place, Assessment { task_id, verdict, .. }) in self.assessments.iter().enumerate() {
            if *verdicts.entry(task_id).or_insert(*verdict) != *verdict {
                return Err(NotTaken::TwoVerdicts { place, task: task_id.clone() });
            }
        }
        Ok(self)
    }
}

impl Graph {
    /// Whether nothing runs and nothing may: what is left waits for something that will not come by itself.
    pub(super) fn is_at_rest(&self, out: &Outbox) -> bool {
        !waits_for_any(out)
            && self.in_flight.is_empty()
            && self.open.iter().filter_map(|id| self.task(id)).all(|task| {
                task.status != TaskStatus::AwaitingApproval
                    && task.status != TaskStatus::AwaitingInput
                    && !self.may_run(task)
            })
    }

    /// All that could be done in this iteration is done.
    pub(super) fn end_of_iteration(&mut self, gates: &mut dyn Gates, out: &mut Outbox) {
        if self.phase != Phase::Executing {
            return;
        }
        if !self.is_at_rest(out) || gates.busy().is_some() {
            return;
        }
        if self.rules.skips_at_rest() {
            self.dirty.extend(self.open.iter().cloned());
            self.schedule(gates, out);
        }
        let awaiting =
            self.open.iter().filter_map(|id| self.task(id)).any(|task| task.status == TaskStatus::AwaitingReview);
        match self.rules.review {
            ReviewScope::Iteration if awaiting => self.ask_iteration_review(None, out),
            // Somebody may still change the plan so that the rest can be done.
            _ if self.rules.on_idle == Some(OnIdle::Wait) && !self.open.is_empty() => {}
            _ => self.finish(gates, out),
        }
    }

    /// The plan as it stands at a point that the iteration fixes (FSS-24).
    pub(super) fn snapshot_plan(&self, point: &str, out: &mut Outbox) {
        let task = |task: &Task| json!({ "id": task.id, "status": task.status });
        // A plan that is too long to be told is in the history of its tasks.
        if self.rules.review == ReviewScope::Iteration && self.plan.tasks.len() <= 200 {
            let tasks: Vec<Value> = self.plan.in_order().into_iter().map(task).collect();
            out.note(NoteKind::PlanSnapshot, json!({ "key": format!("{}/{point}", self.iteration), "tasks": tasks }));
        }
    }

    /// `refused`: what was wrong with the review before.
    fn ask_iteration_review(&mut self, refused: Option<&str>, out: &mut Outbox) {
        let shown = |task: &&Task| {
            task.status == TaskStatus::AwaitingReview
                || (self.rules.review_sees_accepted && task.status == TaskStatus::Completed)
        };
        let view =
            |task: &Task| json!({ "taskId": task.id, "goal": task.goal, "result": task.result, "status": task.status });
        let results: Vec<Value> = self.plan.in_order().into_iter().filter(shown).map(view).collect();
        let mut context = json!({
            "goal": self.plan.objective, "iteration": self.iteration, "results": results,
            "criteria": self.rules.criteria,
        });
        let mut prompt = prompt_of(Purpose::Review, &context);
        if let Some(why) = refused {
            context["error"] = why.into();
            prompt += &format!("\n\nYour last review was not taken: {why}");
        }
        self.review_tries = if refused.is_some() { self.review_tries + 1 } else { 1 };
        let attempt = Some(self.review_tries).filter(|tries| *tries > 1);
        let key = GraphKey::Review { of: u64::from(self.iteration).into(), attempt };
        let call =
            Call::new(key, Purpose::Review, context).attempt(self.review_tries).round(self.iteration).prompt(prompt);
        if refused.is_none() {
            self.snapshot_plan("results", out);
        }
        self.enter(Phase::Reviewing, out);
        self.call(call, out);
    }

    /// FSS-08, FSS-09: a review that conforms is applied task by task; one that does not is asked for again, and after
    /// the last time what it was about has no verdict. What was accepted before stays accepted.
    pub(super) fn iteration_reviewed(&mut self, answer: Answer, gates: &mut dyn Gates, out: &mut Outbox) {
        let review = answered::<ReviewOutput>("review", answer).and_then(ReviewOutput::of_one_mind);
        let review = match review.map_err(|why| why.to_string()) {
            Ok(review) => review,
            Err(_) if out.budget().exhausted().is_some() => return self.finish(gates, out),
            Err(why) if Tries::of(self.rules.review_tries).are_left(self.review_tries) => {
                out.note(NoteKind::ReviewRecorded, json!({ "iteration": self.iteration, "refused": why }));
                return self.ask_iteration_review(Some(&why), out);
            }
            Err(why) => return self.not_reviewed(&why, gates, out),
        };
        self.overall_assessment = Some(review.overall_assessment.clone());
        for assessment in &review.assessments {
            self.apply_assessment(assessment, gates, out);
        }
        self.snapshot_plan("review", out);
        self.judged = Some(review.needs_replanning);
        self.after_review(gates, out);
    }

    /// What the review accepted is carried out before anything follows it: another plan, or the end.
    pub(super) fn after_review(&mut self, gates: &mut dyn Gates, out: &mut Outbox) {
        let shown = |id: &TaskId| self.task(id).is_some_and(|task| task.status == TaskStatus::AwaitingInput);
        let waits = calls(out).any(|key| matches!(key, GraphKey::Act { .. })) || self.open.iter().any(shown);
        if self.phase != Phase::Reviewing || waits {
            return;
        }
        let Some(wanted) = self.judged.take() else { return };
        let again = wanted && self.iteration < self.rules.max_iterations;
        if again && out.budget().exhausted().is_none() {
            return self.replan(out);
        }
        self.cut |= again;
        self.finish(gates, out);
    }

    /// Nobody gave a verdict: what awaited it has failed. A run that has nothing else to show fails with it.
    fn not_reviewed(&mut self, why: &str, gates: &mut dyn Gates, out: &mut Outbox) {
        let text = format!("review failed: {why}");
        if !self.plan.tasks.values().any(|task| task.status == TaskStatus::Completed) {
            return self.abort("review_failed", text, Value::Null, gates, out);
        }
        let awaiting = |task: &&Task| task.status == TaskStatus::AwaitingReview;
        let ids: Vec<TaskId> = self.plan.in_order().into_iter().filter(awaiting).map(|task| task.id.clone()).collect();
        self.errors.push(text);
        for id in ids {
            self.reviewer_failed(&id, why.to_owned(), gates, out);
            if self.phase.is_terminal() {
                return;
            }
        }
        self.finish(gates, out);
    }

    pub(super) fn apply_assessment(&mut self, assessment: &Assessment, gates: &mut dyn Gates, out: &mut Outbox) {
        let id = &assessment.task_id;
        let verdict = self.counted(assessment.verdict, assessment.score);
        // An unknown task is ignored, and so is one that is not up for review: accepted work stays accepted.
        let Some(task) = self.plan.tasks.get_mut(id).filter(|task| task.status == TaskStatus::AwaitingReview) else {
            return;
        };
        task.attempt_count += 1;
        task.feedback.push(Feedback {
            from: FeedbackFrom::Reviewer,
            attempt: task.tries,
            text: assessment.feedback.clone(),
            score_bp: assessment.score,
            passed: verdict == VerdictKind::Accepted,
        });
        let data =
            json!({ "task": id, "verdict": verdict, "feedback": assessment.feedback, "score_bp": assessment.score });
        out.note(NoteKind::ReviewRecorded, data);
        match verdict {
            VerdictKind::Accepted => self.accept(id, "reviewed", gates, out),
            VerdictKind::Escalate => self.escalate(id, &assessment.feedback, gates, out),
            VerdictKind::NeedsRevision => {
                self.drop_approved_action(id, out);
                self.set(id, TaskStatus::NeedsRevision, Actor::Critic, "reviewed", out);
            }
        }
    }

    /// FSS-25: a task that the reviewer hands upward is shown to people with the reviewer's words, and is never planned
    /// again.
    pub(super) fn escalate(&mut self, id: &TaskId, words: &str, gates: &mut dyn Gates, out: &mut Outbox) {
        if let Some(task) = self.plan.tasks.get_mut(id) {
            task.error = Some(TaskError { kind: "escalated".into(), message: words.to_owned() });
        }
        if self.set(id, TaskStatus::Escalated, Actor::Critic, "escalated", out) {
            gates.escalated(id, words, out);
            self.tell_ended(id, gates, out);
        }
    }

    /// Asks the planner again; it sees the state, and what was wrong with what (FSS-20).
    pub(super) fn replan(&mut self, out: &mut Outbox) {
        self.iteration += 1;
        self.enter(Phase::Replanning, out);
        self.ask_planner(out);
    }

    /// Takes a new plan beside what is kept (FSS-12, FSS-13). A person's leaves alone what runs.
    pub(super) fn merge_plan(
        &mut self,
        planned: Vec<PlannedTask>,
        origin: PlanOrigin,
        gates: &mut dyn Gates,
        out: &mut Outbox,
    ) -> Result<(), PlanRefusal> {
        let runs = |task: &Task| origin == PlanOrigin::Human && task.is_in_flight();
        let (mut renamed, mut fresh, mut again, mut over) = (BTreeMap::new(), Vec::new(), Vec::new(), Vec::new());
        let (mut anew, version) = (Vec::new(), self.plan.version);
        let mut planned = self.as_policies_want(planned, origin);
        over.extend(self.without_revisions_of_ended(&mut planned, origin));
        let named = each_once(&planned)?;
        for (id, task) in planned {
            if self.task(&id).is_some_and(runs) {
                return Err(PlanRefusal::BeingDone(id));
            }
            match self.task(&id).map(|task| task.status) {
                Some(status) if self.is_kept(status) || self.stays_ended(&id, origin) => over.push(id), // never redone
                Some(status) if status.is_terminal() && self.replaces(origin) => anew.push((id, task)),
                Some(status) if status.is_terminal() => {
                    let new = self.free_name(&id, &named, &fresh);
                    renamed.insert(id.clone(), new.clone());
                    fresh.push((new, PlannedTask { revises: Some(id), ..task }));
                }
                Some(_) => again.push((id, task)),
                None => fresh.push((id, task)),
            }
        }
        let mentioned: BTreeSet<TaskId> = again.iter().map(|(id, _)| id.clone()).collect();
        let replaced = |id: &&TaskId| !mentioned.contains(*id) && !self.task(id).is_some_and(runs);
        let left: Vec<TaskId> = self.open.iter().filter(replaced).cloned().collect();
        let new = self.built(fresh, &renamed);
        self.add(new.clone())?;
        // All that can be wrong with the plan is found before anything is said of it.
        again.iter().try_for_each(|(id, planned)| self.relink(id, planned, &renamed))?;
        let replaced = anew.into_iter().map(|(id, task)| self.replace(id, task)).collect::<Result<Vec<_>, _>>()?;
        self.needs_nothing_left_out(origin, new.iter().map(|task| &task.id).chain(&mentioned), &left)?;
        self.plan.origin = origin;
        over.iter().for_each(|id| self.not_again(id, out));
        left.iter().for_each(|id| self.supersede(id, origin, gates, out));
        self.tell_added(&new, out);
        let is_another = !left.is_empty() || !replaced.is_empty();
        self.tell_replaced(replaced, out);
        self.named_again(again, (version, is_another), gates, out);
        Ok(())
    }

    /// A later plan, each task with its id, as the policies of the run want it (CUG-04).
    fn as_policies_want(&mut self, mut planned: Vec<PlannedTask>, origin: PlanOrigin) -> Vec<(TaskId, PlannedTask)> {
        let named: BTreeSet<TaskId> = planned.iter().filter_map(|task| task.id.clone()).collect();
        for task in &mut planned {
            if task.id.is_none() {
                task.id = Some(self.unnamed(&named));
            }
        }
        self.rules.apply_policies(&mut planned);
        if origin == PlanOrigin::Human {
            self.put_after_what_runs(&mut planned);
        }
        planned.into_iter().filter_map(|task| Some((task.id.clone()?, task))).collect()
    }

    /// Accepted and escalated work stays as it is; only where steps are planned anew one by one, a known name is a new step
    /// beside the one that is done (FSP-06).
    pub(super) fn is_kept(&self, status: TaskStatus) -> bool {
        !self.rules.evaluator && matches!(status, TaskStatus::Completed | TaskStatus::Escalated)
    }

    fn tell_added(&mut self, new: &[Task], out: &mut Outbox) {
        for task in new {
            out.note(NoteKind::TaskAdded, json!({ "task": task.id, "revises": task.revises, "goal": task.goal }));
            self.index(&task.id);
        }
    }

    /// A number that neither the plan nor the new tasks have.
    fn unnamed(&mut self, named: &BTreeSet<TaskId>) -> TaskId {
        loop {
            let id = self.plan.fresh_id();
            if !named.contains(&id) {
                return id;
            }
        }
    }

    /// Tasks of a new plan, with the feedback of what they revise and dependencies renamed.
    fn built(&self, fresh: Vec<(TaskId, PlannedTask)>, renamed: &BTreeMap<TaskId, TaskId>) -> Vec<Task> {
        let build = |(id, planned): (TaskId, PlannedTask)| {
            let mut task = planned.task(id, self.rules.requires, self.rules.max_attempts);
            task.iteration = self.iteration;
            for edge in &mut task.edges {
                if let Some(new) = renamed.get(&edge.on) {
                    edge.on = new.clone();
                }
            }
            if let Some(old) = task.revises.as_ref().and_then(|id| self.task(id)) {
                task.feedback.clone_from(&old.feedback);
                task.attempt_count = old.attempt_count;
            }
            task
        };
        fresh.into_iter().map(build).collect()
    }

    /// A new plan takes the place of what is left of the old one. What nobody had tried, or was rejected last, and nothing
    /// revises, a planner who was asked about something else has dropped, and the report says so; a person, or a planner at
    /// their word, and an evaluator (FSP-06) may.
    fn supersede(&mut self, id: &TaskId, origin: PlanOrigin, gates: &mut dyn Gates, out: &mut Outbox) {
        let revised = self.plan.tasks.values().any(|task| task.revises.as_ref() == Some(id));
        if let Some(task) = self.plan.tasks.get_mut(id) {
            task.cancelled = Some(CancelReason::Superseded);
            let rejected = task.last_verdict().is_some_and(|last| !last.passed);
            let left_out = match () {
                () if task.is_untried() => Some("a new plan left it out before it ran"),
                () if rejected => Some("a new plan left it out after it was rejected"),
                () => None,
            };
            let may = revised || origin == PlanOrigin::Human || self.at_their_word || self.rules.evaluator;
            if let Some(message) = left_out.filter(|_| !may) {
                task.error = Some(TaskError { kind: DROPPED.into(), message: message.to_owned() });
            }
        }
        if self.set(id, TaskStatus::Cancelled, Actor::Supervisor, "superseded", out) {
            self.cancel_calls_of(id, out);
            self.tell_ended(id, gates, out);
        }
    }

    /// The dependencies of a task that is planned again.
    fn relink(
        &mut self,
        id: &TaskId,
        planned: &PlannedTask,
        renamed: &BTreeMap<TaskId, TaskId>,
    ) -> Result<(), PlanChangeError> {
        let mut edges = planned.edges(self.rules.requires);
        for edge in &mut edges {
            if let Some(new) = renamed.get(&edge.on) {
                edge.on = new.clone();
            }
        }
        self.set_edges(id, edges)
    }

    /// Takes a later plan, with what whoever made it says of it.
    pub(super) fn take_replan(
        &mut self,
        tasks: Vec<PlannedTask>,
        words: Option<String>,
        gates: &mut dyn Gates,
        out: &mut Outbox,
    ) {
        // Refused as a whole: half a plan would be in the report.
        let before = self.plan.clone();
        if let Err(why) = self.merge_plan(tasks, PlanOrigin::Replan, gates, out) {
            self.plan = before;
            self.at_their_word = false;
            if !gates.plan_failed(&why.to_string(), out) {
                self.abort("planning_failed", format!("planning failed: {why}"), Value::Null, gates, out);
            }
            return;
        }
        self.at_their_word = false;
        self.plan.reasoning = words;
        self.ended_since_asked = false; // steps that were replaced are none
        self.show_later_plan(gates, out);
    }
}
