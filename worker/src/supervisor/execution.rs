//! A plan being executed: the pure scheduler. What ended comes in, what may start goes out.
//!
//! Invariant: a task starts only when all its dependencies are completed, at most once at a time, and never beyond its
//! attempts; every result is judged before it counts; the state is all there is, so a snapshot of it resumes exactly.
//! It knows no engine: [`PlanRun`](super::PlanRun) carries its dispatches out.

use std::collections::BTreeMap;

use bosun_engine::{ActivityOptions, ActivityType, Failure, FailureKind, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::core::retry::{self, Tries};
use super::critic::CriticVerdict;
use super::fields::FieldError;
use super::placeholder::{NoValue, Values};
use super::plan::{Plan, TaskItem};
use super::task::{Actor, TaskNumber, TaskStatus};
use super::work::{self, Work};

/// The state of a plan run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlanExecution {
    pub(super) plan: Plan,
    /// The directory commands run in; absolute.
    directory: String,
    max_concurrent_tasks: u32,
    pub(super) tasks: BTreeMap<TaskNumber, TaskRun>,
    pub(super) started_at: Timestamp,
    pub(super) ended_at: Option<Timestamp>,
    /// Why no further task starts.
    pub(super) canceled: Option<String>,
}

/// What has happened to a task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaskRun {
    pub status: TaskStatus,
    /// The objective, with the feedback of rejected attempts (PDT-24).
    pub sub_task_objective: String,
    /// Attempts that have ended: reviewed, or in an error (PDT-21, PDT-26).
    pub attempt_count: u32,
    /// How often the running attempt was started again because its worker was lost.
    pub redeliveries: u32,
    pub iteration_history: Vec<AttemptRecord>,
    pub result: Option<TaskResult>,
    pub error_msg: Option<String>,
    pub started_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
}

/// One attempt that has ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AttemptRecord {
    pub attempt: u32,
    pub started_at: Timestamp,
    pub ended_at: Timestamp,
    /// What the critic said, if it was asked.
    pub task_feedback: Option<CriticVerdict>,
    /// What went wrong, if the attempt gave no result.
    pub error_msg: Option<String>,
}

/// What an attempt gave.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaskResult {
    /// The result as people read it.
    pub text: String,
    pub output: Value,
}

/// A task that has been claimed and must be started now.
#[derive(Debug, Clone, PartialEq)]
pub struct ScheduleTask {
    pub task: TaskNumber,
    pub activity_type: ActivityType,
    pub input: Value,
    pub options: ActivityOptions,
}

impl TaskRun {
    fn new(item: &TaskItem) -> Self {
        TaskRun {
            status: item.begins_as(),
            sub_task_objective: item.sub_task_objective.clone(),
            attempt_count: item.attempt_count,
            redeliveries: 0,
            iteration_history: Vec::new(),
            result: None,
            error_msg: None,
            started_at: None,
            ended_at: None,
        }
    }

    /// What the next attempt should do better.
    fn feedback(&self) -> &str {
        let last = self.iteration_history.last();
        let verdict = last.and_then(|record| record.task_feedback.as_ref()).map(|verdict| verdict.reasoning.as_str());
        verdict.or(last.and_then(|record| record.error_msg.as_deref())).unwrap_or_default()
    }
}

/// Calls on a task the machine cannot refuse: the scheduler asks only for what the table allows.
const LEGAL: &str = "the scheduler asks for legal transitions only";

impl PlanExecution {
    /// Refuses a plan whose tasks cannot be run as they are written.
    pub fn new(plan: Plan, directory: String, max_concurrent_tasks: u32, now: Timestamp) -> Result<Self, FieldError> {
        work::check(&plan)?;
        let tasks = plan.tasks().map(|item| (item.task_id, TaskRun::new(item))).collect();
        Ok(PlanExecution {
            plan,
            directory,
            max_concurrent_tasks: max_concurrent_tasks.max(1),
            tasks,
            started_at: now,
            ended_at: None,
            canceled: None,
        })
    }

    fn item(&self, id: TaskNumber) -> &TaskItem {
        self.plan.task(id).expect("a run has the tasks of its plan")
    }

