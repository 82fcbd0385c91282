//! What those are told that look at a plan on its way: CUGA's plan controller, Plan-and-Execute's evaluator.
//!
//! Invariant: sub-tasks stand in plan order; variables are named, so that the answer can refer to them without their
//! values.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::text::{Prompt, bullets, entries, shown};
use crate::supervisor::model::TaskId;

/// The data of one turn of the controller.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ControllerTurn {
    pub intent: String,
    pub subtasks: Vec<SubTask>,
    pub variables: Map<String, Value>,
    pub cycle: u32,
    /// What the last decision asked for and did not get, and why.
    pub refused: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SubTask {
    pub id: TaskId,
    #[serde(default)]
    pub goal: String,
    #[serde(default)]
    pub agent: Option<String>,
    #[serde(default)]
    pub status: String,
    /// Why it is not done.
    #[serde(default)]
    pub error: Option<String>,
}

const CONTROL: &str = "\
First reflect: mark every sub-task of the list, in its order, as completed, in-progress or not-started. Then say what is \
next:
- Name the sub-task by its id, or write its goal anew when earlier results make it clearer. Keep every critical detail.
- Refer to variables by name, never by their values.
- Conclude only when nothing of the intent is left to do: then next_subtask is empty.";

const CONTROL_OUTPUT: &str = "\
Answer with JSON only:
{\"thoughts\": text, \"subtasks_progress\": [one of \"completed\", \"in-progress\", \"not-started\" for each sub-task], \
\"next_subtask\": text, \"conclude_task\": true or false, \"conclude_final_answer\": text}";

impl ControllerTurn {
    pub fn text(&self) -> String {
        let line = |task: &SubTask| {
            let agent = task.agent.as_ref().map(|agent| format!(" (agent: {agent})")).unwrap_or_default();
            let error = task.error.as_ref().map(|error| format!("\nerror: {error}")).unwrap_or_default();
            format!("{} [{}]{agent}: {}{error}", task.id, task.status, task.goal)
        };
        Prompt::new("You control a plan: you look at what has been done and say which sub-task is next.")
            .section("intent", &self.intent)
            .section("sub-tasks", &bullets(self.subtasks.iter().map(line)))
            .section("variables", &entries(&self.variables))
            .section("refused", &bullets(&self.refused))
            .section("instruction", CONTROL)
            .section("output", CONTROL_OUTPUT)
            .text()
    }
}

/// The data of one evaluation.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct EvaluatorTurn {
    pub goal: String,
    pub iteration: u32,
    /// By id, in plan order.
    pub tasks: Map<String, Value>,
}

const EVALUATE: &str = "\
Say whether the plan still leads to the goal:
- continue: the next task is to be done as planned.
- replan: what was learned makes another plan better; say why.
- complete: the goal is reached; what is left is not needed.";

impl EvaluatorTurn {
    pub fn text(&self) -> String {
        let part = |task: &Value, name: &str| task.get(name).map(shown).unwrap_or_default();
        let line = |(id, task): (&String, &Value)| {
            let line = format!("{id} [{}]: {}", part(task, "status"), part(task, "goal"));
            let told = ["result", "error"].map(|name| (name, part(task, name)));
            told.iter()
                .filter(|(_, said)| !said.is_empty())
                .fold(line, |line, (name, said)| format!("{line}\n{name}: {said}"))
        };
        Prompt::new("You watch over a plan that is carried out one task at a time.")
            .section("goal", &self.goal)
            .section("tasks", &bullets(self.tasks.iter().map(line)))
            .section("instruction", EVALUATE)
            .section(
                "output",
                "Answer with JSON only: {\"decision\": \"continue\" or \"replan\" or \"complete\", \"reason\": text}",
            )
            .text()
    }
}
