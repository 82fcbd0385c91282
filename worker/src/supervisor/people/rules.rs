//! The enums of a spec that concern people, with their names, their order, and their meaning when they are absent.
//!
//! Invariant: the spec's own types are the only ones. It decides nothing.

use crate::supervisor::spec::{HitlException, HitlMode, Trigger, TrustLevel};

impl HitlMode {
    pub const ALL: [HitlMode; 3] = [HitlMode::HumanInCommand, HitlMode::HumanInTheLoop, HitlMode::HumanOnTheLoop];
    pub fn as_str(self) -> &'static str {
        match self {
            HitlMode::HumanInCommand => "human_in_command",
            HitlMode::HumanInTheLoop => "human_in_the_loop",
            HitlMode::HumanOnTheLoop => "human_on_the_loop",
        }
    }
    /// The level of trust whose mode it is (SHT-01).
    pub fn level(self) -> TrustLevel {
        match self {
            HitlMode::HumanInCommand => TrustLevel::Novice,
            HitlMode::HumanInTheLoop => TrustLevel::Proficient,
            HitlMode::HumanOnTheLoop => TrustLevel::Expert,
        }
    }
}

impl Trigger {
    /// The exception by which it is asked for even on the loop, if it can be one.
    pub fn exception(self) -> Option<HitlException> {
        match self {
            Trigger::Sensitive => Some(HitlException::Sensitive),
            Trigger::ActionCost => Some(HitlException::ActionCost),
            Trigger::Confidence => Some(HitlException::Confidence),
            Trigger::ConsecutiveFailures => Some(HitlException::ConsecutiveFailures),
            Trigger::OutOfScope => Some(HitlException::OutOfScope),
            Trigger::DecisionTimeout | Trigger::Review => None,
        }
    }
}
