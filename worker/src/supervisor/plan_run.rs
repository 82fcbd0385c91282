//! The plan runner: a durable workflow that carries out a plan, task by task, as activities.
//!
//! ```text
//!   input: plan, directory ──► claim ──► activity per task ──► result ──► review ──► claim ... ──► report
//! ```
//!
//! Invariant: the state is [`PlanExecution`] and which activity belongs to which task, nothing else; after every event all
//! tasks that may run have been started, and the run closes as soon as none can. It routes: the scheduler decides.
//!
//! Queries: `progress` (the data of a live tree), `status_board` (text), `get_plan`, `get_task` (input: the id), `report`.
//! Signal: `cancel_task_v1`, `{"task_id": 3, "reason": "not needed"}`.

use std::collections::BTreeMap;
use std::path::Path;

use bosun_engine::workflow::{Cx, StateMachine, WorkflowEvent, WorkflowRegistry};
use bosun_engine::{Failure, Payload, QueryName, Seq, WorkflowExecutionSignaled};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::execution::PlanExecution;
use super::fields::FieldError;
use super::plan::{Plan, SeedPlan};
use super::plan_yaml::{InvalidPlanFile, PlanProblem, read_plan};
use super::report::{PlanRunOutput, PlanRunStatus};
use super::task::TaskNumber;
use super::work;

/// The workflow type.
pub const PLAN_RUN: &str = "plan-run";
/// The failure type of a run whose final task did not complete; its details are the [`PlanRunOutput`].
pub const PLAN_FAILED: &str = "PlanFailed";
/// The failure type of an input that is no plan that can be run.
pub const INVALID_PLAN: &str = "InvalidPlan";
pub const SIGNAL_CANCEL_TASK: &str = "cancel_task_v1";

const MAX_CONCURRENT_TASKS_DEFAULT: u32 = 4;
const QUERIES: [&str; 5] = ["get_plan", "get_task", "progress", "report", "status_board"];

/// What a run is started with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanRunInput {
    pub plan: SeedPlan,
    /// Where commands run and what they may not leave; absolute.
    pub directory: String,
    #[serde(default = "max_concurrent_tasks_default")]
    pub max_concurrent_tasks: u32,
}

fn max_concurrent_tasks_default() -> u32 {
    MAX_CONCURRENT_TASKS_DEFAULT
}

impl PlanRunInput {
    /// The input for a plan file, refused with the file's path if the plan cannot be run. `directory` is absolute.
    pub fn read(path: &str, text: &str, directory: &str) -> Result<PlanRunInput, InvalidPlanFile> {
        let plan = read_plan(path, text, true)?;
        let refuse = |why| InvalidPlanFile::of(path, text, PlanProblem::Field(why));
        if let Some((task, key)) = plan.tasks().find_map(|task| Some((task.task_id, task.of_supervisors()?))) {
            let why = "is for the seed plan of a supervisor: the runner of plan files asks nobody and undoes nothing";
            return Err(refuse(FieldError::at(format!("task {task}.{key}"), why)));
        }
        work::check(&plan).map_err(refuse)?;
        Ok(PlanRunInput {
            plan: plan.into(),
            directory: directory.to_owned(),
            max_concurrent_tasks: MAX_CONCURRENT_TASKS_DEFAULT,
        })
    }
}

/// The workflow.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlanRun {
    execution: PlanExecution,
    activities: BTreeMap<Seq, TaskNumber>,
}

impl StateMachine for PlanRun {
    const TYPE: &'static str = PLAN_RUN;
    type Input = PlanRunInput;
    type Output = PlanRunOutput;

    fn start(input: PlanRunInput, cx: &mut Cx<'_>) -> Result<Self, Failure> {
        let invalid = |why: String| Failure::application(INVALID_PLAN, why).non_retryable();
        if !Path::new(&input.directory).is_absolute() {
            return Err(invalid(format!("the directory {:?} is not absolute", input.directory)));
        }
        let plan = Plan::from_seed(input.plan).map_err(|why| invalid(why.to_string()))?;
        let execution = PlanExecution::new(plan, input.directory, input.max_concurrent_tasks, cx.now())
            .map_err(|why| invalid(why.to_string()))?;
        let mut run = PlanRun { execution, activities: BTreeMap::new() };
        run.go_on(cx);
        Ok(run)
    }

