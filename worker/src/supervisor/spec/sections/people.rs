//! Where people come in: approval, escalation and trust.
//!
//! Invariant: what is critical is never approved by a timeout (SHH-09). It asks nobody.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use crate::supervisor::model::Risk;
use crate::supervisor::spec::{Money, Ratio, Span};

/// `hitl:`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Hitl {
    /// With `false`, only what the plan itself marks is asked about.
    pub enabled: bool,
    /// How much people are asked.
    pub mode: HitlMode,
    /// What makes the run ask.
    pub triggers: Triggers,
    /// Actions that contain one of these, in lower case, need an approval (SHH-13).
    pub plan_keywords: Vec<String>,
    /// Which plans need an approval because of what they contain.
    pub plan_policy: PlanPolicy,
    /// How long an approval waits, and what silence means.
    pub approval: Approval,
    /// How long people have for what is no approval of the run: whether a tool is called that a policy holds back, what they
    /// say of an output (`review.human`), who speaks next (`speaker.method: manual`). Null is as long as it takes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub questions: Option<QuestionTime>,
    /// Which reason is named when several apply.
    pub order: TriggerOrder,
    /// Where a sensitive action is caught (SHH-18).
    pub gates: Vec<Gate>,
    /// What `human_on_the_loop` asks for all the same (SHH-20).
    pub exceptions: Vec<HitlException>,
    /// Triggers that are recorded and hold nothing up (SHH-15).
    pub notify_only: Vec<Trigger>,
}

impl Default for Hitl {
    fn default() -> Self {
        Hitl {
            enabled: true,
            mode: HitlMode::HumanInTheLoop,
            triggers: Triggers::default(),
            plan_keywords: ["publish", "send", "delete", "pay", "share"].map(str::to_owned).to_vec(),
            plan_policy: PlanPolicy::default(),
            approval: Approval::default(),
            questions: None,
            order: TriggerOrder::Table,
            gates: vec![Gate::Before, Gate::After],
            exceptions: vec![HitlException::RiskCritical, HitlException::ConsecutiveFailures],
            notify_only: Vec::new(),
        }
    }
}

/// How much people are asked (SHH-05).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HitlMode {
    /// People are asked before every task, and before what its result proposes; without a plan before every turn of a chat,
    /// every delegation, hand-off and call of a tool.
    HumanInCommand,
    /// People are asked when a trigger applies.
    HumanInTheLoop,
    /// People are told, and asked only about `exceptions`.
    HumanOnTheLoop,
}

/// `hitl.triggers:`; null is that a trigger is off (SHH-01).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Triggers {
    /// The agent is less sure of its result than this.
    pub confidence: Option<Ratio>,
    /// The action costs more than this.
    pub action_cost: Option<Money>,
    /// The action is one of these, word for word. Without a plan the action is the name of the tool that is called.
    pub sensitive: Vec<String>,
    /// So many tasks in a row have failed; without a plan turns, or delegations and hand-offs.
    pub consecutive_failures: Option<u32>,
    /// A decision of the supervisor takes longer than this.
    pub decision_timeout: Option<Span>,
    /// No agent or tool matches the task (SHH-17).
    pub out_of_scope: bool,
}

impl Default for Triggers {
    fn default() -> Self {
        Triggers {
            confidence: Some(Ratio::from_bp(6_000)),
            action_cost: Some(Money::from_micros(1_000_000)),
            sensitive: ["delete", "publish", "pay", "send_email"].map(str::to_owned).to_vec(),
            consecutive_failures: Some(3),
            decision_timeout: Some(Span::from_mins(5)),
            out_of_scope: true,
        }
    }
}

/// The triggers by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Trigger {
    /// The action is one of `sensitive`, word for word.
    Sensitive,
    /// The action costs too much.
    ActionCost,
    /// The agent is not sure.
    Confidence,
    /// Too many tasks in a row have failed.
    ConsecutiveFailures,
    /// A decision takes too long.
    DecisionTimeout,
    /// Nobody can do the task.
    OutOfScope,
    /// A reviewer's verdict `escalate` (FSS-25).
    Review,
}

