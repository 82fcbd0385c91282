//! A crew: a list of tasks that a manager carries out one after the other, asking coworkers.
//!
//! ```text
//!   condition ──► manager's session ──► guardrail ──► human ──► output     (a skipped task has an empty output)
//!                        ▲──── not valid, or feedback ◄──┘
//! ```
//!
//! Invariant: tasks start in list order; a task that is not async starts when everything before it has its output. An
//! output that is there is never made again: a replay, a restored crew and a fork begin with the outputs they were given.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::rules::AgentDef;
use crate::supervisor::spec::{CrewTask, OutputCondition};

/// Who manages, and what is to be done.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Crew {
    /// The model of a manager made for the purpose.
    pub manager_llm: Option<String>,
    /// A manager of your own; no agent of the crew, and without tools.
    pub manager_agent: Option<AgentDef>,
    pub tasks: Vec<CrewTask>,
    /// How often a guardrail is asked about one output, if its answer cannot be read.
    pub validation_tries: u32,
}

/// The output of a task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskOutput {
    pub task: String,
    pub text: String,
    #[serde(default)]
    pub skipped: bool,
    /// What a person said who did not let it begin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub denied: Option<String>,
}

/// Everything that is needed to go on later, or elsewhere.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CrewCheckpoint {
    pub outputs: Vec<TaskOutput>,
    /// The runs it comes from, the oldest first.
    pub lineage: Vec<String>,
}

impl CrewCheckpoint {
    /// The same outputs, to go on with in another run of that name.
    #[must_use]
    pub fn fork(mut self, name: &str) -> Self {
        self.lineage.push(name.to_owned());
        self
    }
}

/// Where a crew begins.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum CrewStart {
    Fresh,
    /// From that task on, it included; earlier outputs are taken as they are.
    From(String, CrewCheckpoint),
    /// Behind that task.
    After(String, CrewCheckpoint),
    /// Where the checkpoint ended.
    Restore(CrewCheckpoint),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CrewRefused {
    #[error("Attribute `manager_llm` or `manager_agent` is required when using hierarchical process.")]
    NoManager,
    #[error("Manager agent should not be included in agents list.")]
    ManagerIsAgent,
    #[error("Manager agent should not have tools")]
    ManagerHasTools,
    #[error("a crew needs at least one task")]
    NoTasks,
    #[error("Task id '{0}' is used twice or empty.")]
    TaskId(String),
    #[error("Task '{0}' names agent '{1}', which is not in the crew.")]
    UnknownAgent(String, String),
    #[error("Task '{0}' has a context dependency on a future task '{1}', which is not allowed.")]
    FutureContext(String, String),
    #[error("Task '{0}' is asynchronous and cannot include other sequential asynchronous tasks in its context.")]
    AsyncContext(String),
    #[error("Task with id {0} not found in the crew's tasks.")]
    UnknownTask(String),
    #[error("The crew must end with at most one asynchronous task.")]
    AsyncTail,
    #[error("The first task cannot be a ConditionalTask.")]
    FirstConditional,
    #[error("Crew must include at least one non-conditional task")]
    OnlyConditional,
    #[error("Conditional Task: {0} , cannot be executed asynchronously.")]
    AsyncConditional(String),
}

impl Crew {
    /// The manager of the crew, if crew and agents fit together.
    pub fn check(&self, agents: &[AgentDef]) -> Result<AgentDef, CrewRefused> {
        let manager = match (&self.manager_agent, &self.manager_llm) {
            (Some(manager), _) => manager.clone(),
            (None, Some(model)) => made_manager(model),
            (None, None) => return Err(CrewRefused::NoManager),
        };
        if agents.iter().any(|agent| agent.name == manager.name) {
            return Err(CrewRefused::ManagerIsAgent);
        }
        if !manager.tools.is_empty() {
            return Err(CrewRefused::ManagerHasTools);
        }
        if self.tasks.is_empty() {
            return Err(CrewRefused::NoTasks);
        }
        for (i, task) in self.tasks.iter().enumerate() {
            self.check_task(i, task, agents)?;
        }
        if self.tasks.iter().rev().take_while(|task| task.async_execution).count() > 1 {
            return Err(CrewRefused::AsyncTail);
        }
        if self.tasks.iter().all(CrewTask::is_conditional) {
            return Err(CrewRefused::OnlyConditional);
        }
        if self.tasks.first().is_some_and(CrewTask::is_conditional) {
            return Err(CrewRefused::FirstConditional);
        }
        Ok(manager)
    }

