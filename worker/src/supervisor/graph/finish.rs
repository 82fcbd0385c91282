//! The end of a run: thresholds, synthesis, the final result, cancellation with compensation.
//!
//! Invariant: a run closes once, with an outcome that lists every failure; nothing is in flight when it closes; what
//! was done stays in the outcome also when the run failed. Shares are compared in integers (§4.2 no. 20).

use serde_json::{Map, json};

use super::*;
use crate::supervisor::core::account::BUDGET_EXHAUSTED;
use crate::supervisor::core::strategy::{NotDone, RUN_FAILED};
use crate::supervisor::model::{CancelReason, SkipReason, TaskError};
use crate::supervisor::spec::OnEmpty;
use crate::supervisor::success::{self, Claim, Excuses, TaskOutcome};

/// The code of a run whose planner planned no task, and what is said of it.
pub const NO_TASK_PLANNED: &str = "no_task_planned";
const NOTHING_PLANNED: &str = "the planner planned no task, so nothing was done: say in `objective` what there is to do, or, \
                               where nothing to do is a good end, `planning: { on_empty: complete }`";

/// How a run ended and what it gave.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GraphOutcome {
    pub phase: Phase,
    /// Whether all that was planned was done, or is excused by a rule of the spec (see `success`).
    #[serde(default)]
    pub success: bool,
    /// For programs: `too_many_failures`, `planning_failed` ...
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    #[serde(default)]
    pub details: Value,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub final_result: Option<Value>,
}

impl Graph {
    /// Tasks that have failed, or were skipped for an error; what a new plan has begun anew is none of them (FSS-12).
    fn failed_tasks(&self) -> u32 {
        let failed = |task: &&Task| match task.status {
            TaskStatus::Failed => true,
            TaskStatus::Skipped => task.skipped == Some(SkipReason::WorkerError),
            _ => false,
        };
        self.plan.tasks.values().filter(failed).count() as u32
    }

    /// A recruit has failed, which counts where the spec says so (§4.2 no. 21).
    pub fn recruit_failed(&mut self, gates: &mut dyn Gates, out: &mut Outbox) {
        if self.rules.count_recruits {
            self.check_threshold(gates, out);
        }
    }

    pub(super) fn check_threshold(&mut self, gates: &mut dyn Gates, out: &mut Outbox) {
        let (recruits, recruits_failed) = if self.rules.count_recruits { gates.recruits() } else { (0, 0) };
        let (total, failed) = (self.planned_tasks() + recruits, self.failed_tasks() + recruits_failed);
        let Some(most) = self.rules.max_failures(total) else { return };
        if failed >= most && !self.phase.is_terminal() && self.phase != Phase::Compensating {
            let details = json!({ "failed": failed, "total": total, "max_failures": most });
            self.abort("too_many_failures", "Too many failures".to_owned(), details, gates, out);
        }
    }

    /// The run fails: what runs is cancelled, what waits is not done.
    pub fn abort(&mut self, code: &str, error: String, details: Value, gates: &mut dyn Gates, out: &mut Outbox) {
        let outcome = GraphOutcome {
            phase: Phase::Failed,
            success: false,
            code: Some(if out.budget().exhausted().is_some() { BUDGET_EXHAUSTED } else { code }.to_owned()),
            error: Some(error.clone()),
            details,
            final_result: None,
        };
        self.errors.push(error);
        self.cut |= out.budget().exhausted().is_some();
        self.give_up_all(CancelReason::RunCancelled, RUN_FAILED, gates, out);
        self.close(outcome, out);
    }

    /// A person has denied what the run was to do: it is cancelled, and the answer is what they read (CUG-32).
    pub fn deny(&mut self, answer: String, gates: &mut dyn Gates, out: &mut Outbox) {
        let final_result = Some(answer.clone().into());
        self.denied = true;
        self.cancel_as(Some(TASK_REJECTED), answer, final_result, gates, out);
    }

    /// The run is cancelled (SHN-62): what was done is undone first, where tasks say how.
    pub fn cancel(&mut self, text: String, gates: &mut dyn Gates, out: &mut Outbox) {
        self.cancel_as(None, text, None, gates, out);
    }

