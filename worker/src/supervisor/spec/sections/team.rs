//! The team that grows while it works, and its mailbox.
//!
//! Invariant: both are bounded. It recruits nobody and delivers nothing.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::supervisor::model::TaskId;
use crate::supervisor::spec::Span;

/// `team:`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Team {
    /// Whether the agents are a team, with a mailbox and roles that can be taken and left; null is as the preset has it: a
    /// graph, a single task, a pattern and a plan file have none (SHD-07), everything else has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Whether a task without a role is given to a generalist, who is told so (SHN-40); null is as the preset has it: Shannon's
    /// supervisor does so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub assign_roles: Option<bool>,
    /// Members at once (SHN-23).
    pub max_size: u32,
    /// Whether results may call for new members.
    pub recruit: bool,
    /// Whether tasks wait for the work of recruits.
    pub recruit_join: RecruitJoin,
    /// What becomes of a recruit that arrives during synthesis.
    pub late_recruits: LateRecruits,
    /// The activity that is asked whether a recruit or a retirement is allowed; null allows all.
    pub policy: Option<String>,
    /// Results that call for somebody (SHN-71).
    pub rules: Vec<RecruitRule>,
}

impl Default for Team {
    fn default() -> Self {
        Team {
            enabled: None,
            assign_roles: None,
            max_size: 10,
            recruit: true,
            recruit_join: RecruitJoin::Dependents,
            late_recruits: LateRecruits::Refuse,
            policy: Some("authorize_team_action".to_owned()),
            rules: Vec::new(),
        }
    }
}

/// Whether the dependents of a task that recruits wait for the recruited work (SHN-70).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RecruitJoin {
    /// They wait; and for a recruit of no task in particular, as a signal without `Task` asks for, every task waits that depends
    /// on another.
    Dependents,
    /// They do not wait.
    None,
}

/// What becomes of a recruit that arrives during synthesis (SHN-27).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LateRecruits {
    /// It is refused.
    Refuse,
    /// The synthesis waits for it.
    Wait,
}

/// When a result is like `when`, somebody is recruited.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RecruitRule {
    /// What the result must be like.
    pub when: RecruitCondition,
    /// Empty is a generalist.
    #[serde(default)]
    pub role: String,
    /// What the new member is asked to do.
    pub description: String,
}

/// All that is given must hold.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RecruitCondition {
    /// Only results of this task.
    pub task: Option<TaskId>,
    /// The result as text holds this, in any case.
    pub contains: Option<String>,
    /// A place in the result, such as `findings.0.kind`.
    pub field: Option<String>,
    /// What is there; with no `field`, the whole result.
    pub equals: Option<Value>,
}

/// `mailbox:`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Mailbox {
    /// Messages that are kept (SHN-13).
    pub limit: u32,
    /// Messages that wait for delivery; more are dropped and counted (SHN-11).
    pub queue: u32,
    /// What goes when there are too many messages.
    pub trim: Trim,
    /// The longest message, in bytes (SHN-17).
    pub payload_max: u32,
    /// How many messages one fetch gives.
    pub fetch_window: u32,
    /// How long a message is kept.
    pub ttl: Span,
}

impl Default for Mailbox {
    fn default() -> Self {
        Mailbox {
            limit: 100,
            queue: 100,
            trim: Trim::KeepLatterHalf,
            payload_max: 1024 * 1024,
            fetch_window: 200,
            ttl: Span::from_hours(48),
        }
    }
}

/// What goes when there are too many messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Trim {
    /// The older half goes.
    KeepLatterHalf,
}
