//! What is asked of a person, what they answer, and what the answer means.
//!
//! Invariant: a request carries the hash of everything that is shown for it; the same proposal has the same hash. These
//! are data: nothing here keeps or changes a request.

use bosun_engine::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::super::below::How;
use crate::supervisor::core::answer::{InvalidAnswer, shown_hash};
pub use crate::supervisor::model::ApprovalId;
use crate::supervisor::model::TaskId;
use crate::supervisor::spec::{OnApprovalTimeout, PlanPolicy, Risk, Span};

/// What is to be approved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ApprovalScope {
    Plan {
        version: u64,
    },
    Task,
    /// What a result proposes to do.
    Action,
    Recruit,
    Takeover,
}

impl ApprovalScope {
    /// Versions of the plan are the same subject at different times.
    pub(super) fn is_about_the_same_as(self, other: ApprovalScope) -> bool {
        std::mem::discriminant(&self) == std::mem::discriminant(&other)
    }
}

/// What a rejection means for the run (SHH-10).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnReject {
    /// It is left out, and the rest goes on.
    #[default]
    Skip,
    /// It was required: the run fails.
    EndRun,
    /// The run ends as the person wanted, without what was asked for.
    Cancel,
}

/// What somebody wants to do and must ask for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Proposal {
    pub scope: ApprovalScope,
    pub task_id: Option<TaskId>,
    pub action: String,
    pub description: String,
    pub risk: Risk,
    pub context: Value,
    /// Why it must be asked for, the first being the primary one.
    pub reasons: Vec<String>,
    pub on_reject: OnReject,
    /// The rules' own where it says nothing.
    pub timeout: Option<Span>,
    pub on_timeout: Option<OnApprovalTimeout>,
}

impl Proposal {
    pub fn new(scope: ApprovalScope, action: impl Into<String>) -> Self {
        Proposal {
            scope,
            task_id: None,
            action: action.into(),
            description: String::new(),
            risk: Risk::Low,
            context: Value::Null,
            reasons: Vec::new(),
            on_reject: OnReject::Skip,
            timeout: None,
            on_timeout: None,
        }
    }
    /// A policy wants a person to see a piece of code before it runs (CUG-39): approval resumes, denial cancels.
    pub fn tool(policy: &str, message: &str, code: &str) -> Self {
        let context = json!({ "policy_name": policy, "message": message, "code": code });
        Proposal {
            description: message.to_owned(),
            context,
            on_reject: OnReject::Cancel,
            ..Proposal::new(ApprovalScope::Action, "tool_approval")
        }
    }

    /// The hash of what a person sees: not of why or until when they are asked. The next try of a task is the same work.
    pub fn hash(&self) -> String {
        let mut context = self.context.clone();
        if let (ApprovalScope::Task | ApprovalScope::Action, Value::Object(context)) = (self.scope, &mut context) {
            context.remove("attempt");
        }
        shown_hash(&json!({
            "scope": self.scope,
            "task_id": self.task_id,
            "action": self.action,
            "description": self.description,
            "risk": self.risk,
            "context": context,
        }))
    }
}

/// A question to a person (SHH-07).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ApprovalRequest {
    pub id: ApprovalId,
    pub scope: ApprovalScope,
    pub task_id: Option<TaskId>,
    pub action: String,
    pub description: String,
    pub risk: Risk,
    pub context: Value,
    pub reasons: Vec<String>,
    pub on_reject: OnReject,
    pub timeout: Span,
    pub on_timeout: OnApprovalTimeout,
    pub requested_at: Timestamp,
    pub deadline: Timestamp,
    /// The hash of what is shown; a response may name it, and then counts for nothing else.
    pub shown: String,
    pub notified: bool,
    /// How often somebody had people told again.
    #[serde(default, skip_serializing_if = "is_never")]
    pub escalated: u32,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde")]
fn is_never(times: &u32) -> bool {
    *times == 0
}

impl ApprovalRequest {
    /// What it is about, in words: also where no action is named.
    pub fn subject(&self) -> String {
        let task = self.task_id.as_ref().map(|task| format!(" of task {task}")).unwrap_or_default();
        match self.scope {
            ApprovalScope::Plan { version } => format!("version {version} of the plan"),
            _ if !self.action.is_empty() => self.action.clone(),
            ApprovalScope::Task => format!("the start{task}"),
            ApprovalScope::Action => format!("the result{task}"),
            ApprovalScope::Recruit => "a recruit".to_owned(),
            ApprovalScope::Takeover => "a takeover".to_owned(),
        }
    }

    pub(super) fn proposal(&self) -> Proposal {
        Proposal {
            scope: self.scope,
            task_id: self.task_id.clone(),
            action: self.action.clone(),
            description: self.description.clone(),
            risk: self.risk,
            context: self.context.clone(),
            reasons: self.reasons.clone(),
            on_reject: self.on_reject,
            timeout: Some(self.timeout),
            on_timeout: Some(self.on_timeout),
        }
    }
}

/// A person's answer (SHH-08, SHH-12). `timestamp` is taken as said: what counts is the time of the log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ApprovalResponse {
    #[schemars(with = "String")]
    pub approval_id: ApprovalId,
    pub approved: bool,
    pub approver: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<Value>,
    /// What shall be done instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modified_action: Option<String>,
    /// What shall be better at the next attempt: together with a rejection, "Modify and Retry".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub feedback: Option<String>,
    /// The hash of what the person saw.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shown: Option<String>,
}

