//! How a run gets its plan, who sees it first, and when a request deserves one.
//!
//! Invariant: planning mode, supervisor mode and strategy are three things and are never merged (supervisors.md §4.3 no.
//! 40). It plans nothing.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::supervisor::spec::{Preset, Span};

/// `planning:`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Planning {
    /// Where the plan comes from.
    pub mode: PlanningMode,
    /// Always structured, even for one agent (CUG-11).
    pub force: bool,
    /// What a request gets that neither the triggers nor a single step decide: several agents without a cue, or one
    /// agent with several steps (CUG-12).
    pub otherwise: PlanningMode,
    /// Whether delegations are planned before the first.
    pub supervisor_mode: SupervisorMode,
    /// How the delegations of a plan that is made upfront are run (CUG-33).
    pub strategy: UpfrontStrategy,
    /// Whether a later plan may replace what is left of the first (FSP-05).
    pub replan: bool,
    /// With `replan`, whoever decides (`supervisor`, as the agent `evaluator`) is asked whenever tasks have ended and none
    /// runs whether the plan still holds; null is as the preset has it, and without a preset no (FSP-05).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evaluator: Option<bool>,
    /// What a run comes to whose planner planned no task. Null is as the preset has it: Plan and Execute (FSP-07) and the
    /// Coordinator (FSC-03) complete, everything else fails with the code `no_task_planned`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_empty: Option<OnEmpty>,
    /// The two presets that a request is carried out by, where it decides which (CUG-08); one of them is the preset of the
    /// spec. Null is as the preset has it: CUGA's requests decide, all others do not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by_request: Option<ByRequest>,
    /// When a request gets a structured plan.
    pub triggers: PlanTriggers,
    /// Whether people approve the plan before anything runs.
    pub approval: PlanApproval,
    /// What was resolved before the plan is made (CUG-04, CUG-19).
    #[serde(skip_serializing_if = "PlanPolicies::is_empty")]
    pub policies: PlanPolicies,
    /// What whoever plans or decides may use beside the agents: nothing of it unless it is listed, because its parameters
    /// would be a model's words. A seed plan and a person's revision need no grant.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub built_in: Vec<PlannedBuiltIn>,
}

impl Default for Planning {
    fn default() -> Self {
        Planning {
            mode: PlanningMode::Llm,
            force: false,
            otherwise: PlanningMode::Todos,
            supervisor_mode: SupervisorMode::Conversational,
            strategy: UpfrontStrategy::Sequential,
            replan: true,
            evaluator: None,
            on_empty: None,
            by_request: None,
            triggers: PlanTriggers::default(),
            approval: PlanApproval::default(),
            policies: PlanPolicies::default(),
            built_in: Vec::new(),
        }
    }
}

/// A capability in the box that acts on the world by its parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PlannedBuiltIn {
    /// Programs, by `argv`.
    Process,
    /// Requests, by `url`.
    Http,
    /// Activities of the program, by `type`.
    Activity,
    /// Reports in files, by `directory` and `out`.
    Compose,
}

impl PlannedBuiltIn {
    /// All of them.
    pub const ALL: [PlannedBuiltIn; 4] =
        [PlannedBuiltIn::Process, PlannedBuiltIn::Http, PlannedBuiltIn::Activity, PlannedBuiltIn::Compose];

    /// The capability as tasks name it.
    pub fn as_str(self) -> &'static str {
        match self {
            PlannedBuiltIn::Process => "process",
            PlannedBuiltIn::Http => "http",
            PlannedBuiltIn::Activity => "activity",
            PlannedBuiltIn::Compose => "compose",
        }
    }
}

/// What a request chooses between.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ByRequest {
    /// Whose values a request has that becomes a conversation; its agents call each other.
    pub conversation: Preset,
    /// Whose values a request has that becomes a plan of tasks.
    pub plan: Preset,
}