    fn cancel_as(
        &mut self,
        code: Option<&str>,
        text: String,
        final_result: Option<Value>,
        gates: &mut dyn Gates,
        out: &mut Outbox,
    ) {
        if self.phase.is_terminal() || self.phase == Phase::Compensating {
            return;
        }
        self.give_up_all(CancelReason::RunCancelled, &text, gates, out);
        let outcome = GraphOutcome {
            phase: Phase::Cancelled,
            success: false,
            code: code.map(str::to_owned),
            error: Some(text),
            details: Value::Null,
            final_result,
        };
        let mut done: Vec<&Task> = self
            .plan
            .tasks
            .values()
            .filter(|task| Self::has_effects(task) && Self::undone_by(task).is_some())
            .collect();
        done.sort_by_key(|task| (task.ended_at, task.position));
        self.compensating = done.into_iter().map(|task| task.id.clone()).collect();
        if self.rules.compensate {
            self.tell_left_work();
        }
        if !self.rules.compensate || self.compensating.is_empty() {
            return self.close(outcome, out);
        }
        self.closing = Some(outcome);
        self.enter(Phase::Compensating, out);
        self.compensate_next(out);
    }

    /// Nobody waits any longer for what a task had asked for.
    pub(super) fn cancel_calls_of(&mut self, id: &TaskId, out: &mut Outbox) {
        let of_task = |key: &&GraphKey| self.task_of(key) == Some(id);
        let calls: Vec<GraphKey> = calls(out).filter(of_task).cloned().collect();
        let times: Vec<GraphKey> = times(out).filter(of_task).cloned().collect();
        for key in calls {
            out.ask(Ask::CancelCall { key: key.into() });
        }
        if let Some(last) = self.plan.tasks.get_mut(id).and_then(|task| task.attempts.last_mut())
            && last.outcome == AttemptOutcome::Running
        {
            (last.outcome, last.ended_at) = (AttemptOutcome::Dropped, Some(out.now()));
        }
        for key in times {
            out.cancel_timer(key);
        }
    }

    fn give_up_all(&mut self, reason: CancelReason, text: &str, gates: &mut dyn Gates, out: &mut Outbox) {
        gates.takes_nobody(out);
        for key in calls(out).cloned().collect::<Vec<_>>() {
            out.ask(Ask::CancelCall { key: key.into() });
        }
        for key in times(out).cloned().collect::<Vec<_>>() {
            out.cancel_timer(key);
        }
        self.chosen.clear();
        let open: Vec<TaskId> = self.open.iter().cloned().collect();
        for id in open {
            if let Some(task) = self.plan.tasks.get_mut(&id) {
                task.cancelled = Some(reason);
                task.error.get_or_insert_with(|| TaskError { kind: "run_ended".into(), message: text.to_owned() });
            }
            self.set(&id, TaskStatus::Cancelled, Actor::Supervisor, "run_ended", out);
            if let Some(task) = self.copy(&id) {
                gates.ended(&task, out);
            }
        }
        self.dirty.clear();
    }

    pub(super) fn close(&mut self, outcome: GraphOutcome, out: &mut Outbox) {
        if self.phase.is_terminal() {
            return;
        }
        self.enter(outcome.phase, out);
        out.note(NoteKind::RunClosed, json!({ "status": outcome.phase, "error": outcome.error }));
        self.outcome = Some(outcome);
    }

    /// A selecting run ends as it stands, without error of its own (PDT-03).
    pub(super) fn stop(&mut self, gates: &mut dyn Gates, out: &mut Outbox) {
        if let Some(why) = &self.undecided {
            self.errors.push(format!("Nothing more was decided. The last decision was not understood: {why}"));
        }
        self.finish(gates, out);
    }

