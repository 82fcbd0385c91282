//! The review of a plan: a conversation in which people see the whole plan, say what to change, and approve one version.
//!
//! ```text
//! reviewing --feedback--> regenerating --(new plan)--> reviewing (round + 1, version + 1)
//!     |                        '--(failed)--> reviewing (the message is withdrawn, the version stays)
//!     |--approve(version)--> approved      |--deny--> denied      |--(deadline)--> timed out
//!                               '--(another plan)--> reviewing (round 1 of the next review, version + 1)
//! ```
//!
//! Invariant: a person approves the version that they were shown, and only a plan that is another one is asked about again. A
//! refused answer changes nothing. Each conversation is bounded by its rounds. It makes no plan and starts nothing.

use bosun_engine::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::supervisor::core::answer::{InvalidAnswer, decode, shown_hash};
use crate::supervisor::core::key::PeopleKey;
use crate::supervisor::journal::NoteKind;
use crate::supervisor::outbox::Outbox;
use crate::supervisor::spec::{PlanApproval, Span};

/// The longest message, in bytes, and the longest wait for a review, whatever the spec says (SHH-24, SHH-25).
pub const MESSAGE_MAX: usize = 10 * 1024;
pub const TIMEOUT_MAX: Span = PlanApproval::TIMEOUT_MAX;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReviewStatus {
    Reviewing,
    Regenerating,
    Approved,
    Denied,
    TimedOut,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlanAuthor {
    User,
    Planner,
}

/// One message of the conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanMessage {
    pub role: PlanAuthor,
    pub message: String,
    pub at: Timestamp,
}

/// A version of the plan, with the hash of what is shown.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ShownPlan {
    pub version: u64,
    pub plan: Value,
    pub hash: String,
}

/// Why feedback or an approval is refused. The texts are Shannon's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ReviewRefusal {
    #[error("Conflict: state has been modified")]
    StaleFeedback,
    #[error("Conflict: plan has been updated. Please review the latest version.")]
    StaleApproval,
    #[error("A feedback request is in progress. Please wait and try again.")]
    InProgress,
    #[error("Review already approved")]
    AlreadyApproved,
    #[error("Review already closed: {status}")]
    Closed { status: String },
    #[error("No research plan to approve. Please provide feedback to generate a plan first.")]
    NoPlan,
    #[error("Maximum review rounds reached. Please approve the plan.")]
    MaxRounds,
    #[error("message is required for feedback")]
    MessageRequired,
    #[error("message exceeds maximum length (10KB)")]
    MessageTooLong,
    #[error("{0}")]
    Invalid(InvalidAnswer),
}

/// The update `plan_feedback`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PlanFeedback {
    pub version: u64,
    #[serde(default)]
    pub message: String,
}

/// The update `approve_plan`; `approved: false` denies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PlanVerdict {
    pub version: u64,
    #[serde(default = "yes")]
    pub approved: bool,
    #[serde(default)]
    pub approver: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// The hash of the plan the person saw.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shown: Option<String>,
}

fn yes() -> bool {
    true
}

fn first() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
fn is_first(nth: &u32) -> bool {
    *nth == 1
}

impl PlanFeedback {
    pub fn read(value: &Value) -> Result<Self, ReviewRefusal> {
        decode("plan feedback", value).map_err(ReviewRefusal::Invalid)
    }
}

impl PlanVerdict {
    pub fn read(value: &Value) -> Result<Self, ReviewRefusal> {
        decode("plan approval", value).map_err(ReviewRefusal::Invalid)
    }
}

/// A new plan must be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Regenerate {
    /// The round it is for.
    pub round: u32,
    pub max_rounds: u32,
    /// The last one: the planner must give a plan, not a question.
    pub definitive: bool,
    pub conversation: Vec<PlanMessage>,
}

/// The reviews of a plan, one after the other.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlanReview {
    rules: PlanApproval,
    status: ReviewStatus,
    /// Which review it is; from 1.
    #[serde(default = "first", skip_serializing_if = "is_first")]
    nth: u32,
    round: u32,
    version: u64,
    conversation: Vec<PlanMessage>,
    plan: Option<ShownPlan>,
    deadline: Timestamp,
    /// Who approved or denied, and what they said.
    verdict: Option<PlanVerdict>,
}

impl PlanReview {
    /// Shows the first plan (or the planner's question, if there is none yet): round 1, version 1.
    pub fn open(rules: PlanApproval, message: &str, plan: Option<Value>, out: &mut Outbox) -> Self {
        let mut review = PlanReview {
            deadline: out.now(),
            rules,
            status: ReviewStatus::Reviewing,
            nth: 1,
            round: 0,
            version: 0,
            conversation: Vec::new(),
            plan: None,
            verdict: None,
        };
        review.begin(message, plan, out);
        review
    }

