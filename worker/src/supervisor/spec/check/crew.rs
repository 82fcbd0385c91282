//! What a spec must be for a crew: a manager, and tasks that say nothing that the crew would pass over.
//!
//! Invariant: of a task in its plan a crew reads each key, or refuses it with its place and with what says the same in a
//! crew. What tasks must be to each other is `agents::crew`'s.

use serde_json::Value;

use super::CheckResult;
use crate::supervisor::fields::{FieldError, Fields};
use crate::supervisor::plan::{Plan, TaskItem};
use crate::supervisor::spec::agent::{MemoryScope, Via};
use crate::supervisor::spec::crew_task::{CREW_PARAMETERS, CrewTask};
use crate::supervisor::spec::whole::SupervisorSpec;
use crate::supervisor::task::TaskStatus;

pub(super) fn check(spec: &SupervisorSpec) -> CheckResult {
    if !spec.is_crew() {
        return Ok(());
    }
    manager(spec)?;
    let Some(source) = &spec.seed_plan else { return Ok(()) };
    if source.directory.is_some() {
        return Err(unread("seed_plan.directory", "the manager does the tasks of a crew, and runs no commands"));
    }
    if !source.auto_mark_final {
        return Err(unread("seed_plan.auto_mark_final", RESULT));
    }
    let Some(plan) = spec.plan()? else { return Ok(()) };
    plan.in_list_order().enumerate().try_for_each(|(i, item)| {
        let at = format!("seed_plan.plan.tasks[{i}]");
        match idle_key(spec, &plan, item) {
            Some((key, why)) => Err(unread(&format!("{at}.{key}"), why)),
            None => parameters(item, &format!("{at}.parameters")),
        }
    })
}

/// Why no task is final.
const RESULT: &str = "the result of a crew is the output of the last task of its list";

fn unread(at: &str, why: &str) -> FieldError {
    FieldError::at(at, format!("has no effect here: {why}"))
}

/// CRW-01, CRW-02.
fn manager(spec: &SupervisorSpec) -> CheckResult {
    let Some(manager) = &spec.manager_agent else {
        return match &spec.manager_llm {
            Some(_) => Ok(()),
            None => {
                let why = "Attribute `manager_llm` or `manager_agent` is required when using hierarchical process.";
                Err(FieldError::at("manager_llm", why))
            }
        };
    };
    if manager.name.trim().is_empty() {
        return Err(FieldError::at("manager_agent.name", "every agent needs a name; this one has none"));
    }
    if spec.agents.iter().any(|agent| agent.name == manager.name) {
        return Err(FieldError::at("manager_agent", "Manager agent should not be included in agents list."));
    }
    if !manager.tools.is_empty() {
        return Err(FieldError::at("manager_agent.tools", "Manager agent should not have tools"));
    }
    if spec.manager_llm.is_some() {
        return Err(unread("manager_llm", "`manager_agent` manages, with the `model` of its own"));
    }
    if matches!(manager.via, Some(Via::Supervisor(_))) {
        let why =
            "a run of its own does work, and gives none away: let a model, a program, a service or an activity manage";
        return Err(FieldError::at("manager_agent.via.supervisor", why));
    }
    let idle = [
        (
            "delegates",
            !manager.delegates.is_empty(),
            "a manager may ask every agent, or the one of the task (`delegation.scope`)",
        ),
        ("memory_scope", manager.memory_scope != MemoryScope::default(), "a manager begins anew with each task"),
        ("callable", manager.callable, "a manager gives work away, and a function cannot"),
        ("required_parameters", !manager.required_parameters.is_empty(), "a manager is no function"),
    ];
    match idle.into_iter().find(|(_, set, _)| *set) {
        Some((key, _, why)) => Err(unread(&format!("manager_agent.{key}"), why)),
        None => Ok(()),
    }
}

/// The first key of a task that a crew does not carry out, and what says it instead.
fn idle_key(spec: &SupervisorSpec, plan: &Plan, item: &TaskItem) -> Option<(&'static str, &'static str)> {
    let asked = spec.hitl.enabled || item.requires_approval;
    let nobody = "nobody is asked: say `requires_approval`, or `hitl`";
    // The last task by its number is marked where the plan marks none.
    let highest = plan.tasks().last().map(|last| last.task_id);
    let is_last = plan.in_list_order().last().map(|last| last.task_id) == Some(item.task_id);
    let keys = [
        (
            "status",
            item.status != TaskStatus::Pending,
            "a crew begins with its whole list: leave out what is not to be done; `resume.outputs` is what was done before",
        ),
        ("attempt_count", item.attempt_count > 0, "the attempts of this run count"),
        (
            "max_attempts",
            item.max_attempts != spec.review.max_attempts,
            "an output that is not valid is made again `parameters.guardrail_max_retries` times",
        ),
        ("is_final", item.is_final && !is_last && highest != Some(item.task_id), RESULT),
        ("compensation", item.compensation.is_some(), "a crew undoes nothing"),
        ("time_scope", item.time_scope.is_some(), "the manager is told the objective of the task: say it there"),
        ("metadata", !item.metadata.as_map().is_empty(), "nobody reads it: say it in the objective of the task"),
        (
            "overall_objective",
            item.overall_objective != plan.objective(),
            "the manager is told the objective of the task: say it there",
        ),
        ("action", item.action.is_some() && !asked, nobody),
        ("risk", item.risk.is_some() && !asked, nobody),
    ];
    keys.into_iter().find(|(_, set, _)| *set).map(|(key, _, why)| (key, why))
}

fn parameters(item: &TaskItem, at: &str) -> CheckResult {
    let given = Value::Object(item.parameters.clone());
    Fields::read(&given, at, &CREW_PARAMETERS)?;
    let read: Result<CrewTask, _> = serde_path_to_error::deserialize(&given);
    read.map(drop).map_err(|why| FieldError::at(format!("{at}.{}", why.path()), why.inner().to_string()))
}