    /// Everything that could be done is done: the result is made of it.
    pub(super) fn finish(&mut self, gates: &mut dyn Gates, out: &mut Outbox) {
        if self.is_empty_plan(gates) && self.rules.on_empty == OnEmpty::Fail {
            return self.abort(NO_TASK_PLANNED, NOTHING_PLANNED.to_owned(), Value::Null, gates, out);
        }
        gates.synthesizing(out);
        gates.moment(PlanEvent::Finished, &self.plan, out);
        match self.rules.synthesis {
            // A request that was handed on has no tasks here that its result could be looked for in.
            source if self.handed.is_some() && !matches!(source, ResultSource::Merge | ResultSource::Synthesizer) => {
                let result = self.handed_result().map(|(_, result)| result);
                self.end_in_shape(result, gates, out);
            }
            ResultSource::FinalTask => {
                let result = final_result(&self.plan).and_then(|id| self.task(&id)?.result.clone());
                self.end_in_shape(result, gates, out);
            }
            ResultSource::LastOutput => {
                // A draft that nobody accepted may be all there is; what a person rejected is nobody's.
                let tasks = self.plan.in_order().into_iter().rev().filter(|task| task.status != TaskStatus::Skipped);
                let last = tasks.filter_map(|task| task.result.clone()).next();
                self.end_in_shape(last, gates, out);
            }
            ResultSource::Merge => {
                let merged = self.results(gates).into_iter().collect::<Map<_, _>>();
                // Nothing is what was made of it, unless it was the budget that left all undone.
                let nothing = self.cut && merged.is_empty();
                self.end_in_shape(Some(Value::Object(merged)).filter(|_| !nothing), gates, out);
            }
            ResultSource::Raw => {
                let raw = self.raw_output();
                self.end_in_shape(Some(raw), gates, out);
            }
            ResultSource::Synthesizer => self.end_by_synthesis(gates, out),
        }
    }

    /// Whether a planner was asked, and planned no task.
    fn is_empty_plan(&self, gates: &dyn Gates) -> bool {
        self.rules.planning == PlanSource::Planner && self.plan.tasks.is_empty() && self.has_nothing(gates)
    }

    /// Whether nothing was done that could be told of.
    pub(super) fn has_nothing(&self, gates: &dyn Gates) -> bool {
        let done = self.plan.tasks.values().any(|task| task.status == TaskStatus::Completed);
        !done && self.results(gates).is_empty()
    }

    /// What was accepted, in plan order, then what recruits gave (FSS-42, SHN-26, SHN-34). Where the budget ended before
    /// the review, what was given.
    pub fn results(&self, gates: &dyn Gates) -> Vec<(String, Value)> {
        let accepted = |task: &&Task| task.status == TaskStatus::Completed || Self::is_unreviewed(task);
        let result = |task: &Task| Some((task.id.to_string(), task.result.clone()?));
        let mut results: Vec<(String, Value)> = self.handed_result().into_iter().collect();
        results.extend(self.plan.in_order().into_iter().filter(accepted).filter_map(result));
        results.extend(gates.more_results());
        results
    }

    /// FSP-08: goal, status, tasks, and how many steps were completed.
    fn raw_output(&self) -> Value {
        let task = |task: &&Task| {
            let error = task.error.as_ref().map(|error| &error.message);
            let result = Self::standing_result(task);
            json!({ "id": task.id, "goal": task.goal, "status": task.status, "result": result, "error": error })
        };
        let tasks = self.plan.in_order();
        let completed = tasks.iter().filter(|task| task.status == TaskStatus::Completed).count();
        let status = self.claims(true).phase;
        json!({ "goal": self.plan.objective, "status": status, "tasks": tasks.iter().map(task).collect::<Vec<_>>(),
            "completedSteps": completed, "totalSteps": tasks.len() })
    }

    /// Tasks that gave nothing, each with its reason, in plan order.
    pub(super) fn not_done(&self) -> Vec<NotDone> {
        if let Some(handed) = &self.handed {
            return handed.not_done.clone();
        }
        let standings = success::standings(&self.plan, self.excuses());
        let failed =
            |task: &&Task| matches!(standings.get(&task.id), Some(TaskOutcome::Open | TaskOutcome::Excused) | None);
        let of = |task: &Task| {
            let why = task.error.as_ref().map(|error| error.message.clone()).unwrap_or_else(|| self.why_left(task));
            NotDone { task_id: task.id.clone(), status: task.status, why }
        };
        self.plan.in_order().into_iter().filter(failed).map(of).collect()
    }

