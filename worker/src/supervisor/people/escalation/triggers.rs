//! When a person must be asked: pure rules over what is known of an action or a result.
//!
//! Invariant: every trigger that fires is a reason, in the order of the table (sensitive, cost, confidence, consecutive
//! failures, decision timeout, out of scope) unless the seed's code order is asked for; numbers are compared as integers.
//! A value that is missing fires nothing. It remembers nothing.

use serde::{Deserialize, Serialize};

use super::super::amount::{money_text, ratio_text};
use super::super::rules::{HitlMode, Risk};
use crate::supervisor::spec::Span;

/// What fired. The order is the table's: the most urgent first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Trigger {
    Sensitive,
    Cost,
    Confidence,
    ConsecutiveFailures,
    DecisionTimeout,
    OutOfScope,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Priority {
    Highest,
    High,
    Medium,
    Low,
}

impl Trigger {
    pub fn priority(self) -> Priority {
        match self {
            Trigger::Sensitive => Priority::Highest,
            Trigger::Cost => Priority::High,
            // The table has no line for a decision that takes too long: as bad as failures in a row.
            Trigger::Confidence | Trigger::ConsecutiveFailures | Trigger::DecisionTimeout => Priority::Medium,
            Trigger::OutOfScope => Priority::Low,
        }
    }
    /// The place in the seed's code, which looks at the confidence first.
    fn code_place(self) -> u8 {
        match self {
            Trigger::Confidence => 0,
            Trigger::Sensitive => 1,
            Trigger::Cost => 2,
            Trigger::ConsecutiveFailures => 3,
            Trigger::DecisionTimeout => 4,
            Trigger::OutOfScope => 5,
        }
    }
}

/// One reason to ask a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    pub trigger: Trigger,
    pub priority: Priority,
    pub text: String,
}

/// Which of several reasons is the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    #[default]
    Table,
    BookCode,
}

/// What is asked even where nothing is asked (SHH-20).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Exception {
    RiskCritical,
    Sensitive,
    Cost,
    Confidence,
    ConsecutiveFailures,
    DecisionTimeout,
    OutOfScope,
}

/// `hitl.triggers` and what belongs to it, in integers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Triggers {
    pub confidence_bp: u32,
    pub action_cost_micros: i64,
    /// Names of actions, compared as a whole with what a result proposes.
    pub sensitive: Vec<String>,
    pub consecutive_failures: u32,
    pub decision_timeout: Option<Span>,
    /// Words that make a declared action sensitive wherever they occur in it.
    pub plan_keywords: Vec<String>,
    pub order: Order,
    pub exceptions: Vec<Exception>,
    /// Triggers that are recorded and make nobody wait (SHH-15).
    pub notify_only: Vec<Trigger>,
}

impl Default for Triggers {
    fn default() -> Self {
        let texts = |words: &[&str]| words.iter().map(ToString::to_string).collect();
        Triggers {
            confidence_bp: 6_000,
            action_cost_micros: 1_000_000,
            sensitive: texts(&["delete", "publish", "pay", "send_email"]),
            consecutive_failures: 3,
            decision_timeout: Some(Span::from_mins(5)),
            plan_keywords: texts(&["publish", "send", "delete", "pay", "share"]),
            order: Order::Table,
            exceptions: vec![Exception::RiskCritical, Exception::ConsecutiveFailures],
            notify_only: Vec::new(),
        }
    }
}

/// What is known of an action or of a result. What is not known fires nothing.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Observed {
    pub confidence_bp: Option<u32>,
    pub proposed_action: Option<String>,
    pub cost_micros: Option<i64>,
    /// Failures in a row, this one included.
    pub consecutive_failures: u32,
    pub decision_took: Option<Span>,
    /// What no registered agent or tool matches.
    pub out_of_scope: Option<String>,
    pub risk: Risk,
}

/// An action before it is done.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Action {
    pub is_sensitive: bool,
    pub cost_micros: Option<i64>,
    pub risk: Risk,
    pub consecutive_failures: u32,
}

impl Triggers {
    /// Every reason that fires, the primary one first (`ShouldEscalate` of the seed).
    pub fn reasons(&self, observed: &Observed) -> Vec<Reason> {
        let mut reasons: Vec<Reason> = [
            self.sensitive(observed.proposed_action.as_deref()),
            self.cost(observed.cost_micros),
            self.confidence(observed.confidence_bp),
            self.failures(observed.consecutive_failures),
            self.slow_decision(observed.decision_took),
            observed.out_of_scope.as_ref().map(|what| {
                (Trigger::OutOfScope, format!("Out of scope: no registered agent or tool matches '{what}'"))
            }),
        ]
        .into_iter()
        .flatten()
        .map(|(trigger, text)| Reason { trigger, priority: trigger.priority(), text })
        .collect();
        if self.order == Order::BookCode {
            reasons.sort_by_key(|reason| reason.trigger.code_place());
        }
        reasons
    }

