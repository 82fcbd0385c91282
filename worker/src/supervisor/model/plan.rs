//! A plan that changes: tasks with an order, versions, and the checks every change must pass (supervisors.md §5.5).
//!
//! Invariant: after every accepted change all dependencies exist and there is no cycle (PDT-37); a refused change
//! changes nothing; tasks are never removed; `version` counts accepted changes of what is planned, not of progress.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::id::TaskId;
use super::task::{Edge, Task};

/// Who made a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlanOrigin {
    #[default]
    Seed,
    Planner,
    Replan,
    Advisor,
    Human,
}

/// The plan of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TaskPlan {
    pub version: u64,
    pub objective: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<String>,
    pub origin: PlanOrigin,
    pub tasks: BTreeMap<TaskId, Task>,
    /// The next number for tasks that get one from the plan (PDT-30).
    pub next_id: u64,
    next_position: u32,
}

/// Why a change of the plan is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlanChangeError {
    #[error("Duplicate task id in the plan: {id}")]
    Duplicate { id: TaskId },
    #[error("Task {task} depends on missing task {missing}")]
    Missing { task: TaskId, missing: TaskId },
    #[error("Task {task} cannot depend on itself")]
    Itself { task: TaskId },
    #[error("Dependency cycle detected: {}", path.iter().map(TaskId::to_string).collect::<Vec<_>>().join(" -> "))]
    Cycle { path: Vec<TaskId> },
    #[error("Task not found.")]
    Unknown { id: TaskId },
}

impl TaskPlan {
    pub fn new(objective: impl Into<String>) -> Self {
        TaskPlan { objective: objective.into(), next_id: 1, ..TaskPlan::default() }
    }

    /// Adds tasks all together or not at all; their dependencies may be each other.
    pub fn add(&mut self, tasks: Vec<Task>) -> Result<(), PlanChangeError> {
        let mut new = BTreeMap::new();
        for task in tasks {
            if self.tasks.contains_key(&task.id) || new.contains_key(&task.id) {
                return Err(PlanChangeError::Duplicate { id: task.id });
            }
            new.insert(task.id.clone(), (new.len() as u32, task));
        }
        let edges = |id: &TaskId| {
            new.get(id).map(|(_, task)| task).or_else(|| self.tasks.get(id)).map(|task| task.edges.as_slice())
        };
        check(new.keys(), &edges)?;
        if new.is_empty() {
            return Ok(());
        }
        for (id, (place, mut task)) in new {
            task.position = self.next_position + place;
            if task.overall_objective.is_empty() {
                task.overall_objective.clone_from(&self.objective);
            }
            self.next_id = self.next_id.max(id.number().map_or(0, |number| number.saturating_add(1)));
            self.tasks.insert(id, task);
        }
        self.next_position = self.tasks.len() as u32;
        self.version += 1;
        Ok(())
    }

    /// Gives a task other dependencies. Whether that was a change.
    pub fn set_edges(&mut self, id: &TaskId, edges: Vec<Edge>) -> Result<bool, PlanChangeError> {
        let task = self.tasks.get(id).ok_or_else(|| PlanChangeError::Unknown { id: id.clone() })?;
        if task.edges == edges {
            return Ok(false);
        }
        let of = |other: &TaskId| {
            if other == id { Some(edges.as_slice()) } else { self.tasks.get(other).map(|task| task.edges.as_slice()) }
        };
        check([id].into_iter(), &of)?;
        if let Some(task) = self.tasks.get_mut(id) {
            task.edges = edges;
        }
        self.version += 1;
        Ok(true)
    }

    /// A number nobody has, and nobody is given again.
    pub fn fresh_id(&mut self) -> TaskId {
        while self.tasks.contains_key(&TaskId::from(self.next_id)) {
            self.next_id += 1;
        }
        self.next_id += 1;
        TaskId::from(self.next_id - 1)
    }

    pub fn get(&self, id: &TaskId) -> Option<&Task> {
        self.tasks.get(id)
    }
    /// In plan order: as added.
    pub fn in_order(&self) -> Vec<&Task> {
        let mut tasks: Vec<&Task> = self.tasks.values().collect();
        tasks.sort_by_key(|task| task.position);
        tasks
    }
}

/// Looks at everything that can be reached from `changed`: what was fine before can only be broken through these.
fn check<'t>(
    changed: impl Iterator<Item = &'t TaskId>,
    edges: &dyn Fn(&TaskId) -> Option<&'t [Edge]>,
) -> Result<(), PlanChangeError> {
    let mut done: BTreeSet<&TaskId> = BTreeSet::new();
    for start in changed {
        // The path from `start`, each with how many of its edges have been looked at; our own stack, plans can be deep.
        let mut path: Vec<(&TaskId, usize)> = vec![(start, 0)];
        let mut on_path: BTreeSet<&TaskId> = BTreeSet::from([start]);
        while let Some((id, looked)) = path.last_mut() {
            let task = *id;
            let next = edges(task).and_then(|edges| edges.get(*looked)).map(|edge| &edge.on);
            *looked += 1;
            match next {
                None => {
                    done.insert(task);
                    on_path.remove(task);
                    path.pop();
                }
                Some(next) if next == task => return Err(PlanChangeError::Itself { task: task.clone() }),
                Some(next) if done.contains(next) => {}
                Some(next) if on_path.contains(next) => {
                    let begin = path.iter().position(|(id, _)| *id == next).unwrap_or_default();
                    let path = path[begin..].iter().map(|(id, _)| *id).chain([next]).cloned().collect();
                    return Err(PlanChangeError::Cycle { path });
                }
                Some(next) if edges(next).is_none() => {
                    return Err(PlanChangeError::Missing { task: task.clone(), missing: next.clone() });
                }
                Some(next) => {
                    on_path.insert(next);
                    path.push((next, 0));
                }
            }
        }
    }
    Ok(())
}
