//! What is asked of a team, by which rules, and in which words it is refused.
//!
//! Invariant: what comes from outside is decoded strictly by type, and a complaint names the field; a policy that says
//! anything but yes has said no. It changes nothing.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::supervisor::model::TaskId;
use crate::supervisor::outbox::Answer;

/// Which tasks wait for recruits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecruitJoin {
    /// Those that depend on the task that recruited; if that is not known, every task that depends on anything.
    #[default]
    Dependents,
    None,
}

/// What happens to a recruit asked for while the results are being put together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LateRecruits {
    #[default]
    Refuse,
    Wait,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TeamRules {
    pub max_size: usize,
    /// Whether anybody may be recruited at all.
    pub recruit: bool,
    pub recruit_join: RecruitJoin,
    pub late_recruits: LateRecruits,
    /// Recruits that results bring about.
    pub rules: Vec<RecruitRule>,
}

impl Default for TeamRules {
    fn default() -> Self {
        let (recruit_join, late_recruits) = (RecruitJoin::Dependents, LateRecruits::Refuse);
        TeamRules { max_size: 10, recruit: true, recruit_join, late_recruits, rules: Vec::new() }
    }
}

/// What `recruit_v1` carries. The names are Shannon's; lower case is understood too.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecruitRequest {
    #[serde(rename = "Description", alias = "description")]
    pub description: String,
    #[serde(rename = "Role", alias = "role", default)]
    pub role: String,
    /// The task whose agent asks, if one does.
    #[serde(rename = "Task", alias = "task", default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskId>,
}

/// A result that has this brings a recruit about. All that is said must hold.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RecruitRule {
    /// Only results of this task.
    pub task: Option<TaskId>,
    /// Only results of agents in this role.
    pub from_role: Option<String>,
    /// The result's text contains this, whatever the case.
    pub contains: Option<String>,
    /// The field at this JSON pointer is there (and equals `equals`, if given).
    pub pointer: Option<String>,
    pub equals: Option<Value>,
    pub role: String,
    pub description: String,
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
    /// A recruit has ended; its result is in [`Team::results`].
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

impl RecruitRule {
    pub(super) fn applies(&self, task: &TaskId, role: &str, result: &Value) -> bool {
        let text = || result.as_str().map_or_else(|| result.to_string(), str::to_owned).to_lowercase();
        let field = |pointer: &String| result.pointer(pointer);
        let conditions = [
            self.task.as_ref().map(|wanted| wanted == task),
            self.from_role.as_ref().map(|wanted| wanted == role),
            self.contains.as_ref().map(|wanted| text().contains(&wanted.to_lowercase())),
            self.pointer.as_ref().map(|at| match &self.equals {
                Some(wanted) => field(at) == Some(wanted),
                None => field(at).is_some_and(|value| !value.is_null()),
            }),
        ];
        // A rule without any condition would recruit at every result: it never applies.
        conditions.iter().flatten().count() > 0 && conditions.iter().flatten().all(|holds| *holds)
    }
}

pub(super) fn decode<T: serde::de::DeserializeOwned>(input: &Value) -> Result<T, TeamRefusal> {
    serde_path_to_error::deserialize(input).map_err(|why| {
        let path = why.path().to_string();
        TeamRefusal::Malformed { path, problem: why.into_inner().to_string() }
    })
}

/// A policy that fails or says something else has not said yes.
pub(super) fn allowed(answer: &Answer) -> Result<(), String> {
    let value = answer.as_ref().map_err(|why| format!("the authorization failed: {why}"))?;
    match serde_path_to_error::deserialize::<_, Authorization>(value) {
        Ok(Authorization { allow: true, .. }) => Ok(()),
        Ok(Authorization { reason, .. }) => Err(reason.unwrap_or_else(|| "not allowed by the policy".to_owned())),
        Err(why) => Err(format!("the authorization is not understood: {}: {}", why.path(), why.inner())),
    }
}
