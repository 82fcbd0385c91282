//! Plan runs: a plan file carried out by the core of supervisors, with a report of its own.
//!
//! ```text
//!   input: plan, directory ──► a spec ──► the run of a supervisor (core, graph) ──► report
//! ```
//!
//! Invariant: it sets values and shows what became of them. What runs, is tried again, judged, paused or cancelled is the
//! core's and the graph's to say, as for every supervisor.
//!
//! Queries: `progress` (the data of a live tree), `status_board` (text), `get_plan`, `get_task` (input: the id), `report`,
//! and those of a supervisor that are none of these. Signals: those of a supervisor, and `cancel_task_v1`,
//! `{"task_id": 3, "reason": "not needed"}`.

use std::path::Path;

use bosun_engine::workflow::{Cx, RunNames, StateMachine, WorkflowEvent, WorkflowRegistry};
use bosun_engine::{Failure, Payload, QueryName, UpdateName};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::fields::FieldError;
use super::plan::{Plan, SeedPlan};
use super::plan_yaml::{InvalidPlanFile, PlanProblem, read_plan};
use super::report::{PlanRunOutput, PlanRunStatus, PlanRunView};
use super::run::{Continued, SupervisorInput, SupervisorRun};
use super::spec::SupervisorSpec;
use super::task::TaskNumber;
use super::work;
use crate::agent::next_run::go_on_in;

/// The workflow type.
pub const PLAN_RUN: &str = "plan-run";
/// The failure type of a run whose final task did not complete; its details are the [`PlanRunOutput`].
pub const PLAN_FAILED: &str = "PlanFailed";
/// The failure type of an input that is no plan that can be run.
pub const INVALID_PLAN: &str = "InvalidPlan";
pub use super::run::CANCEL_TASK as SIGNAL_CANCEL_TASK;

const MAX_CONCURRENT_TASKS_DEFAULT: u32 = 4;

/// What a run is started with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanRunInput {
    pub plan: SeedPlan,
    /// Where commands run and what they may not leave; absolute.
    pub directory: String,
    #[serde(default = "max_concurrent_tasks_default")]
    pub max_concurrent_tasks: u32,
    /// As `limits.history_events` of a spec.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub history_events: Option<u64>,
    /// Of a run in which another one goes on: what that left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continued: Option<Box<Continued>>,
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
        work::check(&plan, &|_| false).map_err(refuse)?;
        Ok(PlanRunInput {
            plan: plan.into(),
            directory: directory.to_owned(),
            max_concurrent_tasks: MAX_CONCURRENT_TASKS_DEFAULT,
            history_events: None,
            continued: None,
        })
    }
}

/// The workflow.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlanRun {
    run: SupervisorRun,
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
        if let Some(continued) = input.continued {
            return Ok(PlanRun { run: SupervisorRun::go_on_from(*continued, cx) }.closed_if_over(cx));
        }
        let plan = Plan::from_seed(input.plan).map_err(|why| invalid(why.to_string()))?;
        let mut spec = SupervisorSpec::of_plan_file(&plan, input.directory, input.max_concurrent_tasks)
            .map_err(|why| invalid(why.to_string()))?;
        spec.limits.history_events = input.history_events;
        let resolved = spec.resolve().map_err(|why| invalid(format!("{}: {}", why.at, why.why)))?;
        let run = PlanRun { run: SupervisorRun::begin(SupervisorInput::new(resolved), cx)? };
        Ok(run.closed_if_over(cx))
    }

    fn on_event(&mut self, event: WorkflowEvent, cx: &mut Cx<'_>) -> Result<(), Failure> {
        self.run.happened(event, cx);
        self.close_if_over(cx);
        self.continue_if_long(cx);
        self.close_if_over(cx);
        Ok(())
    }

    fn queries() -> &'static [&'static str] {
        SupervisorRun::queries()
    }

    fn query_as(&self, names: &RunNames, name: &QueryName, input: &Payload) -> Result<Payload, Failure> {
        let payload = match name.as_str() {
            "progress" => Payload::encode(&self.view()?.progress()),
            "status_board" => Payload::encode(&self.view()?.status_board()),
            "report" => Payload::encode(&self.view()?.report()),
            "get_plan" => Payload::encode(&self.view()?.plan),
            "get_task" => Payload::encode(&self.get_task(input)?),
            _ => return self.run.query_as(names, name, input),
        };
        Ok(payload?)
    }

    fn validate_update_as(&self, names: &RunNames, name: &UpdateName, input: &Payload) -> Result<(), Failure> {
        self.run.validate_update_as(names, name, input)
    }
}

impl PlanRun {
    fn view(&self) -> Result<PlanRunView<'_>, Failure> {
        let no_plan = |why: String| Failure::application(INVALID_PLAN, why).non_retryable();
        let plan = self.run.spec().plan().map_err(|why| no_plan(why.to_string()))?;
        let (plan, tasks) = plan.zip(self.run.plan()).ok_or_else(|| no_plan("the run has no plan".to_owned()))?;
        let (started_at, ended_at) = self.run.times();
        Ok(PlanRunView { plan, tasks, phase: self.run.phase(), started_at, ended_at })
    }

    fn closed_if_over(self, cx: &mut Cx<'_>) -> Self {
        self.close_if_over(cx);
        self
    }

    /// Closes the run where the next one goes on.
    fn continue_if_long(&mut self, cx: &mut Cx<'_>) {
        let input = |run: &SupervisorRun, continued| {
            let spec = run.spec();
            Some(PlanRunInput {
                // The spec was made of a plan.
                plan: spec.plan().ok().flatten()?.into(),
                directory: spec.plan_directory().unwrap_or_default().to_owned(),
                max_concurrent_tasks: spec.dispatch.max_concurrency.unwrap_or(MAX_CONCURRENT_TASKS_DEFAULT),
                history_events: spec.limits.history_events,
                continued: Some(Box::new(continued)),
            })
        };
        if let Some(next) = self.run.at_border(cx, input) {
            go_on_in(PLAN_RUN, &next, self.run.leave(), cx);
        }
    }

    /// The end of the run is its report, whatever its end is.
    fn close_if_over(&self, cx: &mut Cx<'_>) {
        if cx.is_closed() || !self.run.is_over() {
            return;
        }
        let output = match self.view() {
            Ok(view) => view.output(),
            Err(why) => return cx.fail(why),
        };
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

    /// Everything about a task: as planned, as seen, and what has happened to it. The input is the id, or
    /// `{"task_id": id}`.
    fn get_task(&self, input: &Payload) -> Result<Value, Failure> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Which {
            Id(TaskNumber),
            Named { task_id: TaskNumber },
        }
        let (Which::Id(id) | Which::Named { task_id: id }) = input.decode()?;
        let view = self.view()?;
        let found = view.plan.task(id).zip(view.view(id)).zip(view.run_of(id));
        let Some(((item, shown), run)) = found else {
            return Err(Failure::application("UnknownTask", format!("No task with id {id}.")));
        };
        Ok(json!({ "item": item, "view": shown, "run": run }))
    }
}

/// Adds the supervisors' workflows.
pub fn register(registry: WorkflowRegistry) -> WorkflowRegistry {
    super::run::register(registry.state_machine::<PlanRun>())
}

#[cfg(test)]
mod tests;
