//! A task of a plan file in the graph that carries it out: the activity that it is, and what its rules say of its result.
//!
//! Invariant: a pure function of the plan as it stands: the same results give the same input, and the same result the same
//! verdict. Slots are filled from results of dependencies only. It starts nothing, and counts nothing.

use std::collections::BTreeMap;

use bosun_engine::{ActivityOptions, ActivityType};
use serde_json::Value;

use super::critic::{CriticRules, CriticVerdict};
use super::fields::FieldError;
use super::model::{Task, TaskId, TaskPlan};
use super::placeholder::{NoValue, TemplateScope, Values};
use super::reading;
use super::task::TaskNumber;
use super::work::{Capability, Work};

/// The activity of one attempt.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Dispatched {
    pub(crate) activity_type: ActivityType,
    pub(crate) input: Value,
    pub(crate) options: ActivityOptions,
}

/// Why an attempt is no activity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotDispatched {
    #[error(transparent)]
    Written(#[from] FieldError),
    #[error(transparent)]
    Value(#[from] NoValue),
}

/// The number of a task, if plan files could have given it one.
pub(crate) fn number(id: &TaskId) -> Option<TaskNumber> {
    id.number().and_then(|number| u32::try_from(number).ok()).map(TaskNumber)
}

/// What a plan file has its task done by, if the task is one that it could have.
pub(crate) fn capability(task: &Task) -> Option<Capability> {
    number(&task.id)?;
    Capability::of(task.capability.as_deref()?)
}

/// The result of a task as people read it.
pub(crate) fn text(task: &Task) -> String {
    let result = task.result.as_ref().unwrap_or(&Value::Null);
    capability(task).map_or_else(|| reading::text_of(result), |capability| capability.text_of(result))
}

/// The first line of the objective, which stays what it was when feedback is appended.
pub(crate) fn title(task: &Task) -> &str {
    task.goal.lines().next().unwrap_or_default().trim()
}

/// What the attempt that begins should do better: what was wrong with the one before, or what a person wants to be known.
fn feedback(task: &Task) -> String {
    let Some(before) = task.attempts.iter().rev().find(|attempt| attempt.n < task.tries) else {
        return task.open_feedback().unwrap_or_default();
    };
    let said = task.feedback.iter().rev().find(|feedback| feedback.attempt == before.n);
    said.map(|feedback| feedback.text.clone()).or(before.error.clone()).unwrap_or_default()
}

/// The attempt of a task that runs, in the directory of its plan.
pub(crate) fn dispatched(
    plan: &TaskPlan,
    task: &Task,
    id: TaskNumber,
    directory: &str,
) -> Result<Dispatched, NotDispatched> {
    let on: Vec<(TaskNumber, &Task)> =
        task.edges.iter().filter_map(|edge| Some((number(&edge.on)?, plan.get(&edge.on)?))).collect();
    let dependencies: Vec<TaskNumber> = on.iter().map(|(id, _)| *id).collect();
    let capabilities: BTreeMap<_, _> = on.iter().filter_map(|(id, task)| Some((*id, capability(task)?))).collect();
    let scope = TemplateScope { task: id, dependencies: &dependencies, capabilities: &capabilities };
    let work = Work::read(task.capability.as_deref().unwrap_or_default(), &task.params, &scope)?;
    let texts: BTreeMap<TaskNumber, String> = on.iter().map(|(id, task)| (*id, text(task))).collect();
    let result = |(id, task): &(TaskNumber, &'_ Task)| {
        Some((*id, (texts.get(id)?.as_str(), plan.get(&task.id)?.result.as_ref().unwrap_or(&Value::Null))))
    };
    let attempt = task.attempt_count + 1;
    let values = Values {
        attempt,
        feedback: &feedback(task),
        objective: &plan.objective,
        task_objective: &task.goal,
        results: on.iter().filter_map(result).collect(),
    };
    let input = work.input(directory, &values)?;
    let options = work.options(format!("task-{id}-attempt-{attempt}: {}", title(task)));
    Ok(Dispatched { activity_type: work.activity_type(), input, options })
}

/// What the rules of a task say of its result; nothing if it has none.
pub(crate) fn verdict(task: &Task) -> Option<Result<CriticVerdict, FieldError>> {
    let rules = task.params.get("review")?;
    // Whoever is no capability of a plan file may give anything.
    let capability = capability(task).unwrap_or(Capability::Activity);
    let rules = CriticRules::read(&format!("task {}.parameters.review", task.id), rules, capability);
    let result = task.result.as_ref().unwrap_or(&Value::Null);
    Some(rules.map(|rules| rules.judge(&text(task), result)))
}
