//! One task of a plan: what is to be done, on what it waits, and all that has happened to it (supervisors.md §5.5).
//!
//! Invariant: the status changes through [`Task::change`] only, so by the table of `supervisor/task.rs`; attempts and
//! feedback are only ever added to. It schedules nothing.

use std::collections::BTreeSet;

use bosun_engine::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::condition::Condition;
use super::id::TaskId;
use super::metadata::TaskMetadata;
use crate::supervisor::task::{Actor, IllegalTransition, TaskStatus};

/// The status of a dependency that is good enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Requires {
    #[default]
    Completed,
    CompletedOrSkipped,
    /// Any end.
    Terminal,
}

/// What becomes of a task whose dependency will not be satisfied (§4.1 no. 8).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DependencyPolicy {
    /// It waits for a repair of the plan.
    #[default]
    Wait,
    /// It is skipped.
    Skip,
    /// It is cancelled.
    Cancel,
    /// It runs all the same, without the result (SHD-03).
    Run,
    /// It is blocked, and shown as that, until somebody changes the plan.
    Block,
    /// It has failed.
    Fail,
}

/// One thing a task waits for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Edge {
    pub on: TaskId,
    #[serde(default)]
    pub requires: Requires,
    /// Beyond its end, what its result must say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<Condition>,
    /// Overrides the run's policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_failure: Option<DependencyPolicy>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Priority {
    High,
    Medium,
    Low,
    #[default]
    None,
}

// Low before critical: risks are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Risk {
    #[default]
    Low,
    Medium,
    High,
    Critical,
}

/// Why a task was skipped (§5.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SkipReason {
    DependencyFailed,
    ApprovalRejected,
    WorkerError,
    PolicyDenied,
    ConditionNotMet,
    Budget,
    /// It was to be planned again, and there are no iterations left.
    Iterations,
    /// Who is asked after each step has said so.
    NotNeeded,
}

/// Why a task was cancelled (§5.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CancelReason {
    Requested,
    Upstream,
    Superseded,
    ParentClosed,
    Killed,
    RunCancelled,
}

/// What went wrong, for programs (`kind`) and for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskError {
    pub kind: String,
    pub message: String,
}

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttemptOutcome {
    Running,
    Completed,
    Failed,
    /// Its end came after the task had been cancelled or completed by hand.
    Dropped,
}

/// One execution of the task by a worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Attempt {
    pub n: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    pub started_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    pub outcome: AttemptOutcome,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    pub tokens: u64,
    pub cost_micros: u64,
    /// Calls of which nobody knows what they cost.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unpriced_calls: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confidence_bp: Option<u32>,
    pub prompt_hash: String,
}

