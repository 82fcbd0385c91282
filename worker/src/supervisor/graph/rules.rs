//! The rules by which a task graph is planned, run, reviewed and ended: what a preset chooses (supervisors.md §5.6).
//!
//! Invariant: plain data, fixed when the run starts; nothing of it is read from anywhere later.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::workers::WorkerCard;
use crate::supervisor::core::authority::Granted;
use crate::supervisor::model::{DependencyPolicy, Edge, Requires};
use crate::supervisor::spec::{
    Degrade, OnEmpty, OnIdle, OnUnmet, PlanPolicies, Reflection, RejectStatus, ReviewScope, Selection, UpfrontStrategy,
};
use crate::supervisor::standing::StandingPolicy;
use crate::supervisor::task::TaskStatus;

/// Where the plan comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlanSource {
    /// It is given and nobody adds to it.
    Fixed,
    /// The decider builds it by its actions, cycle by cycle.
    Llm,
    /// It is given, and the decider may change it.
    Hybrid,
    /// A planner is called for it.
    Planner,
    /// One execution, no plan (SHD-06).
    None,
}

/// What becomes of a task whose tries are used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnTriesExhausted {
    /// It stays errored until somebody repairs it (PDT-26).
    Errored,
    /// It is failed; others go on.
    Failed,
    /// It is skipped with its error; others go on (FSS-16).
    Skip,
    /// The run fails with that error (FSS-17).
    Abort,
}

/// Where the result of the run comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResultSource {
    FinalTask,
    Synthesizer,
    /// The results themselves, by task.
    Merge,
    LastOutput,
    /// The tasks as they are, counted (FSP-08).
    Raw,
}

/// The rules of one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GraphRules {
    /// The name in messages: `[supervisor:<name>]`.
    pub name: String,
    pub planning: PlanSource,
    /// How delegations of a plan that was made upfront are run, if the plan does not say (CUG-33).
    pub strategy: UpfrontStrategy,
    /// The plan is made upfront, and nobody decides on the way (CUG-33).
    #[serde(default)]
    pub upfront: bool,
    /// Who chooses what runs next: in a graph all that may run, the supervisor cycle by cycle, one at a time in plan order, or
    /// a controller after every end of a sub-task (CUG-07).
    pub selection: Selection,
    /// What a decider is allowed to do (§2.2); the machine refuses the rest.
    pub authority: Granted,
    /// Workers at once; no limit if absent.
    pub max_concurrency: Option<u32>,
    /// One after the other in plan order (§4.3 no. 30).
    pub sequential: bool,
    /// Whether dependencies count (FSS-40).
    pub honour: bool,
    pub requires: Requires,
    pub on_failure: DependencyPolicy,
    pub on_cancelled: DependencyPolicy,
    /// What becomes of a task whose condition on a result does not hold.
    #[serde(default)]
    pub on_condition: OnUnmet,
    /// What a run does that has open tasks of which none may run: ends, or waits for people.
    #[serde(default)]
    pub on_idle: Option<OnIdle>,
    /// Whether a cancelled dependency also cancels dependents that run.
    pub cancel_running: bool,
    /// How long a task may wait for its dependencies, in ms; for ever if absent (SHD-04).
    pub dependency_timeout_ms: Option<u64>,
    pub review: ReviewScope,
    pub criteria: Vec<String>,
    /// When a worker looks at its own result again (SHD-05).
    pub reflection: Option<Reflection>,
    /// Reviews per task until it has failed.
    pub max_attempts: u32,
    /// How often a review is asked for that does not conform (FSS-08).
    #[serde(default)]
    pub review_tries: u32,
    /// The word for a task that was sent back, outside (§4.1 no. 1).
    #[serde(default)]
    pub rejected_as: RejectStatus,
    /// Whether the reviewer of an iteration also sees what it accepted before (FSS-43).
    pub review_sees_accepted: bool,
    /// Accepted only from this score on, if given (§4.2 no. 27).
    pub accept_below_score_bp: Option<u32>,
    /// Appends feedback to the objective of the next attempt (PDT-24).
    pub append_feedback: bool,
    /// Whether an error uses up an attempt of its task, as a rejection does (PDT-26).
    #[serde(default)]
    pub errors_are_attempts: bool,
    /// Decisions of a decider, or steps of a loop that goes one by one (FSP-09).
    pub max_steps: Option<u32>,
    /// Iterations in total (§4.2 no. 14).
    pub max_iterations: u32,
    /// Cycles without an executed task until the run stops (PDT-06).
    pub no_progress: u32,
    /// Executions of a task until its tries are used up.
    pub tries: u32,
    /// How long after a failed try the next one starts, in ms.
    pub retry_backoff_ms: u64,
    pub on_exhausted: OnTriesExhausted,
    /// The share of failed tasks at which the run is aborted: `floor(n * share) + 1` failures (SHN-33); never if absent.
    pub threshold_bp: Option<u32>,
    pub count_recruits: bool,
    pub errored_is_terminal: bool,
    pub synthesis: ResultSource,
    /// What the synthesized result must look like (FSS-21).
    pub output_schema: Option<Value>,
    /// One successful result that is no JSON needs no synthesis (SHN-48).
    pub bypass_single: bool,
    /// Results that say the same, or nothing, are told to the synthesizer once, or not (SHN-48).
    #[serde(default)]
    pub dedupe: bool,
    /// How many characters a synthesis task's own result must have to be used as it is (SHN-48).
    pub own_result_chars: u32,
    /// How often a synthesis is asked for that does not have the shape it must have (FSS-21).
    pub synthesis_tries: u32,
    /// Whether the synthesizer is asked although nothing was done (FSS-14, FSP-08, FSC-03).
    #[serde(default)]
    pub synthesizes_nothing: bool,
    /// What a run comes to whose planner planned no task (FSP-07).
    pub on_empty: OnEmpty,
    /// When a way of thinking steps down (SHN-72).
    pub degrade: Option<Degrade>,
    /// Executions of a task by agents whose own policy differs (FSS-18).
    #[serde(default)]
    pub agent_tries: std::collections::BTreeMap<String, u32>,
    /// Runs what tasks registered as their undoing when the run is cancelled, in reverse (§4.4 no. 56).
    pub compensate: bool,
    /// Capabilities that exist; all are accepted if empty (PDT-18).
    pub capabilities: Vec<CapabilityCard>,
    /// The agents of the run; tasks may name anybody if there are none (CUG-03).
    #[serde(default)]
    pub workers: Vec<WorkerCard>,
    /// Capabilities that need no agent.
    #[serde(default, rename = "boxed")]
    pub built_in: Vec<String>,
    /// Of these, what is only for plans of people: a model that plans or decides may not use it (supervisors.md §2.2).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reserved: Vec<String>,
    /// The spec answers for work that is no agent's.
    #[serde(default)]
    pub answers_anybody: bool,
    /// A task that nobody can do is shown to people; otherwise its plan is refused (SHH-17, CUG-03).
    #[serde(default)]
    pub escalates_unmatched: bool,
    /// The role that the run was given from above: of tasks for which the planner names none (SHN-40).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub given_role: Option<String>,
    /// What was decided before planning (CUG-04).
    #[serde(default)]
    pub policies: PlanPolicies,
    /// What holds whatever anybody answers (CUG-39).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub standing: Vec<StandingPolicy>,
    /// Asks the planner again when an evaluator says so (FSP-05).
    pub evaluator: bool,
    /// Tasks that are taken at all.
    pub max_tasks: u32,
    /// The words for statuses that people of the preset's system use, where they differ from ours (FSS-34).
    #[serde(default, skip_serializing_if = "std::collections::BTreeMap::is_empty")]
    pub status_words: std::collections::BTreeMap<TaskStatus, String>,
}