impl Planning {
    /// A plan of delegations is made before the first of them.
    pub fn is_upfront(&self) -> bool {
        self.mode == PlanningMode::Upfront || self.supervisor_mode == SupervisorMode::PlanUpfront
    }
}

/// Where the plan comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PlanningMode {
    /// The seed plan, never changed.
    Fixed,
    /// The supervisor makes it.
    Llm,
    /// The seed plan, which the supervisor may change.
    Hybrid,
    /// No plan at all.
    None,
    /// A list of todos the agent keeps for itself.
    Todos,
    /// Sub-tasks, each of a named agent, driven by the controller.
    Agents,
    /// A list of delegations, made before the first.
    Upfront,
}

/// What a plan without a task means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnEmpty {
    /// There was nothing to do, and the run is done.
    Complete,
    /// Nothing was done, and the run has failed.
    Fail,
}

/// How the supervisor talks with its agents (CUG-33).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SupervisorMode {
    /// It delegates as the conversation goes on.
    Conversational,
    /// It plans all delegations before the first.
    PlanUpfront,
}

/// How the delegations of a plan that is made upfront are run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "Strategy")]
pub enum UpfrontStrategy {
    /// One after the other.
    Sequential,
    /// All at once.
    Parallel,
}

/// When a request gets a structured plan (CUG-09, CUG-13).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PlanTriggers {
    /// Only a spec with so many agents, or more, plans because of a cue.
    pub min_agents: u32,
    /// Words of sequence, whole words in any case; `N` at the end stands for a number.
    pub cues: Vec<String>,
}

impl Default for PlanTriggers {
    fn default() -> Self {
        let cues = ["first", "then", "after", "before", "finally", "once", "and then", "followed by", "step N"];
        PlanTriggers { min_agents: 2, cues: cues.map(str::to_owned).to_vec() }
    }
}

/// Policies that a plan must reflect: they are resolved already and only narrow it (CUG-03, CUG-04, CUG-19). A run that is
/// started with the state of a CUGA supervisor gives them by its names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PlanPolicies {
    /// Only these agents may be named; all if empty.
    #[serde(alias = "supervisor_allowed_agents")]
    pub allowed_agents: Vec<String>,
    /// Sub-tasks of a later agent wait for those of the earlier ones.
    #[serde(alias = "supervisor_sequence_order")]
    pub sequence_order: Vec<String>,
    /// Sub-tasks of these agents need a person's approval.
    pub approval_agents: Vec<String>,
    /// Agents that have been given work already; the planner is told.
    #[serde(alias = "supervisor_dispatched_agents")]
    pub dispatched_agents: Vec<String>,
}

impl PlanPolicies {
    /// Whether there is no policy at all.
    pub fn is_empty(&self) -> bool {
        *self == PlanPolicies::default()
    }
    /// Every agent that is named, by where.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, &String)> {
        let lists = [
            ("allowed_agents", &self.allowed_agents),
            ("sequence_order", &self.sequence_order),
            ("approval_agents", &self.approval_agents),
            ("dispatched_agents", &self.dispatched_agents),
        ];
        lists.into_iter().flat_map(|(key, names)| names.iter().map(move |name| (key, name)))
    }
}

/// The plan is shown and approved before anything runs, and again when it has become another one (CUG-18, SHH-21, SHH-22).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PlanApproval {
    /// Whether the plan waits for an approval, and each later one that is not as it was approved.
    pub required: bool,
    /// How long it waits: a quarter of an hour at most.
    pub timeout: Span,
    /// How many plans people are shown in one review: the first, and each that is made again with their feedback.
    pub max_rounds: u32,
}

impl PlanApproval {
    /// The longest that a review may wait (SHH-25).
    pub const TIMEOUT_MAX: Span = Span::from_mins(15);
}

impl Default for PlanApproval {
    fn default() -> Self {
        PlanApproval { required: false, timeout: Span::from_mins(15), max_rounds: 10 }
    }
}
