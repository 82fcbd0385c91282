//! The resolved spec: every value, and the hash that names it.
//!
//! Invariant: the same spec gives the same bytes and the same hash, on every machine and every time: keys are sorted,
//! numbers have one form. Nothing about a run is read from anywhere else afterwards (supervisors.md §5.8 no. 4).

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::check;
use super::error::InvalidSpec;
use super::read::seed_attempts;
use super::whole::SupervisorSpec;
use crate::canonical::sorted;
use crate::supervisor::fields::FieldError;
use crate::supervisor::plan::Plan;

/// A spec that can be run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResolvedSpec {
    /// Every value, those of the preset and the defaults included.
    pub spec: SupervisorSpec,
    /// blake3 over the canonical JSON, in hex.
    pub hash: String,
}

impl SupervisorSpec {
    /// Checks the spec as a whole and names it. A run without an objective of its own has its seed plan's.
    pub fn resolve(&self) -> Result<ResolvedSpec, InvalidSpec> {
        self.resolved(true)
    }

    /// The same of a spec that was checked before, whose roles somebody else may have given since: a run above, or a scene.
    pub(crate) fn resolve_below(&self) -> Result<ResolvedSpec, InvalidSpec> {
        self.resolved(false)
    }

    fn resolved(&self, roles: bool) -> Result<ResolvedSpec, InvalidSpec> {
        let refuse = |why| InvalidSpec::of("", why);
        check::check(self, roles).map_err(refuse)?;
        let mut spec = self.clone();
        if spec.objective.trim().is_empty()
            && let Some(plan) = spec.plan().map_err(refuse)?
        {
            plan.objective().clone_into(&mut spec.objective);
        }
        if spec.objective.trim().is_empty() {
            let missing = spec.objective.is_empty();
            let why =
                if missing { "required key `objective` is missing" } else { "it has no text: say what there is to do" };
            return Err(refuse(FieldError::at("objective", why)));
        }
        // What the request makes of the spec must hold as well.
        if let Some((chosen, _)) = spec.for_request() {
            check::of_request(&chosen).map_err(refuse)?;
        }
        let hash = hash(&spec).map_err(|why| refuse(FieldError::at("", why.to_string())))?;
        Ok(ResolvedSpec { spec, hash })
    }

    /// The seed plan, checked (PDT-38, PDT-41).
    pub fn plan(&self) -> Result<Option<Plan>, FieldError> {
        let Some(source) = &self.seed_plan else { return Ok(None) };
        if let Some(file) = &source.file {
            return Err(FieldError::at("seed_plan.file", format!("the plan file `{file}` has not been read")));
        }
        let Some(plan) = &source.plan else {
            return Err(FieldError::at("seed_plan", "needs the `file` or the `plan` itself"));
        };
        let mut plan = Value::Object(plan.clone());
        seed_attempts(&mut plan, self.review.max_attempts);
        let plan = check::seed_plan(&plan)?;
        Ok(Some(if source.auto_mark_final { plan.auto_mark_final() } else { plan }))
    }
}

impl ResolvedSpec {
    /// The bytes that are hashed and stored.
    pub fn canonical(&self) -> Result<String, serde_json::Error> {
        canonical(&self.spec)
    }
    /// Whether the hash is that of the spec.
    pub fn is_intact(&self) -> bool {
        hash(&self.spec).is_ok_and(|hash| hash == self.hash)
    }
}

fn hash(spec: &SupervisorSpec) -> Result<String, serde_json::Error> {
    Ok(blake3::hash(canonical(spec)?.as_bytes()).to_hex().to_string())
}

fn canonical(spec: &SupervisorSpec) -> Result<String, serde_json::Error> {
    let value = serde_json::to_value(spec)?;
    Ok(sorted(&value).to_string())
}
