//! An agent that was started: who it is, below whom, how deep, and how it is doing.
//!
//! Invariant: an id is given once in a run. It holds no live agent.

use bosun_engine::Timestamp;
use serde::{Deserialize, Serialize};

/// How an instance is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InstanceStatus {
    Active,
    Completed,
    Failed,
}

impl InstanceStatus {
    pub fn as_str(self) -> &'static str {
        match self {
            InstanceStatus::Active => "active",
            InstanceStatus::Completed => "completed",
            InstanceStatus::Failed => "failed",
        }
    }
}

/// One agent that was started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentInstance {
    pub name: String,
    /// Eight hexadecimal digits, derived from the run and the instance's number.
    pub instance_id: String,
    pub created_at: Timestamp,
    pub parent_id: Option<String>,
    pub status: InstanceStatus,
    /// In this process: the root has 0.
    pub depth: u32,
}
