//! Why a wish is refused, a run does not begin, and a call is not carried out: one variant for each reason, with its text.
//!
//! Invariant: what a program tells apart has a word of its own ([`Refused::kind`]); everything else is `Refused`, with a
//! sentence that names what is wrong. Nothing here decides.

use bosun_engine::{Failure, InvalidId};

use super::signals::refusal;
use crate::supervisor::agents::AgentsRefused;
use crate::supervisor::chat::ChatError;
use crate::supervisor::core::loans::LoanRefusal;
use crate::supervisor::core::plan_control::NoPlan;
use crate::supervisor::core::strategy::StrategyRefusal;
use crate::supervisor::fields::FieldError;
use crate::supervisor::graph::AgentForbidden;
use crate::supervisor::model::{PlanChangeError, TaskId};
use crate::supervisor::outbox::{CallFailure, CallFailureKind};
use crate::supervisor::people::approval::Ignored;
use crate::supervisor::people::interrupts::ResumeRefusal;
use crate::supervisor::people::plan_review::ReviewRefusal;
use crate::supervisor::plan_task::NotDispatched;
use crate::supervisor::reading::Unreadable;
use crate::supervisor::spec::InvalidSpec;

/// Why an answer or another wish of people is refused: a word that programs can tell apart, and a sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub(super) struct Refused {
    pub(super) kind: &'static str,
    pub(super) why: String,
}

/// A wish that no part of the run has a word for.
#[derive(Debug, thiserror::Error)]
pub(super) enum WishRefusal {
    #[error("`task_id` names the task to cancel: {0}")]
    NoTaskNamed(serde_json::Error),
    #[error("No task with id {0}.")]
    UnknownTask(TaskId),
    #[error("no plan is up for review")]
    NoReview,
    #[error("nothing is said of a plan by `{0}`")]
    NotOfPlan(String),
    #[error("tasks are completed by hand after a takeover: send human_takeover_v1 first")]
    NotTakenOver,
    #[error("no agent is registered under the id `{0}`")]
    NoAgent(String),
    #[error("`id` stands alone: only that agent goes")]
    IdAlone,
    #[error("`interrupt: true` stands alone: whoever interrupts speaks in their next message")]
    InterruptAlone,
    #[error("expected a text, or a mapping with `message` or `interrupt: true`")]
    NoWords,
    #[error(
        "nobody listens now: agents are at work that are told nothing before they have ended, or the budget pays for no other \
         answer; a group chat is interrupted with `interrupt: true`"
    )]
    NobodyListens,
    #[error("its budget is a part of its parent's: give that one more")]
    SharedBudget,
    #[error("a run is given tokens, money and calls, and leave for calls of unknown price")]
    NotGiven,
    #[error("the run has no such budget")]
    NoSuchBudget,
    #[error("it has asked nobody for more of a budget")]
    NotAsked,
    #[error("{0} is no approval of a supervisor: it has no deadline, and nobody is told of it again")]
    NoDeadline(String),
    #[error(
        "this run asks nobody, which was said when it began: start one with `hitl.enabled`, `hitl.mode` or `trust.level`"
    )]
    AsksNobody,
    #[error(
        "`hitl.enabled` is false here, so that no mode asks anybody: switch it on first, with the update set_policy and \
         `enabled: true`, or start a run with `hitl.enabled`, `hitl.mode` or `trust.level`"
    )]
    AsksInNoMode,
    #[error("{0} is no run below this one")]
    NotBelow(String),
    #[error(transparent)]
    Misfit(#[from] serde_json::Error),
}

