//! A plan of tasks as the strategy of a run.
//!
//! Invariant: it only hands on; a plan is held by its gates and looks at the budget whenever it goes on.

use serde_json::{Value, json};

use super::*;
use crate::supervisor::core::account::Balance;
use crate::supervisor::core::plan_control::{NoPlan, PlanControl};
use crate::supervisor::core::strategy::{Findings, Strategy, TaskReport};

impl<G: Gates> Strategy<G> for Graph {
    fn begin(&mut self, known: Value, gates: &mut G, out: &mut Outbox) {
        if self.phase == Phase::Created {
            self.planning_context = known;
            self.start(gates, out);
        }
    }
    fn heard(&mut self, key: &Key, answer: Answer, gates: &mut G, out: &mut Outbox) {
        if let Key::Graph(key) = key {
            self.answered(key, answer, gates, out);
        }
    }
    fn fired(&mut self, key: &Key, gates: &mut G, out: &mut Outbox) {
        if let Key::Graph(key) = key {
            Graph::fired(self, key, gates, out);
        }
    }
    fn advance(&mut self, gates: &mut G, out: &mut Outbox) {
        Graph::advance(self, gates, out);
    }
    fn cancel(&mut self, text: String, gates: &mut G, out: &mut Outbox) {
        Graph::cancel(self, text, gates, out);
    }
    fn ended_before_cancel(&mut self, key: &Key, answer: Answer, out: &mut Outbox) {
        if let Key::Graph(GraphKey::Execute { task, attempt }) = key {
            self.was_done(task, *attempt, answer, out);
        }
    }
    fn left_below(&mut self, task: &TaskId, so_far: Option<Value>) {
        self.has_left_work(task, so_far);
    }
    fn ended_meanwhile(&self, key: &Key, answer: &Answer) -> Option<(TaskId, Option<Value>)> {
        let Key::Graph(GraphKey::Execute { task, .. }) = key else { return None };
        let given =
            Reply::of(answer.as_ref().ok()?.clone()).ok().filter(|reply| reply.success && !reply.is_question())?;
        Some((task.clone(), Some(given.result)))
    }

    fn asks_before_tasks(&self) -> bool {
        true
    }

    fn ended_cut(&mut self, tasks: Vec<TaskReport>) {
        self.handed_on_is_cut(tasks);
    }
    fn is_cut(&self) -> bool {
        Graph::is_cut(self)
    }
    fn is_one_at_a_time(&self) -> bool {
        self.rules.slots() == 1
    }
    fn wants_more(&self, out: &Outbox) -> bool {
        Graph::wants_more(self, out)
    }

    fn phase(&self) -> Phase {
        self.phase
    }
    fn success(&self) -> bool {
        self.outcome.as_ref().is_some_and(|outcome| outcome.success)
    }
    fn findings(&self, _budget: &Balance) -> Findings {
        let mut findings = Findings { tasks: self.reports(), errors: self.errors.clone(), ..Findings::default() };
        if let Some(handed) = &self.handed {
            findings.tasks.clone_from(&handed.tasks);
        }
        if let Some(outcome) = &self.outcome {
            findings.final_result.clone_from(&outcome.final_result);
            (findings.error, findings.code) = (outcome.error.clone(), outcome.code.clone());
            findings.details.clone_from(&outcome.details);
            findings.said_no = !outcome.success && self.has_no_of_person();
            findings.not_done = self.not_done();
            // What ended the request below has ended it here.
            let handed = self.handed.as_ref().filter(|handed| !handed.success);
            findings.code = findings.code.or_else(|| handed.and_then(|handed| handed.code.clone()));
            // Whoever cancels a run ends it, and no earlier no of a person does.
            let is_cancelled = outcome.phase == Phase::Cancelled;
            if !outcome.success && !is_cancelled && findings.code.is_none() && self.is_rejected() {
                findings.code = Some(TASK_REJECTED.to_owned());
            }
        }
        findings
    }
    fn checkpoint(&self) -> String {
        match self.phase {
            Phase::Created | Phase::Planning | Phase::AwaitingPlanApproval => "pre_decomposition".to_owned(),
            Phase::Executing | Phase::Reviewing | Phase::Replanning => match self.first_waiting() {
                Some(step) => format!("pre_subtask_{step}"),
                None => "pre_synthesis".to_owned(),
            },
            _ => "pre_completion".to_owned(),
        }
    }

