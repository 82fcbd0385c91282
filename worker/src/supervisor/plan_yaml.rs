//! Plans in YAML: the strict contract of supervisors.md §1.1.5, read with a budget.
//!
//! Invariant: a file is refused with its path and the place of the fault; no key is ignored, no value coerced, no alias
//! expanded, and a hostile file is refused quickly (G39). It reads no file: the caller gives path and text.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::fields::{FieldError, Fields, kind};
use super::model::{Condition, PlanMetadata};
use super::plan::{MAX_ATTEMPTS_DEFAULT, Plan, PlanError, REASONING_DEFAULT, SeedPlan, TaskItem};
use super::task::{TaskNumber, TaskStatus};
use super::yaml::{self, TextPlace, YAML_BYTES_MAX};

/// The longest plan file, in bytes.
pub const PLAN_BYTES_MAX: usize = YAML_BYTES_MAX;

/// Why a file is no plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("Invalid workflow YAML at '{path}'. {problem}{}", TextPlace::shown(*.place, path))]
pub struct InvalidPlanFile {
    pub path: String,
    pub problem: PlanProblem,
    /// Where that stands in the file, if it does.
    pub place: Option<TextPlace>,
}

impl InvalidPlanFile {
    pub(super) fn of(path: &str, text: &str, problem: PlanProblem) -> InvalidPlanFile {
        let place = match &problem {
            PlanProblem::Field(why) => yaml::place_of(text, &by_position(text, &why.path)),
            PlanProblem::TooLarge { .. } | PlanProblem::Yaml { .. } | PlanProblem::Plan(_) => None,
        };
        InvalidPlanFile { path: path.to_owned(), problem, place }
    }
}

