//! The policy on a whole plan: complex plans and dangerous tools are approved by a person before anything runs (SHH-14).
//!
//! Invariant: the complexity is compared as an integer and reaches the threshold at the threshold, although the text says
//! that it exceeds it. It asks nobody: it says why one must.

use super::super::amount::ratio_text;
use crate::supervisor::spec::{PlanPolicy, Ratio};

/// What the policy looks at.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PlanShape {
    pub complexity: Option<Ratio>,
    /// The tools of all tasks, in plan order.
    pub tools: Vec<String>,
}

impl PlanPolicy {
    /// Why a person must approve the plan; nothing if nobody must.
    pub fn reasons(&self, plan: &PlanShape) -> Vec<String> {
        let mut reasons = Vec::new();
        if let (Some(complexity), Some(threshold)) = (plan.complexity, self.complexity)
            && complexity >= threshold
        {
            let (complexity, threshold) = (ratio_text(complexity), ratio_text(threshold));
            reasons.push(format!("Complexity score {complexity} exceeds threshold {threshold}"));
        }
        let mut named: Vec<&str> = Vec::new();
        for tool in plan.tools.iter().filter(|tool| self.dangerous_tools.contains(tool)) {
            if !named.contains(&tool.as_str()) {
                named.push(tool);
                reasons.push(format!("Tool '{tool}' requires approval"));
            }
        }
        reasons
    }

    /// What the run ends with when the plan is denied.
    pub fn denied(feedback: &str) -> String {
        format!("approval denied: {feedback}")
    }
}