    fn check_task(&self, i: usize, task: &CrewTask, agents: &[AgentDef]) -> Result<(), CrewRefused> {
        let earlier = &self.tasks[..i];
        if task.id.is_empty() || earlier.iter().any(|other| other.id == task.id) {
            return Err(CrewRefused::TaskId(task.id.clone()));
        }
        // A guardrail may be somebody outside of the crew.
        if let Some(name) = task.agent.as_ref().filter(|name| !agents.iter().any(|agent| agent.name == **name)) {
            return Err(CrewRefused::UnknownAgent(task.id.clone(), name.clone()));
        }
        if task.is_conditional() && task.async_execution {
            return Err(CrewRefused::AsyncConditional(task.id.clone()));
        }
        let told = task.context.iter().flatten().chain(task.when.iter().filter_map(|when| when.task.as_ref()));
        let told = told.chain(task.conditions.keys());
        for id in told {
            if !self.tasks.iter().any(|other| other.id == *id) {
                return Err(CrewRefused::UnknownTask(id.clone()));
            }
            let Some(at) = earlier.iter().position(|other| other.id == *id) else {
                return Err(CrewRefused::FutureContext(task.id.clone(), id.clone()));
            };
            let joined = earlier[at..].iter().any(|other| !other.async_execution);
            if task.async_execution && !joined {
                return Err(CrewRefused::AsyncContext(task.id.clone()));
            }
        }
        Ok(())
    }
}

fn made_manager(model: &str) -> AgentDef {
    AgentDef {
        model: Some(model.to_owned()),
        instructions: "You manage a crew. Give work to coworkers, judge what they bring, and answer with the finished \
                       result of the task. Coworkers know nothing but what you tell them."
            .to_owned(),
        ..AgentDef::new("Crew Manager")
    }
}

/// How far a crew is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct CrewRun {
    pub(super) manager: String,
    pub(super) tasks: Vec<CrewTask>,
    pub(super) outputs: BTreeMap<usize, TaskOutput>,
    pub(super) running: BTreeMap<usize, CrewTaskState>,
    pub(super) lineage: Vec<String>,
    /// How often the manager was set to each task that has its output.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) attempts: BTreeMap<usize, u32>,
    /// The task that the crew could not go on with, and why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) failed: Option<(usize, String)>,
    pub(super) validation_tries: u32,
    /// The tasks that a person did not let begin, and what they said.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) denied: BTreeMap<usize, String>,
}

impl CrewRun {
    /// Where a task stands in the list.
    pub(super) fn place(&self, task: &str) -> Option<usize> {
        self.tasks.iter().position(|one| one.id == task)
    }
}

/// A task under way.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct CrewTaskState {
    /// How often the manager was set to it.
    pub(super) attempt: u32,
    /// How often its output was not valid.
    pub(super) invalid: u32,
    /// How often its guardrail was asked, and how often in a row in vain.
    #[serde(default)]
    pub(super) validated: u32,
    #[serde(default)]
    pub(super) unread: u32,
    /// The budget left it undone: what runs beside it ends first.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) left: bool,
    pub(super) output: String,
    /// What people have said of it, the oldest first: each attempt is told all of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) words: Vec<String>,
}

impl CrewTaskState {
    /// What people have said of it, for whoever is set to it or validates it.
    pub(super) fn said(&self) -> Option<String> {
        let lines: Vec<String> = self.words.iter().map(|words| format!("- {words}")).collect();
        let head = "### What a person has said of this task (where it differs, what was said last counts):";
        (!lines.is_empty()).then(|| format!("{head}\n{}", lines.join("\n")))
    }
}

impl CrewRun {
    pub(super) fn new(crew: Crew, manager: &str, start: CrewStart) -> Result<CrewRun, CrewRefused> {
        let (given, lineage, until) = match start {
            CrewStart::Fresh => (Vec::new(), Vec::new(), 0),
            CrewStart::From(task, of) => (of.outputs, of.lineage, position(&crew, &task)?),
            CrewStart::After(task, of) => (of.outputs, of.lineage, position(&crew, &task)? + 1),
            CrewStart::Restore(checkpoint) => (checkpoint.outputs, checkpoint.lineage, crew.tasks.len()),
        };
        let (mut outputs, mut denied) = (BTreeMap::new(), BTreeMap::new());
        for output in given {
            let at = position(&crew, &output.task)?;
            if at < until {
                denied.extend(output.denied.clone().map(|why| (at, why)));
                outputs.insert(at, output);
            }
        }
        Ok(CrewRun {
            manager: manager.to_owned(),
            tasks: crew.tasks,
            outputs,
            running: BTreeMap::new(),
            lineage,
            attempts: BTreeMap::new(),
            failed: None,
            validation_tries: crew.validation_tries,
            denied,
        })
    }