impl ApprovalResponse {
    /// The same without words that say nothing: a client that fills in every field asks for no other action, and for no
    /// second try (SHH-12).
    pub(super) fn said(mut self) -> Self {
        for words in [&mut self.comment, &mut self.modified_action, &mut self.feedback] {
            words.take_if(|words| words.trim().is_empty());
        }
        self
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalSource {
    Human,
    Timeout,
}

/// What was decided, by whom or what, and when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalDecision {
    pub id: ApprovalId,
    pub approved: bool,
    /// Nobody, if the deadline decided; the rule's name, if a rule did.
    pub approver: String,
    pub comment: Option<String>,
    pub modified_action: Option<String>,
    pub feedback: Option<String>,
    pub at: Timestamp,
    pub source: ApprovalSource,
}

/// A request that has just been decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Closed {
    pub id: ApprovalId,
    pub scope: ApprovalScope,
    pub task_id: Option<TaskId>,
    pub consequence: Consequence,
    /// Who or what decided.
    pub source: ApprovalSource,
}

/// What a decision means for what was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Consequence {
    /// It may be done: the action, as the person wants it, and what they want whoever does it to know.
    Proceed { action: String, feedback: Option<String> },
    /// It is done again with the feedback, and asked for again (Modify and Retry): with the action that the person wants
    /// instead, if they named one.
    Retry { action: Option<String>, feedback: String },
    /// It is not done, and the rest goes on.
    Skip { reason: String },
    /// It was required: the run ends with this error.
    EndRun { error: String },
    /// The run ends with this answer: nothing more is done.
    Cancel { answer: String },
}

impl Closed {
    pub(super) fn of(request: &ApprovalRequest, decision: &ApprovalDecision) -> Self {
        let consequence = consequence(request, decision);
        Closed {
            id: request.id.clone(),
            scope: request.scope,
            task_id: request.task_id.clone(),
            consequence,
            source: decision.source,
        }
    }
}

fn consequence(request: &ApprovalRequest, decision: &ApprovalDecision) -> Consequence {
    let action = decision.modified_action.clone().unwrap_or_else(|| request.action.clone());
    if decision.approved {
        return Consequence::Proceed { action, feedback: decision.feedback.clone() };
    }
    if decision.modified_action.is_some() || decision.feedback.is_some() {
        let feedback = decision.feedback.clone().or_else(|| decision.comment.clone()).unwrap_or_default();
        return Consequence::Retry { action: decision.modified_action.clone(), feedback };
    }
    // The seed names why it was asked for; where nothing was named, what the person said must do.
    let by = || format!("rejected by {}", decision.approver);
    let reason = request.reasons.first().or(decision.comment.as_ref()).cloned().unwrap_or_else(by);
    if let ApprovalScope::Plan { .. } = request.scope {
        let why = decision.comment.clone().unwrap_or_else(by);
        return Consequence::EndRun { error: PlanPolicy::denied(&why) };
    }
    match request.on_reject {
        OnReject::EndRun => {
            // A person's own words are told too, and that nobody said anything.
            let said = decision.comment.as_ref().filter(|said| **said != reason).map(|said| match decision.source {
                ApprovalSource::Human => format!(" ({}: {said})", decision.approver),
                ApprovalSource::Timeout => format!(" ({said})"),
            });
            let said = said.unwrap_or_default();
            Consequence::EndRun { error: format!("Required task rejected: {reason}{said}") }
        }
        OnReject::Skip => {
            // Who said no is told, whatever else they said.
            let why = decision.comment.as_ref().or_else(|| request.reasons.first());
            let reason = match (decision.source, why) {
                (ApprovalSource::Human, Some(why)) => format!("{}: {why}", by()),
                (ApprovalSource::Human, None) => by(),
                (ApprovalSource::Timeout, _) => decision.comment.clone().unwrap_or(reason),
            };
            Consequence::Skip { reason }
        }
        OnReject::Cancel => {
            let why = decision.comment.clone().unwrap_or_else(by);
            Consequence::Cancel { answer: format!("Execution cancelled: {why}") }
        }
    }
}

/// Why a response counts for nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Ignored {
    #[error("no approval of that id is known")]
    Unknown,
    #[error("the approval is decided already")]
    Duplicate,
    #[error("the deadline of the approval has passed")]
    Late,
    #[error("the approval is void: {reason}")]
    Voided { reason: String },
    #[error("the response is for another version of what was shown; look at the latest")]
    Stale,
    #[error("{0}")]
    Invalid(InvalidAnswer),
}

impl Ignored {
    /// What has become of an approval that does not wait any more.
    pub fn over(how: How) -> Self {
        match how {
            How::Answered => Ignored::Duplicate,
            How::Late => Ignored::Late,
            How::Void { reason } => Ignored::Voided { reason },
        }
    }

    pub fn name(&self) -> &'static str {
        match self {
            Ignored::Unknown => "unknown",
            Ignored::Duplicate => "duplicate",
            Ignored::Late => "late",
            Ignored::Voided { .. } => "voided",
            Ignored::Stale => "stale",
            Ignored::Invalid(_) => "invalid",
        }
    }
}
