//! Tools and limits of a model that talks or works with others: an agent has those of its model, or tools of the run.
//!
//! Invariant: what a spec grants a model, or bounds it by, is never left out without a word. A run asks those with tools of
//! its own step by step, so that there is nobody who would keep to `via.model.tools` or `via.model.limits`. What a spec does
//! not tell (hand-offs by name, coworkers of a crew that is resumed) the call says.

use super::CheckResult;
use crate::supervisor::fields::FieldError;
use crate::supervisor::spec::agent::{Agent, Via};
use crate::supervisor::spec::preset::Family;
use crate::supervisor::spec::sections::{DelegationProtocol, HandoffControl};
use crate::supervisor::spec::whole::SupervisorSpec;

pub(super) fn check(spec: &SupervisorSpec) -> CheckResult {
    if spec.family() == Family::Graph || spec.chooses_planning() {
        return Ok(());
    }
    for (i, agent) in spec.agents.iter().enumerate() {
        let (at, via) = match &agent.via {
            Some(via) => (format!("agents[{i}].via"), via),
            None => ("via".to_owned(), &spec.via),
        };
        if let (Some(granted), Some(own)) = (granted(via), tools_of(spec, agent)) {
            let why = format!(
                "has no effect on {}, whose {own} are carried out by the run, which asks for one step at a time: \
                 give it to an agent without {own}",
                agent.name
            );
            return Err(FieldError::at(format!("{at}.model.{granted}"), why));
        }
    }
    manager(spec)
}

/// What is granted to a model of its own.
fn granted(via: &Via) -> Option<&'static str> {
    let Via::Model(model) = via else { return None };
    let granted = [("tools", !model.tools.is_empty()), ("limits", !model.limits.is_empty())];
    granted.into_iter().find_map(|(key, there)| there.then_some(key))
}

/// What an agent has of tools that the run carries out.
fn tools_of(spec: &SupervisorSpec, agent: &Agent) -> Option<&'static str> {
    let agents = spec.family() == Family::Agents;
    let tools = [
        // In a chat it hands over by a word.
        ("`delegates`", agents && !agent.delegates.is_empty()),
        ("`tools`", !agent.tools.is_empty()),
        ("hand-offs", agents && hands_over_to_all(spec, agent)),
        ("delegates", agents && gives_work_to_all(spec, agent)),
    ];
    tools.into_iter().find_map(|(what, there)| there.then_some(what))
}

fn hands_over_to_all(spec: &SupervisorSpec, agent: &Agent) -> bool {
    let from_anywhere = spec.handoff_control() == Some(HandoffControl::Switch);
    spec.handoff_control().is_some() && (from_anywhere || is_root(spec, agent)) && may_reach_all(spec, agent)
}

fn gives_work_to_all(spec: &SupervisorSpec, agent: &Agent) -> bool {
    let by_variables = spec.delegation_protocol() == DelegationProtocol::Variables;
    spec.handoff_control().is_none() && by_variables && is_root(spec, agent) && may_reach_all(spec, agent)
}

fn is_root(spec: &SupervisorSpec, agent: &Agent) -> bool {
    let first = || spec.agents.first().map(|first| first.name.as_str());
    spec.delegation.root.as_deref().or_else(first) == Some(agent.name.as_str())
}

/// Whether nobody says who may call whom, and there are others.
fn may_reach_all(spec: &SupervisorSpec, agent: &Agent) -> bool {
    let other = |other: &Agent| other.name != agent.name && !other.is_callable();
    let nobody_says = spec.agents.iter().all(|agent| agent.delegates.is_empty());
    spec.steps.is_empty() && nobody_says && !agent.is_callable() && spec.agents.iter().any(other)
}

/// The manager of a crew calls its coworkers.
fn manager(spec: &SupervisorSpec) -> CheckResult {
    if !spec.is_crew() || !spec.steps.is_empty() {
        return Ok(());
    }
    let own = spec.manager_agent.as_ref().and_then(|manager| manager.via.as_ref());
    let (at, via) = own.map_or(("via", &spec.via), |via| ("manager_agent.via", via));
    let Some(granted) = granted(via) else { return Ok(()) };
    let why = "has no effect on the manager of the crew, who calls coworkers through the run, which asks for one step at a \
               time: give it to `agents[].via`";
    Err(FieldError::at(format!("{at}.model.{granted}"), why))
}