    /// The same as texts.
    pub fn failures(&self) -> Vec<String> {
        self.not_done().iter().map(NotDone::text).collect()
    }

    /// What the rules excuse.
    fn excuses(&self) -> Excuses {
        Excuses {
            skipped_errors: self.rules.on_exhausted == OnTriesExhausted::Skip,
            failures_below_threshold: self.rules.threshold_bp.is_some(),
            final_task_counts: self.rules.synthesis == ResultSource::FinalTask,
            judged_done: self.judged_done,
        }
    }

    /// What the run may say of itself as it stands.
    fn claims(&self, has_result: bool) -> Claim {
        let needs_result = self.rules.synthesis == ResultSource::FinalTask;
        let stopped = !self.errors.is_empty() || self.cut;
        let claim = match &self.handed {
            Some(handed) => handed.claim(),
            None => success::of_tasks(&self.plan, self.excuses(), has_result, needs_result, stopped),
        };
        Claim { success: claim.success && !self.cut, ..claim }
    }

    /// The end with a result that nobody was asked to put into its shape (FSS-21): one that breaks it is none. What a budget
    /// left of a result has the shape that it has.
    pub(super) fn end_in_shape(&mut self, result: Option<Value>, gates: &mut dyn Gates, out: &mut Outbox) {
        match result.as_ref().filter(|_| !self.cut).and_then(|result| self.breaks_schema(result)) {
            Some(why) => {
                let text = format!("the result does not have the required shape: {why}");
                self.abort("synthesis_failed", text, Value::Null, gates, out);
            }
            None => self.end_with(result, out),
        }
    }

    /// The end, with a result if there is one: whoever asks for a form has the last word on it (CUG-39).
    pub(super) fn end_with(&mut self, result: Option<Value>, out: &mut Outbox) {
        match result {
            Some(result) if !result.is_null() => self.put_in_form(result, out),
            result => self.conclude(result, out),
        }
    }

    pub(super) fn conclude(&mut self, result: Option<Value>, out: &mut Outbox) {
        let failures = self.failures();
        let Claim { phase, success } = self.claims(result.is_some());
        let error = (phase == Phase::Failed).then(|| {
            self.errors.first().cloned().unwrap_or_else(|| match failures.is_empty() {
                true => "the run has no result".to_owned(),
                false => failures.join("; "),
            })
        });
        let details = json!({ "failures": failures });
        let code = match () {
            () if self.cut => Some(BUDGET_EXHAUSTED),
            // Nobody has judged what was done, which is not the same as a judgement that it is bad.
            () if !success && self.fails_without_verdict() => Some("reviewer_error"),
            () if phase == Phase::Failed && !self.is_rejected() => Some("no_result"),
            () => None,
        };
        let code = code.map(str::to_owned);
        self.close(GraphOutcome { phase, success, code, error, details, final_result: result }, out);
    }
}

/// The task whose result is the run's (PDT-10): completed and final; else completed with a text; else a completed
/// producer; else the one completed last. Ties go to the highest id.
pub fn final_result(plan: &TaskPlan) -> Option<TaskId> {
    final_task(plan, &|task| task.result.as_ref().map(text_of).unwrap_or_default())
}

/// The same where results are read in another way.
pub fn final_task(plan: &TaskPlan, text: &dyn Fn(&Task) -> String) -> Option<TaskId> {
    let completed = || plan.tasks.values().filter(|task| task.status == TaskStatus::Completed);
    let last = |wanted: &dyn Fn(&Task) -> bool| {
        completed().filter(|task| wanted(task)).map(|task| task.id.clone()).next_back()
    };
    let has_text = |task: &Task| task.result.is_some() && !text(task).trim().is_empty();
    last(&|task| task.is_final)
        .or_else(|| last(&has_text))
        .or_else(|| last(&|task| task.capability.as_deref() == Some("producer_agent")))
        .or_else(|| completed().max_by_key(|task| (task.ended_at, task.id.clone())).map(|task| task.id.clone()))
}
