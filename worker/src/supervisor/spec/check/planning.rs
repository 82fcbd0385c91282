//! What a spec must be for its plan: a seed plan that can be carried out, and policies that name agents of the spec.
//!
//! Invariant: what a plan file refuses is refused of a seed plan in the same words, at its place in the spec.

use std::path::Path;

use serde_json::Value;

use super::CheckResult;
use crate::supervisor::fields::FieldError;
use crate::supervisor::model::HUMAN;
use crate::supervisor::plan::Plan;
use crate::supervisor::plan_yaml::{self, PlanProblem};
use crate::supervisor::spec::preset::Family;
use crate::supervisor::spec::sections::{ByRequest, PlanningMode};
use crate::supervisor::spec::whole::SupervisorSpec;
use crate::supervisor::work::{self, Capability};

/// The seed plan of a spec.
pub(in crate::supervisor::spec) fn seed_plan(plan: &Value) -> Result<Plan, FieldError> {
    plan_yaml::plan_of(plan).map_err(|why| match why {
        PlanProblem::Field(why) => FieldError::at(format!("seed_plan.plan.{}", why.path), why.problem),
        other => FieldError::at("seed_plan.plan", other.to_string()),
    })
}

/// PDT-28.
pub(super) fn planning(spec: &SupervisorSpec) -> CheckResult {
    let needs_plan = matches!(spec.planning.mode, PlanningMode::Fixed | PlanningMode::Hybrid);
    if needs_plan && spec.seed_plan.is_none() {
        let why = "seed_plan must be provided when planning_mode is 'fixed' or 'hybrid'";
        return Err(FieldError::at("planning.mode", why));
    }
    // CUG-12: what is left over gets one of the modes that a request can get.
    if !matches!(spec.planning.otherwise, PlanningMode::None | PlanningMode::Todos | PlanningMode::Agents) {
        return Err(FieldError::at("planning.otherwise", "known values here: none, todos, agents"));
    }
    // CUG-03, CUG-19.
    if let Some((key, name)) = spec.planning.policies.named().find(|(_, name)| spec.agent(name).is_none()) {
        let known: Vec<&str> = spec.agents.iter().map(|agent| agent.name.as_str()).collect();
        let why = format!("`{name}` is not an agent; available: {}", known.join(", "));
        return Err(FieldError::at(format!("planning.policies.{key}"), why));
    }
    let Some(plan) = spec.plan()? else { return Ok(()) };
    match spec.plan_directory() {
        Some(directory) if Path::new(directory).is_absolute() => {
            work::check(&plan, &|task| of_somebody(spec, &task.capability))
        }
        Some(directory) => {
            Err(FieldError::at("seed_plan.directory", format!("the directory {directory:?} is not absolute")))
        }
        None if spec.runs_plan_file() => match plan.tasks().find(|task| needs_directory(spec, &task.capability)) {
            Some(task) => {
                let why = format!(
                    "say where task {} (`{}`) runs, absolute: only `bosun run` knows a directory to take",
                    task.task_id, task.capability
                );
                Err(FieldError::at("seed_plan.directory", why))
            }
            None => work::check(&plan, &|task| of_somebody(spec, &task.capability)),
        },
        None => Ok(()),
    }
}

/// Whether an agent or a person does what has this capability.
fn of_somebody(spec: &SupervisorSpec, capability: &str) -> bool {
    capability == HUMAN || spec.agent(capability).or_else(|| spec.agent_for(capability)).is_some()
}

fn needs_directory(spec: &SupervisorSpec, capability: &str) -> bool {
    Capability::of(capability).is_some() && !of_somebody(spec, capability)
}

/// Between what a request decides: a conversation and a plan, one of which the spec is itself.
pub(super) fn by_request(spec: &SupervisorSpec) -> CheckResult {
    let Some(ByRequest { conversation, plan }) = spec.by_request() else { return Ok(()) };
    let at = |key: &str| format!("planning.by_request{key}");
    if conversation.family() != Family::Agents {
        let why =
            format!("`{conversation}` is no conversation of agents that call each other, as cuga-conversational is");
        return Err(FieldError::at(at(".conversation"), why));
    }
    if plan.family() != Family::Graph {
        return Err(FieldError::at(at(".plan"), format!("`{plan}` is no plan of tasks, as cuga-structured is")));
    }
    match spec.preset {
        Some(own) if own == conversation || own == plan => Ok(()),
        _ => Err(FieldError::at(at(""), "one of the two is what `preset` says of the spec")),
    }
}
