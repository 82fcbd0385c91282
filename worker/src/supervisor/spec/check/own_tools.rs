//! Tools and limits of a model in a run whose agents call tools of the run: an agent has the one or the other.
//!
//! Invariant: what a spec grants a model, or bounds it by, is never left out without a word. A run asks those with tools of
//! its own step by step, so that there is nobody who would keep to `via.model.tools` or `via.model.limits`. Hand-offs and
//! coworkers are known when the run has begun: there the call says so.

use super::CheckResult;
use crate::supervisor::fields::FieldError;
use crate::supervisor::spec::agent::Via;
use crate::supervisor::spec::preset::Family;
use crate::supervisor::spec::whole::SupervisorSpec;

pub(super) fn check(spec: &SupervisorSpec) -> CheckResult {
    if spec.family() != Family::Agents || spec.chooses_planning() {
        return Ok(());
    }
    for (i, agent) in spec.agents.iter().enumerate() {
        let (at, via) = match &agent.via {
            Some(via) => (format!("agents[{i}].via"), via),
            None => ("via".to_owned(), &spec.via),
        };
        let Via::Model(model) = via else { continue };
        let granted = [("tools", !model.tools.is_empty()), ("limits", !model.limits.is_empty())];
        let own = [("delegates", !agent.delegates.is_empty()), ("tools", !agent.tools.is_empty())];
        let first = |of: [(&'static str, bool); 2]| of.into_iter().find_map(|(key, there)| there.then_some(key));
        if let (Some(granted), Some(own)) = (first(granted), first(own)) {
            let why = format!(
                "has no effect on {}, whose `{own}` are carried out by the run, which asks for one step at a time: \
                 give it to an agent without `{own}`",
                agent.name
            );
            return Err(FieldError::at(format!("{at}.model.{granted}"), why));
        }
    }
    Ok(())
}