/// What is wrong with the file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanProblem {
    #[error("the file has {length} bytes; at most {PLAN_BYTES_MAX} are read")]
    TooLarge { length: usize },
    #[error("{why}")]
    Yaml { why: String },
    #[error(transparent)]
    Field(#[from] FieldError),
    #[error(transparent)]
    Plan(#[from] PlanError),
}

/// `task 7.capability` as it stands in the file: `tasks[2].capability`.
fn by_position(text: &str, path: &str) -> String {
    let found = || {
        let (id, rest) = path.strip_prefix("task ")?.split_once('.')?;
        let id: u64 = id.parse().ok()?;
        let tasks = yaml::parse(text).ok()?.get("tasks")?.as_array()?.clone();
        let at = tasks.iter().position(|task| task.get("task_id").and_then(Value::as_u64) == Some(id))?;
        Some(format!("tasks[{at}].{rest}"))
    };
    found().unwrap_or_else(|| path.to_owned())
}

const PLAN_KEYS: [&str; 3] = ["objective", "reasoning_steps", "tasks"];
const TASK_KEYS: [&str; 18] = [
    "task_id",
    "sub_task_objective",
    "capability",
    "overall_objective",
    "sub_task_dependencies",
    "status",
    "time_scope",
    "parameters",
    "metadata",
    "attempt_count",
    "max_attempts",
    "is_final",
    "action",
    "risk",
    "required",
    "requires_approval",
    "when",
    "compensation",
];

/// Reads a plan. `auto_mark_final` marks the last task as final when none is (PDT-43).
pub fn read_plan(path: &str, text: &str, auto_mark_final: bool) -> Result<Plan, InvalidPlanFile> {
    let refuse = |problem| InvalidPlanFile::of(path, text, problem);
    let plan = read(text).map_err(refuse)?;
    Ok(if auto_mark_final { plan.auto_mark_final() } else { plan })
}

fn read(text: &str) -> Result<Plan, PlanProblem> {
    if text.len() > PLAN_BYTES_MAX {
        return Err(PlanProblem::TooLarge { length: text.len() });
    }
    let value = yaml::parse(text).map_err(|why| PlanProblem::Yaml { why: why.to_string() })?;
    plan_of(&value)
}

/// The plan of data in the form of a plan file.
pub(super) fn plan_of(value: &Value) -> Result<Plan, PlanProblem> {
    Ok(Plan::from_file(seed(value)?)?)
}

fn seed(value: &Value) -> Result<SeedPlan, PlanProblem> {
    let value = if value.is_null() { &Value::Object(serde_json::Map::new()) } else { value };
    if !value.is_object() {
        let problem = format!("expected a mapping with `objective` and `tasks`, found {}", kind(value));
        return Err(FieldError::at("the document", problem).into());
    }
    let fields = Fields::read(value, "", &PLAN_KEYS)?;
    let objective = fields.required_text("objective")?;
    let mut reasoning_steps = fields.one_or_more_texts("reasoning_steps")?;
    if reasoning_steps.is_empty() {
        reasoning_steps.push(REASONING_DEFAULT.to_owned());
    }
    let entries = match fields.value("tasks") {
        Some(Value::Array(list)) if !list.is_empty() => fields.entries("tasks")?,
        _ => return Err(PlanError::NoTasks.into()),
    };
    let tasks = entries.into_iter().map(|(path, value)| task(&path, value, &objective)).collect::<Result<_, _>>()?;
    Ok(SeedPlan { objective, reasoning_steps, tasks })
}

fn task(path: &str, value: &Value, objective: &str) -> Result<TaskItem, FieldError> {
    let fields = Fields::read(value, path, &TASK_KEYS)?;
    let number = |key: &str| -> Result<Option<u32>, FieldError> {
        let small = |number| u32::try_from(number).map_err(|_| fields.error(key, format!("{number} is too large")));
        fields.natural(key)?.map(small).transpose()
    };
    let mapping = |key: &str| match fields.value(key) {
        None => Ok(serde_json::Map::new()),
        Some(Value::Object(map)) => Ok(map.clone()),
        Some(other) => Err(fields.error(key, format!("expected a mapping, found {}", kind(other)))),
    };
    let status = match fields.text("status")? {
        None => TaskStatus::Pending,
        Some(name) => TaskStatus::from_name(&name)
            .ok_or_else(|| fields.error("status", format!("`{name}` is not a task status")))?,
    };
    let max_attempts = number("max_attempts")?.unwrap_or(MAX_ATTEMPTS_DEFAULT);
    if max_attempts == 0 {
        return Err(fields.error("max_attempts", "a task needs at least one attempt"));
    }
    let dependencies = fields.entries("sub_task_dependencies")?;
    Ok(TaskItem {
        task_id: TaskNumber(fields.required("task_id", number("task_id")?)?),
        overall_objective: fields.text("overall_objective")?.unwrap_or_else(|| objective.to_owned()),
        sub_task_objective: fields.required_text("sub_task_objective")?,
        capability: fields.required_text("capability")?,
        sub_task_dependencies: dependencies.iter().map(|(path, id)| task_id(path, id)).collect::<Result<_, _>>()?,
        status,
        time_scope: fields.value("time_scope").cloned(),
        parameters: mapping("parameters")?,
        metadata: PlanMetadata::said(mapping("metadata")?).map_err(|why| fields.error("metadata", why.to_string()))?,
        attempt_count: number("attempt_count")?.unwrap_or(0),
        max_attempts,
        is_final: fields.boolean("is_final")?.unwrap_or(false),
        action: fields.text("action")?,
        risk: fields.value("risk").map(|risk| typed(&fields, "risk", risk)).transpose()?,
        required: fields.boolean("required")?.unwrap_or(false),
        requires_approval: fields.boolean("requires_approval")?.unwrap_or(false),
        when: match fields.value("when") {
            None => BTreeMap::new(),
            Some(when) => conditions(&fields, when, &dependencies)?,
        },
        compensation: fields.value("compensation").cloned(),
    })
}

fn typed<T: DeserializeOwned>(fields: &Fields<'_>, key: &str, value: &Value) -> Result<T, FieldError> {
    serde_path_to_error::deserialize(value).map_err(|why| {
        let path = why.path().to_string();
        let at = if path == "." { fields.path_of(key) } else { format!("{}.{path}", fields.path_of(key)) };
        FieldError::at(at, why.into_inner().to_string())
    })
}

/// Conditions on results of dependencies: each names one of them.
fn conditions(
    fields: &Fields<'_>,
    when: &Value,
    dependencies: &[(String, &Value)],
) -> Result<BTreeMap<String, Condition>, FieldError> {
    let read: BTreeMap<String, Condition> = typed(fields, "when", when)?;
    let known = |id: &String| dependencies.iter().any(|(_, dependency)| dependency.to_string() == *id);
    match read.keys().find(|id| !known(id)) {
        Some(id) => Err(fields.error("when", format!("`{id}` is not in sub_task_dependencies"))),
        None => Ok(read),
    }
}

fn task_id(path: &str, value: &Value) -> Result<TaskNumber, FieldError> {
    let id = value.as_u64().and_then(|id| u32::try_from(id).ok());
    id.map(TaskNumber).ok_or_else(|| FieldError::at(path, format!("expected a task_id, found {}", kind(value))))
}

#[cfg(test)]
mod tests;
