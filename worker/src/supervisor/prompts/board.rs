//! What the selecting supervisor is told in a cycle: who it is, what it may do, and the board (PDT-04, PDT-05).
//!
//! Invariant: the bootstrap instruction goes with an empty plan only; the tools that are described are those the mode
//! grants. The guards of the run hold whatever stands here.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::text::{Prompt, bullets, moment, shown};
use crate::supervisor::model::TaskId;

/// The data of one cycle.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PromptBoard {
    pub objective: String,
    pub cycle: u32,
    /// `bootstrap` or `orchestration`.
    pub instruction: String,
    pub board: Vec<BoardTask>,
    pub capabilities: Vec<BoardCapability>,
    pub tools: Vec<String>,
    pub scheduler_notes: String,
    /// What the tools of the last decision answered.
    pub tool_results: Vec<ToolResult>,
    /// Workflow time.
    pub now_ms: i64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BoardTask {
    pub task_id: TaskId,
    pub status: String,
    pub objective: String,
    #[serde(default)]
    pub is_final: bool,
    #[serde(default)]
    pub dependencies: Vec<TaskId>,
    #[serde(default)]
    pub capability: Option<String>,
    #[serde(default)]
    pub qa_passed: Option<bool>,
    #[serde(default)]
    pub qa_summary: Option<String>,
    #[serde(default)]
    pub error: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct BoardCapability {
    pub name: String,
    pub description: String,
    pub required_parameters: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ToolResult {
    pub tool: String,
    pub answer: Value,
}

const ROLE: &str = "You are the supervisor of a team of agents. You plan the work as tasks that depend on each other and \
                    choose, cycle by cycle, which of them run next. You do none of them yourself, and you do not judge \
                    results: a critic accepts or rejects them. Be brief, decide on what the board shows, and invent no \
                    results.";

const BOARD_FIELDS: &str = "\
- status: pending (waits for its dependencies), ready, rerun or needs_revision (may run), running, awaiting_review, completed, \
failed (its attempts are used up), errored (broke; repair it), blocked, escalated, skipped, cancelled.
- Final: True marks the one task whose result is the result of the run.
- depends on: the tasks that must be completed first.
- QA: the critic's last word on the task.";

const INVARIANTS: &str = "\
- Ids name tasks and mean nothing else. Do not renumber or reuse them.
- Completed work is never rewritten or repeated; correct it with a new task.
- A task runs only when all it depends on is completed. Dependencies exist and form no cycle.";

const REPAIR: &str = "\
1. Patch the task: better words, parameters, dependencies or capability; then run it again.
2. Pivot: cancel it and lead its dependents over another task.
3. Replan: cancel what is pending and build that part of the plan anew.
Take the first level that can work.";

const OUTPUT: &str = "\
Answer with JSON only:
{\"reasoning\": text, \"tasks_to_execute\": [ids], \"feedback_to_subagents\": {\"id\": text}, \
\"all_tasks_completed\": true or false, \"tool_calls\": [{\"tool\": name, \"args\": {..}}]}
- Exactly one task is marked Final: True.
- all_tasks_completed is true only when that task is completed and has a result; otherwise it is overridden.";

const BOOTSTRAP: &str = "\
The plan is empty. Make it in this turn, and execute nothing:
- Add 2 to 6 tasks with add_task, each for one capability of the list, with the tasks it depends on. Ids are given in the \
order of adding, from 1.
- Mark exactly one of them as the final one with mark_final_task: it brings the others' results together.
- Leave tasks_to_execute empty.";

const ORCHESTRATION: &str = "\
Look at the board and decide what happens in this cycle:
- Choose tasks that are ready or need revision and whose dependencies are completed, all that can run at once; others are \
skipped.
- Give feedback to a task when it helps its next attempt: its agent is shown it, no other is.
- Repair what is errored or failed.
- Do not choose running or completed tasks again.";

/// What a tool is for, with its arguments.
fn signature(tool: &str) -> String {
    let about = match tool {
        "add_task" => {
            "(sub_task_objective, capability, dependencies?, parameters?, metadata?): adds a task; its id comes back"
        }
        "patch_task" => {
            "(task_id, sub_task_objective?, dependencies?, capability?, parameters?): changes what is given"
        }
        "cancel_task" => "(task_id, reason): the task will not run; it stays in the record",
        "update_task_status" => {
            "(task_id, status): pending for an errored task, blocked, or cancelled; never completed"
        }
        "mark_final_task" => "(task_id): makes it the one final task",
        "view_qa_report" => "(task_id): the critic's last report on the task",
        "get_current_datetime" => "(): the time of the run",
        "think_tool" => "(thought): notes a thought; changes nothing",
        _ => "",
    };
    format!("{tool}{about}")
}

impl PromptBoard {
    pub fn text(&self) -> String {
        let instruction = if self.instruction == "bootstrap" { BOOTSTRAP } else { ORCHESTRATION };
        let board = bullets(self.board.iter().map(BoardTask::line));
        let board = if self.board.is_empty() { "There are no tasks yet.".to_owned() } else { board };
        let results = self.tool_results.iter().map(|result| format!("{}: {}", result.tool, shown(&result.answer)));
        Prompt::new(ROLE)
            .section("fields of the board", BOARD_FIELDS)
            .section("tools", &bullets(self.tools.iter().map(|tool| signature(tool))))
            .section("rules of the plan", INVARIANTS)
            .section("repair", REPAIR)
            .section("output", OUTPUT)
            .section("objective", &self.objective)
            .section("status board", &board)
            .section("capabilities", &bullets(self.capabilities.iter().map(BoardCapability::line)))
            .section("time", &moment(self.now_ms))
            .section("answers of your tools", &bullets(results))
            .section("system scheduler notes", &self.scheduler_notes)
            .section(&format!("your turn (cycle {})", self.cycle), instruction)
            .text()
    }
}

impl BoardTask {
    fn line(&self) -> String {
        let mut line = format!("task {} [{}]", self.task_id, self.status);
        if self.is_final {
            line.push_str(" Final: True");
        }
        line.push_str(&format!(": {}", self.objective));
        if let Some(capability) = &self.capability {
            line.push_str(&format!("\ncapability: {capability}"));
        }
        if !self.dependencies.is_empty() {
            let ids: Vec<String> = self.dependencies.iter().map(TaskId::to_string).collect();
            line.push_str(&format!("\ndepends on: {}", ids.join(", ")));
        }
        if let Some(passed) = self.qa_passed {
            let verdict = if passed { "passed" } else { "rejected" };
            let summary = self.qa_summary.as_deref().unwrap_or_default();
            line.push_str(format!("\nQA: {verdict}; {summary}").trim_end_matches("; "));
        }
        if let Some(error) = &self.error {
            line.push_str(&format!("\nerror: {error}"));
        }
        line
    }
}

impl BoardCapability {
    fn line(&self) -> String {
        let mut line = self.name.clone();
        if !self.description.is_empty() {
            line.push_str(&format!(": {}", self.description));
        }
        if !self.required_parameters.is_empty() {
            line.push_str(&format!("\nneeds the parameters: {}", self.required_parameters.join(", ")));
        }
        line
    }
}
