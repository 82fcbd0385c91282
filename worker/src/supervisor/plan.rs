//! A plan as data: an objective and a graph of tasks (supervisors.md §1.1.2, §1.1.5).
//!
//! Invariant: a [`Plan`] that exists has tasks, unique ids, dependencies that exist, no cycle, and at most one final
//! task: [`Plan::from_seed`] checks. Where plans come from (YAML, an input) and how tasks run is not known here.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::model::{Condition, PlanMetadata, Risk};
use super::task::{TaskNumber, TaskStatus};

/// What a plan says when it does not say how it was made (PDT-39).
pub(super) const REASONING_DEFAULT: &str = "Loaded from YAML workflow";
pub(super) const MAX_ATTEMPTS_DEFAULT: u32 = 3;

/// One task as planned (PDT-11); what happens to it is kept in its run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskItem {
    pub task_id: TaskNumber,
    pub overall_objective: String,
    pub sub_task_objective: String,
    pub capability: String,
    #[serde(default)]
    pub sub_task_dependencies: Vec<TaskNumber>,
    #[serde(default)]
    pub status: TaskStatus,
    #[serde(default)]
    pub time_scope: Option<Value>,
    #[serde(default)]
    pub parameters: Map<String, Value>,
    #[serde(default)]
    pub metadata: PlanMetadata,
    #[serde(default)]
    pub attempt_count: u32,
    #[serde(default = "max_attempts_default")]
    pub max_attempts: u32,
    #[serde(default)]
    pub is_final: bool,
    /// What a person may be asked about before the task is done; as all below, for the seed plan of a supervisor only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub risk: Option<Risk>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub required: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub requires_approval: bool,
    /// Which results of dependencies it needs, by their ids.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub when: BTreeMap<String, Condition>,
    /// How to undo it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compensation: Option<Value>,
}

fn max_attempts_default() -> u32 {
    MAX_ATTEMPTS_DEFAULT
}

impl TaskItem {
    /// A key that only a supervisor follows, if it has one.
    pub fn of_supervisors(&self) -> Option<&'static str> {
        let keys = [
            ("action", self.action.is_some()),
            ("risk", self.risk.is_some()),
            ("required", self.required),
            ("requires_approval", self.requires_approval),
            ("when", !self.when.is_empty()),
            ("compensation", self.compensation.is_some()),
        ];
        keys.into_iter().find(|(_, set)| *set).map(|(key, _)| key)
    }

    /// The status it begins its run with: who was at work on it, or was asked about it, knows nothing of this run
    /// (PDT-51).
    pub fn begins_as(&self) -> TaskStatus {
        use TaskStatus::{AwaitingApproval, AwaitingInput, AwaitingReview, Ready, Running};
        match self.status {
            Running | AwaitingReview | AwaitingInput | AwaitingApproval => Ready,
            status => status,
        }
    }

    /// The first line of the objective.
    pub fn title(&self) -> &str {
        self.sub_task_objective.lines().next().unwrap_or_default().trim()
    }
}

/// A plan as it is written down, not yet checked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SeedPlan {
    pub objective: String,
    #[serde(default = "reasoning_default")]
    pub reasoning_steps: Vec<String>,
    pub tasks: Vec<TaskItem>,
}

fn reasoning_default() -> Vec<String> {
    vec![REASONING_DEFAULT.to_owned()]
}

/// A checked plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "SeedPlan", into = "SeedPlan")]
pub struct Plan {
    objective: String,
    reasoning_steps: Vec<String>,
    tasks: BTreeMap<TaskNumber, TaskItem>,
    /// As they were written down.
    order: Vec<TaskNumber>,
}

/// Why tasks do not make a plan. The texts are pydantask's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    #[error("Workflow YAML must contain a non-empty 'tasks' list")]
    NoTasks,
    #[error("Duplicate task_id values in workflow: {}", list(ids))]
    DuplicateIds { ids: Vec<TaskNumber> },
    #[error("Duplicate task_id in seed_plan: {id}")]
    DuplicateInSeed { id: TaskNumber },
    #[error(
        "Task {task} depends on missing task_id {missing}. All dependencies must reference an existing task_id in the workflow."
    )]
    MissingDependency { task: TaskNumber, missing: TaskNumber },
    #[error("seed_plan task {task} depends on missing task {missing}")]
    MissingInSeed { task: TaskNumber, missing: TaskNumber },
    #[error("Task {task} cannot depend on itself")]
    SelfDependency { task: TaskNumber },
    #[error("Dependency cycle detected: {}", path.iter().map(TaskNumber::to_string).collect::<Vec<_>>().join(" -> "))]
    Cycle { path: Vec<TaskNumber> },
    #[error("Workflow YAML marks multiple tasks as final: {}. Mark exactly one task with `is_final: true`.", list(ids))]
    SeveralFinal { ids: Vec<TaskNumber> },
}

fn list(ids: &[TaskNumber]) -> String {
    let ids: Vec<String> = ids.iter().map(TaskNumber::to_string).collect();
    format!("[{}]", ids.join(", "))
}