/// Arguments that a query or an update does not take.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum ArgumentFault {
    #[error("{what} {takes}; it was given {given}")]
    Given { what: String, takes: String, given: String },
    #[error("{what} has no argument `{unknown}`{}; it {takes}", near.map_or_else(String::new, |near| format!(" (did you mean `{near}`?)")))]
    Unknown { what: String, unknown: String, near: Option<&'static str>, takes: String },
    #[error("{what} needs the argument `{missing}`")]
    Missing { what: String, missing: &'static str },
}

/// Why a run does not begin.
#[derive(Debug, thiserror::Error)]
pub(super) enum StartRefusal {
    #[error(transparent)]
    Policies(#[from] Unreadable),
    #[error(transparent)]
    SeedPlan(#[from] FieldError),
    #[error("seed_plan: {0}")]
    Forbidden(#[from] AgentForbidden),
    #[error(transparent)]
    Tasks(#[from] PlanChangeError),
    #[error(transparent)]
    Chat(#[from] ChatError),
    #[error(transparent)]
    Agents(#[from] AgentsRefused),
}

/// Why an input names no spec.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoSpec {
    #[error("the input has no spec")]
    Absent,
    #[error(transparent)]
    Invalid(#[from] InvalidSpec),
}

/// Why a call is not carried out: whoever asked hears it as the answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum CarryRefusal {
    #[error(transparent)]
    Name(#[from] InvalidId),
    #[error("the nested supervisor has no spec")]
    NoNestedSpec,
    #[error("parameters.type: the activity to run is missing")]
    NoActivity,
    #[error("no model is named for {0}: give `via.model.name` or `model`")]
    NoModel(String),
    #[error("via.model.{key}: {why}")]
    ViaModel { key: &'static str, why: String },
    /// A step has the tools of the run alone.
    #[error(
        "{0} has tools of the run (hand-offs, delegates, coworkers or `tools`), which are asked for in single steps: \
         give `via.model.tools` and `via.model.limits` to an agent without them"
    )]
    ToolsOfTwoKinds(String),
    #[error("via.model.limits.share: a run lends it; write a `budget:` for the run")]
    ShareOfAgent,
    /// In the words of the agent's own check.
    #[error("{0}")]
    Agent(String),
    #[error(transparent)]
    Spec(#[from] InvalidSpec),
    /// A task of a plan file.
    #[error(transparent)]
    Task(#[from] NotDispatched),
    /// What is started is no JSON, in the words of serde.
    #[error("{0}")]
    Misfit(String),
}

impl CarryRefusal {
    /// What whoever asked is told. A task of a plan file has no value tomorrow that it does not have today.
    pub(super) fn failure(&self) -> CallFailure {
        let kind =
            if matches!(self, CarryRefusal::Task(_)) { CallFailureKind::Hopeless } else { CallFailureKind::Error };
        CallFailure { kind, message: self.to_string() }
    }
}

impl From<serde_json::Error> for CarryRefusal {
    fn from(why: serde_json::Error) -> Self {
        CarryRefusal::Misfit(why.to_string())
    }
}

/// What was given that is no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum AnswerUnusable {
    #[error("exit code {code}: {said}")]
    Program { code: i64, said: String },
    /// What is left of it may read like something else.
    #[error("the program printed {bytes} bytes; an answer has at most {most}")]
    TooLong { bytes: u64, most: usize },
    #[error("what the capability `model` gave cannot be read: {0}")]
    Model(#[from] serde_json::Error),
    #[error("the model refused{}{said}", if .said.is_empty() { "" } else { ": " })]
    Refused { said: String },
    #[error("the model's answer was cut at its limit of tokens (`max_tokens`)")]
    Cut,
}

/// Refusals that no program has to tell apart.
macro_rules! in_a_sentence {
    ($($why:ty),*) => {
        $(impl From<$why> for Refused {
            fn from(why: $why) -> Self {
                Refused { kind: "Refused", why: why.to_string() }
            }
        })*
    };
}

in_a_sentence!(WishRefusal, ArgumentFault, Unreadable, NoPlan, StrategyRefusal, LoanRefusal);

impl From<Ignored> for Refused {
    fn from(why: Ignored) -> Self {
        let kind = match &why {
            Ignored::Unknown => "AnswerUnknown",
            Ignored::Duplicate => "AnswerDuplicate",
            Ignored::Late => "AnswerLate",
            Ignored::Voided { .. } => "AnswerVoid",
            Ignored::Stale => "AnswerStale",
            Ignored::Invalid(_) => "AnswerInvalid",
        };
        Refused { kind, why: why.to_string() }
    }
}

impl From<ResumeRefusal> for Refused {
    fn from(why: ResumeRefusal) -> Self {
        let kind = match &why {
            ResumeRefusal::IdNeeded => "AnswerAmbiguous",
            ResumeRefusal::NonePending | ResumeRefusal::Unknown { .. } => "AnswerUnknown",
            ResumeRefusal::Answered { .. } => "AnswerDuplicate",
            ResumeRefusal::Late { .. } => "AnswerLate",
            ResumeRefusal::Void { .. } => "AnswerVoid",
            ResumeRefusal::Stale { .. } => "AnswerStale",
            ResumeRefusal::Invalid(_) => "AnswerInvalid",
        };
        Refused { kind, why: why.to_string() }
    }
}

impl From<ReviewRefusal> for Refused {
    fn from(why: ReviewRefusal) -> Self {
        let kind = match &why {
            ReviewRefusal::StaleFeedback | ReviewRefusal::StaleApproval => "AnswerStale",
            ReviewRefusal::AlreadyApproved => "AnswerDuplicate",
            ReviewRefusal::Closed { status } if status == "timed out" => "AnswerLate",
            ReviewRefusal::Closed { .. } => "AnswerDuplicate",
            ReviewRefusal::NoPlan => "AnswerUnknown",
            ReviewRefusal::Invalid(_) => "AnswerInvalid",
            ReviewRefusal::InProgress
            | ReviewRefusal::MaxRounds
            | ReviewRefusal::MessageRequired
            | ReviewRefusal::MessageTooLong => "Refused",
        };
        Refused { kind, why: why.to_string() }
    }
}

impl From<Refused> for Failure {
    fn from(Refused { kind, why }: Refused) -> Self {
        refusal(kind, why)
    }
}
