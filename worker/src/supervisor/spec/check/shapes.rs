//! The JSON Schemas of a spec: of the result, and of the arguments of tools.
//!
//! Invariant: one that nothing could conform to, or with a word that nobody knows, is refused with its place, before any
//! work is paid for. What conforms is looked at by whoever is given it.

use super::CheckResult;
use crate::supervisor::shape::Shape;
use crate::supervisor::spec::whole::SupervisorSpec;

/// FSS-21: what nothing could conform to is not found out after the work.
pub(super) fn check(spec: &SupervisorSpec) -> CheckResult {
    if let Some(schema) = &spec.synthesis.schema {
        Shape::read("synthesis.schema", schema)?;
    }
    for (at, agent) in spec.all_agents() {
        for (i, tool) in agent.tools.iter().enumerate() {
            if let Some(parameters) = &tool.parameters {
                Shape::read(&format!("{at}.tools[{i}].parameters"), parameters)?;
            }
        }
    }
    Ok(())
}