    fn task(&mut self, id: TaskNumber) -> &mut TaskRun {
        self.tasks.get_mut(&id).expect("a run has the tasks of its plan")
    }

    fn work(&self, id: TaskNumber) -> Work {
        Work::of(self.item(id), &self.plan).expect("the plan was checked when the run began")
    }

    fn change(&mut self, id: TaskNumber, to: TaskStatus, by: Actor) {
        let task = self.task(id);
        task.status = task.status.change(id, to, by).expect(LEGAL);
    }

    /// Whether every dependency exists and is completed (PDT-13).
    fn dependencies_completed(&self, id: TaskNumber) -> bool {
        self.item(id).sub_task_dependencies.iter().all(|dependency| {
            self.tasks.get(dependency).is_some_and(|dependency| dependency.status == TaskStatus::Completed)
        })
    }

    /// The scheduler pass, by ascending id: pending and ready follow the dependencies (PDT-13).
    fn schedule(&mut self) {
        let ids: Vec<TaskNumber> = self.tasks.keys().copied().collect();
        for id in ids {
            match (self.tasks[&id].status, self.dependencies_completed(id)) {
                (TaskStatus::Pending, true) => self.change(id, TaskStatus::Ready, Actor::Scheduler),
                (TaskStatus::Ready, false) => self.change(id, TaskStatus::Pending, Actor::Scheduler),
                _ => {}
            }
        }
    }

    pub(super) fn running(&self) -> usize {
        self.tasks.values().filter(|task| task.status == TaskStatus::Running).count()
    }

    /// Claims every task that may start now, lowest id first, while there is room (PDT-15, PDT-17).
    pub fn claim(&mut self, now: Timestamp) -> Vec<ScheduleTask> {
        let mut dispatches = Vec::new();
        while self.canceled.is_none() && self.running() < self.max_concurrent_tasks as usize {
            self.schedule();
            let runnable =
                |(id, task): &(&TaskNumber, &TaskRun)| task.status.is_runnable() && self.dependencies_completed(**id);
            let Some(id) = self.tasks.iter().find(runnable).map(|(id, _)| *id) else { break };
            self.change(id, TaskStatus::Running, Actor::Scheduler);
            let task = self.task(id);
            task.started_at.get_or_insert(now);
            if task.redeliveries == 0 {
                task.iteration_history.push(AttemptRecord {
                    attempt: task.attempt_count + 1,
                    started_at: now,
                    ended_at: now,
                    task_feedback: None,
                    error_msg: None,
                });
            }
            match self.dispatch(id) {
                Ok(dispatch) => dispatches.push(dispatch),
                Err(why) => self.errored(id, why.to_string(), true, now),
            }
        }
        dispatches
    }

    fn dispatch(&self, id: TaskNumber) -> Result<ScheduleTask, NoValue> {
        let (item, task, work) = (self.item(id), &self.tasks[&id], self.work(id));
        let result = |id: &TaskNumber| {
            let result = self.tasks.get(id)?.result.as_ref()?;
            Some((*id, (result.text.as_str(), &result.output)))
        };
        let attempt = task.attempt_count + 1;
        // The record of the attempt that starts is the last one; feedback comes from the one before.
        let before = TaskRun {
            iteration_history: task.iteration_history.split_last().map_or(vec![], |(_, rest)| rest.to_vec()),
            ..task.clone()
        };
        let values = Values {
            attempt,
            feedback: before.feedback(),
            objective: self.plan.objective(),
            task_objective: &task.sub_task_objective,
            results: item.sub_task_dependencies.iter().filter_map(result).collect(),
        };
        let input = work.input(&self.directory, &values)?;
        let summary = format!("task-{id}-attempt-{attempt}: {}", item.title());
        Ok(ScheduleTask { task: id, activity_type: work.activity_type(), input, options: work.options(summary) })
    }

    /// Takes the end of an attempt. One of a task that does not run any more is dropped (PDT-52).
    pub fn ended(&mut self, id: TaskNumber, outcome: Result<Value, Failure>, now: Timestamp) {
        if self.tasks.get(&id).is_none_or(|task| task.status != TaskStatus::Running) {
            return;
        }
        match outcome {
            Ok(output) => self.returned(id, output, now),
            Err(failure) if self.canceled.is_some() && failure.is_canceled() => {}
            Err(failure) => self.raised(id, &failure, now),
        }
        self.cancel_idle_of_canceled_run(now, Some(id));
    }

