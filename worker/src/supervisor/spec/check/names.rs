//! Whoever is named for a job exists, and can do it.
//!
//! Invariant: a job is answered in place: no run of its own plans, decides, reviews or synthesizes for another run. It looks only
//! at who is named, not at whether the job is needed.

use super::{CheckResult, one_agent};
use crate::supervisor::fields::FieldError;
use crate::supervisor::outbox::Purpose;
use crate::supervisor::spec::agent::{Agent, Via};
use crate::supervisor::spec::whole::SupervisorSpec;

/// Why no run does a job of another run.
const ROLE_RUN: &str = "no run of its own answers for a job: let a model, a program, a service or an activity do it";

/// Whoever is named does exist.
pub(super) fn named(spec: &SupervisorSpec) -> CheckResult {
    for (at, role) in spec.roles() {
        if let Some(name) = role.agent.as_deref().filter(|name| spec.agent(name).is_none()) {
            return Err(FieldError::at(format!("{at}.agent"), format!("`{name}` is not an agent")));
        }
        let agent = role.agent.as_deref().and_then(|name| spec.agent(name));
        if !at.starts_with("services.") && agent.is_some_and(|agent| matches!(agent.via, Some(Via::Supervisor(_)))) {
            return Err(FieldError::at(format!("{at}.agent"), ROLE_RUN));
        }
        if matches!(role.via, Some(Via::Supervisor(_))) {
            return Err(FieldError::at(format!("{at}.via.supervisor"), ROLE_RUN));
        }
        one_agent(&Agent { via: role.via.clone(), model: role.model.clone(), ..Agent::new("role") }, &at)?;
    }
    let activity = Purpose::AuthorizeTeamAction.as_str();
    let stranger = |name: &&str| *name != activity && spec.agent(name).is_none() && spec.agent_for(name).is_none();
    if let Some(name) = spec.team.policy.as_deref().filter(stranger) {
        let why = format!("`{name}` is neither an agent nor `{activity}`, the activity that is asked by itself");
        return Err(FieldError::at("team.policy", why));
    }
    match spec.delegation.root.as_deref().filter(|name| spec.agent(name).is_none()) {
        Some(name) => Err(FieldError::at("delegation.root", format!("`{name}` is not an agent"))),
        None => Ok(()),
    }
}
