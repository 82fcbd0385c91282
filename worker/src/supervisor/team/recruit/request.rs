//! What is asked of a team, by which rules, and in which words it is refused.
//!
//! Invariant: what comes from outside is decoded strictly by type, and a complaint names the field; a policy that says
//! anything but yes has said no. It changes nothing.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::supervisor::model::TaskId;
use crate::supervisor::outbox::{Answer, CallFailure};
use crate::supervisor::reading::{Unreadable, read};
use crate::supervisor::spec::RecruitCondition;

/// What `recruit_v1` carries. The names are Shannon's; lower case is understood too.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct RecruitRequest {
    #[serde(rename = "Description", alias = "description")]
    pub description: String,
    #[serde(rename = "Role", alias = "role", default)]
    pub role: String,
    /// The task whose agent asks, if one does.
    #[serde(rename = "Task", alias = "task", default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskId>,
    /// How many recruits stand between it and a task or a signal.
    #[serde(rename = "Generation", default, skip_serializing_if = "is_zero")]
    #[schemars(skip)]
    pub generation: u32,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct RetireRequest {
    #[serde(rename = "AgentID", alias = "agent_id")]
    pub(super) agent_id: String,
}

/// The policy's word on a recruit or a retirement.
#[derive(Debug, Clone, Deserialize)]
struct Authorization {
    #[serde(alias = "allowed", alias = "approved", alias = "authorized")]
    allow: bool,
    #[serde(default)]
    reason: Option<String>,
}

/// Why nobody is recruited or retired; recorded in these words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TeamRefusal {
    #[error("{path}: {problem}")]
    Malformed { path: String, problem: String },
    #[error("recruiting is off in this run")]
    Off,
    #[error("recruits have recruited {0} times in a row; nobody is recruited by the last of them")]
    TooMany(u32),
    #[error("a recruit needs a description of its task")]
    NoDescription,
    #[error("the run puts its results together; nobody is recruited any more")]
    Late,
    #[error("the run is over; nobody is recruited any more")]
    Over,
    #[error("the team is full: {running} of {max} members are at work")]
    Full { running: usize, max: usize },
    #[error("{agent} works on that already")]
    Duplicate { agent: String },
    #[error("the run is over; {agent} stays in its team")]
    Stays { agent: String },
    #[error("{agent} is being retired already")]
    Retiring { agent: String },
    #[error("Agent '{agent}' is not in the team")]
    Unknown { agent: String },
}

/// What an answer brought about, for the run to act on.
#[derive(Debug, Clone, PartialEq)]
pub enum TeamOutcome {
    Recruited {
        agent_id: String,
        role: String,
    },
    /// The policy said no, or said nothing.
    Denied {
        reason: String,
    },
    /// A recruit has ended; its result is in [`Roster::results`](super::Roster::results).
    Ended {
        agent_id: String,
        succeeded: bool,
    },
    /// The agent has left. The run cancels these tasks of the plan; a recruit's child is cancelled already.
    Retired {
        agent_id: String,
        tasks: Vec<TaskId>,
    },
    /// A word of somebody who has left, or on something that is settled: dropped.
    Dropped,
}

/// Whether a result brings the rule's recruit about: all that the condition says must hold. One that says nothing would
/// recruit at every result: it never holds.
pub(super) fn applies(when: &RecruitCondition, task: &TaskId, result: &Value) -> bool {
    let RecruitCondition { task: of, contains, field, equals } = when;
    let text = || result.as_str().map_or_else(|| result.to_string(), str::to_owned).to_lowercase();
    let at = field.as_ref().map_or(Some(result), |path| at_path(result, path));
    let conditions = [
        of.as_ref().map(|wanted| wanted == task),
        contains.as_ref().map(|wanted| text().contains(&wanted.to_lowercase())),
        equals.as_ref().map(|wanted| at == Some(wanted)),
        field.as_ref().map(|_| at.is_some_and(|value| !value.is_null())),
    ];
    let mut said = conditions.iter().flatten().peekable();
    said.peek().is_some() && said.all(|holds| *holds)
}

/// What is at `findings.0.kind`.
fn at_path<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(value, |value, part| match value {
        Value::Array(items) => items.get(part.parse::<usize>().ok()?),
        other => other.get(part),
    })
}

pub(super) fn decode<T: serde::de::DeserializeOwned>(input: &Value) -> Result<T, TeamRefusal> {
    serde_path_to_error::deserialize(input).map_err(|why| {
        let path = why.path().to_string();
        TeamRefusal::Malformed { path, problem: why.into_inner().to_string() }
    })
}

/// Why somebody neither joins nor leaves the team.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum NotAuthorized {
    #[error("the authorization failed: {0}")]
    Failed(CallFailure),
    #[error("{}", .0.as_deref().unwrap_or("not allowed by the policy"))]
    Denied(Option<String>),
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
}

/// A policy that fails or says something else has not said yes.
pub(super) fn allowed(answer: &Answer) -> Result<(), NotAuthorized> {
    let value = answer.as_ref().map_err(|why| NotAuthorized::Failed(why.clone()))?;
    match read("authorization", value)? {
        Authorization { allow: true, .. } => Ok(()),
        Authorization { reason, .. } => Err(NotAuthorized::Denied(reason)),
    }
}