    /// A result: judged by the rules if there are any (PDT-16, PDT-21 to PDT-24).
    fn returned(&mut self, id: TaskNumber, output: Value, now: Timestamp) {
        let work = self.work(id);
        let text = work.capability.text_of(&output);
        let verdict = work.review.as_ref().map(|review| review.judge(&text, &output));
        let max_attempts = self.item(id).max_attempts;
        let task = self.task(id);
        task.result = Some(TaskResult { text, output });
        task.error_msg = None;
        task.attempt_count += 1;
        task.redeliveries = 0;
        if let Some(record) = task.iteration_history.last_mut() {
            (record.ended_at, record.task_feedback) = (now, verdict.clone());
        }
        let Some(verdict) = verdict else {
            task.ended_at = Some(now);
            return self.change(id, TaskStatus::Completed, Actor::Worker);
        };
        let count = task.attempt_count;
        self.change(id, TaskStatus::AwaitingReview, Actor::Worker);
        if verdict.passed {
            self.task(id).ended_at = Some(now);
            self.change(id, TaskStatus::Completed, Actor::Critic);
        } else if !Tries::of(max_attempts).are_left(count) {
            let task = self.task(id);
            task.error_msg = Some(format!("Max retries reached ({count}/{max_attempts})."));
            task.ended_at = Some(now);
            self.change(id, TaskStatus::Failed, Actor::Critic);
        } else {
            let task = self.task(id);
            task.sub_task_objective += "\n\nPrevious attempt failed review; feedback: ";
            task.sub_task_objective += &verdict.reasoning;
            self.change(id, TaskStatus::NeedsRevision, Actor::Critic);
        }
    }

    /// No result. A lost worker is no fault of the task: the same attempt starts again (supervisors.md §5.2).
    fn raised(&mut self, id: TaskNumber, failure: &Failure, now: Timestamp) {
        let lost = matches!(failure.root().kind, FailureKind::WorkerLost);
        let task = self.task(id);
        if let Some(again) = retry::delivered_again(task.redeliveries, false).filter(|_| lost) {
            task.redeliveries = again;
            return self.change(id, TaskStatus::Ready, Actor::Scheduler);
        }
        let hopeless = matches!(failure.root().kind, FailureKind::Application { non_retryable: true, .. });
        self.errored(id, failure.root().to_string(), hopeless, now);
    }

    /// An error consumes an attempt and is never reviewed (PDT-16, PDT-26).
    fn errored(&mut self, id: TaskNumber, why: String, hopeless: bool, now: Timestamp) {
        let max_attempts = self.item(id).max_attempts;
        self.change(id, TaskStatus::Errored, Actor::Worker);
        let task = self.task(id);
        task.attempt_count += 1;
        task.redeliveries = 0;
        if let Some(record) = task.iteration_history.last_mut() {
            (record.ended_at, record.error_msg) = (now, Some(why.clone()));
        }
        let count = task.attempt_count;
        if hopeless || !Tries::of(max_attempts).are_left(count) {
            let exhausted = format!("Max retries reached ({count}/{max_attempts}). Last error: {why}");
            task.error_msg = Some(if hopeless { why } else { exhausted });
            task.ended_at = Some(now);
            self.change(id, TaskStatus::Failed, Actor::Scheduler);
        } else {
            task.error_msg = Some(why);
            self.change(id, TaskStatus::Ready, Actor::Scheduler);
        }
    }

    fn cancel_one(&mut self, id: TaskNumber, why: String, now: Timestamp) {
        let was_running = self.tasks[&id].status == TaskStatus::Running;
        self.change(id, TaskStatus::Cancelled, Actor::Supervisor);
        let task = self.task(id);
        task.ended_at = Some(now);
        task.error_msg = Some(why);
        if let Some(record) = task.iteration_history.last_mut().filter(|_| was_running) {
            record.ended_at = now;
        }
    }