    fn begin(&mut self, message: &str, plan: Option<Value>, out: &mut Outbox) {
        self.wait(out);
        self.show(message, plan, out);
    }

    /// From here on a person is waited for (SHH-25).
    fn wait(&mut self, out: &mut Outbox) {
        self.deadline = out.now().plus(self.rules.timeout.min(TIMEOUT_MAX).duration());
        out.timer(PeopleKey::PlanReviewDeadline(self.nth), self.deadline, "plan review");
    }

    /// The plan has become another one than people approved: it is shown to them as the first one was, under the next
    /// version, and has rounds and a time of its own.
    pub fn again(&mut self, message: &str, plan: Value, out: &mut Outbox) {
        if self.status == ReviewStatus::Approved {
            (self.nth, self.round, self.verdict) = (self.nth + 1, 0, None);
            self.begin(message, Some(plan), out);
        }
    }

    fn show(&mut self, message: &str, plan: Option<Value>, out: &mut Outbox) {
        self.status = ReviewStatus::Reviewing;
        self.round += 1;
        self.version += 1;
        let version = self.version;
        self.conversation.push(PlanMessage { role: PlanAuthor::Planner, message: message.to_owned(), at: out.now() });
        if let Some(plan) = plan {
            let hash = shown_hash(&plan);
            self.plan = Some(ShownPlan { version, plan, hash });
        }
        let hash = self.plan.as_ref().map(|plan| plan.hash.as_str());
        out.note(NoteKind::PlanProposed, json!({ "version": version, "round": self.round, "hash": hash }));
    }

    /// A person wants another plan.
    pub fn feedback(&mut self, feedback: &PlanFeedback, out: &mut Outbox) -> Result<Regenerate, ReviewRefusal> {
        self.accepts_feedback(feedback)?;
        let message = feedback.message.clone();
        out.note(NoteKind::PlanFeedback, json!({ "version": self.version, "round": self.round, "message": message }));
        self.conversation.push(PlanMessage { role: PlanAuthor::User, message, at: out.now() });
        self.status = ReviewStatus::Regenerating;
        // How long the planner needs is no time of the person.
        out.cancel_timer(PeopleKey::PlanReviewDeadline(self.nth));
        let round = self.round + 1;
        Ok(Regenerate {
            round,
            max_rounds: self.rules.max_rounds,
            definitive: round >= self.rules.max_rounds,
            conversation: self.conversation.clone(),
        })
    }

    /// Whether the feedback would be taken. Changes nothing.
    pub fn accepts_feedback(&self, feedback: &PlanFeedback) -> Result<(), ReviewRefusal> {
        self.is_open()?;
        if self.status == ReviewStatus::Approved {
            return Err(ReviewRefusal::AlreadyApproved);
        }
        if feedback.version != self.version {
            return Err(ReviewRefusal::StaleFeedback);
        }
        if feedback.message.trim().is_empty() {
            return Err(ReviewRefusal::MessageRequired);
        }
        if feedback.message.len() > MESSAGE_MAX {
            return Err(ReviewRefusal::MessageTooLong);
        }
        if self.round >= self.rules.max_rounds {
            return Err(ReviewRefusal::MaxRounds);
        }
        Ok(())
    }

    /// The planner has answered the feedback: the next round. An answer that nobody waits for any more is dropped.
    pub fn regenerated(&mut self, message: &str, plan: Option<Value>, out: &mut Outbox) {
        if self.status == ReviewStatus::Regenerating {
            self.begin(message, plan, out);
        }
    }

    /// There is no other plan: the message is withdrawn as if it had never been sent (SHH-26).
    pub fn not_regenerated(&mut self, why: &str, out: &mut Outbox) {
        if self.status == ReviewStatus::Regenerating {
            self.conversation.pop();
            self.status = ReviewStatus::Reviewing;
            self.wait(out);
            let data = json!({ "version": self.version, "withdrawn": true, "why": why });
            out.note(NoteKind::PlanFeedback, data);
        }
    }

    /// A person approves or denies the version they saw. Approving again what is approved changes nothing.
    pub fn decide(&mut self, verdict: PlanVerdict, out: &mut Outbox) -> Result<(), ReviewRefusal> {
        self.accepts_verdict(&verdict)?;
        if self.status == ReviewStatus::Approved {
            return Ok(());
        }
        out.cancel_timer(PeopleKey::PlanReviewDeadline(self.nth));
        let hash = self.plan.as_ref().map(|plan| plan.hash.as_str());
        let data = json!({ "version": self.version, "hash": hash, "by": verdict.approver, "comment": verdict.comment });
        let (status, kind) = if verdict.approved {
            (ReviewStatus::Approved, NoteKind::PlanApproved)
        } else {
            (ReviewStatus::Denied, NoteKind::PlanRejected)
        };
        out.note(kind, data);
        self.status = status;
        self.verdict = Some(verdict);
        Ok(())
    }

