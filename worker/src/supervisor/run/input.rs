//! What a supervisor run is started with: a spec, resolved or not, and where it stands in a tree of runs.
//!
//! Invariant: a run begins with a spec whose hash fits it, or not at all; a spec that was not resolved is resolved by the
//! same pure function as on the command line.

use bosun_engine::{Failure, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::border::Continued;
use super::refusal::NoSpec;
use super::rules_below::ToldBelow;
use super::strategy::RunStrategy;
use crate::agent::spec::Share;
use crate::supervisor::core::call_context::of_its_kind;
use crate::supervisor::outbox::Outbox;
use crate::supervisor::spec::{ResolvedSpec, SupervisorSpec, read_spec_value};

/// The failure type of an input that is no spec that can be run.
pub const INVALID_SPEC: &str = "InvalidSpec";

/// Where a run stands: in a session, below another run, in a role.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RunContext {
    /// Whose memory helps (SHN-42).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// How deep below the first run (SUP-08).
    pub depth: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// The run above, by its workflow id: it is told what this one waits for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub above: Option<String>,
    /// Its budget is a part of the parent's, who is told what was spent.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub shared: bool,
    /// The limits of its own spec, which no part of the parent's budget goes beyond.
    #[serde(skip_serializing_if = "Share::is_no_limit")]
    pub own_limits: Share,
    /// The same of calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub own_calls: Option<u64>,
    /// Only the run above forbids calls of unknown price.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub own_leave: bool,
    /// Its time is that of the agent above which it is: it is given up when that is over.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub timed: bool,
    /// What people had changed above of how they are asked when this run began: it holds for what begins below it too.
    #[serde(skip_serializing_if = "ToldBelow::is_nothing")]
    pub told: ToldBelow,
    /// What else whoever started it gives along.
    #[serde(skip_serializing_if = "MoreContext::is_empty")]
    pub more: MoreContext,
}

/// What else a run is given along, beside its spec. The order of the fields is that of inputs in histories.
/// What has another type than it should is as if it were not there, as it was when these were free: an input that was read
/// once is read for ever.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MoreContext {
    /// The plan, in the form in which planners give it.
    #[serde(deserialize_with = "of_its_kind", skip_serializing_if = "Option::is_none")]
    pub plan: Option<Value>,
    /// Who does the task of a run that has no plan.
    #[serde(deserialize_with = "of_its_kind", skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// In place of the policies of the spec.
    #[serde(deserialize_with = "of_its_kind", skip_serializing_if = "Option::is_none")]
    pub policies: Option<Value>,
    /// The messages that a chat goes on from.
    #[serde(deserialize_with = "of_its_kind", skip_serializing_if = "Option::is_none")]
    pub messages: Option<Value>,
    /// Whose conversation it is (CUG-38).
    #[serde(deserialize_with = "of_its_kind", skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    #[serde(deserialize_with = "of_its_kind", skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The messages that wait for a recruit when it begins (SHN-14).
    #[serde(deserialize_with = "of_its_kind", skip_serializing_if = "Option::is_none")]
    pub mail: Option<Vec<Value>>,
    /// For people and programs that look at the input; the run does not read it.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

impl MoreContext {
    fn is_empty(&self) -> bool {
        *self == MoreContext::default()
    }
}

/// The input of the workflow.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SupervisorInput {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolved: Option<ResolvedSpec>,
    /// A spec that is read and resolved when the run starts, as a file is; for programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec: Option<Value>,
    #[serde(default)]
    pub context: RunContext,
    /// Of a run in which another one goes on: what that left. All else is its state's to say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continued: Option<Box<Continued>>,
}

impl SupervisorInput {
    pub fn new(resolved: ResolvedSpec) -> Self {
        SupervisorInput { resolved: Some(resolved), spec: None, context: RunContext::default(), continued: None }
    }

    /// The same below other runs or processes (SUP-08).
    #[must_use]
    pub fn at_depth(mut self, depth: u32) -> Self {
        self.context.depth = depth;
        self
    }

    /// Why the run would be refused at its start, if it would. Nothing is started.
    pub fn refused(&self) -> Option<String> {
        let resolved = self.resolved.as_ref()?;
        let spec = resolved.spec.for_request().map_or_else(|| resolved.spec.clone(), |(spec, _)| spec);
        let mut out = Outbox::new("trial", Timestamp(0));
        RunStrategy::new(&spec, &self.context, &mut out).err().map(|why| why.message)
    }

    /// The spec that the run has, whichever way it was given.
    pub fn into_spec(self) -> Result<SupervisorSpec, NoSpec> {
        match (self.resolved, self.spec) {
            (Some(resolved), _) => Ok(resolved.spec),
            (None, Some(spec)) => Ok(read_spec_value(in_session(spec, &self.context))?.spec),
            (None, None) => Err(NoSpec::Absent),
        }
    }

    pub(super) fn resolve(self) -> Result<(ResolvedSpec, RunContext), Failure> {
        let invalid = |why: String| Failure::application(INVALID_SPEC, why).non_retryable();
        let resolved = match (self.resolved, self.spec) {
            (Some(resolved), None) if resolved.is_intact() => resolved,
            (Some(resolved), None) => {
                return Err(invalid(format!("the spec is not the one that the hash {} names", resolved.hash)));
            }
            (None, Some(spec)) => read_spec_value(in_session(spec, &self.context))
                .and_then(|file| file.resolve())
                .map_err(|why| invalid(why.to_string()))?,
            (Some(_), Some(_)) => return Err(invalid("either `resolved` or `spec`, not both".to_owned())),
            (None, None) => return Err(invalid("the input needs a `spec`".to_owned())),
        };
        Ok((resolved, self.context))
    }
}

/// The spec with the session that the run is started in: whoever names it beside the spec need not name it there too
/// (SHN-42).
fn in_session(mut spec: Value, context: &RunContext) -> Value {
    let memory = spec.get_mut("memory").and_then(Value::as_object_mut);
    if let (Some(session), Some(memory)) = (&context.session, memory)
        && ["advisor", "record"].iter().any(|key| memory.get(*key) == Some(&Value::Bool(true)))
    {
        memory.entry("session").or_insert_with(|| session.as_str().into());
    }
    spec
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A session beside the spec counts as if the spec named it (SHN-42); a memory that is nobody's is refused.
    #[test]
    fn the_session_of_a_start_is_that_of_its_spec() {
        let spec = json!({ "preset": "shannon-dag", "objective": "o", "memory": { "advisor": true } });
        let spec_of = |session: Option<&str>| {
            let context = RunContext { session: session.map(str::to_owned), ..RunContext::default() };
            SupervisorInput { resolved: None, spec: Some(spec.clone()), context, continued: None }.into_spec()
        };
        assert_eq!(spec_of(Some("s")).unwrap().memory.session, "s");
        assert!(spec_of(None).unwrap_err().to_string().contains("memory.advisor"));
    }
}