impl Attempt {
    /// An attempt that begins now.
    pub fn begin(n: u32, agent: Option<String>, now: Timestamp) -> Self {
        Attempt {
            n,
            agent,
            model: None,
            started_at: now,
            ended_at: None,
            outcome: AttemptOutcome::Running,
            error: None,
            tokens: 0,
            cost_micros: 0,
            unpriced_calls: 0,
            confidence_bp: None,
            prompt_hash: String::new(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FeedbackFrom {
    Critic,
    Reviewer,
    Supervisor,
    Human,
}

/// What somebody said about an attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Feedback {
    pub from: FeedbackFrom,
    pub attempt: u32,
    pub text: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score_bp: Option<u32>,
    /// Whether it approved.
    pub passed: bool,
}

impl Feedback {
    /// What a person who approved something wants its worker to know.
    fn is_word(&self) -> bool {
        self.passed && self.from == FeedbackFrom::Human
    }
}

/// What the supervisor told the worker in its last decision (PDT-46, PDT-47): only the newest counts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SupervisorFeedback {
    pub text: String,
    pub cycle: u32,
}

/// A task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Task {
    pub id: TaskId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revises: Option<TaskId>,
    /// The objective of the plan it comes from; it may differ from the run's (PDT-53).
    pub overall_objective: String,
    /// What is to be done.
    pub goal: String,
    /// The time that it is about, as its plan says it (PDT-11).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_scope: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capability: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// What it does in the world, for gates: `publish report`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    pub edges: Vec<Edge>,
    pub produces: Vec<String>,
    pub consumes: Vec<String>,
    pub tools: Vec<String>,
    pub priority: Priority,
    /// Where it stands in the plan: the tie-break of every order.
    pub position: u32,
    pub required: bool,
    pub risk: Risk,
    pub requires_approval: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub est_cost_micros: Option<u64>,
    /// What undoes it when the run is cancelled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compensation: Option<Value>,
    pub params: Map<String, Value>,
    pub metadata: TaskMetadata,
    pub status: TaskStatus,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skipped: Option<SkipReason>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancelled: Option<CancelReason>,
    pub attempts: Vec<Attempt>,
    /// Reviews so far (PDT-21) and errors, as the plan counts them.
    pub attempt_count: u32,
    pub max_attempts: u32,
    /// Executions so far, of whatever end.
    pub tries: u32,
    /// Those of a task of this name that this one replaced (FSS-12): none of them was a try of this one.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub tries_before: u32,
    /// Those before somebody sent it back: what follows is another piece of work, with tries of its own.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub tries_sent_back: u32,
    pub feedback: Vec<Feedback>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub supervisor_feedback: Option<SupervisorFeedback>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<TaskError>,
    pub is_final: bool,
    /// The iteration that planned it; from 1.
    pub iteration: u32,
    pub labels: BTreeSet<String>,
    /// Completed by a person (§5.2).
    pub by_human: bool,
    /// A person has approved that it may run.
    pub approved: bool,
    /// A person has ended it, whether by an act of their own or by a no.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ended_by_person: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl Task {
    /// A pending task of a plan.
    pub fn new(id: TaskId, goal: impl Into<String>) -> Self {
        Task {
            id,
            revises: None,
            overall_objective: String::new(),
            goal: goal.into(),
            time_scope: None,
            capability: None,
            agent: None,
            role: None,
            action: None,
            edges: Vec::new(),
            produces: Vec::new(),
            consumes: Vec::new(),
            tools: Vec::new(),
            priority: Priority::None,
            position: 0,
            required: false,
            risk: Risk::Low,
            requires_approval: false,
            est_cost_micros: None,
            compensation: None,
            params: Map::new(),
            metadata: TaskMetadata::default(),
            status: TaskStatus::Pending,
            skipped: None,
            cancelled: None,
            attempts: Vec::new(),
            attempt_count: 0,
            max_attempts: 3,
            tries: 0,
            tries_before: 0,
            tries_sent_back: 0,
            feedback: Vec::new(),
            supervisor_feedback: None,
            result: None,
            error: None,
            is_final: false,
            iteration: 1,
            labels: BTreeSet::new(),
            by_human: false,
            approved: false,
            ended_by_person: false,
            ended_at: None,
        }
    }

    /// Moves the task on; a move that the table does not allow changes nothing.
    pub fn change(&mut self, to: TaskStatus, by: Actor) -> Result<TaskStatus, IllegalTransition> {
        let from = self.status;
        self.status = from.change(&self.id, to, by)?;
        Ok(from)
    }
    pub fn dependencies(&self) -> Vec<TaskId> {
        self.edges.iter().map(|edge| edge.on.clone()).collect()
    }
    /// What the worker is to do better: the text that the task was sent back with, if the last verdict was a rejection, and
    /// what a person who approved it since wants its worker to know (SHH-12). What a person has said before stands until the
    /// work is done: no agent replaces it.
    pub fn open_feedback(&self) -> Option<String> {
        let (mut told, mut is_judged): (Vec<&str>, bool) = (Vec::new(), false);
        let is_done = self.status == TaskStatus::Completed;
        for said in self.feedback.iter().rev().filter(|said| said.from != FeedbackFrom::Supervisor) {
            let is_word = said.is_word();
            let still_told = !is_judged || (!is_done && said.from == FeedbackFrom::Human && !said.text.is_empty());
            if still_told && (is_word || !said.passed) {
                told.push(&said.text);
            }
            is_judged |= !is_word;
        }
        told.reverse();
        (!told.is_empty()).then(|| told.join("\n"))
    }
    /// The last thing that was said of a result: what a person wants to be known is no verdict.
    pub fn last_verdict(&self) -> Option<&Feedback> {
        self.feedback.iter().rfind(|said| !said.is_word())
    }
    /// With what it was sent back: work that was sent back is another work, which people are asked about anew.
    pub fn sent_back_with(&self) -> Vec<&str> {
        self.feedback.iter().filter(|said| !said.passed).map(|said| said.text.as_str()).collect()
    }
    /// Whether nobody has begun it.
    pub fn is_untried(&self) -> bool {
        self.tries == self.tries_before
    }
    /// Whether its last attempt failed, so that the next one is the same work once more.
    pub fn is_tried_again(&self) -> bool {
        let last = self.attempts.last().filter(|last| last.n > self.tries_before);
        last.is_some_and(|last| last.outcome == AttemptOutcome::Failed)
    }
    /// The action that it is about: as a person has changed it, or as it is planned.
    pub fn action_to_take(&self) -> Option<&str> {
        self.metadata.approved_action.as_deref().or(self.action.as_deref())
    }
    /// How often its worker has failed at what it is asked to do now.
    pub fn failures(&self) -> u32 {
        let before = self.tries_before.max(self.tries_sent_back);
        let failed = |record: &&Attempt| record.outcome == AttemptOutcome::Failed && record.n > before;
        self.attempts.iter().filter(failed).count() as u32
    }
    /// Whether its reviewer has accepted the result that it has now.
    pub fn is_reviewed(&self) -> bool {
        self.tries > 0 && self.metadata.reviewed_try == Some(self.tries)
    }
    pub fn is_in_flight(&self) -> bool {
        matches!(self.status, TaskStatus::Running | TaskStatus::AwaitingInput | TaskStatus::AwaitingReview)
    }
}
