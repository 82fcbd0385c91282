//! Review of results, the bounds of the loop, and what a failure means.
//!
//! Invariant: every loop is bounded; thresholds are integers. It judges nothing.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::supervisor::spec::{Ratio, Span};

/// `review:`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Review {
    /// What is reviewed, and by whom.
    pub scope: ReviewScope,
    /// Whether nothing is a success that nobody has graded: then a spec without reviews is refused. Null is as the preset has
    /// it: `evaluator-optimizer` is nothing without a grader.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub required: Option<bool>,
    /// Numbered and verbatim in the reviewer's prompt (FSS-19).
    pub criteria: Vec<String>,
    /// Reviews of one task before it has failed: each review by the reviewer counts, and each time that a person who is
    /// asked about a result sends it back (PDT-21, PDT-23, SHH-19). The reviewer of an iteration is bounded by
    /// `loop.max_iterations` instead.
    pub max_attempts: u32,
    /// The name a rejected task has outside: on the board, for the supervisor, and in `native_view` (supervisors.md §4.1
    /// no. 1). Its status in reports is `needs_revision`.
    pub reject_status: RejectStatus,
    /// The reviewer of an iteration sees the results that were accepted before too (FSS-43).
    pub include_accepted: bool,
    /// A verdict `accepted` with a lower score is no acceptance; null is no such rule (supervisors.md §4.2 no. 27).
    pub accept_below_score: Option<Ratio>,
    /// An accepted result goes to a person as well (SHH-19).
    pub human: bool,
    /// A run may return while a task waits for its human reviewer (FSS-36).
    pub park_exit: bool,
    /// An agent looks at its own result again; null is never (SHD-05).
    pub reflection: Option<Reflection>,
    /// How often one review is asked for: a reviewer that fails, or whose answer does not have the shape it must have, is
    /// asked again, told why (FSS-08). After the last time the task has failed without a verdict: `reviewer_error`.
    pub tries: u32,
    /// Retries of a task whose result its guardrail refused (CRW-10).
    pub guardrail_retries: u32,
}

impl Default for Review {
    fn default() -> Self {
        Review {
            scope: ReviewScope::Task,
            required: None,
            criteria: Vec::new(),
            max_attempts: 3,
            reject_status: RejectStatus::Rerun,
            include_accepted: false,
            accept_below_score: None,
            human: false,
            park_exit: false,
            reflection: None,
            tries: 3,
            guardrail_retries: 3,
        }
    }
}

/// What is reviewed, and by whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReviewScope {
    /// Nothing.
    None,
    /// Each result as it comes.
    Task,
    /// All results of an iteration at once.
    Iteration,
    /// Each result as it comes, by the rules in the task's own `parameters.review`, as in plan files: nobody is asked. A task
    /// without rules is done when it has a result.
    Rules,
}

/// The name of a rejected task outside of reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RejectStatus {
    /// `rerun`.
    #[default]
    Rerun,
    /// `ready`.
    Ready,
    /// `needs_revision`.
    NeedsRevision,
    /// `pending`.
    Pending,
}

impl RejectStatus {
    /// The word in a spec.
    pub fn as_str(self) -> &'static str {
        match self {
            RejectStatus::Rerun => "rerun",
            RejectStatus::Ready => "ready",
            RejectStatus::NeedsRevision => "needs_revision",
            RejectStatus::Pending => "pending",
        }
    }
}

/// `review.reflection:`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Reflection {
    /// How often it does its work again.
    pub retries: u32,
    /// It does so only when it is less sure of the result than this.
    pub confidence: Ratio,
}

impl Default for Reflection {
    fn default() -> Self {
        Reflection { retries: 2, confidence: Ratio::from_bp(8_000) }
    }
}

/// `loop:`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Loop {
    /// Cycles of the supervisor (PDT-03); its end is no error.
    pub max_steps: u32,
    /// Rounds of plan, work and review in total; 1 is no replanning (supervisors.md §4.2 no. 14).
    pub max_iterations: u32,
    /// Rounds of a conversation, in the unit of `count`; null where nobody converses.
    pub max_rounds: Option<u32>,
    /// What counts as a round.
    pub count: RoundCount,
    /// Cycles without a task that ran before the run stops (PDT-06).
    pub no_progress: u32,
    /// What a run of tasks does when some are left of which none may run: `complete` ends it, `wait` leaves it open until
    /// somebody changes the plan. Null is that the machine decides (FSS-36).
    pub on_idle: Option<OnIdle>,
    /// Where a run that is asked to pause stops; null is as the preset has it: Shannon's single task stops around its one
    /// execution (SHN-73), everything else between its phases (SHN-64).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoints: Option<Checkpoints>,
}

/// Where a run that is asked to pause stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Checkpoints {
    /// Between planning, execution, review and synthesis.
    Phases,
    /// Before an execution, after it, and before the end.
    Execution,
}

impl Default for Loop {
    fn default() -> Self {
        Loop {
            max_steps: 20,
            max_iterations: 3,
            max_rounds: None,
            count: RoundCount::Turns,
            no_progress: 3,
            on_idle: None,
            checkpoints: None,
        }
    }
}

/// What a round is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RoundCount {
    /// Turns of speakers.
    Turns,
    /// Messages, the opening one included (AGC-02).
    MessagesWithOpening,
    /// Messages that were added, those of tools included (SWM-05).
    Messages,
}

/// What a run does when tasks are left of which none may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnIdle {
    /// It stays open until somebody changes the plan.
    Wait,
    /// It ends.
    Complete,
}

/// `failure:`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Failure {
    /// Executions of one task in total (SHN-30).
    pub tries: u32,
    /// What a worker's failure does to its task and the run.
    pub on_subtask_error: OnSubtaskError,
    /// The part of the planned tasks that may fail, in basis points: research 5000, data analysis 2000, critical 0
    /// (SHN-33). Null is that failures never end a run.
    pub threshold_bp: Option<u32>,
    /// Failures of recruits count as well (supervisors.md §4.2 no. 21).
    pub count_recruits: bool,
    /// A task that erred has failed at once (supervisors.md §4.1 no. 4): it is tried again only by a policy of its worker's
    /// own (`agents[].tries`), or where `on_subtask_error: retry` grants it tries.
    pub errored_is_terminal: bool,
    /// How long a task waits before its next try.
    pub backoff: Span,
    /// A call that was cut off by a crash of its worker counts as a try of its task; otherwise it is made again.
    pub count_crash_as_attempt: bool,
    /// Whether an error uses up one of the attempts that `review.max_attempts` gives (PDT-26), and what was wrong with a result
    /// is written into the objective of the next attempt (PDT-24). Null is that it is so where a supervisor selects the tasks
    /// and in plan files, and nowhere else.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub errors_are_attempts: Option<bool>,
}

impl Default for Failure {
    fn default() -> Self {
        Failure {
            tries: 3,
            on_subtask_error: OnSubtaskError::Skip,
            threshold_bp: Some(5_000),
            count_recruits: false,
            errored_is_terminal: false,
            backoff: Span::ZERO,
            count_crash_as_attempt: false,
            errors_are_attempts: None,
        }
    }
}

/// What a worker's failure does to its task and the run (FSS-16, FSS-17, FSS-18).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnSubtaskError {
    /// The task is skipped at once, whatever tries are left.
    Skip,
    /// The run ends at once, whatever tries are left.
    Fail,
    /// The tries of the task are used up first; then as `skip`.
    Retry,
    /// The tries are used up first; then the task has failed and counts for the threshold (SHN-30).
    FailTask,
    /// The task waits for a repair by its supervisor (PDT-16, PDT-26).
    Repair,
}