    /// The next task that may start now.
    pub(super) fn next(&self) -> Option<usize> {
        let at = (0..self.tasks.len()).find(|at| !self.outputs.contains_key(at) && !self.running.contains_key(at))?;
        let task = &self.tasks[at];
        let free = self.running.is_empty();
        // A sync task under way holds up everything behind it.
        let sync_running = self.running.keys().any(|running| !self.tasks[*running].async_execution);
        (free || (task.async_execution && !sync_running)).then_some(at)
    }

    /// Outputs of tasks before the last point where everything was awaited: those that are there whatever came first.
    fn settled_before(&self, at: usize) -> impl Iterator<Item = &TaskOutput> {
        let behind = if self.tasks[at].async_execution {
            self.tasks[..at].iter().rposition(|task| !task.async_execution).map_or(0, |sync| sync + 1)
        } else {
            at
        };
        self.outputs.range(..behind).map(|(_, output)| output)
    }

    pub(super) fn condition_holds(&self, at: usize) -> bool {
        let of = |id: &String| self.outputs.values().find(|output| output.task == *id);
        let text = |output: Option<&TaskOutput>| output.map(|output| output.text.clone()).unwrap_or_default();
        let json = |id| serde_json::from_str(&text(of(id))).unwrap_or_else(|_| Value::String(text(of(id))));
        let when = self.tasks[at].when.as_ref().is_none_or(|when| {
            let last = || self.outputs.range(..at).next_back().map(|(_, output)| output);
            when.holds(&text(when.task.as_ref().map_or_else(last, of)))
        });
        when && self.tasks[at].conditions.iter().all(|(id, condition)| condition.holds(&json(id)))
    }

    /// What the manager is told.
    pub(super) fn prompt(&self, at: usize, correction: Option<&str>) -> String {
        let task = &self.tasks[at];
        let mut text = task.description.clone();
        if !task.expected_output.is_empty() {
            text.push_str(&format!("\n\nThe expected criteria for your final answer: {}", task.expected_output));
        }
        let named: BTreeSet<&String> = task.context.iter().flatten().collect();
        let told: Vec<&str> = self
            .settled_before(at)
            .filter(|output| task.context.is_none() || named.contains(&output.task))
            .filter(|output| !output.text.is_empty())
            .map(|output| output.text.as_str())
            .collect();
        if !told.is_empty() {
            text.push_str(&format!(
                "\n\nThis is the context you're working with:\n{}",
                told.join("\n\n----------\n\n")
            ));
        }
        if let Some(correction) = correction {
            text.push_str(&format!("\n\n{correction}"));
        }
        text
    }

    /// The last output that says something.
    pub(super) fn result(&self) -> String {
        let last = self.outputs.values().rev().find(|output| !output.text.is_empty());
        last.map(|output| output.text.clone()).unwrap_or_default()
    }
}

fn position(crew: &Crew, id: &str) -> Result<usize, CrewRefused> {
    crew.tasks.iter().position(|task| task.id == id).ok_or_else(|| CrewRefused::UnknownTask(id.to_owned()))
}

impl OutputCondition {
    fn holds(&self, text: &str) -> bool {
        let place = self.pointer.as_ref().map(|pointer| {
            let json: Option<Value> = serde_json::from_str(text).ok();
            json.and_then(|json| json.pointer(pointer).cloned())
        });
        let equal = match (&place, &self.equals) {
            (Some(found), Some(wanted)) => found.as_ref() == Some(wanted),
            (Some(found), None) => found.is_some(),
            (None, Some(wanted)) => super::message::text_of(wanted) == text,
            (None, None) => true,
        };
        equal
            && self.contains.as_ref().is_none_or(|part| text.contains(part))
            && self.not_contains.as_ref().is_none_or(|part| !text.contains(part))
    }
}
