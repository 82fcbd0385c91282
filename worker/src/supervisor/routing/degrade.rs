//! Cheaper ways of thinking for a budget that runs out.
//!
//! Invariant: a strategy steps down while the rest of the budget is below its threshold, and never up; `react` and
//! `reflection` are last steps. A run without a budget never steps down.

use serde::{Deserialize, Serialize};

use crate::supervisor::spec::Degrade;

/// Ways in which an agent works on a task, by what they cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ThinkingStrategy {
    TreeOfThoughts,
    ChainOfThought,
    Debate,
    Reflection,
    React,
}

/// The strategy that the remaining tokens allow; `None` is a run without a budget.
pub fn degrade(strategy: ThinkingStrategy, remaining: Option<u64>, rules: &Degrade) -> ThinkingStrategy {
    let Some(left) = remaining else { return strategy };
    let (needed, next) = match strategy {
        ThinkingStrategy::TreeOfThoughts => (rules.tree_of_thoughts, ThinkingStrategy::ChainOfThought),
        ThinkingStrategy::ChainOfThought => (rules.chain_of_thought, ThinkingStrategy::React),
        ThinkingStrategy::Debate => (rules.debate, ThinkingStrategy::Reflection),
        ThinkingStrategy::Reflection | ThinkingStrategy::React => return strategy,
    };
    if left >= needed { strategy } else { degrade(next, remaining, rules) }
}
