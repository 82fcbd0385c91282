//! Cheaper ways of thinking for a budget that runs out.
//!
//! Invariant: a strategy steps down while the rest of the budget is below its threshold, and never up; `react` is the
//! last step. A run without a budget never steps down.

use serde::{Deserialize, Serialize};

/// Ways in which an agent works on a task, by what they cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Strategy {
    TreeOfThoughts,
    ChainOfThought,
    Debate,
    Reflection,
    React,
}

/// The fewest tokens that must be left for each strategy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DegradeRules {
    pub tree_of_thoughts: u64,
    pub chain_of_thought: u64,
    pub debate: u64,
    pub reflection: u64,
}

impl Default for DegradeRules {
    fn default() -> Self {
        DegradeRules { tree_of_thoughts: 8_000, chain_of_thought: 4_000, debate: 6_000, reflection: 3_000 }
    }
}

/// The strategy that the remaining tokens allow; `None` is a run without a budget.
pub fn degrade(strategy: Strategy, remaining: Option<u64>, rules: &DegradeRules) -> Strategy {
    let Some(left) = remaining else { return strategy };
    let (needed, next) = match strategy {
        Strategy::TreeOfThoughts => (rules.tree_of_thoughts, Strategy::ChainOfThought),
        Strategy::ChainOfThought => (rules.chain_of_thought, Strategy::React),
        Strategy::Debate => (rules.debate, Strategy::Reflection),
        Strategy::Reflection => (rules.reflection, Strategy::React),
        Strategy::React => return strategy,
    };
    if left >= needed { strategy } else { degrade(next, remaining, rules) }
}