impl Plan {
    /// The plan of tasks that come from a program rather than a file (PDT-38).
    pub fn from_seed(seed: SeedPlan) -> Result<Plan, PlanError> {
        Plan::checked(seed).map_err(|why| match why {
            PlanError::DuplicateIds { ids } => PlanError::DuplicateInSeed { id: ids[0] },
            PlanError::MissingDependency { task, missing } => PlanError::MissingInSeed { task, missing },
            other => other,
        })
    }

    /// The plan of tasks that were read from a file (PDT-41, PDT-42).
    pub fn from_file(seed: SeedPlan) -> Result<Plan, PlanError> {
        Plan::checked(seed)
    }

    fn checked(seed: SeedPlan) -> Result<Plan, PlanError> {
        if seed.tasks.is_empty() {
            return Err(PlanError::NoTasks);
        }
        check_ids(&seed.tasks)?;
        check_dependencies(&seed.tasks)?;
        let order = seed.tasks.iter().map(|task| task.task_id).collect();
        let tasks: BTreeMap<TaskNumber, TaskItem> = seed.tasks.into_iter().map(|task| (task.task_id, task)).collect();
        if let Some(path) = find_cycle(&tasks) {
            return Err(PlanError::Cycle { path });
        }
        let ids: Vec<TaskNumber> = tasks.values().filter(|task| task.is_final).map(|task| task.task_id).collect();
        if ids.len() > 1 {
            return Err(PlanError::SeveralFinal { ids });
        }
        Ok(Plan { objective: seed.objective, reasoning_steps: seed.reasoning_steps, tasks, order })
    }

    /// Marks the task with the highest id as final if none is (PDT-43).
    #[must_use]
    pub fn auto_mark_final(mut self) -> Self {
        if self.final_task().is_none()
            && let Some(mut last) = self.tasks.last_entry()
        {
            last.get_mut().is_final = true;
        }
        self
    }

    pub fn objective(&self) -> &str {
        &self.objective
    }
    pub fn reasoning_steps(&self) -> &[String] {
        &self.reasoning_steps
    }
    /// By ascending id.
    pub fn tasks(&self) -> impl Iterator<Item = &TaskItem> {
        self.tasks.values()
    }
    /// In the order in which they were written down (CRW-03).
    pub fn in_list_order(&self) -> impl Iterator<Item = &TaskItem> {
        self.order.iter().filter_map(|id| self.tasks.get(id))
    }
    pub fn task(&self, id: TaskNumber) -> Option<&TaskItem> {
        self.tasks.get(&id)
    }
    pub fn final_task(&self) -> Option<TaskNumber> {
        self.tasks.values().find(|task| task.is_final).map(|task| task.task_id)
    }
}

impl TryFrom<SeedPlan> for Plan {
    type Error = PlanError;
    fn try_from(seed: SeedPlan) -> Result<Plan, PlanError> {
        Plan::from_seed(seed)
    }
}

impl From<Plan> for SeedPlan {
    fn from(plan: Plan) -> SeedPlan {
        let tasks = plan.in_list_order().cloned().collect();
        SeedPlan { objective: plan.objective, reasoning_steps: plan.reasoning_steps, tasks }
    }
}

fn check_ids(tasks: &[TaskItem]) -> Result<(), PlanError> {
    let mut seen = BTreeSet::new();
    let twice: BTreeSet<TaskNumber> = tasks.iter().map(|task| task.task_id).filter(|id| !seen.insert(*id)).collect();
    if twice.is_empty() { Ok(()) } else { Err(PlanError::DuplicateIds { ids: twice.into_iter().collect() }) }
}

fn check_dependencies(tasks: &[TaskItem]) -> Result<(), PlanError> {
    let ids: BTreeSet<TaskNumber> = tasks.iter().map(|task| task.task_id).collect();
    for task in tasks {
        for dependency in &task.sub_task_dependencies {
            if *dependency == task.task_id {
                return Err(PlanError::SelfDependency { task: task.task_id });
            }
            if !ids.contains(dependency) {
                return Err(PlanError::MissingDependency { task: task.task_id, missing: *dependency });
            }
        }
    }
    Ok(())
}

/// A path that returns to its beginning, if there is one. The stack is our own: a long chain must not exhaust the real one.
fn find_cycle(tasks: &BTreeMap<TaskNumber, TaskItem>) -> Option<Vec<TaskNumber>> {
    let mut done = BTreeSet::new();
    for start in tasks.keys().copied() {
        // The path from `start`, each with how many of its dependencies have been looked at.
        let mut path: Vec<(TaskNumber, usize)> = vec![(start, 0)];
        while let Some((id, looked)) = path.last_mut() {
            let next = tasks.get(id).and_then(|task| task.sub_task_dependencies.get(*looked)).copied();
            *looked += 1;
            match next {
                None => {
                    done.insert(*id);
                    path.pop();
                }
                Some(next) if done.contains(&next) => {}
                Some(next) => match path.iter().position(|(id, _)| *id == next) {
                    Some(begin) => {
                        return Some(path[begin..].iter().map(|(id, _)| *id).chain([next]).collect());
                    }
                    None => path.push((next, 0)),
                },
            }
        }
    }
    None
}