/// What a capability is and what it needs (PDT-19).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CapabilityCard {
    pub name: String,
    #[serde(default)]
    pub description: String,
    /// Parameters that a plain callable must be given.
    #[serde(default)]
    pub required_parameters: Vec<String>,
}

impl Default for GraphRules {
    // long: one line a rule.
    fn default() -> Self {
        GraphRules {
            name: "supervisor".into(),
            planning: PlanSource::Planner,
            strategy: UpfrontStrategy::Sequential,
            upfront: false,
            selection: Selection::All,
            authority: Granted::default(),
            max_concurrency: Some(3),
            sequential: false,
            honour: true,
            requires: Requires::Completed,
            on_failure: DependencyPolicy::Wait,
            on_cancelled: DependencyPolicy::Cancel,
            on_condition: OnUnmet::default(),
            on_idle: None,
            cancel_running: false,
            dependency_timeout_ms: None,
            review: ReviewScope::None,
            criteria: Vec::new(),
            reflection: None,
            max_attempts: 3,
            review_tries: 3,
            rejected_as: RejectStatus::default(),
            review_sees_accepted: false,
            accept_below_score_bp: None,
            append_feedback: false,
            errors_are_attempts: false,
            max_steps: None,
            max_iterations: 3,
            no_progress: 3,
            tries: 1,
            retry_backoff_ms: 0,
            on_exhausted: OnTriesExhausted::Failed,
            threshold_bp: None,
            count_recruits: false,
            errored_is_terminal: false,
            synthesis: ResultSource::Synthesizer,
            output_schema: None,
            bypass_single: false,
            dedupe: false,
            own_result_chars: 100,
            synthesis_tries: 3,
            synthesizes_nothing: true,
            on_empty: OnEmpty::Complete,
            degrade: None,
            agent_tries: std::collections::BTreeMap::new(),
            compensate: true,
            capabilities: Vec::new(),
            workers: Vec::new(),
            built_in: Vec::new(),
            reserved: Vec::new(),
            answers_anybody: false,
            escalates_unmatched: false,
            given_role: None,
            policies: PlanPolicies::default(),
            standing: Vec::new(),
            evaluator: false,
            max_tasks: 20_000,
            status_words: std::collections::BTreeMap::new(),
        }
    }
}

impl GraphRules {
    /// How many of so many tasks may not fail: `floor(n * share) + 1` of them end the run (SHN-31, SHN-33).
    pub fn max_failures(&self, total: u32) -> Option<u32> {
        let share = u64::from(self.threshold_bp?);
        Some(u32::try_from(u64::from(total) * share / 10_000).unwrap_or(u32::MAX).saturating_add(1))
    }
    /// What becomes of a task whose dependency was cancelled: what its edge says, or else the run.
    pub(super) fn after_cancel(&self, edge: &Edge) -> DependencyPolicy {
        edge.on_failure.unwrap_or(self.on_cancelled)
    }
    /// A board: what depends on a task that has failed is skipped when the board is drained (FSS-31).
    pub fn skips_at_rest(&self) -> bool {
        self.review == ReviewScope::Task && self.errored_is_terminal
    }
    /// How many may run at once.
    pub fn slots(&self) -> usize {
        match (self.sequential || self.selection == Selection::One, self.max_concurrency) {
            (true, _) => 1,
            (false, Some(limit)) => limit.max(1) as usize,
            (false, None) => usize::MAX,
        }
    }
}