/// Approval of a whole plan by what it is like (SHH-14).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PlanPolicy {
    /// A plan at least this complex needs an approval; null is none does.
    pub complexity: Option<Ratio>,
    /// A plan that suggests one of these tools needs an approval.
    pub dangerous_tools: Vec<String>,
}

impl Default for PlanPolicy {
    fn default() -> Self {
        PlanPolicy { complexity: Some(Ratio::from_bp(8_000)), dangerous_tools: Vec::new() }
    }
}

/// `hitl.approval:` (SHH-07, SHH-09).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Approval {
    /// How long a person has to answer. A tool that is called by an agent which a model plays waits for its approval however
    /// long it takes, and one that a policy holds back as long as `hitl.questions` says.
    pub timeout: Span,
    /// What silence means.
    pub on_timeout: OnApprovalTimeout,
    /// What is critical is rejected, whatever `on_timeout` says.
    pub critical: OnCriticalTimeout,
}

impl Default for Approval {
    fn default() -> Self {
        Approval {
            timeout: Span::from_mins(30),
            on_timeout: OnApprovalTimeout::Reject,
            critical: OnCriticalTimeout::Reject,
        }
    }
}

/// `hitl.questions:`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct QuestionTime {
    /// How long a person has to answer.
    pub timeout: Span,
    /// What silence means: the tool is not called, the task has failed; or the tool is called, the output is accepted. Who
    /// speaks next is left to the order of the list either way.
    #[serde(default = "rejected")]
    pub on_timeout: OnApprovalTimeout,
}

fn rejected() -> OnApprovalTimeout {
    OnApprovalTimeout::Reject
}

/// What it means when nobody answers in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnApprovalTimeout {
    /// The action is rejected.
    Reject,
    /// The action is approved.
    Approve,
}

/// What it means when nobody answers in time about a critical action.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnCriticalTimeout {
    /// The action is rejected.
    Reject,
}

/// Which of several triggers is the reason that is named (SHH-03).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TriggerOrder {
    /// Sensitive, cost, confidence, failures, out of scope.
    Table,
    /// Confidence first, as the book's code has it.
    BookCode,
}

/// Where a sensitive action is caught.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Gate {
    /// Before a task whose declared action is sensitive.
    Before,
    /// After a task whose result proposes a sensitive action.
    After,
}

/// What people are asked about although they are only told of the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HitlException {
    /// The risk of the task is critical.
    RiskCritical,
    /// Too many tasks in a row have failed.
    ConsecutiveFailures,
    /// The action is one of `sensitive`, word for word.
    Sensitive,
    /// The action costs too much.
    ActionCost,
    /// The agent is not sure.
    Confidence,
    /// Nobody can do the task.
    OutOfScope,
}

/// `trust:`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Trust {
    /// The level of trust moves `hitl.mode` (SHT-01); otherwise the mode stays what it is.
    pub enabled: bool,
    /// Where a run begins; null is the level of `hitl.mode`.
    pub level: Option<TrustLevel>,
    /// In a file also `default`.
    pub rules: TrustRules,
}

impl Default for Trust {
    fn default() -> Self {
        Trust { enabled: true, level: None, rules: TrustRules::default() }
    }
}

/// How much a run may do without asking.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TrustLevel {
    /// It asks before every task.
    Novice,
    /// It asks when a trigger applies.
    Proficient,
    /// It tells people, and asks only about exceptions.
    Expert,
}

/// What the next level takes (SHT-02).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TrustRules {
    /// What a novice needs to become proficient.
    pub to_proficient: TrustRule,
    /// What somebody proficient needs to become an expert.
    pub to_expert: TrustRule,
}

impl Default for TrustRules {
    fn default() -> Self {
        let rule = |tasks, bp, days| TrustRule { tasks, success: Ratio::from_bp(bp), days, incident_days: days };
        TrustRules { to_proficient: rule(50, 9_000, 7), to_expert: rule(200, 9_800, 30) }
    }
}

/// All of it must hold.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TrustRule {
    /// Tasks that have ended.
    pub tasks: u64,
    /// The part of them that succeeded.
    pub success: Ratio,
    /// Days of running.
    pub days: u64,
    /// Days since the last incident.
    pub incident_days: u64,
}
