//! What a reviewer is told, of one task's result or of all results of an iteration.
//!
//! Invariant: the criteria stand in the prompt word for word, numbered in their order, in the part that is the same in every
//! turn, which a model has as its system prompt (FSS-19).

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::text::{Prompt, bullets, numbered, shown};
use crate::supervisor::model::TaskId;

/// The data of a review of one task.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TaskReviewTurn {
    pub id: Value,
    pub goal: String,
    pub objective: String,
    pub attempt: u32,
    pub result: Value,
    pub criteria: Vec<String>,
    /// There is no third verdict: somebody decides who sees to what cannot be done.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub accepts_or_rejects: bool,
}

/// The data of a review of an iteration.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct IterationReview {
    pub goal: String,
    pub iteration: u32,
    /// In plan order.
    pub results: Vec<ReviewedResult>,
    pub criteria: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReviewedResult {
    #[serde(rename = "taskId", alias = "task_id")]
    pub task_id: TaskId,
    #[serde(default)]
    pub goal: String,
    #[serde(default)]
    pub status: String,
    #[serde(default)]
    pub result: Value,
}

const EVIDENCE: &str = "\
Judge the result as it stands, by the task and by the criteria; do not repair it. If it points to files or sources, look at \
them where you can. A claim without evidence does not pass.";

const TASK_OUTPUT: &str = "\
Answer with JSON only:
{\"verdict\": \"accepted\" or \"needs-revision\" or \"escalate\", \"feedback\": text, \"score\": 0 to 1}
- needs-revision: the same agent can do better; say what must change, so that it can act on it.
- escalate: it is out of scope or cannot be done by an agent.";

const TWO_VERDICTS: &str = "\
Answer with JSON only:
{\"verdict\": \"accepted\" or \"needs-revision\", \"feedback\": text, \"score\": 0 to 1}
- needs-revision: say what must change, so that the agent can act on it, or why it cannot be done.";

const ITERATION_OUTPUT: &str = "\
Answer with JSON only, with one assessment for each result:
{\"assessments\": [{\"taskId\": id, \"verdict\": \"accepted\" or \"needs-revision\" or \"escalate\", \"feedback\": text, \
\"score\": 0 to 1}], \"needsReplanning\": true or false, \"overallAssessment\": text}
- accepted: it meets the goal of its task and all criteria.
- needs-revision: an agent can do better; say what must change, so that it can act on it.
- escalate: it is out of scope or cannot be done by an agent.
- needsReplanning is true when the goal is not reached by what is accepted and another round can help.";

impl TaskReviewTurn {
    /// What is so in every review of the run.
    pub fn steady(&self) -> String {
        Prompt::new("You review the result of one task. You accept it or send it back; nobody else does.")
            .section("criteria", &numbered(&self.criteria))
            .section("how to judge", EVIDENCE)
            .section("output", if self.accepts_or_rejects { TWO_VERDICTS } else { TASK_OUTPUT })
            .text()
    }

    pub fn text(&self) -> String {
        Prompt::new(&self.steady())
            .section("objective", &self.objective)
            .section(&format!("task {} (attempt {})", shown(&self.id), self.attempt), &self.goal)
            .section("result", &result_or_none(&self.result))
            .text()
    }
}

impl IterationReview {
    /// What is so in every review of the run.
    pub fn steady(&self) -> String {
        Prompt::new("You review the results of a team's work for one goal, all of them together.")
            .section("criteria", &numbered(&self.criteria))
            .section("how to judge", EVIDENCE)
            .section("output", ITERATION_OUTPUT)
            .text()
    }

    pub fn text(&self) -> String {
        let line = |reviewed: &ReviewedResult| {
            let ReviewedResult { task_id, goal, status, result } = reviewed;
            format!("task {task_id} [{status}]: {goal}\nresult: {}", result_or_none(result))
        };
        Prompt::new(&self.steady())
            .section("goal", &self.goal)
            .section(&format!("results of iteration {}", self.iteration), &bullets(self.results.iter().map(line)))
            .text()
    }
}

fn result_or_none(result: &Value) -> String {
    match shown(result) {
        text if text.is_empty() => "(none)".to_owned(),
        text => text,
    }
}