    fn view(&self, _held: bool, _is_answered: &dyn Fn(&Key) -> bool) -> Value {
        self.digest()
    }
    fn rows(&self) -> Vec<Value> {
        let row = |(task, report): (&Task, TaskReport)| {
            let started = task.attempts.last().map(|attempt| attempt.started_at);
            json!({ "task_id": report.task_id, "title": report.title, "status": report.status, "attempt": report.attempts,
                "error_msg": report.error, "brief": report.brief, "started_at": started })
        };
        self.plan.in_order().into_iter().zip(self.reports()).map(row).collect()
    }
    fn beside_rows(&self, _held: bool, _is_answered: &dyn Fn(&Key) -> bool) -> Value {
        Value::Null
    }

    fn plan(&self) -> Option<&TaskPlan> {
        Some(&self.plan)
    }
    fn plan_control(&mut self) -> Result<&mut dyn PlanControl<G>, NoPlan> {
        Ok(self)
    }
    fn next_step(&self) -> Option<u32> {
        self.first_waiting()
    }
    fn status_board(&self) -> Value {
        self.plan.in_order().into_iter().map(|task| json!(self.board_line(task))).collect()
    }
    fn deadlock_report(&self) -> Option<&str> {
        self.deadlock_report.as_deref()
    }
    fn why_not_running(&self, task: &TaskId, gates: &mut G, out: &mut Outbox) -> Value {
        json!(Graph::why_not_running(self, task, gates, out))
    }
    fn decomposition(&self) -> Option<(String, Value)> {
        let subtasks = self.plan.in_order().into_iter().map(|task| json!({ "id": task.id, "goal": task.goal }));
        Some((self.strategy.clone().unwrap_or_else(|| "parallel".to_owned()), subtasks.collect()))
    }
}

impl Graph {
    fn reports(&self) -> Vec<TaskReport> {
        let of = |task: &Task| {
            let undone = self.undone.get(&task.id).copied();
            let report = report(task);
            TaskReport { undone, error: report.error.or_else(|| self.why_superseded(task)), ..report }
        };
        self.plan.in_order().into_iter().map(of).collect()
    }

    /// Why nobody does a task any more that nothing went wrong with: another plan has none of it.
    fn why_superseded(&self, task: &Task) -> Option<String> {
        let superseded = task.status == TaskStatus::Cancelled && task.cancelled == Some(CancelReason::Superseded);
        let other = || self.plan.tasks.values().find(|other| other.revises.as_ref() == Some(&task.id));
        superseded.then(|| match other() {
            Some(other) => format!("task {} takes its place", other.id),
            None => "a later plan leaves it out".to_owned(),
        })
    }

    /// The place in the plan, from 1, of the next task that is not over and does not run.
    fn first_waiting(&self) -> Option<u32> {
        let waiting = self.open.iter().filter_map(|id| self.task(id)).filter(|task| !task.is_in_flight());
        waiting.map(|task| task.position + 1).min()
    }
}

fn report(task: &Task) -> TaskReport {
    TaskReport {
        task_id: task.id.clone(),
        title: TaskReport::first_line(&task.goal).to_owned(),
        status: task.status,
        // Who did it, or, before anybody has, who is asked for.
        agent: (task.attempts.last().and_then(|attempt| attempt.agent.clone()))
            .or_else(|| task.agent.clone())
            .or_else(|| task.capability.clone()),
        attempts: task.tries,
        error: task.error.as_ref().map(|error| error.message.clone()),
        brief: task
            .result
            .as_ref()
            .filter(|_| task.status != TaskStatus::Skipped)
            .map(|result| TaskReport::brief(&text_of(result))),
        undone: None,
    }
}