    /// Whether the verdict would be taken. Changes nothing.
    pub fn accepts_verdict(&self, verdict: &PlanVerdict) -> Result<(), ReviewRefusal> {
        if self.status == ReviewStatus::Approved && !verdict.approved {
            return Err(ReviewRefusal::AlreadyApproved);
        }
        self.is_open()?;
        if verdict.version != self.version {
            return Err(ReviewRefusal::StaleApproval);
        }
        match &self.plan {
            None if verdict.approved => Err(ReviewRefusal::NoPlan),
            Some(plan) if verdict.shown.as_ref().is_some_and(|shown| *shown != plan.hash) => {
                Err(ReviewRefusal::StaleApproval)
            }
            Some(_) | None => Ok(()),
        }
    }

    fn is_open(&self) -> Result<(), ReviewRefusal> {
        match self.status {
            ReviewStatus::Reviewing | ReviewStatus::Approved => Ok(()),
            ReviewStatus::Regenerating => Err(ReviewRefusal::InProgress),
            ReviewStatus::Denied => Err(ReviewRefusal::Closed { status: "denied".into() }),
            ReviewStatus::TimedOut => Err(ReviewRefusal::Closed { status: "timed out".into() }),
        }
    }

    /// The plan was changed by somebody else while it was reviewed: a new version, so that nobody approves the old one.
    pub fn replaced(&mut self, plan: Value, out: &mut Outbox) {
        if matches!(self.status, ReviewStatus::Reviewing) && self.plan.as_ref().is_none_or(|shown| shown.plan != plan) {
            self.version += 1;
            let hash = shown_hash(&plan);
            out.note(NoteKind::PlanRevised, json!({ "version": self.version, "hash": hash }));
            self.plan = Some(ShownPlan { version: self.version, plan, hash });
        }
    }

    /// The deadline of the review has come: whether it ended by that.
    pub fn fired(&mut self, out: &mut Outbox) -> bool {
        if self.status != ReviewStatus::Reviewing {
            return false;
        }
        self.status = ReviewStatus::TimedOut;
        out.note(NoteKind::PlanRejected, json!({ "version": self.version, "why": TIMED_OUT }));
        true
    }

    pub fn status(&self) -> ReviewStatus {
        self.status
    }
    pub fn version(&self) -> u64 {
        self.version
    }
    pub fn deadline(&self) -> Timestamp {
        self.deadline
    }
    /// The hash of the plan that is shown.
    pub fn hash(&self) -> Option<&str> {
        self.plan.as_ref().map(|plan| plan.hash.as_str())
    }
    pub fn round(&self) -> u32 {
        self.round
    }
    pub fn conversation(&self) -> &[PlanMessage] {
        &self.conversation
    }
    /// The plan that was approved, frozen.
    pub fn approved(&self) -> Option<&ShownPlan> {
        self.plan.as_ref().filter(|_| self.status == ReviewStatus::Approved)
    }

    /// What the run ends with, if the review ended it (SHH-25, CUG-32).
    pub fn ending(&self) -> Option<Ending> {
        match self.status {
            ReviewStatus::TimedOut => Some(Ending::Failed(TIMED_OUT.to_owned())),
            ReviewStatus::Denied => {
                let comment = self.verdict.as_ref().and_then(|verdict| verdict.comment.as_deref());
                let why = comment.map_or_else(String::new, |why| format!(": {why}"));
                Some(Ending::Cancelled(format!("Execution cancelled: the plan was not approved{why}")))
            }
            ReviewStatus::Reviewing | ReviewStatus::Regenerating | ReviewStatus::Approved => None,
        }
    }

    pub fn view(&self) -> Value {
        let waits = self.status == ReviewStatus::Reviewing;
        json!({
            // What the run waits for, in CUGA's word (CUG-30).
            "status": self.status, "action": waits.then_some(APPROVAL_ACTION),
            "round": self.round, "version": self.version, "deadline": waits.then(|| self.deadline.to_string()),
            "current_plan": self.plan.as_ref().map(|plan| &plan.plan),
            "hash": self.plan.as_ref().map(|plan| &plan.hash),
            "rounds": self.conversation, "plan_approved": self.status == ReviewStatus::Approved,
        })
    }
}

const APPROVAL_ACTION: &str = "agent_approval";
const TIMED_OUT: &str = "research plan review timed out";

/// How a review ends a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// With this error.
    Failed(String),
    /// With this as its answer: nothing was delegated.
    Cancelled(String),
}
