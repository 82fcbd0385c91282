//! When a person must be asked: pure rules over what is known of an action or a result.
//!
//! Invariant: every trigger that fires is a reason, in the order of the table (sensitive, cost, confidence, consecutive
//! failures, decision timeout, out of scope) unless the seed's code order is asked for; numbers are compared as integers.
//! A value that is missing fires nothing. It remembers nothing.

use serde::{Deserialize, Serialize};

use super::super::amount::{money_text, ratio_text};
use crate::supervisor::spec::{Gate, Hitl, HitlException, HitlMode, Money, Ratio, Risk, Span, Trigger, TriggerOrder};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EscalationPriority {
    Highest,
    High,
    Medium,
    Low,
}

impl Trigger {
    pub fn priority(self) -> EscalationPriority {
        match self {
            Trigger::Sensitive => EscalationPriority::Highest,
            Trigger::ActionCost => EscalationPriority::High,
            // The table has no line for a decision that takes too long: as bad as failures in a row.
            Trigger::Confidence | Trigger::ConsecutiveFailures | Trigger::DecisionTimeout | Trigger::Review => {
                EscalationPriority::Medium
            }
            Trigger::OutOfScope => EscalationPriority::Low,
        }
    }
    /// The place in the seed's code, which looks at the confidence first.
    fn code_place(self) -> u8 {
        match self {
            Trigger::Confidence => 0,
            Trigger::Sensitive => 1,
            Trigger::ActionCost => 2,
            Trigger::ConsecutiveFailures => 3,
            Trigger::DecisionTimeout => 4,
            Trigger::OutOfScope => 5,
            Trigger::Review => 6,
        }
    }
}

/// One reason to ask a person.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reason {
    pub trigger: Trigger,
    pub priority: EscalationPriority,
    pub text: String,
}

impl Reason {
    pub(super) fn new(trigger: Trigger, text: String) -> Self {
        Reason { trigger, priority: trigger.priority(), text }
    }
}

/// What is known of an action or of a result. What is not known fires nothing.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Observed {
    pub confidence: Option<Ratio>,
    pub proposed_action: Option<String>,
    pub cost: Option<Money>,
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
    pub cost: Option<Money>,
    pub risk: Risk,
    pub consecutive_failures: u32,
}

impl Hitl {
    /// Every reason that fires, the primary one first (`ShouldEscalate` of the seed).
    pub fn reasons(&self, observed: &Observed) -> Vec<Reason> {
        let mut reasons: Vec<Reason> = [
            self.sensitive(observed.proposed_action.as_deref()).filter(|_| self.gates.contains(&Gate::After)),
            self.cost(observed.cost),
            self.confidence(observed.confidence),
            self.failures(observed.consecutive_failures),
            self.slow_decision(observed.decision_took),
            self.out_of_scope(observed.out_of_scope.as_deref()),
        ]
        .into_iter()
        .flatten()
        .map(|(trigger, text)| Reason::new(trigger, text))
        .collect();
        if self.order == TriggerOrder::BookCode {
            reasons.sort_by_key(|reason| reason.trigger.code_place());
        }
        reasons
    }

    fn sensitive(&self, action: Option<&str>) -> Option<(Trigger, String)> {
        let action = self.triggers.sensitive.iter().find(|sensitive| Some(sensitive.as_str()) == action)?;
        Some((Trigger::Sensitive, format!("Sensitive operation requires approval: {action}")))
    }
    fn cost(&self, cost: Option<Money>) -> Option<(Trigger, String)> {
        let (cost, limit) = cost.zip(self.triggers.action_cost).filter(|(cost, limit)| cost > limit)?;
        Some((Trigger::ActionCost, format!("Cost exceeds limit: ${} > ${}", money_text(cost), money_text(limit))))
    }
    /// Whether an action costs more than people let pass.
    pub fn is_costly(&self, cost: Option<Money>) -> bool {
        self.cost(cost).is_some()
    }
    fn confidence(&self, confidence: Option<Ratio>) -> Option<(Trigger, String)> {
        let (found, limit) = confidence.zip(self.triggers.confidence).filter(|(found, limit)| found < limit)?;
        let text = format!("Confidence too low: {} < {}", ratio_text(found), ratio_text(limit));
        Some((Trigger::Confidence, text))
    }
    fn failures(&self, failures: u32) -> Option<(Trigger, String)> {
        // A limit of zero asks for nothing: no run has no failure yet and must ask for that.
        let limit = self.triggers.consecutive_failures.filter(|limit| *limit > 0)?;
        let text = || format!("Consecutive failures: {failures} times");
        (failures >= limit).then(|| (Trigger::ConsecutiveFailures, text()))
    }
    fn slow_decision(&self, took: Option<Span>) -> Option<(Trigger, String)> {
        let slow = took.zip(self.triggers.decision_timeout).is_some_and(|(took, limit)| took > limit);
        slow.then(|| (Trigger::DecisionTimeout, "Decision timeout".to_owned()))
    }
    fn out_of_scope(&self, what: Option<&str>) -> Option<(Trigger, String)> {
        let what = what.filter(|_| self.triggers.out_of_scope)?;
        Some((Trigger::OutOfScope, format!("Out of scope: no registered agent or tool matches '{what}'")))
    }

    /// Whether the mode asks a person before the action (SHH-05, SHH-20); not for what is only told (SHH-15). Who asks for
    /// what is sensitive asks for what is critical too.
    pub fn needs_approval(&self, mode: HitlMode, action: &Action) -> bool {
        let asks = |trigger: &Trigger| !self.notify_only.contains(trigger);
        let sensitive = action.is_sensitive.then_some(Trigger::Sensitive);
        let cost = self.cost(action.cost).map(|(trigger, _)| trigger);
        match mode {
            HitlMode::HumanInCommand => true,
            HitlMode::HumanInTheLoop => {
                sensitive.into_iter().chain(cost).any(|trigger| asks(&trigger))
                    || self.is_exception(action.risk, std::iter::empty())
            }
            HitlMode::HumanOnTheLoop => {
                let failures = self.failures(action.consecutive_failures).map(|(trigger, _)| trigger);
                self.is_exception(action.risk, sensitive.into_iter().chain(cost).chain(failures).filter(asks))
            }
        }
    }

    /// Whether a person is asked although the mode asks for nothing.
    pub fn is_exception(&self, risk: Risk, fired: impl Iterator<Item = Trigger>) -> bool {
        let critical = risk == Risk::Critical && self.exceptions.contains(&HitlException::RiskCritical);
        critical
            || fired.into_iter().filter_map(Trigger::exception).any(|exception| self.exceptions.contains(&exception))
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

/// What the detector says of a declared action (SHH-13): approval is required, and the risk is at least high.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Marked {
    pub requires_approval: bool,
    pub risk: Risk,
}

impl Hitl {
    /// Marks a task by its declared action. A risk that is higher already stays.
    pub fn mark(&self, action: &str, risk: Risk) -> Marked {
        if self.is_sensitive_plan(action) {
            Marked { requires_approval: true, risk: risk.max(Risk::High) }
        } else {
            Marked { requires_approval: false, risk }
        }
    }
}
