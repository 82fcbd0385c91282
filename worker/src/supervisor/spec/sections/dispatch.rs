//! Which tasks run next, how many at once, and what their dependencies mean.
//!
//! Invariant: no bound is zero (the spec's check sees to it). It schedules nothing.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use crate::supervisor::model::{DependencyPolicy, Requires};
use crate::supervisor::spec::Span;

/// `dispatch:`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Dispatch {
    /// Whether independent tasks run at the same time.
    pub parallelism: Parallelism,
    /// Tasks at once; null is as many as are ready.
    pub max_concurrency: Option<u32>,
    /// Who says what runs next.
    pub selection: Selection,
    /// Whether a plan is refused for which there are no `agents` (FSS-32); null is as the preset has it: flow-state's refuse,
    /// everything else lets capabilities that are built in, people and `via` do the work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub require_agents: Option<bool>,
}

impl Default for Dispatch {
    fn default() -> Self {
        Dispatch {
            parallelism: Parallelism::Dependency,
            max_concurrency: Some(3),
            selection: Selection::Supervisor,
            require_agents: None,
        }
    }
}

/// Whether independent tasks run at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Parallelism {
    /// Whatever waits for nothing runs at once.
    Dependency,
    /// One after another, in plan order.
    Sequential,
}

/// Who says what runs next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Selection {
    /// Everything that is ready.
    All,
    /// The supervisor chooses among what is ready.
    Supervisor,
    /// The first that is ready.
    One,
    /// A speaker is chosen.
    Speaker,
    /// The plan controller goes through the sub-tasks.
    Controller,
    /// The agent whose turn it is, by the tools it calls.
    Agent,
}

/// `dependencies:`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Dependencies {
    /// `false` starts every task of an iteration whatever it depends on (FSS-40).
    pub honour: bool,
    /// How a dependency must have ended.
    pub requires: Requires,
    /// What becomes of a task whose dependency failed.
    pub on_failure: DependencyPolicy,
    /// What becomes of a task whose dependency was cancelled.
    pub on_cancelled: DependencyPolicy,
    /// What happens to a task whose condition on a result (`when:` of a dependency) does not hold; `on_failure` of the
    /// dependency itself goes before it.
    pub on_unmet: OnUnmet,
    /// Whether a cascade reaches tasks that are running (supervisors.md §4.1 no. 9).
    pub cancel_running: bool,
    /// How long a task may wait for its dependencies; null is for ever (SHD-04).
    pub wait_timeout: Option<Span>,
    /// How long tasks wait for topics that others produce.
    pub topics: Topics,
}

impl Default for Dependencies {
    fn default() -> Self {
        Dependencies {
            honour: true,
            requires: Requires::Completed,
            on_failure: DependencyPolicy::Wait,
            on_cancelled: DependencyPolicy::Cancel,
            on_unmet: OnUnmet::Skip,
            cancel_running: false,
            wait_timeout: None,
            topics: Topics::default(),
        }
    }
}

/// What becomes of a task whose condition on a result does not hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnUnmet {
    /// It waits for a repair of the plan.
    Wait,
    /// It is not needed, and is skipped (CRW-09).
    #[default]
    Skip,
    /// It has failed.
    Fail,
}

/// Waiting for topics that other tasks produce (SHN-49).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Topics {
    /// How long a task waits for a topic.
    pub timeout: Span,
    /// The pause before the first look whether the topic is there; it doubles each time.
    pub backoff: Span,
    /// The longest pause between two looks.
    pub backoff_max: Span,
}

impl Default for Topics {
    fn default() -> Self {
        Topics { timeout: Span::from_secs(360), backoff: Span::from_secs(1), backoff_max: Span::from_secs(30) }
    }
}
