//! What earlier runs teach (memory, the advisor) and where a request is sent (routing).
//!
//! Invariant: thresholds are basis points and strict as the rows say. It remembers and routes nothing.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::supervisor::spec::Ratio;

/// `memory:`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Memory {
    /// Whether advice from earlier runs is asked for before the plan is made.
    pub advisor: bool,
    /// The advice overrides the strategy only above this (SHN-43).
    pub override_above: Ratio,
    /// A stored pattern counts above this similarity and this rate of success (SHN-43).
    pub similar_above: Ratio,
    /// A stored pattern counts only if more than this part of its runs succeeded.
    pub success_above: Ratio,
    /// What advice without a pattern is worth (SHN-43).
    pub default_confidence: Ratio,
    /// Whose memory is fetched; empty is none (SHN-42).
    pub session: String,
    /// A success is recorded for learning (SHN-46).
    pub record: bool,
    /// Words that force sequential execution (SHN-44).
    pub rate_limit_words: Vec<String>,
}

impl Default for Memory {
    fn default() -> Self {
        let words = ["quickly", "fast", "urgent", "asap", "immediately"];
        Memory {
            advisor: true,
            override_above: Ratio::from_bp(8_000),
            similar_above: Ratio::from_bp(8_000),
            success_above: Ratio::from_bp(7_000),
            default_confidence: Ratio::from_bp(5_000),
            session: String::new(),
            record: true,
            rate_limit_words: words.map(str::to_owned).to_vec(),
        }
    }
}

/// `routing:`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Routing {
    /// Whether a request that needs no team is handed on to a child, once it is planned (SHN-02); `false` runs the preset
    /// itself, whatever the request is like.
    pub enabled: bool,
    /// Whether the run is the router: a request that needs no supervisor is carried out by a child of the kind that its
    /// decomposition asks for (SHN-01, SHN-04). Without it only what is simple leaves the supervisor (SHN-02).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub entry: bool,
    /// More subtasks than this go to a supervisor (SHN-01).
    pub supervisor_above: u32,
    /// Where subtasks with dependencies go (supervisors.md §4.3 no. 28).
    pub deps_to: DepsTo,
    /// Up to so many subtasks are a simple task (SHN-04).
    pub simple_up_to: u32,
    /// Less complexity than this is simple (SHN-02).
    pub simple_below: Ratio,
    /// No subtask at all is simple, however complex (supervisors.md §4.3 no. 29).
    pub zero_subtasks_simple: bool,
}

impl Default for Routing {
    fn default() -> Self {
        Routing {
            enabled: false,
            entry: false,
            supervisor_above: 5,
            deps_to: DepsTo::Supervisor,
            simple_up_to: 2,
            simple_below: Ratio::from_bp(3_000),
            zero_subtasks_simple: false,
        }
    }
}

/// Who carries out a plan whose tasks depend on each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DepsTo {
    /// The supervisor with its team.
    Supervisor,
    /// A child that runs the graph, without a team.
    Dag,
}