    fn sensitive(&self, action: Option<&str>) -> Option<(Trigger, String)> {
        let action = self.sensitive.iter().find(|sensitive| Some(sensitive.as_str()) == action)?;
        Some((Trigger::Sensitive, format!("Sensitive operation requires approval: {action}")))
    }
    fn cost(&self, cost: Option<i64>) -> Option<(Trigger, String)> {
        let cost = cost.filter(|cost| *cost > self.action_cost_micros)?;
        let text = format!("Cost exceeds limit: ${} > ${}", money_text(cost), money_text(self.action_cost_micros));
        Some((Trigger::Cost, text))
    }
    fn confidence(&self, confidence: Option<u32>) -> Option<(Trigger, String)> {
        let confidence = confidence.filter(|confidence| *confidence < self.confidence_bp)?;
        let text = format!("Confidence too low: {} < {}", ratio_text(confidence), ratio_text(self.confidence_bp));
        Some((Trigger::Confidence, text))
    }
    fn failures(&self, failures: u32) -> Option<(Trigger, String)> {
        // A limit of zero asks for nothing: no run has no failure yet and must ask for that.
        let fires = self.consecutive_failures > 0 && failures >= self.consecutive_failures;
        fires.then(|| (Trigger::ConsecutiveFailures, format!("Consecutive failures: {failures} times")))
    }
    fn slow_decision(&self, took: Option<Span>) -> Option<(Trigger, String)> {
        let slow = took.zip(self.decision_timeout).is_some_and(|(took, limit)| took > limit);
        slow.then(|| (Trigger::DecisionTimeout, "Decision timeout".to_owned()))
    }

    /// Whether the mode asks a person before the action (SHH-05, SHH-20).
    pub fn needs_approval(&self, mode: HitlMode, action: &Action) -> bool {
        match mode {
            HitlMode::HumanInCommand => true,
            HitlMode::HumanInTheLoop => action.is_sensitive || self.cost(action.cost_micros).is_some(),
            HitlMode::HumanOnTheLoop => {
                let observed = Observed {
                    cost_micros: action.cost_micros,
                    consecutive_failures: action.consecutive_failures,
                    ..Observed::default()
                };
                let sensitive = action.is_sensitive.then_some(Trigger::Sensitive);
                let fired = self.reasons(&observed).into_iter().map(|reason| reason.trigger).chain(sensitive);
                self.is_exception(action.risk, fired)
            }
        }
    }

    /// Whether a person is asked although the mode asks for nothing.
    pub fn is_exception(&self, risk: Risk, fired: impl Iterator<Item = Trigger>) -> bool {
        let critical = risk == Risk::Critical && self.exceptions.contains(&Exception::RiskCritical);
        critical || fired.into_iter().any(|trigger| self.exceptions.contains(&trigger.into()))
    }

    /// Whether a declared action is sensitive: one of the keywords occurs in it, in whatever case (SHH-13).
    pub fn is_sensitive_plan(&self, action: &str) -> bool {
        let action = action.to_lowercase();
        self.plan_keywords.iter().any(|keyword| action.contains(&keyword.to_lowercase()))
    }

    /// Whether a proposed action is one of the sensitive ones, exactly.
    pub fn is_sensitive_action(&self, action: &str) -> bool {
        self.sensitive(Some(action)).is_some()
    }
}

impl From<Trigger> for Exception {
    fn from(trigger: Trigger) -> Self {
        match trigger {
            Trigger::Sensitive => Exception::Sensitive,
            Trigger::Cost => Exception::Cost,
            Trigger::Confidence => Exception::Confidence,
            Trigger::ConsecutiveFailures => Exception::ConsecutiveFailures,
            Trigger::DecisionTimeout => Exception::DecisionTimeout,
            Trigger::OutOfScope => Exception::OutOfScope,
        }
    }
}

/// What the detector says of a declared action (SHH-13): approval is required, and the risk is at least high.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Marked {
    pub requires_approval: bool,
    pub risk: Risk,
}

impl Triggers {
    /// Marks a task by its declared action. A risk that is higher already stays.
    pub fn mark(&self, action: &str, risk: Risk) -> Marked {
        if self.is_sensitive_plan(action) {
            Marked { requires_approval: true, risk: risk.max(Risk::High) }
        } else {
            Marked { requires_approval: false, risk }
        }
    }
}
