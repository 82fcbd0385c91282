//! What the results of a team become: dedupe, filter, and whether a synthesis is needed at all.
//!
//! Invariant: failed and empty results reach no synthesis; of two that say the same, the first stays; the order is the
//! one given (plan order, then recruits). It asks no model: it says whether one is to be asked, about what.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::supervisor::spec::Synthesis as SynthesisRules;

/// One result as synthesis sees it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Contribution {
    /// The task, or the recruit.
    pub id: String,
    pub success: bool,
    pub response: Value,
    #[serde(default)]
    pub tokens: u64,
    /// The task that was planned to put the others together.
    #[serde(default)]
    pub is_synthesis: bool,
}

impl Contribution {
    /// What it says.
    pub fn text(&self) -> String {
        match &self.response {
            Value::String(text) => text.trim().to_owned(),
            Value::Null => String::new(),
            other => other.to_string(),
        }
    }

    /// A value, or a text that holds one: for programs, not for people.
    fn is_json(&self) -> bool {
        let holds = |text: &str| matches!(serde_json::from_str(text), Ok(Value::Object(_) | Value::Array(_)));
        match &self.response {
            Value::String(text) => holds(text.trim()),
            _ => true,
        }
    }
}

/// How the final report comes about.
#[derive(Debug, Clone, PartialEq)]
pub enum Synthesis {
    /// Nothing is left to say.
    Nothing,
    /// This result is the report as it is.
    Bypass { id: String, text: String },
    /// The synthesizer makes it of these.
    Ask(Vec<Contribution>),
}

/// What is left of the results: successful, not empty, each text once.
pub fn prepared(results: &[Contribution]) -> Vec<Contribution> {
    let mut kept: Vec<Contribution> = Vec::new();
    for result in results.iter().filter(|result| result.success && !result.text().is_empty()) {
        if kept.iter().all(|other| other.text() != result.text()) {
            kept.push(result.clone());
        }
    }
    kept
}

/// How the report is made. `citations` is how many sources the results cite: only a synthesis weaves them in.
pub fn synthesis(results: &[Contribution], citations: usize, rules: &SynthesisRules) -> Synthesis {
    let kept = prepared(results);
    let bypass = |result: &Contribution| Synthesis::Bypass { id: result.id.clone(), text: result.text() };
    let report = |result: &&Contribution| {
        let long = result.text().chars().count() >= rules.own_result_chars as usize;
        result.is_synthesis && long && result.tokens > 0 && citations == 0
    };
    let successful = results.iter().filter(|result| result.success).count();
    match (&kept[..], kept.iter().rev().find(report)) {
        ([], _) => Synthesis::Nothing,
        (_, Some(written)) => bypass(written),
        ([single], None) if rules.bypass_single && successful == 1 && !single.is_json() => bypass(single),
        _ => Synthesis::Ask(kept),
    }
}
