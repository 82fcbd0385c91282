//! What a synthesizer is told: the goal, what was accepted, what failed, and the shape of the answer.
//!
//! Invariant: results stand in plan order, each under its id; failures are told, so that the answer does not hide them.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::text::{Prompt, bullets, shown};

/// The data of one synthesis.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SynthesisTurn {
    pub goal: String,
    pub results: Vec<AcceptedResult>,
    pub failures: Vec<String>,
    /// The first of them.
    pub first_error: Option<String>,
    pub overall_assessment: Option<String>,
    /// What the answer must look like (FSS-21).
    pub schema: Value,
    /// Why the last synthesis was refused.
    pub error: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AcceptedResult {
    pub id: Value,
    pub result: Value,
}

const INSTRUCTION: &str = "\
Bring the results together into one answer to the goal. Use what is there and add nothing of your own; where results \
contradict each other, say so. Name what is missing because a task failed.";

impl SynthesisTurn {
    pub fn text(&self) -> String {
        let results = self.results.iter().map(|one| format!("task {}: {}", shown(&one.id), shown(&one.result)));
        let results = bullets(results);
        let results = if self.results.is_empty() { "There are no accepted results.".to_owned() } else { results };
        // FSP-08: an answer about nothing says so.
        let nothing = self.first_error.as_ref().filter(|_| self.results.is_empty()).map(|error| {
            format!(
                "The first error: {error}\nAcknowledge it in your answer: do not write as if the goal had been reached."
            )
        });
        let output = match &self.schema {
            Value::Null => String::new(),
            schema => format!("Answer with JSON only, of this schema:\n{schema}"),
        };
        Prompt::new("You write the final answer of a team's work.")
            .section("goal", &self.goal)
            .section("accepted results", &results)
            .section("what failed", &bullets(&self.failures))
            .section("nothing was completed", nothing.as_deref().unwrap_or_default())
            .section("assessment", self.overall_assessment.as_deref().unwrap_or_default())
            .section("instruction", INSTRUCTION)
            .section("output", &output)
            .section("your last answer was refused", self.error.as_deref().unwrap_or_default())
            .text()
    }
}