    /// Cancels a task, and with it every pending or ready task that waits for it (PDT-20, PDT-33). Whether it was
    /// running, so that its activity must be canceled; nothing if the task does not exist or is over.
    pub fn cancel_task(&mut self, id: TaskNumber, reason: &str, now: Timestamp) -> Option<bool> {
        let status = self.tasks.get(&id).map(|task| task.status).filter(|status| !status.is_terminal())?;
        self.cancel_one(id, reason.to_owned(), now);
        let mut upstream = vec![id];
        while let Some(gone) = upstream.pop() {
            let waits = |(other, task): &(&TaskNumber, &TaskRun)| {
                matches!(task.status, TaskStatus::Pending | TaskStatus::Ready)
                    && self.item(**other).sub_task_dependencies.contains(&gone)
            };
            let waiting: Vec<TaskNumber> = self.tasks.iter().filter(waits).map(|(id, _)| *id).collect();
            for other in waiting {
                self.cancel_one(other, format!("Upstream dependency Task {gone} was cancelled."), now);
                upstream.push(other);
            }
        }
        Some(status == TaskStatus::Running)
    }

    /// Starts nothing more. Tasks that do not run are cancelled at once; the running ones when their activities end.
    pub fn cancel(&mut self, reason: &str, now: Timestamp) {
        self.canceled.get_or_insert_with(|| reason.to_owned());
        self.cancel_idle_of_canceled_run(now, None);
    }

    /// In a canceled run no task may be left that still waits; `ended` has just stopped running.
    fn cancel_idle_of_canceled_run(&mut self, now: Timestamp, ended: Option<TaskNumber>) {
        let Some(reason) = self.canceled.clone() else { return };
        let idle = |(id, task): (&TaskNumber, &TaskRun)| {
            let runs = task.status == TaskStatus::Running && Some(*id) != ended;
            (!task.status.is_terminal() && !runs).then_some(*id)
        };
        let ids: Vec<TaskNumber> = self.tasks.iter().filter_map(idle).collect();
        for id in ids {
            self.cancel_one(id, format!("The run was cancelled: {reason}"), now);
        }
    }

    /// Whether nothing runs. After [`Self::claim`] that means that nothing can run any more.
    pub fn is_over(&self) -> bool {
        self.running() == 0
    }
    pub fn finish(&mut self, now: Timestamp) {
        self.ended_at = Some(now);
    }
    pub fn plan(&self) -> &Plan {
        &self.plan
    }
    pub fn tasks(&self) -> &BTreeMap<TaskNumber, TaskRun> {
        &self.tasks
    }

    /// Why a task does not run and will not without help; nothing if it is over, runs, or may run.
    pub fn why_not_running(&self, id: TaskNumber) -> Option<String> {
        let task = self.tasks.get(&id)?;
        if task.status.is_terminal() || task.status == TaskStatus::Running || self.dependencies_completed(id) {
            return None;
        }
        let waits = |dependency: &TaskNumber| {
            let status = self.tasks.get(dependency).map(|task| task.status)?;
            (status != TaskStatus::Completed).then(|| format!("{dependency} ({status})"))
        };
        let waits: Vec<String> = self.item(id).sub_task_dependencies.iter().filter_map(waits).collect();
        Some(format!("waiting on deps [{}]", waits.join(", ")))
    }

    /// The task whose result is the run's (PDT-10): completed and final; else completed with a text; else a completed
    /// producer; else the one completed last. Ties go to the highest id.
    pub fn final_task(&self) -> Option<TaskNumber> {
        let completed = || self.tasks.iter().filter(|(_, task)| task.status == TaskStatus::Completed);
        let last = |wanted: &dyn Fn(&TaskNumber, &TaskRun) -> bool| {
            completed().filter(|(id, task)| wanted(id, task)).map(|(id, _)| *id).next_back()
        };
        let has_text = |task: &TaskRun| task.result.as_ref().is_some_and(|result| !result.text.trim().is_empty());
        last(&|id, _| self.item(*id).is_final)
            .or_else(|| last(&|_, task| has_text(task)))
            .or_else(|| last(&|id, _| self.item(*id).capability == "producer_agent"))
            .or_else(|| completed().max_by_key(|(id, task)| (task.ended_at, **id)).map(|(id, _)| *id))
    }
}

#[cfg(test)]
mod tests;
