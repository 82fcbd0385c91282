//! What a spec must be for its plan: a seed plan that can be carried out, and policies that name agents of the spec.
//!
//! Invariant: what a plan file refuses is refused of a seed plan in the same words, at its place in the spec.

use std::path::Path;

use serde_json::Value;

use super::Check;
use crate::supervisor::fields::FieldError;
use crate::supervisor::plan::Plan;
use crate::supervisor::plan_yaml::{self, PlanProblem};
use crate::supervisor::spec::sections::PlanningMode;
use crate::supervisor::spec::whole::SupervisorSpec;
use crate::supervisor::work;

/// The seed plan of a spec.
pub(in crate::supervisor::spec) fn seed_plan(plan: &Value) -> Result<Plan, FieldError> {
    plan_yaml::plan_of(plan).map_err(|why| match why {
        PlanProblem::Field(why) => FieldError::at(format!("seed_plan.plan.{}", why.path), why.problem),
        other => FieldError::at("seed_plan.plan", other.to_string()),
    })
}

/// PDT-28.
pub(super) fn planning(spec: &SupervisorSpec) -> Check {
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
    let plan = spec.plan()?;
    match (plan, spec.plan_directory()) {
        (Some(plan), Some(directory)) if Path::new(directory).is_absolute() => work::check(&plan),
        (_, Some(directory)) => {
            Err(FieldError::at("seed_plan.directory", format!("the directory {directory:?} is not absolute")))
        }
        (_, None) => Ok(()),
    }
}