    fn on_event(&mut self, event: WorkflowEvent, cx: &mut Cx<'_>) -> Result<(), Failure> {
        match event {
            WorkflowEvent::ActivityResolved { seq, result } => {
                if let Some(task) = self.activities.remove(&seq) {
                    let outcome = result.and_then(|payload| Ok(payload.decode::<Value>()?));
                    self.execution.ended(task, outcome, cx.now());
                }
            }
            WorkflowEvent::CancelRequested { reason } => {
                self.execution.cancel(&reason, cx.now());
                self.activities.keys().for_each(|seq| cx.cancel_activity(*seq));
            }
            WorkflowEvent::Signal(signal) if signal.name.as_str() == SIGNAL_CANCEL_TASK => {
                self.cancel_task(&signal, cx);
            }
            // Kept, so that the close of the run names it as unhandled.
            WorkflowEvent::Signal(signal) => cx.defer_signal(signal),
            WorkflowEvent::Update { update_id, name, .. } => {
                let why = Failure::application("UnknownUpdate", format!("a plan run has no update named {name}"));
                cx.complete_update::<()>(update_id, Err(why));
            }
            WorkflowEvent::TimerFired { .. }
            | WorkflowEvent::ChildStarted { .. }
            | WorkflowEvent::ChildResolved { .. }
            | WorkflowEvent::SignalDelivered { .. }
            | WorkflowEvent::CancelDelivered { .. } => {} // a plan run asks for none of these
        }
        self.go_on(cx);
        Ok(())
    }

    fn queries() -> &'static [&'static str] {
        &QUERIES
    }

    fn query(&self, name: &QueryName, input: &Payload) -> Result<Payload, Failure> {
        let payload = match name.as_str() {
            "progress" => Payload::encode(&self.execution.progress()),
            "status_board" => Payload::encode(&self.execution.status_board()),
            "report" => Payload::encode(&self.execution.report()),
            "get_plan" => Payload::encode(self.execution.plan()),
            "get_task" => Payload::encode(&self.get_task(input)?),
            other => return Err(Failure::application("UnknownQuery", format!("a plan run has no query {other}"))),
        };
        Ok(payload?)
    }
}

impl PlanRun {
    /// Starts what may start, and closes the run when nothing runs any more.
    fn go_on(&mut self, cx: &mut Cx<'_>) {
        for dispatch in self.execution.claim(cx.now()) {
            let seq = cx.schedule_activity(dispatch.activity_type, &dispatch.input, dispatch.options);
            self.activities.insert(seq, dispatch.task);
        }
        if !self.execution.is_over() || cx.is_closed() {
            return;
        }
        self.execution.finish(cx.now());
        let output = self.execution.output();
        match output.status {
            PlanRunStatus::Completed | PlanRunStatus::Partial => cx.complete(&output),
            PlanRunStatus::Cancelled => cx.cancel(Payload::encode(&output).ok()),
            PlanRunStatus::Failed | PlanRunStatus::Executing => {
                let message = format!("the plan failed: {}", output.errors.join("; "));
                let details = Payload::encode(&output).unwrap_or_default();
                cx.fail(Failure::application(PLAN_FAILED, message).non_retryable().with_details(details));
            }
        }
    }

    /// A signal that names no open task changes nothing: it may simply have come too late.
    fn cancel_task(&mut self, signal: &WorkflowExecutionSignaled, cx: &mut Cx<'_>) {
        #[derive(Deserialize)]
        struct CancelTask {
            task_id: TaskNumber,
            #[serde(default)]
            reason: String,
        }
        let Ok(CancelTask { task_id, reason }) = signal.input.decode() else { return };
        let reason = if reason.is_empty() { "by signal" } else { &reason };
        if self.execution.cancel_task(task_id, &format!("Task {task_id} cancelled. Reason: {reason}"), cx.now())
            == Some(true)
        {
            let running = self.activities.iter().find(|(_, task)| **task == task_id).map(|(seq, _)| *seq);
            running.into_iter().for_each(|seq| cx.cancel_activity(seq));
        }
    }

    /// Everything about a task: as planned, as seen, and its result. The input is the id, or `{"task_id": id}`.
    fn get_task(&self, input: &Payload) -> Result<Value, Failure> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Which {
            Id(TaskNumber),
            Named { task_id: TaskNumber },
        }
        let (Which::Id(id) | Which::Named { task_id: id }) = input.decode()?;
        let found = self.execution.plan().task(id).zip(self.execution.tasks().get(&id));
        let Some((item, task)) = found else {
            return Err(Failure::application("UnknownTask", format!("No task with id {id}.")));
        };
        Ok(json!({ "item": item, "view": self.execution.view(id), "run": task }))
    }
}

/// Adds the supervisors' workflows.
pub fn register(registry: WorkflowRegistry) -> WorkflowRegistry {
    super::run::register(registry.state_machine::<PlanRun>())
}

#[cfg(test)]
mod tests;
