//! How a plan is carried out, in the words of planners and advisors.
//!
//! Invariant: a word that is not one of these is no strategy, and whoever says it is told which there are. How an agent
//! works on one task, which some of these words say too, is in `degrade`. It carries out nothing.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a planner says of the whole plan: the order of its tasks (SHD-02), or how its agents work on each (SHN-72).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PlanStrategy {
    /// All that may run at once.
    Parallel,
    /// One task after the other.
    Sequential,
    /// Side by side but where a task waits for another.
    Hybrid,
    TreeOfThoughts,
    ChainOfThought,
    Debate,
    Reflection,
    React,
}

impl PlanStrategy {
    pub const ALL: [PlanStrategy; 8] = [
        PlanStrategy::Parallel,
        PlanStrategy::Sequential,
        PlanStrategy::Hybrid,
        PlanStrategy::TreeOfThoughts,
        PlanStrategy::ChainOfThought,
        PlanStrategy::Debate,
        PlanStrategy::Reflection,
        PlanStrategy::React,
    ];

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            PlanStrategy::Parallel => "parallel",
            PlanStrategy::Sequential => "sequential",
            PlanStrategy::Hybrid => "hybrid",
            PlanStrategy::TreeOfThoughts => "tree_of_thoughts",
            PlanStrategy::ChainOfThought => "chain_of_thought",
            PlanStrategy::Debate => "debate",
            PlanStrategy::Reflection => "reflection",
            PlanStrategy::React => "react",
        }
    }

    /// The strategy of that name, if it is one.
    pub fn from_name(name: &str) -> Option<Self> {
        PlanStrategy::ALL.into_iter().find(|strategy| strategy.as_str() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_strategy_has_one_word_everywhere() {
        for strategy in PlanStrategy::ALL {
            assert_eq!(serde_json::to_value(strategy).unwrap(), strategy.as_str());
            assert_eq!(PlanStrategy::from_name(strategy.as_str()), Some(strategy));
        }
        assert_eq!(PlanStrategy::from_name("paralel"), None);
    }
}
