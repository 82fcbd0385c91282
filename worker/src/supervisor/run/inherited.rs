//! What a spec says of how tasks are done, kept for the children that do them (issue 15).
//!
//! Invariant: what differs from the values of the parent's preset stands in place of the values of the child's, wherever the
//! child has a use for it; what has no effect there is left out, so that a child is never refused for what its parent says.
//! Who plans, who is in the team and what is told on the way is the parent's own; who of the team may work, in which order
//! and whom people are asked about holds for the children as well. It starts nothing.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Error, Value, to_value};

use crate::supervisor::spec::{Preset, SupervisorSpec};

/// Takes over from the parent what it says of its tasks.
pub(super) fn keep_what_was_said(parent: &SupervisorSpec, child: &mut SupervisorSpec) -> Result<(), Error> {
    let usual = parent.preset.map(Preset::values).unwrap_or_default();
    child.reviewer.clone_from(&parent.reviewer);
    child.planning.policies.clone_from(&parent.planning.policies);
    child.planning.built_in.clone_from(&parent.planning.built_in);
    child.limits.clone_from(&parent.limits);
    said(&usual.dispatch, &parent.dispatch, &mut child.dispatch)?;
    said(&usual.dependencies, &parent.dependencies, &mut child.dependencies)?;
    said(&usual.review, &parent.review, &mut child.review)?;
    said(&usual.failure, &parent.failure, &mut child.failure)?;
    said(&usual.synthesis, &parent.synthesis, &mut child.synthesis)?;
    said(&usual.compensation, &parent.compensation, &mut child.compensation)?;
    said(&usual.budget.on_exhausted, &parent.budget.on_exhausted, &mut child.budget.on_exhausted)
}

/// Takes over each value of a section that differs from the usual one; what is not written there has its own default.
fn said<T: Serialize + DeserializeOwned>(usual: &T, parent: &T, child: &mut T) -> Result<(), Error> {
    let [usual, parent, own] = [to_value(usual)?, to_value(parent)?, to_value(&*child)?];
    let merged = match (usual, parent, own) {
        (usual, parent, own) if parent == usual => own,
        (Value::Object(usual), Value::Object(parent), Value::Object(mut own)) => {
            own.retain(|key, _| parent.contains_key(key) || !usual.contains_key(key));
            own.extend(parent.into_iter().filter(|(key, value)| usual.get(key) != Some(value)));
            Value::Object(own)
        }
        (_, parent, _) => parent,
    };
    *child = serde_json::from_value(merged)?;
    Ok(())
}
