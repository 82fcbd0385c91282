//! Policies about tools: what they name is a tool that somebody in the run can call.
//!
//! Invariant: a policy that would let everything pass because of a slip is refused, with the name that was probably meant.
//! What tools a plan of CUGA comes to is known only when it is made: there people are warned.

use std::collections::BTreeSet;

use super::CheckResult;
use crate::supervisor::fields::{FieldError, similar};
use crate::supervisor::spec::delegate_tool;
use crate::supervisor::spec::preset::Family;
use crate::supervisor::spec::sections::{HandoffTools, PolicyKind};
use crate::supervisor::spec::tool_names::{Builtin, SYSTEM_TOOLS, handoff_name};
use crate::supervisor::spec::whole::SupervisorSpec;

/// The first policy of a run of agents that names no tool of theirs.
pub(super) fn check(spec: &SupervisorSpec) -> CheckResult {
    if spec.family() != Family::Agents || spec.chooses_planning() {
        return Ok(());
    }
    match strangers(spec).into_iter().next() {
        Some((at, why)) => Err(FieldError::at(at, why)),
        None => Ok(()),
    }
}

/// The same where a plan may have tools of its own.
pub(super) fn warnings(spec: &SupervisorSpec) -> Vec<String> {
    if !spec.chooses_planning() {
        return Vec::new();
    }
    strangers(spec).into_iter().map(|(at, why)| format!("{at}: {why}")).collect()
}

fn strangers(spec: &SupervisorSpec) -> Vec<(String, String)> {
    let known = tools(spec);
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    let of_tools = |kind| matches!(kind, PolicyKind::ToolApproval | PolicyKind::ToolGuide);
    let policies = spec.policies.iter().enumerate().filter(|(_, policy)| of_tools(policy.kind));
    let named = policies.flat_map(|(i, policy)| policy.tools.iter().map(move |tool| (i, tool)));
    let why = |(i, tool): (usize, &String)| {
        let hint = similar(tool, &known).map_or_else(String::new, |near| format!(" (did you mean `{near}`?)"));
        let own = "what a model is given in `via.model.tools` says itself whether it needs an approval";
        (format!("policies[{i}].tools"), format!("nobody has a tool `{tool}`{hint}; {own}"))
    };
    named.filter(|(_, tool)| !known.contains(&tool.as_str())).map(why).collect()
}

/// The names of all tools that an agent of the run could be offered.
fn tools(spec: &SupervisorSpec) -> BTreeSet<String> {
    let agents = spec.all_agents();
    let own = agents.iter().flat_map(|(_, agent)| agent.tools.iter().map(|tool| tool.name.clone()));
    let delegations = agents.iter().map(|(_, agent)| delegate_tool(&agent.name));
    let hand_offs = agents.iter().map(|(_, agent)| format!("{}{}", spec.handoff.prefix, handoff_name(&agent.name)));
    let custom = match &spec.handoff.tools {
        Some(HandoffTools::Named(tools)) => tools.keys().cloned().collect(),
        Some(HandoffTools::Agents(_)) | None => Vec::new(),
    };
    let of_system = SYSTEM_TOOLS.iter().map(|name| (*name).to_owned());
    let builtins = Builtin::ALL.iter().map(|builtin| builtin.name().to_owned());
    own.chain(delegations).chain(hand_offs).chain(custom).chain(of_system).chain(builtins).collect()
}
