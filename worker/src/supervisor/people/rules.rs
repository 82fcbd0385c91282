//! The words people's part of a spec is written in: modes, risks, what happens when nobody answers.
//!
//! Invariant: risks and modes are ordered (low before critical, command before on the loop). It decides nothing.

use serde::{Deserialize, Serialize};

/// How much a person is asked (SHH-05).
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum HitlMode {
    /// Every external action and every start of a task is asked for.
    HumanInCommand,
    /// What is sensitive or too dear is asked for.
    #[default]
    HumanInTheLoop,
    /// Nothing but the exceptions is asked for.
    HumanOnTheLoop,
}

impl HitlMode {
    pub const ALL: [HitlMode; 3] = [HitlMode::HumanInCommand, HitlMode::HumanInTheLoop, HitlMode::HumanOnTheLoop];
    pub fn as_str(self) -> &'static str {
        match self {
            HitlMode::HumanInCommand => "human_in_command",
            HitlMode::HumanInTheLoop => "human_in_the_loop",
            HitlMode::HumanOnTheLoop => "human_on_the_loop",
        }
    }
}

/// How bad it may get (SHH-06).
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Risk {
    #[default]
    Low,
    Medium,
    High,
    Critical,
}

/// What a deadline without an answer means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnTimeout {
    #[default]
    Reject,
    Approve,
}
